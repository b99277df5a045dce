"""Breaks text between words while it arrives in pieces: a terminal alone breaks wherever its edge is.

A word is held back until its end is known. Wide characters (Chinese, emoji) are words of their own, as there is no space
between them; a word longer than a line is left to the terminal.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\U0001f300-\U0003fffd"
_PIECE = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")


class Wrapping:
    """The state of one message: `feed` pieces, `flush` at its end; both return what is to be printed."""

    def __init__(self, width: int) -> None:
        self._width, self._column = width, 0
        self._space = self._held = ""

    def feed(self, text: str) -> str:
        """What can be printed now."""
        pieces = _PIECE.findall(self._held + text.expandtabs(4))
        self._held = ""
        if pieces and not pieces[-1].isspace() and cell_len(pieces[-1]) < self._width:
            self._held = pieces.pop()
        return "".join(map(self._place, pieces))

    def flush(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return self._place(held) if held else ""

    def _place(self, piece: str) -> str:
        if piece == "\n":
            self._column, self._space = 0, ""
            return piece
        if piece.isspace():
            self._space += piece
            return ""
        space, self._space = self._space, ""
        needed = cell_len(space) + cell_len(piece)
        if self._column and self._column + needed > self._width:
            self._column = cell_len(piece) % self._width
            return f"\n{piece}"
        self._column = (self._column + needed - 1) % self._width + 1
        return space + piece
