"""Two conversations turn by turn: which messages are next to each other, and which of their words differ."""

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
"""Words of a message up to which it is compared; the time for longer ones would be noticeable."""
LEAST = 0.3
"""Share of equal words from which on differences are marked: two unrelated texts differ everywhere."""
_SPACE = re.compile(r"(\s+)")


class Turn(NamedTuple):
    """The messages of one turn, one per side, and their texts with the words marked that the other side does not have."""

    messages: tuple[ShownMessage | None, ShownMessage | None]
    """None where a side has ended."""
    texts: tuple[Markup, Markup]


def align(
    left: Sequence[ShownMessage], right: Sequence[ShownMessage], render: Callable[[ShownMessage], Markup]
) -> list[Turn]:
    """The messages of both sides by turn: the first next to the first, the second next to the second."""
    turns: list[Turn] = []
    for pair in zip_longest(left, right):
        texts = [Markup("") if one is None else render(one) for one in pair]
        turns.append(Turn(pair, mark_changes(texts[0], texts[1])))
    return turns


def mark_changes(left: str, right: str) -> tuple[Markup, Markup]:
    """Two HTML texts, with a span around the words of each that the other does not have."""
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
    """The pieces put together again; words whose number is not in `kept` are in spans, neighbors in one."""
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
    """A changed text; the space after it is not underlined."""
    words = text.rstrip()
    return f'<span class="changed">{words}</span>{text[len(words) :]}' if words else text
