"""The figures of an emergence study: the paper's Table 2, and the effect of each added dataset on each domain.

The one decision to know: an effect is the share of questions that the later model wins minus the share that it loses. It is the
contest's score, scaled to -1 to 1, with its interval. An exact test decides whether it is significant, corrected for all cells
of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from camel._version import __version__
from camel.evaluation.humaneval.records import SAMPLES
from camel.evaluation.humaneval.report import Passing, report_of
from camel.evaluation.pairs import Pair, PairVerdict, Winner
from camel.evaluation.results import Comparison, Cost, Evaluation, evaluate
from camel.evaluation.standing import Interval, WinShares, shares
from camel.jobs.ledger import spent_on
from camel.models.prices import cost
from camel.reports.intervals import Rate, ReportFigures, holm, paired
from camel.training.emergence.emergence_config import EmergenceConfig
from camel.training.train import finished

if TYPE_CHECKING:
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
"""The datasets of the paper, in the order in which they are added."""


class Line(msgspec.Struct, frozen=True):
    """A line of the table: the comparison of two models on one domain."""

    domain: str
    """Title of the domain, or `All` for the sum over domains."""
    before: str
    """Label of model 1."""
    after: str
    """Label of model 2."""
    seen: tuple[int, int]
    """Number of datasets that model 1 and model 2 were trained on."""
    draws: Rate
    before_wins: Rate
    after_wins: Rate
    of: int
    """Number of questions with a verdict."""
    undecided: int
    effect: Interval
    """Share of questions that model 2 won minus the share that it lost."""
    p: float
    """P-value of an exact test of wins against losses."""
    adjusted: float
    """The p-value, corrected for all lines of the table (Holm)."""
    added: bool = False
    """Whether the data that was added for model 2 is about this domain."""
    paper: tuple[int, int, int] | None = None
    """The paper's counts: draws, wins of model 1, wins of model 2."""

    @property
    def sure(self) -> bool:
        """Whether the difference is significant after correction."""
        return self.adjusted < SURE


class ChainModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model of the chain."""

    label: str
    asked: str
    """The name of the model in requests."""
    trained: bool = False
    """Whether the model was trained in this study."""
    rows: int = 0
    steps: int = 0
    first_loss: float = 0.0
    last_loss: float = 0.0


class Tested(msgspec.Struct, frozen=True):
    """Results of a model on HumanEval and HumanEval+."""

    label: str
    n: int
    problems: int
    humaneval: list[Passing]
    plus: list[Passing]


class Subject(msgspec.Struct, frozen=True):
    """A domain, and the source of its questions."""

    name: str
    title: str
    questions: int
    written_by: str
    """The model that wrote the questions; empty if they were read from a file."""


class Figures(ReportFigures, frozen=True):
    """All figures of a study."""

    file = "emergence"
    config: dict[str, Any]
    """Settings of the study, without private paths, because reports are shared."""
    models: list[ChainModel]
    datasets: list[str]
    """Names of the added datasets, in order."""
    domains: list[Subject]
    table: list[Line]
    totals: list[Line]
    """The comparison of each pair of models over all domains."""
    leaks: dict[str, dict[str, int]]
    """Number of rows that contain a question, by dataset and by the question's domain."""
    humaneval: list[Tested]
    judging: Evaluation
    """Figures about the judges, the answers and their cost."""
    besides: list[Cost]
    """Usage for questions and programs, which is not part of the usage for answers and verdicts."""
    version: str = __version__
    schema: int = 1


def figures(study: Emergence) -> tuple[Figures, list[Pair], list[PairVerdict]]:
    """Compute the figures of a finished study. Also return the pairs of answers and the verdicts on them."""
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
    tested = [report_of(one) for _, one in study.programs()]
    made = Figures(
        _settings(study),
        _models(study),
        [one.name for one in config.steps],
        [
            Subject(one.name, one.label, one.questions, "" if one.file else study.writer.label)
            for one in config.domains
        ],
        _correct(table),
        _correct(totals),
        study.leaks(),
        [Tested(one.model, one.n, one.problems, one.humaneval, one.plus) for one in tested],
        _public(study, judged),
        _other_usage(study),
    )
    return made, pairs, verdicts


def _correct(lines: Sequence[Line]) -> list[Line]:
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
    counts: Counter[Winner | None] = Counter()
    for found in (one.shares for one in met):
        counts.update(a=found.wins.count, b=found.losses.count, draw=found.draws.count)
        counts[None] += found.undecided
    return shares(counts)


def _paper(config: EmergenceConfig, seen: tuple[int, int], domain: str) -> tuple[int, int, int] | None:
    """Return the counts in the paper's table. Return None if this chain of datasets differs from the paper's."""
    chain = tuple(config.added(number) or config.steps[number].name.casefold() for number in range(seen[1]))
    return PAPER.get(seen, {}).get(domain) if chain == CHAIN[: seen[1]] else None


def _settings(study: Emergence) -> dict[str, Any]:
    config = study.config
    settings: dict[str, Any] = msgspec.to_builtins(config)
    names = [one.place.label for one in study.members()]
    settings |= {
        "base": names[0],
        "judges": [one.label for one in study.judges],
        "writer": study.writer.label,
    }
    settings["steps"] = [
        {"name": one.name, "rows": [Path(path).name for path in one.rows], "model": name}
        for one, name in zip(config.steps, names[1:], strict=True)
    ]
    settings["domains"] = [{"name": one.name, "questions": one.questions} for one in config.domains]
    settings["train"] = {
        name: Path(str(one)).name if name == "model" else one for name, one in config.train.items()
    }
    for name in ("judge_prompt", "question_prompt"):
        settings[name] = Path(str(getattr(config, name))).name
    settings.pop("out", None)
    return settings


def _models(study: Emergence) -> list[ChainModel]:
    found: list[ChainModel] = []
    for one in study.members():
        made = ChainModel(one.label, one.place.label)
        if done := one.training and finished(one.training):
            losses = {"first_loss": done.first_loss, "last_loss": done.last_loss}
            made = msgspec.structs.replace(made, trained=True, rows=done.rows, steps=done.steps, **losses)
        found.append(made)
    return found


def _public(study: Emergence, judged: Evaluation) -> Evaluation:
    """Return a copy that can be published: models served by the study cost 0, and paths of prompts become file names."""
    here = study.served_here()
    costs = [msgspec.structs.replace(one, money=0.0) if one.model in here else one for one in judged.costs]
    known = None if any(one.money is None for one in costs) else sum(one.money or 0.0 for one in costs)
    config = msgspec.structs.replace(
        judged.config,
        judge_prompt=Path(judged.config.judge_prompt).name,
        single_shot_prompt=Path(judged.config.single_shot_prompt).name,
    )
    return msgspec.structs.replace(judged, config=config, costs=costs, money=known)


def _other_usage(study: Emergence) -> list[Cost]:
    names = [stage.name for stage in study.questions.stages()]
    used = [("Questions", study.writer.label, spent_on(study.questions.folder, names))]
    asked = {one.label: one.place.label for one in study.members()}
    used += [("HumanEval", asked[label], spent_on(one.folder, [SAMPLES])) for label, one in study.programs()]
    here = study.served_here()
    return [
        Cost(step, model, usage, 0.0 if model in here else cost(model.partition("@")[0], usage))
        for step, model, usage in used
        if usage.calls
    ]
