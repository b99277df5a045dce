"""HumanEval's report as one HTML page, and its plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from camel.evaluation.humaneval.report import (
    FIGURES,
    MARKDOWN,
    PAGE,
    SUITES,
    WORDS,
    HumanEvalReport,
    ShownSample,
    markdown,
    notes,
    table,
)
from camel.reports.html import document, figure, money, text, tiles
from camel.reports.plots import ACCENT, GRID, INK, Plot, Spec, svg, write_plots
from camel.storage import inside

PLUS_COLOUR = "#d97a1f"


def plots(made: HumanEvalReport) -> list[Plot]:
    """All that the figures allow."""
    found = [_outcomes(made), _by_problem(made)]
    return [_curve(made), *found] if made.n > 1 else found


def _colours() -> Spec:
    return {"domain": list(SUITES.values()), "range": [ACCENT, PLUS_COLOUR]}


def _curve(made: HumanEvalReport) -> Plot:
    rows = [
        {"suite": SUITES[suite], "k": one.k, "rate": one.rate, "low": one.low, "high": one.high}
        for suite, found in made.curve.items()
        for one in found
    ]
    x: Spec = {
        "field": "k",
        "type": "quantitative",
        "title": "k",
        "scale": {"type": "log", "nice": False},
        "axis": {
            "values": [one.k for one in made.curve["humaneval"] if str(one.k)[0] in "125"],
            "format": "d",
        },
    }
    y: Spec = {
        "type": "quantitative",
        "title": "pass@k",
        "axis": {"format": "~%"},
        "scale": {"domain": [0, 1]},
    }
    spec: Spec = {
        "data": {"values": rows},
        "width": 620,
        "height": 260,
        "encoding": {"x": x, "color": {"field": "suite", "type": "nominal", "scale": _colours()}},
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.16},
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "point": True}, "encoding": {"y": {**y, "field": "rate"}}},
        ],
    }
    return Plot(
        "pass-at-k", "pass@k", "Estimated without bias; the bands are 95% intervals over the problems.", spec
    )


def _outcomes(made: HumanEvalReport) -> Plot:
    rows = [{"kind": WORDS.get(kind, kind), "count": count} for kind, count in made.outcomes.items()]
    y: Spec = {
        "field": "kind",
        "type": "nominal",
        "sort": [row["kind"] for row in rows],
        "title": None,
        "axis": {"labelColor": INK, "labelFontSize": 12, "domain": False, "ticks": False},
    }
    spec: Spec = {
        "data": {"values": rows},
        "width": 560,
        "height": {"step": 26},
        "mark": {"type": "bar", "color": ACCENT, "cornerRadiusEnd": 3},
        "encoding": {
            "y": y,
            "x": {"field": "count", "type": "quantitative", "title": "samples", "axis": {"tickCount": 5}},
        },
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


def page(made: HumanEvalReport, pictures: Sequence[tuple[Plot, str]]) -> str:
    """The report as one page: no script, no request."""
    drawn = {plot.name: figure(plot, picture) for plot, picture in pictures}
    head, rows = table(made)
    ks = [name.partition(" k = ")[2] for name in head[1:]]
    titles = "".join(
        f'<th class="number" colspan="{len(ks) // 2}">{text(one)}</th>' for one in SUITES.values()
    )
    cells = f"<th>{text(head[0])}</th>" + "".join(f'<th class="number">k = {text(k)}</th>' for k in ks)
    ours = len(rows) - 1
    body = "".join(
        ("<tr>" if number == ours else '<tr class="none">')
        + "".join(
            f'<td class="{"number" if place else "name"}">{_cell(cell)}</td>'
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for number, row in enumerate(rows)
    )
    said = "".join(f"<li>{text(one)}</li>" for one in notes(made))
    results = (
        f'<h2>Results</h2><ul class="points">{said}</ul><div class="scroll"><table><thead><tr><th></th>{titles}</tr><tr>{cells}</tr></thead>'
        f"<tbody>{body}</tbody></table></div><p><small>Per cent; below ours 95% intervals (bootstrap over the problems). "
        "The paper's lines are its Table 3, which names no intervals.</small></p>"
    )
    parts = [
        ("Results", "results", results),
        ("Curve", "curve", drawn.get("pass-at-k", "")),
        ("Problems", "problems", drawn["by-problem"]),
        ("Failures", "failures", drawn["outcomes"]),
        ("Samples", "samples", _samples_html(made)),
        ("Method", "method", _method_html(made)),
    ]
    top = f'<h1>HumanEval</h1><p class="muted"><span class="mono">{text(made.model)}</span></p>{_tiles(made)}'
    return document(f"HumanEval of {made.model}", top, [part for part in parts if part[2]])


def _cell(value: str) -> str:
    """A cell of the table, its interval below the figure."""
    rate, bracket, interval = value.partition(" (")
    if not bracket or not interval.endswith(")") or not rate.replace(".", "").isdecimal():
        return text(value)
    return f'{text(rate)}<br><span class="interval">{text(interval[:-1])}</span>'


def _tiles(made: HumanEvalReport) -> str:
    cards = [
        (f"{title}, pass@{one.k}", f"{100 * one.rate:.1f}%", f"{100 * one.low:.1f} – {100 * one.high:.1f}%")
        for title, found in (("HumanEval", made.humaneval), ("HumanEval+", made.plus))
        for one in (found[:1] + found[-1:] if len(found) > 1 else found)
    ]
    return tiles([*cards, ("Calls", f"{made.usage.calls:,}", money(made.money))])


def _samples_html(made: HumanEvalReport) -> str:
    parts: list[str] = []
    for kind in dict.fromkeys(one.kind for one in made.examples):
        mine = "".join(_sample_html(one) for one in made.examples if one.kind == kind)
        title = WORDS.get(kind, kind)
        parts.append(
            f"<details{'' if parts else ' open'}><summary><h3>{text(title[:1].upper() + title[1:])}</h3></summary>{mine}</details>"
        )
    return (
        "<h2>Samples</h2><p><small>Drawn by chance among those of each kind; the program as it was run, or the answer "
        "where there is none.</small></p>" + "".join(parts)
    )


def _sample_html(one: ShownSample) -> str:
    verdict = "yes" if one.kind == "passed" else "no"
    detail = f'<p class="reason">{text(one.detail)}</p>' if one.detail else ""
    return (
        f'<article><header><span class="verdict {verdict}">{text(one.problem)}</span>'
        f'<span class="mono muted">sample {one.number}</span></header>'
        f'<div class="said mono">{text(one.program or one.answer) or "(empty)"}</div>{detail}</article>'
    )


def _method_html(made: HumanEvalReport) -> str:
    usage = made.usage
    where = (
        "Each different program ran once in an interpreter of its own in a sandbox (bubblewrap, seccomp, no network, no "
        "files to write), with the tests outside: only calls and plain values passed between them."
        if made.contained
        else "The programs ran without a sandbox."
    )
    config = msgspec.json.format(msgspec.json.encode(made.config), indent=2).decode()
    return (
        f"<h2>How this was made</h2><p>{where} A program passes HumanEval if its test does not fail, and HumanEval+ if it "
        "answers every input as the reference does. pass@k is estimated without bias from all samples of a problem.</p>"
        f"<p>{usage.calls:,} calls, {usage.prompt:,} prompt and {usage.completion:,} completion tokens, {text(money(made.money))}. "
        f'Fingerprint <span class="mono">{text(made.fingerprint)}</span>. All figures are in <span class="mono">{FIGURES}</span>.</p>'
        f'<div class="said mono">{text(config)}</div>'
    )


def write_report(made: HumanEvalReport, folder: Path) -> None:
    """Write the figures, the Markdown, the plots and the page."""
    pictures = [(plot, svg(plot)) for plot in plots(made)]
    write_plots(folder, pictures)
    inside.write(folder, MARKDOWN, markdown(made))
    inside.write(folder, PAGE, page(made, pictures))
    inside.write(folder, FIGURES, made.to_json())
