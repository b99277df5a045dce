"""Words in conversations: found through the text index where there is one, else by reading a bounded part of the run.

The one decision to know: an answer holds the best `MOST` conversations and no more, and says so. With those in hand,
filters, counts and pages of a search are as quick and as exact as those of a list.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from camel.core.errors import Damaged
from camel.index.text import KEPT, UNSPACED, TextIndex, opened, texts_of, words_of
from camel.query.answers import first_few

if TYPE_CHECKING:
    from camel.query.sources import CatalogueRun

MOST = 2_000
"""Conversations that one search gives."""
SCANNED = 5_000
"""Conversations that are read at most where there is no text index."""
PATIENCE = 2.0
"""Seconds after which such reading stops."""
AROUND = 90
"""Characters before and after what was found."""

_SEARCHING = ThreadPoolExecutor(4, "camel-search")
_SPACED = rf"[^\W_{UNSPACED}]"
"""A character of a word that ends at a space, or where a script without spaces begins."""
_WORD = re.compile(rf"[{UNSPACED}]+|{_SPACED}+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')

Pieces = tuple[tuple[str, bool], ...]
Shown = tuple[int, Pieces]
"""The message in which words were found, from 0, -1 for the task; and its text around them."""


class TextHit(NamedTuple):
    """A conversation in which a text was found."""

    shard: int
    row: int
    score: float
    show: Callable[[], Shown]


class TextFound(NamedTuple):
    """What a search of one run gave."""

    hits: list[TextHit]
    notes: list[str]
    narrowed: bool = False
    """Whether all filters by facet have been applied to them already."""


def phrases_of(text: str, words: Callable[[str], list[str]]) -> list[list[str]]:
    """What must be said: words, and "words in quotes" that belong together."""
    found = [words(quoted or word) for quoted, word in _ASKED.findall(text)]
    return [some for some in found if some][:32]


def _plain_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def pattern_of(phrases: Iterable[Sequence[str]]) -> re.Pattern[str]:
    """Finds any of the phrases in a text."""
    ways = [_one_after_the_other(words) for words in sorted(phrases, key=len, reverse=True)]
    return re.compile("|".join(ways), re.IGNORECASE)


def _one_after_the_other(words: Sequence[str]) -> str:
    """Finds words next to each other. Between two scripts there need not be a space."""
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
    """The conversations of a run in which all of a text is said, the best first, those with a hidden label left out."""
    if not phrases_of(text, _plain_words):
        return TextFound([], ["there are no words in what is searched for"])
    if not indexes:
        return _scan(source, phrases_of(text, _plain_words), hidden, set())
    found = _look_up(source, indexes, text, facets, hidden)
    covered = {one.shard for index in indexes for one in index.header.shards}
    if any(one.shard not in covered for part in source.parts for one in part.header.shards):
        more = _scan(source, phrases_of(text, _plain_words), hidden, covered)
        best = sorted([*found.hits, *more.hits], key=lambda hit: -hit.score)[:MOST]
        return TextFound(best, [*found.notes, *more.notes])
    return found


def _look_up(
    source: CatalogueRun,
    indexes: Sequence[TextIndex],
    text: str,
    facets: dict[str, tuple[str, ...]],
    hidden: frozenset[str],
) -> TextFound:
    # An empty value is no word of an index; such a filter is applied to what was found.
    narrow = {name: values for name, values in facets.items() if name in KEPT and values and "" not in values}
    phrases, pattern = phrases_of(text, words_of), pattern_of(phrases_of(text, _plain_words))
    if not phrases:  # marks alone, which the engine does not index
        return TextFound([], [])
    scored: list[tuple[float, int, Any]] = []
    total = 0

    def ask(index: TextIndex) -> tuple[list[tuple[float, Any]], int]:
        return index.search(phrases, narrow, hidden, MOST)

    # In threads: the engine releases the interpreter while it searches.
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
            show = partial(_read, index, address, pattern)
            hits.append(TextHit(place >> 32, place & 0xFFFFFFFF, score, show))
    said = f"{source.name}: {total:,} conversations match; the best {MOST:,} are listed and counted"
    return TextFound(hits, [said] if total > MOST else [], narrow.keys() == facets.keys())


def _read(index: TextIndex, address: Any, pattern: re.Pattern[str]) -> Shown:
    return snippet(index.texts(address), pattern)


def _given(shown: Shown) -> Shown:
    return shown


def _scan(
    source: CatalogueRun, phrases: Sequence[Sequence[str]], hidden: frozenset[str], covered: set[int]
) -> TextFound:
    """Read conversations one after the other, as many as there is time for."""
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
                    which = "the rest of it has no text index" if covered else "it has no text index"
                    notes.append(
                        f"{source.name}: {which}, and only {read:,} conversations were searched; "
                        f"camel run index {source.address} --text makes it"
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
            damage.append(f"{source.name}: not all of it was searched: {error}")
    hits.sort(key=lambda hit: -hit.score)
    return TextFound(hits[:MOST], [*first_few(source.name, damage), *notes])


def snippet(texts: Sequence[str], pattern: re.Pattern[str]) -> Shown:
    """The message with the first hit, preferring what was said to the task, and its text around it."""
    for number in [*range(1, len(texts)), 0]:
        if match := pattern.search(texts[number]):
            return number - 1, cut(texts[number], match, pattern)
    return -1, ((texts[0][: 2 * AROUND], False),) if texts else ()


def cut(text: str, match: re.Match[str], pattern: re.Pattern[str]) -> Pieces:
    """A text around a hit, in pieces; True where a piece is a hit."""
    start, end = max(0, match.start() - AROUND), min(len(text), match.end() + 2 * AROUND)
    part = ("…" if start else "") + " ".join(text[start:end].split()) + ("…" if end < len(text) else "")
    pieces: list[tuple[str, bool]] = []
    last = 0
    for hit in pattern.finditer(part):
        pieces += [(part[last : hit.start()], False), (hit[0], True)]
        last = hit.end()
    return tuple(piece for piece in [*pieces, (part[last:], False)] if piece[0])


def indexes_of(source: CatalogueRun) -> list[TextIndex]:
    """The text indexes of a run."""
    return opened(source.folder, source.stage, source.folder.settings().fingerprint)
