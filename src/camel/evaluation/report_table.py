"""The table of an evaluation, sentences about it and its plots, for the report and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import to_builtins

from camel.evaluation.contest_records import AGENTS, SINGLE_SHOT
from camel.evaluation.pairs import Winner
from camel.evaluation.results import Comparison, Evaluation
from camel.evaluation.standing import Interval
from camel.reports.blocks import TEXTS
from camel.reports.intervals import Rate, holm, paired
from camel.reports.numbers import FEW, bounds, percent, share_with_interval, signed
from camel.reports.plots import GRAY, SIDE_A, Plot, Spec, count_axis, dots, drawing, outcomes, panels, plot

TITLES = TEXTS["groups"]
TABLE1 = "table1_"
"""Prefix of the names of scenarios with fixed tasks."""
NAMES = {SINGLE_SHOT: "single answers"}
STEPS = TEXTS["steps"]
WORDS: dict[Winner | None, str] = {"a": "A won", "b": "B won", "draw": "drawn", None: "undecided"}
CHANCE = 0.05


class TableRow(msgspec.Struct, frozen=True):
    """A row of the table of results."""

    dataset: str
    evaluation: str
    a: str
    b: str
    draws: Rate | float
    losses: Rate | float
    wins: Rate | float
    of: int
    ours: bool


def table(made: Evaluation) -> list[TableRow]:
    """Return the rows of the table of results. For each dataset: the paper's Table 1, human votes, then this evaluation."""
    rows: list[TableRow] = []
    seen: set[str] = set()
    for drawn in made.drawn:
        scenario = drawn.scenario.removeprefix(TABLE1)
        paper = () if scenario in seen else made.paper.get(scenario, ())
        seen.add(scenario)
        rows += [
            TableRow(
                titled(scenario), f"Paper: {one.evaluation}", "CAMEL agents", "gpt-3.5-turbo",
                one.draws, one.losses, one.wins, one.of, False,
            )
            for one in paper
        ]  # fmt: skip
        rows += [
            TableRow(
                titled(one.group), f"people ({one.voters} voted)", one.a, one.b,
                one.draws, one.losses, one.wins, one.wins.of, True,
            )
            for one in made.human if one.group == drawn.group
        ]  # fmt: skip
        rows += _rows(one for one in made.headline if one.group == drawn.group)
    return rows


def by_judge(made: Evaluation) -> list[TableRow]:
    """Return a row for each judge and comparison. Return an empty list if there is only one judge."""
    return _rows(made.comparisons) if len(made.judges) > 1 else []


def _rows(comparisons: Iterable[Comparison]) -> list[TableRow]:
    return [
        TableRow(
            titled(one.group), one.judge, one.a, one.b, found.draws, found.losses, found.wins, found.of, True
        )
        for one in comparisons
        for found in [one.shares]
    ]


def titled(group: str) -> str:
    """Return the title of a group for reports."""
    return TITLES.get(group, group)


def share(value: Rate | float) -> str:
    """Return a share as text, with its interval if it has one."""
    if not isinstance(value, Rate):
        return f"{value:.1%}"
    return share_with_interval(value) if value.of else "–"


def headline(made: Evaluation) -> str:
    """Return the main finding in one sentence: which system won, or that the difference is not clear."""
    judged = [one for one in made.headline if one.shares.of]
    if not judged:
        return "No judge gave a readable verdict"
    one = next((one for one in judged if AGENTS in (one.a, one.b)), judged[0])
    shares, (a, b) = one.shares, (NAMES.get(name, name) for name in (one.a, one.b))
    of = f"{shares.of:,} tasks" + (f" of {titled(one.group)}" if len(made.drawn) > 1 else "")
    if shares.score.low > 0.5:
        said = f"{a} beat {b} on {shares.wins.count:,} of {of}"
    elif shares.score.high < 0.5:
        said = f"{b} beat {a} on {shares.losses.count:,} of {of}"
    else:
        said = f"No clear difference between {a} and {b} on {of}"
    return said[:1].upper() + said[1:]


def points(made: Evaluation) -> list[str]:
    """Return the main findings as plain sentences."""
    said: list[str] = []
    for one in made.headline:
        if not one.shares.of or AGENTS not in (one.a, one.b):
            continue
        score, where = one.shares.score, titled(one.group)
        better = one.a if score.low > 0.5 else one.b if score.high < 0.5 else ""
        sure = f"significantly in favor of {better}" if better else "the difference may be chance"
        said.append(
            f"{where}, {one.a} against {one.b}: {share(one.shares.wins)} won, {share(one.shares.draws)} drawn, "
            f"{share(one.shares.losses)} lost, of {one.shares.of:,} pairs; {sure}."
        )
    return said + judge_points(made)


def judge_points(made: Evaluation) -> list[str]:
    """Return the findings about the judges as plain sentences. They fit any kind of comparison."""
    said: list[str] = []
    for judge in made.judges:
        said += _biases([one for one in made.comparisons if one.judge == judge])
    said += [
        f"{judge} also wrote solutions that it judged. Models tend to prefer their own." for judge in made.own
    ]
    if made.shortened:
        said.append(f"In {made.shortened:,} questions, a solution was cut to fit the judge's context window.")
    if made.undecided.count:
        said.append(
            f"{made.undecided.count:,} of {made.undecided.of:,} questions to judges got no readable answer and are not counted."
        )
    return said


def _biases(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a sentence for each significant bias of a judge, to a position or to a length."""
    said: list[str] = []
    found = [one.position for one in comparisons if one.position]
    sure = [one for one, p in zip(found, holm([one.p for one in found]), strict=True) if p < CHANCE]
    for side, mine in (
        ("first", [one for one in sure if one.effect.value > 0]),
        ("second", [one for one in sure if one.effect.value < 0]),
    ):
        if mine:
            flips, pairs = sum(one.flips for one in mine), sum(one.pairs for one in mine)
            said.append(
                f"{comparisons[0].judge} prefers the solution that it sees {side}: {flips:,} of {pairs:,} verdicts change with "
                "the order. These pairs count as draws."
            )
    rates = [one.length.longer_wins for one in comparisons]
    chances = holm([paired(one.of - one.count, one.count, one.of).p for one in rates])
    lengths = [one for one, p in zip(rates, chances, strict=True) if p < CHANCE]
    for way in ("longer", "shorter"):
        mine = [one for one in lengths if (one.rate > 0.5) == (way == "longer")]
        if mine:
            won, of = sum(one.count for one in mine), sum(one.of for one in mine)
            count = won if way == "longer" else of - won
            said.append(
                f"{comparisons[0].judge} chose the {way} solution in {count:,} of {of:,} decided pairs."
            )
    return said


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
            if found.high is None:
                ends = f"≥ {found.low:g}"
            else:
                ends = f"{found.low:g} to {found.high:g}" if place else f"< {found.high:g}"
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
