"""All figures of an emergence study: the paper's Table 2, and what each added dataset did to each domain.

The one decision to know: an effect is the share of questions that the later model wins less that which it loses. That is the
contest's score put between -1 and 1, with its interval; whether it is sure is said by an exact test, corrected for all
cells of the table together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.message import Usage
from camel.evaluation.humaneval.passing import Passing
from camel.evaluation.humaneval.records import SAMPLES
from camel.evaluation.pairs import Pair, PairVerdict, Winner
from camel.evaluation.results import Comparison, Evaluation, evaluate
from camel.evaluation.standing import Interval, WinShares, shares
from camel.jobs.ledger import spent_on
from camel.models.prices import cost
from camel.reports.intervals import Rate, holm, paired
from camel.training.emergence.emergence_config import EmergenceConfig
from camel.training.emergence.experiment import Emergence

ALL = "All"
SURE = 0.05

PAPER: dict[tuple[int, int], dict[str, tuple[int, int, int]]] = {
    (0, 1): {"society": (0, 6, 14), "code": (0, 0, 20), "math": (9, 5, 6), "science": (0, 13, 47)},
    (1, 2): {"society": (4, 8, 8), "code": (1, 9, 10), "math": (5, 8, 7), "science": (1, 19, 40)},
    (2, 3): {"society": (5, 6, 9), "code": (1, 9, 10), "math": (1, 3, 16), "science": (3, 8, 49)},
    (3, 4): {"society": (3, 1, 16), "code": (1, 8, 11), "math": (10, 5, 5), "science": (9, 2, 49)},
    (0, 4): {"society": (0, 0, 20), "code": (0, 0, 20), "math": (0, 0, 20), "science": (0, 0, 60)},
}
"""The paper's Table 2, LLaMA-7B judged by GPT-4: draws, wins of model 1, wins of model 2, by how many datasets each has seen."""
CHAIN = ("society", "code", "math", "science")
"""What the paper adds, in order."""


class Line(msgspec.Struct, frozen=True):
    """A line of the table: two models on one domain."""

    domain: str
    """Its title; `All` for the sum."""
    before: str
    """Model 1."""
    after: str
    """Model 2."""
    seen: tuple[int, int]
    """How many datasets each has seen."""
    draws: Rate
    before_wins: Rate
    after_wins: Rate
    of: int
    """Questions that were decided."""
    undecided: int
    effect: Interval
    """Share of questions won less share lost by model 2."""
    p: float
    """How likely wins as uneven as these are between equals (exact)."""
    adjusted: float
    """The same, corrected for all lines of the table (Holm)."""
    added: bool = False
    """Whether the data that was added is about this domain."""
    paper: tuple[int, int, int] | None = None
    """The paper's counts: draws, wins of model 1, wins of model 2."""

    @property
    def sure(self) -> bool:
        """Whether the difference is sure after correction."""
        return self.adjusted < SURE


class ChainModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model of the chain."""

    label: str
    asked: str
    """The name under which it was asked."""
    trained: bool = False
    """In this study."""
    rows: int = 0
    steps: int = 0
    first_loss: float = 0.0
    last_loss: float = 0.0


class Tested(msgspec.Struct, frozen=True):
    """A model on HumanEval and HumanEval+."""

    label: str
    n: int
    problems: int
    humaneval: list[Passing]
    plus: list[Passing]


class Subject(msgspec.Struct, frozen=True):
    """A domain."""

    name: str
    title: str
    questions: int
    written_by: str
    """A model's name; empty: they were given."""


class OtherUsage(msgspec.Struct, frozen=True):
    """What was used besides answers and verdicts."""

    step: str
    model: str
    usage: Usage
    money: float | None


class Figures(msgspec.Struct, frozen=True):
    """Everything."""

    config: dict[str, Any]
    """The settings, without where anything lies: reports are passed on."""
    models: list[ChainModel]
    datasets: list[str]
    """What was added, in order."""
    domains: list[Subject]
    table: list[Line]
    totals: list[Line]
    """Of each comparison over all domains."""
    leaks: dict[str, dict[str, int]]
    """Rows that hold a question, by the data that they are of and the question's domain."""
    humaneval: list[Tested]
    judging: Evaluation
    """The judges, the answers, and what they cost."""
    besides: list[OtherUsage]
    """What questions and programs took."""
    version: str = __version__
    schema: int = 1

    def to_json(self) -> bytes:
        """Serialise, indented for people."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


def figures(study: Emergence) -> tuple[Figures, list[Pair], list[PairVerdict]]:
    """Everything that follows from a study that is over; also the pairs, and each judge's verdict on each of them."""
    config = study.config
    judged, pairs, verdicts = evaluate(study.contest())
    labels = [one.label for one in study.members()]
    table: list[Line] = []
    totals: list[Line] = []
    titles = {one.label: one.name for one in config.domains}
    for after, before in study.matches():
        seen = labels.index(before), labels.index(after)
        met = [one for one in judged.headline if (one.a, one.b) == (after, before)]
        for one in met:
            name = titles[one.group]
            new = any(config.added(number) == name for number in range(*seen))
            table.append(_line(one.group, after, before, seen, one.shares, new, _paper(config, seen, name)))
        totals.append(_line(ALL, after, before, seen, _sum(met), False, None))
    made = Figures(
        _told(study),
        _models(study),
        [one.name for one in config.steps],
        [
            Subject(one.name, one.label, one.questions, "" if one.file else study.writer)
            for one in config.domains
        ],
        _corrected(table),
        _corrected(totals),
        study.leaks(),
        [Tested(one.model, one.n, one.problems, one.humaneval, one.plus) for one in study.tested()],
        _passed_on(study, judged),
        _besides(study),
    )
    return made, pairs, verdicts


