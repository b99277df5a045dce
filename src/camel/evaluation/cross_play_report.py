"""The figures and the report of cross-play: outcomes by the models of user and assistant."""

from __future__ import annotations

import textwrap
from typing import Any, Literal

import msgspec

from camel.evaluation.branch_report import SURE, title_of
from camel.reports import blocks as kinds
from camel.reports.intervals import ReportFigures
from camel.reports.notebook import facts_html
from camel.reports.numbers import bounds, percent, points, probability
from camel.reports.plots import PALETTE, Plot, heat, svg

NAME = "cross-play"
DRAWN = 4
"""Number of outcomes with a plot."""


class CrossPlayCell(msgspec.Struct, frozen=True):
    """The outcome of one pair of models."""

    user: str
    assistant: str
    conversations: int
    mean: float
    low: float
    high: float
    won: int
    """Number of comparisons with another pair on the same task in which this pair's outcome is higher."""
    drawn: int
    lost: int


class SeatContrast(msgspec.Struct, frozen=True):
    """A difference with its 95% interval."""

    name: str
    difference: float
    low: float
    high: float


class SeatEffect(msgspec.Struct, frozen=True):
    """The effect of the user's model, of the assistant's model, or of the pair on an outcome."""

    of: Literal["user", "assistant", "pair"]
    contrasts: list[SeatContrast]
    """For two models their difference. For more, the difference of each from the mean of all."""
    p: float
    """P-value of the test that there is no effect."""
    needed: int
    """Number of conversations per pair of models for intervals of the wanted half-width."""
    adjusted: float = 1.0
    """The p-value, corrected for all effects on all outcomes."""

    @property
    def sure(self) -> bool:
        """Whether the effect is significant."""
        return self.adjusted < SURE


class CrossPlayOutcome(msgspec.Struct, frozen=True):
    """One outcome for all pairs of models."""

    name: str
    share: bool
    """Whether the outcome happens or not, so that its mean is a share."""
    cells: list[CrossPlayCell]
    effects: list[SeatEffect]
    design: Literal["paired", "tasks", "conversations"]
    """The same tasks for all pairs, tasks as units of independent samples, or conversations as units."""
    units: int
    """Number of units of the smallest cell."""

    def __getitem__(self, of: str) -> SeatEffect:
        """Return the effect of `user`, `assistant` or `pair`."""
        return next(one for one in self.effects if one.of == of)

    def plot(self, name: str = NAME) -> Plot:
        """Return a heat map of the means. `name` is that of its files."""
        means = [cell.mean for cell in self.cells]
        low, high = (0.0, 1.0) if self.share else (min(means), max(means))
        rows = [
            {
                "row": cell.user,
                "column": " ".join(textwrap.wrap(cell.assistant, 20)),  # labels of columns break at spaces
                "size": (cell.mean - low) / (high - low or 1.0),
                "color": PALETTE[0],
                **dict(zip(("words", "span"), _mean(self, cell), strict=True)),
            }
            for cell in self.cells
        ]
        # Browsers draw the names of rows wider than they were measured.
        room = {
            "padding": {
                "left": 5 + max(len(cell.user) for cell in self.cells),
                "top": 5,
                "right": 5,
                "bottom": 5,
            }
        }
        return Plot(name, title_of(self.name), kinds.TEXTS[NAME]["plot"], heat(rows, (150, 54)) | room)


class CrossPlayFigures(ReportFigures, frozen=True):
    """All figures of cross-play, as stored in `cross-play.json`."""

    file = NAME

    users: list[str]
    assistants: list[str]
    conversations: int
    failed: int
    """Number of conversations that failed or were rejected, and are not counted."""
    half_width: float
    """Half-width of the intervals for which numbers of conversations are computed."""
    outcomes: list[CrossPlayOutcome]
    """The outcomes, the most certain effect first."""
    schema: int = 1

    def __getitem__(self, name: str) -> CrossPlayOutcome:
        """Return an outcome."""
        return next(one for one in self.outcomes if one.name == name)

    def plot(self) -> Plot:
        """Return the plot of the first outcome."""
        return self.outcomes[0].plot()

    def __str__(self) -> str:
        return "\n".join("  ".join(row) for row in kinds.plain_table(effects_table(self))[1])

    def _repr_html_(self) -> str:
        """Return the plot and the effects as HTML for a notebook."""
        rows = kinds.plain_table(effects_table(self))[1]
        return svg(self.plot()) + facts_html(
            f"{self.conversations:,} conversations", [(row[0], " · ".join(row[1:-1])) for row in rows]
        )


