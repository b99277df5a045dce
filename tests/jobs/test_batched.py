"""Models that are asked in batches: every item is done once, and nothing is paid for twice. The ledger is the witness."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from camel import InputError
from camel.core.message import Sampling
from camel.engine.halt import Halt
from camel.jobs import batched
from camel.jobs.batched import TRIES
from camel.jobs.budget import Budget
from camel.jobs.launch import JobOptions, Launch
from camel.jobs.runner import Runner
from camel.runs.control import wish
from camel.runs.run import RunFolder, open_folder
from tests.support.batch_jobs import (
    Questions,
    quick,
    recorded_cost,
    run,
    run_heard,
    run_in_process,
    run_until,
)
from tests.support.batch_server import Batch, BatchServer, serve_batches

SHAPES = pytest.mark.parametrize("messages", [False, True], ids=["files", "messages"])


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with serve_batches() as server:
        yield server


def files(place: Path, end: str = "") -> list[Path]:
    return sorted(path for path in (place / "batches").glob("*") if path.name.endswith(end))


@SHAPES
def test_all_items_are_answered_from_one_batch(server: BatchServer, tmp_path: Path, messages: bool):
    with quick(messages=messages):
        outcome = run(Questions(str(tmp_path), server.url, 60))
    assert outcome.status == "complete"
    assert [one.text for one in outcome.result] == [f"Answer to What is question-{i}?" for i in range(60)]
    assert len(server.batches) == 1
    assert set(server.paid.values()) == {1}
    assert not server.direct
    assert recorded_cost(tmp_path) == pytest.approx(server.dollars, abs=1e-7)


@SHAPES
def test_failed_lines_are_submitted_again_and_nothing_else(
    server: BatchServer, tmp_path: Path, messages: bool
):
    server.fails = lambda id, times: (500, "overloaded") if int(id, 16) % 5 == 0 and not times else None
    with quick(messages=messages):
        outcome = run(Questions(str(tmp_path), server.url, 60))
    assert outcome.status == "complete"
    assert len(server.batches) == 2
    assert set(server.batches[1].lines) == {id for id in server.batches[0].lines if int(id, 16) % 5 == 0}
    assert set(server.paid.values()) == {1}
    assert len(server.paid) == 60


@SHAPES
def test_a_request_that_is_wrong_fails_alone_and_at_once(server: BatchServer, tmp_path: Path, messages: bool):
    wrong = "This model's maximum context length is 8 tokens"
    server.fails = lambda id, times: (400, wrong) if id == list(server.batches[0].lines)[7] else None
    with quick(messages=messages):
        outcome = run(Questions(str(tmp_path), server.url, 20))
    assert outcome.status == "failures"
    (failed,) = [one for one in outcome.result if one.failed]
    assert failed.failed.startswith("ContextOverflow: ")
    assert len(server.batches) == 1
    assert len(server.paid) == 19


def test_a_line_that_always_fails_ends_its_item_after_some_batches(server: BatchServer, tmp_path: Path):
    server.fails = lambda id, times: (500, "broken") if id == next(iter(server.batches[0].lines)) else None
    with quick():
        outcome = run(Questions(str(tmp_path), server.url, 20))
    (failed,) = [one for one in outcome.result if one.failed]
    assert failed.failed.startswith("ServerFailed: ")
    assert len(server.batches) == TRIES
    assert len(server.paid) == 19
    assert set(server.paid.values()) == {1}
    server.fails = lambda id, times: None
    with quick():
        outcome = run(Questions(str(tmp_path), server.url, 20), retry_failed=True)
    assert outcome.status == "complete"
    assert len(server.batches) == TRIES + 1
    assert sum(server.paid.values()) == 20


@SHAPES
def test_what_has_expired_is_submitted_again(server: BatchServer, tmp_path: Path, messages: bool):
    server.expires = {0}
    with quick(messages=messages):
        outcome = run(Questions(str(tmp_path), server.url, 31))
    assert outcome.status == "complete"
    assert [len(one.lines) for one in server.batches] == [31, 15]
    assert set(server.paid.values()) == {1}
    assert recorded_cost(tmp_path) == pytest.approx(server.dollars, abs=1e-7)


def test_a_refused_batch_is_submitted_again_and_its_reason_is_shown(server: BatchServer, tmp_path: Path):
    server.refuses, heard = {0, 1}, list[str]()
    with quick():
        outcome = run_heard(Questions(str(tmp_path), server.url, 20), heard)
    assert outcome.status == "complete"
    assert len(server.batches) == 3
    assert any("Enqueued token limit reached" in text for text in heard)


def test_batches_that_are_refused_in_a_row_halt_the_run(server: BatchServer, tmp_path: Path):
    server.refuses = {0, 1, 2}
    with quick():
        outcome = run(Questions(str(tmp_path), server.url, 20))
        assert outcome.status == "halted"
        assert "Enqueued token limit reached" in outcome.reason
        assert run(Questions(str(tmp_path), server.url, 20)).status == "complete"
    assert set(server.paid.values()) == {1}


def test_a_batch_has_at_most_so_many_lines(server: BatchServer, tmp_path: Path):
    with quick(LINES=25):
        assert run(Questions(str(tmp_path), server.url, 60)).status == "complete"
    assert sorted(len(one.lines) for one in server.batches) == [10, 25, 25]


def test_a_batch_has_at_most_so_many_bytes(server: BatchServer, tmp_path: Path):
    with quick(BYTES=3_000):
        assert run(Questions(str(tmp_path), server.url, 20)).status == "complete"
    assert max(len(one.lines) for one in server.batches) < 12
    assert sum(server.paid.values()) == len(server.paid) == 20


def test_a_field_that_the_endpoint_refuses_is_left_out_of_the_next_batch(server: BatchServer, tmp_path: Path):
    def fails(id: str, times: int) -> object:
        refused = "temperature" in server.batches[-1].lines[id]
        return (400, "Unsupported parameter: 'temperature' is not supported") if refused else None

    server.fails = fails
    with quick():
        outcome = run(Questions(str(tmp_path), server.url, 20, sampling=Sampling(temperature=0.5)))
    assert outcome.status == "complete"
    assert [len(one.lines) for one in server.batches] == [20, 20]


def test_the_same_request_asked_again_is_another_one(server: BatchServer, tmp_path: Path):
    """A reply without text is asked for again, also where the first one is in the journal of a start that stopped."""
    said = iter(["", *["text"] * 10])

    def answer(prompt: str) -> str:
        return next(said)

    server.answer = answer
    halt = Halt()
    with quick():
        server.looks = 10**9
        job = Questions(str(tmp_path), server.url, 1)

        def after_the_first(server: BatchServer = server) -> bool:
            server.looks = 1 if len(server.batches) == 1 else 10**9
            return len(server.batches) == 2 and server.batches[1].looks > 0

        outcome = run_until(job, after_the_first, halt)
        assert outcome.status == "stopped"
        server.looks = 1
        outcome = run(job)
    assert outcome.status == "complete"
    assert outcome.result[0].text == "text"
    assert outcome.result[0].usage.calls == 2
    assert len(server.batches) == 2
    assert sorted(server.paid.values()) == [1, 1]
    assert recorded_cost(tmp_path) == pytest.approx(server.dollars, abs=1e-7)


# ---------------------------------------------------------------- interrupted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "messages"),
    [
        ("POST /files", False),
        ("POST /batches", False),
        ("GET /batches/", False),
        ("GET /files/", False),
        ("GET /messages/batches", True),
        ("POST /messages/batches", True),
        ("GET /messages/batches/batch_0", True),
        ("GET /messages/batches/batch_0/results", True),
    ],
)
def test_a_killed_run_collects_what_it_has_submitted(
    server: BatchServer, tmp_path: Path, where: str, messages: bool
):
    """Before, during and after the submission; where it was submitted, the provider has done it before the kill."""
    server.breaks[where] = ["do kill"]
    assert run_in_process(server, tmp_path, 60, messages=messages)[0] == -signal.SIGKILL
    with quick(messages=messages):
        outcome = run(Questions(str(tmp_path), server.url, 60))
    assert outcome.status == "complete"
    assert len(server.batches) == 1
    assert len(server.paid) == 60
    assert set(server.paid.values()) == {1}
    assert recorded_cost(tmp_path) == pytest.approx(server.dollars, abs=1e-7)


@pytest.mark.slow
@SHAPES
def test_what_cannot_be_found_is_listed_as_in_flight(server: BatchServer, tmp_path: Path, messages: bool):
    """Killed after it was written down, and before the provider had it."""
    server.breaks["POST /messages/batches" if messages else "POST /batches"] = ["kill"]
    assert run_in_process(server, tmp_path, 60, messages=messages)[0] == -signal.SIGKILL
    with quick(messages=messages):
        for _ in range(2):
            outcome = run(Questions(str(tmp_path), server.url, 60))
            assert outcome.status == "halted"
            (file,) = files(tmp_path)
            assert str(file) in outcome.reason
            assert "60 requests may be in flight" in outcome.reason
            assert not server.batches
        files(tmp_path)[0].unlink()
        assert run(Questions(str(tmp_path), server.url, 60)).status == "complete"
    assert len(server.batches) == 1


@pytest.mark.parametrize("what", ["do", "do 503", "do 200"])
def test_a_submission_whose_answer_is_lost_is_found(server: BatchServer, tmp_path: Path, what: str):
    server.breaks["POST /batches"] = [what]
    with quick():
        assert run(Questions(str(tmp_path), server.url, 20)).status == "complete"
    assert len(server.batches) == 1
    assert set(server.paid.values()) == {1}


def test_a_submission_is_found_among_many(server: BatchServer, tmp_path: Path):
    """The list has pages, and other programs submit batches as well."""
    server.breaks["POST /batches"] = ["do"]

    def others(batch: Batch) -> None:
        for _ in range(7):
            server.others()

    server.made = others
    with quick():
        assert run(Questions(str(tmp_path), server.url, 20)).status == "complete"
    assert len(server.batches) == 8
    assert len(server.paid) == 20


@pytest.mark.parametrize("status", ["429", "503"])
def test_an_endpoint_that_takes_no_batch_for_now_is_asked_again(
    server: BatchServer, tmp_path: Path, status: str
):
    server.breaks["POST /files"] = [status, status]
    server.breaks["GET /batches/"] = ["503", "lose"]
    server.breaks["GET /files/"] = ["503", "lose"]
    with quick():
        assert run(Questions(str(tmp_path), server.url, 20)).status == "complete"
    assert len(server.batches) == 1


@pytest.mark.parametrize(("at", "status"), [("POST /files", "404"), ("POST /batches", "400")])
def test_an_endpoint_without_batches_halts_the_run(server: BatchServer, tmp_path: Path, at: str, status: str):
    server.breaks[at] = [status]
    with quick():
        outcome = run(Questions(str(tmp_path), server.url, 20))
        assert outcome.status == "halted"
        assert f"HTTP {status}" in outcome.reason
        assert "--batch" in outcome.reason
        assert not files(tmp_path), "nothing is in flight"
        assert run(Questions(str(tmp_path), server.url, 20)).status == "complete"


def test_an_endpoint_that_is_not_there_halts_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batched, "NEVER_ANSWERED", 0.1)
    with quick():
        outcome = run(Questions(str(tmp_path), "http://127.0.0.1:9/v1", 3))
    assert outcome.status == "halted"
    assert "127.0.0.1:9" in outcome.reason


def test_a_batch_that_the_provider_has_forgotten_is_not_submitted_again(server: BatchServer, tmp_path: Path):
    job = Questions(str(tmp_path), server.url, 20)
    with quick():
        server.looks = 10**9
        run_until(job, lambda: bool(server.batches and server.batches[0].looks), Halt())
        server.batches[0].id = "other"
        outcome = run(job)
        assert outcome.status == "halted"
        (file,) = set(files(tmp_path)) - set(files(tmp_path, "-sent.json"))
        assert str(file) in outcome.reason
        assert len(server.batches) == 1


# ---------------------------------------------------------------- stopped, paused, limited


@SHAPES
def test_a_stopped_run_leaves_its_batch_with_the_provider(
    server: BatchServer, tmp_path: Path, messages: bool
):
    job, heard = Questions(str(tmp_path), server.url, 60), list[str]()
    with quick(messages=messages):
        server.looks = 10**9
        outcome = run_until(job, lambda: bool(server.batches and server.batches[0].looks > 2), Halt())
        assert outcome.status == "stopped"
        assert not server.paid
        server.looks = server.batches[0].looks + 2
        outcome = run_heard(job, heard)
    assert outcome.status == "complete"
    assert len(server.batches) == 1
    assert set(server.paid.values()) == {1}
    assert any("waiting for a batch of 60, 0 done" in text for text in heard)


@pytest.mark.slow
def test_nothing_is_submitted_while_the_run_is_paused(server: BatchServer, tmp_path: Path):
    job = Questions(str(tmp_path), server.url, 20)

    async def main() -> str:
        runner = Runner(job)
        with quick(QUIET=1.0):
            running = asyncio.ensure_future(runner.run())
            while "answers" not in (tallies := runner.state.tallies) or tallies["answers"].open < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            wish(RunFolder(tmp_path), "pause")
            runner.halt.paused = True
            await asyncio.sleep(2.0)
            assert not server.requests
            wish(RunFolder(tmp_path), "go")
            return (await running).status

    assert asyncio.run(main()) == "complete"


def test_without_batch_what_is_in_one_is_not_paid_for_again(server: BatchServer, tmp_path: Path):
    with quick():
        server.looks = 10**9
        job = Questions(str(tmp_path), server.url, 20)
        run_until(job, lambda: bool(server.batches and server.batches[0].looks), Halt())
        outcome = run(Questions(str(tmp_path), server.url, 20, batch=False))
        assert outcome.status == "halted"
        assert "--batch" in outcome.reason
        assert not server.direct
        server.looks = 1
        assert run(job).status == "complete"
        # What was never in a batch is asked directly.
        more = Questions(str(tmp_path / "other"), server.url, 20, batch=False)
        assert run(more).status == "complete"
    assert server.direct == 20


def test_a_budget_of_calls_is_submitted_and_no_more(server: BatchServer, tmp_path: Path):
    with quick():
        outcome = run(Questions(str(tmp_path), server.url, 60), budget=Budget(calls=25))
    assert outcome.status == "halted"
    assert outcome.reason == "the budget of 25 calls is used up"
    assert sum(server.paid.values()) == 25
    with quick():
        assert run(Questions(str(tmp_path), server.url, 60), budget=Budget(calls=60)).status == "complete"
    assert set(server.paid.values()) == {1}


def test_a_budget_of_dollars_is_kept_by_a_first_small_batch(server: BatchServer, tmp_path: Path):
    with quick():
        outcome = run(Questions(str(tmp_path), server.url, 1_000), budget=Budget(usd=0.02))
    assert outcome.status == "halted"
    assert len(server.batches[0].lines) == 100
    assert 0.018 < server.dollars < 0.022


def test_batches_and_clusters_do_not_go_together(server: BatchServer, tmp_path: Path):
    with pytest.raises(InputError, match="--address"):
        Launch(Questions(str(tmp_path), server.url, 20), JobOptions(address="local"))


@pytest.mark.slow
def test_a_run_in_an_object_store(server: BatchServer, bucket: Callable[[str], str]):
    with quick():
        server.looks = 10**9
        job = Questions(bucket("run"), server.url, 20)
        run_until(job, lambda: bool(server.batches and server.batches[0].looks), Halt())
        assert len(open_folder(bucket("run")).store.names("batches")) == 2
        server.looks = 1
        assert run(job).status == "complete"
    assert set(server.paid.values()) == {1}


# ---------------------------------------------------------------- at full size


def _all_at_once(server: BatchServer, place: Path, count: int, messages: bool) -> None:
    """Failed lines, an expired batch, and kills before, during and after submissions and while results are read."""
    post = "POST /messages/batches" if messages else "POST /batches"
    first = "GET /messages/batches" if messages else "POST /files"
    results = "GET /messages/batches/batch_1/results" if messages else "GET /files/out_1"
    look = f"{post.replace('POST', 'GET')}/batch_"
    server.fails = lambda id, times: (500, "overloaded") if int(id, 16) % 20 == 0 and times < 2 else None
    server.expires = {0}
    kills = 0
    for where in (first, post, look, results, post, look):
        server.breaks = {where: ["do kill"]}
        status, _ = run_in_process(server, place, count, messages=messages)
        kills += status == -signal.SIGKILL
    server.breaks = {}
    with quick(messages=messages):
        outcome = run(Questions(str(place), server.url, count))
    assert outcome.status == "complete"
    assert kills >= 4
    assert [one.text for one in outcome.result] == [f"Answer to What is question-{i}?" for i in range(count)]
    assert len(server.paid) == count
    assert set(server.paid.values()) == {1}
    assert recorded_cost(place) == pytest.approx(server.dollars, abs=1e-6)
    assert not server.direct


@pytest.mark.slow
@SHAPES
def test_everything_at_once(server: BatchServer, tmp_path: Path, messages: bool):
    _all_at_once(server, tmp_path, 60, messages)


@pytest.mark.thorough
@SHAPES
def test_everything_at_once_with_2000_items(server: BatchServer, tmp_path: Path, messages: bool):
    _all_at_once(server, tmp_path, 2_000, messages)
