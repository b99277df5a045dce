"""The figures of an evaluation with HumanEval, and what they say.

The one decision to know: only `report_of` counts. The report is made from the one `HumanEvalReport`, which is also the JSON.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import util
from typing import Any

import msgspec

from camel.core.errors import InputError, MissingExtra
from camel.core.message import Usage
from camel.core.model import Price
from camel.evaluation.humaneval.judging import ProgramVerdict
from camel.evaluation.humaneval.passing import Passing, passing
from camel.evaluation.humaneval.problems import COUNT
from camel.evaluation.humaneval.records import HumanEvalConfig, JudgedProblem, Sample
from camel.reports.blocks import Cell, Grid, Inline, Muted, Span
from camel.reports.numbers import bounds

PAGE, MARKDOWN, FIGURES = "humaneval.html", "humaneval.md", "humaneval.json"
SUITES = {"humaneval": "HumanEval", "plus": "HumanEval+"}
SHOWN = 3
"""Samples of each kind that are shown."""
MOST_CHARS = 4_000
WORDS = {
    "passed": "passed both",
    "wrong": "gave a wrong answer",
    "raised": "raised an exception",
    "time": "took too long",
    "no code": "had no program that is Python",
    "ended": "ended the interpreter",
    "foreign": "answered with no plain value",
    "size": "answered with too much",
    "damaged": "sent what is no answer",
    "killed": "were killed by the kernel",
}


class PaperTable3Row(msgspec.Struct, frozen=True):
    """A line of the paper's Table 3: percentages by suite and k."""

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
    """One problem: how many of its samples passed."""

    problem: str
    humaneval: int
    plus: int
    programs: int
    """That differ."""


class ShownSample(msgspec.Struct, frozen=True):
    """A sample to be looked at."""

    problem: str
    number: int
    kind: str
    detail: str
    program: str
    answer: str


class HumanEvalReport(msgspec.Struct, frozen=True):
    """Everything that was found."""

    model: str
    n: int
    problems: int
    humaneval: list[Passing]
    plus: list[Passing]
    curve: dict[str, list[Passing]]
    """pass@k for enough k to draw it, by suite."""
    by_problem: list[ProblemResult]
    outcomes: dict[str, int]
    """What became of the samples, most frequent first."""
    cut_off: int
    """Samples that ended at their length limit."""
    refused: int
    """Samples that the endpoint will not give."""
    programs: int
    """That differ, and were run."""
    usage: Usage
    money: float | None
    config: dict[str, Any]
    fingerprint: str
    contained: bool
    """Whether programs ran in the sandbox."""
    examples: list[ShownSample]
    paper: tuple[PaperTable3Row, ...] = PAPER

    def to_json(self) -> bytes:
        """All of it."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def check_extra() -> None:
    """Make sure that a report can be drawn, before anything is paid for it."""
    if util.find_spec("vl_convert") is None:
        raise MissingExtra("Drawing a report", "evaluate")


def default_ks(n: int) -> list[int]:
    """1, 10 and 100, as far as there are samples for them."""
    return [k for k in (1, 10, 100) if k <= n]


def report_of(
    config: HumanEvalConfig,
    n: int,
    ks: Sequence[int],
    samples: Sequence[Sequence[Sample]],
    judged: Sequence[JudgedProblem],
    *,
    price: Price | None,
    contained: bool,
) -> HumanEvalReport:
    """Count."""
    if any(not 1 <= k <= n for k in ks):
        raise InputError(f"pass@k needs at least k samples: with {n} of them k is 1 to {n}")
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
        config.model,
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
        msgspec.to_builtins(config),
        config.fingerprint,
        contained,
        list(_examples(samples, judged)),
    )


def kind_of(verdict: ProgramVerdict) -> str:
    """What became of a sample, in a word."""
    return "passed" if verdict.humaneval and verdict.plus else verdict.why


def _examples(samples: Sequence[Sequence[Sample]], judged: Sequence[JudgedProblem]) -> Iterator[ShownSample]:
    """Of each kind some, drawn by chance, no two of a problem."""
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
    """The paper's Table 3: its own rows, then those of our models with their intervals."""
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
    """A rate and its interval, in per cent."""
    return f"{100 * one.rate:.1f} ", Span(bounds(one.low, one.high).removesuffix("%"), "interval")


def notes(made: HumanEvalReport) -> list[str]:
    """The findings of the figures, as sentences in plain text."""
    total = made.n * made.problems
    said = [
        f"{made.n:,} samples of each of {made.problems:,} problems, {made.programs:,} different programs.",
        *(
            f"{count:,} of {total:,} samples ({count / total:.1%}) {WORDS.get(kind, kind)}."
            for kind, count in list(made.outcomes.items())[:4]
        ),
    ]
    only = sum(one.humaneval for one in made.by_problem) - sum(one.plus for one in made.by_problem)
    if only > 0:
        said.append(f"{only:,} samples pass HumanEval but not the additional inputs of HumanEval+.")
    never = sum(not one.humaneval for one in made.by_problem)
    said.append(f"No sample solved {never:,} of the problems.")
    if made.cut_off:
        said.append(
            f"{made.cut_off:,} answers were cut off at their length limit; with a higher limit more may pass."
        )
    if made.refused:
        said.append(f"The endpoint refused {made.refused:,} samples; they count as not passed.")
    if made.problems < COUNT:
        said.append("Only some of the problems were used: the figures cannot be compared with the paper's.")
    if not made.contained:
        said.append("The programs ran without a sandbox and could have forged their results.")
    return said
