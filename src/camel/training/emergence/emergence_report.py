"""The report of an emergence study: the paper's Table 2, and a heat map of which data helped which domain.

The one decision to know: this module computes no figures. Every number comes from `Figures`, which is also written as JSON.
The sections on judges, answers and cost are shared with the evaluation of agents (`evaluation/report.py`).
"""

from __future__ import annotations

from itertools import groupby

from camel.evaluation.humaneval.problems import COUNT
from camel.evaluation.humaneval.report import table as humaneval_table
from camel.evaluation.report import cost_fact, cost_table, judging
from camel.evaluation.report_table import judge_points, judging_plots
from camel.evaluation.standing import Interval
from camel.reports import blocks as kinds
from camel.reports.intervals import Rate
from camel.reports.numbers import FEW, bounds, counted
from camel.reports.numbers import points as points_of
from camel.reports.plots import SIDE_A, SIDE_B, Plot, heat
from camel.training.emergence.results import Figures, Line


def report(made: Figures) -> kinds.Report:
    """Build the report of an emergence study."""
    return kinds.Report(
        "Emergence",
        _headline(made),
        kinds.TEXTS["emergence"]["lede"],
        _facts(made),
        {
            "Results": _results(made),
            "Table": _table(made),
            "HumanEval": _programs(made) if made.humaneval else [],
            "Models": _models(made),
            **judging(made.judging),
            "Method": [
                kinds.Heading("Method"),
                kinds.Paragraph(kinds.TEXTS["emergence"]["method"]),
                kinds.settings_block(made.config),
            ],
        },
        [_heat_map(made), *judging_plots(made.judging)],
    )


def _headline(made: Figures) -> str:
    total = made.totals[-1]
    if not total.sure:
        return (
            f"No clear difference between {total.after} and {total.before} on {counted(total.of, 'question')}"
        )
    better, worse = (total.after, total.before) if total.effect.value > 0 else (total.before, total.after)
    won = total.after_wins if total.effect.value > 0 else total.before_wins
    return f"{better} beats {worse} on {won.count:,} of {counted(total.of, 'question')}"


def table(made: Figures) -> kinds.Grid:
    """Return the paper's Table 2: per pair of models, one row per domain, then the total."""
    paper = any(one.paper for one in made.table)
    head = (
        "Domain",
        "",
        "A won",
        "Drawn",
        "A lost",
        "Effect",
        *(("Paper: won, drawn, lost",) if paper else ()),
    )
    rows: list[kinds.RowGroup | list[kinds.Cell]] = []
    for (_, lines), total in zip(groupby(made.table, lambda one: one.seen), made.totals, strict=True):
        rows.append(kinds.RowGroup([kinds.A, f" {total.after} against ", kinds.B, f" {total.before}"]))
        for one in (*lines, total):
            draws, before, after = one.paper or (0, 0, 0)
            cells: list[kinds.Cell] = [
                kinds.styled("**{}** +", one.domain) if one.added else one.domain,
                kinds.OutcomeBar(one.after_wins.rate, one.draws.rate, one.before_wins.rate),
                *map(_count, (one.after_wins, one.draws, one.before_wins)),
                effect(one),
                *([f"{after}, {draws}, {before}" if one.paper else ""] if paper else []),
            ]
            rows.append(cells)
    return kinds.Grid(head, rows, 2, title="Won, drawn and lost by domain")


def _count(rate: Rate) -> kinds.Inline:
    """Return a count with the interval of its share, as a table cell."""
    span = kinds.Span(bounds(rate.low, rate.high) if rate.of >= FEW else "", "interval")
    return (f"{rate.count:,} ", span) if rate.of else "–"


def effect(one: Line) -> kinds.Inline:
    """Return an effect in percentage points with its interval. A significant effect gets a mark."""
    if not one.of:
        return "–"
    value = points_of(one.effect.value)
    sure = kinds.styled("**{}** ● ", value) if one.sure else [f"{value} "]
    return [*sure, kinds.Span(_span(one.effect), "interval")]


def _span(value: Interval) -> str:
    return f"{points_of(value.low)} to {points_of(value.high)}"


