"""How rows overlap: with one another, and with questions that a model will be tested on.

Words are runs of letters, digits and underscores, whatever their case and whatever stands between them; where a script has no
spaces (Chinese, Japanese, Thai), each character is one. A row is known by the hashes of its words and of their n-grams.

The one decision to know: everything is counted over bytes, with sums that wrap around. The hash of any stretch is the
difference of two running sums, so that n-grams of any length cost the same three passes, and no word becomes a string.
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
"""Words of the shingles by which two rows are compared."""
BINS = 128
"""Values of a signature."""
BANDS = 16
"""Bands of it; rows that agree in one of them are looked at: half of those with a similarity of 0.7, nearly all at 0.8."""
PHRASE, OUTLINE = 5, 10
"""Words of what a question and a row must share: as they stand, and of code without its names."""
SHARE_OF_PHRASES, SHARE_OF_OUTLINE = 0.25, 0.6
"""Shares of a text's own n-grams from which a row holds it."""
KNOWN_IN_OUTLINE = 4
"""Words of an outline's n-gram that must be no names: ten names in a row are in every text there is."""
FEWEST = 6
"""N-grams without which a text says too little to be found again."""
_CHUNK = 2**17
"""Bytes that are hashed at a time: what the cache of a processor holds eightfold. No row is looked at beyond it."""
_BASE, _STEP = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_MIX = 0xFF51AFD7ED558CCD
_PLACES = 2**20
_NAME = 1
"""What stands for any name in an outline."""
_KNOWN = f"""{" ".join(keyword.kwlist)} {" ".join(map(str, range(11)))}
len range int str float list dict set tuple sum min max sorted enumerate zip map filter all any abs append split join
ord chr round reversed lower upper isalpha isdigit replace strip count index pop sort reverse"""
"""Words of code that are no names."""


class Words(NamedTuple):
    """The words of some texts, one after the other."""

    hashes: Any
    of: Any
    """Which text each is in."""


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


def _mixed(hashes: Any) -> Any:
    hashes = hashes ^ (hashes >> np.uint64(31))
    hashes = hashes * np.uint64(_MIX)
    return hashes ^ (hashes >> np.uint64(29))


def words(data: Any, ends: Any, breaks: Any = None) -> Words:
    """The words of the texts that lie in `data` (bytes) up to each of `ends`; at most `_CHUNK` bytes.

    No word goes over one of `breaks`, where messages end.
    """
    codes, masks, *_ = _tables()
    letters = np.zeros(len(data) + 8, np.uint8)
    np.take(codes, data, out=letters[: len(data)])
    inside = letters[: len(data)].astype(bool)
    edges = np.empty(len(data) + 1, bool)
    edges[0], edges[-1] = inside[:1].any(), inside[-1:].any()
    np.not_equal(inside[1:], inside[:-1], out=edges[1:-1])
    places = np.flatnonzero(edges)
    # A word ends with its text, even where no space follows.
    inner = np.unique(np.concatenate([ends if breaks is None else breaks, _alone(data)]))
    inner = inner[(inner > 0) & (inner < len(data))]
    cut = inner[inside[inner] & inside[inner - 1]]
    if len(cut):
        places = np.sort(np.concatenate([places, cut, cut]))
    starts, stops = places[0::2], places[1::2]
    sizes = stops - starts
    # Eight bytes from any place on; a word is its first eight, its last eight and its length.
    eight = np.ndarray(len(data) + 1, "<u8", letters, strides=(1,))
    hashes = eight[starts] & masks[np.minimum(sizes, 8)]
    last = np.where(sizes > 8, eight[np.maximum(stops - 8, 0)], np.uint64(0))
    hashes = _mixed(hashes * np.uint64(_BASE) + _mixed(last + sizes.astype(np.uint64)))
    until = np.searchsorted(starts, ends)
    return Words(hashes, np.repeat(np.arange(len(ends)), np.diff(until, prepend=0)))


