"""The report of an evaluation with HumanEval, and its plots."""

from __future__ import annotations

from msgspec import to_builtins

from camel.evaluation.humaneval.report import (
    FIGURES,
    SUITES,
    WORDS,
    HumanEvalReport,
    ShownSample,
    notes,
    table,
)
from camel.reports import blocks as kinds
from camel.reports.numbers import FEW, bounds, cost, counted
from camel.reports.plots import Plot, bars, drawing, plot


def plots(made: HumanEvalReport) -> list[Plot]:
    """Return the plots for which there is enough data."""
    found = [_curve(made)] if made.n > 1 and made.problems >= FEW else []
    if made.problems > 1:
        found.append(_by_problem(made))
    return [*found, _outcomes(made)] if len(made.outcomes) > 1 else found


def _curve(made: HumanEvalReport) -> Plot:
    rows = [
        {"suite": SUITES[suite], **to_builtins(one)} for suite, found in made.curve.items() for one in found
    ]
    ticks = [one.k for one in made.curve["humaneval"] if str(one.k)[0] in "125"]
    caption = f"Unbiased estimates from {made.n:,} samples for each of {made.problems:,} problems. Bands are 95% intervals."
    return plot("pass-at-k", "pass@k", caption, lambda width: drawing("curve", rows, width - 50, ticks=ticks))


def _outcomes(made: HumanEvalReport) -> Plot:
    rows = [{"name": WORDS.get(kind, kind), "count": count} for kind, count in made.outcomes.items()]
    caption = f"{sum(made.outcomes.values()):,} samples, by their first failure."
    return plot("outcomes", "Results of the samples", caption, lambda width: bars(rows, width))


def _by_problem(made: HumanEvalReport) -> Plot:
    rows = [
        {"suite": title, "problem": place, "share": getattr(one, suite) / made.n}
        for suite, title in SUITES.items()
        for place, one in enumerate(made.by_problem)
    ]
    caption = f"Each of {made.problems:,} problems is a column. A darker column has a larger share of samples that pass."
    return plot(
        "by-problem",
        "Share of samples that pass, by problem",
        caption,
        lambda width: drawing("strips", rows, width - 90, problems=made.problems),
    )


def report(made: HumanEvalReport) -> kinds.Report:
    """Build the report from its figures."""
    problems = [
        (one.problem, f"{one.humaneval:,}", f"{one.plus:,}", f"{one.programs:,}") for one in made.by_problem
    ]
    head = ("Problem", "Pass HumanEval", "Pass HumanEval+", "Programs")
    return kinds.Report(
        "HumanEval",
        _headline(made),
        kinds.TEXTS["humaneval"]["lede"].format(programs=counted(made.n, "program"), problems=made.problems),
        _facts(made),
        {
            "Results": _results(made),
            "Problems": [
                kinds.Picture("by-problem"),
                kinds.Details("Each problem", [kinds.Grid(head, problems)]),
            ],
            "Failures": [kinds.Picture("outcomes")],
            "Samples": _samples(made),
            "Method": _method(made),
        },
        plots(made),
    )


def _headline(made: HumanEvalReport) -> str:
    one = made.humaneval[0]
    passed = (
        f"{100 * one.rate:.1f}%"
        if made.problems >= FEW
        else f"{one.rate * made.problems:.1f} of {made.problems}"
    )
    return f"{made.model} solves {passed} of the HumanEval problems with {counted(one.k, 'attempt')}"


def _facts(made: HumanEvalReport) -> kinds.Facts:
    rates: kinds.Facts = {
        f"{title}, pass@{one.k}": [
            f"{100 * one.rate:.1f}% ",
            kinds.Span(bounds(one.low, one.high), "interval"),
        ]
        for title, found in zip(SUITES.values(), (made.humaneval, made.plus), strict=True)
        for one in (found[0], found[-1])
        if made.problems >= FEW
    }
    return {
        "Model": made.model,
        "Samples": f"{made.n:,} for each of {counted(made.problems, 'problem')}",
        **rates,
        "Calls": f"{made.usage.calls:,}, {cost(made.money)}",
    }


def _results(made: HumanEvalReport) -> list[kinds.Block]:
    note = "In percent, with 95% intervals by bootstrap over the problems. The rows of the paper's Table 3 have no intervals."
    return [
        table({made.model: (made.humaneval, made.plus)}),
        kinds.Note(note),
        kinds.Points(notes(made)),
        kinds.Picture("pass-at-k"),
    ]


def _samples(made: HumanEvalReport) -> list[kinds.Block]:
    folds: list[kinds.Block] = []
    for kind in dict.fromkeys(one.kind for one in made.examples):
        title = WORDS.get(kind, kind)
        quotes = [_sample(one) for one in made.examples if one.kind == kind]
        folds.append(kinds.Details(title[:1].upper() + title[1:], quotes, open=not folds))
    note = "Random samples of each result: the program that ran, or the reply if it contained none."
    return [kinds.Heading("Samples"), kinds.Note(note), *folds]


def _sample(one: ShownSample) -> kinds.Quote:
    head = [
        kinds.Span(one.problem, "good" if one.kind == "passed" else "bad"),
        kinds.Span(f"sample {one.number}", "source"),
    ]
    return kinds.Quote(head, one.program or one.answer, reason=one.detail, mono=True)


def _method(made: HumanEvalReport) -> list[kinds.Block]:
    usage = made.usage
    where = kinds.TEXTS["humaneval"]["sandbox"] if made.contained else "The programs ran without a sandbox."
    used = f"{usage.calls:,} calls, {usage.prompt:,} prompt and {usage.completion:,} completion tokens, {cost(made.money)}"
    return [
        kinds.Heading("Method"),
        kinds.Paragraph(kinds.TEXTS["humaneval"]["method"].format(where=where)),
        kinds.Paragraph(
            kinds.styled("{}. Fingerprint `{}`. All figures are in `{}`.", used, made.fingerprint, FIGURES)
        ),
        kinds.settings_block(made.config),
    ]
