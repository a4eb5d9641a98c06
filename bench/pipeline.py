"""History on Spark, each figure beside Spark's own on the same segments, in the same run.

    python -m bench.day ROOT --events 20200000     first: the history, see there
    python -m bench.pipeline ROOT                  all parts, or some: scan parquet ingest fold increment job
                                                   audit others
    python -m bench.pipeline ROOT watch            the lag behind a node under load; needs no history.
                                                   --rates 1000 2000: jobs a second, one run of each

`scan` is one pass of Spark's `read.json`, with the schema given, over the archive: the unit of the others. A
part can run alone: what was measured is kept in ROOT/figures.json, and the table tells which run a row is of.
`increment` takes the newest hundredth of the archive, which the others leave out. The driver has 2 GiB.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.day import GROUP
from bench.machine_limits import describe
from bench.processes import group, process, python, said_by
from rollmq.pipeline.runs import History, Sources
from rollmq.pipeline.schema import COLUMNS
from rollmq.pipeline.session import SparkRun
from rollmq.pipeline.warehouse import Warehouse

PARTS: Final = ("scan", "parquet", "ingest", "fold", "increment", "job", "audit", "others")
NOT_IN_A_LINE: Final = (
    "fence_term",
    "fence_index",
    "group",
    "at",
    "settings",
    "extra",
    "reject",
    "members_group",
)
JSON_DDL: Final = "crc string, fence array<bigint>, " + ", ".join(
    f"`{name}` {kind}" for name, kind in COLUMNS.items() if name not in NOT_IN_A_LINE
)
HELD_BACK: Final = 0.01
WATCHED_SECONDS: Final = 50
WATCHED_MARGIN_S: Final = 6
"""No round begins so shortly before the load ends: it would find nothing new."""


class Bench:
    """One run over one history."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.archive = root / "archive"
        self.files = self._older()
        self.events = _last_entry(self.files[-1]) if self.files else 0
        self._kept = root / "figures.json"
        self.figures: dict[str, Any] = json.loads(self._kept.read_text()) if self._kept.exists() else {}
        self.now: set[str] = set()

    def _older(self) -> list[str]:
        """The archive without its newest hundredth, as near as segments allow: a folder of links."""
        files = sorted((self.archive / GROUP).glob("*.jsonl"))
        view = self.root / "older" / GROUP
        shutil.rmtree(view, ignore_errors=True)
        view.mkdir(parents=True)
        for file in files:
            middle = (_first_entry(file) + _last_entry(file)) / 2
            if middle <= _last_entry(files[-1]) * (1 - HELD_BACK):
                os.link(file, view / file.name)
        return sorted(map(str, view.iterdir()))

    def timed(self, name: str, step: Callable[[], Any]) -> Any:
        """Do it, and keep how long it took; what is told of processor seconds is kept beside it."""
        began, used = time.perf_counter(), processor_seconds()
        result = step()
        spent = processor_seconds() - used
        self.keep(name, time.perf_counter() - began)
        if spent:
            self.keep(f"{name}, processor", spent)
        return result

    def keep(self, name: str, value: float) -> None:
        """A figure."""
        self.figures[name] = value
        self.now.add(name)
        self._kept.write_text(json.dumps(self.figures, indent=1))
        print(f"  {name:<58} {value:>12,.2f}", flush=True)

    # -- parts

    def scan(self, spark: Any) -> None:
        """Twice: the first one also compiles."""
        frame = spark.read.schema(JSON_DDL).json(self.files)
        for name in ("scan, first", "scan"):
            self.timed(name, lambda: frame.write.format("noop").mode("overwrite").save())

    def parquet(self, spark: Any) -> None:
        target = str(self.root / "plain")
        frame = spark.read.schema(JSON_DDL).json(self.files)
        self.timed("parquet", lambda: frame.write.mode("overwrite").parquet(target))
        shutil.rmtree(target)

    def ingest(self, spark: Any) -> None:
        """Into a new warehouse."""
        shutil.rmtree(self.root / "warehouse", ignore_errors=True)
        history = self._history(spark, "warehouse")
        report = self.timed("ingest", lambda: history.update(self._sources("older"), builds=False))
        assert report.is_clean
        assert report.read == self.events

    def fold(self, spark: Any) -> None:
        """The tables of jobs, from what was ingested. Both together are the full build."""
        history = self._history(spark, "warehouse")
        report = self.timed("fold", lambda: history.update(None))
        assert report.written["jobs_closed"]

    def increment(self, spark: Any) -> None:
        """Of a warehouse that has been built; what is measured changes it, so it is done on a copy."""
        shutil.rmtree(self.root / "copy", ignore_errors=True)
        shutil.copytree(self.root / "warehouse", self.root / "copy", copy_function=os.link)
        for name in ("published.json", "lock"):  # these are written in place
            (self.root / "copy" / name).unlink()
            shutil.copy(self.root / "warehouse" / name, self.root / "copy" / name)
        history = self._history(spark, "copy")
        report = self.timed("increment", lambda: history.update(self._sources("archive")))
        assert report.is_clean
        self.keep("increment, events", report.read)

    def job(self, spark: Any) -> None:
        """A job of the middle, by the command, Python's start included."""
        house = Warehouse(self.root / "warehouse")
        jobs = History(spark, house).table("jobs_closed")
        middle = self.events // 2
        row = jobs.where(f"attempts = 2 and enqueue_index between {middle} and {middle + 50_000}").first()
        command = python("-m", "rollmq", "history", "job", row["job_id"], "--warehouse", house.path)
        self.timed("job", lambda: said_by(command))

    def audit(self, spark: Any) -> None:
        from rollmq.pipeline.auditing import run_audit

        history = History(spark, Warehouse(self.root / "warehouse"))
        report = self.timed("audit", lambda: run_audit(history, places=(), receipts=""))
        assert report.violations == 0, report.first

    def others(self, spark: Any) -> None:
        """One question, asked of the lines and of the tables: how many, and how long, by type or exec."""
        import duckdb
        import polars

        frame = spark.read.schema("type string, run_us bigint").json(self.files)
        aggregate = "select type, count(*) n, avg(run_us) run_us from lines group by type"
        frame.createOrReplaceTempView("lines")
        self.timed("lines, Spark", lambda: spark.sql(aggregate).collect())
        names = str(self.files)
        fields = "columns={type: 'VARCHAR', run_us: 'BIGINT'}, format='newline_delimited'"
        statement = aggregate.replace("from lines", f"from read_json({names}, {fields})")
        self.timed("lines, DuckDB", lambda: duckdb.sql(statement).fetchall())
        scan = polars.scan_ndjson(self.files, schema={"type": polars.String, "run_us": polars.Int64})
        grouped = scan.group_by("type").agg(polars.len(), polars.col("run_us").mean())
        self.timed("lines, Polars", grouped.collect)
        house = Warehouse(self.root / "warehouse")
        files = house.folder(_table("attempts")).files(house.published().versions["attempts"])
        by_exec = "select exec, count(*) n, avg(run_us) run_us from attempts group by exec"
        History(spark, house).table("attempts").createOrReplaceTempView("attempts")
        self.timed("attempts, Spark", lambda: spark.sql(by_exec).collect())
        statement = by_exec.replace("from attempts", f"from read_parquet({files})")
        self.timed("attempts, DuckDB", lambda: duckdb.sql(statement).fetchall())
        rows = polars.scan_parquet(files).group_by("exec").agg(polars.len(), polars.col("run_us").mean())
        self.timed("attempts, Polars", rows.collect)

    def _history(self, spark: Any, name: str) -> History:
        return History(spark, Warehouse(self.root / name))

    def _sources(self, name: str) -> Sources:
        return Sources(places=(str(self.root / name),))

    # -- what it means

    def told(self) -> None:
        """The goals, and how they were met."""
        figures = self.figures

        def row(name: str, needs: tuple[str, ...], ratio: Callable[..., float], goal: str) -> None:
            if all(each in figures for each in needs):
                value = ratio(*(figures[each] for each in needs))
                of = "" if self.now.issuperset(needs) else "   (partly of an earlier run)"
                print(f"  {name:<58} {value:>12,.2f}   {goal}{of}")

        print(f"\n{self.events:,} events")
        for of in ("", ", processor"):
            self._ratios(row, of)
        row("rollmq history job, seconds", ("job",), lambda j: j, "goal 3 or less")

    @staticmethod
    def _ratios(row: Callable[..., None], of: str) -> None:
        needs = (f"parquet{of}", f"ingest{of}")
        row(f"ingestion beside read.json to Parquet{of}", needs, lambda p, i: p / i, "goal 0.9 or more")
        needs = (f"scan{of}", f"ingest{of}", f"fold{of}")
        row(f"full build, in scans{of}", needs, lambda s, i, f: (i + f) / s, "goal 10 or less")
        row(
            f"what is new, in hundredths of the build{of}",
            (f"ingest{of}", f"fold{of}", f"increment{of}"),
            lambda i, f, more: 100 * more / (i + f),
            "goal 5 or less for 1 % more",
        )


