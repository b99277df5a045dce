"""The figures and the report of branches: the effects of changes at one message of recorded conversations."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import msgspec

from camel.core.stops import StopReason
from camel.detectors import DETECTORS
from camel.evaluation.effects import Shift
from camel.reports import blocks as kinds
from camel.reports.intervals import ReportFigures, holm
from camel.reports.numbers import counted, percent, points
from camel.reports.plots import GRAY, PALETTE, Plot, dots, heat
from camel.reports.plots import plot as plot_of

SURE = 0.05


class ShiftedOutcome(msgspec.Struct, frozen=True):
    """The effect of a change on one outcome."""

    change: str
    name: str
    effect: Shift
    adjusted: float
    """The p-value of the effect, corrected for the number of changes and outcomes."""
    share: bool
    """Whether the outcome happens or not, so that its mean is a share."""


class Side(msgspec.Struct, frozen=True):
    """The first new messages of one branch."""

    kind: str
    id: str
    said: list[tuple[str, str]]
    """Role and text of each message."""
    ended: str


class BranchFigures(ReportFigures, frozen=True):
    """All figures of branches, as stored in `branches.json`."""

    file = "branches"
    at: int
    changes: dict[str, str]
    """What was changed, in words, by name. Empty if nothing was."""
    models: list[str]
    conversations: int
    branches: int
    failed: int
    outcomes: list[ShiftedOutcome]
    examples: list[list[Side]]
    """Branches of one conversation, shown side by side."""
    schema: int = 1

    @property
    def sure(self) -> list[ShiftedOutcome]:
        """The significant effects."""
        return [one for one in self.outcomes if one.adjusted < SURE]


def outcomes_of(effects: Mapping[str, Mapping[str, Shift]]) -> list[ShiftedOutcome]:
    """Return the effects of changes with their p-values, corrected together with Holm's method. The most certain comes
    first."""
    found = [(change, name, one) for change, own in effects.items() for name, one in own.items()]
    values = holm([one.p for _, _, one in found])
    made = [
        ShiftedOutcome(*one, p, one[1] not in ("messages", "tokens") and not one[1].startswith("score."))
        for one, p in zip(found, values, strict=True)
    ]
    return sorted(made, key=lambda one: (one.adjusted, one.change, one.name))


def title_of(name: str) -> str:
    """Return the title of an outcome."""
    if name in DETECTORS:
        return DETECTORS[name].title
    endings: tuple[str, ...] = StopReason.__args__
    if name in endings:
        return f"Ended: {name.replace('_', ' ')}"
    return "Number of messages" if name == "messages" else name.removeprefix("score.").capitalize()


def summary(made: BranchFigures) -> list[str]:
    """Return the effects as text, one line each. Of several changes, only the significant effects."""
    if len(made.changes) < 2:
        return [f"{title_of(one.name)}: {_figures(one)}" for one in made.outcomes]
    lines = [f"{len(made.outcomes):,} comparisons, corrected together (Holm)"]
    lines += [f"  {title_of(one.name)}: {_figures(one)}  {_label(made, one.change)}" for one in made.sure]
    return lines if made.sure else [*lines, "  no effect is significant"]


def report(made: BranchFigures) -> kinds.Report:
    """Return the effects as a report."""
    texts, several = kinds.TEXTS["branches"], len(made.changes) > 1
    if not made.changes:
        headline = f"{made.branches:,} branches continue without a change"
    elif several and made.sure:
        changed = len({one.change for one in made.sure})
        headline = f"{changed} of {len(made.changes):,} changes {'has' if changed == 1 else 'have'} an effect"
    elif made.sure:
        headline = f"The change has an effect on {counted(len(made.sure), 'outcome')}"
    else:
        headline = f"No effect of the {'changes' if several else 'change'} is shown"
    facts: kinds.Facts = {
        "Change": "none" if not made.changes else f"{len(made.changes):,}, one at a time" if several else "".join(made.changes.values()),
        "From message": f"{made.at:,}",
        "Conversations": f"{made.conversations:,}",
        "Branches": f"{made.branches:,}" + (f", {made.failed:,} of them failed" if made.failed else ""),
        "Models": ", ".join(made.models),
        "Significant": f"{len(made.sure):,} of {counted(len(made.outcomes), 'effect')}, corrected together (Holm)"
        if made.outcomes
        else "",
    }  # fmt: skip
    shares = [one for one in made.outcomes if one.share]
    return kinds.Report(
        "Branches",
        headline,
        texts["lede"],
        facts,
        {
            "Effects": _effects(made) if made.outcomes else [],
            "Changes": _changes(made) if several else [],
            "Side by side": _examples(made),
            "Method": [
                kinds.Heading("Method"),
                kinds.Paragraph(texts["method"]),
                kinds.Note(texts["limits"]),
            ],
        },
        [_heat(made, shares) if several else _plot(shares)] if shares else [],
    )


def _effects(made: BranchFigures) -> list[kinds.Block]:
    """Return a table of the effects. Of several changes, only the significant ones."""
    several = len(made.changes) > 1
    if several and not made.sure:
        widest = max((one.effect.high - one.effect.low for one in made.outcomes if one.share), default=2.0)
        text = kinds.TEXTS["branches"]["none"]
        return [kinds.Paragraph(text.format(conversations=made.conversations, width=widest * 100))]
    rows = [
        (
            title_of(one.name),
            *([kinds.Span(_label(made, one.change), "sentence")] if several else []),
            _mean(one, one.effect.before),
            _mean(one, one.effect.after),
            (f"{_difference(one)} ", kinds.Span(_bounds(one), "interval")),
            f"{one.adjusted:.2g}" + (" ●" if one.adjusted < SURE else ""),
        )
        for one in (made.sure if several else made.outcomes)
    ]
    head = ("Outcome", *["Change"] * several, "Unchanged", "Changed", "Effect, 95% interval", "p, adjusted")
    table = kinds.Grid(head, rows, left=1 + several, wide=several, title="Effects of the change")
    return [table] if several else [kinds.Picture("effects"), table]


def _changes(made: BranchFigures) -> list[kinds.Block]:
    """Return a table of changes and outcomes."""
    by = {(one.change, one.name): one for one in made.outcomes}
    names = sorted({one.name for one in made.outcomes})
    rows: list[Sequence[kinds.Cell]] = []
    for change in made.changes:
        cells = (by.get((change, name)) for name in names)
        shades = (
            kinds.Shade(_difference(one), one.effect.difference if one.share else 0.0, one.adjusted < SURE, _bounds(one))
            if one else "" for one in cells
        )  # fmt: skip
        rows.append((kinds.Span(_label(made, change), "sentence"), *shades))
    head = ("Change", *map(title_of, names))
    return [
        kinds.Picture("effects"),
        kinds.Grid(head, rows, left=1, wide=True, title="Each change"),
        kinds.Note(kinds.TEXTS["branches"]["changes"]),
    ]


def _label(made: BranchFigures, change: str) -> str:
    return f"{change}  {made.changes[change]}"


def _heat(made: BranchFigures, outcomes: Sequence[ShiftedOutcome]) -> Plot:
    by = {(one.change, one.name): one for one in outcomes}
    rows = [
        {
            "row": textwrap.shorten(_label(made, change), 64, placeholder="…"),
            "column": title_of(name),
            "size": abs(one.effect.difference),
            "color": GRAY if one.effect.difference < 0 else PALETTE[0],
            "words": points(one.effect.difference) + (" *" if one.adjusted < SURE else ""),
        }
        for change in made.changes
        for name in sorted({one.name for one in outcomes})
        if (one := by.get((change, name)))
    ]
    return Plot(
        "effects", "Effects of each change", kinds.TEXTS["branches"]["heat"], heat(rows, (84, 24), most=0.6)
    )


def _plot(outcomes: Sequence[ShiftedOutcome]) -> Plot:
    rows = [
        {
            "name": title_of(one.name),
            "value": 100 * one.effect.difference,
            "low": 100 * one.effect.low,
            "high": 100 * one.effect.high,
            "says": points(one.effect.difference),
            "span": _bounds(one),
            "color": PALETTE[0] if one.adjusted < SURE else GRAY,
        }
        for one in outcomes
    ]
    caption = kinds.TEXTS["branches"]["plot"]
    return plot_of(
        "effects",
        "Effects of the change",
        caption,
        lambda width: dots(rows, width, domain=(-100, 100), middle=0),
    )


def _examples(made: BranchFigures) -> list[kinds.Block]:
    shown: list[kinds.Block] = []
    for place, sides in enumerate(made.examples):
        quotes = [
            kinds.Quote(
                [kinds.Span(side.kind, "strong"), "  ", kinds.Span(side.id, "source", conversation=side.id)],
                "\n\n".join(f"{role}: {text}" for role, text in side.said),
                reason=f"ended: {side.ended}",
            )
            for side in sides
        ]
        shown.append(kinds.Details(f"Example {place + 1}", [kinds.Columns(quotes)], open=not place))
    return [kinds.Heading("Side by side"), *shown] if shown else []


def _mean(one: ShiftedOutcome, value: float) -> str:
    return percent(value) if one.share else f"{value:,.2f}"


def _difference(one: ShiftedOutcome) -> str:
    return points(one.effect.difference) if one.share else f"{one.effect.difference:+,.2f}".replace("-", "−")


def _bounds(one: ShiftedOutcome) -> str:
    low, high = one.effect.low, one.effect.high
    return (
        f"{points(low)} to {points(high)}" if one.share else f"{low:+,.2f} to {high:+,.2f}".replace("-", "−")
    )


def _figures(one: ShiftedOutcome) -> str:
    sure = ", significant" if one.adjusted < SURE else ""
    return f"{_mean(one, one.effect.before)} → {_mean(one, one.effect.after)}, effect {_difference(one)} ({_bounds(one)}){sure}"
