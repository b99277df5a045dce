"""The report of an emergence study: the paper's Table 2 and a heat map of what helped where, as a page, Markdown and JSON.

The one decision to know: nothing here counts. Every number comes from the `Figures`, which are also the JSON. The parts about
judges, answers and cost are those of an evaluation of agents, for it is the same machinery.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from camel.core.message import Usage
from camel.evaluation.humaneval.problems import COUNT
from camel.evaluation.humaneval.report import PAPER as PAPER_PROGRAMS
from camel.evaluation.humaneval.report import SUITES
from camel.evaluation.humaneval.report import points as percentages
from camel.evaluation.pairs import Pair, PairVerdict, write_pairs, write_verdicts
from camel.evaluation.report import judging
from camel.evaluation.report_page import judging_parts
from camel.evaluation.report_plots import LOSS, WIN, judging_plots
from camel.evaluation.report_table import judge_points
from camel.evaluation.standing import Interval
from camel.reports.html import document, figure, outcomes, short, text, tiles
from camel.reports.html import table as html_table
from camel.reports.intervals import Rate
from camel.reports.markdown import grid, md
from camel.reports.plots import INK, MUTED, Plot, Spec, svg, write_plots
from camel.runs.run import RunFolder
from camel.training.emergence.results import Figures, Line, figures
from camel.training.emergence.study import Emergence

PAGE, MARKDOWN, FIGURES = "emergence.html", "emergence.md", "emergence.json"
NOTE = (
    "A verdict counts if it is the same in both orders; if not it is a draw. With 95% intervals (bootstrap over the questions). "
    "Effect: the share of questions that model 2 wins less that which it loses, in points; sure (●) where an exact test, corrected "
    "for all lines of the table, says so."
)


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
    folder = study.out
    pictures = [(plot, svg(plot)) for plot in plots(made)]
    write_plots(folder, pictures)
    (folder / "prompts").mkdir(exist_ok=True)
    for name in ("judge", "again", "single-shot"):
        (folder / "prompts" / f"{name}.txt").write_text(study.contest().prompts[name] + "\n", "utf-8")
    write_pairs(folder, pairs)
    write_verdicts(folder, verdicts)
    (folder / MARKDOWN).write_text(markdown(made), "utf-8")
    (folder / PAGE).write_text(page(made, pictures), "utf-8")
    (folder / FIGURES).write_bytes(made.to_json())


# ---------------------------------------------------------------- in words, for all forms


def table(made: Figures) -> tuple[list[str], list[list[str]]]:
    """The paper's Table 2: for each two models, each domain, with the sum below."""
    paper = any(one.paper for one in made.table)
    head = ["dataset", "model 1", "model 2", "draw", "model 1 wins", "model 2 wins", "effect"]
    rows: list[list[str]] = []
    for one in _with_totals(made):
        cells = [one.domain, one.before, one.after, count(one.draws), count(one.before_wins)]
        cells += [count(one.after_wins), effect(one)]
        rows.append([*cells, *([_paper(one)] if paper else [])])
    return ([*head, "paper: draw, 1, 2"] if paper else head), rows


def _with_totals(made: Figures) -> list[Line]:
    found: list[Line] = []
    for (_, lines), total in zip(groupby(made.table, lambda one: one.seen), made.totals, strict=True):
        found += [*lines, total]
    return found


def count(rate: Rate) -> str:
    """How many, with the interval of the share."""
    return f"{rate.count:,} ({100 * rate.low:.0f} – {100 * rate.high:.0f}%)" if rate.of else "–"


def effect(one: Line) -> str:
    """An effect in points, with its interval and whether it is sure."""
    if not one.of:
        return "–"
    return f"{_points(one.effect.value)} ({_span(one.effect)}){' ●' if one.sure else ''}"


def _points(value: float) -> str:
    return f"{100 * value:+.0f}".replace("-", "−").replace("+0", "0")


def _span(value: Interval) -> str:
    return f"{_points(value.low)} – {_points(value.high)}"


def _paper(one: Line) -> str:
    return ", ".join(map(str, one.paper)) if one.paper else ""


