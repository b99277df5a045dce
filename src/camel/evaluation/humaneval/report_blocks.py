"""The report of an evaluation with HumanEval, and its plots."""

from __future__ import annotations

from pathlib import Path

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
from camel.reports import report_files
from camel.reports.blocks import (
    Block,
    Details,
    Grid,
    Heading,
    Note,
    Paragraph,
    Picture,
    Points,
    Quote,
    Report,
    Section,
    Span,
    Tile,
    settings_block,
    styled,
)
from camel.reports.numbers import bounds, cost
from camel.reports.plots import ACCENT, GRID, Plot, Spec, bands, names, shares

PLUS_COLOUR = "#d97a1f"


def plots(made: HumanEvalReport) -> list[Plot]:
    """All that the figures allow."""
    found = [_outcomes(made), _by_problem(made)]
    return [_curve(made), *found] if made.n > 1 else found


def _curve(made: HumanEvalReport) -> Plot:
    rows = [
        {"suite": SUITES[suite], **to_builtins(one)} for suite, found in made.curve.items() for one in found
    ]
    ticks = [one.k for one in made.curve["humaneval"] if str(one.k)[0] in "125"]
    scale = {"type": "log", "nice": False}
    x: Spec = {"field": "k", "type": "quantitative", "title": "k", "scale": scale}
    y = shares("low", "pass@k", axis={"format": "~%"}, scale={"domain": [0, 1]})
    color = {"domain": list(SUITES.values()), "range": [ACCENT, PLUS_COLOUR]}
    spec: Spec = {
        "data": {"values": rows},
        "width": 620,
        "height": 260,
        "encoding": {
            "x": {**x, "axis": {"values": ticks, "format": "d"}},
            "color": {"field": "suite", "type": "nominal", "scale": color},
        },
        "layer": bands(y, "rate", {"type": "line", "point": True}),
    }
    caption = "Estimated without bias; the bands are 95% intervals over the problems."
    return Plot("pass-at-k", "pass@k", caption, spec)


def _outcomes(made: HumanEvalReport) -> Plot:
    rows = [{"kind": WORDS.get(kind, kind), "count": count} for kind, count in made.outcomes.items()]
    x = {"field": "count", "type": "quantitative", "title": "samples", "axis": {"tickCount": 5}}
    spec: Spec = {
        "data": {"values": rows},
        "width": 560,
        "height": {"step": 26},
        "mark": {"type": "bar", "color": ACCENT, "cornerRadiusEnd": 3},
        "encoding": {"y": names("kind", [str(row["kind"]) for row in rows]), "x": x},
    }
    return Plot("outcomes", "What became of the samples", "By the first thing that went wrong.", spec)


def _by_problem(made: HumanEvalReport) -> Plot:
    rows = [
        {"suite": title, "place": place, "share": getattr(one, suite) / made.n}
        for suite, title in SUITES.items()
        for place, one in enumerate(made.by_problem)
    ]
    spec: Spec = {
        "data": {"values": rows},
        "width": 640,
        "height": {"step": 34},
        "mark": {"type": "rect", "stroke": GRID, "strokeWidth": 0.3},
        "encoding": {
            "x": {
                "field": "place",
                "type": "ordinal",
                "title": "problem",
                "axis": {"values": list(range(0, made.problems, 20)), "labelAngle": 0},
            },
            "y": {"field": "suite", "type": "nominal", "title": None, "sort": list(SUITES.values())},
            "color": {
                "field": "share",
                "type": "quantitative",
                "scale": {"domain": [0, 1], "range": ["#eef1f6", ACCENT]},
                "legend": {"format": "~%", "title": "samples that pass", "symbolStrokeWidth": 0},
            },
        },
    }
    return Plot("by-problem", "Problem by problem", "The share of each problem's samples that pass.", spec)


def report(made: HumanEvalReport) -> Report:
    """The whole report."""
    tiles = [
        Tile(f"{title}, pass@{one.k}", f"{100 * one.rate:.1f}%", bounds(one.low, one.high, 1))
        for title, found in zip(SUITES.values(), (made.humaneval, made.plus), strict=True)
        for one in (found[:1] + found[-1:] if len(found) > 1 else found)
    ]
    problems = [
        (one.problem, f"{one.humaneval:,}", f"{one.plus:,}", f"{one.programs:,}") for one in made.by_problem
    ]
    head = ("Problem", "Pass HumanEval", "Pass HumanEval+", "Programs")
    outcomes = [(WORDS.get(kind, kind), f"{count:,}") for kind, count in made.outcomes.items()]
    return Report(
        "HumanEval",
        Span(made.model, "mono"),
        [*tiles, Tile("Calls", f"{made.usage.calls:,}", cost(made.money))],
        [
            Section("Results", _results(made)),
            Section("Curve", [Picture("pass-at-k")]),
            Section("Problems", [Picture("by-problem"), Details("Each problem", [Grid(head, problems)])]),
            Section("Failures", [Picture("outcomes"), Grid(("The samples", "Samples"), outcomes)]),
            Section("Samples", _samples(made)),
            Section("Method", _method(made)),
        ],
        plots(made),
        made.model,
    )


def _results(made: HumanEvalReport) -> list[Block]:
    return [
        Heading("Results"),
        Points(notes(made)),
        table({made.model: (made.humaneval, made.plus)}),
        Note(
            "Per cent; ours with 95% intervals (bootstrap over the problems). The paper's lines are its Table 3, which names "
            "no intervals."
        ),
    ]


def _samples(made: HumanEvalReport) -> list[Block]:
    folds: list[Block] = []
    for kind in dict.fromkeys(one.kind for one in made.examples):
        title = WORDS.get(kind, kind)
        quotes = [_sample(one) for one in made.examples if one.kind == kind]
        folds.append(Details(title[:1].upper() + title[1:], quotes, open=not folds))
    note = "Drawn by chance among those of each kind; the program as it was run, or the answer where there is none."
    return [Heading("Samples"), Note(note), *folds]


def _sample(one: ShownSample) -> Quote:
    head = [
        Span(one.problem, "good" if one.kind == "passed" else "bad"),
        Span(f"sample {one.number}", "source"),
    ]
    return Quote(head, one.program or one.answer, reason=one.detail, mono=True)


def _method(made: HumanEvalReport) -> list[Block]:
    usage = made.usage
    where = (
        "Each different program ran once in an interpreter of its own in a sandbox (bubblewrap, seccomp, no network, no "
        "files to write), with the tests outside: only calls and plain values passed between them."
        if made.contained
        else "The programs ran without a sandbox."
    )
    used = f"{usage.calls:,} calls, {usage.prompt:,} prompt and {usage.completion:,} completion tokens, {cost(made.money)}"
    return [
        Heading("How this was made"),
        Paragraph(
            f"{where} A program passes HumanEval if its test does not fail, and HumanEval+ if it answers every input as the "
            "reference does. pass@k is estimated without bias from all samples of a problem."
        ),
        Paragraph(styled("{}. Fingerprint `{}`. All figures are in `{}`.", used, made.fingerprint, FIGURES)),
        settings_block(made.config),
    ]


def write_report(made: HumanEvalReport, folder: Path) -> None:
    """Write the report, its figures and its plots."""
    report_files.write_report(folder, "humaneval", report(made), made.to_json())
