"""The table of an evaluation and sentences about it, for the report, its plots and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from camel.evaluation.contest_records import AGENTS, SINGLE_SHOT
from camel.evaluation.pairs import Winner
from camel.evaluation.results import Comparison, Evaluation
from camel.reports.blocks import TEXTS
from camel.reports.intervals import Rate, holm, paired
from camel.reports.numbers import share_with_interval

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
