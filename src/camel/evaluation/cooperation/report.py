"""The figures and the report of a comparison of methods at equal numbers of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec

from camel.core.message import Usage
from camel.evaluation.cooperation.methods import METHODS, REFERENCE, vote
from camel.reports import blocks as kinds
from camel.reports.intervals import Difference, Rate, ReportFigures, holm, paired, wilson
from camel.reports.notebook import facts_html
from camel.reports.numbers import counted, money, percent, points
from camel.reports.plots import Plot, lines, svg
from camel.reports.plots import plot as plot_of

SURE = 0.05
EQUAL = 0.02
"""Largest difference of the methods' tokens that still counts as equal."""
STEPS = 12
"""Number of points of a curve."""
BASELINES = ("self_consistency", "best_of_n")
"""Methods of one model with equal tokens, the preferred one first."""


class ProblemSolution(msgspec.Struct, frozen=True):
    """What a method did with one problem."""

    problem: str
    keys: list[str]
    """The answer of each attempt; empty if it has none."""
    tokens: list[int]
    """Number of tokens that were used for the problem after each attempt."""
    chosen: int
    """Number of the chosen attempt, or -1."""
    text: str
    """Text of the chosen attempt."""
    usage: Usage


class CurvePoint(msgspec.Struct, frozen=True):
    """The share of problems that are solved with at most so many tokens or attempts."""

    at: int
    share: float


class MethodFigures(msgspec.Struct, frozen=True):
    """The figures of one method."""

    name: str
    solved: Rate
    against: Difference | None
    """Share of solved problems minus that of the baseline, over the same problems."""
    adjusted: float
    """P-value of the difference, corrected for the number of methods."""
    won: list[str]
    """Problems that it solved and the baseline did not."""
    lost: list[str]
    unanswered: int
    usage: Usage
    by_tokens: list[CurvePoint]
    by_attempts: list[CurvePoint]

    @property
    def sure(self) -> bool:
        """Whether the difference from the baseline is significant."""
        return self.adjusted < SURE


class CooperationFigures(ReportFigures, frozen=True):
    """All figures of a comparison, as stored in `cooperation.json`."""

    file = "cooperation"
    methods: list[MethodFigures]
    baseline: str
    """The method with which the others are compared. Empty if there is none."""
    problems: int
    tokens: int
    model: str
    failed: int
    """Number of blocks of problems without a result."""
    schema: int = 1

    @property
    def spread(self) -> float:
        """The largest difference between the tokens of two methods with equal budgets, relative to their mean."""
        totals = [one.usage.total for one in self.methods if one.name != REFERENCE]
        return (max(totals) - min(totals)) * len(totals) / sum(totals) if sum(totals) else 0.0

    def plot(self) -> Plot:
        """Return the plot of solved problems over tokens."""
        return _curves(self, "by_tokens", "tokens per problem", "Solved problems over tokens")

    def __str__(self) -> str:
        return "\n".join(summary(self))

    def _repr_html_(self) -> str:
        """Return the plot and the figures as HTML for a notebook."""
        facts = [(one.name, f"{percent(one.solved.rate)}  {_against(one)}") for one in self.methods]
        return svg(self.plot()) + facts_html(
            f"{self.problems:,} problems", facts, f"compared with {self.baseline}"
        )

    def __getitem__(self, name: str) -> MethodFigures:
        """Return the figures of a method."""
        return next(one for one in self.methods if one.name == name)


def figures_of(
    names: Sequence[str],
    tokens: int,
    model: str,
    blocks: Sequence[tuple[str, Sequence[ProblemSolution], Sequence[Sequence[bool]]]],
    failed: int = 0,
) -> CooperationFigures:
    """Compute the figures from blocks: the method, its `ProblemSolution`s, and which of their answers are right."""
    found: dict[str, dict[str, tuple[ProblemSolution, Sequence[bool]]]] = {name: {} for name in names}
    for method, solutions, right in blocks:
        found[method] |= {one.problem: (one, marks) for one, marks in zip(solutions, right, strict=True)}
    baseline = next((name for name in (*BASELINES, *names) if name in found and name != REFERENCE), "")
    usual = {problem: _solved(*one) for problem, one in found[baseline].items()} if baseline else {}
    made: list[MethodFigures] = []
    for name, problems in found.items():
        solved = {problem: _solved(*one) for problem, one in problems.items()}
        shared = solved.keys() & usual.keys()
        won = sorted(one for one in shared if solved[one] and not usual[one])
        lost = sorted(one for one in shared if usual[one] and not solved[one])
        made.append(
            MethodFigures(
                name,
                wilson(sum(solved.values()), len(solved)),
                paired(len(lost), len(won), len(shared)) if name != baseline and shared else None,
                1.0,
                won,
                lost,
                sum(one.chosen < 0 for one, _ in problems.values()),
                sum((one.usage for one, _ in problems.values()), Usage()),
                _by_tokens(name, list(problems.values())),
                _by_attempts(name, list(problems.values())),
            )
        )
    compared = [one for one in made if one.against]
    values = holm([one.against.p for one in compared if one.against])
    corrected = dict(zip((one.name for one in compared), values, strict=True))
    made = [msgspec.structs.replace(one, adjusted=corrected.get(one.name, 1.0)) for one in made]
    return CooperationFigures(made, baseline, max(map(len, found.values())), tokens, model, failed)


def _solved(one: ProblemSolution, marks: Sequence[bool]) -> bool:
    return one.chosen >= 0 and marks[one.chosen]


@cache
def _takes_last(name: str) -> bool:
    return name in METHODS and METHODS[name]().choose == "last"


