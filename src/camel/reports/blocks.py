"""The parts of a report. One function builds a report's blocks; `markdown` and `html` render them.

The one decision to know: every string in a block is plain text that may come from a model. The renderers escape all of
it, so a report cannot contain markup of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString

import msgspec

from camel.reports.intervals import Rate
from camel.reports.numbers import FEW, interval, share
from camel.reports.plots import Plot

Style = Literal[
    "strong", "em", "mono", "mark", "muted", "interval", "source", "sentence", "good", "bad", "user", "assistant",
    "a", "b", "drawn", "letter-a", "letter-b",
]  # fmt: skip
"""`a`, `b` and `drawn` are verdicts in the colors of the sides; a letter is the sign of a side."""

_STYLES: dict[str, Style] = {"**": "strong", "*": "em", "`": "mono"}


@dataclass(frozen=True)
class Span:
    """Text with a style, or a link to a `Details` of the same report.

    With the id of a conversation it becomes a link where the explorer serves the report.
    """

    text: str
    style: Style | None = None
    to: str = ""
    conversation: str = ""


A, B = Span("A", "letter-a"), Span("B", "letter-b")
Inline = str | Span | Sequence[str | Span]
"""A line of text, or one in several styles."""


@dataclass(frozen=True)
class OutcomeBar:
    """A cell: shares won, drawn and lost by A as one bar. Markdown has no such column."""

    won: float
    drawn: float
    lost: float


@dataclass(frozen=True)
class Shade:
    """A cell with a shade: the larger a share or a difference between -1 and 1 is, the darker."""

    text: str
    value: float = 0.0
    sure: bool = False
    note: str = ""


Cell = Inline | OutcomeBar | Shade


@dataclass(frozen=True)
class Muted:
    """A row of a table that needs less attention than the others."""

    cells: Sequence[Cell]


@dataclass(frozen=True)
class RowGroup:
    """A row with one text: the title of the rows below it."""

    title: Inline


@dataclass(frozen=True)
class Heading:
    """The title of the blocks that follow."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph. A `reason` belongs to the quote before it, a `context` to the quote after it."""

    line: Inline
    kind: Literal["", "reason", "context"] = ""


@dataclass(frozen=True)
class Note:
    """A condition, definition or caveat of the block before it, which a page shows in its margin."""

    line: Inline


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    lines: Sequence[Inline]


@dataclass(frozen=True)
class Grid:
    """A table, numbered if it has a title. Columns after the first `left` are numbers; a `wide` one breaks lines in its cells."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell] | Muted | RowGroup]
    left: int = 1
    wide: bool = False
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """A plot of the report, by name; omitted if the report has no plot with that name."""

    name: str


@dataclass(frozen=True)
class Quote:
    """Text of a model or a person, unchanged, below a line that names the author."""

    head: Inline
    said: Inline
    context: str = ""
    reason: str = ""
    mono: bool = False


@dataclass(frozen=True)
class Columns:
    """Quotes next to each other."""

    quotes: Sequence[Quote]


@dataclass(frozen=True)
class Code:
    """A text in a fixed font."""

    text: str
    language: str = "text"


@dataclass(frozen=True)
class Details:
    """Blocks that a page folds."""

    title: str
    blocks: Sequence[Block]
    note: Inline = ""
    open: bool = False
    name: str = ""
    """For links to it."""


Block = Heading | Paragraph | Note | Points | Grid | Picture | Quote | Columns | Code | Details


@dataclass(frozen=True)
class Fact:
    """A line in the margin next to the headline, such as the judges, the number of tasks or the cost."""

    name: Inline
    value: Inline


@dataclass(frozen=True)
class Section:
    """Blocks with a name in the page's navigation; omitted if there is nothing to show."""

    name: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Report:
    """A report."""

    kind: str
    """What kind of report it is, such as "Study"."""
    headline: str
    """The finding, in one sentence without a full stop."""
    lede: Inline
    """What was done, in two or three sentences."""
    facts: Sequence[Fact]
    sections: Sequence[Section]
    plots: Sequence[Plot] = ()
    """All plots; a page shows those that a `Picture` names."""
    run: str = ""
    """The name of its run; empty if the report is about several runs or none."""
    warning: Inline = ""


def settings_block(config: Any) -> Details:
    """Return a block with the configuration that reproduces the figures."""
    return Details(
        "Configuration", [Code(msgspec.json.format(msgspec.json.encode(config), indent=2).decode(), "json")]
    )


def share_cell(rate: Rate) -> Inline:
    """Return a share with its interval; for few items, the count and the total."""
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
    """Return the spans with commas between them."""
    return [part for span in spans for part in (", ", span)][1:]


def spans_of(line: Inline) -> list[Span]:
    """A line as spans."""
    parts = (line,) if isinstance(line, str | Span) else line
    return [part if isinstance(part, Span) else Span(part) for part in parts]


def plain(line: Inline) -> str:
    """A line as text without styles; intervals are in brackets."""
    return "".join(
        f"({one.text})" if one.style == "interval" and one.text else one.text for one in spans_of(line)
    )


def plain_table(table: Grid) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The head and the rows of a table as text, for a terminal, without columns of bars."""
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
