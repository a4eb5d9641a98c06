"""One fuzz target under atheris: `python -m tests.fuzz.run_target NAME [CORPUS] [libFuzzer options]`.

The process ends when the fuzzer does; that is why each target has one of its own. With the path of a
single file instead of a folder it runs only that input: so a finding is replayed.
"""

import importlib
import sys


def main() -> None:
    """Instrument our code, then hand the process to the fuzzer."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["rollmq"]):
        targets = importlib.import_module("tests.fuzz.targets")
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, targets.TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
