"""What each speaker of a transcript heard, rebuilt from who hears whom and how messages are worded.

A transcript keeps every message once. What a speaker's model was sent follows from the graph, the wording and the
order, with the functions of the conversation loop itself.
"""

from __future__ import annotations

from camel.core.conversation import by_name, edges_of, everyone, listeners_of, together
from camel.core.errors import InputError
from camel.core.history import Entry
from camel.core.transcript import Transcript


def heard_by(transcript: Transcript, seat: str) -> list[Entry]:
    """The chat of one speaker, up to the last thing it said: system prompt, what it heard, what it said.

    Empty where it said nothing. Raises an `InputError` for a wording that only the program that made it knows.
    """
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
    said = 0
    for place, message in enumerate(transcript.messages):
        if message.speaker == seat:
            seen = place if message.seen < 0 else message.seen
            now = [text for at, text in heard if at < seen]
            heard = [one for one in heard if one[0] >= seen]
            if now:
                chat.append(Entry("user", together(now)))
            chat.append(Entry("assistant", message.content))
            said = len(chat)
        else:
            named, alone = listeners[message.speaker]
            if seat in alone:
                heard.append((place, message.content))
            elif seat in named:
                heard.append((place, by_name(message)))
    return chat[:said]
