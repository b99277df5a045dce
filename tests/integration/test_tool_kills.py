"""Tool calls with effects elsewhere, under kills: none is executed again once its result is journaled."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path

import pytest

from tests.support import cluster
from tests.support.tool_kills import CALLS, Account, Campaign

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def check(found: Account, conversations: int) -> None:
    """Each call was executed once at most, and each one in flight at a kill is named by a failed conversation."""
    print(
        f"{found.conversations:,} conversations, {len(found.executed):,} calls executed, {len(found.recorded):,} recorded, "
        f"{len(found.interrupted):,} interrupted, {found.repeats:,} requests repeated, kills {dict(found.kills)}"
    )
    assert found.conversations == conversations
    assert found.again_after_result == []
    assert found.paid_again == []
    assert [id for id, times in found.executed.items() if times > 1] == []
    assert found.failed.keys() <= {"ActionInterrupted"}
    assert len(found.interrupted) == found.failed["ActionInterrupted"] == len(set(found.interrupted))
    unaccounted = found.executed.keys() - found.recorded.keys() - set(found.interrupted)
    assert unaccounted == set()
    assert not set(found.interrupted) & found.recorded.keys()
    sound = {id for id, action in found.recorded.items() if not action.error}
    assert sound <= found.executed.keys()
    assert len(found.recorded) + len(found.interrupted) <= CALLS * conversations
    assert len(found.recorded) >= CALLS * (conversations - len(found.interrupted))


def test_no_call_is_executed_again_after_its_result_was_journaled(tmp_path: Path):
    with Campaign(tmp_path, 60) as run:
        run.suffer(["process", "process", "counter", "process", "process", "process"])
        found = run.account()
        assert run.kills.total() == 6
        check(found, 60)


def test_calls_that_may_be_repeated_fail_no_conversation(tmp_path: Path):
    with Campaign(tmp_path, 40, tool="tests.support.tills:act_again", seed=1) as run:
        run.suffer(["process"] * 4)
        found = run.account()
    assert (found.failed, found.again_after_result, found.paid_again) == ({}, [], [])
    assert found.executed.keys() >= found.recorded.keys()
    assert len(found.recorded) == CALLS * 40


def test_a_stop_waits_for_calls_in_flight_and_interrupts_none(tmp_path: Path):
    with Campaign(tmp_path, 40, seed=2) as run:
        run.suffer(["stop"] * 3, signals=signal.SIGINT)
        found = run.account()
        assert run.kills.total() == 3
        check(found, 40)
    assert (found.interrupted, found.failed, found.repeats) == ([], {}, 0)
    assert sum(found.executed.values()) == len(found.recorded) == CALLS * 40


@pytest.mark.thorough
@pytest.mark.cluster
def test_two_thousand_conversations_under_a_hundred_kills(tmp_path: Path):
    with Campaign(tmp_path, 2200, seed=3) as run:  # enough for 8,000 calls that a kill does not prevent
        in_cluster = importlib.util.find_spec("ray") is not None
        kinds = ["process"] * 80 + ["counter"] * 15 + ["process"] * (0 if in_cluster else 5)
        run.chance.shuffle(kinds)
        if in_cluster:
            suffer_on_a_cluster(run, 5)
        run.suffer(kinds)
        found = run.account()
        check(found, 2200)
        assert run.kills.total() == 100
        assert found.executed.total() >= 8000


def suffer_on_a_cluster(run: Campaign, kills: int) -> None:
    """Run the first part on a Ray cluster, with workers that are killed."""
    with cluster.start(nodes=2) as ray:
        words = "--address", ray.address, "--workers", "2"
        program = run.start(*words, **{**ray.environment, **run.environment})
        for number in range(kills):
            assert run.wait_for(program, 150 * (number + 1)), program.out + program.err
            assert ray.kill_worker(run.chance)
            run.note()
            run.kills["worker"] += 1
        run.wait_for(program, 150 * (kills + 2))
        program.send_signal(signal.SIGINT)
        program.wait()
        run.note()
