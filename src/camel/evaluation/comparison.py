"""What each sentence prevents: behaviours with it and without it, in the same conversations.

The one decision to know: conversations are compared in pairs, the same roles and task with and without the sentence, and a
difference is called sure only after the number of comparisons has been allowed for (Holm).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from camel.detectors import DETECTORS
from camel.evaluation.findings import Looked
from camel.reports.html import document, percent, text, tiles
from camel.reports.intervals import Difference, Rate, holm, paired, wilson
from camel.reports.plots import INK, Plot, Spec

SURE = 0.05
DONE = "ended_done"
"""Beside the behaviours: that the conversation was declared done."""


class Outcomes(msgspec.Struct, frozen=True):
    """What happened in each conversation of a run, by its id."""

    shown: dict[str, frozenset[str]]

    @staticmethod
    def of(looked: Iterable[Looked]) -> Outcomes:
        """From what was seen in a run."""
        shown: dict[str, frozenset[str]] = {}
        for one in looked:
            columns = (one.table[name].to_pylist() for name in ("id", "stop", "findings"))
            for id, stop, findings in zip(*columns, strict=True):
                ended = {DONE} if stop == "done" else set[str]()
                shown[id] = frozenset({finding["detector"] for finding in findings} | ended)
        return Outcomes(shown)

    def rate(self, measure: str) -> Rate:
        """The share of conversations that show it."""
        return wilson(sum(measure in shown for shown in self.shown.values()), len(self.shown))


class Effect(msgspec.Struct, frozen=True):
    """What taking a sentence out does to one behaviour."""

    measure: str
    title: str
    rate: Rate
    """Without the sentence."""
    difference: Difference
    """Without it, less with it: above zero, the sentence prevents the behaviour."""
    adjusted: float
    """The p-value, for as many comparisons as there are."""


class Removal(msgspec.Struct, frozen=True):
    """A sentence, and what taking it out does."""

    name: str
    prompt: str
    sentence: str
    pairs: int
    """Conversations that are there with and without it."""
    effects: list[Effect]


class AblationFigures(msgspec.Struct, frozen=True):
    """All figures of an ablation; `ablation.json` holds them."""

    scenario: str
    model: str
    conversations: int
    """Of each variant."""
    whole: dict[str, Rate]
    """With all sentences."""
    removals: list[Removal]
    comparisons: int
    correction: str = "Holm"
    schema: int = 1

    def to_json(self) -> bytes:
        """Serialise, indented for people."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    def sure(self) -> list[tuple[Removal, Effect]]:
        """The differences that hold up, the surest first."""
        found = [(removal, effect) for removal in self.removals for effect in removal.effects]
        return sorted((pair for pair in found if pair[1].adjusted < SURE), key=lambda pair: pair[1].adjusted)


def title_of(measure: str) -> str:
    """A measure in words."""
    return DETECTORS[measure].title if measure in DETECTORS else "Ended as done"


def compare(
    whole: Outcomes,
    others: Mapping[str, Outcomes],
    sentences: Mapping[str, tuple[str, str]],
    *,
    scenario: str,
    model: str,
) -> AblationFigures:
    """Compare variants with the whole; `sentences` gives each one's prompt and what was taken out of it."""
    happened = {one for run in (whole, *others.values()) for shown in run.shown.values() for one in shown}
    measures = [name for name in (*DETECTORS, DONE) if name in happened]
    raw: list[tuple[str, str, Difference]] = []
    for name, other in others.items():
        ids = whole.shown.keys() & other.shown.keys()
        for measure in measures:
            lost = sum(measure in whole.shown[id] and measure not in other.shown[id] for id in ids)
            won = sum(measure not in whole.shown[id] and measure in other.shown[id] for id in ids)
            raw.append((name, measure, paired(lost, won, len(ids))))
    adjusted = holm([difference.p for _, _, difference in raw])
    effects: dict[str, list[Effect]] = {name: [] for name in others}
    for (name, measure, difference), p in zip(raw, adjusted, strict=True):
        effects[name].append(Effect(measure, title_of(measure), others[name].rate(measure), difference, p))
    removals = [
        Removal(name, *sentences[name], len(whole.shown.keys() & others[name].shown.keys()), effects[name])
        for name in others
    ]
    rates = {measure: whole.rate(measure) for measure in measures}
    return AblationFigures(scenario, model, len(whole.shown), rates, removals, len(raw))


def points(value: float) -> str:
    """A difference in percentage points."""
    whole = round(value * 100)
    return f"{whole:+d}".replace("-", "−") if whole else "0"


def plot(made: AblationFigures) -> Plot:
    """Sentences against behaviours, coloured by what taking the sentence out does."""
    rows = [
        {
            "sentence": _label(removal),
            "behaviour": effect.title,
            "difference": effect.difference.difference,
            "words": points(effect.difference.difference) + (" *" if effect.adjusted < SURE else ""),
        }
        for removal in made.removals
        for effect in removal.effects
    ]
    side: Spec = {"domain": False, "ticks": False, "labelColor": INK}
    spec: Spec = {
        "data": {"values": rows},
        "width": {"step": 74},
        "height": {"step": 22},
        "encoding": {
            "y": {
                "field": "sentence",
                "type": "nominal",
                "sort": [_label(removal) for removal in made.removals],
                "title": None,
                "axis": {**side, "labelLimit": 420},
            },
            "x": {
                "field": "behaviour",
                "type": "nominal",
                "sort": [title_of(measure) for measure in made.whole],
                "title": None,
                "axis": {**side, "orient": "top", "labelAngle": -32, "labelAlign": "left"},
            },
        },
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 2},
                "encoding": {
                    "color": {
                        "field": "difference",
                        "type": "quantitative",
                        "scale": {
                            "domain": [-1, -0.001, 0.001, 1],
                            "range": ["#3d74db", "#3d74db", "#d9562b", "#d9562b"],
                        },
                        "legend": None,
                    },
                    "opacity": {
                        "condition": {
                            "test": "true",
                            "value": {"expr": "0.05 + 0.75 * min(1, 1.6 * abs(datum.difference))"},
                        },
                        "value": 0.1,
                    },
                },
            },
            {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": {"field": "words"}}},
        ],
    }
    return Plot(
        "ablation",
        "What each sentence prevents",
        "Percentage points by which a behaviour is more (red) or less (blue) frequent without the sentence; * where that is sure.",
        spec,
    )


