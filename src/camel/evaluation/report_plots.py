"""The plots of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from camel.evaluation.contest_records import AGENTS
from camel.evaluation.report_table import table, titled
from camel.evaluation.results import Evaluation
from camel.reports.intervals import Rate
from camel.reports.plots import ACCENT, GRID, Plot, Spec, colors, intervals, names, shares

WIN, DRAW, LOSS = ACCENT, "#9aa4b2", "#d97a1f"
MOST_ROWS = 12
"""Of a plot; the tables have all."""


def plots(made: Evaluation) -> list[Plot]:
    """All plots that the figures allow."""
    return [_plot_results(made), *judging_plots(made)]


def judging_plots(made: Evaluation) -> list[Plot]:
    """Those about the judges, whatever was compared."""
    drawn: list[Plot] = []
    if any(one.position and one.position.pairs for one in made.comparisons):
        drawn.append(_plot_order(made))
    # A panel for each comparison: of many the tables have to do.
    if len(made.headline) <= MOST_ROWS and any(one.length.bins for one in made.headline):
        drawn.append(_plot_length(made))
    if made.ratings:
        drawn.append(_plot_ratings(made))
    return drawn


KINDS = ("A wins", "draw", "B wins")
STACKED: Spec = {
    "color": colors("kind", KINDS, (WIN, DRAW, LOSS)),
    "order": {"field": "place", "type": "quantitative"},
}
"""Wins, draws and losses, one on the other."""


def _stacked(amounts: Sequence[float], unit: str, **more: Any) -> list[Spec]:
    return [
        {**more, "kind": kind, unit: amount, "place": place}
        for place, (kind, amount) in enumerate(zip(KINDS, amounts, strict=True))
    ]


def _plot_results(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    order: list[str] = []
    for row in table(made):
        order.append(f"{row.dataset}, {row.evaluation}" + (f": {row.a} / {row.b}" if row.ours else ""))
        outcomes = (row.wins, row.draws, row.losses)
        amounts = [one.rate if isinstance(one, Rate) else one for one in outcomes]
        rows += _stacked(amounts, "share", row=order[-1])
    x = shares("share", "of verdicts", stack="zero", scale={"domain": [0, 1]})
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 30},
        "mark": {"type": "bar", "height": 16},
        "encoding": {"y": names("row", order, labelLimit=420), "x": x, **STACKED},
    }
    return Plot("results", "Who wins", "Shares of verdicts; the paper's lines are its Table 1.", spec)


def _plot_order(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    order: list[str] = []
    shown = [one for one in made.comparisons if one.position and one.position.pairs]
    if len(shown) > MOST_ROWS:
        shown = [one for one in shown if one.a == AGENTS] or shown
    kinds = ("A shown first", "B shown first", "both orders")
    for one in shown[:MOST_ROWS]:
        assert one.position
        pair = f": {one.a} / {one.b}" if len({(other.a, other.b) for other in shown}) > 1 else ""
        order.append(f"{titled(one.group)}, {one.judge}{pair}")
        for kind, found in zip(kinds, (one.position.a_first, one.position.b_first, one.shares), strict=True):
            rows.append({"row": order[-1], "kind": kind, **to_builtins(found.score)})
    x = shares("low", "score of A (wins and half of the draws)", scale={"domain": [0, 1]})
    half: Spec = {
        "mark": {"type": "rule", "color": GRID, "strokeWidth": 2},
        "data": {"values": [{"half": 0.5}]},
        "encoding": {"x": {"field": "half", "type": "quantitative"}, "y": None, "yOffset": None},
    }
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 48, "for": "position"},
        "encoding": {
            "y": names("row", order, labelLimit=420),
            "yOffset": {"field": "kind", "type": "nominal", "sort": list(kinds)},
        },
        "layer": [half, *intervals(x, "value", color=colors("kind", kinds, ("#1f9d7a", "#a35bd1", WIN)))],
    }
    caption = (
        "What one order alone would have said, and what is reported. Without bias the first two are the same."
    )
    return Plot("order", "What the order does", caption, spec)


def _plot_length(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    panels: list[str] = []
    labels: list[str] = []
    for one in made.headline:
        panels.append(f"{titled(one.group)}: {one.a} / {one.b}")
        for place, found in enumerate(one.length.bins):
            label = f"{found.low:g}–{found.high:g}" if place and found.high is not None else f"≥{found.low:g}"
            labels.append(label if place else f"<{found.high:g}")
            counts = (found.wins, found.draws, found.losses)
            rows += _stacked(counts, "count", panel=panels[-1], bin=labels[-1])
    order = list(dict.fromkeys(labels))
    x: Spec = {"field": "bin", "type": "nominal", "sort": order, "title": "length of A over that of B"}
    y: Spec = {"field": "count", "type": "quantitative", "title": "pairs"}
    axes = {
        "x": {**x, "axis": {"labelAngle": 0}},
        "y": {**y, "axis": {"tickCount": 4, "tickMinStep": 1}},
    }
    spec: Spec = {
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "nominal", "sort": panels, "title": None},
        "columns": min(2, len(panels)),
        "spacing": 26,
        "spec": {
            "width": 330,
            "height": 150,
            "mark": {"type": "bar", "width": {"band": 0.75}},
            "encoding": {**axes, **STACKED},
        },
    }
    caption = (
        "Pairs by how much longer A's solution is, and who wins them. Where the colours change from left to right, length "
        "goes with winning."
    )
    return Plot("length", "What the length does", caption, spec)


def _plot_ratings(made: Evaluation) -> Plot:
    rows = [{"system": one.system, **to_builtins(one.rating)} for one in made.ratings]
    x: Spec = {"field": "low", "type": "quantitative", "title": "rating", "axis": {"tickCount": 6}}
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 28},
        "encoding": {"y": names("system", [one.system for one in made.ratings], labelLimit=420)},
        "layer": intervals(x, "value", color=WIN, size=70, opacity=0.4),
    }
    caption = "Bradley–Terry ratings with 95% intervals; 0 is the average system."
    return Plot("ratings", "Ratings", caption, spec)
