"""The figures and the report of branches: the effect of one change at one message of recorded conversations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from camel.core.stops import StopReason
from camel.detectors import DETECTORS
from camel.evaluation.effects import Shift
from camel.reports import blocks as kinds
from camel.reports.intervals import ReportFigures, holm
from camel.reports.numbers import counted, percent, points
from camel.reports.plots import GRAY, PALETTE, Plot, dots
from camel.reports.plots import plot as plot_of

SURE = 0.05
NAME = "branches"


class ShiftedOutcome(msgspec.Struct, frozen=True):
    """The effect of the change on one outcome."""

    name: str
    effect: Shift
    adjusted: float
    """The p-value of the effect, corrected for the number of outcomes."""
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

    at: int
    change: str
    """What was changed, in words. Empty if nothing was."""
    models: list[str]
    conversations: int
    branches: int
    failed: int
    outcomes: list[ShiftedOutcome]
    examples: list[list[Side]]
    """Branches of one conversation, shown side by side."""
    schema: int = 1


def outcomes_of(effects: dict[str, Shift]) -> list[ShiftedOutcome]:
    """Return effects with their p-values, corrected together with Holm's method. The most certain comes first."""
    values = holm([one.p for one in effects.values()])
    made = [
        ShiftedOutcome(name, one, p, name not in ("messages", "tokens") and not name.startswith("score."))
        for (name, one), p in zip(effects.items(), values, strict=True)
    ]
    return sorted(made, key=lambda one: (one.adjusted, one.name))


def title_of(name: str) -> str:
    """Return the title of an outcome."""
    if name in DETECTORS:
        return DETECTORS[name].title
    endings: tuple[str, ...] = StopReason.__args__
    if name in endings:
        return f"Ended: {name.replace('_', ' ')}"
    return "Number of messages" if name == "messages" else name.removeprefix("score.").capitalize()


def summary(made: BranchFigures) -> list[str]:
    """Return the effects as text, one line each."""
    return [f"{title_of(one.name)}: {_figures(one)}" for one in made.outcomes]


def report(made: BranchFigures) -> kinds.Report:
    """Return the effects as a report."""
    sure = [one for one in made.outcomes if one.adjusted < SURE]
    texts = kinds.TEXTS["branches"]
    if not made.change:
        headline = f"{made.branches:,} branches continue without a change"
    elif sure:
        headline = f"The change has an effect on {counted(len(sure), 'outcome')}"
    else:
        headline = "No effect of the change is shown"
    facts: kinds.Facts = {
        "Change": made.change or "none",
        "From message": f"{made.at:,}",
        "Conversations": f"{made.conversations:,}",
        "Branches": f"{made.branches:,}" + (f", {made.failed:,} of them failed" if made.failed else ""),
        "Models": ", ".join(made.models),
        "Significant": f"{len(sure):,} of {counted(len(made.outcomes), 'outcome')}, corrected together (Holm)"
        if made.outcomes
        else "",
    }
    shares = [one for one in made.outcomes if one.share]
    return kinds.Report(
        "Branches",
        headline,
        texts["lede"],
        facts,
        {
            "Effects": _effects(made) if made.outcomes else [],
            "Side by side": _examples(made),
            "Method": [
                kinds.Heading("Method"),
                kinds.Paragraph(texts["method"]),
                kinds.Note(texts["limits"]),
            ],
        },
        [_plot(shares)] if shares else [],
    )


def _effects(made: BranchFigures) -> list[kinds.Block]:
    rows = [
        (
            title_of(one.name),
            _mean(one, one.effect.before),
            _mean(one, one.effect.after),
            (f"{_difference(one)} ", kinds.Span(_bounds(one), "interval")),
            f"{one.adjusted:.2g}" + (" ●" if one.adjusted < SURE else ""),
        )
        for one in made.outcomes
    ]
    head = ("Outcome", "Unchanged", "Changed", "Effect, 95% interval", "p, adjusted")
    return [kinds.Picture("effects"), kinds.Grid(head, rows, title="Effects of the change")]


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
