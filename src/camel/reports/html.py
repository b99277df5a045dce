"""Renders reports as HTML pages: one file that loads nothing, in the style of all other pages, light and dark. Writes the
files of a report.

The one decision to know: all text from elsewhere (model text, roles, names of runs) passes through `text`, which escapes it and
replaces control characters. The policy in the page's head allows only our own style and script, by their hashes, and the
included fonts.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from camel._version import __version__
from camel.reports import blocks as kinds
from camel.reports.blocks import Block, Cell, Inline, Report, Span, spans_of
from camel.reports.intervals import ReportFigures
from camel.reports.markdown import render_markdown
from camel.reports.plots import LOOK, Plot, drawn, write_plots
from camel.storage import inside

FONTS = ("plex-sans", "source-serif")
"""Fonts that are embedded in a report. Other fonts are the reader's system fonts."""
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_TAGS = {"strong": "b", "em": "em", "mark": "mark"}
_CLASSES = {
    "good": "tag soft", "bad": "tag warn", "interval": "soft", "muted": "faint", "source": "mono faint", "user": "who s-user",
    "assistant": "who s-assistant", "a": "tag d-a", "b": "tag d-b", "drawn": "tag c-0", "letter-a": "side-letter d-a",
    "letter-b": "side-letter d-b",
}  # fmt: skip
_PRINT = '<button class="btn opt" id="print" type="button">Print</button>'


def policy(style: str, *scripts: str, fonts: str = "data:") -> str:
    """Return a Content-Security-Policy that allows only this style, these scripts, these fonts and embedded images."""
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; img-src data:; font-src {fonts}; base-uri 'none'; form-action 'none'; "
        f"style-src {_hash(style)}; script-src {allowed}"
    )


