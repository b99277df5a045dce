"""The report of an emergence study: the paper's Table 2 and a heat map of what helped where.

The one decision to know: nothing here counts. Every number comes from the `Figures`, which are also the JSON. The parts about
judges, answers and cost are those of an evaluation of agents, for it is the same machinery.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from camel.evaluation.humaneval.problems import COUNT
from camel.evaluation.humaneval.report import table as humaneval_table
from camel.evaluation.pairs import Pair, PairVerdict, write_pairs, write_verdicts
from camel.evaluation.report import cost_row, cost_table, cost_tile, judging
from camel.evaluation.report_plots import LOSS, WIN, judging_plots
from camel.evaluation.report_table import judge_points
from camel.evaluation.standing import Interval
from camel.reports import report_files
from camel.reports.blocks import (
    Block,
    Cell,
    Details,
    Grid,
    Heading,
    Inline,
    Note,
    OutcomeBar,
    OutcomeKey,
    Paragraph,
    Picture,
    Points,
    Report,
    RowGroup,
    Section,
    Span,
    Tile,
    joined,
    settings_block,
    styled,
)
from camel.reports.intervals import Rate
from camel.reports.numbers import bounds
from camel.reports.numbers import points as points_of
from camel.reports.plots import MUTED, Plot, Spec, names
from camel.runs.run import RunFolder
from camel.storage import inside
from camel.training.emergence.experiment import Emergence
from camel.training.emergence.results import Figures, Line, figures

PAGE, MARKDOWN, FIGURES = "emergence.html", "emergence.md", "emergence.json"


class EmergenceJob(Emergence):
    """A study that ends in its report."""

    def result(self, run: RunFolder) -> Figures:
        """The figures, which are also written as a report."""
        made, pairs, verdicts = figures(self)
        write_report(self, made, pairs, verdicts)
        return made


def write_report(
    study: Emergence, made: Figures, pairs: Iterable[Pair], verdicts: Iterable[PairVerdict]
) -> None:
    """Write everything that there is to see into the study's folder."""
    for name in ("judge", "again", "single-shot"):
        inside.write(study.out, f"prompts/{name}.txt", study.contest().prompts[name] + "\n")
    write_pairs(study.out, pairs)
    write_verdicts(study.out, verdicts)
    report_files.write_report(study.out, "emergence", report(made), made.to_json())


def report(made: Figures) -> Report:
    """The whole report."""
    chain = f"{made.models[0].label} → {made.models[-1].label} · judged by "
    return Report(
        "Emergence of knowledge",
        [chain, *joined(Span(one, "mono") for one in made.judging.judges)],
        _tiles(made),
        [
            Section("Results", _results(made)),
            Section("Table", _table(made)),
            Section("HumanEval", _programs(made) if made.humaneval else []),
            Section("Models", _models(made)),
            *judging(made.judging),
            Section("Method", _method(made)),
        ],
        [_heat_map(made), *judging_plots(made.judging)],
    )


def table(made: Figures) -> Grid:
    """The paper's Table 2: for each two models, each domain, with the sum below."""
    paper = any(one.paper for one in made.table)
    head = (
        "Dataset",
        "",
        "Draw",
        "Model 1 wins",
        "Model 2 wins",
        "Effect",
        *(("Paper: draw, 1, 2",) if paper else ()),
    )
    rows: list[RowGroup | list[Cell]] = []
    for (_, lines), total in zip(groupby(made.table, lambda one: one.seen), made.totals, strict=True):
        rows.append(RowGroup(styled("Model 1: {}, model 2: **{}**", total.before, total.after)))
        for one in (*lines, total):
            cells: list[Cell] = [
                styled("**{}** +", one.domain) if one.added else one.domain,
                OutcomeBar(one.after_wins.rate, one.draws.rate, one.before_wins.rate, " by model 2"),
                *map(_count, (one.draws, one.before_wins, one.after_wins)),
                effect(one),
                *([", ".join(map(str, one.paper or ()))] if paper else []),
            ]
            rows.append(cells)
    return Grid(head, rows, 2)


