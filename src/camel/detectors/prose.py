"""Parts of a message for the rules: its work, its prose, its sentences, its words.

The one decision to know: a rule about what a speaker *says* uses only prose. Code, quotations and text that was requested in
the voice of others (a letter, a scene, a bot's reply) are shown, not said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from camel.core.message import Message
from camel.core.role_playing import USER
from camel.core.transcript import Transcript

_LONGEST = 20_000
"""Maximum number of characters of a message that are read as prose, which is always enough."""

_CODE = re.compile(
    r"^[ \t]*(```+|~~~+)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL
)
_QUOTED = re.compile(
    r"\"[^\"\n]{2,600}\"|“[^”]{2,600}”|„[^“”]{2,600}[“”]|«[^»]{2,600}»|^[ \t]*>.*$", re.MULTILINE
)
_OPENS_QUOTE = '"“„«>'
_CLOSING = re.compile(r"[\s*_#]{0,12}next request[\s.!*_]{0,12}\Z", re.IGNORECASE)
_LABEL = re.compile(
    r"^[ \t*_#]{0,12}(?:instruction|input|solution)[*_]{0,3}[ \t]*[:：][*_]{0,3}",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE = re.compile(r"[^.!?。！？\n]*(?:[.!?。！？]+[\"'”’)*_]*|\n|\Z)")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_BETWEEN_WORDS = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) != "'"}
"""Replaces what is between words in ASCII text. Apostrophes may be in a word."""
_SHOWN = re.compile(
    r"\b(?:letters?|e-?mails?|(?:a|the|this|short) message (?:to|for|that)|repl(?:y|ies)|answers? to|story|novel|scenes?|"
    r"(?:a|the|puppet|stage|of the) play\b|dialogue|says|speech|toast|vows?|poem|song|lyrics|chapter|sketch|testimonials?|"
    r"templates?|example of what|role[- ]play|interviewer|act as|pretend|prompt|apology|announcement|invitation|obituary)\b",
    re.IGNORECASE,
)


def is_natural(transcript: Transcript) -> bool:
    """Return whether the speakers' prompts are known and do not ask for the paper's format."""
    systems = [speaker.system for speaker in transcript.speakers if speaker.system]
    return bool(systems) and not any("Instruction:" in text or "Solution:" in text for text in systems)


def said_by(speaker: str, transcript: Transcript) -> Iterator[tuple[int, Message]]:
    """Yield the messages of a seat with their indexes."""
    return ((i, message) for i, message in enumerate(transcript.messages) if message.speaker == speaker)


def asked_before(transcript: Transcript, index: int) -> Message | None:
    """Return the user's latest message before `index`, or None."""
    messages = transcript.messages
    return next((messages[at] for at in range(index - 1, -1, -1) if messages[at].speaker == USER), None)


def work(message: Message) -> str:
    """Return the instruction or solution in a message, without the labels of the format."""
    move = message.move
    if message.speaker == USER and move.instruction is not None:
        return move.instruction
    if move.solution is not None:
        return move.solution
    return _bare(message.content)


@lru_cache(maxsize=256)
def _bare(text: str) -> str:
    """Remove labels of the format that have no content, which the grammar ignores."""
    text = _LABEL.sub("", without_closing(text)).strip()
    return "" if text.strip(" .*_").lower() in ("none", "n/a", "nothing") else text


def without_closing(text: str) -> str:
    """Remove `Next request.` from the end of a text."""
    text = text.rstrip()
    found = _CLOSING.search(text, max(0, len(text) - 40))
    return text[: found.start()] if found else text


@lru_cache(maxsize=256)
def prose(text: str) -> str:
    """Return the prose of a text: without code and quotations, and with plain apostrophes."""
    text = text[:_LONGEST].replace("’", "'")
    if "`" in text or "~~~" in text:
        text = _CODE.sub(" ", text)
    # Plain search is faster than a pattern, and most texts quote nothing.
    if any(map(text.__contains__, _OPENS_QUOTE)):
        text = _QUOTED.sub(" ", text)
    return text.strip()


@lru_cache(maxsize=256)
def sentences(text: str) -> tuple[str, ...]:
    """Return the sentences and lines of a text that contain a word."""
    found = (match[0].strip() for match in _SENTENCE.finditer(text))
    return tuple(sentence for sentence in found if _WORD.search(sentence))


@lru_cache(maxsize=256)
def words(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case."""
    text = text.lower().replace("’", "'")
    if not text.isascii():
        return tuple(_WORD.findall(text))
    # The same as the pattern, several times faster.
    found = text.translate(_BETWEEN_WORDS).split()
    return tuple(found if "'" not in text else (word for one in found for word in _WORD.findall(one)))


def pieces(text: str) -> list[str]:
    """Return the pieces of a list that is separated by bars, for `has_any`."""
    return text.split("|")


def has_any(text: str, listed: Sequence[str]) -> bool:
    """Return whether a text has one of the pieces, which are in lower case. Plain search is ten times faster than a pattern."""
    return any(map(text.lower().__contains__, listed))


def is_shown(asked: Message | None) -> bool:
    """Return whether the user asked for text in the voice of another person, such as a letter or a dialog."""
    return asked is not None and _SHOWN.search(work(asked)) is not None
