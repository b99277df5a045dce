"""The log of a job: one event per line, and the current figures while it is running.

For people only; nothing depends on it. A line that cannot be written, on a full disk, is skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from camel.runs.run import RunFolder

LOG, NOW = "log.jsonl", "now.json"
T = TypeVar("T")


def now_file(log: str) -> str:
    """Return the name of the file next to a log that has the job's current counts."""
    return NOW if log == LOG else f"{log.removesuffix('.jsonl')}-{NOW}"


class RunLog:
    """One JSON object per line, with a time. Contains figures and reasons, but no prompts, replies or API keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._now = path.with_name(now_file(path.name))
        self._torn = False

    def write(self, event: str, **fields: Any) -> dict[str, Any]:
        """Append an event and return it."""
        entry = {"time": time_of_day(), "event": event, **fields}
        # If the last line is incomplete, start a new line.
        line = b"\n" * self._torn + msgspec.json.encode(entry) + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(line)
            self._torn = False
        except OSError:
            self._torn = True
        return entry

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


def read_log(folder: RunFolder, log: str = LOG) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a log."""
    for line in folder.read_local(log).splitlines():
        try:
            entry: Any = msgspec.json.decode(line)
        except msgspec.MsgspecError:
            continue
        if isinstance(entry, dict) and "event" in entry:
            yield entry


def read_now(folder: RunFolder, log: str = LOG) -> dict[str, Any] | None:
    """Read the current figures of a running or killed job."""
    try:
        now: Any = msgspec.json.decode(folder.read_local(now_file(log)))
    except msgspec.MsgspecError:
        return None
    return cast("dict[str, Any]", now) if isinstance(now, dict) and "time" in now else None


def last_events(folder: RunFolder, log: str = LOG) -> LastEvents:
    """Return the last start, and the last progress and end after it."""
    return last_of(read_log(folder, log), read_now(folder, log))


def last_of(events: Iterable[dict[str, Any]], now: dict[str, Any] | None) -> LastEvents:
    """Return the last start, and the last progress and end after it. `now`, if newer, is the last progress."""
    start = last = end = None
    for event in events:
        match event["event"]:
            case "start":
                start, last, end = event, None, None
            case "progress" | "stage":
                last = event
            case "end":
                last = end = event
            case _:
                pass
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
