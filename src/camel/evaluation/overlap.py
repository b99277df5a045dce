"""Finds rows that overlap with one another or with test questions.

Words are sequences of letters, digits and underscores, without regard to case. In scripts without spaces (Chinese, Japanese,
Thai), each character is a word. Rows are compared by the hashes of their words and n-grams.

The one decision to know: hashes are computed on bytes with cumulative sums modulo 2**64. The hash of an n-gram is the difference
of two of these sums, so that n-grams of any length take three passes, and no word becomes a Python string.
"""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from camel.record.parquet import Table, arrow

np, pa = arrow("numpy"), arrow()

SHINGLE = 5
"""Number of words per shingle, for comparing two rows."""
BINS = 128
"""Number of values in a signature."""
BANDS = 16
"""Number of bands in a signature. Rows that share one are compared: half of those with similarity 0.7, almost all at 0.8."""
PHRASE, OUTLINE = 5, 10
"""Number of words per n-gram of test questions: in their text, and in the outline of their code."""
SHARE_OF_PHRASES, SHARE_OF_OUTLINE = 0.25, 0.6
"""Minimum share of a question's n-grams that a row must contain to count as containing it: for text and for outlines."""
KNOWN_IN_OUTLINE = 4
"""Minimum number of known words in an n-gram of an outline, because ten names in a row occur in every text."""
FEWEST = 6
"""Minimum number of n-grams in a text to search for. Shorter texts are ignored."""
_CHUNK = 2**17
"""Number of bytes to hash at a time, chosen for the processor's cache. The rest of a longer row is ignored."""
_BASE, _STEP = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_MIX = 0xFF51AFD7ED558CCD
_PLACES = 2**20
_NAME = 1
"""The hash that replaces every name in an outline."""
_KNOWN = f"""{" ".join(keyword.kwlist)} {" ".join(map(str, range(11)))}
len range int str float list dict set tuple sum min max sorted enumerate zip map filter all any abs append split join
ord chr round reversed lower upper isalpha isdigit replace strip count index pop sort reverse"""
"""Words of code that are not names, such as keywords."""


class Words(NamedTuple):
    """The words of several texts, in order, as hashes."""

    hashes: Any
    of: Any
    """For each word, the index of its text."""


@cache
def _tables() -> tuple[Any, Any, Any, Any]:
    codes = np.zeros(256, np.uint8)
    for byte in range(256):
        char = chr(byte).lower()
        codes[byte] = byte if byte >= 128 else ord(char) if char.isalnum() or char == "_" else 0
    masks = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)
    more, less = (_powers(base, _CHUNK + 1) for base in (_STEP, pow(_STEP, -1, 2**64)))
    return codes, masks, more, less


def _powers(base: int, count: int) -> Any:
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _mix(hashes: Any) -> Any:
    hashes = hashes ^ (hashes >> np.uint64(31))
    hashes = hashes * np.uint64(_MIX)
    return hashes ^ (hashes >> np.uint64(29))


def words(data: Any, ends: Any, breaks: Any = None) -> Words:
    """Return the words of the texts in `data`, an array of at most `_CHUNK` bytes. Each text ends at one of `ends`.

    Words also end at `breaks`, the ends of messages.
    """
    codes, masks, *_ = _tables()
    letters = np.zeros(len(data) + 8, np.uint8)
    np.take(codes, data, out=letters[: len(data)])
    inside = letters[: len(data)].astype(bool)
    edges = np.empty(len(data) + 1, bool)
    edges[0], edges[-1] = inside[:1].any(), inside[-1:].any()
    np.not_equal(inside[1:], inside[:-1], out=edges[1:-1])
    places = np.flatnonzero(edges)
    # A word ends with its text, even if no space follows.
    inner = np.unique(np.concatenate([ends if breaks is None else breaks, _alone(data)]))
    inner = inner[(inner > 0) & (inner < len(data))]
    cut = inner[inside[inner] & inside[inner - 1]]
    if len(cut):
        places = np.sort(np.concatenate([places, cut, cut]))
    starts, stops = places[0::2], places[1::2]
    sizes = stops - starts
    # Eight bytes from any position; the hash of a word is made of its first eight, its last eight and its length.
    eight = np.ndarray(len(data) + 1, "<u8", letters, strides=(1,))
    hashes = eight[starts] & masks[np.minimum(sizes, 8)]
    last = np.where(sizes > 8, eight[np.maximum(stops - 8, 0)], np.uint64(0))
    hashes = _mix(hashes * np.uint64(_BASE) + _mix(last + sizes.astype(np.uint64)))
    until = np.searchsorted(starts, ends)
    return Words(hashes, np.repeat(np.arange(len(ends)), np.diff(until, prepend=0)))


