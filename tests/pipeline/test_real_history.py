"""End to end: what real nodes lived through, kills and all, is in the tables, row for row, and is proved."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollmq.core.line import decode_line
from rollmq.library.operator import OperatorConnection
from rollmq.pipeline.auditing import run_audit
from rollmq.pipeline.errors import BadOption
from rollmq.pipeline.lines import LineParser
from rollmq.pipeline.live import find_end, live_pieces, read_live
from rollmq.pipeline.runs import History, Sources
from rollmq.pipeline.warehouse import Reached, Warehouse
from rollmq.pipeline.watching import Lag, confirm, watch
from tests.group.real_group import free_ports, sealed_of
from tests.pipeline.plain_fold import PlainFold
from tests.pipeline.real_history import RealHistory, real_history
from tests.pipeline.test_silver import check_tables

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHistory]:
    with real_history(tmp_path_factory.mktemp("real")) as made:
        yield made


@pytest.fixture(scope="module")
def built(spark: Any, real: RealHistory, tmp_path_factory: pytest.TempPathFactory) -> History:
    """The tables of all that was archived."""
    history = History(spark, Warehouse(tmp_path_factory.mktemp("warehouse") / "w"))
    report = history.update(Sources(places=(str(real.archive),)))
    assert report.is_clean
    assert report.ranges == {real.uuid: (1, len(real.lines()))}
    return history


def live(spark: Any, real: RealHistory) -> Any:
    """A reader of all its nodes."""
    return spark.read.format("rollmq").option("server", real.group.servers)


def test_the_history_has_everything_that_may_happen_in_it(real: RealHistory) -> None:
    kinds = {json.loads(line)["type"] for line in real.lines()}
    wanted = (
        "enqueue assign ack fail_requeue timeout_requeue worker_down_requeue dlq redrive drop cancel pause"
    )
    assert set(wanted.split()) <= kinds
    assert {each["told"] for each in real.told} >= {"accepted", "done", "dead", "cancelled"}


def test_the_archive_is_what_every_node_has(real: RealHistory) -> None:
    there = {path.name: path.read_bytes() for path in real.archive.glob("*/events-*.jsonl")}
    for node in real.group.nodes:
        assert sealed_of(node.state) == there


def test_the_tables_say_what_plain_python_tells_of_the_same_log(built: History, real: RealHistory) -> None:
    check_tables(built, [PlainFold(real.uuid).read(real.lines())])


def test_the_promises_are_proved_on_it_with_what_the_client_was_told(
    built: History, real: RealHistory
) -> None:
    places = [str(real.archive), *(str(node.state) for node in real.group.nodes)]
    report = run_audit(built, places=places, receipts=str(real.receipts))
    assert not report.first, report.first
    assert report.violations == 0
    assert report.receipts == len(real.told)
    assert report.receipts_undecided == 0
    assert report.jobs == sum(1 for each in real.told if each["told"] == "accepted")


def test_live_nodes_give_the_same_rows_and_are_told_what_was_taken(
    spark: Any, real: RealHistory, tmp_path: Path
) -> None:
    history = History(spark, Warehouse(tmp_path / "warehouse"))
    sources = Sources(server=real.group.servers)
    lags: list[Lag] = []
    watch(history, sources, every_s=0.1, rounds=2, on_lag=lags.append, confirm_as="nightly")
    taken = lags[0].taken
    assert taken >= len(real.lines())
    assert [lag.group for lag in lags] == [real.uuid] * 2
    assert lags[1].taken > taken, "the confirmation itself is an entry of the log"
    lines = [line for line in real.lines() if decode_line(line).index <= taken]
    assert history.table("events").count() == lags[1].taken
    check_tables(history, [PlainFold(real.uuid).read(lines)])
    confirmed = confirm(sources, "nightly", {real.uuid: history.warehouse.published().groups[real.uuid]})
    assert confirmed == lags[1].taken
    said = live(spark, real).option("types", "pipeline").load().select("name", "confirmed_index").collect()
    assert ("nightly", confirmed) in [tuple(row) for row in said]


def test_followers_are_read_the_leader_is_spared_and_a_dead_node_is_passed_over(
    real: RealHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = real.group.leader()
    followers = real.group.others(leader)
    end = find_end(",".join(node.address for node in [leader, *followers]))
    assert end.servers[-1] == leader.address
    assert find_end(leader.address, group=end.group).group == end.group
    with pytest.raises(BadOption, match=f"expected that of {leader.address}: {end.group}"):
        find_end(leader.address, group="0" * 32)
    asked: list[str] = []
    read_log = OperatorConnection.read_log

    def spied(self: OperatorConnection, *args: Any, **options: Any) -> Any:
        found = read_log(self, *args, **options)
        asked.append(self.server)
        return found

    monkeypatch.setattr(OperatorConnection, "read_log", spied)
    (piece,) = live_pieces(end, 1, 50)
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    piece = replace(piece, servers=(dead, *piece.servers))
    rows = [row for batch in read_live(piece, LineParser(group=end.group)) for row in batch.to_pylist()]
    assert [row["index"] for row in rows] == list(range(1, 51))
    assert set(asked) <= {node.address for node in followers}


def test_files_and_live_nodes_together_give_each_entry_once(
    spark: Any, real: RealHistory, tmp_path: Path
) -> None:
    """What the files have comes from them; the nodes give the rest."""
    first = sorted(real.archive.glob("*/events-*.jsonl"))[0]
    part = tmp_path / "part" / real.uuid
    part.mkdir(parents=True)
    (part / first.name).write_bytes(first.read_bytes())
    frame = live(spark, real).option("paths", json.dumps([str(tmp_path / "part")])).load()
    indexes = [row["index"] for row in frame.select("index").collect()]
    assert sorted(indexes) == list(range(1, len(indexes) + 1))
    assert len(indexes) >= len(real.lines())
    bounded = live(spark, real).option("startIndex", "40").option("endIndex", "60").load()
    assert sorted(row["index"] for row in bounded.select("index").collect()) == list(range(40, 61))


def test_a_stream_over_live_nodes_goes_on_where_it_ended(
    spark: Any, real: RealHistory, tmp_path: Path
) -> None:
    seen: list[int] = []

    def run() -> None:
        query = (
            spark.readStream.format("rollmq")
            .option("server", real.group.servers)
            .load()
            .writeStream.foreachBatch(
                lambda batch, _: seen.extend(row["index"] for row in batch.select("index").collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    before = len(seen)
    assert before >= len(real.lines())
    confirm(Sources(server=real.group.servers), "stream", {real.uuid: Reached(bronze_index=before)})
    run()
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) > before
