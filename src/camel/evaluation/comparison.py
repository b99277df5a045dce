"""An ablation: how often behaviors occur with and without each sentence of a prompt.

The one decision to know: conversations are compared in pairs with the same roles and task. A difference is significant only
after Holm's correction for the number of comparisons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from camel.detectors import DETECTORS
from camel.evaluation.findings import Looked
from camel.reports import blocks as kinds
from camel.reports.intervals import Difference, Rate, ReportFigures, holm, paired, wilson
from camel.reports.numbers import counted, percent, points
from camel.reports.plots import GRAY, PALETTE, Plot, heat

SURE = 0.05
DONE = "ended_done"
"""Name of a measure that is counted like a behavior: that a conversation ended as done."""


Outcomes = Mapping[str, Collection[str]]
"""The measures (behaviors, or `DONE`) that apply to each conversation of a run, by the conversation's id."""


def outcomes_of(looked: Iterable[Looked]) -> Outcomes:
    """Collect the outcomes of all conversations from the findings of a run."""
    shown: dict[str, frozenset[str]] = {}
    for one in looked:
        columns = (one.table[name].to_pylist() for name in ("id", "stop", "findings"))
        for id, stop, findings in zip(*columns, strict=True):
            ended = {DONE} if stop == "done" else set[str]()
            shown[id] = frozenset({finding["detector"] for finding in findings} | ended)
    return shown


class Effect(msgspec.Struct, frozen=True):
    """The effect of removing a sentence on one behavior."""

    measure: str
    title: str
    rate: Rate
    """Rate of the behavior without the sentence."""
    difference: Difference
    """Rate without the sentence minus rate with it. Above zero, the sentence prevents the behavior."""
    adjusted: float
    """The p-value of the difference, corrected for the number of comparisons."""


class Removal(msgspec.Struct, frozen=True):
    """A sentence, and the effects of removing it."""

    name: str
    prompt: str
    sentence: str
    pairs: int
    """Number of conversations that exist both with and without the sentence."""
    effects: list[Effect]


class AblationFigures(ReportFigures, frozen=True):
    """All figures of an ablation, as stored in `ablation.json`."""

    scenario: str
    model: str
    conversations: int
    """Number of conversations per variant."""
    whole: dict[str, Rate]
    """Rates in the complete scenario, with no sentence removed, by measure."""
    removals: list[Removal]
    comparisons: int
    correction: str = "Holm"
    schema: int = 1

    def sure(self) -> list[tuple[Removal, Effect]]:
        """Return the effects that are significant after correction, the smallest adjusted p-value first."""
        found = [(removal, effect) for removal in self.removals for effect in removal.effects]
        return sorted((pair for pair in found if pair[1].adjusted < SURE), key=lambda pair: pair[1].adjusted)


def title_of(measure: str) -> str:
    """Return the title of a measure for tables and plots."""
    return DETECTORS[measure].title if measure in DETECTORS else "Ended as done"


def compare(
    whole: Outcomes,
    others: Mapping[str, Outcomes],
    sentences: Mapping[str, tuple[str, str]],
    *,
    scenario: str,
    model: str,
) -> AblationFigures:
    """Compare each variant with the complete scenario. `sentences` maps a variant to its prompt's name and the removed
    sentence."""
    happened = {one for run in (whole, *others.values()) for shown in run.values() for one in shown}
    measures = [name for name in (*DETECTORS, DONE) if name in happened]

    def rate(run: Outcomes, measure: str) -> Rate:
        return wilson(sum(measure in shown for shown in run.values()), len(run))

    raw: list[tuple[str, str, Difference]] = []
    for name, other in others.items():
        ids = whole.keys() & other.keys()
        for measure in measures:
            lost = sum(measure in whole[id] and measure not in other[id] for id in ids)
            won = sum(measure not in whole[id] and measure in other[id] for id in ids)
            raw.append((name, measure, paired(lost, won, len(ids))))
    adjusted = holm([difference.p for _, _, difference in raw])
    effects: dict[str, list[Effect]] = {name: [] for name in others}
    for (name, measure, difference), p in zip(raw, adjusted, strict=True):
        found = rate(others[name], measure)
        effects[name].append(Effect(measure, title_of(measure), found, difference, p))
    removals = [
        Removal(name, *sentences[name], len(whole.keys() & other.keys()), effects[name])
        for name, other in others.items()
    ]
    rates = {measure: rate(whole, measure) for measure in measures}
    return AblationFigures(scenario, model, len(whole), rates, removals, len(raw))


