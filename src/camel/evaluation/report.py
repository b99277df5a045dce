"""The report of an evaluation of agents: the paper's Table 1 with ours beside it, as a page, as Markdown, as plots.

The one decision to know: nothing here counts. Every number comes from the `Evaluation`, which is also written as JSON, so
that the three say the same. Text of models stands in the page as text, and in the Markdown in fences that it cannot end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from camel.core.message import Usage
from camel.evaluation.agreement import Kappa
from camel.evaluation.contest import AGENTS, Contest, Kind
from camel.evaluation.pairs import Pair, PairVerdict, Winner, write_pairs, write_verdicts
from camel.evaluation.results import Comparison, Evaluation, ShownPair
from camel.evaluation.standing import Interval, Position, WinShares
from camel.reports.html import document, figure, interval, money, outcomes, percent, short, text, tiles
from camel.reports.html import table as html_table
from camel.reports.intervals import Rate, holm, paired
from camel.reports.markdown import fenced, grid, md
from camel.reports.plots import ACCENT, GRID, INK, Plot, Spec, svg, write_plots
from camel.storage import inside

PAGE, MARKDOWN, FIGURES = "evaluation.html", "evaluation.md", "evaluation.json"
WIN, DRAW, LOSS = ACCENT, "#9aa4b2", "#d97a1f"
TITLES = {"ai_society": "AI Society", "code": "Code"}
STEPS: dict[Kind, str] = {
    "summary": "Summaries of conversations",
    "answer": "Single-shot answers",
    "verdict": "Verdicts, both orders",
    "repeat": "Verdicts asked again",
}
CHANCE = 0.05
MOST_ROWS = 12
"""Of a plot; the tables have all."""


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


class TableRow(msgspec.Struct, frozen=True):
    """A line of the table."""

    dataset: str
    evaluation: str
    a: str
    b: str
    draws: Rate | float
    losses: Rate | float
    wins: Rate | float
    of: int
    ours: bool


def table(made: Evaluation) -> list[TableRow]:
    """The paper's Table 1: its own lines where they are about the same data, then what counts of ours."""
    rows: list[TableRow] = []
    seen: set[str] = set()
    for drawn in made.drawn:
        paper = () if drawn.scenario in seen else made.paper.get(drawn.scenario, ())
        seen.add(drawn.scenario)
        rows += [
            TableRow(
                titled(drawn.scenario), f"Paper: {one.evaluation}", "CAMEL agents", "gpt-3.5-turbo",
                one.draws, one.losses, one.wins, one.of, False,
            )
            for one in paper
        ]  # fmt: skip
        rows += [
            TableRow(
                titled(one.group), f"people ({one.voters} voted)", one.a, one.b,
                one.draws, one.losses, one.wins, one.wins.of, True,
            )
            for one in made.human if one.group == drawn.group
        ]  # fmt: skip
        rows += _rows(one for one in made.headline if one.group == drawn.group)
    return rows


def by_judge(made: Evaluation) -> list[TableRow]:
    """The same of each judge by itself, where there are several."""
    return _rows(made.comparisons) if len(made.judges) > 1 else []


def _rows(comparisons: Iterable[Comparison]) -> list[TableRow]:
    return [
        TableRow(
            titled(one.group),
            one.judge,
            one.a,
            one.b,
            one.shares.draws,
            one.shares.losses,
            one.shares.wins,
            one.shares.of,
            True,
        )
        for one in comparisons
    ]


def titled(group: str) -> str:
    """A row of the table as people call it."""
    return TITLES.get(group, group)


def share(value: Rate | float) -> str:
    """A share with its interval, where it has one."""
    if isinstance(value, float | int):
        return f"{value:.1%}"
    return f"{value.rate:.1%} ({100 * value.low:.0f} – {100 * value.high:.0f}%)" if value.of else "–"


