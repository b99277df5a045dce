"""Words in conversations: found through the text index where there is one, else by reading a bounded part of the run.

The one decision to know: an answer holds the best `MOST` conversations and no more, and says so. With those in hand,
filters, counts and pages of a search are as quick and as exact as those of a list.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from camel.core.transcript import Transcript
    from camel.explorer.sources import Source

MOST = 10_000
"""Conversations that one search gives."""
SCANNED = 5_000
"""Conversations that are read at most where there is no text index."""
PATIENCE = 2.0
"""Seconds after which such reading stops."""
AROUND = 90
"""Characters before and after what was found."""

_WORD = re.compile(r"\w+")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')


class TextHit(NamedTuple):
    """A conversation in which a text was found."""

    shard: int
    row: int
    message: int
    pieces: tuple[tuple[str, bool], ...]
    score: float


class TextFound(NamedTuple):
    """What a search of one run gave."""

    hits: list[TextHit]
    notes: list[str]


class Phrases(NamedTuple):
    """What is searched for: each of these must be said, its words next to each other."""

    all: list[list[str]]

    @classmethod
    def parse(cls, text: str) -> Phrases:
        """Words, and "words in quotes" that belong together."""
        found = [_WORD.findall((quoted or word).lower()) for quoted, word in _ASKED.findall(text)]
        return cls([words for words in found if words][:32])

    def pattern(self) -> re.Pattern[str]:
        """Finds any of them in a text."""
        ways = [r"\W+".join(map(re.escape, words)) for words in sorted(self.all, key=len, reverse=True)]
        return re.compile(r"(?<!\w)(?:" + "|".join(ways) + r")(?!\w)", re.IGNORECASE)


def search(source: Source, text: str, hidden: frozenset[str]) -> TextFound:
    """The conversations of a run in which all of a text is said, the best first, those with a hidden label left out."""
    phrases = Phrases.parse(text)
    if not phrases.all:
        return TextFound([], ["there are no words in what is searched for"])
    return _scan(source, phrases, hidden)


def _scan(source: Source, phrases: Phrases, hidden: frozenset[str]) -> TextFound:
    """Read conversations one after the other, as many as there is time for."""
    single = [re.compile(Phrases([words]).pattern().pattern, re.IGNORECASE) for words in phrases.all]
    started, read = time.monotonic(), 0
    hits: list[TextHit] = []
    for shard, row, transcript in _transcripts(source):
        if read >= SCANNED or (read % 64 == 0 and time.monotonic() - started > PATIENCE):
            note = f"{source.name} has no text index: only its first {read:,} conversations were searched"
            return TextFound(hits, [f"{note}; camel index {source.address} --text makes it"])
        read += 1
        if not hidden.isdisjoint(transcript.labels):
            continue
        texts = texts_of(transcript)
        counts = [sum(len(each.findall(text)) for text in texts) for each in single]
        if all(counts):
            message, pieces = snippet(texts, phrases.pattern())
            hits.append(TextHit(shard, row, message, pieces, float(sum(counts))))
    hits.sort(key=lambda hit: -hit.score)
    return TextFound(hits[:MOST], [])


def _transcripts(source: Source) -> Iterator[tuple[int, int, Transcript]]:
    for part in source.parts:
        for one in part.header.shards:
            for row, transcript in enumerate(source.shard(one.shard, one.rows)):
                yield one.shard, row, transcript


def texts_of(transcript: Transcript) -> list[str]:
    """What is searched of a conversation: its task, then what was said."""
    task = transcript.task
    return [f"{task.original}\n{task.specified}", *(message.content for message in transcript.messages)]


def snippet(texts: Sequence[str], pattern: re.Pattern[str]) -> tuple[int, tuple[tuple[str, bool], ...]]:
    """The message with the first hit, preferring what was said to the task, and its text around it."""
    for number in [*range(1, len(texts)), 0]:
        if match := pattern.search(texts[number]):
            return number - 1, cut(texts[number], match, pattern)
    return -1, ()


def cut(text: str, match: re.Match[str], pattern: re.Pattern[str]) -> tuple[tuple[str, bool], ...]:
    """A text around a hit, in pieces; True where a piece is a hit."""
    start, end = max(0, match.start() - AROUND), min(len(text), match.end() + 2 * AROUND)
    part = ("…" if start else "") + " ".join(text[start:end].split()) + ("…" if end < len(text) else "")
    pieces: list[tuple[str, bool]] = []
    last = 0
    for hit in pattern.finditer(part):
        pieces += [(part[last : hit.start()], False), (hit[0], True)]
        last = hit.end()
    return tuple(piece for piece in [*pieces, (part[last:], False)] if piece[0])