def effects_table(made: CrossPlayFigures) -> kinds.Grid:
    """Return the effects on all outcomes as a table. Of several contrasts, it has the largest."""
    rows: list[Any] = []
    for one in made.outcomes:
        cells = list[Any]()
        for effect in one.effects:
            largest = max(effect.contrasts, key=lambda found: abs(found.difference))
            name = f"{largest.name} " if len(effect.contrasts) > 1 else ""
            cells.append((name, *_difference(one, largest), " ●" if effect.sure else ""))
        rows.append((title_of(one.name), *cells, " / ".join(f"{effect.needed:,}" for effect in one.effects)))
    head = [effect.of.capitalize() for effect in made.outcomes[0].effects]
    return kinds.Grid(("Outcome", *head, "Needed"), rows, title="Effects")


def report(made: CrossPlayFigures) -> kinds.Report:
    """Return the figures as a report."""
    texts, all_effects = kinds.TEXTS[NAME], [effect for one in made.outcomes for effect in one.effects]
    found = {effect.of for effect in all_effects if effect.sure}
    sure = [f"the {of}" for of in ("user", "assistant", "pair") if of in found]
    facts: kinds.Facts = {
        "User": ", ".join(made.users),
        "Assistant": ", ".join(made.assistants),
        "Conversations": f"{made.conversations:,}",
        "Not counted": f"{made.failed:,}, failed or rejected" if made.failed else "",
        "Significant": f"{sum(effect.sure for effect in all_effects):,} of {len(all_effects):,} effects, corrected together (Holm)",
        "Wanted half-width": f"{made.half_width:g}",
    }
    plots = [one.plot(f"{NAME}-{place + 1}") for place, one in enumerate(made.outcomes[:DRAWN])]
    folds: list[kinds.Block] = [
        block
        for place, one in enumerate(made.outcomes)
        for block in (kinds.Picture(f"{NAME}-{place + 1}"), _details(one, not place))
    ]
    folds.insert(2, kinds.Note(texts["wins"]))
    return kinds.Report(
        "Cross-play",
        f"Outcomes depend on {' and '.join(sure)}" if sure else "No effect of a seat's model is shown",
        texts["lede"],
        facts,
        {
            "Effects": [effects_table(made), kinds.Note(texts["effects"])],
            "Outcomes": folds,
            "Method": [kinds.Heading("Method"), kinds.Paragraph(texts["method"]), kinds.Note(texts["limits"])],
        },
        plots,
    )  # fmt: skip


def _details(one: CrossPlayOutcome, open: bool) -> kinds.Details:
    cells, contrasts = list[Any](), list[Any]()
    for cell in one.cells:
        wins = cell.won, cell.drawn, cell.lost
        bar = kinds.OutcomeBar(*(count / max(1, sum(wins)) for count in wins))
        models = cell.user, cell.assistant, f"{cell.conversations:,}"
        cells.append((*models, *_mean(one, cell), bar, " / ".join(f"{count:,}" for count in wins)))
    for effect in one.effects:
        p = probability(effect.adjusted) + (" ●" if effect.sure else "")
        contrasts += [(effect.of.capitalize(), found.name, _difference(one, found), p) for found in effect.contrasts]  # fmt: skip
    head = ("User", "Assistant", "Conversations", "Mean", "95% interval", "", "Won / drawn / lost")
    grids = kinds.Grid(head, cells, 2), kinds.Grid(("Effect", "Of", "Difference, 95% interval", "p, adjusted"), contrasts, 2)  # fmt: skip
    design = kinds.Paragraph(kinds.TEXTS[NAME][one.design].format(units=one.units))
    return kinds.Details(f"Figures of “{title_of(one.name)}”", [design, *grids], open=open)


def _mean(one: CrossPlayOutcome, cell: CrossPlayCell) -> tuple[str, str]:
    if one.share:
        return percent(cell.mean), bounds(cell.low, cell.high)
    return f"{cell.mean:,.2f}", f"{cell.low:,.2f} to {cell.high:,.2f}"


def _difference(one: CrossPlayOutcome, contrast: SeatContrast) -> tuple[str, kinds.Span]:
    numbers = (contrast.difference, contrast.low, contrast.high)
    middle, low, high = (
        points(value) if one.share else f"{value:+,.2f}".replace("-", "−") for value in numbers
    )
    return f"{middle} ", kinds.Span(f"{low} to {high}", "interval")
