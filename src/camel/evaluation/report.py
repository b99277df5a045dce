"""The report of an evaluation of agents: the paper's Table 1 with ours beside it, as a page, as Markdown, as plots.

The one decision to know: nothing here counts. Every number comes from the `Evaluation`, which is also written as JSON, so
that the three say the same. Text of models stands in the page as text, and in the Markdown in fences that it cannot end.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from camel.evaluation.contest import Contest
from camel.evaluation.pairs import Pair, PairVerdict, write_pairs, write_verdicts
from camel.evaluation.report_page import page
from camel.evaluation.report_plots import plots
from camel.evaluation.report_table import (
    WORDS,
    agreement_rows,
    by_judge,
    cells,
    cost_rows,
    kappa_of,
    points,
    points_of,
    ratio_of,
    scores_of,
    setup,
    share,
    span_of,
    table,
    titled,
)
from camel.evaluation.results import Evaluation, ShownPair
from camel.reports.markdown import fenced, grid, md
from camel.reports.plots import svg, write_plots
from camel.storage import inside

PAGE, MARKDOWN, FIGURES = "evaluation.html", "evaluation.md", "evaluation.json"


def write_report(
    contest: Contest, made: Evaluation, pairs: Iterable[Pair], verdicts: Iterable[PairVerdict], folder: Path
) -> None:
    """Write everything that there is to see into a folder."""
    pictures = [(plot, svg(plot)) for plot in plots(made)]
    write_plots(folder, pictures)
    for name, prompt in contest.prompts.items():
        inside.write(folder, f"prompts/{name}.txt", prompt + "\n")
    write_pairs(folder, pairs)
    write_verdicts(folder, verdicts)
    inside.write(folder, MARKDOWN, markdown(made))
    inside.write(folder, PAGE, page(made, pictures))
    inside.write(folder, FIGURES, made.to_json())


# ---------------------------------------------------------------- the table, for all forms


# ---------------------------------------------------------------- Markdown


def markdown(made: Evaluation) -> str:
    """The report as Markdown."""
    lines = ["# Agent evaluation", "", *(f"- {md(one)}" for one in points(made)), "", "## Results", ""]
    head = ("Dataset", "Evaluation", "Draw", "B wins", "A wins", "A", "B", "Verdicts")
    for rows in filter(None, (table(made), by_judge(made))):
        lines += grid(head, (cells(row) for row in rows))
        lines.append("")
    lines += [
        "In brackets: 95% intervals (bootstrap over the tasks). A verdict counts if it is the same in both orders; if not it is a draw.",
        "",
        *judging(made),
    ]
    config = msgspec.json.format(msgspec.json.encode(setup(made)), indent=2).decode()
    lines += ["## Configuration", "", "```json", config, "```", ""]
    return "\n".join(lines)


def judging(made: Evaluation) -> list[str]:
    """What Markdown says of the judges, the solutions and the cost, whatever was compared."""
    lines = ["## The order", ""]
    lines += grid(
        ("Dataset", "Pair", "Judge", "Change with the order", "Preference for the first", "p", "A wins, A first", "A wins, B first"),
        [
            (
                titled(one.group), f"{one.a} / {one.b}", one.judge, f"{found.flips:,} of {found.pairs:,}", points_of(found.effect, found.pairs),
                f"{found.p:.2g}", share(found.a_first.wins), share(found.b_first.wins),
            )
            for one in made.comparisons
            for found in [one.position]
            if found
        ],
    )  # fmt: skip
    lines += ["", "## The length", ""]
    lines += grid(
        ("Dataset", "Pair", "Judge", "A's length over B's", "The longer wins", "Score of A", "At the same length"),
        [
            (
                titled(one.group), f"{one.a} / {one.b}", one.judge, ratio_of(one),
                share(one.length.longer_wins), points_of(one.shares.score, one.shares.of),
                points_of(one.length.controlled, one.shares.of) if one.length.controlled else "too few decided",
            )
            for one in made.comparisons
        ],
    )  # fmt: skip
    lines += ["", "## The judges", ""]
    lines += grid(
        ("Judge", "Dataset", "Pair", "Says the same when asked again", "Kappa", "Mean scores of A and B"),
        [
            (
                one.judge, titled(one.group), f"{one.a} / {one.b}", share(one.consistency.same) if one.consistency else "not asked",
                kappa_of(one.consistency.kappa) if one.consistency else "",
                f"{one.scores[0]:.1f}, {one.scores[1]:.1f}" if one.scores else "–",
            )
            for one in made.comparisons
        ],
    )  # fmt: skip
    if made.agreement:
        lines += ["", *grid(("Judges", "Agree", "Kappa", "Pairs"), agreement_rows(made))]
    if made.ratings:
        lines += ["", "## Ratings (Bradley–Terry)", ""]
        lines += grid(
            ("Rank", "System", "Rating", "95%"),
            [
                (str(one.rank), one.system, f"{one.rating.value:+.0f}", span_of(one.rating))
                for one in made.ratings
            ],
        )
    lines += ["", "## Solutions", ""]
    lines += grid(
        ("Dataset", "System", "Made by", "Written down by", "Solutions", "Characters", "Failed", "Cut off", "From a part"),
        [
            (
                titled(one.group), one.name, one.made, one.model, f"{one.solutions:,}", f"{one.characters:,.0f}",
                f"{one.failed:,}", f"{one.cut_off:,}", f"{one.shortened:,}",
            )
            for one in made.systems
        ],
    )  # fmt: skip
    lines += [
        "",
        "## Cost",
        "",
        *grid(("Step", "Model", "Calls", "Prompt tokens", "Completion tokens", "Money"), cost_rows(made)),
    ]
    lines += ["", "## Pairs", ""]
    for shown in made.examples:
        lines += _shown(shown)
    return lines


def _shown(shown: ShownPair) -> list[str]:
    pair = shown.pair
    lines = [
        f"### {md(titled(pair.group))} {md(pair.source)}: {WORDS[shown.winner]}",
        "",
        *fenced(pair.task),
        "",
    ]
    lines += [
        f"A, {md(pair.system_a)}:",
        "",
        *fenced(pair.text_a),
        "",
        f"B, {md(pair.system_b)}:",
        "",
        *fenced(pair.text_b),
        "",
    ]
    for one in shown.verdicts:
        lines += [f"{md(one.judge)}: **{WORDS[one.winner]}**{scores_of(one)}", "", *fenced(one.reason), ""]
    return lines


# ---------------------------------------------------------------- the page


# ---------------------------------------------------------------- plots