def plot(made: AblationFigures) -> Plot:
    """Return a heat map: sentences by behaviors, colored by the effect of removing the sentence."""
    rows = [
        {
            "row": _label(removal),
            "column": effect.title,
            "size": abs(value),
            "color": GRAY if value < 0 else PALETTE[0],
            "words": points(value) + (" *" if effect.adjusted < SURE else ""),
        }
        for removal in made.removals
        for effect in removal.effects
        for value in [effect.difference.difference]
    ]
    caption = kinds.TEXTS["ablation"]["plot"].format(conversations=made.conversations)
    return Plot("ablation", "What each sentence prevents", caption, heat(rows, (84, 24), most=0.6))


def _label(removal: Removal, most: int = 62) -> str:
    words = " ".join(removal.sentence.split())
    return f"{removal.name}  {words if len(words) <= most else words[: most - 1] + '…'}"


def report(made: AblationFigures) -> kinds.Report:
    """Return the comparison as a report."""
    sure, of = made.sure(), counted(len(made.removals), "sentence")
    changing = len({removal.name for removal, _ in sure})
    facts: kinds.Facts = {
        "Scenario": made.scenario,
        "Model": made.model,
        "Sentences": f"{len(made.removals):,}, removed one at a time",
        "Conversations": f"{made.conversations:,} per variant, with the same roles and tasks",
        "Comparisons": f"{made.comparisons:,}, corrected together ({made.correction})",
        "Significant": f"{len(sure):,}, adjusted p below {SURE:g}",
    }
    return kinds.Report(
        "Ablation",
        f"{changing} of {of} {'changes' if changing == 1 else 'change'} a behavior"
        if sure
        else f"None of {of} is shown to change a behavior",
        kinds.TEXTS["ablation"]["lede"],
        facts,
        {"Result": _result(made), "Sentences": _sentences(made), "Method": _method(made)},
        [plot(made)] if made.removals and made.whole else [],
    )


def _result(made: AblationFigures) -> list[kinds.Block]:
    sure = made.sure()
    if not sure:
        effects = [effect.difference for removal in made.removals for effect in removal.effects]
        widest = max((one.high - one.low for one in effects), default=2.0)
        said = kinds.TEXTS["ablation"]["none"].format(conversations=made.conversations, width=widest * 100)
        return [kinds.Paragraph(said)]
    rows = [
        (
            effect.title,
            _sentence(removal),
            f"{percent(made.whole[effect.measure].rate)} → {percent(effect.rate.rate)}",
            (f"{points(effect.difference.difference)} ", kinds.Span(_bounds(effect), "interval")),
            f"{effect.adjusted:.2g}",
        )
        for removal, effect in sure
    ]
    head = ("Behavior", "Sentence removed", "With → without", "Points, 95% interval", "p, adjusted")
    return [kinds.Grid(head, rows, left=2, wide=True, title="Significant differences")]


def _sentence(removal: Removal) -> kinds.Inline:
    return (kinds.Span(removal.sentence, "sentence"), " ", kinds.Span(removal.name, "interval"))


def _bounds(effect: Effect) -> str:
    return f"{points(effect.difference.low)} to {points(effect.difference.high)}"


def _sentences(made: AblationFigures) -> list[kinds.Block]:
    whole = [kinds.Shade(percent(rate.rate)) for rate in made.whole.values()]
    rows: list[Sequence[kinds.Cell]] = [(kinds.Span("none: the complete prompts", "strong"), *whole)]
    for removal in made.removals:
        cells = [
            kinds.Shade(points(value), value, effect.adjusted < SURE, f"{_bounds(effect)} points")
            for effect in removal.effects
            for value in [effect.difference.difference]
        ]
        rows.append((_sentence(removal), *cells))
    head = ("Sentence removed", *map(title_of, made.whole))
    return [
        kinds.Grid(head, rows, left=len(head), wide=True, title="What each sentence prevents"),
        kinds.Note(kinds.TEXTS["ablation"]["sentences"]),
    ]


def _method(made: AblationFigures) -> list[kinds.Block]:
    return [
        kinds.Heading("Method"),
        kinds.Paragraph(kinds.TEXTS["ablation"]["method"].format(comparisons=made.comparisons)),
        kinds.Note(
            kinds.styled(
                "All figures are in `ablation.json`. Each variant is an ordinary run in a subfolder."
            )
        ),
    ]


def summary(made: AblationFigures) -> Sequence[str]:
    """Return the significant differences as text, one line each."""
    return [
        f"{effect.title}: {percent(made.whole[effect.measure].rate)} → {percent(effect.rate.rate)} without {removal.name} "
        f"“{' '.join(removal.sentence.split())[:70]}”"
        for removal, effect in made.sure()
    ]
