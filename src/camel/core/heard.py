"""Who hears whom, in which words, and what each speaker of a transcript heard.

A transcript keeps every message once. What a speaker's model was sent follows from the graph, the wording and the
order, and is rebuilt here with the functions that the conversation loop itself uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from camel.core.errors import InputError
from camel.core.history import Entry
from camel.core.memory import remembered
from camel.core.message import Message

if TYPE_CHECKING:
    from camel.core.transcript import Transcript

Hears = Callable[[str, str], bool]
"""Whether the first (a speaker) is heard by the second."""
Wording = Callable[[Message], str]
"""How a message reads to those who hear it; given by name to those who hear several speakers, where none is given."""


def everyone(speaker: str, listener: str) -> bool:
    """Everyone hears everyone else."""
    return True


def by_name(message: Message) -> str:
    """After the name of the speaker, for those who hear more than one.

    Several lines are quoted, so that a line that begins with another's name is not taken for what that one said.
    """
    lines = message.content.splitlines()
    if len(lines) < 2:
        return f"{message.speaker}: {message.content}"
    return "\n> ".join([f"{message.speaker}:", *lines])


def edges_of(names: Sequence[str], hears: Hears | Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """By speaker, who hears it."""
    if callable(hears):
        return {name: [one for one in names if one != name and hears(name, one)] for name in names}
    if strangers := {*hears, *chain.from_iterable(hears.values())} - {*names}:
        raise InputError(f"hears names {min(strangers)!r}, who is not in the conversation")
    return {name: [one for one in hears.get(name, ()) if one != name] for name in names}


def listeners_of(edges: Mapping[str, list[str]], *, named: bool) -> dict[str, tuple[list[str], list[str]]]:
    """By speaker, those of its listeners who must be told its name, and those who hear nobody else."""
    if named:
        return {name: (listeners, []) for name, listeners in edges.items()}
    heard = Counter(chain.from_iterable(edges.values()))
    return {
        name: ([one for one in found if heard[one] > 1], [one for one in found if heard[one] == 1])
        for name, found in edges.items()
    }


def together(texts: Sequence[str]) -> str:
    """What somebody has heard since it last spoke, as one text: chat templates want turns to alternate."""
    return "\n\n".join(texts)


def heard_by(transcript: Transcript, seat: str) -> list[Entry]:
    """The chat of one speaker, up to the last thing it said: system prompt, what it heard, what it said.

    What it forgot is there, too. Empty where it said nothing. Raises an `InputError` for a wording that only its program knows.
    """
    chat: list[Entry] = []
    for _, chat in _asked(transcript, seat):  # noqa: B007 - after the last, the reply is there
        pass
    return chat


def sent_for(transcript: Transcript, index: int) -> list[Entry]:
    """What the model was sent that said message `index`; what its speaker had forgotten by then is not there."""
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
    """Each message of a speaker, and its chat before it; the chat is one list, which grows."""
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
    """What was heard since it last spoke, and with which message."""
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
            chat.append(Entry("assistant", message.content))
        else:
            named, alone = listeners[message.speaker]
            if seat in alone:
                heard.append((place, message.content))
            elif seat in named:
                heard.append((place, by_name(message)))
