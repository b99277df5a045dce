"""The parts of a report. One function builds a report's blocks; `markdown` and `html` render them.

The one decision to know: every string in a block is plain text that may come from a model. The renderers escape all of
it, so a report cannot contain markup of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, LiteralString

import msgspec

from camel.core.toml import read_table
from camel.reports.intervals import Rate
from camel.reports.numbers import FEW, interval, share
from camel.reports.plots import Plot

Style = Literal[
    "strong", "em", "mono", "mark", "muted", "interval", "source", "sentence", "good", "bad", "user", "assistant",
    "a", "b", "drawn", "letter-a", "letter-b",
]  # fmt: skip
"""Styles of text. `a`, `b` and `drawn` color a verdict by the winning side. A letter is the sign of a side."""

TEXTS: dict[str, dict[str, str]] = read_table(Path(__file__).with_name("texts.toml"))
"""The longer texts of reports, by kind of report and name."""
_STYLES: dict[str, Style] = {"**": "strong", "*": "em", "`": "mono"}


class Span(msgspec.Struct, frozen=True):
    """Text with a style, or a link to a `Details` of the same report.

    With the id of a conversation it becomes a link where the explorer serves the report.
    """

    text: str
    style: Style | None = None
    to: str = ""
    conversation: str = ""


A, B = Span("A", "letter-a"), Span("B", "letter-b")
Inline = str | Span | Sequence[str | Span]
"""A line of text, in one or several styles."""


class OutcomeBar(msgspec.Struct, frozen=True):
    """A table cell with a bar: the shares that A won, drew and lost. Markdown tables omit columns of bars."""

    won: float
    drawn: float
    lost: float


class Shade(msgspec.Struct, frozen=True):
    """A shaded table cell. The larger the absolute `value` (a share or a difference, from -1 to 1), the darker the shade."""

    text: str
    value: float = 0.0
    sure: bool = False
    note: str = ""


Cell = Inline | OutcomeBar | Shade


class Muted(msgspec.Struct, frozen=True):
    """A table row that is shown with less emphasis than the others."""

    cells: Sequence[Cell]


class RowGroup(msgspec.Struct, frozen=True):
    """A table row with only a title, for the rows below it."""

    title: Inline


class Heading(msgspec.Struct, frozen=True):
    """The title of the blocks that follow."""

    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph. With the kind `reason` it belongs to the quote before it, with `context` to the quote after it."""

    line: Inline
    kind: Literal["", "reason", "context"] = ""


class Note(msgspec.Struct, frozen=True):
    """A condition, definition or caveat of the block before it, which a page shows in its margin."""

    line: Inline


class Points(msgspec.Struct, frozen=True):
    """A list of sentences."""

    lines: Sequence[Inline]


class Grid(msgspec.Struct, frozen=True):
    """A table, numbered if it has a title. Columns after the first `left` contain numbers. If `wide`, lines break in cells."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell] | Muted | RowGroup]
    left: int = 1
    wide: bool = False
    title: str = ""


class Picture(msgspec.Struct, frozen=True):
    """A place for the plot with this name. It is omitted if the report has no such plot."""

    name: str


class Quote(msgspec.Struct, frozen=True):
    """Text of a model or a person, unchanged, below a line that names the author."""

    head: Inline
    said: Inline
    context: str = ""
    reason: str = ""
    mono: bool = False


class Columns(msgspec.Struct, frozen=True):
    """Quotes that are shown next to each other."""

    quotes: Sequence[Quote]


class Code(msgspec.Struct, frozen=True):
    """A text in a monospaced font."""

    text: str
    language: str = "text"


class Details(msgspec.Struct, frozen=True):
    """Blocks that a page shows folded below a title."""

    title: str
    blocks: Sequence[Block]
    note: Inline = ""
    open: bool = False
    name: str = ""
    """Name of the block, for links to it."""


Block = Heading | Paragraph | Note | Points | Grid | Picture | Quote | Columns | Code | Details


Facts = Mapping[str | Span, Inline]
"""Lines in the margin next to the headline, such as the judges, the number of tasks or the cost. Empty ones are omitted."""
Sections = Mapping[str, Sequence[Block]]
"""Groups of blocks by their names in the page's navigation. A section with nothing to show is omitted."""


