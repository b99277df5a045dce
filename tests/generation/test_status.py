"""What is told about a run."""

from __future__ import annotations

from pathlib import Path

from camel.generation.status import RunLog, read_log
from camel.storage.run import RunFolder


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
    assert [event["event"] for event in read_log(RunFolder(tmp_path))] == ["start", "end"]
