"""The figures of an evaluation with HumanEval, and sentences about them.

The one decision to know: only `report_of` computes figures. Reports use its `HumanEvalReport`, which is stored as JSON.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import util
from math import comb
from typing import TYPE_CHECKING, Any

import msgspec

from camel.core.errors import InputError, MissingExtra
from camel.core.message import Usage
from camel.evaluation.humaneval.judging import ProgramVerdict
from camel.evaluation.humaneval.problems import COUNT
from camel.evaluation.humaneval.records import JudgedProblem, Sample
from camel.jobs.state import price_of
from camel.reports.blocks import TEXTS, Cell, Grid, Inline, Muted, Span
from camel.reports.intervals import ReportFigures, wilson
from camel.reports.numbers import bounds

if TYPE_CHECKING:
    from camel.evaluation.humaneval.solving import HumanEval


RESAMPLES = 5_000
SEED = 164


class Passing(msgspec.Struct, frozen=True):
    """pass@k with its 95% interval."""

    k: int
    rate: float
    low: float
    high: float


def pass_at(n: int, passed: int, k: int) -> float:
    """Return the probability that k of n samples, of which `passed` pass, contain at least one that passes."""
    if not 0 < k <= n or not 0 <= passed <= n:
        raise ValueError(f"pass@{k} of {n} samples, {passed} passed: k must be from 1 to {n}")
    # Integers are exact; there is only one division.
    return 1.0 if n - passed < k else (comb(n, k) - comb(n - passed, k)) / comb(n, k)


def passing(n: int, passed: Sequence[int], ks: Sequence[int]) -> list[Passing]:
    """Return pass@k for every k, an unbiased estimate. `passed` contains, for each problem, how many of its n samples passed.

    The intervals are a percentile bootstrap over problems, because the 164 problems are a sample of all possible ones. The
    samples of a problem are not resampled.
    """
    rates = {k: {c: pass_at(n, c, k) for c in set(passed)} for k in ks}
    rng, count = random.Random(SEED), len(passed)  # noqa: S311 - no secret
    # The same resamples for every k, so that intervals can be compared.
    means: dict[int, list[float]] = {k: [] for k in ks}
    for _ in range(RESAMPLES if count else 0):
        drawn = rng.choices(passed, k=count)
        for k in ks:
            means[k].append(sum(map(rates[k].__getitem__, drawn)) / count)
    found: list[Passing] = []
    for k in ks:
        if not count:
            found.append(Passing(k, 0.0, 0.0, 1.0))
            continue
        rate = sum(rates[k][c] for c in passed) / count
        if rate in (0.0, 1.0):
            # The bootstrap has no spread if all problems are alike, so use Wilson's interval over the problems.
            whole = wilson(round(rate) * count, count)
            found.append(Passing(k, rate, whole.low, whole.high))
            continue
        means[k].sort()
        low, high = (means[k][min(RESAMPLES - 1, round(RESAMPLES * q))] for q in (0.025, 0.975))
        found.append(Passing(k, rate, min(low, rate), max(high, rate)))
    return found


SUITES = {"humaneval": "HumanEval", "plus": "HumanEval+"}
SHOWN = 3
"""Number of samples that the report shows for each kind of result."""
MOST_CHARS = 4_000
WORDS = TEXTS["outcomes"]


class PaperTable3Row(msgspec.Struct, frozen=True):
    """A row of the paper's Table 3: percentages by suite and k."""

    model: str
    humaneval: dict[int, float]
    plus: dict[int, float]


PAPER = (
    PaperTable3Row("gpt-3.5-turbo", {1: 69.4, 100: 94.0}, {1: 61.7, 100: 89.8}),
    PaperTable3Row("LLaMA-7B", {1: 10.5, 100: 36.5}, {}),
    PaperTable3Row("Vicuna-7B", {1: 11.0, 100: 42.9}, {1: 9.9, 100: 34.7}),
    PaperTable3Row("CAMEL-7B", {1: 14.0, 100: 57.9}, {1: 12.2, 100: 50.0}),
)


class ProblemResult(msgspec.Struct, frozen=True):
    """Numbers of samples of one problem that passed each suite."""

    problem: str
    humaneval: int
    plus: int
    programs: int
    """Number of distinct programs among the samples."""


class ShownSample(msgspec.Struct, frozen=True):
    """A sample that the report shows."""

    problem: str
    number: int
    kind: str
    detail: str
    program: str
    answer: str


class HumanEvalReport(ReportFigures, frozen=True):
    """All figures, as stored in `humaneval.json`."""

    file = "humaneval"
    model: str
    n: int
    problems: int
    humaneval: list[Passing]
    plus: list[Passing]
    curve: dict[str, list[Passing]]
    """pass@k by suite, for the values of k in the plot."""
    by_problem: list[ProblemResult]
    outcomes: dict[str, int]
    """Number of samples per kind of result, the most frequent first."""
    cut_off: int
    """Number of samples that ended at the token limit."""
    refused: int
    """Number of samples for which the endpoint refused to answer."""
    programs: int
    """Number of distinct programs that were run."""
    usage: Usage
    money: float | None
    config: dict[str, Any]
    fingerprint: str
    contained: bool
    """Whether programs ran in the sandbox."""
    examples: list[ShownSample]
    paper: tuple[PaperTable3Row, ...] = PAPER


def check_extra() -> None:
    """Raise `MissingExtra` if the package that draws plots is not installed. Call this before the first paid call."""
    if util.find_spec("vl_convert") is None:
        raise MissingExtra("Drawing a report", "evaluate")


