"""What commands print: lines, tables and JSON.

Text of models is untrusted: control characters, which can move the cursor, set the title or fake a prompt, are replaced
before anything is printed, and text is never parsed as markup.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Replace control characters, which could change the terminal."""
    return _CONTROL.sub("\N{SYMBOL FOR SUBSTITUTE}", text)


def echo(text: str, style: str = "", console: Console | None = None) -> None:
    """Print a line without markup, control characters and wrapping."""
    from rich.console import Console
    from rich.text import Text

    (console or Console(highlight=False)).print(Text(visible(text), style), soft_wrap=True)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]], right: Container[int] = ()) -> None:
    """Print a table: with borders on a terminal if it fits, else as plain columns that are never cut. Columns in `right` are
    aligned to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    if console.is_terminal and sum(widths) + 3 * len(widths) + 1 <= console.width:
        drawn = Table()
        for number, name in enumerate(head):
            drawn.add_column(name, justify="right" if number in right else "left", no_wrap=True)
        for row in rows:
            drawn.add_row(*(Text(visible(cell)) for cell in row))
        console.print(drawn)
        return
    for row in (head, *rows):
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        echo("  ".join(cells).rstrip())


def escaped(data: bytes) -> str:
    """Return JSON as text whose control characters are escaped, which leaves its value the same. Line breaks remain."""
    import json

    return _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], data.decode())


def print_json(value: Any) -> None:
    """Print a value as JSON in one line."""
    import msgspec

    typer.echo(escaped(msgspec.json.encode(value)))
