"""`rollmq demo`: the whole story in less than a minute, on this machine, with nothing left behind."""

import asyncio
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import click
import uvloop
from rich.text import Text

from rollmq import limits
from rollmq.cli import looks
from rollmq.cli.demo.cast import DemoFailed
from rollmq.cli.demo.proof import Figures
from rollmq.cli.demo.screen import Screen
from rollmq.cli.demo.story import FULL, QUICK, Ending, Story
from rollmq.errors import RollmqError

ROOM_BYTES: Final = limits.DISK_FREE_BYTES_MIN + 3 * limits.BALLAST_BYTES + 200_000_000
"""What nodes want to stay free, and what three of them write."""
JOBS_MIN: Final = 300
JOBS_MAX: Final = 1_000_000


@click.command(
    epilog="""\b
Examples:
  rollmq demo                      half a minute; everything it starts and writes is gone afterwards
  rollmq demo --quick              a shorter story: fewer jobs, and one worker less is killed
  rollmq demo --keep demo-state    leaves the three nodes' directories there, for `rollmq log show`
  rollmq demo --json | jq .lost

Exit codes: 0 every promise was kept, 1 one was not or the demo could not be played (then what it wrote is
kept, and named), 2 wrong usage, 130 stopped by Ctrl-C."""
)
@click.option(
    "--jobs",
    type=click.IntRange(JOBS_MIN, JOBS_MAX),
    metavar="N",
    help="How many jobs.  [default: 8000; --quick: 1000]",
)
@click.option("--quick", is_flag=True, help="A shorter story: no worker is killed by hand.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the nodes' state and logs in this directory, which must be new or empty.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def demo(ctx: click.Context, jobs: int | None, quick: bool, keep: Path | None, as_json: bool) -> None:
    """Watch three nodes lose their leader under load, and nothing else.

    A job brings its workers down; a worker and the leader are killed with SIGKILL under load. It shows who
    takes over and how fast, brings the dead node back, and then compares what clients were told with the
    nodes' logs. All of it are real processes, on free ports of loopback, and real files.
    """
    script = QUICK if quick else FULL
    if jobs is not None:
        script = dataclasses.replace(script, jobs=jobs)
    folder = _folder(keep)
    _check_room(folder, keep)
    screen = Screen(is_silent=as_json)
    is_kept = keep is not None
    try:
        ending = _play(Story(folder, script, screen), screen)
        is_kept = is_kept or not ending.is_sound
    except RollmqError as error:
        is_kept = True
        raise DemoFailed(f"{error} What the processes wrote is kept in {folder}; they were ended.") from error
    except KeyboardInterrupt:
        looks.note("stopped: all processes of the demo were ended" + ("" if is_kept else ", nothing is left"))
        ctx.exit(130)
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        looks.say_json(_json(ending, screen, folder if is_kept else None))
    else:
        _print(ending, folder if is_kept else None)
    ctx.exit(0 if ending.is_sound else 1)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="rollmq-demo-"))
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise click.UsageError(
            f"--keep {keep}: there is something already. Name a new or an empty directory."
        )
    keep.mkdir(parents=True, exist_ok=True)
    return keep


def _check_room(folder: Path, keep: Path | None) -> None:
    """On a disk that is nearly full the nodes would refuse submits, as they should."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes >= ROOM_BYTES:
        return
    if keep is None:
        folder.rmdir()
    raise DemoFailed(
        f"{folder.parent if keep is None else folder} has {looks.size(free_bytes)} free, the demo needs "
        f"{looks.size(ROOM_BYTES)}. Nothing was started. Name another place: TMPDIR=DIR, or --keep DIR."
    )


def _play(story: Story, screen: Screen) -> Ending:
    """Ctrl-C, SIGTERM and the end of the terminal end it too; its processes go with it in any case."""
    ending: list[Ending] = []

    async def play() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        try:
            ending.append(await story.play())
        finally:
            story.cast.end()  # here, so that whoever still waits for one of them is let go

    try:
        uvloop.run(play())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except BaseExceptionGroup as group:
        raise _first(group) from group
    finally:
        screen.end()
    return ending[0]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What one of several tasks raised, if it is an error of ours; what was cancelled by it says nothing."""
    found = group.exceptions[0]
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, RollmqError) else group


