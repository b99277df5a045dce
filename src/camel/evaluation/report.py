"""The report of an evaluation of agents: the paper's Table 1 and the figures of this evaluation.

The one decision to know: this module computes nothing. All numbers come from the `Evaluation`, which is stored as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from camel.core.message import Usage
from camel.evaluation.agreement import Kappa
from camel.evaluation.contest_records import AGENTS
from camel.evaluation.pairs import Pair, PairVerdict, Winner, write_pairs, write_verdicts
from camel.evaluation.report_table import (
    STEPS,
    WORDS,
    TableRow,
    by_judge,
    headline,
    plots,
    points,
    table,
    titled,
)
from camel.evaluation.results import Comparison, Evaluation, ShownPair
from camel.evaluation.standing import Interval, Position, WinShares
from camel.reports import blocks as kinds
from camel.reports.intervals import Rate
from camel.reports.numbers import FEW, bounds, cost, percent, probability, short, signed
from camel.storage import inside

T = TypeVar("T")
STYLES: dict[Winner | None, kinds.Style] = {"a": "a", "b": "b", "draw": "drawn", None: "muted"}


def write_evidence(
    folder: Path, prompts: Mapping[str, str], pairs: Iterable[Pair], verdicts: Iterable[PairVerdict]
) -> None:
    """Write what a reader needs to check the figures of judges: the prompts, the pairs and the verdicts."""
    for name, prompt in prompts.items():
        inside.write(folder, f"prompts/{name}.txt", prompt + "\n")
    write_pairs(folder, pairs)
    write_verdicts(folder, verdicts)


def report(made: Evaluation) -> kinds.Report:
    """Build the report of an evaluation."""
    runs = [one.run for one in made.drawn]
    return kinds.Report(
        "Evaluation",
        headline(made),
        kinds.TEXTS["evaluation"]["lede"],
        _facts(made),
        {"Results": _results(made), **judging(made), "Method": _method(made)},
        plots(made),
        runs[0] if len(runs) == 1 else "",
    )


def judging(made: Evaluation) -> kinds.Sections:
    """Return the report's sections about judges, solutions and cost. They fit any kind of comparison."""
    return {
        "Order": _order(made),
        "Length": _length(made),
        "Judges": _judges(made),
        "Ratings": _ratings(made) if made.ratings else [],
        "Pairs": _pairs(made.examples),
        "Cost": _cost(made),
    }


def cost_fact(costs: Sequence[Usage], dollars: float | None) -> kinds.Facts:
    """Return the total cost as a fact: in dollars if all prices are known, otherwise in tokens."""
    usage = sum(costs, Usage())
    if dollars is None:
        return {"Tokens": f"{short(usage.total)}, {usage.calls:,} calls"}
    return {"Cost": f"{cost(dollars)}, {usage.calls:,} calls, {short(usage.total)} tokens"}


def _facts(made: Evaluation) -> kinds.Facts:
    pairs = list(dict.fromkeys((one.a, one.b) for one in made.headline))
    about = {one.name: f"{one.name}: {one.made}" for one in reversed(made.systems)}
    a, b = ("the first of two systems", "the second")
    if len(pairs) == 1:
        a, b = (about.get(name, name) for name in pairs[0])
    judged = [one.position for one in made.comparisons if one.position]
    flips, of = sum(one.flips for one in judged), sum(one.pairs for one in judged)
    agreed = made.agreement[-1].kappa if made.agreement else None
    known = agreed is not None and agreed.kappa is not None
    return {
        "Run" if len(made.drawn) == 1 else "Runs": kinds.joined(
            kinds.Span(one.run, "mono") for one in made.drawn if one.run
        ),
        kinds.A: a,
        kinds.B: b,
        "Judge" if len(made.judges) == 1 else "Judges": ", ".join(made.judges),
        "Pairs": f"{sum(one.shares.of for one in made.headline):,} judged",
        "Order": f"{flips:,} of {of:,} verdicts depend on it" if of else "",
        "Agreement": f"{agreed.observed:.0%}, kappa {_kappa(agreed)}" if agreed and known else "",
        **cost_fact([one.usage for one in made.costs], made.money),
    }


def _results(made: Evaluation) -> list[kinds.Block]:
    rows, alone = table(made), by_judge(made)
    several = len({(row.a, row.b) for row in rows if row.ours}) > 1
    return [
        kinds.Picture("results"),
        kinds.Note(kinds.TEXTS["evaluation"]["results"]),
        kinds.Points(points(made)),
        _wins(rows, "Verdicts", several=several),
        kinds.Note(kinds.TEXTS["evaluation"]["paper"]),
        *([kinds.Details("Each judge alone", [_wins(alone, "", several=several)])] if alone else []),
    ]


def rate_cell(value: Rate | float) -> kinds.Inline:
    """Return a share as a table cell, with its interval if it has one."""
    return kinds.share_cell(value) if isinstance(value, Rate) else f"{value:.1%}"


