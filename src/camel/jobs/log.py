"""The log of a job: one event per line, and the current figures while it is running.

For people only; nothing depends on it. A line that cannot be written, on a full disk, is skipped. A large log is renamed to
`log-1.jsonl`, and a few older ones are kept. The one decision to know: each file begins with the job's last start, so the
newest file alone says what is running.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from camel.runs.run import RunFolder
from camel.storage import inside
from camel.storage.files import make_folder, open_private

LOG, NOW = "log.jsonl", "now.json"
LARGEST, OLDER = 64 * 2**20, 3
"""Number of bytes at which a log is renamed, and number of older logs that are kept."""
_PIECE = 2**18
"""Number of bytes that are read at once, from the end of a log."""
T = TypeVar("T")


def now_file(log: str) -> str:
    """Return the name of the file next to a log that has the job's current counts."""
    return NOW if log == LOG else f"{log.removesuffix('.jsonl')}-{NOW}"


def older_logs(log: str) -> list[str]:
    """Return the names of a log's older files, the newest first."""
    return [f"{log.removesuffix('.jsonl')}-{number}.jsonl" for number in range(1, OLDER + 1)]


class RunLog:
    """One JSON object per line, with a time. Contains figures and reasons, but no prompts, replies or API keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._now = path.with_name(now_file(path.name))
        self._torn = False
        self._start = b""
        """The line of the last start."""

    def write(self, event: str, **fields: Any) -> dict[str, Any]:
        """Append an event and return it."""
        entry = {"time": time_of_day(), "event": event, **fields}
        # If the last line is incomplete, start a new line.
        line = msgspec.json.encode(entry) + b"\n"
        if event == "start":
            self._start = line
        try:
            make_folder(self.path.parent)
            with open(self.path, "ab", opener=open_private) as file:
                file.write(b"\n" * self._torn + line)
                size = file.tell()
            self._torn = False
            if size >= LARGEST:
                self._rotate(line)
        except OSError:
            self._torn = True
        return entry

    def _rotate(self, last: bytes) -> None:
        """Rename the log, and begin a new one with the last start and the last line."""
        names = [self.path, *(self.path.with_name(name) for name in older_logs(self.path.name))]
        for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        new = self.path.with_name(f".{self.path.name}")
        new.write_bytes(self._start + (b"" if last == self._start else last))
        new.replace(self.path)

    def write_now(self, **figures: Any) -> None:
        """Write the current figures for `camel run status`."""
        new = self._now.with_name(f".{self._now.name}")
        with contextlib.suppress(OSError):
            new.write_bytes(msgspec.json.encode({"time": time_of_day(), **figures}))
            new.replace(self._now)

    def forget_now(self) -> None:
        """Remove the file with the current counts, because the run has ended."""
        with contextlib.suppress(OSError):
            self._now.unlink(missing_ok=True)


class LastEvents(NamedTuple):
    """The last start event in a log, and the last progress and end after it."""

    start: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    end: dict[str, Any] | None = None


def read_log(folder: RunFolder, log: str = LOG) -> Generator[dict[str, Any]]:
    """Yield the complete events of a log and of its older files, the last one first."""
    with contextlib.ExitStack() as stack:
        # All are opened first, so that none is missed if the log is renamed meanwhile. One may then be found twice.
        files = [stack.enter_context(folder.open_local(log))]
        for name in older_logs(log):  # not in an object store
            with contextlib.suppress(FileNotFoundError):
                files.append(stack.enter_context(inside.open_file(folder.root, name)))
        for file in files:
            yield from filter(None, map(_entry, _lines_from_end(file)))


def _lines_from_end(file: IO[bytes]) -> Generator[bytes]:
    """Yield the lines of a file, the last one first."""
    end, rest = file.seek(0, os.SEEK_END), b""
    while end:
        start = max(0, end - _PIECE)
        file.seek(start)
        first, *lines = (file.read(end - start) + rest).split(b"\n")
        yield from reversed(lines)
        rest, end = first, start
    yield rest


def _entry(line: bytes, field: str = "event") -> dict[str, Any] | None:
    """Return a line's JSON object. Return None for other lines, and for an object without the field."""
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None
    return entry if field in entry else None


def last_events(folder: RunFolder, log: str = LOG) -> LastEvents:
    """Return the last start, and the last progress and end after it. Current figures, if newer, are the last progress."""
    start = last = end = None
    with contextlib.closing(read_log(folder, log)) as events:
        for event in events:
            match event["event"]:
                case "start":
                    start = event
                    break
                case "progress" | "stage":
                    last = last or event
                case "end":
                    last, end = last or event, end or event
                case _:
                    pass
    now = _entry(folder.read_local(now_file(log)), "time")  # of a running or killed job
    # Newer than the last line of this process; times have a fixed format and compare as text.
    if start and end is None and now and str(now["time"]) >= str((last or start)["time"]):
        last = now
    return LastEvents(start, last, end)


def part_of(entry: dict[str, Any] | None, name: str, kind: Any, otherwise: T) -> T:
    """Return a field of a log entry, or `otherwise` if it is missing or written by an incompatible version."""
    try:
        return msgspec.convert(entry[name], kind) if entry and name in entry else otherwise
    except msgspec.ValidationError:
        return otherwise


def time_of_day() -> str:
    """Return the current time in the format of logs."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def age_of(event: dict[str, Any] | None, otherwise: float) -> float:
    """Return the seconds since an event, or `otherwise` if there is no event."""
    try:
        then = datetime.fromisoformat((event or {})["time"])
    except (KeyError, TypeError, ValueError):
        return otherwise
    return (datetime.now(UTC) - then).total_seconds()
