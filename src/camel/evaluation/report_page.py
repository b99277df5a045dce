"""An evaluation as one HTML page. Whatever a model said goes through `text`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from camel.core.message import Usage
from camel.evaluation.contest_records import AGENTS
from camel.evaluation.pairs import Winner
from camel.evaluation.report_table import (
    WORDS,
    TableRow,
    agreement_rows,
    by_judge,
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
from camel.evaluation.results import Comparison, Evaluation
from camel.evaluation.standing import Position, WinShares
from camel.reports.html import document, figure, interval, money, outcomes, percent, short, text, tiles
from camel.reports.html import table as html_table
from camel.reports.intervals import Rate
from camel.reports.plots import Plot


def page(made: Evaluation, pictures: Sequence[tuple[Plot, str]]) -> str:
    """The report as one HTML page."""
    drawn = {plot.name: figure(plot, picture) for plot, picture in pictures}
    parts = [
        ("Results", "results", _results(made)),
        *judging_parts(made, drawn),
        ("Method", "method", _method(made)),
    ]
    return document("Agent evaluation", _head(made), parts)


def judging_parts(made: Evaluation, drawn: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The parts of a page about the judges, the solutions and the cost, whatever was compared."""
    parts = [
        ("Order", "order", drawn.get("order", "") + _order(made)),
        ("Length", "length", drawn.get("length", "<h2>What the length does</h2>") + _length(made)),
        ("Judges", "judges", _judges(made)),
        ("Ratings", "ratings", drawn.get("ratings", "") + _ratings(made)),
        ("Pairs", "pairs", _pairs(made)),
        ("Cost", "cost", _cost(made)),
    ]
    return [part for part in parts if part[2]]


def _head(made: Evaluation) -> str:
    cards: list[tuple[str, str, str]] = []
    for drawn in made.drawn[:3]:
        one = next((one for one in made.headline if one.group == drawn.group and one.a == AGENTS), None)
        if one:
            versus = f" against {one.b}" if len(made.headline) > len(made.drawn) else ""
            wins = one.shares.wins
            cards.append((f"{titled(one.group)}: agents win{versus}", f"{wins.rate:.1%}", interval(wins)))
    flips = [one.position for one in made.comparisons if one.position]
    if pairs := sum(one.pairs for one in flips):
        changed = sum(one.flips for one in flips)
        cards.append(
            (
                "Change with the order",
                f"{changed / pairs:.0%}",
                f"{changed:,} of {pairs:,} verdicts, counted as draws",
            )
        )
    agreed = made.agreement[-1] if made.agreement else None
    if agreed and agreed.kappa.kappa is not None:
        cards.append(("Judges agree", f"{agreed.kappa.observed:.0%}", f"kappa {kappa_of(agreed.kappa)}"))
    usage = sum((one.usage for one in made.costs), Usage())
    note = f"{usage.calls:,} calls, {short(usage.total)} tokens"
    if made.money is None:
        cards.append(("Tokens", short(usage.total), f"{usage.calls:,} calls"))
    else:
        cards.append(("Cost", money(made.money), note))
    judged = ", ".join(f'<span class="mono">{text(one)}</span>' for one in made.judges)
    runs = ", ".join(f'<span class="mono">{text(one.run)}</span>' for one in made.drawn)
    return f'<h1>Agent evaluation</h1><p class="muted">{runs} · judged by {judged}</p>{tiles(cards)}'


def _bar(row: TableRow) -> str:
    won, drawn, lost = (
        value.rate if isinstance(value, Rate) else value for value in (row.wins, row.draws, row.losses)
    )
    return outcomes(won, drawn, lost)


def _cell(value: Rate | float) -> str:
    if not isinstance(value, Rate):
        return f'<td class="number">{value:.1%}</td>'
    if not value.of:
        return '<td class="number">–</td>'
    return f'<td class="number">{value.rate:.1%} <span class="interval">{interval(value)}</span></td>'


def _results(made: Evaluation) -> str:
    rows = table(made)
    ours = [row for row in rows if row.ours]
    # One opponent: its name stands in the head, as in the paper; else each line says who met whom.
    one = len({(row.a, row.b) for row in ours}) == 1
    first, second = ("agents", text(ours[0].b)) if one else ("first", "second")
    said = "".join(f"<li>{text(line)}</li>" for line in points(made))
    found = (
        f'<h2>Results</h2><ul class="points">{said}</ul>'
        f'<p class="key"><i class="win"></i>{first} win{"" if one else "s"} <i class="draw"></i>draw <i class="loss"></i>{second} wins</p>'
        f"{_wins(rows, first, second)}"
        "<p><small>With 95% intervals. Lines that begin with “Paper” are the paper's Table 1, against gpt-3.5-turbo in a single shot; "
        "the votes of humans were 453. Ours count a verdict only if it is the same in both orders.</small></p>"
    )
    if alone := by_judge(made):
        found += f"<details><summary><h3>Each judge by itself</h3></summary>{_wins(alone, first, second)}</details>"
    return found