def processor_seconds() -> float:
    """What all processes of this run have used, those that ended too: the kernel's account of a cgroup.

    Zero unless the run was put into a group of its own. Other than seconds, it does not depend on neighbours.
    """
    groups = [line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for _number, kinds, path in groups if "cpuacct" in kinds.split(",")), "/")
    usage = Path("/sys/fs/cgroup/cpuacct") / own.strip("/") / "cpuacct.usage"
    return int(usage.read_text()) / 1e9 if own != "/" and usage.exists() else 0.0


def _first_entry(file: str | Path) -> int:
    return int(Path(file).stem.split("-")[1])


def _last_entry(file: str | Path) -> int:
    return int(Path(file).stem.split("-")[2])


def _table(name: str) -> Any:
    from rollmq.pipeline.tables import TABLES

    return TABLES[name]


def watch(root: Path, spark: Any, rates: Sequence[int]) -> None:
    """A node, a worker and a client that submits evenly, all beside Spark on this machine; the tables follow.

    A rate is sustained when the rounds do not grow: each takes what came in during the one before.
    """
    from rollmq.pipeline.watching import Lag
    from rollmq.pipeline.watching import watch as follow

    for rate in rates:
        shutil.rmtree(root / "watched", ignore_errors=True)
        history = History(spark, Warehouse(root / "watched"))
        print(f"\n  {rate:,} jobs a second wanted")
        rounds: list[tuple[float, Lag]] = []

        def note(lag: Lag, rounds: list[tuple[float, Lag]] = rounds) -> None:
            rounds.append((time.perf_counter(), lag))
            told = f"behind {lag.behind:>9,}   newest {lag.age_s:>5.1f} s old   round {lag.seconds:>5.1f} s"
            print(f"  taken {lag.taken:>10,}   {told}", flush=True)

        used = processor_seconds()
        with group(1) as (_pids, ports), process(python("-m", "bench.driver", "worker", ports)):
            load = python("-m", "bench.driver", "paced", ports, rate, WATCHED_SECONDS)
            with process(load):
                sources = Sources(server=f"127.0.0.1:{ports}")
                until = time.perf_counter() + WATCHED_SECONDS
                while time.perf_counter() < until - WATCHED_MARGIN_S:
                    follow(history, sources, every_s=1.0, rounds=1, on_lag=note)
        (began, first), (ended, last) = rounds[len(rounds) // 2], rounds[-1]
        taken = (last.taken - first.taken) / (ended - began)
        print(f"  entries taken a second, in the second half of the rounds   {taken:>12,.0f}")
        spent = (processor_seconds() - used) / WATCHED_SECONDS
        print(f"  processors kept busy, all together                         {spent:>12,.2f}")


def main(words: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline")
    parser.add_argument("root", type=Path)
    parser.add_argument("parts", nargs="*", choices=(*PARTS, "watch", []), default=[])
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 2_000, 4_000], help="of watch")
    chosen = parser.parse_args(words)
    print(describe())
    bench = Bench(chosen.root)
    # The command would see that there is little to do. (More parts at once share one Java, as in a service.)
    with SparkRun(is_short=chosen.parts == ["increment"]) as run:
        run.spark.range(1000).selectExpr("sum(id)").collect()
        if chosen.parts == ["watch"]:
            watch(chosen.root, run.spark, chosen.rates)
            return 0
        for part in chosen.parts or PARTS:
            getattr(bench, part)(run.spark)
    bench.told()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