def points(made: Figures) -> list[str]:
    """What one would say first, from the figures alone; plain text."""
    said: list[str] = []
    for (_, group), total in zip(groupby(made.table, lambda one: one.seen), made.totals, strict=True):
        lines = list(group)
        better, worse = ([one for one in lines if one.sure and one.effect.value * way > 0] for way in (1, -1))
        parts = [
            f"{word} on {', '.join(f'{one.domain} ({_points(one.effect.value)}, {_span(one.effect)})' for one in found)}"
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


def programs(made: Figures) -> tuple[list[str], list[list[str]]]:
    """The paper's Table 3: its lines, then ours with their intervals."""
    ks = sorted({1, 100} | {one.k for found in made.humaneval for one in found.humaneval})
    head = ["pass@k [%]", *(f"{title} k = {k}" for title in SUITES.values() for k in ks)]
    rows = [
        [
            f"{one.model} (paper)",
            *(f"{of[k]:.1f}" if k in of else "–" for of in (one.humaneval, one.plus) for k in ks),
        ]
        for one in PAPER_PROGRAMS
    ]
    for found in made.humaneval:
        ours = [{one.k: one for one in suite} for suite in (found.humaneval, found.plus)]
        rows.append([found.label, *(percentages(of[k]) if k in of else "–" for of in ours for k in ks)])
    return head, rows


def _models(made: Figures) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            one.label,
            one.asked,
            "trained here" if one.trained else "given",
            f"{one.rows:,}" if one.trained else "",
            f"{one.steps:,}" if one.trained else "",
            f"{one.first_loss:.3f} → {one.last_loss:.3f}" if one.trained else "",
        ]
        for one in made.models
    ]
    return ["Model", "Asked as", "", "Rows", "Steps", "Loss"], rows


def _domains(made: Figures) -> tuple[list[str], list[list[str]]]:
    rows = [[one.title, f"{one.questions:,}", one.written_by or "given"] for one in made.domains]
    return ["Domain", "Questions", "Written by"], rows


def _besides(made: Figures) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            one.step,
            one.model,
            f"{one.usage.calls:,}",
            f"{one.usage.prompt:,}",
            f"{one.usage.completion:,}",
            "price unknown" if one.money is None else f"${one.money:,.4f}",
        ]
        for one in made.besides
    ]
    return [
        "Besides answers and verdicts",
        "Model",
        "Calls",
        "Prompt tokens",
        "Completion tokens",
        "Money",
    ], rows


# ---------------------------------------------------------------- Markdown


def markdown(made: Figures) -> str:
    """The report as Markdown."""
    lines = ["# Emergence of knowledge", "", *(f"- {md(one)}" for one in points(made)), ""]
    lines += ["## Which data helped which domain", ""]
    lines += grid(["Added", *(one.title for one in made.domains)], _heat(made))
    lines += ["", "![What was added, and what it did](plots/emergence.svg)", "", "## Table", ""]
    marks = [f"{name} ({side})" for side in (1, 2) for name in made.datasets]
    paper = any(one.paper for one in made.table)
    head = ["Dataset", *marks, "Draw", "Model 1", "Model 2", "Effect", *(["Paper"] if paper else [])]
    rows = [
        [
            one.domain,
            *_marks(made, one),
            count(one.draws),
            count(one.before_wins),
            count(one.after_wins),
            effect(one),
            *([_paper(one)] if paper else []),
        ]
        for one in _with_totals(made)
    ]
    lines += [*grid(head, rows), "", NOTE, ""]
    if made.humaneval:
        lines += ["## HumanEval", "", *grid(*programs(made)), ""]
    lines += ["## Models", "", *grid(*_models(made)), "", *grid(*_domains(made)), ""]
    lines += [*grid(*_besides(made)), ""] if made.besides else []
    lines += judging(made.judging)
    config = msgspec.json.format(msgspec.json.encode(made.config), indent=2).decode()
    return "\n".join([*lines, "## Configuration", "", "```json", config, "```", ""])


def _marks(made: Figures, one: Line) -> list[str]:
    """Which data each of the two models has seen, as the paper's ticks."""
    return ["✓" if place < seen else "" for seen in one.seen for place in range(len(made.datasets))]


def _heat(made: Figures) -> list[list[str]]:
    return [
        [_added(made, seen), *(effect(one) for one in lines)]
        for seen, lines in groupby(made.table, lambda one: one.seen)
    ]


def _added(made: Figures, seen: tuple[int, int]) -> str:
    return f"+ {made.datasets[seen[0]]}" if seen[1] == seen[0] + 1 else "all of it"


# ---------------------------------------------------------------- the page