def points(made: Evaluation) -> list[str]:
    """What one would say first, from the figures alone; plain text."""
    said: list[str] = []
    for one in made.headline:
        if not one.shares.of or AGENTS not in (one.a, one.b):
            continue
        score, where = one.shares.score, titled(one.group)
        better = one.a if score.low > 0.5 else one.b if score.high < 0.5 else ""
        if better:
            sure = f"{better} is better than {one.b if better == one.a else one.a}"
        else:
            sure = f"not enough to tell {one.a} and {one.b} apart"
        said.append(
            f"{where}, {one.a} against {one.b}: {share(one.shares.wins)} won, {share(one.shares.draws)} drawn, "
            f"{share(one.shares.losses)} lost, of {one.shares.of:,}; {sure}."
        )
    return said + judge_points(made)


def judge_points(made: Evaluation) -> list[str]:
    """What one would say of the judges, whatever was compared."""
    said: list[str] = []
    for judge in made.judges:
        said += _biases([one for one in made.comparisons if one.judge == judge])
    said += [
        f"{judge} also wrote solutions that it judges: models tend to like their own." for judge in made.own
    ]
    if made.shortened:
        said.append(f"In {made.shortened:,} questions a solution was cut to fit the judge's window.")
    if made.undecided.count:
        said.append(
            f"{made.undecided.count:,} of {made.undecided.of:,} questions got no readable answer; they count nowhere."
        )
    return said


def _biases(comparisons: Sequence[Comparison]) -> list[str]:
    """What one judge prefers besides the better solution, as far as it is no accident."""
    said: list[str] = []
    found = [one.position for one in comparisons if one.position]
    sure = [one for one, p in zip(found, holm([one.p for one in found]), strict=True) if p < CHANCE]
    for side, mine in (
        ("first", [one for one in sure if one.effect.value > 0]),
        ("second", [one for one in sure if one.effect.value < 0]),
    ):
        if mine:
            flips, pairs = sum(one.flips for one in mine), sum(one.pairs for one in mine)
            said.append(
                f"{comparisons[0].judge} prefers what it is shown {side}: {flips:,} of {pairs:,} verdicts change with the order. "
                "They are counted as draws."
            )
    rates = [one.length.longer_wins for one in comparisons]
    chances = holm([paired(one.of - one.count, one.count, one.of).p for one in rates])
    lengths = [one for one, p in zip(rates, chances, strict=True) if p < CHANCE]
    for way in ("longer", "shorter"):
        mine = [one for one in lengths if (one.rate > 0.5) == (way == "longer")]
        if mine:
            won, of = sum(one.count for one in mine), sum(one.of for one in mine)
            count = won if way == "longer" else of - won
            said.append(
                f"For {comparisons[0].judge} the {way} solution wins {count:,} of {of:,} that are decided."
            )
    return said


def _kappa(kappa: Kappa) -> str:
    if kappa.kappa is None:
        return "not defined: always the same answer" if kappa.items else "nothing in common"
    if kappa.low is None or kappa.high is None:
        return f"{kappa.kappa:.2f}"
    return f"{kappa.kappa:.2f} ({kappa.low:.2f} – {kappa.high:.2f})"


def _points(value: Interval, of: int) -> str:
    if not of:  # of nothing there is no share
        return "–"
    return f"{value.value:.1%} ({100 * value.low:.0f} – {100 * value.high:.0f}%)".replace("-", "−")


def _ratio(one: Comparison) -> str:
    return f"{one.length.ratio:.2f}" if one.shares.of else "–"


def _tokens(usage: Usage) -> tuple[str, str, str]:
    return f"{usage.calls:,}", f"{usage.prompt:,}", f"{usage.completion:,}"


WORDS: dict[Winner | None, str] = {"a": "A wins", "b": "B wins", "draw": "draw", None: "undecided"}


# ---------------------------------------------------------------- Markdown