def points(made: Figures) -> list[str]:
    """Return the main findings as plain sentences."""
    sentences: list[str] = []
    for (_, group), total in zip(groupby(made.table, lambda one: one.seen), made.totals, strict=True):
        lines = list(group)
        better, worse = ([one for one in lines if one.sure and one.effect.value * way > 0] for way in (1, -1))
        parts = [
            f"{word} on {', '.join(f'{one.domain} ({points_of(one.effect.value)}, {_span(one.effect)})' for one in found)}"
            for word, found in (("better", better), ("worse", worse))
            if found
        ]
        elsewhere = "no significant difference" + (" elsewhere" if parts else "")
        parts += [elsewhere] if len(better) + len(worse) < len(lines) else []
        sentences.append(
            f"{total.after} against {total.before}: {'; '.join(parts)}. Of {total.of:,} questions {total.after_wins.count:,} "
            f"won, {total.draws.count:,} drawn, {total.before_wins.count:,} lost."
        )
    sentences += [
        f"{count:,} rows of {name} contain a question of {domain}: models trained on them may have memorized it."
        for name, counts in made.leaks.items()
        for domain, count in counts.items()
    ]
    return sentences + judge_points(made.judging)


def _facts(made: Figures) -> kinds.Facts:
    costs, judges = [*made.judging.costs, *made.besides], made.judging.judges
    known = all(one.money is not None for one in costs)
    trained = sum(one.trained for one in made.models)
    sure = sum(one.sure for one in made.table)
    questions = sum(one.questions for one in made.domains)
    return {
        kinds.A: "the later of two models",
        kinds.B: "the earlier",
        "Models": f"{len(made.models):,}, {trained:,} trained here",
        "Chain": f"{made.models[0].label} → {made.models[-1].label}",
        "Questions": f"{questions:,} in {counted(len(made.domains), 'domain')}",
        "Significant": f"{sure:,} of {counted(len(made.table), 'difference')}, corrected together",
        "Judge" if len(judges) == 1 else "Judges": ", ".join(judges),
        **cost_fact([one.usage for one in costs], sum(one.money or 0.0 for one in costs) if known else None),
    }


def _results(made: Figures) -> list[kinds.Block]:
    rows = [
        [_added(made, seen), *(effect(one) for one in lines)]
        for seen, lines in groupby(made.table, lambda one: one.seen)
    ]
    heat = kinds.Grid(("Added", *(one.title for one in made.domains)), rows)
    return [
        kinds.Picture("emergence"),
        kinds.Points(points(made)),
        kinds.Details("The same as a table", [heat]),
    ]


def _added(made: Figures, seen: tuple[int, int]) -> str:
    return f"+ {made.datasets[seen[0]]}" if seen[1] == seen[0] + 1 else "all data"


def _table(made: Figures) -> list[kinds.Block]:
    known = any(one.paper for one in made.table)
    paper = " Paper: its Table 2, LLaMA-7B judged by GPT-4 in one order." if known else ""
    return [
        table(made),
        kinds.Note(kinds.TEXTS["emergence"]["table"].format(paper=paper)),
    ]


def _programs(made: Figures) -> list[kinds.Block]:
    part = min(one.problems for one in made.humaneval) < COUNT
    note = (
        " Only some of the problems were used: the figures cannot be compared with the paper's."
        if part
        else ""
    )
    return [
        humaneval_table({one.label: (one.humaneval, one.plus) for one in made.humaneval}),
        kinds.Note(
            f"HumanEval and HumanEval+: the paper's Table 3, then the models of the chain with 95% intervals.{note}"
        ),
    ]


def _models(made: Figures) -> list[kinds.Block]:
    models = [
        (one.label, one.asked, "trained here", f"{one.rows:,}", f"{one.steps:,}", f"{one.first_loss:.3f} → {one.last_loss:.3f}")
        if one.trained
        else (one.label, one.asked, "given", "", "", "")
        for one in made.models
    ]  # fmt: skip
    domains = [(one.title, f"{one.questions:,}", one.written_by or "given") for one in made.domains]
    besides = [(one.step, one.model, one.usage, one.money) for one in made.besides]
    return [
        kinds.Grid(("Model", "Asked as", "", "Rows", "Steps", "Loss"), models, 3, title="Models"),
        kinds.Grid(("Domain", "Questions", "Written by"), domains, title="Questions"),
        kinds.Note(
            kinds.styled(
                "The questions are in questions/, one file per domain. `camel rows --questions` excludes rows that contain them."
            )
        ),
        *([cost_table(besides, "Cost of questions and programs")] if besides else []),
    ]


def _heat_map(made: Figures) -> Plot:
    rows = [
        {
            "row": _added(made, one.seen),
            "column": one.domain,
            "size": abs(one.effect.value),
            "color": SIDE_B if one.effect.value < 0 else SIDE_A,
            "words": points_of(one.effect.value) + (" ●" if one.sure else ""),
            "span": _span(one.effect),
            "outlined": one.added and one.seen[1] == one.seen[0] + 1,
        }
        for one in made.table
        if one.of
    ]
    caption = kinds.TEXTS["emergence"]["plot"]
    return Plot("emergence", "Which data helped which domain", caption, heat(rows, (130, 54)))