class Report(msgspec.Struct, frozen=True):
    """A report."""

    kind: str
    """The kind of report, such as "Study"."""
    headline: str
    """The finding, in one sentence without a full stop."""
    lede: Inline
    """What was done, in two or three sentences."""
    facts: Facts
    sections: Sections
    plots: Sequence[Plot] = ()
    """All plots of the report. A page shows those that a `Picture` names."""
    run: str = ""
    """Name of the run. Empty if the report is about several runs or none."""
    warning: Inline = ""

    def __post_init__(self) -> None:
        from camel.models.local import ALIAS

        if ALIAS in str(self.facts):
            given: Any = [self.warning] if isinstance(self.warning, str | Span) else self.warning
            note = TEXTS["small_model"]["warning"]
            msgspec.structs.force_setattr(self, "warning", [*given, " ", note] if self.warning else note)


def settings_block(config: Any) -> Details:
    """Return a folded block with the configuration that reproduces the figures."""
    return Details(
        "Configuration", [Code(msgspec.json.format(msgspec.json.encode(config), indent=2).decode(), "json")]
    )


def share_cell(rate: Rate) -> Inline:
    """Return a share with its interval as a table cell. For few items, return the count and the total."""
    return (
        [f"{share(rate)} ", Span(interval(rate), "interval")]
        if rate.of >= FEW
        else share(rate)
        if rate.of
        else "–"
    )


def styled(template: LiteralString, *values: object) -> list[Span]:
    """Parse styles in a fixed text (`**strong**`, `*em*`, `` `mono` ``), and replace each `{}` by a value as plain text."""
    rest, spans = iter(values), list[Span]()
    for mark, marked, plain in re.findall(r"(\*\*|\*|`)(.+?)\1|([^*`]+)", template):
        text = re.sub(r"\{\}", lambda _: str(next(rest)), marked or plain)
        spans.append(Span(text, _STYLES.get(mark)))
    return spans


def joined(spans: Iterable[Span]) -> list[str | Span]:
    """Join spans with commas."""
    return [part for span in spans for part in (", ", span)][1:]


def spans_of(line: Inline) -> list[Span]:
    """Return a line as a list of spans."""
    parts = (line,) if isinstance(line, str | Span) else line
    return [part if isinstance(part, Span) else Span(part) for part in parts]


def plain(line: Inline) -> str:
    """Return a line as text without styles. Intervals are in parentheses."""
    return "".join(
        f"({one.text})" if one.style == "interval" and one.text else one.text for one in spans_of(line)
    )


def plain_table(table: Grid) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the rows of a table as text, for a terminal. Columns of bars are omitted."""
    rows = [row.cells if isinstance(row, Muted) else row for row in table.rows]
    cells = [row for row in rows if not isinstance(row, RowGroup)]
    shown = [
        place
        for place in range(len(table.head))
        if not any(isinstance(row[place], OutcomeBar) for row in cells)
    ]

    def texts(row: Sequence[Cell] | RowGroup) -> tuple[str, ...]:
        if isinstance(row, RowGroup):
            return (plain(row.title), *[""] * (len(shown) - 1))
        return tuple(_cell_text(row[place]) for place in shown)

    return tuple(table.head[place] for place in shown), [texts(row) for row in rows]


def _cell_text(cell: Cell) -> str:
    match cell:
        case OutcomeBar():
            return ""
        case Shade(text, _, sure, note):
            return f"{text}{' ●' if sure else ''}{f' ({note})' if note else ''}"
        case _:
            return plain(cell)