def markdown(made: Evaluation) -> str:
    """The report as Markdown."""
    lines = ["# Agent evaluation", "", *(f"- {md(one)}" for one in points(made)), "", "## Results", ""]
    head = ("Dataset", "Evaluation", "Draw", "B wins", "A wins", "A", "B", "Verdicts")
    for rows in filter(None, (table(made), by_judge(made))):
        lines += grid(head, (_cells(row) for row in rows))
        lines.append("")
    lines += [
        "In brackets: 95% intervals (bootstrap over the tasks). A verdict counts if it is the same in both orders; if not it is a draw.",
        "",
        *judging(made),
    ]
    config = msgspec.json.format(msgspec.json.encode(_setup(made)), indent=2).decode()
    lines += ["## Configuration", "", "```json", config, "```", ""]
    return "\n".join(lines)


def judging(made: Evaluation) -> list[str]:
    """What Markdown says of the judges, the solutions and the cost, whatever was compared."""
    lines = ["## The order", ""]
    lines += grid(
        ("Dataset", "Pair", "Judge", "Change with the order", "Preference for the first", "p", "A wins, A first", "A wins, B first"),
        [
            (
                titled(one.group), f"{one.a} / {one.b}", one.judge, f"{found.flips:,} of {found.pairs:,}", _points(found.effect, found.pairs),
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
                titled(one.group), f"{one.a} / {one.b}", one.judge, _ratio(one),
                share(one.length.longer_wins), _points(one.shares.score, one.shares.of),
                _points(one.length.controlled, one.shares.of) if one.length.controlled else "too few decided",
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
                _kappa(one.consistency.kappa) if one.consistency else "",
                f"{one.scores[0]:.1f}, {one.scores[1]:.1f}" if one.scores else "–",
            )
            for one in made.comparisons
        ],
    )  # fmt: skip
    if made.agreement:
        lines += ["", *grid(("Judges", "Agree", "Kappa", "Pairs"), _agreement_rows(made))]
    if made.ratings:
        lines += ["", "## Ratings (Bradley–Terry)", ""]
        lines += grid(
            ("Rank", "System", "Rating", "95%"),
            [
                (str(one.rank), one.system, f"{one.rating.value:+.0f}", _span(one.rating))
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
        *grid(("Step", "Model", "Calls", "Prompt tokens", "Completion tokens", "Money"), _cost_rows(made)),
    ]
    lines += ["", "## Pairs", ""]
    for shown in made.examples:
        lines += _shown(shown)
    return lines


def _cells(row: TableRow) -> tuple[str, ...]:
    shares = (share(row.draws), share(row.losses), share(row.wins))
    return row.dataset, row.evaluation, *shares, row.a, row.b, f"{row.of:,}"


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
        lines += [f"{md(one.judge)}: **{WORDS[one.winner]}**{_scores(one)}", "", *fenced(one.reason), ""]
    return lines


def _scores(one: PairVerdict) -> str:
    return "" if one.score_a is None or one.score_b is None else f", {one.score_a:g} to {one.score_b:g}"


def _span(value: Interval) -> str:
    return f"{value.low:+.0f} – {value.high:+.0f}".replace("-", "−")


def _agreement_rows(made: Evaluation) -> list[tuple[str, ...]]:
    return [
        (", ".join(one.judges), f"{one.kappa.observed:.0%}", _kappa(one.kappa), f"{one.kappa.items:,}")
        for one in made.agreement
    ]


def _cost_rows(made: Evaluation) -> list[tuple[str, ...]]:
    rows = [(STEPS[one.step], one.model, *_tokens(one.usage), money(one.money)) for one in made.costs]
    total = sum((one.usage for one in made.costs), Usage())
    return [*rows, ("All", "", *_tokens(total), money(made.money))]


def _setup(made: Evaluation) -> dict[str, object]:
    return {
        "config": made.config,
        "prompts": made.prompts,
        "judges": made.judges,
        "drawn": made.drawn,
        "version": made.version,
    }


# ---------------------------------------------------------------- the page


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
        cards.append(("Judges agree", f"{agreed.kappa.observed:.0%}", f"kappa {_kappa(agreed.kappa)}"))
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
            _points(found.effect, found.pairs), _p(found),
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
            *_named(one, made), _ratio(one), share(one.length.longer_wins), _won(one.length.a_longer),
            _won(one.length.a_shorter), _points(one.shares.score, one.shares.of),
            _points(one.length.controlled, one.shares.of) if one.length.controlled else "too few decided",
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
            _kappa(one.consistency.kappa) if one.consistency else "",
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
            ("Judges", "Agree", "Kappa", "Pairs"), _agreement_rows(made), 1
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
            one.system, f"{one.rating.value:+.0f}".replace("-", "−"), _span(one.rating),
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
            f'<p class="reason" dir="auto"><strong>{text(one.judge)}</strong> · {WORDS[one.winner]}{_scores(one)} · {text(one.reason) or "no reason given"}</p>'
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
        f"<h2>Cost</h2>{html_table(head, _cost_rows(made), 2)}<h2>Solutions</h2>{made_of}"
        "<p><small>Cut off: ended at the token limit. From a part: the conversation did not fit the summariser's window.</small></p>"
    )


