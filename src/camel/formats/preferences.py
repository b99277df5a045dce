"""Preferences: pairs of a chosen and a rejected answer, from the choices of a critic or from scores."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.history import Entry
from camel.core.transcript import Transcript
from camel.formats.conversation import chat_messages, chat_of, default_seat, tools_of, turns_of
from camel.formats.json_rows import ROW_ENDINGS, NothingFits, write_rows
from camel.formats.splits import value_of
from camel.record.release import Exported, Release, published


def preferences(
    transcripts: Iterable[Transcript],
    path: Path,
    *,
    release: Release = Release(),  # noqa: B008 - frozen
    by: str = "",
    margin: float = 0.0,
    seat: str = "",
) -> Exported:
    """Write `{"prompt", "chosen", "rejected"}` for TRL's preference trainers: a critic's choice against each alternative.

    An alternative is another first proposal, or the version that a revision replaced, unless it has the same text or the
    same score. Skips messages that a fallback chose.

    With `by`, such as `score.helpful`, compare conversations of the same task in which the assistant (or another `seat`) heard
    the same system prompt and first message: the one with the highest score is chosen over each one that is lower by at least
    `margin`. The prompt is what they have in common, up to the first different reply. Tool calls are as in
    `messages`. Those before a message that a critic chose are left out, because other proposals have no record of theirs.
    """
    if not by:
        return write_rows(transcripts, path, release, _preference_rows, ROW_ENDINGS)
    # A nameless database is a temporary file, so memory does not grow with the number of conversations.
    with closing(sqlite3.connect("")) as store:
        store.execute("create table given (key text, score real, number integer, transcript blob)")
        store.executemany(
            "insert into given values (?, ?, ?, ?)", _comparable(transcripts, release, by, seat)
        )
        ((count,),) = store.execute("select count(*) from given")
        group: list[tuple[float, Transcript]] = []

        def best() -> Iterator[Transcript]:
            for found in _groups(store):
                group[:] = found
                yield found[0][1]

        try:
            written = write_rows(best(), path, release, lambda _: _pairs(group, margin, seat), ROW_ENDINGS)
        except NothingFits:
            raise NothingFits(
                f"there are no two conversations of the same task and with the same first message whose {by} differs"
                f"{f' by {margin:g} or more' if margin else ''}. Generate several conversations per input"
            ) from None
    return written._replace(conversations=count)


def _comparable(
    transcripts: Iterable[Transcript], release: Release, by: str, seat: str
) -> Iterator[tuple[str, float, int, bytes]]:
    """Yield each scored conversation with a key: the task, and what the seat heard before its first reply."""
    scored, missing = 0, None
    for number, transcript in enumerate(published(transcripts, release)):
        try:
            score = value_of(transcript, by)
        except InputError as error:
            missing = error
            continue
        if not isinstance(score, int | float):
            raise InputError(f"{by} must be a number, not {score!r} as in conversation {transcript.id!r}")
        scored += 1
        turns = chat_of(transcript, seat)
        heard = [*takewhile(lambda turn: turn.role != "assistant", turns)]
        if any(turn.role == "user" for turn in heard):
            key = msgspec.json.encode([transcript.task.original, heard]).decode()
            yield key, float(score), number, msgspec.json.encode(transcript)
    if missing and not scored:
        raise missing


def _groups(store: sqlite3.Connection) -> Iterator[list[tuple[float, Transcript]]]:
    """Yield the conversations of each key with their scores, the highest first. Groups are in the order of the run."""
    ordered = store.execute(
        "select min(number) over (partition by key), score, transcript from given order by 1, score desc, number"
    )
    decode = partial(msgspec.json.decode, type=Transcript)
    for _, group in groupby(ordered, key=itemgetter(0)):
        yield [(score, decode(data)) for _, score, data in group]


def _pairs(group: list[tuple[float, Transcript]], margin: float, seat: str) -> Iterator[dict[str, Any]]:
    (highest, best), *others = group
    chosen = chat_of(best, seat)
    for score, other in others:
        rejected = chat_of(other, seat)
        if score == highest or highest - score < margin or rejected == chosen:
            continue
        at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False)))
        while at == min(len(chosen), len(rejected)) or {chosen[at].role, rejected[at].role} != {"assistant"}:
            at -= 1
        row = {"prompt": chosen[:at], "chosen": chosen[at:], "rejected": rejected[at:]}
        found: dict[str, Any] = {name: chat_messages(turns) for name, turns in row.items()}
        tools = tools_of(best, seat or default_seat(best))
        yield {**found, **tools, "metadata": {"rejected_id": other.id}}


def _preference_rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
    for place, message in enumerate(transcript.messages):
        found = message.deliberation
        if found is None or found.fallback:
            continue
        said = [*transcript.messages[:place], msgspec.structs.replace(message, actions=[])]
        heard = msgspec.structs.replace(transcript, messages=said)
        prompt = turns_of(heard, message.speaker, system=True)[:-1]
        chosen = found.proposals[found.choice]
        seen = {chosen.content}
        for one in found.proposals:
            same = one.score is not None and one.score == chosen.score
            if one.speaker or (one.parent >= 0 and not one.revises) or one.content in seen or same:
                continue
            seen.add(one.content)
            row: dict[str, Any] = {"prompt": chat_messages(prompt)}
            for name, proposal in (("chosen", chosen), ("rejected", one)):
                row[name] = chat_messages([Entry("assistant", proposal.content)])
            yield row | tools_of(transcript, message.speaker)