def _alone(data: Any) -> Any:
    """Return where characters of scripts without spaces begin and end: kana and Han (UTF-8 from E3 to E9), Thai and Lao (E0 B8
    to E0 BB)."""
    wide = data >= 0xE0
    if not wide.any():
        return np.zeros(0, np.int64)
    places = np.flatnonzero(wide)
    first, second = data[places], data[np.minimum(places + 1, len(data) - 1)]
    han = (first >= 0xE3) & (first <= 0xE9)
    thai = (first == 0xE0) & (second >= 0xB8) & (second <= 0xBB)
    places = places[han | thai]
    return np.concatenate([places, places + 3])


def grams(found: Words, size: int) -> Words:
    """Return the n-grams of words. No n-gram crosses the end of a text."""
    _, _, more, less = _tables()
    count = len(found.hashes) - size + 1
    if count <= 0:
        return Words(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    sums = np.zeros(len(found.hashes) + 1, np.uint64)
    np.cumsum(found.hashes * more[: len(found.hashes)], dtype=np.uint64, out=sums[1:])
    hashes = _mix((sums[size:] - sums[:-size]) * less[:count])
    whole = found.of[:count] == found.of[size - 1 :]
    return Words(hashes[whole], found.of[:count][whole])


@cache
def _known_words() -> Any:
    """Return a hash table of the known words."""
    known = np.unique(_words_of(_KNOWN).hashes)
    table = np.zeros(_PLACES, np.uint64)
    table[known & np.uint64(_PLACES - 1)] = known  # if two collide, one of them counts as a name
    return table


def _words_of(text: str) -> Words:
    data = np.frombuffer(text.encode()[:_CHUNK], np.uint8)
    return words(data, np.array([len(data)]))


def outline(found: Words) -> Words:
    """Replace all names by the same hash, so that code with renamed variables has the same outline."""
    known = np.take(_known_words(), found.hashes & np.uint64(_PLACES - 1))
    return Words(np.where(known == found.hashes, known, np.uint64(_NAME)), found.of)


def _specific(found: Words) -> Words:
    """Return the n-grams of a text's outline that contain enough known words."""
    every = grams(found, OUTLINE)
    sums = np.concatenate([[0], np.cumsum(found.hashes != _NAME)])
    enough = (sums[OUTLINE:] - sums[:-OUTLINE] >= KNOWN_IN_OUTLINE)[: len(every.hashes)]
    return Words(every.hashes[enough], every.of[enough])


def words_in(rows: Table) -> Iterator[tuple[int, int, Words]]:
    """Yield the words of the rows, some rows at a time: the index of the first row, the number of rows, and their words."""
    data, ends, breaks = bytes_of(rows)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
        stop = min(int(ends[last - 1]), before + _CHUNK)
        within = breaks[np.searchsorted(breaks, before) : np.searchsorted(breaks, stop, side="right")]
        own = np.minimum(ends[first:last], stop) - before
        yield first, last - first, words(data[before:stop], own, within - before)
        first = last


def bytes_of(rows: Table) -> tuple[Any, Any, Any]:
    """Return the text of the messages as contiguous bytes, the end of each row, and the end of each message."""
    lists = rows.combine_chunks().column("messages")
    lists = lists.chunk(0) if lists.num_chunks == 1 else lists.combine_chunks()
    contents = lists.values.field("content")
    offsets = np.frombuffer(contents.buffers()[1], np.int32)[
        contents.offset : contents.offset + len(contents) + 1
    ]
    held = contents.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held is not None else np.zeros(0, np.uint8)
    places = lists.offsets.to_numpy()
    breaks = offsets[places[0] : places[-1] + 1].astype(np.int64)
    ends = offsets[places].astype(np.int64)
    return data[ends[0] : ends[-1]], ends[1:] - ends[0], breaks - ends[0]


def digests(rows: Table) -> Any:
    """Return a hash of each row's text, to find exact duplicates."""
    data, ends, _ = bytes_of(rows)
    found: list[int] = []
    view, start = memoryview(np.ascontiguousarray(data)), 0
    for end in ends.tolist():
        found.append(
            int.from_bytes(hashlib.blake2b(view[start:end], digest_size=8).digest(), "little", signed=True)
        )
        start = end
    return pa.array(found, pa.int64())


# ---------------------------------------------------------------- near duplicates


def signatures(rows: Table) -> Any:
    """Return MinHash signatures of rows, `BINS` 16-bit values each (one permutation; empty bins are filled from the next bin)."""
    found = np.full((rows.num_rows, BINS), np.iinfo(np.uint64).max, np.uint64)
    shift = np.uint64(64 - (BINS.bit_length() - 1))
    for first, count, said in words_in(rows):
        shingles = grams(said, SHINGLE)
        # For a row shorter than a shingle, use its words.
        short = np.ones(count, bool)
        short[shingles.of] = False
        few = short[said.of]
        hashes = np.concatenate([shingles.hashes, said.hashes[few]])
        of = np.concatenate([shingles.of, said.of[few]])
        places = (of + first) * BINS + (hashes >> shift).astype(np.int64)
        np.minimum.at(found.reshape(-1), places, hashes)
    empty = found == np.iinfo(np.uint64).max
    empty[empty.all(axis=1)] = False  # a row without words has no bin to fill from
    while empty.any():
        following = np.roll(found, -1, axis=1) + np.uint64(0x1F3)
        found = np.where(empty & ~np.roll(empty, -1, axis=1), following, found)
        empty &= np.roll(empty, -1, axis=1)
    return (_mix(found) & np.uint64(0xFFFF)).astype(np.uint16)


def bands(signed: Any) -> Any:
    """Return the keys of each row's bands. Rows that share a key may be near duplicates."""
    wide = signed.reshape(len(signed), BANDS, BINS // BANDS).astype(np.uint64)
    powers = _powers(_STEP, BINS // BANDS)
    keys = _mix((wide * powers).sum(axis=2, dtype=np.uint64))
    return keys ^ _mix(np.arange(BANDS, dtype=np.uint64) + np.uint64(1))


# ---------------------------------------------------------------- test questions


class ExamQuestion(NamedTuple):
    """A test question. A row contains the question if it contains one of the question's texts."""

    name: str
    texts: tuple[str, ...]
    code: tuple[str, ...] = ()
    """Texts that are code. They are also found with renamed variables."""


class ExamQuestions:
    """An index of test questions, for finding them in rows."""

    def __init__(self, questions: Iterable[ExamQuestion]) -> None:
        asked = list(questions)
        self.names = [one.name for one in asked]
        texts = [(number, text) for number, one in enumerate(asked) for text in one.texts + one.code]
        codes = [(number, text) for number, one in enumerate(asked) for text in one.code]
        self._phrases = _Index(((n, grams(_words_of(text), PHRASE)) for n, text in texts), SHARE_OF_PHRASES)
        self._outlines = _Index(
            ((n, _specific(outline(_words_of(text)))) for n, text in codes), SHARE_OF_OUTLINE
        )

    def found_in(self, rows: Table) -> dict[int, int]:
        """Return the rows that contain a question: the row's index, and the index of the question in `names`."""
        hits: dict[int, int] = {}
        for first, _, said in words_in(rows):
            for index, present in (
                (self._phrases, grams(said, PHRASE)),
                (self._outlines, grams(outline(said), OUTLINE)),
            ):
                for row, question in index.found(present):
                    hits.setdefault(first + row, question)
        return hits


class _Index:
    """A sorted index of n-grams, each with its text."""

    def __init__(self, texts: Iterable[tuple[int, Words]], share: float) -> None:
        """`texts` are n-grams with the numbers of their questions. `share` is the share that a row must contain."""
        own = [(number, np.unique(found.hashes)) for number, found in texts]
        own = [(number, different) for number, different in own if len(different) >= FEWEST]
        self._questions = [number for number, _ in own]
        sizes = np.array([len(different) for _, different in own], np.int64)
        self._needed = np.maximum(FEWEST - 1, np.ceil(share * sizes)).astype(int).tolist()
        hashes = np.concatenate([np.zeros(0, np.uint64), *(different for _, different in own)])
        order = np.argsort(hashes, kind="stable")
        owners = np.repeat(np.arange(len(own)), sizes)
        self._sorted, self._owner = hashes[order], owners[order]
        self._may = np.zeros(_PLACES, bool)
        self._may[hashes & np.uint64(_PLACES - 1)] = True

    def found(self, present: Words) -> Iterator[tuple[int, int]]:
        """Yield the index of each row that contains enough n-grams of a text, with the index of the text's question."""
        if not len(self._sorted) or not len(present.hashes):
            return
        hit = np.flatnonzero(np.take(self._may, present.hashes & np.uint64(_PLACES - 1)))
        low = np.searchsorted(self._sorted, present.hashes[hit])
        hit = hit[self._sorted[np.minimum(low, len(self._sorted) - 1)] == present.hashes[hit]]
        if not len(hit):
            return
        # Few rows get here. Count each n-gram of a row once for every text that contains it.
        pairs: dict[tuple[int, int], int] = {}
        for row, gram in sorted({(int(present.of[at]), int(present.hashes[at])) for at in hit}):
            place = int(np.searchsorted(self._sorted, np.uint64(gram)))
            while place < len(self._sorted) and int(self._sorted[place]) == gram:
                key = row, int(self._owner[place])
                pairs[key] = pairs.get(key, 0) + 1
                place += 1
        for (row, text), count in pairs.items():
            if count >= self._needed[text]:
                yield row, self._questions[text]


def equal_rows(keys: Any, places: Any) -> tuple[Any, Any]:
    """Return two arrays: for each row whose key equals that of an earlier row, the first such row, and the row itself."""
    order = np.lexsort((places, keys))
    keys, places = keys[order], places[order]
    same = np.zeros(len(keys), bool)
    same[1:] = keys[1:] == keys[:-1]
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(keys)))) if len(keys) else order
    return places[first[same]], places[same]


def similarity(signed: Any, firsts: Any, others: Any) -> Any:
    """Estimate the similarity of each pair of rows from their signatures."""
    parts = [
        (signed[firsts[at : at + 50_000]] == signed[others[at : at + 50_000]]).mean(axis=1)
        for at in range(0, len(firsts), 50_000)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
