"""The report of an evaluation of agents: the paper's Table 1 with ours next to it.

The one decision to know: nothing here counts. Every number comes from the `Evaluation`, which is also written as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from camel.core.message import Usage
from camel.evaluation.agreement import Kappa
from camel.evaluation.contest import Contest
from camel.evaluation.contest_records import AGENTS
from camel.evaluation.pairs import Pair, PairVerdict, Winner, write_pairs, write_verdicts
from camel.evaluation.report_plots import plots
from camel.evaluation.report_table import STEPS, WORDS, TableRow, by_judge, points, table, titled
from camel.evaluation.results import Comparison, Evaluation, ShownPair
from camel.evaluation.standing import Interval, WinShares
from camel.reports import report_files
from camel.reports.blocks import (
    Block,
    Cell,
    Columns,
    Details,
    Grid,
    Heading,
    Inline,
    Muted,
    Note,
    OutcomeBar,
    OutcomeKey,
    Paragraph,
    Picture,
    Points,
    Quote,
    Report,
    Section,
    Span,
    Style,
    Tile,
    joined,
    settings_block,
)
from camel.reports.intervals import Rate
from camel.reports.numbers import bounds, cost, interval, percent, probability, short, signed
from camel.storage import inside

PAGE, MARKDOWN, FIGURES = "evaluation.html", "evaluation.md", "evaluation.json"
STYLES: dict[Winner | None, Style] = {"a": "good", "b": "bad", "draw": "strong", None: "strong"}


def write_report(
    contest: Contest, made: Evaluation, pairs: Iterable[Pair], verdicts: Iterable[PairVerdict], folder: Path
) -> None:
    """Write everything that there is to see into a folder."""
    for name, prompt in contest.prompts.items():
        inside.write(folder, f"prompts/{name}.txt", prompt + "\n")
    write_pairs(folder, pairs)
    write_verdicts(folder, verdicts)
    report_files.write_report(folder, "evaluation", report(made), made.to_json())


def report(made: Evaluation) -> Report:
    """The whole report."""
    runs = joined(Span(one.run, "mono") for one in made.drawn)
    judges = joined(Span(one, "mono") for one in made.judges)
    return Report(
        "Agent evaluation",
        [*runs, " · judged by ", *judges],
        _tiles(made),
        [Section("Results", _results(made)), *judging(made), Section("Method", _method(made))],
        plots(made),
    )


def judging(made: Evaluation) -> list[Section]:
    """The sections about the judges, the solutions and the cost, whatever was compared."""
    return [
        Section("Order", _order(made)),
        Section("Length", _length(made)),
        Section("Judges", _judges(made)),
        Section("Ratings", _ratings(made) if made.ratings else []),
        Section("Pairs", _pairs(made.examples)),
        Section("Cost", _cost(made)),
    ]


def cost_tile(costs: Sequence[Usage], dollars: float | None) -> Tile:
    """What everything took: dollars where all prices are known, else tokens."""
    usage = sum(costs, Usage())
    if dollars is None:
        return Tile("Tokens", short(usage.total), f"{usage.calls:,} calls")
    return Tile("Cost", cost(dollars), f"{usage.calls:,} calls, {short(usage.total)} tokens")


def _tiles(made: Evaluation) -> list[Tile]:
    tiles: list[Tile] = []
    for drawn in made.drawn[:3]:
        one = next((one for one in made.headline if one.group == drawn.group and one.a == AGENTS), None)
        if one:
            versus = f" against {one.b}" if len(made.headline) > len(made.drawn) else ""
            wins = one.shares.wins
            tiles.append(Tile(f"{titled(one.group)}: agents win{versus}", f"{wins.rate:.1%}", interval(wins)))
    flips = [one.position for one in made.comparisons if one.position]
    if pairs := sum(one.pairs for one in flips):
        changed = sum(one.flips for one in flips)
        note = f"{changed:,} of {pairs:,} verdicts, counted as draws"
        tiles.append(Tile("Change with the order", f"{changed / pairs:.0%}", note))
    agreed = made.agreement[-1].kappa if made.agreement else None
    if agreed and agreed.kappa is not None:
        tiles.append(Tile("Judges agree", f"{agreed.observed:.0%}", f"kappa {_kappa(agreed)}"))
    return [*tiles, cost_tile([one.usage for one in made.costs], made.money)]


def rate_cell(value: Rate | float) -> Inline:
    """A share, with its interval where it has one."""
    if not isinstance(value, Rate):
        return f"{value:.1%}"
    return (f"{value.rate:.1%} ", Span(interval(value), "interval")) if value.of else "–"


def _results(made: Evaluation) -> list[Block]:
    rows = table(made)
    pairs = {(row.a, row.b) for row in rows if row.ours}
    # One opponent: its name is in the head, as in the paper; else each row says who met whom.
    several = len(pairs) != 1
    first, second = ("first wins", "second wins") if several else ("agents win", f"{pairs.pop()[1]} wins")
    alone = by_judge(made)
    return [
        Heading("Results"),
        Points(points(made)),
        OutcomeKey(first, second),
        _wins(rows, first, second, several=several),
        Note(
            "With 95% intervals (bootstrap over the tasks). Lines that begin with “Paper” are the paper's Table 1, against "
            "gpt-3.5-turbo in a single shot; the votes of humans were 453. Ours count a verdict only if it is the same in "
            "both orders; if not it is a draw.",
        ),
        *([Details("Each judge by itself", [_wins(alone, first, second, several=several)])] if alone else []),
    ]


def _wins(rows: Sequence[TableRow], first: str, second: str, *, several: bool) -> Grid:
    body: list[Sequence[Cell] | Muted] = []
    last = ""
    for row in rows:
        name = "" if row.dataset == last else row.dataset
        last = row.dataset
        won, drawn, lost = (
            one.rate if isinstance(one, Rate) else one for one in (row.wins, row.draws, row.losses)
        )
        cells: list[Cell] = [
            Span(name, "strong") if row.ours else name,
            row.evaluation,
            *([f"{row.a} / {row.b}"] if several else []),
            OutcomeBar(won, drawn, lost),
            *map(rate_cell, (row.draws, row.losses, row.wins)),
            f"{row.of:,}",
        ]
        body.append(cells if row.ours else Muted(cells))
    names = ("Dataset", "Evaluation", *(("First / second",) if several else ()), "")
    return Grid((*names, "Draw", second, first.capitalize(), "Verdicts"), body, len(names))


def _compared(
    made: Evaluation, names: Sequence[str], rows: Iterable[tuple[Comparison, Sequence[Cell]]]
) -> Grid:
    """A table with a row for each comparison, which says what tells it from the others."""
    several = len({(one.a, one.b) for one in made.comparisons}) > 1
    head = ("Dataset", "Pair", "Judge") if several else ("Dataset", "Judge")
    body = [
        (titled(one.group), *((f"{one.a} / {one.b}",) if several else ()), one.judge, *cells)
        for one, cells in rows
    ]
    return Grid((*head, *names), body, len(head))


def _order(made: Evaluation) -> list[Block]:
    names = (
        "Change",
        "to the first",
        "to the second",
        "Preference for the first",
        "p",
        "A wins, A first",
        "B first",
    )
    rows = [
        (
            one,
            (
                f"{found.flips:,} of {found.pairs:,}", f"{found.to_first:,}", f"{found.to_second:,}",
                _interval_cell(found.effect, found.pairs), probability(found.p),
                rate_cell(found.a_first.wins), rate_cell(found.b_first.wins),
            ),
        )
        for one in made.comparisons
        for found in [one.position]
        if found
    ]  # fmt: skip
    return [
        Picture("order", "What the order does"),
        _compared(made, names, rows),
        Note(
            "Each pair was shown twice, with either solution first. “To the first”: each solution won when it was shown "
            "first. The preference is the share of verdicts for the first less that for the second: 0 without bias. p: how "
            "likely flips as uneven as these are without it.",
        ),
    ]


def _length(made: Evaluation) -> list[Block]:
    names = (
        "Length ratio",
        "The longer wins",
        "A wins if longer",
        "if shorter",
        "Score of A",
        "at equal length",
    )
    rows = [
        (
            one,
            (
                f"{one.length.ratio:.2f}" if of else "–", rate_cell(one.length.longer_wins),
                _won(one.length.a_longer), _won(one.length.a_shorter), _interval_cell(one.shares.score, of),
                _interval_cell(one.length.controlled, of) if one.length.controlled else "too few decided",
            ),
        )
        for one in made.comparisons
        for of in [one.shares.of]
    ]  # fmt: skip
    return [
        Picture("length", "What the length does"),
        _compared(made, names, rows),
        Note(
            "Length ratio: characters of A over those of B, the median. The score counts a draw as half a win. At equal "
            "length: what a logistic regression on the log of the ratio expects where both are equally long. A longer solution "
            "may win because it is better; this table cannot tell, it only says how much of the result goes with length.",
        ),
    ]


def _won(shares: WinShares) -> str:
    return f"{shares.wins.count:,} of {shares.of:,}"


def _interval_cell(value: Interval, of: int) -> Inline:
    """Percentage points with their interval; a dash where there is nothing."""
    return (
        (f"{value.value:.1%} ".replace("-", "−"), Span(bounds(value.low, value.high), "interval"))
        if of
        else "–"
    )


def _kappa(kappa: Kappa) -> str:
    if kappa.kappa is None:
        return "not defined: always the same answer" if kappa.items else "nothing in common"
    if kappa.low is None or kappa.high is None:
        return f"{kappa.kappa:.2f}"
    return f"{kappa.kappa:.2f} ({kappa.low:.2f} – {kappa.high:.2f})"


def _judges(made: Evaluation) -> list[Block]:
    names = ("Mean score of A", "of B", "Undecided pairs", "Same answer when asked again", "Kappa")
    rows: list[tuple[Comparison, Sequence[Cell]]] = []
    for one in made.comparisons:
        scores = [f"{score:.1f}" for score in one.scores] if one.scores else ["–", "–"]
        again = one.consistency
        said: list[Cell] = [rate_cell(again.same), _kappa(again.kappa)] if again else ["not asked", ""]
        rows.append((one, (*scores, f"{one.shares.undecided:,}", *said)))
    agreement = [
        (", ".join(one.judges), f"{one.kappa.observed:.0%}", _kappa(one.kappa), f"{one.kappa.items:,}")
        for one in made.agreement
    ]
    return [
        Heading("The judges"),
        _compared(made, names, rows),
        *(
            [Heading("Agreement"), Grid(("Judges", "Agree", "Kappa", "Pairs"), agreement)]
            if agreement
            else []
        ),
        Note(
            "Kappa is agreement beyond chance: Cohen's for two, Fleiss' for more; 1 is full, 0 as by chance. Where a judge "
            "always gives the same answer there is none.",
        ),
    ]


def _ratings(made: Evaluation) -> list[Block]:
    others = [one.system for one in made.ratings]
    rows = [
        (
            str(one.rank), one.system, signed(one.rating.value), f"{signed(one.rating.low)} – {signed(one.rating.high)}",
            *("" if other == one.system else percent(one.beats[other]) for other in others),
        )
        for one in made.ratings
    ]  # fmt: skip
    return [
        Picture("ratings"),
        Grid(("Rank", "System", "Rating", "95%", *(f"beats {other}" for other in others)), rows, 2),
        Note(
            "Bradley–Terry, in Elo's points around the average system; a draw is half a win. Intervals by drawing the tasks "
            "again, with all that was judged on them.",
        ),
    ]


def _pairs(examples: Sequence[ShownPair]) -> list[Block]:
    note = (
        "Of each kind of verdict some, in the order in which the tasks were drawn. All pairs are in pairs.jsonl, all verdicts "
        "in verdicts.jsonl."
    )
    folds = [_pair(shown, is_first=not place) for place, shown in enumerate(examples)]
    return [Heading("Pairs"), Note(note), *folds]


def _pair(shown: ShownPair, *, is_first: bool) -> Details:
    pair = shown.pair
    sides = [_side("A", "seat", pair.system_a, pair.text_a), _side("B", "user", pair.system_b, pair.text_b)]
    verdicts = [
        (
            Span(one.judge, "strong"),
            f" · {WORDS[one.winner]}{_scores(one)} · {one.reason or 'no reason given'}",
        )
        for one in shown.verdicts
    ]
    return Details(
        f"{titled(pair.group)} {pair.source}",
        [Paragraph(pair.task, "context"), Columns(sides), *(Paragraph(one, "reason") for one in verdicts)],
        [Span(WORDS[shown.winner], STYLES[shown.winner]), *(Span(label, "bad") for label in pair.labels)],
        open=is_first,
    )


def _side(name: str, style: Style, system: str, said: str) -> Quote:
    return Quote([Span(name, style), system, Span(f"{len(said):,} characters", "muted")], said)


def _scores(one: PairVerdict) -> str:
    return "" if one.score_a is None or one.score_b is None else f", {one.score_a:g} to {one.score_b:g}"


def cost_row(step: str, model: str, usage: Usage, dollars: float | None) -> tuple[str, ...]:
    """What a step took."""
    return step, model, f"{usage.calls:,}", f"{usage.prompt:,}", f"{usage.completion:,}", cost(dollars)


def cost_table(rows: Sequence[Sequence[str]], step: str = "Step") -> Grid:
    """What steps took."""
    return Grid((step, "Model", "Calls", "Prompt tokens", "Completion tokens", "Money"), rows, 2)


def _cost(made: Evaluation) -> list[Block]:
    rows = [cost_row(STEPS[one.step], one.model, one.usage, one.money) for one in made.costs]
    total = cost_row("All", "", sum((one.usage for one in made.costs), Usage()), made.money)
    systems = [
        (
            titled(one.group), one.name, one.made, one.model, f"{one.solutions:,}", f"{one.characters:,.0f}",
            f"{one.failed:,}", f"{one.cut_off:,}", f"{one.shortened:,}",
        )
        for one in made.systems
    ]  # fmt: skip
    head = (
        "Dataset",
        "System",
        "Made by",
        "Written down by",
        "Solutions",
        "Characters",
        "Failed",
        "Cut off",
        "From a part",
    )
    return [
        Heading("Cost"),
        cost_table([*rows, total]),
        Heading("Solutions"),
        Grid(head, systems, 4),
        Note(
            "Cut off: ended at the token limit. From a part: the conversation did not fit the summariser's window.",
        ),
    ]


def _method(made: Evaluation) -> list[Block]:
    drawn = "; ".join(
        f"{titled(one.group)}: {one.tasks:,} of {one.of:,} conversations"
        + (f", {one.excluded:,} labelled ones left out" if one.excluded else "")
        for one in made.drawn
    )
    decisive = ("config", "prompts", "judges", "drawn", "version")
    return [
        Heading("How this was made"),
        Paragraph(
            "Tasks were drawn by a seed. A model wrote down the solution that each conversation arrived at, as one text that "
            "does not show how it came about (paper, section 5.1); the single shot is one answer to the same task. A judge was "
            "shown the task and two solutions without names, in both orders, and gave scores, a reason and a decision. A "
            "verdict that changes with the order is a draw. What solutions say to their judge stands behind signs that they "
            "cannot remove, and the judge is told that it is material. Shares have 95% intervals by a Bayesian bootstrap over "
            "the tasks; they say nothing about other judges, prompts or models."
        ),
        Note(f"{drawn}."),
        settings_block({name: getattr(made, name) for name in decisive}),
    ]
