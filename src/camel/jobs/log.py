"""The log of a job: what happened, a line each, and the figures of this moment while it is at work.

For people, and never the truth about what was done: a line that cannot be written, on a full disk, is left out.
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


def now_beside(log: str) -> str:
    """The file with the figures of this moment, beside a log."""
    return NOW if log == LOG else f"{log.removesuffix('.jsonl')}-{NOW}"


class RunLog:
    """One JSON object a line, with a time. Holds figures and reasons; no prompts, no replies, no keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._now = path.with_name(now_beside(path.name))
        self._torn = False

    def write(self, event: str, **fields: Any) -> dict[str, Any]:
        """Add an event and give it back."""
        entry = {"time": time_of_day(), "event": event, **fields}
        # After half a line, the next one begins on a line of its own.
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
        """Put the figures of this moment where `camel status` finds them."""
        new = self._now.with_name(f".{self._now.name}")
        with contextlib.suppress(OSError):
            new.write_bytes(msgspec.json.encode({"time": time_of_day(), **figures}))
            new.replace(self._now)

    def forget_now(self) -> None:
        """Take them away: the run has ended, and its log says how."""
        with contextlib.suppress(OSError):
            self._now.unlink(missing_ok=True)


class LastEvents(NamedTuple):
    """The last start in a log, and the last progress and end that followed it."""

    start: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    end: dict[str, Any] | None = None


def read_log(folder: RunFolder, log: str = LOG) -> Iterator[dict[str, Any]]:
    """What has been written to a log, as far as it is whole."""
    for line in folder.read_local(log).splitlines():
        try:
            entry: Any = msgspec.json.decode(line)
        except msgspec.MsgspecError:
            continue
        if isinstance(entry, dict) and "event" in entry:
            yield entry


def read_now(folder: RunFolder, log: str = LOG) -> dict[str, Any] | None:
    """The figures that a job that is at work, or was killed, has left."""
    try:
        now: Any = msgspec.json.decode(folder.read_local(now_beside(log)))
    except msgspec.MsgspecError:
        return None
    return cast("dict[str, Any]", now) if isinstance(now, dict) and "time" in now else None


def last_events(folder: RunFolder, log: str = LOG) -> LastEvents:
    """The last start, and the last progress and end that followed it."""
    return last_of(read_log(folder, log), read_now(folder, log))


def last_of(events: Iterable[dict[str, Any]], now: dict[str, Any] | None) -> LastEvents:
    """The same, of events in their order and the figures of this moment."""
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
    # Of this start, and newer than its last line: times are all of one form, so that they compare as texts.
    if start and end is None and now and str(now["time"]) >= str((last or start)["time"]):
        last = now
    return LastEvents(start, last, end)


def part_of(entry: dict[str, Any] | None, name: str, kind: Any, otherwise: T) -> T:
    """A part of an entry; `otherwise` where it has none, or one of another version."""
    try:
        return msgspec.convert(entry[name], kind) if entry and name in entry else otherwise
    except msgspec.ValidationError:
        return otherwise


def time_of_day() -> str:
    """Now, as logs write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def age_of(event: dict[str, Any] | None, otherwise: float) -> float:
    """Seconds since an event."""
    try:
        then = datetime.fromisoformat((event or {})["time"])
    except (KeyError, TypeError, ValueError):
        return otherwise
    return (datetime.now(UTC) - then).total_seconds()
