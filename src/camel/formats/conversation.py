"""Formats of conversations for training: messages, ShareGPT, Alpaca."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from camel.core.heard import heard_by
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
    seat: str = ASSISTANT,
    system: bool = True,
    sharegpt: bool = False,
) -> Exported:
    """Write `{"messages": [{"role", "content"}…]}` for OpenAI and TRL: what the model in `seat` heard and said.

    With `sharegpt`, write `{"conversations": [{"from", "value"}…]}` of human and gpt.
    """

    def rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
        turns = turns_of(transcript, seat, system=system)
        if turns and sharegpt:
            yield {"conversations": [{"from": _SHAREGPT[role], "value": content} for role, content in turns]}
        elif turns:
            thoughts = (message.reasoning for message in transcript.messages if message.speaker == seat)
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
