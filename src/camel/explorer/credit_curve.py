"""The value of the messages of a conversation, as `camel credit` measured it, for the conversation's page.

The one decision to know: `RUN/credit/credit.json` may come from an untrusted source. It is limited in size, decoded by type, and
shown only if it fits the conversation: the same messages, in the same order, with possible values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from camel.core.errors import CamelError, InputError
from camel.core.transcript import Transcript
from camel.evaluation.credit_report import ConversationCredit, CreditFigures, MessageCredit
from camel.explorer.reading import ScoreSegment
from camel.query.sources import CatalogueRun
from camel.reports.numbers import percent, points
from camel.storage import inside

FILE = f"{CreditFigures.file}/{CreditFigures.file}.json"
MOST = 64_000_000
"""Maximum size of the file in bytes."""
HEIGHT = 56.0


class ShownCredit(NamedTuple):
    """The curve of a conversation, and the note of each message. Only a problem if the file cannot be used."""

    problem: str = ""
    path: str = ""
    """The curve as an SVG path. It has the width of the bars of the conversation, and 0% is at the bottom."""
    intervals: str = ""
    """The 95% intervals of measured values, as an SVG path."""
    decisive: ScoreSegment | None = None
    summary: str = ""
    notes: Sequence[str] = ()
    """The value after each message, and its advantage if both values are measured."""


def credit_of(source: CatalogueRun, record: Transcript, bars: Sequence[ScoreSegment]) -> ShownCredit | None:
    """Return the credit of a conversation, drawn over its bars. None if nothing was measured."""
    try:
        found = _read(source).get(record.id)
        if found is not None:
            _check(found, record)
    except FileNotFoundError:
        return None
    except (CamelError, OSError, ValueError, RecursionError) as error:
        return ShownCredit(f"{FILE} is not shown: {error}"[:400])
    return None if found is None else _drawn(found, bars)


def _read(source: CatalogueRun) -> dict[str, ConversationCredit]:
    if not source.folder.on_disk:
        raise FileNotFoundError
    status = inside.status_of(source.folder.root, FILE)
    return decoded(source.folder.root, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2)
def decoded(root: Path, size: int, changed: int) -> dict[str, ConversationCredit]:
    """Decode the file. The last two arguments distinguish its versions."""
    with inside.open_file(root, FILE) as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise InputError(f"it is larger than {MOST:,} bytes")
    return {one.id: one for one in msgspec.json.decode(data, type=CreditFigures).conversations}


def _check(found: ConversationCredit, record: Transcript) -> None:
    """Raise an `InputError` if the values cannot be those of the conversation."""
    texts = [(number, one.content) for number, one in enumerate(record.messages, 1)]
    if [(one.number, one.text) for one in found.messages] != texts:
        raise InputError("it was measured on other messages. Repeat camel credit")
    shares = [found.start, *(one.value for one in found.messages)]
    shares += [end for one in found.messages for end in one.interval or ()]
    changes = [x for one in found.messages for x in (one.advantage, *one.advantage_interval)]
    decisive = found.decisive is None or 1 <= found.decisive <= len(texts)
    if not decisive or not all(0 <= x <= 1 for x in shares) or not all(-1 <= x <= 1 for x in changes):
        raise InputError("it has impossible values. Repeat camel credit")


def _drawn(found: ConversationCredit, bars: Sequence[ScoreSegment]) -> ShownCredit:
    def y(value: float) -> str:
        return f"{2 + (HEIGHT - 4) * (1 - value):.1f}"

    ends = [f"{bar.x + bar.width:.1f}" for bar in bars]
    line = "".join(f"L{x} {y(one.value)}" for x, one in zip(ends, found.messages, strict=True))
    whiskers = "".join(
        f"M{x} {y(one.interval[1])}V{y(one.interval[0])}"
        for x, one in zip(ends, found.messages, strict=True)
        if one.interval
    )
    summary = f"Chance of success after each message: {percent(found.start)} at the start"
    if found.messages:
        summary += f", {percent(found.messages[-1].value)} at the end"
    decisive = None
    if found.decisive is not None:
        decisive, one = bars[found.decisive - 1], found.messages[found.decisive - 1]
        summary += f". Message {one.number} is decisive: {_advantage(one)}"
    notes = [
        f"Value {percent(one.value)}" + (f" · {_advantage(one)}" if one.measured else ", not measured")
        for one in found.messages
    ]
    return ShownCredit("", f"M0 {y(found.start)}{line}", whiskers, decisive, f"{summary}.", notes)


def _advantage(one: MessageCredit) -> str:
    low, high = (points(end) for end in one.advantage_interval)
    return f"{points(one.advantage)} points ({low} to {high})"
