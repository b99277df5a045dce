"""Bars as inline SVG: nothing is drawn in the browser, and a chart is part of the page that is saved or printed.

The one decision to know: sizes are attributes and colours classes of the style sheet, for the page's policy allows no
styles of its own; every text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec
from markupsafe import Markup

WIDTH = 460


class Bar(msgspec.Struct, frozen=True):
    """One bar: what it is, how long, and where a click leads."""

    name: str
    count: int
    link: str = ""


def bars(title: str, values: Sequence[Bar]) -> Markup:
    """Horizontal bars with their names, the longest first as given."""
    height, label = 28, 168
    most = max((bar.count for bar in values), default=0) or 1
    total = sum(bar.count for bar in values) or 1
    room = WIDTH - label - 92
    rows: list[str] = []
    for number, bar in enumerate(values):
        y = number * height
        long = max(1.5, room * bar.count / most)
        row = (
            f'<text x="0" y="{y + 18}">{escape(_short(bar.name, 25))}<title>{escape(bar.name)}</title></text>'
            f'<rect class="bar" x="{label}" y="{y + 5}" width="{long:.1f}" height="18" rx="3"/>'
            f'<text class="value" x="{label + long + 8:.1f}" y="{y + 18}">{bar.count:,} · {bar.count / total:.0%}</text>'
        )
        rows.append(f'<a href="{escape(bar.link)}">{row}</a>' if bar.link else row)
    return _svg(title, height * len(values) + 4, rows)


def histogram(title: str, values: Sequence[Bar]) -> Markup:
    """Upright bars side by side, for lengths and sizes."""
    tall, base = 150, 170
    most = max((bar.count for bar in values), default=0) or 1
    step = WIDTH / max(1, len(values))
    every = max(1, len(values) // 8)
    parts = [f'<line class="grid" x1="0" x2="{WIDTH}" y1="{base}" y2="{base}"/>']
    for number, bar in enumerate(values):
        high = tall * bar.count / most
        x = number * step
        column = (
            f'<rect class="bar" x="{x + 1:.1f}" y="{base - high:.1f}" width="{max(1.0, step - 2):.1f}" '
            f'height="{high:.1f}" rx="2"><title>{escape(bar.name)}: {bar.count:,}</title></rect>'
        )
        parts.append(f'<a href="{escape(bar.link)}">{column}</a>' if bar.link else column)
        if number % every == 0:
            parts.append(
                f'<text x="{x + 1:.1f}" y="{base + 18}">{escape(_short(bar.name.partition("–")[0], 10))}</text>'
            )
    parts.append(f'<text class="value" x="0" y="12">{most:,}</text>')
    return _svg(title, base + 26, parts)


def _svg(title: str, height: int, parts: Sequence[str]) -> Markup:
    drawn = "".join(parts)
    return Markup(  # noqa: S704 - every text above is escaped
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{drawn}</svg>'
    )


def _short(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
