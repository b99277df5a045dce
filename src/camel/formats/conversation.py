"""Formats of conversations for training: messages, ShareGPT, Alpaca."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import compress, groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from camel.core.heard import heard_by, together
from camel.core.history import Entry
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

    Default: the seat `assistant`, or else of two speakers the one that did not begin. Tool calls are `tool_calls` with their
    arguments as objects, results have the role `tool`, and `tools` has the schemas as JSON text. With `sharegpt`, write
    `{"conversations": [{"from", "value"}…]}` of human and gpt, with calls as `function_call` and results as `observation`;
    text next to a call is not in this format. Calls that a model wrote as text remain text in both formats.
    """

    rows = partial(_chat_rows, seat, system, sharegpt)
    return write_rows(transcripts, path, release, rows, ROW_ENDINGS)


def _chat_rows(seat: str, system: bool, sharegpt: bool, transcript: Transcript) -> Iterator[dict[str, Any]]:
    own = seat or default_seat(transcript)
    turns = chat_of(transcript, own, system=system)
    if turns and sharegpt:
        yield {"conversations": [*_sharegpt_turns(turns)], **tools_of(transcript, own)}
    elif turns:
        said = [message.reasoning for message in transcript.messages if message.speaker == own]
        spoken = [turn.role == "assistant" and not turn.partial for turn in turns]
        # Without one reasoning per turn, they cannot be assigned.
        thoughts = iter(said if len(said) == sum(spoken) else ())
        found = chat_messages(turns)
        for message in compress(found, spoken):
            if thought := next(thoughts, ""):  # the field that chat templates use
                message["reasoning_content"] = thought
        yield {"messages": found, **tools_of(transcript, own)}


sharegpt = partial(messages, sharegpt=True)
_SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def chat_messages(turns: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return a chat as chat templates read it: arguments of calls are objects, and results have the name of their tool."""
    found, names = list[dict[str, Any]](), dict[str, str]()
    for turn in turns:
        found.append(turn.to_dict())
        for call in found[-1].get("tool_calls", ()):
            names[call["id"]] = call["function"]["name"]
            call["function"]["arguments"] = _arguments(call["function"]["arguments"])
        if turn.role == "tool":
            found[-1]["name"] = names.get(turn.answers, "")
    return found


def _arguments(text: str) -> Any:
    """Return the arguments of a call as the JSON object that they are. Other text is returned as it is."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return text


def _sharegpt_turns(turns: Iterable[Entry]) -> Iterator[dict[str, str]]:
    """Yield the turns of a chat. They alternate, so several calls are one turn with a JSON list, and so are their results."""
    for role, group in groupby(turns, lambda turn: turn.role):
        turn, *others = group
        if others:
            yield {"from": _SHAREGPT[role], "value": _json([one.content for one in (turn, *others)])}
        else:
            calls = [{"name": one.name, "arguments": _arguments(one.arguments)} for one in turn.calls]
            value = _json(calls if len(calls) > 1 else calls[0]) if calls else turn.content
            yield {"from": "function_call" if calls else _SHAREGPT[role], "value": value}


def tools_of(transcript: Transcript, seat: str) -> dict[str, str]:
    """Return the column `tools`: JSON text with the schemas of a seat's tools. Empty if the system prompt describes them."""
    own = next((one for one in transcript.speakers if one.name == seat), None)
    if own is None or not own.tools or own.tool_form != "native":
        return {}
    return {"tools": _json([{"type": "function", "function": asdict(one)} for one in own.tools])}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _alpaca_rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
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


alpaca = partial(write_rows, release=Release(), rows=_alpaca_rows, endings=ROW_ENDINGS)
"""Writes `{"instruction", "input", "output"}` rows: one for every solved instruction, or for a problem and its solution."""


def default_seat(transcript: Transcript) -> str:
    """Return the seat to train on: `assistant` if there is one, or else of two speakers the one that did not begin."""
    names = [speaker.name for speaker in transcript.speakers]
    if ASSISTANT in names or len(names) != 2 or not transcript.messages:
        return ASSISTANT
    return names[transcript.messages[0].speaker == names[0]]


def chat_of(transcript: Transcript, seat: str = "", *, system: bool = True) -> list[Entry]:
    """Return `turns_of` a seat with alternating roles, which chat templates need, even if a seat spoke twice in a row."""
    chat: list[Entry] = []
    for turn in turns_of(transcript, seat or default_seat(transcript), system=system):
        if not chat or chat[-1].role != turn.role or turn.role == "tool":
            chat.append(turn)
        else:
            more = [turn.content] if turn.content or not turn.calls else []
            chat[-1] = replace(turn, content=together([chat[-1].content, *more]))
    return chat


def turns_of(transcript: Transcript, seat: str, *, system: bool) -> list[Entry]:
    """Return the chat from the view of one seat, up to its last message. Return an empty list if the seat never spoke."""
    turns = [entry for entry in heard_by(transcript, seat) if system or entry.role != "system"]
    first = next((place for place, turn in enumerate(turns) if turn.role != "system"), 0)
    # It spoke first, and imported data has no opening.
    if turns and turns[first].role == "assistant" and transcript.task.text:
        turns.insert(first, Entry("user", transcript.task.text))
    return turns
