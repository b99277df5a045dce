"""The report of an evaluation: the paper's Table 3 with ours below, as JSON, Markdown, plots and a page.

The one decision to know: nothing here counts but `report_of`. All forms are made from the one `HumanEvalReport`, which is also the
JSON, so that they say the same. Text of models stands in the page as text, and in the Markdown in fences that it cannot end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
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
from camel.reports.html import money
from camel.reports.markdown import fenced, grid, md

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


# --- the table, for all forms --------------------------------------------------------------------------------------


def table(made: HumanEvalReport) -> tuple[list[str], list[list[str]]]:
    """The paper's Table 3: its own lines, then ours with their intervals."""
    ks = sorted({1, 100} | {one.k for one in made.humaneval})
    head = ["pass@k [%]", *(f"{title} k = {k}" for title in SUITES.values() for k in ks)]
    rows: list[list[str]] = []
    for paper in made.paper:
        cells = [
            f"{values[k]:.1f}" if k in values else "–" for values in (paper.humaneval, paper.plus) for k in ks
        ]
        rows.append([f"{paper.model} (paper)", *cells])
    ours = [{one.k: one for one in found} for found in (made.humaneval, made.plus)]
    rows.append([made.model, *(points(found[k]) if k in found else "–" for found in ours for k in ks)])
    return head, rows


def points(one: Passing) -> str:
    """A rate and its interval, in per cent."""
    return f"{100 * one.rate:.1f} ({100 * one.low:.1f} – {100 * one.high:.1f})"


def notes(made: HumanEvalReport) -> list[str]:
    """What one would say first, from the figures alone; plain text."""
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
        said.append(f"{only:,} samples pass HumanEval and not the further inputs of HumanEval+.")
    never = sum(not one.humaneval for one in made.by_problem)
    said.append(f"{never:,} problems were not solved by any sample.")
    if made.cut_off:
        said.append(
            f"{made.cut_off:,} answers were cut off at their length limit; with a larger one more may pass."
        )
    if made.refused:
        said.append(f"{made.refused:,} samples were refused by the endpoint; they count as not passed.")
    if made.problems < COUNT:
        said.append("This is a part of the problems: its figures are not to be compared with the paper's.")
    if not made.contained:
        said.append("The programs ran without a sandbox: they could have forged what they are measured by.")
    return said


# --- Markdown ------------------------------------------------------------------------------------------------------


def markdown(made: HumanEvalReport) -> str:
    """The report as Markdown."""
    head, rows = table(made)
    usage = made.usage
    lines = [
        f"# HumanEval of {md(made.model)}",
        "",
        *(f"- {md(one)}" for one in notes(made)),
        "",
        *grid(head, rows, 1),
        "",
        "In brackets: 95% intervals (bootstrap over the problems). The estimate of pass@k is the unbiased one.",
        "",
        "## What became of the samples",
        "",
        *grid(
            ["", "samples"], [[WORDS.get(kind, kind), f"{count:,}"] for kind, count in made.outcomes.items()]
        ),
        "",
        "## Cost",
        "",
        *grid(
            ["calls", "prompt tokens", "completion tokens", "money"],
            [[f"{usage.calls:,}", f"{usage.prompt:,}", f"{usage.completion:,}", money(made.money)]],
        ),
        "",
        "## Configuration",
        "",
        *fenced(msgspec.json.format(msgspec.json.encode(made.config), indent=2).decode(), "json"),
        "",
        "## Samples",
        "",
    ]
    for one in made.examples:
        lines += [f"### {md(one.problem)}, sample {one.number}: {md(one.kind)}", ""]
        lines += [md(one.detail), ""] if one.detail else []
        lines += [*fenced(one.program or one.answer, "python" if one.program else ""), ""]
    lines += ["## Problems", ""]
    lines += grid(
        ["problem", "pass HumanEval", "pass HumanEval+", "programs"],
        [
            [one.problem, f"{one.humaneval:,}", f"{one.plus:,}", f"{one.programs:,}"]
            for one in made.by_problem
        ],
    )
    return "\n".join(lines) + "\n"


# --- plots ---------------------------------------------------------------------------------------------------------


# --- page ----------------------------------------------------------------------------------------------------------