def page(made: Figures, pictures: Sequence[tuple[Plot, str]]) -> str:
    """The report as one HTML page."""
    drawn = {plot.name: figure(plot, picture) for plot, picture in pictures}
    said = "".join(f"<li>{text(line)}</li>" for line in points(made))
    parts = [
        ("Results", "results", f'<h2>Results</h2><ul class="points">{said}</ul>{drawn["emergence"]}'),
        ("Table", "table", _table(made)),
        *([("HumanEval", "humaneval", _programs(made))] if made.humaneval else []),
        ("Models", "models", _chain(made)),
        *judging_parts(made.judging, drawn),
        ("Method", "method", _method(made)),
    ]
    return document("Emergence of knowledge", _head(made), parts)


def _head(made: Figures) -> str:
    total = made.totals[-1]
    sure = [one for one in made.table if one.sure]
    costs = [*made.judging.costs, *made.besides]
    usage = sum((one.usage for one in costs), Usage())
    known = all(one.money is not None for one in costs)
    money, calls = sum(one.money or 0.0 for one in costs), f"{usage.calls:,} calls"
    whole = total.seen == (0, len(made.models) - 1)
    cards = [
        ("Models", f"{len(made.models):,}", f"{sum(one.trained for one in made.models):,} trained here"),
        ("Questions", f"{sum(one.questions for one in made.domains):,}", f"{len(made.domains):,} domains"),
        (
            "Last against first" if whole else "Last step",
            _points(total.effect.value),
            f"{_span(total.effect)} points of {total.of:,} questions",
        ),
        ("Sure differences", f"{len(sure):,}", f"of {len(made.table):,}, corrected together"),
        ("Tokens", short(usage.total), calls)
        if not known
        else ("Cost", f"${money:,.2f}", f"{calls}, {short(usage.total)} tokens"),
    ]
    chain = " → ".join(text(one.label) for one in (made.models[0], made.models[-1]))
    judges = ", ".join(f'<span class="mono">{text(one)}</span>' for one in made.judging.judges)
    return f'<h1>Emergence of knowledge</h1><p class="muted">{chain} · judged by {judges}</p>{tiles(cards)}'


def _table(made: Figures) -> str:
    paper = any(one.paper for one in made.table)
    head = (
        '<tr><th>Dataset</th><th></th><th class="number">Draw</th><th class="number">Model 1</th><th class="number">Model 2</th>'
        f'<th class="number">Effect</th>{"<th class=number>Paper</th>" if paper else ""}</tr>'
    )
    body: list[str] = []
    last = None
    for one in _with_totals(made):
        if one.seen != last:
            last = one.seen
            body.append(
                f'<tr><th colspan="{6 + paper}" scope="rowgroup">Model 1: {text(one.before)} <br>Model 2: <strong>{text(one.after)}</strong></th></tr>'
            )
        name = f"<strong>{text(one.domain)}</strong> +" if one.added else text(one.domain)
        beside = f'<td class="number muted">{text(_paper(one))}</td>' if paper else ""
        body.append(
            f"<tr><td>{name}</td><td>{_bar(one)}</td>{_cell(one.draws)}{_cell(one.before_wins)}"
            f'{_cell(one.after_wins)}<td class="number">{_effect(one)}</td>{beside}</tr>'
        )
    key = '<p class="key"><i class="win"></i>model 2 wins <i class="draw"></i>draw <i class="loss"></i>model 1 wins</p>'
    notes = " In bold with a +: a domain that the added data is about." + (
        " Paper: its Table 2, draws and wins of model 1 and 2, LLaMA-7B judged by GPT-4 in one order."
        if paper
        else ""
    )
    return (
        f'<h2>Table</h2>{key}<div class="scroll"><table class="tight"><thead>{head}</thead><tbody>{"".join(body)}</tbody></table></div>'
        f"<p><small>{text(NOTE)}{notes}</small></p>"
    )


def _bar(one: Line) -> str:
    return outcomes(one.after_wins.rate, one.draws.rate, one.before_wins.rate, " by model 2")


def _cell(rate: Rate) -> str:
    if not rate.of:
        return '<td class="number">–</td>'
    span = f"{100 * rate.low:.0f} – {100 * rate.high:.0f}%"
    return f'<td class="number">{rate.count:,} <span class="interval">{span}</span></td>'