def _alone(data: Any) -> Any:
    """Where the characters of scripts without spaces begin and end: kana and Han, whose UTF-8 begins with E3 to E9, and Thai
    with Lao, with E0 B8 to E0 BB."""
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
    """The n-grams of words, within their texts."""
    _, _, more, less = _tables()
    count = len(found.hashes) - size + 1
    if count <= 0:
        return Words(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    sums = np.zeros(len(found.hashes) + 1, np.uint64)
    np.cumsum(found.hashes * more[: len(found.hashes)], dtype=np.uint64, out=sums[1:])
    hashes = _mixed((sums[size:] - sums[:-size]) * less[:count])
    whole = found.of[:count] == found.of[size - 1 :]
    return Words(hashes[whole], found.of[:count][whole])


@cache
def _known_words() -> Any:
    """The known words, each at the place that its hash says."""
    known = np.unique(_words_of(_KNOWN).hashes)
    table = np.zeros(_PLACES, np.uint64)
    table[known & np.uint64(_PLACES - 1)] = known  # of two for one place one would be a name
    return table


def _words_of(text: str) -> Words:
    data = np.frombuffer(text.encode()[:_CHUNK], np.uint8)
    return words(data, np.array([len(data)]))


def outline(found: Words) -> Words:
    """The same words with every name the same: what is left of code when its variables are called otherwise."""
    known = np.take(_known_words(), found.hashes & np.uint64(_PLACES - 1))
    return Words(np.where(known == found.hashes, known, np.uint64(_NAME)), found.of)


def _telling(found: Words) -> Words:
    """The n-grams of one text's outline that say something."""
    all_of_it = grams(found, OUTLINE)
    sums = np.concatenate([[0], np.cumsum(found.hashes != _NAME)])
    enough = (sums[OUTLINE:] - sums[:-OUTLINE] >= KNOWN_IN_OUTLINE)[: len(all_of_it.hashes)]
    return Words(all_of_it.hashes[enough], all_of_it.of[enough])


class Piece(NamedTuple):
    """Some rows of a table, as bytes."""

    first: int
    """The first of them."""
    data: Any
    ends: Any
    """Where each row ends."""
    breaks: Any
    """Where each message ends."""

    def words(self) -> Words:
        """Their words."""
        return words(self.data, self.ends, self.breaks)


def pieces_of(rows: Table) -> Iterator[Piece]:
    """All that the messages of a table's rows say, a piece at a time."""
    data, ends, breaks = bytes_of(rows)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
        stop = min(int(ends[last - 1]), before + _CHUNK)
        within = breaks[np.searchsorted(breaks, before) : np.searchsorted(breaks, stop, side="right")]
        yield Piece(first, data[before:stop], np.minimum(ends[first:last], stop) - before, within - before)
        first = last


def bytes_of(rows: Table) -> tuple[Any, Any, Any]:
    """What the messages of rows say, as bytes without a gap; where each row ends in it, and where each message."""
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
    """A hash of each row's words as they stand, for exact duplicates."""
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
    """MinHash signatures of rows, `BINS` 16-bit values each: one permutation, its range in bins, empty ones filled from the next."""
    found = np.full((rows.num_rows, BINS), np.iinfo(np.uint64).max, np.uint64)
    shift = np.uint64(64 - (BINS.bit_length() - 1))
    for piece in pieces_of(rows):
        said = piece.words()
        shingles = grams(said, SHINGLE)
        # What is shorter than a shingle has its words instead.
        short = np.ones(len(piece.ends), bool)
        short[shingles.of] = False
        few = short[said.of]
        hashes = np.concatenate([shingles.hashes, said.hashes[few]])
        of = np.concatenate([shingles.of, said.of[few]])
        places = (of + piece.first) * BINS + (hashes >> shift).astype(np.int64)
        np.minimum.at(found.reshape(-1), places, hashes)
    empty = found == np.iinfo(np.uint64).max
    empty[empty.all(axis=1)] = False  # a row without a word has nothing to fill them from
    while empty.any():
        following = np.roll(found, -1, axis=1) + np.uint64(0x1F3)
        found = np.where(empty & ~np.roll(empty, -1, axis=1), following, found)
        empty &= np.roll(empty, -1, axis=1)
    return (_mixed(found) & np.uint64(0xFFFF)).astype(np.uint16)


def bands(signed: Any) -> Any:
    """The keys of each row's bands: rows that share one may be near duplicates."""
    wide = signed.reshape(len(signed), BANDS, BINS // BANDS).astype(np.uint64)
    powers = _powers(_STEP, BINS // BANDS)
    keys = _mixed((wide * powers).sum(axis=2, dtype=np.uint64))
    return keys ^ _mixed(np.arange(BANDS, dtype=np.uint64) + np.uint64(1))


# ---------------------------------------------------------------- contamination


class ExamQuestion(NamedTuple):
    """Something a model will be tested on; its parts are looked for one by one."""

    name: str
    texts: tuple[str, ...]
    code: tuple[str, ...] = ()
    """Parts that are code, found also where its names have changed."""


class ExamQuestions:
    """Questions, by the n-grams of their words."""

    def __init__(self, questions: Iterable[ExamQuestion]) -> None:
        self.names: list[str] = []
        self._phrases, self._outlines = _Index(), _Index()
        for number, question in enumerate(questions):
            self.names.append(question.name)
            for text in question.texts + question.code:
                self._phrases.add(number, grams(_words_of(text), PHRASE), SHARE_OF_PHRASES)
            for text in question.code:
                self._outlines.add(number, _telling(outline(_words_of(text))), SHARE_OF_OUTLINE)
        self._phrases.close()
        self._outlines.close()

    def found_in(self, rows: Table) -> dict[int, int]:
        """The rows that hold a question, by their places, and which."""
        hits: dict[int, int] = {}
        for piece in pieces_of(rows):
            said = piece.words()
            for index, present in (
                (self._phrases, grams(said, PHRASE)),
                (self._outlines, grams(outline(said), OUTLINE)),
            ):
                for row, question in index.found(present):
                    hits.setdefault(piece.first + row, question)
        return hits


class _Index:
    """N-grams of texts, sorted, with the texts they belong to."""

    def __init__(self) -> None:
        self._hashes: list[Any] = []
        self._texts: list[Any] = []
        self._questions: list[int] = []
        self._needed: list[int] = []

    def add(self, question: int, own: Words, share: float) -> None:
        different = np.unique(own.hashes)
        if len(different) < FEWEST:
            return
        self._hashes.append(different)
        self._texts.append(np.full(len(different), len(self._questions)))
        self._questions.append(question)
        self._needed.append(max(FEWEST - 1, int(np.ceil(share * len(different)))))

    def close(self) -> None:
        hashes = np.concatenate(self._hashes) if self._hashes else np.zeros(0, np.uint64)
        texts = np.concatenate(self._texts) if self._texts else np.zeros(0, np.int64)
        order = np.argsort(hashes, kind="stable")
        self._sorted, self._owner = hashes[order], texts[order]
        self._may = np.zeros(_PLACES, bool)
        self._may[hashes & np.uint64(_PLACES - 1)] = True

    def found(self, present: Words) -> Iterator[tuple[int, int]]:
        """Texts of which enough is present in one row."""
        if not len(self._sorted) or not len(present.hashes):
            return
        hit = np.flatnonzero(np.take(self._may, present.hashes & np.uint64(_PLACES - 1)))
        low = np.searchsorted(self._sorted, present.hashes[hit])
        hit = hit[self._sorted[np.minimum(low, len(self._sorted) - 1)] == present.hashes[hit]]
        if not len(hit):
            return
        # Rare from here on: each n-gram of a row once, for every text that has it.
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
    """The rows that share a hash with an earlier one, each beside the first of them."""
    order = np.lexsort((places, keys))
    keys, places = keys[order], places[order]
    same = np.zeros(len(keys), bool)
    same[1:] = keys[1:] == keys[:-1]
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(keys)))) if len(keys) else order
    return places[first[same]], places[same]


def similarity(signed: Any, firsts: Any, others: Any) -> Any:
    """How similar rows are, pair by pair, by their signatures."""
    parts = [
        (signed[firsts[at : at + 50_000]] == signed[others[at : at + 50_000]]).mean(axis=1)
        for at in range(0, len(firsts), 50_000)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
