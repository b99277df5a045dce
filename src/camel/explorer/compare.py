"""Compares two conversations turn by turn, and marks the words that differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import NamedTuple

from markupsafe import Markup

from camel.explorer.markup import HTML_TAG
from camel.explorer.reading import ShownMessage

MOST_WORDS = 1_000
"""Maximum length of a compared message, in words. Comparing longer messages would take too long."""
LEAST = 0.3
"""Minimum share of equal words for which differences are marked, because unrelated texts differ everywhere."""
_SPACE = re.compile(r"(\s+)")


class AlignedTurn(NamedTuple):
    """The messages of one turn, one per side. In the texts, words that the other side does not have are marked."""

    messages: tuple[ShownMessage | None, ShownMessage | None]
    """The message of each side. None for a side whose conversation has ended."""
    texts: tuple[Markup, Markup]


def align(
    left: Sequence[ShownMessage], right: Sequence[ShownMessage], render: Callable[[ShownMessage], Markup]
) -> list[AlignedTurn]:
    """Pair the messages of both sides by position: the first with the first, the second with the second."""
    turns: list[AlignedTurn] = []
    for pair in zip_longest(left, right):
        texts = [Markup("") if one is None else render(one) for one in pair]
        turns.append(AlignedTurn(pair, mark_changes(texts[0], texts[1])))
    return turns


def mark_changes(left: str, right: str) -> tuple[Markup, Markup]:
    """Put a span around the words of each HTML text that the other text does not contain."""
    sides = [HTML_TAG.split(text) for text in (left, right)]  # every second piece is a tag or a formula
    words = [[word for text in side[::2] for word in text.split()] for side in sides]
    found = SequenceMatcher(None, words[0], words[1])
    if not 0 < max(map(len, words)) <= MOST_WORDS or words[0] == words[1] or found.ratio() < LEAST:
        return Markup(left), Markup(right)  # noqa: S704 - both are HTML already
    same = found.get_matching_blocks()
    kept_left = {one.a + n for one in same for n in range(one.size)}
    kept_right = {one.b + n for one in same for n in range(one.size)}
    return _with_spans(sides[0], kept_left), _with_spans(sides[1], kept_right)


def _with_spans(pieces: list[str], kept: set[int]) -> Markup:
    """Join the pieces. Words whose index is not in `kept` get a span, and consecutive words share one."""
    number = 0
    for place in range(0, len(pieces), 2):
        parts: list[tuple[bool, str]] = []
        for part in _SPACE.split(pieces[place]):
            is_word = bool(part.strip())
            changed = number not in kept if is_word else bool(parts) and parts[-1][0]
            parts.append((changed, part))
            number += is_word
        runs = [(one, "".join(text for _, text in some)) for one, some in groupby(parts, itemgetter(0))]
        pieces[place] = "".join(_span(text) if changed else text for changed, text in runs)
    return Markup("".join(pieces))  # noqa: S704 - the words of HTML in spans of ours


def _span(text: str) -> str:
    """Put a span around a changed text, but not around the space after it."""
    words = text.rstrip()
    return f'<span class="changed">{words}</span>{text[len(words) :]}' if words else text
