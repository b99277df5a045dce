"""Formats of conversations for training: messages, ShareGPT, Alpaca."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from camel.core.heard import heard_by, together
from camel.core.role_playing import ASSISTANT
from camel.core.transcript import Transcript
from camel.formats.json_rows import ROW_ENDINGS, write_rows
from camel.formats.original import pairs, problem_of
from camel.record.release import Exported, Release


def messages(
    transcripts: Iterable[Transcript],
    path: Path,
    *,
    release: Release = Release(),  # noqa: B008 - frozen
    seat: str = "",
    system: bool = True,
    sharegpt: bool = False,
) -> Exported:
    """Write `{"messages": [{"role", "content"}…]}` for OpenAI and TRL: what the model in `seat` heard and said.

    Default: the seat `assistant`, or else of two speakers the one that did not begin. With `sharegpt`, write
    `{"conversations": [{"from", "value"}…]}` of human and gpt.
    """

    def rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
        own = seat or default_seat(transcript)
        turns = chat_of(transcript, own, system=system)
        if turns and sharegpt:
            yield {"conversations": [{"from": _SHAREGPT[role], "value": content} for role, content in turns]}
        elif turns:
            said = [message.reasoning for message in transcript.messages if message.speaker == own]
            # Without one reasoning per turn, they cannot be assigned.
            thoughts = iter(said if len(said) == sum(role == "assistant" for role, _ in turns) else ())
            yield {"messages": [_message(role, content, thoughts) for role, content in turns]}

    return write_rows(transcripts, path, release, rows, ROW_ENDINGS)


def _message(role: str, content: str, thoughts: Iterator[str]) -> dict[str, str]:
    """Return a message of a chat. The model's reasoning is in the field that chat templates use."""
    thought = next(thoughts, "") if role == "assistant" else ""
    return {"role": role, "content": content, **({"reasoning_content": thought} if thought else {})}


sharegpt = partial(messages, sharegpt=True)
_SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}


def alpaca(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Exported:  # noqa: B008 - frozen
    """Write `{"instruction", "input", "output"}` rows: one for every solved instruction, or for a problem and its solution."""

    def rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
        # A role play of two messages never ends as done, because the token would be in the third.
        answered = len(transcript.speakers) == 1 or (transcript.stop and transcript.stop.reason == "done")
        if answered and (found := problem_of(transcript)):
            asked, given = (transcript.inputs.get(name, "") for name in ("instruction", "input"))
            imported = found[0] == f"{asked}\n\n{given}"
            asked, given = (asked, given) if imported else (found[0], "")
            yield {"instruction": asked, "input": given, "output": found[1]}
            return
        for pair in pairs(transcript):
            yield {"instruction": pair.instruction, "input": pair.input, "output": pair.output}

    return write_rows(transcripts, path, release, rows, ROW_ENDINGS)


def default_seat(transcript: Transcript) -> str:
    """Return the seat to train on: `assistant` if there is one, or else of two speakers the one that did not begin."""
    names = [speaker.name for speaker in transcript.speakers]
    if ASSISTANT in names or len(names) != 2 or not transcript.messages:
        return ASSISTANT
    return names[transcript.messages[0].speaker == names[0]]


def chat_of(transcript: Transcript, seat: str = "", *, system: bool = True) -> list[tuple[str, str]]:
    """Return `turns_of` a seat with alternating roles, which chat templates need, even if a seat spoke twice in a row."""
    turns = turns_of(transcript, seat or default_seat(transcript), system=system)
    return [
        (role, together([content for _, content in same])) for role, same in groupby(turns, itemgetter(0))
    ]


def turns_of(transcript: Transcript, seat: str, *, system: bool) -> list[tuple[str, str]]:
    """Return the chat from the view of one seat, up to its last message. Return an empty list if the seat never spoke."""
    turns = [
        (entry.role, entry.content)
        for entry in heard_by(transcript, seat)
        if system or entry.role != "system"
    ]
    first = next((place for place, (role, _) in enumerate(turns) if role != "system"), 0)
    if (
        turns and turns[first][0] == "assistant" and transcript.task.text
    ):  # it spoke first, and imported data has no opening
        turns.insert(first, ("user", transcript.task.text))
    return turns