def _hash(part: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"


def _font(face: re.Match[str]) -> str:
    if face[1] not in FONTS:
        return ""
    data = base64.b64encode((LOOK / "fonts" / f"{face[1]}.woff2").read_bytes()).decode()
    return face[0].replace(f"fonts/{face[1]}.woff2", f"data:font/woff2;base64,{data}")


_TOKENS, _COMPONENTS = ((LOOK / name).read_text("utf-8") for name in ("tokens.css", "components.css"))
STYLE = re.sub(r"@font-face \{.*?fonts/([\w-]+)\.woff2.*?\}\n", _font, _TOKENS) + _COMPONENTS
SCRIPT = (Path(__file__).parent / "report.js").read_text("utf-8")
POLICY = policy(STYLE, SCRIPT)
"""The policy that the explorer sends with a report, so that a script in a changed file cannot run."""


def render_html(
    report: Report,
    pictures: Mapping[str, Sequence[str]],
    *,
    name: str = "",
    run_link: str = "",
    others: Iterable[tuple[str, str]] = (),
) -> str:
    """Return the report as an HTML page. `pictures` maps the name of a plot to its SVGs, `others` are links to other reports.

    With a `name` the page links to the files that are written next to it (`write_report`).
    """
    figures = {plot.name: _figure(plot, pictures[plot.name], has_files=bool(name)) for plot in report.plots}
    sections = {name: body for name, blocks in report.sections.items() if (body := _rows(blocks, figures))}
    link = f' href="{text(run_link)}"' if run_link else ""
    crumbs = [f"<a data-run{link}>{text(report.run)}</a>"] if report.run else []
    buttons = [*others, *((("Markdown", f"{name}.md"), ("Data", f"{name}.json")) if name else ())]
    frame = string.Template((Path(__file__).parent / "report.html").read_text("utf-8"))
    return frame.substitute(
        style=STYLE,
        script=SCRIPT,
        policy=POLICY,
        version=__version__,
        headline=text(report.headline),
        lede=line_of(report.lede),
        warning=f'<p class="finding">{line_of(report.warning)}</p>' if report.warning else "",
        facts="".join(
            f"<dt>{line_of(one)}</dt><dd>{line_of(value)}</dd>"
            for one, value in report.facts.items()
            if value
        ),
        links="".join(f'<a href="#{one.lower()}">{one}</a>' for one in sections),
        crumbs="<span>/</span>".join([*crumbs, f"<span>{text(report.kind)}</span>"]),
        files="".join(f'<a class="btn" href="{text(to)}">{text(title)}</a>' for title, to in buttons)
        + _PRINT,
        bodies="".join(
            f'<section class="report" id="{one.lower()}">{body}</section>\n' for one, body in sections.items()
        ),
    )


def text(value: object) -> str:
    """Escape a value as text of an HTML page."""
    return html.escape(_UNSEEN.sub("\ufffd", str(value)), quote=True)


def line_of(line: Inline) -> str:
    """Render a line with its styles as HTML."""
    return "".join(map(_span, spans_of(line)))


def _span(span: Span) -> str:
    link = f'href="#{text(span.to)}"' if span.to else f'data-id="{text(span.conversation)}"'
    shown = f"<a {link}>{text(span.text)}</a>" if span.to or span.conversation else text(span.text)
    if span.style is None:
        return shown
    if tag := _TAGS.get(span.style):
        return f"<{tag}>{shown}</{tag}>"
    return f'<span class="{_CLASSES.get(span.style, span.style)}">{shown}</span>'


def _figure(plot: Plot, pictures: Sequence[str], *, has_files: bool) -> tuple[str, str]:
    """Return a plot as HTML, and the HTML of its margin: the caption and the download links."""
    wide, *narrow = pictures
    label = f'role="img" aria-label="{text(plot.title)}: {text(plot.caption)}"'
    both = f'<div class="{"w-wide" if narrow else "scroll"}" {label}>{wide}</div>'
    both += "".join(f'<div class="w-narrow" {label}>{one}</div>' for one in narrow)
    kinds_of_file = ("svg", "png", "csv") if has_files else ()
    links = "".join(
        f'<a href="plots/{plot.name}.{kind}" download>{kind.upper()}</a>' for kind in kinds_of_file
    )
    files = f'<details class="fold download"><summary>Download</summary>{links}</details>' if links else ""
    title = f'<h2 class="fig-title">{text(plot.title)}</h2>'
    return f'<figure class="plot">{title}{both}</figure>', f"<p>{text(plot.caption)}</p>{files}"


def _rows(blocks: Iterable[Block], figures: Mapping[str, tuple[str, str]]) -> str:
    """Render the blocks of a section as HTML, each with its notes in the margin."""
    rows: list[list[str]] = []
    for block in blocks:
        if isinstance(block, kinds.Note):
            rows = rows or [["", ""]]
            rows[-1][1] += f"<p>{line_of(block.line)}</p>"
        elif not isinstance(block, kinds.Picture):
            rows.append([_block(block), ""])
        elif block.name in figures:
            rows.append(list(figures[block.name]))
    return "".join(f'{main}<div class="side note">{notes}</div>' if notes else main for main, notes in rows)


def _blocks(blocks: Iterable[Block]) -> str:
    return "".join(map(_block, blocks))


def _block(block: Block) -> str:
    match block:
        case kinds.Heading(title):
            return f"<h2>{text(title)}</h2>"
        case kinds.Paragraph(line, kind):
            return f'<p class="{kind or "prose"}" dir="auto">{line_of(line)}</p>'
        case kinds.Note(line):
            return f'<p class="tiny faint">{line_of(line)}</p>'
        case kinds.Points(lines):
            return f'<ul class="prose points">{"".join(f"<li>{line_of(line)}</li>" for line in lines)}</ul>'
        case kinds.Grid():
            return _table(block)
        case kinds.Picture():
            return ""
        case kinds.Quote(head, said, context, reason, mono):
            before = f'<p class="context" dir="auto">{text(context)}</p>' if context else ""
            after = f'<p class="reason" dir="auto">{text(reason)}</p>' if reason else ""
            inner = line_of(said) or '<span class="faint">(empty)</span>'
            return (
                f'<div class="quote"><p class="head">{line_of(head)}</p>{before}'
                f'<div class="{"mono" if mono else "text q"} verbatim" dir="auto" tabindex="0">{inner}</div>{after}</div>'
            )
        case kinds.Columns(quotes):
            return f'<div class="quote-pair">{_blocks(quotes)}</div>'
        case kinds.Code(code):
            return f'<div class="code"><pre tabindex="0">{text(code)}</pre></div>'
        case kinds.Details(title, inner, note, is_open, name):
            place = f' id="{text(name)}"' if name else ""
            return (
                f'<details class="fold pairfold"{place}{" open" if is_open else ""}><summary><b>{text(title)}</b>'
                f"{line_of(note)}</summary>{_blocks(inner)}</details>"
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
                rows.append(f'<tr class="soft">{cells("td", inner)}</tr>')
            case _:
                rows.append(f"<tr>{cells('td', row)}</tr>")
    title = f'<h2 class="fig-title">{text(table.title)}</h2>' if table.title else ""
    return (
        f'<figure>{title}<div class="scroll" tabindex="0" role="region" aria-label="{text(table.title or "Table")}">'
        f'<table class="table{" words" if table.wide else ""}"><thead><tr>{cells("th", table.head)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></figure>"
    )


def _cell(tag: str, cell: Cell, is_number: bool) -> str:
    match cell:
        case kinds.OutcomeBar(won, drawn, lost):
            starts = (("d-a", 0.0, won), ("c-0", won, drawn), ("d-b", won + drawn, lost))
            inner = "".join(
                f'<rect class="mk {kind}" x="{150 * at:.1f}" width="{150 * of:.1f}" height="12"/>'
                for kind, at, of in starts
            )
            label = f"A won {won:.0%}, drew {drawn:.0%}, lost {lost:.0%}"
            return f'<td><svg class="cellbar" width="150" height="12" role="img" aria-label="{label}">{inner}</svg></td>'
        case kinds.Shade(shown, value, sure, note):
            step = min(8, round(abs(value) * 11))
            kind = f"heat h{step}{' less' if value < 0 else ''}{' sure' if sure else ''}"
            return f'<td class="{kind}" title="{text(note)}">{text(shown)}</td>'
        case _:
            return f"<{tag}{' class=num' if is_number else ''}>{line_of(cell)}</{tag}>"


REPORTS = {"study": "Study", "evaluation": "Evaluation"}
"""Reports that are in a run's folder by default, each in a folder with its name."""


def write_report(folder: Path, report: Report, figures: ReportFigures) -> None:
    """Write the files of a report, `<figures.file>.html`, `.md` and `.json`, and the folder `plots`.

    If the folder is in that of its run, the page links to the run's folder and to its other reports. In the explorer, the link
    opens the page of the run.
    """
    name, pictures = figures.file, {plot.name: drawn(plot) for plot in report.plots}
    write_plots(folder, report.plots, pictures)
    at_home = bool(report.run) and folder.absolute().parent.name == report.run
    others = [
        (title, f"../{other}/{other}.html")
        for other, title in REPORTS.items()
        if at_home and other != name and (folder.parent / other / f"{other}.html").is_file()
    ]
    page = render_html(report, pictures, name=name, run_link="../" if at_home else "", others=others)
    inside.write(folder, f"{name}.md", render_markdown(report))
    inside.write(folder, f"{name}.html", page)
    inside.write(folder, f"{name}.json", figures.to_json())