def _wins(rows: Sequence[TableRow], title: str, *, several: bool) -> kinds.Grid:
    body: list[Sequence[kinds.Cell] | kinds.Muted] = []
    last = ""
    for row in rows:
        name = "" if row.dataset == last else row.dataset
        last = row.dataset
        rates = (row.wins, row.draws, row.losses)
        cells: list[kinds.Cell] = [
            kinds.Span(name, "strong") if row.ours else name,
            row.evaluation,
            *([f"{row.a} / {row.b}"] if several else []),
            kinds.OutcomeBar(*(one.rate if isinstance(one, Rate) else one for one in rates)),
            *map(rate_cell, rates),
            f"{row.of:,}",
        ]
        body.append(cells if row.ours else kinds.Muted(cells))
    names = ("Dataset", "Evaluation", *(("A / B",) if several else ()), "")
    return kinds.Grid((*names, "A won", "Drawn", "A lost", "Verdicts"), body, len(names), title=title)


def _compared(
    made: Evaluation,
    title: str,
    items: Iterable[tuple[Comparison, T]],
    columns: Mapping[str, Callable[[T], kinds.Cell]],
) -> kinds.Grid:
    """Return a table with a row for each comparison. The first cells of a row name the dataset, the systems and the judge."""
    several = len({(one.a, one.b) for one in made.comparisons}) > 1
    head = ("Dataset", "A / B", "Judge") if several else ("Dataset", "Judge")
    body: list[list[kinds.Cell]] = []
    for one, of in items:
        names = [titled(one.group), *([f"{one.a} / {one.b}"] if several else []), one.judge]
        body.append([*names, *(cell(of) for cell in columns.values())])
    return kinds.Grid((*head, *columns), body, len(head), title=title)


def _order(made: Evaluation) -> list[kinds.Block]:
    columns: dict[str, Callable[[Position], kinds.Cell]] = {
        "Verdicts that change": lambda one: f"{one.flips:,} of {one.pairs:,}",
        "First won twice": lambda one: f"{one.to_first:,}",
        "Second won twice": lambda one: f"{one.to_second:,}",
        "Preference for the first": lambda one: _interval_cell(one.effect, one.pairs),
        "p": lambda one: probability(one.p),
        "A won if shown first": lambda one: rate_cell(one.a_first.wins),
        "A won if shown second": lambda one: rate_cell(one.b_first.wins),
    }
    items = [(one, one.position) for one in made.comparisons if one.position]
    table = _compared(made, "Verdicts in both orders", items, columns)
    return [kinds.Picture("order"), table, kinds.Note(kinds.TEXTS["evaluation"]["order"])]


def _length(made: Evaluation) -> list[kinds.Block]:
    def at_equal_length(one: Comparison) -> kinds.Cell:
        found = one.length.controlled
        return _interval_cell(found, one.shares.of) if found else "too few decided"

    columns: dict[str, Callable[[Comparison], kinds.Cell]] = {
        "Length ratio": lambda one: f"{one.length.ratio:.2f}" if one.shares.of else "–",
        "Longer won": lambda one: rate_cell(one.length.longer_wins),
        "A won if longer": lambda one: _won(one.length.a_longer),
        "if shorter": lambda one: _won(one.length.a_shorter),
        "Score of A": lambda one: _interval_cell(one.shares.score, one.shares.of),
        "at equal length": at_equal_length,
    }
    items = [(one, one) for one in made.comparisons]
    table = _compared(made, "Verdicts by length", items, columns)
    return [kinds.Picture("length"), table, kinds.Note(kinds.TEXTS["evaluation"]["length"])]


def _won(shares: WinShares) -> str:
    return f"{shares.wins.count:,} of {shares.of:,}"


def _interval_cell(value: Interval, of: int) -> kinds.Inline:
    """Return a figure in percent with its interval. Return a dash if there are too few items."""
    if of < FEW:
        return "–"
    return (f"{value.value:.0%} ".replace("-", "−"), kinds.Span(bounds(value.low, value.high), "interval"))


def _kappa(kappa: Kappa) -> str:
    if kappa.kappa is None:
        return "undefined" if kappa.items else "no pair in common"
    if kappa.low is None or kappa.high is None:
        return f"{kappa.kappa:.2f}"
    return f"{kappa.kappa:.2f} ({kappa.low:.2f} to {kappa.high:.2f})"


def _judges(made: Evaluation) -> list[kinds.Block]:
    columns: dict[str, Callable[[Comparison], kinds.Cell]] = {
        "Mean score of A": lambda one: f"{one.scores[0]:.1f}" if one.scores else "–",
        "of B": lambda one: f"{one.scores[1]:.1f}" if one.scores else "–",
        "Undecided pairs": lambda one: f"{one.shares.undecided:,}",
        "Same answer when asked again": lambda one: (
            rate_cell(one.consistency.same) if one.consistency else "not asked"
        ),
        "Kappa": lambda one: _kappa(one.consistency.kappa) if one.consistency else "",
    }
    agreement = [
        (", ".join(one.judges), f"{one.kappa.observed:.0%}", _kappa(one.kappa), f"{one.kappa.items:,}")
        for one in made.agreement
    ]
    head = ("Judges", "Agree", "Kappa", "Pairs")
    return [
        _compared(made, "The judges", [(one, one) for one in made.comparisons], columns),
        *([kinds.Grid(head, agreement, title="Agreement of judges")] if agreement else []),
        kinds.Note(kinds.TEXTS["evaluation"]["judges"]),
    ]


