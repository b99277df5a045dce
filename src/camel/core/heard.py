"""Who hears whom, in which wording, and what each speaker of a transcript heard.

A transcript stores every message once. What a speaker's model was sent follows from the graph, the wording and the
order, and is rebuilt here with the functions that the conversation loop itself uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from camel.core.acting import action_entries, read_by_model
from camel.core.errors import InputError
from camel.core.history import Entry
from camel.core.memory import remembered
from camel.core.message import Message, in_one_line

if TYPE_CHECKING:
    from camel.core.transcript import Transcript

Hears = Callable[[str, str], bool]
"""Takes a speaker and a listener; returns whether the listener hears the speaker."""
Wording = Callable[[Message], str]
"""The text of a message as its listeners read it. Default: `by_name` for listeners of several speakers."""


_MOST_HEARD = 1_000
"""Maximum length of a tool's result in what listeners read."""


def everyone(speaker: str, listener: str) -> bool:
    """Everyone hears everyone else."""
    return True


def by_name(message: Message) -> str:
    """Return the message behind its speaker's name, for listeners of several speakers.

    Messages of several lines are quoted, so that a line that begins with another name cannot pose as that speaker.
    """
    lines = message.content.splitlines()
    if len(lines) < 2:
        return f"{message.speaker}: {message.content}"
    return "\n> ".join([f"{message.speaker}:", *lines])


def with_actions(message: Message) -> Message:
    """Return a message whose text begins with its tool calls and their results, for listeners that hear actions."""
    lines = [
        f"[{one.tool}({one.arguments}): {in_one_line(read_by_model(one))[:_MOST_HEARD]}]"
        for one in message.actions
    ]
    return replace(message, content="\n".join([*lines, message.content]))


def edges_of(names: Sequence[str], hears: Hears | Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return the listeners of each speaker."""
    if callable(hears):
        return {name: [one for one in names if one != name and hears(name, one)] for name in names}
    if strangers := {*hears, *chain.from_iterable(hears.values())} - {*names}:
        raise InputError(f"hears contains {min(strangers)!r}, who is not in the conversation. Remove it")
    return {name: [one for one in hears.get(name, ()) if one != name] for name in names}


def listeners_of(edges: Mapping[str, list[str]], *, named: bool) -> dict[str, tuple[list[str], list[str]]]:
    """Return two lists for each speaker: listeners that hear several speakers, and listeners that hear only this one. If
    `named` is true, all listeners are in the first list. It gets messages with the speaker's name."""
    if named:
        return {name: (listeners, []) for name, listeners in edges.items()}
    heard = Counter(chain.from_iterable(edges.values()))
    return {
        name: ([one for one in found if heard[one] > 1], [one for one in found if heard[one] == 1])
        for name, found in edges.items()
    }


def together(texts: Sequence[str]) -> str:
    """Join the texts that a speaker has heard since it last spoke, because chat templates need alternating turns."""
    return "\n\n".join(texts)


def heard_by(transcript: Transcript, seat: str) -> list[Entry]:
    """Return the chat of one speaker up to its last message: system prompt, what it heard, what it said. Includes turns that
    the speaker forgot. Empty if it never spoke. Raises an `InputError` for a custom wording."""
    chat: list[Entry] = []
    for _, chat in _asked(transcript, seat):  # noqa: B007 - `chat` is the last one, reply included
        pass
    return chat


def sent_for(transcript: Transcript, index: int) -> list[Entry]:
    """Return the chat that was sent for message `index`, without the turns that its speaker had forgotten."""
    wanted = transcript.messages[index]
    opening = next((one.opening for one in transcript.speakers if one.name == wanted.speaker), "")
    forgot, summary, chat = 0, "", list[Entry]()
    for message, chat in _asked(transcript, wanted.speaker):  # noqa: B007
        if message.summary or message.forgot != forgot:
            forgot, summary = message.forgot, message.summary
        if message is wanted:
            break
    return remembered(chat, opening, forgot, summary)


def _asked(transcript: Transcript, seat: str) -> Iterator[tuple[Message, list[Entry]]]:
    """Yield each message of a speaker with the chat before it. The same list is yielded each time and grows."""
    if transcript.wording not in ("", by_name.__name__):
        raise InputError(
            f"what {seat} heard cannot be rebuilt: the wording {transcript.wording!r} belongs to the program that made "
            f"{transcript.id}"
        )
    speakers = {speaker.name: speaker for speaker in transcript.speakers}
    names = list(dict.fromkeys([*speakers, *(message.speaker for message in transcript.messages)]))
    edges = edges_of(names, everyone if transcript.hears is None else transcript.hears)
    listeners = listeners_of(edges, named=bool(transcript.wording))
    chat: list[Entry] = []
    heard: list[tuple[int, str]] = []
    """What was heard since it last spoke, with the index of each message."""
    if own := speakers.get(seat):
        if own.system:
            chat.append(Entry("system", own.system))
        if own.opening:
            heard.append((-1, own.opening))
    for place, message in enumerate(transcript.messages):
        if message.speaker == seat:
            seen = place if message.seen < 0 else message.seen
            now = [text for at, text in heard if at < seen]
            heard = [one for one in heard if one[0] >= seen]
            if now:
                chat.append(Entry("user", together(now)))
            yield message, chat
            if message.actions:
                chat += action_entries(message.actions, own.tool_form if own else "native")
            chat.append(Entry("assistant", message.content))
        else:
            named, alone = listeners[message.speaker]
            if transcript.hear_actions and message.actions:
                message = with_actions(message)
            if seat in alone:
                heard.append((place, message.content))
            elif seat in named:
                heard.append((place, by_name(message)))