def _after(name: str, keys: Sequence[str], marks: Sequence[bool]) -> bool:
    """Return whether the answer after some attempts is right: the last one, or that of a vote."""
    answered = [place for place, key in enumerate(keys) if key]
    if _takes_last(name):
        return bool(answered) and marks[answered[-1]]
    place = vote(keys)
    return place >= 0 and marks[place]


def _by_tokens(name: str, problems: Sequence[tuple[ProblemSolution, Sequence[bool]]]) -> list[CurvePoint]:
    most = sorted(tokens for one, _ in problems for tokens in one.tokens[-1:])
    if not most:
        return []
    # The last point is the 90th percentile, because only few problems have more tokens.
    end = most[min(len(most) - 1, 9 * len(most) // 10)]
    made: list[CurvePoint] = []
    for step in range(1, STEPS + 1):
        limit, right = end * step // STEPS, 0
        for one, marks in problems:
            count = sum(tokens <= limit for tokens in one.tokens)
            right += _after(name, one.keys[:count], marks[:count])
        made.append(CurvePoint(limit, right / len(problems)))
    return made


def _by_attempts(name: str, problems: Sequence[tuple[ProblemSolution, Sequence[bool]]]) -> list[CurvePoint]:
    most = max((len(one.keys) for one, _ in problems), default=0)
    shares = [
        CurvePoint(
            count,
            sum(_after(name, one.keys[:count], marks[:count]) for one, marks in problems) / len(problems),
        )
        for count in range(1, most + 1)
    ]
    # Points after which nothing changes are left out.
    return shares[:1] + [b for a, b in pairwise(shares) if a.share != b.share]


# --- report -------------------------------------------------------------------------------------------------------


def summary(made: CooperationFigures) -> list[str]:
    """Return the result as text, one line per method."""
    wide = max(len(one.name) for one in made.methods)
    return [
        f"{one.name:<{wide}}  {percent(one.solved.rate):>5}  {_against(one)}".rstrip() for one in made.methods
    ]


def report(made: CooperationFigures) -> kinds.Report:
    """Return the figures as a report."""
    texts = kinds.TEXTS["cooperation"]
    better = [one.name for one in made.methods if one.sure and one.against and one.against.difference > 0]
    if not made.baseline:
        headline = "There is no method with which the others can be compared"
    elif better:
        headline = f"{', '.join(better)} solved more problems than {made.baseline} with equal tokens"
    else:
        headline = f"No method is shown to solve more problems than {made.baseline} with equal tokens"
    facts: kinds.Facts = {
        "Model": made.model,
        "Problems": f"{made.problems:,}",
        "Tokens per problem": f"{made.tokens:,}",
        "Difference of totals": f"{made.spread:.1%}" + ("" if made.spread <= EQUAL else " (not equal)"),
        "Without an answer": "; ".join(
            f"{one.name} {one.unanswered:,}" for one in made.methods if one.unanswered
        ),
        **({"Failed": f"{counted(made.failed, 'block')} of problems"} if made.failed else {}),
    }
    plots = [made.plot()] if any(one.by_tokens for one in made.methods) else []
    if any(len(one.by_attempts) > 1 for one in made.methods):
        plots.append(_curves(made, "by_attempts", "attempts", "Solved problems over attempts"))
    return kinds.Report(
        "Cooperation",
        headline,
        texts["lede"],
        facts,
        {
            "Methods": [
                _table(made),
                kinds.Note(texts["table"]),
                *(kinds.Picture(one.name) for one in plots),
            ],
            "Problems": _problems(made),
            "Method": [
                kinds.Heading("Method"),
                kinds.Paragraph(texts["method"]),
                kinds.Note(texts["limits"]),
            ],
        },
        plots,
    )


def _table(made: CooperationFigures) -> kinds.Grid:
    rows: list[Any] = []
    for one in made.methods:
        usage, of, right = one.usage, max(1, one.solved.of), one.solved.count
        rows.append(
            (
                one.name,
                kinds.share_cell(one.solved),
                _against(one),
                f"{len(one.won):,} / {len(one.lost):,}" if one.against else "",
                f"{usage.total / of:,.0f}",
                percent(usage.cached / usage.prompt) if usage.prompt else "",
                f"{usage.total / right:,.0f}" if right else "",
                money(usage.usd / right) if right and usage.usd else "",
            )
        )
    head = ("Method", "Solved", f"Against {made.baseline}", "Won / lost", "Tokens per problem",
            "Prompt cached", "Tokens per solved", "Cost per solved")  # fmt: skip
    return kinds.Grid(head, rows, title="Methods")


def _against(one: MethodFigures) -> str:
    if one.against is None:
        return ""
    low, high = points(one.against.low), points(one.against.high)
    return f"{points(one.against.difference)} ({low} to {high})" + (" ●" if one.sure else "")


def _problems(made: CooperationFigures) -> list[kinds.Block]:
    folds: list[kinds.Block] = []
    for one in made.methods:
        lines = [f"{title}: {', '.join(names[:40])}{' …' if len(names) > 40 else ''}"
                 for title, names in (("won", one.won), ("lost", one.lost)) if names]  # fmt: skip
        if lines:
            folds.append(kinds.Details(f"{one.name} against {made.baseline}", [kinds.Points(lines)]))
    return [kinds.Heading("Problems"), *folds] if folds else []


def _curves(made: CooperationFigures, field: str, unit: str, title: str) -> Plot:
    rows: list[dict[str, Any]] = [
        {"name": one.name, "x": point.at, "y": point.share}
        for one in made.methods
        for point in getattr(one, field)
    ]
    caption = kinds.TEXTS["cooperation"][field]
    return plot_of(field.replace("_", "-"), title, caption, lambda width: lines(rows, width - 50, unit))
