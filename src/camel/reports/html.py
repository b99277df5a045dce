"""What all HTML pages of reports share: a frame with no script and no request, light and dark, and figures in few characters.

The one decision to know: everything that is not ours (model text, roles, names of runs) goes through `text`, which
escapes it and takes out what a browser must not see; the policy in the page's head forbids everything else.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from camel._version import __version__
from camel.reports.intervals import Rate
from camel.reports.plots import Plot

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def document(title: str, head: str, parts: Sequence[tuple[str, str, str]]) -> str:
    """A page of sections, given as (title in the navigation, name, HTML)."""
    style = (Path(__file__).parent / "page.css").read_text("utf-8")
    links = "".join(f'<a href="#{name}">{text(title)}</a>' for title, name, _ in parts)
    sections = "".join(f'<section id="{name}">{body}</section>\n' for _, name, body in parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<header><div>{head}</div></header>\n<nav aria-label="Sections"><div>{links}</div></nav>\n'
        f"<main>\n{sections}</main>\n"
        f"<footer>Made by camel {__version__}. Everything on this page is in the page.</footer>\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Anything as text of the page."""
    return html.escape(_UNSEEN.sub("\ufffd", str(value)), quote=True)


def percent(value: float, step: float = 0.01) -> str:
    """A share in words short enough for a table, exact to about `step`, and to two figures where it is small."""
    points = value * 100
    if not points or points == 100:
        return f"{points:.0f}%"
    if points < 0.1:
        return f"{points:.1g}%" if points >= 1e-4 else "<0.0001%"
    digits = 2 if step < 0.001 else 1 if step < 0.01 or points < 10 else 0
    while round(points, digits) == 100 and digits < 6:  # not quite all is not all
        digits += 1
    return f"{points:.{digits}f}%"


def interval(rate: Rate) -> str:
    """The interval of a share; narrow ones with more figures."""
    step = (rate.high - rate.low) / 2
    return f"{percent(rate.low, step)} – {percent(rate.high, step)}".replace("% –", " –")


def short(count: float) -> str:
    """A large number in few characters."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= 10 * size or (count >= size and size > 1e3):
            return f"{count / size:.1f}{unit}"
    return f"{count:,.0f}"


def money(dollars: float | None) -> str:
    """What something cost, where its price is known."""
    return "price unknown" if dollars is None else f"${dollars:,.4f}" if dollars < 1 else f"${dollars:,.2f}"


def tiles(cards: Iterable[tuple[str, str, str]]) -> str:
    """The first figures of a page, each with its name and a note, which may be empty."""
    inner = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}{f'<small>{text(note)}</small>' if note else ''}</dd></div>"
        for name, value, note in cards
    )
    return f'<dl class="tiles">{inner}</dl>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """A table of text; all columns but the first `left` hold numbers."""

    def cell(tag: str, place: int, value: str) -> str:
        return f"<{tag}{' class=number' if place >= left else ''}>{text(value)}</{tag}>"

    heads = "".join(cell("th", place, name) for place, name in enumerate(head))
    body = "".join(
        f"<tr>{''.join(cell('td', place, value) for place, value in enumerate(row))}</tr>" for row in rows
    )
    return f'<div class="scroll"><table class="tight"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def outcomes(won: float, drawn: float, lost: float, whose: str = "") -> str:
    """Shares of wins, draws and losses as one bar."""
    values = {"win": won, "draw": drawn, "loss": lost}
    inner = "".join(
        f'<i class="{kind}" style="width:{value * 100:.2f}%"></i>' for kind, value in values.items()
    )
    label = f"{won:.0%} won, {drawn:.0%} drawn, {lost:.0%} lost{whose}"
    return f'<div class="wdl" role="img" aria-label="{label}">{inner}</div>'


def figure(plot: Plot, picture: str) -> str:
    """A plot in the page."""
    label = f'<div class="plot" role="img" aria-label="{text(plot.title)}">{picture}</div>'
    return f"<figure><h2>{text(plot.title)}</h2><figcaption>{text(plot.caption)}</figcaption>{label}</figure>"