def _method(made: Evaluation) -> str:
    config = msgspec.json.format(msgspec.json.encode(_setup(made)), indent=2).decode()
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


# ---------------------------------------------------------------- plots


def plots(made: Evaluation) -> list[Plot]:
    """All plots that the figures allow."""
    return [_plot_results(made), *judging_plots(made)]


def judging_plots(made: Evaluation) -> list[Plot]:
    """Those about the judges, whatever was compared."""
    drawn: list[Plot] = []
    if any(one.position and one.position.pairs for one in made.comparisons):
        drawn.append(_plot_order(made))
    # A panel for each comparison: of many the tables have to do.
    if len(made.headline) <= MOST_ROWS and any(one.length.bins for one in made.headline):
        drawn.append(_plot_length(made))
    if made.ratings:
        drawn.append(_plot_ratings(made))
    return drawn


_SIDE: Spec = {"labelColor": INK, "labelFontSize": 12, "domain": False, "ticks": False, "labelLimit": 420}
_KINDS = ("A wins", "draw", "B wins")
_COLOURS: Spec = {"domain": list(_KINDS), "range": [WIN, DRAW, LOSS]}


def _plot_results(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    order: list[str] = []
    for row in table(made):
        name = f"{row.dataset}, {row.evaluation}" + (f": {row.a} / {row.b}" if row.ours else "")
        order.append(name)
        for kind, value in zip(_KINDS, (row.wins, row.draws, row.losses), strict=True):
            size = value.rate if isinstance(value, Rate) else value
            rows.append({"row": name, "kind": kind, "share": size, "place": _KINDS.index(kind)})
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 30},
        "mark": {"type": "bar", "height": 16},
        "encoding": {
            "y": {"field": "row", "type": "nominal", "sort": order, "title": None, "axis": _SIDE},
            "x": {
                "field": "share", "type": "quantitative", "stack": "zero", "title": "of verdicts",
                "axis": {"format": "~%", "tickCount": 5}, "scale": {"domain": [0, 1]},
            },
            "color": {"field": "kind", "type": "nominal", "scale": _COLOURS, "sort": list(_KINDS)},
            "order": {"field": "place", "type": "quantitative"},
        },
    }  # fmt: skip
    return Plot("results", "Who wins", "Shares of verdicts; the paper's lines are its Table 1.", spec)