def _label(removal: Removal, most: int = 62) -> str:
    words = " ".join(removal.sentence.split())
    return f"{removal.name}  {words if len(words) <= most else words[: most - 1] + '…'}"


def page(made: AblationFigures) -> str:
    """The comparison as one HTML page."""
    cards = [
        ("Sentences taken out", f"{len(made.removals):,}", "one at a time"),
        ("Conversations", f"{made.conversations:,}", "of each variant, the same items"),
        ("Comparisons", f"{made.comparisons:,}", f"corrected together ({made.correction})"),
        ("Sure differences", f"{len(made.sure()):,}", f"adjusted p below {SURE:g}"),
    ]
    head = (
        f'<h1>Prompt ablation</h1><p class="muted">{text(made.scenario)} · {text(made.model)}</p>'
        f"{tiles(cards)}"
    )
    return document(
        f"Prompt ablation of {made.scenario}",
        head,
        [
            ("Result", "result", _result(made)),
            ("Sentences", "sentences", _table(made)),
            ("Method", "method", _method(made)),
        ],
    )


def _result(made: AblationFigures) -> str:
    sure = made.sure()
    if not sure:
        widest = max(
            (e.difference.high - e.difference.low for r in made.removals for e in r.effects), default=2.0
        )
        return (
            "<h2>Result</h2><p>No difference is sure after correction for the number of comparisons. That is not to say that the "
            f"sentences do nothing: with {made.conversations:,} conversations of each variant an interval is up to "
            f"{widest * 100:.0f} points wide. More conversations narrow it.</p>"
        )
    rows = "".join(
        f'<tr><td>{text(effect.title)}</td><td class="number">{percent(made.whole[effect.measure].rate)} → {percent(effect.rate.rate)}</td>'
        f'<td class="number">{points(effect.difference.difference)} <span class="interval">{points(effect.difference.low)} to '
        f'{points(effect.difference.high)}</span></td><td class="number">{effect.adjusted:.2g}</td>'
        f'<td class="sentence">{text(removal.sentence)} <span class="interval">{text(removal.name)}</span></td></tr>'
        for removal, effect in sure
    )
    return (
        '<h2>Result</h2><p><small>Differences that are sure after correction.</small></p><div class="scroll"><table><thead><tr><th>Behaviour</th>'
        '<th class="number">With → without</th><th class="number">Points, 95% interval</th><th class="number">p, adjusted</th>'
        f"<th>Sentence taken out</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _table(made: AblationFigures) -> str:
    heads = "".join(f"<th>{text(title_of(measure))}</th>" for measure in made.whole)
    base = "".join(f'<td class="heat">{percent(rate.rate)}</td>' for rate in made.whole.values())
    rows = "".join(
        f'<tr><td class="sentence">{text(removal.sentence)} <span class="interval">{text(removal.name)}</span></td>'
        + "".join(map(_cell, removal.effects))
        + "</tr>"
        for removal in made.removals
    )
    return (
        "<h2>What each sentence prevents</h2><p><small>Percentage points by which a behaviour is more (red) or less (blue) frequent in "
        "conversations without the sentence; outlined where that is sure after correction.</small></p>"
        f'<div class="scroll"><table><thead><tr><th>Sentence taken out</th>{heads}</tr></thead><tbody>'
        f'<tr><td class="sentence"><strong>none: the whole prompts</strong></td>{base}</tr>{rows}</tbody></table></div>'
    )


def _cell(effect: Effect) -> str:
    value = effect.difference.difference
    colour = "var(--bad)" if value > 0 else "var(--accent)"
    share = min(70, round(abs(value) * 110))
    sure = " sure" if effect.adjusted < SURE else ""
    return (
        f'<td class="heat{sure}" style="background:color-mix(in srgb, {colour} {share}%, transparent)" '
        f'title="{points(effect.difference.low)} to {points(effect.difference.high)} points">{points(value)}</td>'
    )


def _method(made: AblationFigures) -> str:
    return (
        "<h2>How this was made</h2><p>The scenario was run as it is, and once for each sentence of the two inception prompts with that "
        "sentence taken out, over the same roles and tasks. Each pair of conversations, with and without, shows a behaviour in both, "
        "in neither, or in one of them. The interval of the difference is Bonett and Price's, the p-value McNemar's exact one, and all "
        f"{made.comparisons:,} of them are corrected together by Holm's method: if no sentence did anything, there would be a "
        "sure difference on this page in at most one of twenty such studies.</p><p><small>All figures are in "
        '<span class="mono">ablation.json</span>; each variant is an ordinary run below this folder.</small></p>'
    )


def summary(made: AblationFigures) -> Sequence[str]:
    """The sure differences, a line each."""
    return [
        f"{effect.title}: {percent(made.whole[effect.measure].rate)} → {percent(effect.rate.rate)} without {removal.name} "
        f"“{' '.join(removal.sentence.split())[:70]}”"
        for removal, effect in made.sure()
    ]
