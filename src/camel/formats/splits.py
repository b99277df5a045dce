"""Splits of an export, such as train and test.

The one decision to know: a hash of a conversation's id, or of a column of your choice, decides its split. So neither the order
of the conversations nor the other conversations matter, and those with the same value are always in the same split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.transcript import Transcript

_COLUMNS = "id, scenario, task, input.NAME, score.NAME or result.NAME"


def read_shares(text: str) -> dict[str, float]:
    """Return the shares in a text such as `train=0.9,test=0.1`."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            found[name.strip()] = float(share)
        except ValueError:
            raise InputError(
                f"each split must be NAME=SHARE, such as train=0.9,test=0.1; got {part.strip()!r}"
            ) from None
    check_shares(found)
    return found


def check_name(split: str) -> None:
    """Raise an `InputError` if the name of a split is not valid."""
    if not re.fullmatch(r"[A-Za-z]\w*", split, re.ASCII):
        raise InputError(f"the name of a split must have letters, digits and _ only, not {shown(split)}")


def check_shares(shares: Mapping[str, float]) -> None:
    """Raise an `InputError` if the names or the shares of splits are not valid."""
    for name in shares:
        check_name(name)
    if not all(share > 0 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-6:
        raise InputError(
            f"the shares of the splits must be above 0 and add up to 1; got {shown(dict(shares))}"
        )


def in_split(
    transcripts: Iterable[Transcript], split: str, shares: Mapping[str, float], column: str
) -> Iterator[Transcript]:
    """Yield the transcripts of one split."""
    return (one for one in transcripts if split_of(value_of(one, column), shares) == split)


def split_of(value: Any, shares: Mapping[str, float]) -> str:
    """Return the name of the split that a value belongs to."""
    at = int.from_bytes(blake2b(str(value).encode("utf-8", "replace"), digest_size=8).digest()) / 2**64
    for name, share in shares.items():
        at -= share
        if at < 0:
            return name
    return [*shares][-1]


def value_of(transcript: Transcript, column: str) -> Any:
    """Return the value of a column of a conversation. Raises an `InputError` if the conversation has none."""
    kind, _, name = column.partition(".")
    scores = {name: score.text or score.value for name, score in transcript.scores.items()}
    named: dict[str, Mapping[str, Any] | None] = {
        "input": transcript.inputs,
        "score": scores,
        "result": transcript.result,
    }
    own = {"id": transcript.id, "scenario": transcript.scenario, "task": transcript.task.original}
    if not name and kind in own:
        return own[kind]
    if not name or kind not in named:
        raise InputError(f"there is no column {column!r}. Use {_COLUMNS}")
    values = named[kind] or {}
    if values.get(name) is None:
        known = ", ".join(f"{kind}.{one}" for one in values) or f"no {kind}"
        raise InputError(f"conversation {shown(transcript.id)} has no {column}. It has {known}")
    return values[name]
