"""Wraps text between words while it arrives in pieces; a terminal alone breaks lines inside words.

A word is buffered until its end is known. Wide characters (Chinese, emoji) are words of their own, because there is no
space between them. The terminal wraps words that are longer than a line.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\U0001f300-\U0003fffd"
_PIECE = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")


class LineWrapper:
    """Wraps the lines of one streamed message. `feed` takes each piece, `flush` ends it, and both return the text to print."""

    def __init__(self, width: int) -> None:
        self._width, self._column = width, 0
        self._space = self._buffer = ""

    def feed(self, text: str) -> str:
        """Add text, and return what can be printed now."""
        pieces = _PIECE.findall(self._buffer + text.expandtabs(4))
        self._buffer = ""
        if pieces and not pieces[-1].isspace() and cell_len(pieces[-1]) < self._width:
            self._buffer = pieces.pop()
        return "".join(map(self._place, pieces))

    def flush(self) -> str:
        """Return the buffered rest of the message."""
        rest, self._buffer = self._buffer, ""
        return self._place(rest) if rest else ""

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
