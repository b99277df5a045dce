"""Lines are wrapped between words and nothing is lost, however the text is split into pieces."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from camel.cli.screen import LineWrapper

TEXT = st.text(st.sampled_from("ab cd,. \n\té各位🐫x"), max_size=120)


@given(TEXT, st.lists(st.integers(0, 120), max_size=6), st.integers(4, 40))
def test_nothing_is_lost_and_nothing_passes_the_edge(text: str, cuts: list[int], width: int):
    wrapper, pieces = LineWrapper(width), [0, *sorted(cuts), len(text)]
    out = "".join(wrapper.feed(text[a:b]) for a, b in pairwise(pieces)) + wrapper.flush()
    assert re.sub(r"\s", "", out) == re.sub(r"\s", "", text)
    # Words are neither split nor joined.
    assert [w for w in out.split() if w.isascii()] == [w for w in out.split() if w.isascii() and w in text]
    for line in out.split("\n"):
        column = 0
        for piece in re.findall(r"\s+|\S+", line):
            cells = cell_len(piece)
            # Indented text at the start of a line stays there.
            if (
                piece.isascii()
                and not piece.isspace()
                and cells <= width
                and not line[: line.index(piece)].isspace()
            ):
                # A terminal continues in the next row at its edge.
                assert column % width + cells <= width, (line, piece)
            column += cells


def test_words_wait_for_their_end():
    wrapper = LineWrapper(11)
    assert [wrapper.feed(text) for text in ("Hello wo", "rld", "!\n    x", " = 1")] == [
        "Hello",
        "",
        "\nworld!\n",
        "    x =",
    ]
    assert wrapper.flush() == " 1"
