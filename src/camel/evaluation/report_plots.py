"""The plots of an evaluation."""

from __future__ import annotations

from msgspec import to_builtins

from camel.evaluation.contest_records import AGENTS
from camel.evaluation.report_table import TableRow, table, titled
from camel.evaluation.results import Comparison, Evaluation
from camel.evaluation.standing import Interval
from camel.reports.blocks import TEXTS
from camel.reports.intervals import Rate
from camel.reports.numbers import FEW, bounds, percent, signed
from camel.reports.plots import GRAY, SIDE_A, Plot, Spec, count_axis, dots, drawing, outcomes, panels, plot

MOST_ROWS = 12
"""Maximum number of rows in a plot. The tables contain all rows."""


def plots(made: Evaluation) -> list[Plot]:
    """Return all plots for which there is enough data."""
    return [_results(made), *judging_plots(made)]


def judging_plots(made: Evaluation) -> list[Plot]:
    """Return the plots about the judges. They fit any kind of comparison."""
    found = [_order(made)] if any(_judged_twice(one) for one in made.comparisons) else []
    # The plot has a panel for each comparison. If there are too many, only the tables show them.
    if len(made.headline) <= MOST_ROWS and any(
        one.length.bins and one.shares.of >= FEW for one in made.headline
    ):
        found.append(_length(made))
    if made.ratings:
        found.append(_ratings(made))
    return found


def _results(made: Evaluation) -> Plot:
    rows = sorted(table(made), key=lambda row: not row.ours)
    several = len({(row.a, row.b) for row in rows if row.ours}) > 1
    drawn = [_row(row, several=several) for row in rows]
    total = sum(row.of for row in rows if row.ours)
    caption = f"{total:,} verdicts of this evaluation. The line below a bar is the 95% interval of the share that A won."
    if any(not row.ours for row in rows):
        caption += " Rows that begin with “Paper” are from the paper's Table 1."
    return plot("results", "Won, drawn and lost", caption, lambda width: outcomes(drawn, width))


def _row(row: TableRow, *, several: bool) -> Spec:
    rates = (row.wins, row.draws, row.losses)
    won, drawn, lost = (one.rate if isinstance(one, Rate) else one for one in rates)
    words = [f"{one.count:,}" if isinstance(one, Rate) else percent(one) for one in rates]
    pair = f": {row.a} / {row.b}" if several and row.ours else ""
    made: Spec = {
        "name": f"{row.dataset}, {row.evaluation}{pair}", "won": won, "drawn": drawn, "lost": lost,
        "won_words": f"A won {words[0]}", "drawn_words": f"drawn {words[1]}", "lost_words": f"A lost {words[2]}",
    }  # fmt: skip
    if isinstance(row.wins, Rate) and row.of >= FEW:
        made |= {
            "low": row.wins.low,
            "high": row.wins.high,
            "says": f"{percent(won)} won, {bounds(row.wins.low, row.wins.high)}",
        }
    return made


def _judged_twice(one: Comparison) -> bool:
    return one.position is not None and one.position.pairs >= FEW


def _dot(name: str, found: Interval, color: str) -> Spec:
    return {
        "name": name, **to_builtins(found), "says": percent(found.value), "span": bounds(found.low, found.high), "color": color
    }  # fmt: skip


def _order(made: Evaluation) -> Plot:
    judged = [one for one in made.comparisons if _judged_twice(one)]
    if len(judged) > MOST_ROWS // 3:
        judged = [one for one in judged if one.a == AGENTS] or judged
    several = len({(one.a, one.b) for one in judged}) > 1
    rows: list[Spec] = []
    for one in judged[: MOST_ROWS // 3]:
        assert one.position
        pair = f": {one.a} / {one.b}" if several else ""
        rows += [
            *([{"name": f"{titled(one.group)}, {one.judge}{pair}"}] if len(judged) > 1 else []),
            _dot("A shown first", one.position.a_first.score, GRAY),
            _dot("B shown first", one.position.b_first.score, GRAY),
            _dot("both orders combined", one.shares.score, SIDE_A),
        ]
    pairs = sum(one.position.pairs for one in judged if one.position)
    caption = TEXTS["evaluation"]["order_plot"].format(pairs=pairs)
    return plot("order", "Effect of the order", caption, lambda width: dots(rows, width, middle=0.5))


def _length(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    for one in made.headline:
        panel = f"{titled(one.group)}: {one.a} / {one.b}"
        for place, found in enumerate(one.length.bins):
            last = found.high is None
            ends = (
                f"{found.low:g} to {found.high:g}"
                if place and not last
                else f"≥ {found.low:g}"
                if last
                else f"< {found.high:g}"
            )
            counts = {"A won": found.wins, "drawn": found.draws, "A lost": found.losses}
            rows += [
                {"panel": panel, "length": ends, "verdict": verdict, "pairs": count, "place": at}
                for at, (verdict, count) in enumerate(counts.items())
            ]
    most = max(found.wins + found.draws + found.losses for one in made.headline for found in one.length.bins)
    unit = {name: part for name, part in drawing("verdicts", [], 0).items() if name in ("mark", "encoding")}
    unit["encoding"]["x"]["axis"] |= count_axis(most)
    caption = TEXTS["evaluation"]["length_plot"].format(pairs=sum(row["pairs"] for row in rows))
    return plot(
        "length",
        "Effect of the length",
        caption,
        lambda width: panels(rows, "panel", unit, width, columns=2),
    )


def _ratings(made: Evaluation) -> Plot:
    rows: list[Spec] = [
        {"name": one.system, **to_builtins(one.rating), "says": signed(one.rating.value),
         "span": f"{signed(one.rating.low)} to {signed(one.rating.high)}"}
        for one in made.ratings
    ]  # fmt: skip
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    room = 0.05 * (high - low) + 1
    caption = "Bradley–Terry ratings in Elo points, with 95% intervals; 0 is the average system."
    return plot(
        "ratings",
        "Ratings",
        caption,
        lambda width: dots(rows, width, domain=(low - room, high + room), middle=0),
    )