def _count(rate: Rate) -> Inline:
    """How many, with the interval of the share."""
    return (f"{rate.count:,} ", Span(bounds(rate.low, rate.high), "interval")) if rate.of else "–"


def effect(one: Line) -> Inline:
    """An effect in points, with its interval and whether it is sure."""
    if not one.of:
        return "–"
    value = points_of(one.effect.value)
    sure = styled("**{}** ● ", value) if one.sure else [f"{value} "]
    return [*sure, Span(_span(one.effect), "interval")]


def _span(value: Interval) -> str:
    return f"{points_of(value.low)} – {points_of(value.high)}"


def points(made: Figures) -> list[str]:
    """What one would say first, from the figures alone; plain text."""
    said: list[str] = []
    for (_, group), total in zip(groupby(made.table, lambda one: one.seen), made.totals, strict=True):
        lines = list(group)
        better, worse = ([one for one in lines if one.sure and one.effect.value * way > 0] for way in (1, -1))
        parts = [
            f"{word} on {', '.join(f'{one.domain} ({points_of(one.effect.value)}, {_span(one.effect)})' for one in found)}"
            for word, found in (("better", better), ("worse", worse))
            if found
        ]
        elsewhere = "no sure difference" + (" elsewhere" if parts else "")
        parts += [elsewhere] if len(better) + len(worse) < len(lines) else []
        said.append(
            f"{total.after} against {total.before}: {'; '.join(parts)}. Of {total.of:,} questions {total.after_wins.count:,} "
            f"won, {total.draws.count:,} drawn, {total.before_wins.count:,} lost."
        )
    said += [
        f"{count:,} rows of {name} hold a question of {domain}: its models may have learnt it by heart."
        for name, counts in made.leaks.items()
        for domain, count in counts.items()
    ]
    return said + judge_points(made.judging)


def _tiles(made: Figures) -> list[Tile]:
    total = made.totals[-1]
    costs = [*made.judging.costs, *made.besides]
    known = all(one.money is not None for one in costs)
    is_whole = total.seen == (0, len(made.models) - 1)
    span = f"{_span(total.effect)} points of {total.of:,} questions"
    sure = sum(one.sure for one in made.table)
    return [
        Tile("Models", f"{len(made.models):,}", f"{sum(one.trained for one in made.models):,} trained here"),
        Tile(
            "Questions", f"{sum(one.questions for one in made.domains):,}", f"{len(made.domains):,} domains"
        ),
        Tile("Last against first" if is_whole else "Last step", points_of(total.effect.value), span),
        Tile("Sure differences", f"{sure:,}", f"of {len(made.table):,}, corrected together"),
        cost_tile([one.usage for one in costs], sum(one.money or 0.0 for one in costs) if known else None),
    ]


def _results(made: Figures) -> list[Block]:
    rows = [
        [_added(made, seen), *(effect(one) for one in lines)]
        for seen, lines in groupby(made.table, lambda one: one.seen)
    ]
    heat = Grid(("Added", *(one.title for one in made.domains)), rows)
    return [
        Heading("Results"),
        Points(points(made)),
        Picture("emergence"),
        Details("The same as a table", [heat]),
    ]


def _added(made: Figures, seen: tuple[int, int]) -> str:
    return f"+ {made.datasets[seen[0]]}" if seen[1] == seen[0] + 1 else "all of it"


def _table(made: Figures) -> list[Block]:
    paper = (
        " Paper: its Table 2, draws and wins of model 1 and 2, LLaMA-7B judged by GPT-4 in one order."
        if any(one.paper for one in made.table)
        else ""
    )
    return [
        Heading("Table"),
        OutcomeKey("model 2 wins", "model 1 wins"),
        table(made),
        Note(
            "A verdict counts if it is the same in both orders; if not it is a draw. With 95% intervals (bootstrap over the "
            "questions). Effect: the share of questions that model 2 wins less that which it loses, in points; sure (●) where "
            "an exact test, corrected for all lines of the table, says so. In bold with a +: a domain that the added data is "
            f"about.{paper}"
        ),
    ]