def _plot_order(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    names: list[str] = []
    shown = [one for one in made.comparisons if one.position and one.position.pairs]
    if len(shown) > MOST_ROWS:
        shown = [one for one in shown if one.a == AGENTS] or shown
    for one in shown[:MOST_ROWS]:
        assert one.position
        pair = f": {one.a} / {one.b}" if len({(other.a, other.b) for other in shown}) > 1 else ""
        name = f"{titled(one.group)}, {one.judge}{pair}"
        names.append(name)
        for kind, shares in (
            ("A shown first", one.position.a_first),
            ("B shown first", one.position.b_first),
            ("both orders", one.shares),
        ):
            score = shares.score
            rows.append(
                {"row": name, "kind": kind, "value": score.value, "low": score.low, "high": score.high}
            )
    kinds = ["A shown first", "B shown first", "both orders"]
    x: Spec = {
        "field": "low", "type": "quantitative", "title": "score of A (wins and half of the draws)",
        "axis": {"format": "~%", "tickCount": 5}, "scale": {"domain": [0, 1]},
    }  # fmt: skip
    colour: Spec = {
        "field": "kind", "type": "nominal", "sort": kinds, "scale": {"domain": kinds, "range": ["#1f9d7a", "#a35bd1", WIN]},
    }  # fmt: skip
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 48, "for": "position"},
        "encoding": {
            "y": {"field": "row", "type": "nominal", "sort": names, "title": None, "axis": _SIDE},
            "yOffset": {"field": "kind", "type": "nominal", "sort": kinds},
        },
        "layer": [
            {"mark": {"type": "rule", "color": GRID, "strokeWidth": 2}, "data": {"values": [{"half": 0.5}]}, "encoding": {"x": {"field": "half", "type": "quantitative"}, "y": None, "yOffset": None}},
            {"mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.45, "strokeCap": "round"}, "encoding": {"x": x, "x2": {"field": "high"}, "color": colour}},
            {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}, "encoding": {"x": {**x, "field": "value"}, "color": colour}},
        ],
    }  # fmt: skip
    caption = (
        "What one order alone would have said, and what is reported. Without bias the first two are the same."
    )
    return Plot("order", "What the order does", caption, spec)


def _plot_length(made: Evaluation) -> Plot:
    rows: list[Spec] = []
    panels: list[str] = []
    labels: list[str] = []
    for one in made.headline:
        name = f"{titled(one.group)}: {one.a} / {one.b}"
        panels.append(name)
        for place, found in enumerate(one.length.bins):
            label = (
                f"<{found.high:g}"
                if not place
                else f"≥{found.low:g}"
                if found.high is None
                else f"{found.low:g}–{found.high:g}"
            )
            if label not in labels:
                labels.append(label)
            for kind, count in zip(_KINDS, (found.wins, found.draws, found.losses), strict=True):
                rows.append(
                    {"panel": name, "bin": label, "kind": kind, "count": count, "place": _KINDS.index(kind)}
                )
    spec: Spec = {
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "nominal", "sort": panels, "title": None},
        "columns": min(2, len(panels)),
        "spacing": 26,
        "spec": {
            "width": 330,
            "height": 150,
            "mark": {"type": "bar", "width": {"band": 0.75}},
            "encoding": {
                "x": {"field": "bin", "type": "nominal", "sort": labels, "title": "length of A over that of B", "axis": {"labelAngle": 0}},
                "y": {"field": "count", "type": "quantitative", "title": "pairs", "axis": {"tickCount": 4, "tickMinStep": 1}},
                "color": {"field": "kind", "type": "nominal", "scale": _COLOURS, "sort": list(_KINDS)},
                "order": {"field": "place", "type": "quantitative"},
            },
        },
    }  # fmt: skip
    caption = "Pairs by how much longer A's solution is, and who wins them. Where the colours change from left to right, length goes with winning."
    return Plot("length", "What the length does", caption, spec)


def _plot_ratings(made: Evaluation) -> Plot:
    rows = [
        {"system": one.system, "value": one.rating.value, "low": one.rating.low, "high": one.rating.high}
        for one in made.ratings
    ]
    y: Spec = {
        "field": "system",
        "type": "nominal",
        "sort": [one.system for one in made.ratings],
        "title": None,
        "axis": _SIDE,
    }
    x: Spec = {"field": "low", "type": "quantitative", "title": "rating", "axis": {"tickCount": 6}}
    spec: Spec = {
        "data": {"values": rows},
        "width": 520,
        "height": {"step": 28},
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.4, "strokeCap": "round", "color": WIN}, "encoding": {"x": x, "x2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "color": WIN}, "encoding": {"x": {**x, "field": "value"}}},
        ],
    }  # fmt: skip
    return Plot(
        "ratings", "Ratings", "Bradley–Terry ratings with 95% intervals; 0 is the average system.", spec
    )
