"""Reports as HTML pages: a frame with no script and no request, light and dark.

The one decision to know: everything that is not ours (model text, roles, names of runs) goes through `text`, which
escapes it and takes out what a browser must not see; the policy in the page's head forbids everything else.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from camel._version import __version__
from camel.reports import blocks as kinds
from camel.reports.blocks import Block, Cell, Inline, Report, Span, spans_of
from camel.reports.numbers import percent

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_TAGS = {"strong": "strong", "em": "em", "mark": "mark"}
_CLASSES = {"good": "verdict yes", "bad": "verdict no", "user": "seat user", "source": "mono muted"}


def render_html(report: Report, pictures: Mapping[str, str]) -> str:
    """The whole page; `pictures` has the SVG of each plot by its name."""
    style = (Path(__file__).parent / "page.css").read_text("utf-8")
    title = f"{report.title} of {report.subject}" if report.subject else report.title
    figures = {
        plot.name: f"<figure><h2>{text(plot.title)}</h2><figcaption>{text(plot.caption)}</figcaption>"
        f'<div class="plot" role="img" aria-label="{text(plot.title)}">{pictures[plot.name]}</div></figure>'
        for plot in report.plots
    }
    sections = {one.name: body for one in report.sections if (body := _blocks(one.blocks, figures))}
    links = "".join(f'<a href="#{name.lower()}">{name}</a>' for name in sections)
    bodies = "".join(f'<section id="{name.lower()}">{body}</section>\n' for name, body in sections.items())
    tiles = "".join(
        f"<div><dt>{text(tile.name)}</dt><dd>{text(tile.value)}"
        f"{f'<small>{text(tile.note)}</small>' if tile.note else ''}</dd></div>"
        for tile in report.tiles
    )
    head = f'<h1>{text(report.title)}</h1><p class="muted">{line_of(report.about)}</p>'
    head += f"<p>{line_of(report.warning)}</p>" if report.warning else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<header><div>{head}<dl class="tiles">{tiles}</dl></div></header>\n'
        f'<nav aria-label="Sections"><div>{links}</div></nav>\n<main>\n{bodies}</main>\n'
        f"<footer>Made by camel {__version__}. Everything on this page is in the page.</footer>\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Anything as text of the page."""
    return html.escape(_UNSEEN.sub("\ufffd", str(value)), quote=True)


def line_of(line: Inline) -> str:
    """A line in its styles."""
    return "".join(map(_span, spans_of(line)))


def _span(span: Span) -> str:
    shown = f'<a href="#{text(span.to)}">{text(span.text)}</a>' if span.to else text(span.text)
    if span.style is None:
        return shown
    if tag := _TAGS.get(span.style):
        return f"<{tag}>{shown}</{tag}>"
    return f'<span class="{_CLASSES.get(span.style, span.style)}">{shown}</span>'


def _blocks(blocks: Iterable[Block], figures: Mapping[str, str]) -> str:
    return "".join(_block(block, figures) for block in blocks)


def _block(block: Block, figures: Mapping[str, str]) -> str:
    match block:
        case kinds.Heading(title):
            return f"<h2>{text(title)}</h2>"
        case kinds.Paragraph(line, kind):
            return f'<p class="{kind}" dir="auto">{line_of(line)}</p>' if kind else f"<p>{line_of(line)}</p>"
        case kinds.Note(line):
            return f"<p><small>{line_of(line)}</small></p>"
        case kinds.Points(lines):
            return f'<ul class="points">{"".join(f"<li>{line_of(line)}</li>" for line in lines)}</ul>'
        case kinds.OutcomeKey(won, lost):
            return (
                f'<p class="key"><i class="win"></i>{text(won)} <i class="draw"></i>draw '
                f'<i class="loss"></i>{text(lost)}</p>'
            )
        case kinds.Grid():
            return _table(block)
        case kinds.Picture(name, title):
            return figures.get(name) or (f"<h2>{text(title)}</h2>" if title else "")
        case kinds.Quote(head, said, context, reason, mono):
            before = f'<div class="context" dir="auto">{text(context)}</div>' if context else ""
            after = f'<p class="reason" dir="auto">{text(reason)}</p>' if reason else ""
            inner = line_of(said) or '<span class="muted">(empty)</span>'
            return (
                f"<article><header>{line_of(head)}</header>{before}"
                f'<div class="said{" mono" if mono else ""}" dir="auto">{inner}</div>{after}</article>'
            )
        case kinds.Columns(quotes):
            return f'<div class="pair">{_blocks(quotes, figures)}</div>'
        case kinds.Code(code):
            return f'<pre class="said">{text(code)}</pre>'
        case kinds.Details(title, inner, note, is_open, name):
            place = f' id="{text(name)}"' if name else ""
            return (
                f"<details{place}{' open' if is_open else ''}>"
                f"<summary><h3>{text(title)}</h3>{line_of(note)}</summary>{_blocks(inner, figures)}</details>"
            )


def _table(table: kinds.Grid) -> str:
    def cells(tag: str, row: Iterable[Cell]) -> str:
        return "".join(_cell(tag, cell, place >= table.left) for place, cell in enumerate(row))

    rows: list[str] = []
    for row in table.rows:
        match row:
            case kinds.RowGroup(title):
                rows.append(
                    f'<tr><th colspan="{len(table.head)}" scope="rowgroup">{line_of(title)}</th></tr>'
                )
            case kinds.Muted(inner):
                rows.append(f'<tr class="none">{cells("td", inner)}</tr>')
            case _:
                rows.append(f"<tr>{cells('td', row)}</tr>")
    return (
        f'<div class="scroll"><table class="{"wide" if table.wide else "tight"}"><thead><tr>{cells("th", table.head)}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(tag: str, cell: Cell, is_number: bool) -> str:
    match cell:
        case kinds.OutcomeBar(won, drawn, lost, whose):
            shares = {"win": won, "draw": drawn, "loss": lost}
            inner = "".join(
                f'<i class="{kind}" style="width:{100 * of:.2f}%"></i>' for kind, of in shares.items()
            )
            label = f"{won:.0%} won, {drawn:.0%} drawn, {lost:.0%} lost{whose}"
            return f'<td><div class="wdl" role="img" aria-label="{text(label)}">{inner}</div></td>'
        case kinds.RateBar(rate, low, high):
            return (
                f'<td><div class="bar" role="img" aria-label="{percent(rate)}"><i style="width:{100 * rate:.2f}%"></i>'
                f'<b style="left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%"></b></div></td>'
            )
        case kinds.Shade(shown, value, sure, note):
            color, much = "var(--bad)" if value > 0 else "var(--accent)", min(70, round(abs(value) * 110))
            return (
                f'<td class="heat{" sure" if sure else ""}" title="{text(note)}" '
                f'style="background:color-mix(in srgb, {color} {much}%, transparent)">{text(shown)}</td>'
            )
        case _:
            return f"<{tag}{' class=number' if is_number else ''}>{line_of(cell)}</{tag}>"