def _programs(made: Figures) -> list[Block]:
    part = min(one.problems for one in made.humaneval) < COUNT
    note = " A part of the problems: not to be compared with the paper's." if part else ""
    return [
        Heading("HumanEval and HumanEval+"),
        humaneval_table({one.label: (one.humaneval, one.plus) for one in made.humaneval}),
        Note(
            f"The paper's Table 3, then the models of the chain with 95% intervals (bootstrap over the problems).{note}"
        ),
    ]


def _models(made: Figures) -> list[Block]:
    models = [
        (one.label, one.asked, "trained here", f"{one.rows:,}", f"{one.steps:,}", f"{one.first_loss:.3f} → {one.last_loss:.3f}")
        if one.trained
        else (one.label, one.asked, "given", "", "", "")
        for one in made.models
    ]  # fmt: skip
    domains = [(one.title, f"{one.questions:,}", one.written_by or "given") for one in made.domains]
    besides = [cost_row(one.step, one.model, one.usage, one.money) for one in made.besides]
    return [
        Heading("Models"),
        Grid(("Model", "Asked as", "", "Rows", "Steps", "Loss"), models, 3),
        Heading("Questions"),
        Grid(("Domain", "Questions", "Written by"), domains),
        Note(
            styled(
                "The questions lie in questions/, a file for each domain; `camel rows --questions` leaves out rows that hold "
                "them."
            )
        ),
        *([cost_table(besides, "Besides answers and verdicts")] if besides else []),
    ]


def _method(made: Figures) -> list[Block]:
    return [
        Heading("How this was made"),
        Paragraph(
            "A chain of models, each of which has seen one dataset more than the one before, answered the same questions. A "
            "judge was shown the question and two answers without names, in both orders, and gave scores, a reason and a "
            "decision (paper, section 5.2). A verdict that changes with the order is a draw. What answers say to their judge "
            "stands behind signs that they cannot remove. The intervals are over questions: they say how far others of the "
            "same kind would have led elsewhere, and nothing about another training of the same models, of which there is one "
            "each."
        ),
        settings_block(made.config),
    ]


def _heat_map(made: Figures) -> Plot:
    rows = [
        {
            "added": _added(made, one.seen),
            "domain": one.domain,
            "effect": one.effect.value,
            "size": abs(one.effect.value),
            "shown": points_of(one.effect.value) + (" ●" if one.sure else ""),
            "span": _span(one.effect),
            "own": one.added and one.seen[1] == one.seen[0] + 1,
        }
        for one in made.table
        if one.of
    ]
    opacity: Spec = {"field": "size", "type": "quantitative", "legend": None}
    shade: Spec = {
        "color": {"condition": {"test": "datum.effect < 0", "value": LOSS}, "value": WIN},
        "opacity": {**opacity, "scale": {"domain": [0, 1], "range": [0.04, 0.8]}},
    }
    outline = {"type": "rect", "cornerRadius": 6, "filled": False, "strokeWidth": 1.5, "stroke": MUTED}
    order = dict.fromkeys(_added(made, one.seen) for one in made.table)
    x = names("domain", [one.title for one in made.domains], "asked about", labelAngle=0, orient="top")
    y = names("added", order, "data added", labelAngle=0)
    spec: Spec = {
        "data": {"values": rows},
        "width": {"step": 130},
        "height": {"step": 54},
        "encoding": {
            "y": {**y, "scale": {"paddingInner": 0.08}},
            "x": {**x, "scale": {"paddingInner": 0.06}},
        },
        "layer": [
            {"mark": {"type": "rect", "cornerRadius": 6}, "encoding": shade},
            {"mark": outline, "transform": [{"filter": "datum.own"}]},
            {"mark": {"type": "text", "fontSize": 14, "dy": -7}, "encoding": {"text": {"field": "shown"}}},
            {"mark": {"type": "text", "fontSize": 10, "dy": 10}, "encoding": {"text": {"field": "span"}}},
        ],
    }
    caption = (
        "Share of questions won less share lost by the model that has seen the added data, against the one before, in points with 95% "
        "intervals. Blue: better, orange: worse, ●: sure after correction; outlined: the domain that the data is about."
    )
    return Plot("emergence", "Which data helped which domain", caption, spec)