def _effect(one: Line) -> str:
    if not one.of:
        return "–"
    value = text(_points(one.effect.value))
    return f'{f"<strong>{value}</strong> ●" if one.sure else value} <span class="interval">{text(_span(one.effect))}</span>'


def _programs(made: Figures) -> str:
    part = min(one.problems for one in made.humaneval) < COUNT
    note = " A part of the problems: not to be compared with the paper's." if part else ""
    return (
        f"<h2>HumanEval and HumanEval+</h2>{html_table(*programs(made), 1)}<p><small>The paper's Table 3, then the models of the chain with "
        f"95% intervals (bootstrap over the problems).{note}</small></p>"
    )


def _chain(made: Figures) -> str:
    return (
        f"<h2>Models</h2>{html_table(*_models(made), 3)}<h2>Questions</h2>{html_table(*_domains(made), 1)}"
        "<p><small>The questions lie in questions/, a file for each domain; <code>camel rows --questions</code> leaves out rows that hold "
        "them.</small></p>"
        f"{html_table(*_besides(made), 2) if made.besides else ''}"
    )


def _method(made: Figures) -> str:
    config = msgspec.json.format(msgspec.json.encode(made.config), indent=2).decode()
    return (
        "<h2>How this was made</h2><p>A chain of models, each of which has seen one dataset more than the one before, answered the same questions. "
        "A judge was shown the question and two answers without names, in both orders, and gave scores, a reason and a decision (paper, "
        "section 5.2). A verdict that changes with the order is a draw. What answers say to their judge stands behind signs that they cannot "
        "remove. The intervals are over questions: they say how far others of the same kind would have led elsewhere, and nothing about "
        "another training of the same models, of which there is one each.</p>"
        f"<details><summary><h3>Configuration</h3></summary><pre class=said>{text(config)}</pre></details>"
    )


# ---------------------------------------------------------------- plots


def plots(made: Figures) -> list[Plot]:
    """The heat map, and what the judges did."""
    return [_heat_map(made), *judging_plots(made.judging)]


def _heat_map(made: Figures) -> Plot:
    order = list(dict.fromkeys(_added(made, one.seen) for one in made.table))
    rows = [
        {
            "added": _added(made, one.seen),
            "domain": one.domain,
            "effect": one.effect.value,
            "size": abs(one.effect.value),
            "shown": _points(one.effect.value) + (" ●" if one.sure else ""),
            "span": _span(one.effect),
            "own": one.added and one.seen[1] == one.seen[0] + 1,
        }
        for one in made.table
        if one.of
    ]
    side: Spec = {"labelColor": INK, "labelFontSize": 12, "domain": False, "ticks": False, "labelAngle": 0}
    colour: Spec = {"condition": {"test": "datum.effect < 0", "value": LOSS}, "value": WIN}
    opacity: Spec = {
        "field": "size",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": [0.04, 0.8]},
        "legend": None,
    }
    layers: list[Spec] = [
        {"mark": {"type": "rect", "cornerRadius": 6}, "encoding": {"color": colour, "opacity": opacity}},
        {
            "mark": {"type": "rect", "cornerRadius": 6, "filled": False, "strokeWidth": 1.5, "stroke": MUTED},
            "transform": [{"filter": "datum.own"}],
        },
        {"mark": {"type": "text", "fontSize": 14, "dy": -7}, "encoding": {"text": {"field": "shown"}}},
        {"mark": {"type": "text", "fontSize": 10, "dy": 10}, "encoding": {"text": {"field": "span"}}},
    ]
    spec: Spec = {
        "data": {"values": rows},
        "width": {"step": 130},
        "height": {"step": 54},
        "encoding": {
            "y": {
                "field": "added",
                "type": "nominal",
                "sort": order,
                "title": "data added",
                "axis": side,
                "scale": {"paddingInner": 0.08},
            },
            "x": {
                "field": "domain",
                "type": "nominal",
                "sort": [one.title for one in made.domains],
                "title": "asked about",
                "axis": {**side, "orient": "top"},
                "scale": {"paddingInner": 0.06},
            },
        },
        "layer": layers,
    }
    caption = (
        "Share of questions won less share lost by the model that has seen the added data, against the one before, in points with 95% "
        "intervals. Blue: better, orange: worse, ●: sure after correction; outlined: the domain that the data is about."
    )
    return Plot("emergence", "Which data helped which domain", caption, spec)
