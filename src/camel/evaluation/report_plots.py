"""The plots of an evaluation."""

from __future__ import annotations

from camel.evaluation.contest_records import AGENTS
from camel.evaluation.report_table import table, titled
from camel.evaluation.results import Evaluation
from camel.reports.intervals import Rate
from camel.reports.plots import ACCENT, GRID, INK, Plot, Spec

WIN, DRAW, LOSS = ACCENT, "#9aa4b2", "#d97a1f"
SIDE: Spec = {"labelColor": INK, "labelFontSize": 12, "domain": False, "ticks": False, "labelLimit": 420}
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
COLOURS: Spec = {"domain": list(KINDS), "range": [WIN, DRAW, LOSS]}


def _plot_results(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    order: list[str] = []
    for row in table(made):
        name = f"{row.dataset}, {row.evaluation}" + (f": {row.a} / {row.b}" if row.ours else "")
        order.append(name)
        for kind, value in zip(KINDS, (row.wins, row.draws, row.losses), strict=True):
            size = value.rate if isinstance(value, Rate) else value
            rows.append({"row": name, "kind": kind, "share": size, "place": KINDS.index(kind)})
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 30},
        "mark": {"type": "bar", "height": 16},
        "encoding": {
            "y": {"field": "row", "type": "nominal", "sort": order, "title": None, "axis": SIDE},
            "x": {
                "field": "share", "type": "quantitative", "stack": "zero", "title": "of verdicts",
                "axis": {"format": "~%", "tickCount": 5}, "scale": {"domain": [0, 1]},
            },
            "color": {"field": "kind", "type": "nominal", "scale": COLOURS, "sort": list(KINDS)},
            "order": {"field": "place", "type": "quantitative"},
        },
    }  # fmt: skip
    return Plot("results", "Who wins", "Shares of verdicts; the paper's lines are its Table 1.", spec)


def _plot_order(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    names: list[str] = []
    shown = [one for one in made.comparisons if one.position and one.position.pairs]
    if len(shown) > MOST_ROWS:
        shown = [one for one in shown if one.a == AGENTS] or shown
    for one in shown[:MOST_ROWS]:
        assert one.position
        pair = f": {one.a} / {one.b}" if len({(other.a, other.b) for other in shown}) > 1 else ""
        name = f"{titled(one.group)}, {one.judge}{pair}"
        names.append(name)
        for kind, shares in (
            ("A shown first", one.position.a_first),
            ("B shown first", one.position.b_first),
            ("both orders", one.shares),
        ):
            score = shares.score
            rows.append(
                {"row": name, "kind": kind, "value": score.value, "low": score.low, "high": score.high}
            )
    kinds = ["A shown first", "B shown first", "both orders"]
    x: Spec = {
        "field": "low", "type": "quantitative", "title": "score of A (wins and half of the draws)",
        "axis": {"format": "~%", "tickCount": 5}, "scale": {"domain": [0, 1]},
    }  # fmt: skip
    colour: Spec = {
        "field": "kind", "type": "nominal", "sort": kinds, "scale": {"domain": kinds, "range": ["#1f9d7a", "#a35bd1", WIN]},
    }  # fmt: skip
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 48, "for": "position"},
        "encoding": {
            "y": {"field": "row", "type": "nominal", "sort": names, "title": None, "axis": SIDE},
            "yOffset": {"field": "kind", "type": "nominal", "sort": kinds},
        },
        "layer": [
            {"mark": {"type": "rule", "color": GRID, "strokeWidth": 2}, "data": {"values": [{"half": 0.5}]}, "encoding": {"x": {"field": "half", "type": "quantitative"}, "y": None, "yOffset": None}},
            {"mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.45, "strokeCap": "round"}, "encoding": {"x": x, "x2": {"field": "high"}, "color": colour}},
            {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}, "encoding": {"x": {**x, "field": "value"}, "color": colour}},
        ],
    }  # fmt: skip
    caption = (
        "What one order alone would have said, and what is reported. Without bias the first two are the same."
    )
    return Plot("order", "What the order does", caption, spec)


def _plot_length(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    panels: list[str] = []
    labels: list[str] = []
    for one in made.headline:
        name = f"{titled(one.group)}: {one.a} / {one.b}"
        panels.append(name)
        for place, found in enumerate(one.length.bins):
            label = (
                f"<{found.high:g}"
                if not place
                else f"≥{found.low:g}"
                if found.high is None
                else f"{found.low:g}–{found.high:g}"
            )
            if label not in labels:
                labels.append(label)
            for kind, count in zip(KINDS, (found.wins, found.draws, found.losses), strict=True):
                rows.append(
                    {"panel": name, "bin": label, "kind": kind, "count": count, "place": KINDS.index(kind)}
                )
    spec: Spec = {
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "nominal", "sort": panels, "title": None},
        "columns": min(2, len(panels)),
        "spacing": 26,
        "spec": {
            "width": 330,
            "height": 150,
            "mark": {"type": "bar", "width": {"band": 0.75}},
            "encoding": {
                "x": {"field": "bin", "type": "nominal", "sort": labels, "title": "length of A over that of B", "axis": {"labelAngle": 0}},
                "y": {"field": "count", "type": "quantitative", "title": "pairs", "axis": {"tickCount": 4, "tickMinStep": 1}},
                "color": {"field": "kind", "type": "nominal", "scale": COLOURS, "sort": list(KINDS)},
                "order": {"field": "place", "type": "quantitative"},
            },
        },
    }  # fmt: skip
    caption = "Pairs by how much longer A's solution is, and who wins them. Where the colours change from left to right, length goes with winning."
    return Plot("length", "What the length does", caption, spec)


def _plot_ratings(made: Evaluation) -> Plot:
    rows = [
        {"system": one.system, "value": one.rating.value, "low": one.rating.low, "high": one.rating.high}
        for one in made.ratings
    ]
    y: Spec = {
        "field": "system",
        "type": "nominal",
        "sort": [one.system for one in made.ratings],
        "title": None,
        "axis": SIDE,
    }
    x: Spec = {"field": "low", "type": "quantitative", "title": "rating", "axis": {"tickCount": 6}}
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 28},
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.4, "strokeCap": "round", "color": WIN}, "encoding": {"x": x, "x2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "color": WIN}, "encoding": {"x": {**x, "field": "value"}}},
        ],
    }  # fmt: skip
    return Plot(
        "ratings", "Ratings", "Bradley–Terry ratings with 95% intervals; 0 is the average system.", spec
    )
