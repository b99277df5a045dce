"""The log of a job: its files, and how they are read from the end."""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from camel.jobs import log as logs
from camel.jobs.log import LOG, RunLog, last_events, older_logs, read_log
from camel.runs.run import RunFolder


def numbers(folder: RunFolder) -> list[int]:
    return [event["number"] for event in read_log(folder) if event["event"] == "note"]


@pytest.mark.hypothesis
@given(lines=st.lists(st.integers(0, 60), max_size=30), piece=st.integers(1, 50), end=st.binary(max_size=5))
def test_lines_are_read_from_the_end(
    lines: list[int], piece: int, end: bytes, tmp_path_factory: pytest.TempPathFactory
):
    whole = b"".join(b"%d\n" % number * (number > 0) for number in lines) + end
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(whole)
    with pytest.MonkeyPatch.context() as patch, path.open("rb") as file:
        patch.setattr(logs, "_PIECE", piece)
        assert list(logs._lines_from_end(file)) == whole.split(b"\n")[::-1]


def test_a_large_log_is_renamed_and_the_newest_file_knows_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "LARGEST", 2_000)
    log, folder = RunLog(tmp_path / LOG), RunFolder(tmp_path)
    log.write("start", model="m")
    for number in range(200):
        log.write("note", number=number)
        log.write("progress", elapsed=number)
        start, progress, end = last_events(folder)
        assert (start and start["model"], progress and progress["elapsed"], end) == ("m", number, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG, *older_logs(LOG)])
    assert all(path.stat().st_size < 2_200 for path in tmp_path.iterdir())
    starts = {path.read_bytes().partition(b"\n")[0] for path in tmp_path.iterdir()}
    assert len(starts) == 1, "each file begins with the start"
    found = numbers(folder)
    assert (
        sorted(set(found), reverse=True) == list(dict.fromkeys(found)) == list(range(199, min(found) - 1, -1))
    )


def test_a_reader_misses_nothing_while_the_log_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "LARGEST", 20_000)
    log, folder = RunLog(tmp_path / LOG), RunFolder(tmp_path)
    log.write("start")
    written = [log.write("note", number=0)["number"]]
    writer = threading.Thread(
        target=lambda: written.extend(
            log.write("note", number=number)["number"] for number in range(1, 3_000)
        )
    )
    writer.start()
    while writer.is_alive():
        before = len(written) - 1
        found = numbers(folder)
        assert max(found) >= before
        assert set(range(min(found), max(found))) <= set(found)
        assert last_events(folder).start
    writer.join()
    assert max(numbers(folder)) == 2_999


def test_reading_the_last_events_takes_no_more_memory_for_a_longer_log(tmp_path: Path):
    peaks: list[int] = []
    for lines in (2_000, 20_000):
        path = tmp_path / str(lines) / LOG
        path.parent.mkdir()
        progress = b'{"time":"1","event":"progress","text":"%s"}\n' % (b"x" * 200)
        path.write_bytes(b'{"time":"1","event":"start"}\n' + progress * lines)
        tracemalloc.start()
        assert last_events(RunFolder(path.parent)).start
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2 + 100_000