def _wins(rows: Sequence[TableRow], first: str, second: str) -> str:
    several = second == "second"
    body: list[str] = []
    last = ""
    for row in rows:
        name = "" if row.dataset == last else text(row.dataset)
        last = row.dataset
        who = f'<td>{text(row.a)} <span class="muted">/</span> {text(row.b)}</td>' if several else ""
        body.append(
            f'<tr class="{"ours" if row.ours else "none"}"><td class="name">{name}</td><td>{text(row.evaluation)}</td>{who}<td>{_bar(row)}</td>'
            f'{_cell(row.draws)}{_cell(row.losses)}{_cell(row.wins)}<td class="number">{row.of:,}</td></tr>'
        )
    win = "wins" if several else "win"
    return (
        '<div class="scroll"><table class="tight"><thead><tr><th>Dataset</th><th>Evaluation</th>'
        f"{'<th>First / second</th>' if several else ''}<th></th>"
        f'<th class="number">Draw</th><th class="number">{second.capitalize() if several else second} wins</th>'
        f'<th class="number">{first.capitalize()} {win}</th><th class="number">Verdicts</th></tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _named(one: Comparison, made: Evaluation) -> tuple[str, ...]:
    """What tells a comparison from the others, where there are others."""
    several = len({(other.a, other.b) for other in made.comparisons}) > 1
    return (titled(one.group), *((f"{one.a} / {one.b}",) if several else ()), one.judge)


def _order(made: Evaluation) -> str:
    head = (
        *(
            ("Dataset", "Pair", "Judge")
            if len(_named(made.comparisons[0], made)) == 3
            else ("Dataset", "Judge")
        ),
    )
    rows = [
        (
            *_named(one, made), f"{found.flips:,} of {found.pairs:,}", f"{found.to_first:,}", f"{found.to_second:,}",
            points_of(found.effect, found.pairs), _p(found),
        )
        for one in made.comparisons
        for found in [one.position]
        if found
    ]  # fmt: skip
    return (
        html_table(
            (*head, "Change", "to the first", "to the second", "Preference for the first", "p"),
            rows,
            len(head),
        )
        + "<p><small>Each pair was shown twice, with either solution first. “To the first”: each solution won when it was shown first. "
        "The preference is the share of verdicts for the first less that for the second: 0 without bias. p: how likely flips as uneven "
        "as these are without it.</small></p>"
    )


def _p(found: Position) -> str:
    return "<0.001" if found.p < 0.001 else f"{found.p:.3f}"


def _length(made: Evaluation) -> str:
    head = (
        ("Dataset", "Pair", "Judge") if len(_named(made.comparisons[0], made)) == 3 else ("Dataset", "Judge")
    )
    rows = [
        (
            *_named(one, made), ratio_of(one), share(one.length.longer_wins), _won(one.length.a_longer),
            _won(one.length.a_shorter), points_of(one.shares.score, one.shares.of),
            points_of(one.length.controlled, one.shares.of) if one.length.controlled else "too few decided",
        )
        for one in made.comparisons
    ]  # fmt: skip
    names = (
        "Length ratio",
        "The longer wins",
        "A wins if longer",
        "if shorter",
        "Score of A",
        "at equal length",
    )
    return (
        html_table((*head, *names), rows, len(head))
        + "<p><small>Length ratio: characters of A over those of B, the median. The score counts a draw as half a win. At equal "
        "length: what a logistic regression on the log of the ratio expects where both are equally long. A longer solution may win "
        "because it is better; this table cannot tell, it only says how much of the result goes with length.</small></p>"
    )


def _won(shares: WinShares) -> str:
    return f"{shares.wins.count:,} of {shares.of:,}"


def _judges(made: Evaluation) -> str:
    head = (
        ("Dataset", "Pair", "Judge") if len(_named(made.comparisons[0], made)) == 3 else ("Dataset", "Judge")
    )
    rows = [
        (
            *_named(one, made), f"{one.scores[0]:.1f}" if one.scores else "–", f"{one.scores[1]:.1f}" if one.scores else "–",
            f"{one.shares.undecided:,}", share(one.consistency.same) if one.consistency else "not asked",
            kappa_of(one.consistency.kappa) if one.consistency else "",
        )
        for one in made.comparisons
    ]  # fmt: skip
    found = "<h2>The judges</h2>" + html_table(
        (*head, "Mean score of A", "of B", "Undecided pairs", "Same answer when asked again", "Kappa"),
        rows,
        len(head),
    )
    if made.agreement:
        found += "<h3>Agreement</h3>" + html_table(
            ("Judges", "Agree", "Kappa", "Pairs"), agreement_rows(made), 1
        )
    return (
        found
        + "<p><small>Kappa is agreement beyond chance: Cohen's for two, Fleiss' for more; 1 is full, 0 as by chance. Where a "
        "judge always gives the same answer there is none.</small></p>"
    )


def _ratings(made: Evaluation) -> str:
    if not made.ratings:
        return ""
    others = [one.system for one in made.ratings]
    rows = [
        (
            one.system, f"{one.rating.value:+.0f}".replace("-", "−"), span_of(one.rating),
            *("" if other == one.system else percent(one.beats[other]) for other in others),
        )
        for one in made.ratings
    ]  # fmt: skip
    return (
        html_table(("System", "Rating", "95%", *(f"beats {other}" for other in others)), rows, 1)
        + "<p><small>Bradley–Terry, in Elo's points around the average system; a draw is half a win. Intervals by drawing the tasks "
        "again, with all that was judged on them.</small></p>"
    )


def _pairs(made: Evaluation) -> str:
    marks: dict[Winner | None, str] = {"a": "yes", "b": "no", "draw": "", None: ""}
    parts: list[str] = []
    for place, shown in enumerate(made.examples):
        pair = shown.pair
        verdicts = "".join(
            f'<p class="reason" dir="auto"><strong>{text(one.judge)}</strong> · {WORDS[one.winner]}{scores_of(one)} · {text(one.reason) or "no reason given"}</p>'
            for one in shown.verdicts
        )
        sides = "".join(
            f'<article><header><span class="seat{" user" if side == "B" else ""}">{side}</span><span>{text(system)}</span>'
            f'<span class="muted">{len(said):,} characters</span></header><div class="said" dir="auto">{text(said)}</div></article>'
            for side, system, said in (("A", pair.system_a, pair.text_a), ("B", pair.system_b, pair.text_b))
        )
        labels = "".join(f' <span class="verdict no">{text(label)}</span>' for label in pair.labels)
        parts.append(
            f"<details{' open' if not place else ''}><summary><h3>{text(titled(pair.group))} {text(pair.source)}</h3>"
            f'<span class="verdict {marks[shown.winner]}">{WORDS[shown.winner]}</span>{labels}</summary>'
            f'<div class="before" dir="auto">{text(pair.task)}</div><div class="pair">{sides}</div>{verdicts}</details>'
        )
    note = "Of each kind of verdict some, in the order in which the tasks were drawn. All pairs are in pairs.jsonl, all verdicts in verdicts.jsonl."
    return f"<h2>Pairs</h2><p><small>{note}</small></p>{''.join(parts)}"


def _cost(made: Evaluation) -> str:
    head = ("Step", "Model", "Calls", "Prompt tokens", "Completion tokens", "Money")
    made_of = html_table(
        ("Dataset", "System", "Made by", "Written down by", "Solutions", "Characters", "Failed", "Cut off", "From a part"),
        [
            (
                titled(one.group), one.name, one.made, one.model, f"{one.solutions:,}", f"{one.characters:,.0f}",
                f"{one.failed:,}", f"{one.cut_off:,}", f"{one.shortened:,}",
            )
            for one in made.systems
        ],
        4,
    )  # fmt: skip
    return (
        f"<h2>Cost</h2>{html_table(head, cost_rows(made), 2)}<h2>Solutions</h2>{made_of}"
        "<p><small>Cut off: ended at the token limit. From a part: the conversation did not fit the summariser's window.</small></p>"
    )


def _method(made: Evaluation) -> str:
    config = msgspec.json.format(msgspec.json.encode(setup(made)), indent=2).decode()
    drawn = "; ".join(
        f"{titled(one.group)}: {one.tasks:,} of {one.of:,} conversations"
        + (f", {one.excluded:,} labelled ones left out" if one.excluded else "")
        for one in made.drawn
    )
    return (
        "<h2>How this was made</h2>"
        "<p>Tasks were drawn by a seed. A model wrote down the solution that each conversation arrived at, as one text that does not show how it "
        "came about (paper, section 5.1); the single shot is one answer to the same task. A judge was shown the task and two solutions "
        "without names, in both orders, and gave scores, a reason and a decision. A verdict that changes with the order is a draw. "
        "What solutions say to their judge stands behind signs that they cannot remove, and the judge is told that it is material. "
        "Shares have 95% intervals by a Bayesian bootstrap over the tasks; they say nothing about other judges, "
        "prompts or models.</p>"
        f"<p><small>{text(drawn)}.</small></p>"
        f"<details><summary><h3>Configuration</h3></summary><pre class=said>{text(config)}</pre></details>"
    )
