"""Renders reports as Markdown. Model text is escaped or fenced, so that it cannot become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from camel.core.message import in_one_line
from camel.reports import blocks as kinds
from camel.reports.blocks import Block, Inline, Report, plain, plain_table, spans_of
from camel.reports.plots import Plot

_MARKS = {"strong": "**{}**", "em": "*{}*", "mark": "**{}**", "interval": "({})"}


def render_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    about = f"{report.kind} of {report.run}." if report.run else f"{report.kind}."
    lines = [f"# {line_of(report.headline)}", "", paragraph([f"{about} ", *spans_of(report.lede)]), ""]
    lines += [paragraph(report.warning), ""] if report.warning else []
    facts = [(name, value) for name, value in report.facts.items() if value]
    lines += [f"- {line_of([*spans_of(name), ': ', *spans_of(value)])}" for name, value in facts]
    plots = {plot.name: plot for plot in report.plots}
    blocks = [block for section in report.sections.values() for block in section]
    return "\n".join([*lines, "", *_rendered(blocks, plots)])


def line_of(line: Inline) -> str:
    """Render a line as Markdown, with all markup in its text escaped."""
    parts: list[str] = []
    for span in spans_of(line):
        escaped = re.sub(r"([\\`*_{}\[\]<>|#!~&])", r"\\\1", span.text)
        parts.append(_MARKS.get(span.style or "", "{}").format(escaped) if escaped.strip() else escaped)
    return in_one_line("".join(parts))


def paragraph(line: Inline) -> str:
    """Render a line so that Markdown does not read it as a list item or a heading."""
    return re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", line_of(line))


def fenced(value: str, kind: str = "text") -> list[str]:
    """Return the lines of a fenced code block with this text."""
    longest = max((len(run) for run in re.findall(r"`+", value)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{kind}", *value.splitlines(), fence]


def _rendered(blocks: Iterable[Block], plots: Mapping[str, Plot]) -> Iterator[str]:
    for block in blocks:
        lines = list(_block(block, plots))
        yield from [*lines, ""] if lines else []


def _block(block: Block, plots: Mapping[str, Plot]) -> Iterable[str]:
    match block:
        case kinds.Heading(text):
            return [f"## {line_of(text)}"]
        case kinds.Paragraph(line, kind):
            return fenced(plain(line)) if kind == "context" else [paragraph(line)]
        case kinds.Note(line):
            return [paragraph(line)]
        case kinds.Points(lines):
            return [f"- {paragraph(line)}" for line in lines]
        case kinds.Grid():
            return _table(block)
        case kinds.Picture(name):
            if (plot := plots.get(name)) is None:
                return []
            title = line_of(plot.title)
            return [f"## {title}", "", f"![{title}](plots/{name}.svg)", "", paragraph(plot.caption)]
        case kinds.Quote(head, said, context, reason):
            before = [*fenced(context), ""] if context else []
            after = ["", paragraph(reason)] if reason else []
            return [paragraph(_spaced(head)), "", *before, *fenced(plain(said)), *after]
        case kinds.Columns(quotes):
            return list(_rendered(quotes, plots))[:-1]
        case kinds.Code(text, language):
            return fenced(text, language)
        case kinds.Details(title, inner, note):
            name = f"### {line_of(title)}{f': {line_of(_spaced(note))}' if note else ''}"
            return [name, "", *list(_rendered(inner, plots))[:-1]]


def _spaced(line: Inline) -> Inline:
    """Put commas between the parts of a line, which a page separates by space."""
    first, *others = spans_of(line)
    return [first, *(part for span in others for part in (", ", span))]


def _table(table: kinds.Grid) -> Iterator[str]:
    head, rows = plain_table(table)
    left = table.left - len(table.head) + len(head)  # without columns of bars, which are on the left
    if table.title:
        yield from (f"## {line_of(table.title)}", "")
    yield f"| {' | '.join(map(line_of, head))} |"
    yield f"|{'|'.join('---' if place < left else '---:' for place in range(len(head)))}|"
    yield from (f"| {' | '.join(map(line_of, row))} |" for row in rows)