def _corrected(lines: Sequence[Line]) -> list[Line]:
    adjusted = holm([one.p for one in lines])
    return [msgspec.structs.replace(one, adjusted=p) for one, p in zip(lines, adjusted, strict=True)]


def _line(
    domain: str,
    after: str,
    before: str,
    seen: tuple[int, int],
    found: WinShares,
    added: bool,
    paper: tuple[int, int, int] | None,
) -> Line:
    score = found.score
    effect = Interval(2 * score.value - 1, 2 * score.low - 1, 2 * score.high - 1)
    p = paired(found.losses.count, found.wins.count, found.of).p
    return Line(
        domain,
        before,
        after,
        seen,
        found.draws,
        found.losses,
        found.wins,
        found.of,
        found.undecided,
        effect if found.of else Interval(0.0, -1.0, 1.0),
        p,
        p,
        added,
        paper,
    )


def _sum(met: Sequence[Comparison]) -> WinShares:
    winners: list[Winner | None] = []
    for one in met:
        found = one.shares
        counts: dict[Winner | None, int] = {
            "a": found.wins.count,
            "b": found.losses.count,
            "draw": found.draws.count,
            None: found.undecided,
        }
        for winner, count in counts.items():
            winners.extend(repeat(winner, count))
    return shares(winners)


def _paper(config: EmergenceConfig, seen: tuple[int, int], domain: str) -> tuple[int, int, int] | None:
    """The paper's counts, where the chain up to here is the paper's."""
    chain = tuple(config.added(number) or config.steps[number].name.casefold() for number in range(seen[1]))
    return PAPER.get(seen, {}).get(domain) if chain == CHAIN[: seen[1]] else None


def _told(study: Emergence) -> dict[str, Any]:
    config = study.config
    told: dict[str, Any] = msgspec.to_builtins(config)
    names = [one.place.label if one.place else one.label for one in study.members()]
    told |= {"base": names[0], "judges": study.judges, "writer": study.writer}
    told["steps"] = [
        {"name": one.name, "rows": [Path(path).name for path in one.rows], "model": name}
        for one, name in zip(config.steps, names[1:], strict=True)
    ]
    told["domains"] = [{"name": one.name, "questions": one.questions} for one in config.domains]
    told["train"] = {
        name: Path(str(one)).name if name == "model" else one for name, one in config.train.items()
    }
    for name in ("judge_prompt", "question_prompt"):
        told[name] = Path(str(getattr(config, name))).name
    told.pop("out", None)
    return told


def _models(study: Emergence) -> list[ChainModel]:
    found: list[ChainModel] = []
    for one, done in study.results():
        asked = one.place.label if one.place else ""
        if done:
            found.append(
                ChainModel(one.label, asked, True, done.rows, done.steps, done.first_loss, done.last_loss)
            )
        else:
            found.append(ChainModel(one.label, asked))
    return found


def _passed_on(study: Emergence, judged: Evaluation) -> Evaluation:
    """What was served here costs no money, and of a prompt's file only the name is told."""
    here = study.served_here()
    costs = [msgspec.structs.replace(one, money=0.0) if one.model in here else one for one in judged.costs]
    known = None if any(one.money is None for one in costs) else sum(one.money or 0.0 for one in costs)
    config = msgspec.structs.replace(
        judged.config,
        judge_prompt=Path(judged.config.judge_prompt).name,
        single_shot_prompt=Path(judged.config.single_shot_prompt).name,
    )
    return msgspec.structs.replace(judged, config=config, costs=costs, money=known)


def _besides(study: Emergence) -> list[OtherUsage]:
    names = [stage.name for stage in study.questions.stages()]
    used = [("Questions", study.writer, spent_on(study.questions.folder, names))]
    asked = {one.label: one.place.label for one in study.members() if one.place}
    used += [("HumanEval", asked[label], spent_on(one.folder, [SAMPLES])) for label, one in study.programs()]
    here = study.served_here()
    return [
        OtherUsage(step, model, usage, 0.0 if model in here else cost(model.partition("@")[0], usage))
        for step, model, usage in used
        if usage.calls
    ]