def _ratings(made: Evaluation) -> list[kinds.Block]:
    others = [one.system for one in made.ratings]
    rows = [
        (
            str(one.rank), one.system, signed(one.rating.value), f"{signed(one.rating.low)} to {signed(one.rating.high)}",
            *("" if other == one.system else percent(one.beats[other]) for other in others),
        )
        for one in made.ratings
    ]  # fmt: skip
    return [
        kinds.Picture("ratings"),
        kinds.Grid(
            ("Rank", "System", "Rating", "95%", *(f"beats {other}" for other in others)),
            rows,
            2,
            title="Ratings in numbers",
        ),
        kinds.Note("A draw counts as half a win. 95% intervals by bootstrap over the tasks."),
    ]


def _pairs(examples: Sequence[ShownPair]) -> list[kinds.Block]:
    note = kinds.TEXTS["evaluation"]["examples"]
    folds = [_pair(shown, is_first=not place) for place, shown in enumerate(examples)]
    return [kinds.Heading("Pairs"), kinds.Note(note), *folds] if folds else []


def _pair(shown: ShownPair, *, is_first: bool) -> kinds.Details:
    pair = shown.pair
    sides = [
        _side(kinds.A, pair.system_a, pair.text_a, pair),
        _side(kinds.B, pair.system_b, pair.text_b, pair),
    ]
    verdicts = [
        (
            kinds.Span(one.judge, "strong"),
            f" {WORDS[one.winner]}{_scores(one)}. {one.reason or 'No reason given.'}",
        )
        for one in shown.verdicts
    ]
    task = " ".join(pair.task.split())
    return kinds.Details(
        task if len(task) <= 72 else f"{task[:71]}…",
        [
            kinds.Paragraph(pair.task, "context"),
            kinds.Columns(sides),
            *(kinds.Paragraph(one, "reason") for one in verdicts),
        ],
        [
            kinds.Span(WORDS[shown.winner], STYLES[shown.winner]),
            kinds.Span(titled(pair.group), "muted"),
            *(kinds.Span(label, "bad") for label in pair.labels),
        ],
        open=is_first,
    )


def _side(letter: kinds.Span, system: str, said: str, pair: Pair) -> kinds.Quote:
    source = [kinds.Span(pair.source, "source", conversation=pair.source)] if system == AGENTS else []
    return kinds.Quote([letter, system, kinds.Span(f"{len(said.split()):,} words", "muted"), *source], said)


def _scores(one: PairVerdict) -> str:
    return "" if one.score_a is None or one.score_b is None else f", {one.score_a:g} to {one.score_b:g}"


def cost_table(
    costs: Iterable[tuple[kinds.Inline, str, Usage, float | None]], title: str = "Cost"
) -> kinds.Grid:
    """Return the table of the cost of each step, from the step, the model, its usage and the dollars."""
    rows = [
        (step, model, f"{usage.calls:,}", f"{usage.prompt:,}", f"{usage.completion:,}", cost(dollars))
        for step, model, usage, dollars in costs
    ]
    head = ("Step", "Model", "Calls", "Prompt tokens", "Completion tokens", "Cost")
    return kinds.Grid(head, rows, 2, title=title)


def _cost(made: Evaluation) -> list[kinds.Block]:
    steps = [(STEPS[one.step], one.model, one.usage, one.money) for one in made.costs]
    total = (kinds.Span("All", "strong"), "", sum((one.usage for one in made.costs), Usage()), made.money)
    systems = [
        (
            titled(one.group), one.name, one.made, one.model, f"{one.solutions:,}", f"{one.characters:,.0f}",
            f"{one.failed:,}", f"{one.cut_off:,}", f"{one.shortened:,}",
        )
        for one in made.systems
    ]  # fmt: skip
    head = ("Dataset", "System", "Made from", "Written by", "Solutions", "Mean characters", "Failed", "Cut off", "Partial")  # fmt: skip
    return [
        cost_table([*steps, total]),
        kinds.Grid(head, systems, 4, title="Solutions"),
        kinds.Note(
            "“Cut off”: ended at the token limit. “Partial”: the conversation did not fit into the summarizer's context window."
        ),
    ]


def _method(made: Evaluation) -> list[kinds.Block]:
    drawn = "; ".join(
        f"{titled(one.group)}: {one.tasks:,} of {one.of:,} conversations"
        + (f", {one.excluded:,} labeled ones excluded" if one.excluded else "")
        for one in made.drawn
    )
    decisive = ("config", "prompts", "judges", "drawn", "version")
    return [
        kinds.Heading("Method"),
        kinds.Paragraph(kinds.TEXTS["evaluation"]["method"]),
        kinds.Note(f"{drawn}."),
        kinds.settings_block({name: getattr(made, name) for name in decisive}),
    ]