def _json(ending: Ending, screen: Screen, keep: Path | None) -> dict[str, Any]:
    return {
        **dataclasses.asdict(ending.figures),
        "segments": ending.replicas.segments_count,
        "replicas_are_equal": ending.replicas.are_equal,
        "damages": list(ending.replicas.damages),
        "is_sound": ending.is_sound,
        "kept": str(keep) if keep is not None else None,
        "story": [dataclasses.asdict(line) for line in screen.lines],
    }


# --- for people -------------------------------------------------------------------------------------


def _print(ending: Ending, keep: Path | None) -> None:
    figures, replicas = ending.figures, ending.replicas
    out = looks.console()
    out.print()
    out.print(
        looks.table(
            "", ">jobs", "", rows=[(name, each, Text(why, "dim")) for name, each, why in rows(figures)]
        )
    )
    out.print()
    out.print(_verdict(ending, keep))
    for damage in replicas.damages:
        looks.warn(damage)
    out.print()
    out.print(_next(keep), soft_wrap=True)


def rows(figures: Figures) -> list[tuple[str, str | Text, str]]:
    """The table: name, figure, and what it means."""
    dead = ", ".join(f"{reason} {count}" for reason, count in figures.dead.items())
    return [
        ("accepted", f"{figures.accepted:,}", "receipts in the clients' hands"),
        ("finished", f"{figures.finished:,}", "of these, done in the log"),
        ("retried", f"{figures.retried:,}", "of these, after more than one try"),
        ("run again", f"{figures.rerun:,}", "were running in a worker that died: handlers may run twice"),
        ("dead", f"{sum(figures.dead.values()):,}", f"dead letters: {dead}"),
        ("lost", _zero(figures.lost), "accepted, and without an end in the log"),
        ("accepted twice", _zero(figures.accepted_twice), "submits that were repeated over the takeover"),
        (
            "told twice",
            _zero(figures.told_twice),
            "told two ends, or another than the log's; each was asked for twice",
        ),
        (
            "takeover",
            f"{figures.takeover_ms:,} ms",
            "from SIGKILL of the leader to the next confirmed submit",
        ),
    ]


def _zero(value: int) -> Text:
    return Text(f"{value:,}", "bold red" if value else "bold green")


def _verdict(ending: Ending, folder: Path | None) -> Text:
    replicas = ending.replicas
    if not ending.is_sound:
        same = "" if replicas.are_equal else " The nodes' sealed segments are not the same."
        where = f"What the nodes and workers wrote is kept in {folder}: please report it."
        return Text(f"A promise was broken.{same} {where}", "bold red")
    count = replicas.segments_count
    files = "sealed segment is" if count == 1 else f"{count} sealed segments are"
    return Text(
        f"The log has {ending.figures.entries:,} entries, each with its crc. Its {files} the same on all "
        f"three nodes, byte for byte, also on the one that was killed.",
        "green",
    )


def _next(keep: Path | None) -> Text:
    me = _command()
    lines = [
        ("a node of your own", f"{me} serve 5000"),
        ("then, in other terminals", "export ROLLMQ_SERVER=127.0.0.1:5000"),
        ("a worker, of any program", f"{me} worker --exec count='wc -c'"),
        ("a job", f"{me} submit count 'hello world' --wait"),
        ("what goes on", f"{me} top"),
    ]
    if keep is not None:
        lines.append(("what the demo wrote", f"{me} log show {keep / 'n1'} | less"))
    told = Text("What to try next\n", "bold")
    for what, command in lines:
        told.append(f"  {what:<26}", "dim").append(f"{command}\n")
    return told.append(
        "  README.md has a typed task and its caller; docs/architecture.md is the one-hour tour", "dim"
    )


def _command() -> str:
    """How this command is called from here."""
    if shutil.which("rollmq"):
        return "rollmq"
    called = Path(sys.argv[0])
    return (
        os.path.relpath(called) if called.name == "rollmq" else f"{os.path.relpath(sys.executable)} -m rollmq"
    )
