"""What `camel status` and the notices report about a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from camel import ScriptedModel
from camel.core.message import Usage
from camel.generation.config import GenerateConfig
from camel.jobs.failures import EndpointNotices
from camel.jobs.ledger import totals_of
from camel.jobs.log import LOG, NOW, RunLog, read_log
from camel.jobs.progress import Watcher
from camel.jobs.status import read_status
from camel.models.prices import ModelPrice
from camel.models.replica import ReplicaState
from camel.models.spec import ModelSpec
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from tests.support.jobs import generation


def test_a_log_on_a_full_disk_is_no_reason_to_stop():
    entry = RunLog(Path("/dev/full")).write("progress", calls=3)
    assert entry["calls"] == 3


def test_half_a_line_costs_only_itself(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    log = RunLog(path)
    log.write("start")
    log.path = Path("/dev/full")
    log.write("lost")
    log.path = path
    path.write_bytes(path.read_bytes() + b'{"time": "2026-11-15T06')
    log.write("end", why="done")
    assert [event["event"] for event in read_log(RunFolder(tmp_path))] == ["end", "start"]


def begun(folder: RunFolder, price: ModelPrice | None = None) -> RunLog:
    """A run that has been started."""
    if not folder.exists:
        folder.create(Settings("f", {"scenario": "ai_society", "model.name": "m"}, "0"))
    log = RunLog(folder.root / LOG)
    time.sleep(0.002)  # a time in the log has milliseconds
    log.write("start", stages={"answers": 4}, price=price and {"input": price.input, "output": price.output})
    return log


def replica(**figures: Any) -> ReplicaState:
    usual: dict[str, Any] = {
        "state": "closed",
        "limit": None,
        "in_flight": 1,
        "waiting": 0,
        "open": 1,
        "most_open": None,
    }
    usual |= {"url": "http://a/v1", "calls": 9, "refused": 0, "failed": 0, "cached": 0.0}
    return ReplicaState(**usual | figures)


def test_a_run_that_works_tells_its_figures_and_their_age(tmp_path: Path):
    folder = RunFolder(tmp_path)
    log = begun(folder)
    figures = {
        "usage": Usage(900, 100, 0, 7),
        "calls_per_second": 3.5,
        "stages": [
            {"name": "answers", "planned": 4, "committed": 0, "finished": 2, "open": 2, "tokens": 1000}
        ],
        "replicas": [replica()],
    }
    log.write("progress", usage=Usage(9, 1, 0, 1))
    log.write_now(**figures)
    with folder.locked():
        now = read_status(tmp_path)
    assert (now.state, now.usage.calls, now.calls_per_second) == ("working", 7, 3.5)
    assert (now.stages[0].open, now.stages[0].tokens, now.replicas[0].url) == (2, 1000, "http://a/v1")
    assert now.as_of
    assert now.age is not None
    assert 0 <= now.age < 60
    # The figures of a start that was killed are not those of the next.
    begun(folder)
    with folder.locked():
        now = read_status(tmp_path)
    assert (now.usage.calls, now.age, now.replicas) == (0, None, ())
    log.forget_now()
    assert not (tmp_path / NOW).exists()


def test_what_was_paid_keeps_the_price_of_its_day(tmp_path: Path):
    folder, used, cheap = RunFolder(tmp_path), Usage(1_000_000, 0, 0, 1), ModelPrice(1.0, 1.0)
    begun(folder, cheap)
    paid = replace(used, usd=cheap.cost(used))
    for shard, totals in enumerate((totals_of(paid, priced=True), totals_of(used))):
        folder.commit(Marker("answers", shard, f"data/{shard}", 1, "", "f", totals))
    begun(folder, ModelPrice(5.0, 5.0))
    # A marker from before markers had money is all that today's price decides.
    assert read_status(tmp_path).money == pytest.approx(1.0 + 5.0)


def test_endpoints_are_reported_when_they_go_and_when_they_come_back():
    told: list[tuple[str, str]] = []
    clock = iter(range(100))
    endpoints = EndpointNotices(
        lambda event, text, **fields: told.append((fields["state"], text)), lambda: next(clock)
    )
    fine = replica(url="http://b/v1")
    endpoints.look([replica(), fine])
    endpoints.look([replica(failing=2), fine])
    assert not told
    endpoints.look([replica(state="open", said="Unreachable: gone"), fine])
    endpoints.look([replica(state="half-open", failing=5), fine])
    endpoints.look([replica(), fine])
    assert [state for state, _ in told] == ["down", "up"]
    assert "http://a/v1" in told[0][1]
    assert "gone" in told[0][1]
    # A single endpoint that has never answered is reported at once.
    endpoints.look([replica(url="http://c/v1", calls=1, failed=1, failing=1)])
    assert "retrying" in told[-1][1]


def ended(log: RunLog, finished: int, **more: Any) -> None:
    """The last line of a start, with so many answers in journals."""
    log.write("end", stages=[{"name": "answers", "planned": 8, "committed": 0, "finished": finished}], **more)


def test_what_has_ended_is_counted_whether_or_not_a_start_gets_to_it(tmp_path: Path):
    counts = {"topic": 1, "subtopic": 1, "problem": 8}
    config = GenerateConfig("math", ModelSpec("m"), out=str(tmp_path / "run"), counts=counts, shard_size=4)
    campaign = generation(config, ScriptedModel([]))
    log = RunLog(campaign.folder.root / LOG)
    campaign.state.begin(campaign.state.outline)
    log.write("start", stages={name: tally.planned for name, tally in campaign.state.tallies.items()})
    journal = campaign.folder.root / "journal" / "answers" / "000000-a"
    journal.parent.mkdir(parents=True)
    journal.touch()
    ended(log, 3, why="the budget is used up")

    def told() -> tuple[int, int]:
        return read_status(config.out).stages[-1].finished, Watcher(campaign).now("stopped").stages[
            -1
        ].finished

    assert told() == (3, 3)
    ended(log, 7)
    assert told() == (4, 4), "no more than its shards have"
    journal.unlink()
    assert told() == (0, 0)


def test_what_was_removed_from_a_complete_run_is_not_called_a_crash(
    tmp_path: Path, snapshot: Callable[..., None]
):
    folder = RunFolder(tmp_path)
    log = begun(folder)
    snapshot("status", read_status(tmp_path).why, "cut off")
    log.write("end", state="stopped", why="", error="the disk is full")
    assert read_status(tmp_path).why == "the disk is full"
    ended(log, 4, state="complete", why="")
    now = read_status(tmp_path)
    assert (now.state, now.stages[0].finished) == ("stopped", 0)
    snapshot("status", now.why, "removed")
