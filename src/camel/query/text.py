"""Text search in conversations: by the text index if there is one, otherwise by reading a limited part of the run.

The one decision to know: a result has at most the best `MOST` conversations, and a note if there are more. They fit into
memory, so filters, counts and pages of a search are as fast and exact as those of a list.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from camel.core.errors import Damaged
from camel.index.text import KEPT, UNSPACED, TextIndex, texts_of, words_of
from camel.query.answers import first_few

if TYPE_CHECKING:
    from camel.query.sources import CatalogueRun

MOST = 2_000
"""Maximum number of conversations in a search result."""
SCANNED = 5_000
"""Maximum number of conversations that a search without a text index reads."""
PATIENCE = 2.0
"""Seconds after which a search without a text index stops."""
AROUND = 90
"""Number of characters of context before a hit. After it, there are twice as many."""

_SEARCHING = ThreadPoolExecutor(4, "camel-search")
_SPACED = rf"[^\W_{UNSPACED}]"
"""A character of a script that separates words by spaces."""
_WORD = re.compile(rf"[{UNSPACED}]+|{_SPACED}+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')

Pieces = tuple[tuple[str, bool], ...]
Shown = tuple[int, Pieces]
"""Index of the message with the hit (from 0, -1 for the task), and the text around the hit."""


class TextHit(NamedTuple):
    """A conversation that contains the search text."""

    shard: int
    row: int
    score: float
    show: Callable[[], Shown]


class TextFound(NamedTuple):
    """The result of a search in one run."""

    hits: list[TextHit]
    notes: list[str]
    narrowed: bool = False
    """Whether the hits already satisfy all facet filters."""


def phrases_of(text: str, words: Callable[[str], list[str]]) -> list[list[str]]:
    """Split a search text into phrases: single words, and words in quotes that must be adjacent."""
    found = [words(quoted or word) for quoted, word in _ASKED.findall(text)]
    return [some for some in found if some][:32]


def pattern_of(phrases: Iterable[Sequence[str]]) -> re.Pattern[str]:
    """Return a pattern that matches any of the phrases."""
    ways = [_adjacent(words) for words in sorted(phrases, key=len, reverse=True)]
    return re.compile("|".join(ways), re.IGNORECASE)


def _adjacent(words: Sequence[str]) -> str:
    """Return a pattern that matches adjacent words. Words of different scripts need no space between them."""
    unspaced = [bool(_UNSPACED.match(word)) for word in words]
    text = "" if unspaced[0] else rf"(?<!{_SPACED})"
    for number, word in enumerate(words):
        if number:
            text += r"[\W_]*" if unspaced[number] != unspaced[number - 1] else r"[\W_]+"
        text += re.escape(word)
    return text + ("" if unspaced[-1] else rf"(?!{_SPACED})")


def search(
    source: CatalogueRun,
    indexes: Sequence[TextIndex],
    text: str,
    facets: dict[str, tuple[str, ...]],
    hidden: frozenset[str],
) -> TextFound:
    """Return the conversations that contain all phrases of a text, the best first. Those with hidden labels are excluded."""
    plain = phrases_of(text, lambda part: _WORD.findall(part.lower()))
    if not plain:
        return TextFound([], ["the search text contains no words: enter at least one word"])
    if not indexes:
        return _scan(source, plain, hidden, set())
    found = _look_up(source, indexes, text, pattern_of(plain), facets, hidden)
    covered = {one.shard for index in indexes for one in index.header.shards}
    if any(one.shard not in covered for part in source.parts for one in part.header.shards):
        more = _scan(source, plain, hidden, covered)
        best = sorted([*found.hits, *more.hits], key=lambda hit: -hit.score)[:MOST]
        return TextFound(best, [*found.notes, *more.notes])
    return found


def _look_up(
    source: CatalogueRun,
    indexes: Sequence[TextIndex],
    text: str,
    pattern: re.Pattern[str],
    facets: dict[str, tuple[str, ...]],
    hidden: frozenset[str],
) -> TextFound:
    # The text index cannot filter by an empty value; such a filter is applied to the hits later.
    narrow = {name: values for name, values in facets.items() if name in KEPT and values and "" not in values}
    phrases = phrases_of(text, words_of)
    if not phrases:  # only punctuation, which the engine does not index
        return TextFound([], [])
    scored: list[tuple[float, int, Any]] = []
    total = 0

    def ask(index: TextIndex) -> tuple[list[tuple[float, Any]], int]:
        return index.search(phrases, narrow, hidden, MOST)

    def show(index: TextIndex, address: Any) -> Shown:
        return snippet(index.texts(address), pattern)

    # In threads, because the engine releases the GIL while it searches.
    answers = _SEARCHING.map(ask, indexes)
    for number, (found, count) in enumerate(answers):
        total += count
        scored += [(score, number, address) for score, address in found]
    scored.sort(key=lambda one: -one[0])
    hits: list[TextHit] = []
    for number, index in enumerate(indexes):
        mine = [(score, address) for score, which, address in scored[:MOST] if which == number]
        places = index.places([address for _, address in mine])
        for place, (score, address) in zip(places, mine, strict=True):
            hits.append(TextHit(place >> 32, place & 0xFFFFFFFF, score, partial(show, index, address)))
    said = f"{source.name}: {total:,} conversations match; only the best {MOST:,} are listed and counted"
    return TextFound(hits, [said] if total > MOST else [], narrow.keys() == facets.keys())


def _given(shown: Shown) -> Shown:
    return shown


def _scan(
    source: CatalogueRun, phrases: Sequence[Sequence[str]], hidden: frozenset[str], covered: set[int]
) -> TextFound:
    """Search conversations one by one, without a text index, until a limit of time or number is reached."""
    single, pattern = [pattern_of([words]) for words in phrases], pattern_of(phrases)
    started, read = time.monotonic(), 0
    hits: list[TextHit] = []
    notes: list[str] = []
    damage: list[str] = []
    for one in (one for part in source.parts for one in part.header.shards if one.shard not in covered):
        if notes:
            break
        try:
            for row, transcript in enumerate(source.shard(one.shard, one.rows)):
                if read >= SCANNED or (read % 64 == 0 and time.monotonic() - started > PATIENCE):
                    which = "a part of it has no text index" if covered else "it has no text index"
                    notes.append(
                        f"{source.name}: {which}, and only {read:,} conversations without one were searched; run "
                        f"camel run index {source.address} --text to search all"
                    )
                    break
                read += 1
                if not hidden.isdisjoint(transcript.labels):
                    continue
                texts = texts_of(transcript)
                counts = [sum(len(each.findall(text)) for text in texts) for each in single]
                if all(counts):
                    show = partial(_given, snippet(texts, pattern))
                    hits.append(TextHit(one.shard, row, float(sum(counts)), show))
        except Damaged as error:
            damage.append(f"{source.name}: some conversations could not be searched: {error}")
    hits.sort(key=lambda hit: -hit.score)
    return TextFound(hits[:MOST], [*first_few(source.name, damage), *notes])


def snippet(texts: Sequence[str], pattern: re.Pattern[str]) -> Shown:
    """Return the index of the first message with a hit, and the text around it. The task is used only if no message has one."""
    for number in [*range(1, len(texts)), 0]:
        if match := pattern.search(texts[number]):
            return number - 1, cut(texts[number], match, pattern)
    return -1, ((texts[0][: 2 * AROUND], False),) if texts else ()


def cut(text: str, match: re.Match[str], pattern: re.Pattern[str]) -> Pieces:
    """Return the text around a hit in pieces. The flag of a piece is True if it is a hit."""
    start, end = max(0, match.start() - AROUND), min(len(text), match.end() + 2 * AROUND)
    part = ("…" if start else "") + " ".join(text[start:end].split()) + ("…" if end < len(text) else "")
    pieces: list[tuple[str, bool]] = []
    last = 0
    for hit in pattern.finditer(part):
        pieces += [(part[last : hit.start()], False), (hit[0], True)]
        last = hit.end()
    return tuple(piece for piece in [*pieces, (part[last:], False)] if piece[0])
