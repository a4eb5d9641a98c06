"""Real output of real commands for the pages: what stands between the marks is what the command prints.

    <!-- run: rollmq log verify state -->
    ```console
    $ rollmq log verify state
    …
    ```
    <!-- end -->

Commands run in an empty folder with two state directories that hold the story of docs_examples: `state`,
and `damaged`, in which one byte of the log is another. `cat FILE` and `head -1 FILE` show files of them.
Operators' commands ask the node of docs_node, whose story begins anew with each page; jobs have names there,
and `$cat` in a command stands for the id of the job named cat.
"""

import contextlib
import re
import shlex
import shutil
import tempfile
from pathlib import Path

from click.testing import CliRunner

from rollmq.cli.main import main as rollmq_command
from rollmq.core.line import encode_line
from rollmq.core.machine import Machine
from rollmq.core.raft_ready import HardState
from rollmq.core.state import dump_state
from rollmq.store.disk import OsDisk
from rollmq.store.layout import snapshot_name
from rollmq.store.opening import StoreOptions
from rollmq.store.snapshot import write_state
from rollmq.store.store import Store
from tests.docs_examples import EXAMPLES, GROUP, NODES
from tests.docs_node import ENV, Scene, scene

RUN = re.compile(r"(<!-- run: (?P<command>[^\n]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200", **ENV}


def make_directory(path: Path) -> None:
    """A state directory with the story's segment, sealed, its snapshot, and a vote in its last term."""
    options = StoreOptions(ballast_bytes=0, disk_free_bytes_min=0)
    store, _ = Store.open(OsDisk(path), fresh_node_id=NODES[0], options=options)
    store.set_group(GROUP)
    store.save_vote(HardState(term=EXAMPLES[-1].term, voted_for=NODES[0]))
    store.write([encode_line(event) for event in EXAMPLES], EXAMPLES[0].index)
    store.seal(EXAMPLES[-1].index)
    store.close()
    machine = Machine()
    for event in EXAMPLES:
        machine.apply(event)
    write_state(OsDisk(path), snapshot_name(machine.last_index), dump_state(machine))


def damage_directory(path: Path) -> None:
    """Change one digit in the middle of the sealed segment, as a bad disk might."""
    segment = next((path / "history").glob("events-*.jsonl"))
    segment.write_bytes(segment.read_bytes().replace(b'"tries":2', b'"tries":3', 1))


def with_outputs(page: str) -> str:
    """The page with what its commands print today."""
    if not RUN.search(page):
        return page
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), scene() as played:
        make_directory(Path("state"))
        shutil.copytree("state", "damaged")
        damage_directory(Path("damaged"))
        return RUN.sub(lambda found: found[1] + _block(found["command"], played) + found[3], page)


def _block(command: str, played: Scene) -> str:
    shown = re.sub(r"\$(\w+)", lambda name: played.names.draw(name[1], played.now_us), command)
    return f"```console\n$ {shown}\n{_trimmed(_output(shlex.split(shown)))}\n```\n"


def _trimmed(output: str) -> str:
    """Without the blanks that fill a table's last column."""
    return "\n".join(line.rstrip() for line in output.rstrip().splitlines())


def _output(words: list[str]) -> str:
    if words[0] == "rollmq":
        result = CliRunner().invoke(rollmq_command, words[1:], env=PLAIN)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.output
    content = Path(words[-1]).read_text()
    assert words[:-1] in (["cat"], ["head", "-1"]), f"cannot run {words}"
    return content if words[0] == "cat" else content.splitlines()[0]
