"""Worker processes: results in order, and a killed process is an error with a remedy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from camel.storage.processes import ProcessKilled, explained, workers
from camel.storage.store import ahead
from tests.support.waiting import wait_for


def half(number: int) -> tuple[int, int]:
    return number // 2, os.getpid()


def die(victim: int, number: int) -> int:
    if number == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_one_process_is_this_one():
    with workers(1) as executor:
        assert list(ahead(half, range(9), 2, executor)) == [(n // 2, os.getpid()) for n in range(9)]


def test_what_has_not_begun_is_cancelled_when_the_reader_stops():
    begun: list[int] = []
    with workers(1) as executor:
        results = ahead(begun.append, range(1_000), 4, executor)
        next(results)
        results.close()
    assert len(begun) <= 5


@pytest.mark.slow
def test_results_are_in_order_and_a_killed_process_is_an_error():
    with workers(2) as executor:
        found = list(ahead(half, range(40), 4, executor))
    assert [result for result, _ in found] == [n // 2 for n in range(40)]
    assert os.getpid() not in {process for _, process in found}
    with workers(2) as executor:
        results = ahead(partial(die, 7), range(40), 1, executor)
        assert [next(results) for _ in range(7)] == list(range(7))
        with pytest.raises(ProcessKilled, match="--processes 1"), explained():
            next(results)


HANGING = """
import os, pathlib, sys, time
from camel.storage.processes import workers

def hang(folder):
    (pathlib.Path(folder) / str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    with workers(2) as executor:
        list(executor.map(hang, [sys.argv[1]] * 2))
"""


@pytest.mark.slow
def test_processes_end_when_their_parent_is_killed(tmp_path: Path):
    script, there = tmp_path / "hanging.py", tmp_path / "there"
    script.write_text(HANGING)
    there.mkdir()
    parent = subprocess.Popen([sys.executable, str(script), str(there)])
    wait_for(lambda: len(list(there.iterdir())) == 2)
    parent.kill()
    parent.wait()

    def ended(process: str) -> bool:
        stat = Path(f"/proc/{process}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"

    wait_for(lambda: all(ended(one.name) for one in there.iterdir()))
