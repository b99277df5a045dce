"""`camel serve FILE` in a process that is killed and started again."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from camel import Catalogue, Run
from camel.models.simulator import SimulatorSettings, spawn
from camel.models.simulator.settings import Constant
from tests.support.command import camel
from tests.support.served import CALLS, Answer, ServedProcess, ask, ask_all, chat
from tests.support.waiting import wait_for


def _kill_often(tmp_path: Path, *, requests: int, kills: int) -> None:
    with spawn(SimulatorSettings(words=8, latency=Constant(0.1))) as simulator:
        served = ServedProcess(tmp_path, simulator)
        answers: list[Answer] = []
        bodies = [chat(f"Task {number}.") for number in range(requests)]
        clients = threading.Thread(target=lambda: answers.extend(ask_all(served.url, bodies)))
        clients.start()
        for number in range(kills):
            wanted = requests * CALLS * (number + 1) // (kills + 1)
            wait_for(lambda wanted=wanted: simulator.ledger().requests >= wanted)
            served.kill()
            served.start()
        clients.join()
        assert served.stop() == 0
        ledger = simulator.ledger()
    assert [one.status for one in answers] == [200] * requests
    # Only calls in flight at a kill are repeated: no reply that was journaled is paid for again.
    assert served.lost > 0
    assert ledger.requests == requests * CALLS + served.lost
    run = Run(served.out)
    assert sorted(one.task.text for one in run) == sorted(one["messages"][0]["content"] for one in bodies)
    assert sum(one.usage.calls for one in run) == requests * CALLS
    with Catalogue([str(served.out)]) as catalogue:  # what the explorer opens
        assert len(catalogue.runs) == 1
    assert camel("run", "verify", str(served.out), cwd=tmp_path).status == 0


@pytest.mark.slow
def test_a_killed_server_continues_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    _kill_often(tmp_path, requests=24, kills=2)


@pytest.mark.thorough
def test_a_server_that_is_killed_often(tmp_path: Path) -> None:
    _kill_often(tmp_path, requests=240, kills=12)


@pytest.mark.slow
def test_unfinished_requests_wait_until_they_are_asked_for_again(tmp_path: Path) -> None:
    with spawn(SimulatorSettings(words=8, latency=Constant(0.3))) as simulator:
        served = ServedProcess(tmp_path, simulator)
        found: list[Answer] = []

        def send() -> None:
            found.append(ask_all(served.url, [chat("Once.")])[0])

        first = threading.Thread(target=send)
        first.start()
        wait_for(lambda: simulator.ledger().requests >= 2)
        # A stop ends the call in flight, and the client gets status 503.
        assert served.stop() == 0
        paid = simulator.ledger().requests
        assert served.recorded_calls() == paid < CALLS
        served.start()
        first.join()
        assert found[0].status == 200
        assert simulator.ledger().requests == CALLS
        served.stop()


@pytest.mark.slow
def test_nothing_is_continued_that_nobody_asks_for(tmp_path: Path) -> None:
    with spawn(SimulatorSettings(words=8, latency=Constant(0.3))) as simulator:
        served = ServedProcess(tmp_path, simulator)
        wait_for(lambda: _answers(served))
        with pytest.raises(TimeoutError):
            ask(served.url, chat("Leave."), timeout=0.5)
        served.kill()
        served.start()
        wait_for(lambda: _answers(served))
        before = simulator.ledger().requests
        time.sleep(1)
        assert simulator.ledger().requests == before
        assert ask(served.url, chat("Leave.")).status == 200
        assert simulator.ledger().requests == CALLS + served.lost
        served.stop()


def _answers(served: ServedProcess) -> bool:
    try:
        return ask(served.url, b"").status == 400
    except OSError:
        return False


def test_options_that_do_not_belong_together(tmp_path: Path) -> None:
    assert camel("serve", "society.toml", "--gguf", "x.gguf", cwd=tmp_path).status == 2
    assert camel("serve", "--budget-usd", "1", cwd=tmp_path).status == 2
    assert camel("serve", "nothing.toml", cwd=tmp_path).status == 2