def report_of(job: HumanEval) -> HumanEvalReport:
    """Compute the figures of a HumanEval evaluation from its samples and verdicts. All stages must be finished."""
    n, samples, judged = job.n, job.samples(), job.verdicts(contained=job.contained)
    ks, price = job.ks or [k for k in (1, 10, 100) if k <= n], price_of(job.model)
    if any(not 1 <= k <= n for k in ks):
        raise InputError(f"pass@k needs at least k samples: with {n} samples, k must be from 1 to {n}")
    counted = [
        ProblemResult(
            one.problem,
            sum(one.verdicts[place].humaneval for place in one.samples),
            sum(one.verdicts[place].plus for place in one.samples),
            sum(bool(program) for program in one.programs),
        )
        for one in judged
    ]
    by_suite = {
        "humaneval": [one.humaneval for one in counted],
        "plus": [one.plus for one in counted],
    }
    drawn = sorted(
        {*(k for k in (1, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 150, 200, 500, 1000) if k <= n), n, *ks}
    )
    curve = {suite: passing(n, passed, drawn) for suite, passed in by_suite.items()}
    every = [one for row in samples for one in row]
    usage = sum((one.usage for one in every), Usage())
    outcomes = Counter(kind_of(one.verdicts[place]) for one in judged for place in one.samples)
    return HumanEvalReport(
        job.config.model,
        n,
        len(judged),
        [one for one in curve["humaneval"] if one.k in ks],
        [one for one in curve["plus"] if one.k in ks],
        curve,
        counted,
        dict(sorted(outcomes.items(), key=lambda item: (-item[1], item[0]))),
        sum(one.finish == "length" for one in every),
        sum(bool(one.error) for one in every),
        sum(one.programs for one in counted),
        usage,
        None if price is None else price.cost(usage),
        msgspec.to_builtins(job.config),
        job.config.fingerprint,
        job.contained,
        list(_examples(samples, judged)),
    )


def kind_of(verdict: ProgramVerdict) -> str:
    """Return the kind of result of a sample: `passed`, or why it failed."""
    return "passed" if verdict.humaneval and verdict.plus else verdict.why


def _examples(samples: Sequence[Sequence[Sample]], judged: Sequence[JudgedProblem]) -> Iterator[ShownSample]:
    """Yield random samples of each kind of result, at most one per kind and problem."""
    order = [(place, number) for place, one in enumerate(judged) for number in range(len(one.samples))]
    random.Random(1).shuffle(order)  # noqa: S311 - no secret
    found: dict[str, list[ShownSample]] = {}
    seen: set[tuple[str, int]] = set()
    for place, number in order:
        one, which = judged[place], judged[place].samples[number]
        verdict, kind = one.verdicts[which], kind_of(one.verdicts[which])
        if verdict.humaneval and not verdict.plus:
            kind = "passed HumanEval only"
        mine = found.setdefault(kind, [])
        if len(mine) >= SHOWN or (kind, place) in seen:
            continue
        seen.add((kind, place))
        answer = samples[place][number].content
        mine.append(
            ShownSample(
                one.problem,
                number,
                kind,
                verdict.detail,
                one.programs[which][:MOST_CHARS],
                answer[:MOST_CHARS],
            )
        )
    for kind in sorted(found, key=lambda kind: (not kind.startswith("passed"), kind)):
        yield from found[kind]


def table(ours: Mapping[str, tuple[Sequence[Passing], Sequence[Passing]]]) -> Grid:
    """Return a table with the rows of the paper's Table 3, then a row with intervals for each given model."""
    ks = sorted({1, 100} | {one.k for suites in ours.values() for one in suites[0]})
    head = ["pass@k [%]", *(f"{title} k = {k}" for title in SUITES.values() for k in ks)]
    rows: list[Muted | list[Cell]] = []
    for paper in PAPER:
        suites = (paper.humaneval, paper.plus)
        cells = (f"{suite[k]:.1f}" if k in suite else "–" for suite in suites for k in ks)
        rows.append(Muted([f"{paper.model} (paper)", *cells]))
    for model, suites in ours.items():
        found = [{one.k: points(one) for one in suite} for suite in suites]
        rows.append([Span(model, "strong"), *(suite.get(k, "–") for suite in found for k in ks)])
    return Grid(head, rows, title="pass@k and the paper's Table 3")


def points(one: Passing) -> Inline:
    """Return pass@k and its interval, in percent."""
    return f"{100 * one.rate:.1f} ", Span(bounds(one.low, one.high).removesuffix("%"), "interval")


def notes(made: HumanEvalReport) -> list[str]:
    """Return the main findings as plain sentences."""
    total = made.n * made.problems
    said = [
        f"{made.n:,} samples for each of {made.problems:,} problems contain {made.programs:,} different programs.",
        *(
            f"{count:,} of {total:,} samples ({count / total:.1%}) {WORDS.get(kind, kind)}."
            for kind, count in list(made.outcomes.items())[:4]
        ),
    ]
    only = sum(one.humaneval for one in made.by_problem) - sum(one.plus for one in made.by_problem)
    if only > 0:
        said.append(f"{only:,} samples passed HumanEval but failed on the additional inputs of HumanEval+.")
    never = sum(not one.humaneval for one in made.by_problem)
    said.append(f"{never:,} of the problems were not solved by any sample.")
    if made.cut_off:
        said.append(
            f"{made.cut_off:,} answers were cut off at the token limit; with a higher limit, more may pass."
        )
    if made.refused:
        said.append(f"The endpoint refused {made.refused:,} samples; they count as not passed.")
    if made.problems < COUNT:
        said.append("Only some problems were used, so the figures cannot be compared with the paper's.")
    if not made.contained:
        said.append("The programs ran without a sandbox and could have forged their results.")
    return said
