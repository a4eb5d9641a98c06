"""`make bench`: all figures, or those named: `python -m bench core wire`."""

import importlib
import sys

from bench.machine_limits import describe

PARTS = ("machine_limits", "core", "scheduling", "wire", "raft", "store", "node", "throughput", "disk")


def main(parts: list[str]) -> int:
    """Run the parts and print their rows."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print(f"bench: no part {unknown[0]!r}; there are: {' '.join(PARTS)}", file=sys.stderr)
        return 2
    print(describe())
    for part in parts or PARTS:
        print(f"\n{part}")
        for name, value, unit in importlib.import_module(f"bench.{part}").run():
            print(f"  {name:<66} {value:>14,.1f} {unit}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
