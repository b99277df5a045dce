"""The evaluation of agents as a job: its systems and models, found by their names, then all solutions, then all verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from camel.core.errors import InputError
from camel.core.model import Model
from camel.evaluation.contest import Contest
from camel.evaluation.contest_records import AGENTS, SINGLE_SHOT, AgentsConfig, AskedModel, Group
from camel.evaluation.report import report, write_evidence
from camel.evaluation.results import Evaluation, evaluate
from camel.evaluation.vote_results import with_votes
from camel.jobs.job import KEPT, Job, Stage, Step
from camel.jobs.status import check_finished
from camel.models.connect import label, split_name
from camel.models.spec import ModelSpec, find_spec
from camel.reports.html import write_report
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder, open_folder
from camel.storage import inside
from camel.storage.store import absolute_place


class AskedModels(NamedTuple):
    """The models of an evaluation. A model with several tasks, such as judge and summarizer, appears once in `models`."""

    models: dict[str, Model | ModelSpec]
    summarizer: AskedModel
    writers: dict[str, AskedModel]
    judges: tuple[AskedModel, ...]


def find_groups(runs: Sequence[str], against: Sequence[str]) -> tuple[Group, ...]:
    """Return a group for each run. It also contains those runs of `against` that have the same scenario."""
    records = [RunReader(run) for run in runs]
    for one in records:
        if not len(one):
            raise InputError(f"'{one.folder.address}' has no finished conversations: finish the run first")
    others: dict[str, RunReader] = {}
    for name in (one for one in against if not _is_single_shot(one)):
        if not open_folder(name).exists:
            raise InputError(
                f"--against accepts {SINGLE_SHOT}, {SINGLE_SHOT}=MODEL or a run's folder, not {name!r}"
            )
        other = RunReader(name)
        others[_name(other)] = other
    if AGENTS in others:
        raise InputError(f"a run of --against has the reserved name '{AGENTS}': rename its folder")
    scenarios = [_scenario(one) for one in records]
    for other in others.values():
        if _scenario(other) not in scenarios:
            raise InputError(
                f"'{other.folder.address}' has the scenario {_scenario(other)!r}, which none of the runs to evaluate has. Remove it from --against"
            )
    groups: list[Group] = []
    for one, scenario in zip(records, scenarios, strict=True):
        alike = {name: other.folder.address for name, other in others.items() if _scenario(other) == scenario}
        name = scenario if scenarios.count(scenario) == 1 else _name(one)
        groups.append(Group(name, {AGENTS: one.folder.address, **alike}, scenario))
    return tuple(groups)


def find_models(
    groups: Sequence[Group],
    judges: Sequence[str | ModelSpec],
    *,
    summarizer: str = "",
    base: str = "",
    against: Sequence[str] = (),
    base_url: str = "",
    guided: Any = None,
    batch: bool = False,
) -> AskedModels:
    """Find the models by their names. `base` writes the single-shot answers. By default it is the model of the runs."""
    if not judges:
        raise InputError("no judge is given: name a strong model with --judge, or use --local")
    made: dict[str, AskedModel] = {}
    models: dict[str, Model | ModelSpec] = {}

    def model(given: str | ModelSpec) -> AskedModel:
        # Two models of the same name, at different addresses, are two models.
        named = given if isinstance(given, str) else f"{given.name}@{given.base_url}".rstrip("@")
        spec, url = named, split_name(named)[1]
        if spec not in made:
            found = given
            if isinstance(found, str):
                found = find_spec(found, base_url=base_url, guided=guided, batch=batch)
            models[spec] = found
            made[spec] = AskedModel(label(found.name, url), spec, found.window, found.weights)
        return made[spec]

    single = single_shots(against)
    if SINGLE_SHOT in single and not base:
        runs = [open_folder(group.runs[AGENTS]) for group in groups]
        names = {str(run.settings().config.get("model.name", "")) for run in runs}
        base = names.pop() if len(names) == 1 else ""
        if not base:
            raise InputError("the runs have no common model for single-shot answers: name one with --model")
    writers: dict[str, AskedModel] = {}
    for name in single:
        writer = model(name.partition("=")[2] or base)
        writers[f"{SINGLE_SHOT}={writer.name}" if "=" in name else name] = writer
    asked = tuple(dict.fromkeys(model(spec) for spec in judges))
    return AskedModels(models, model(summarizer) if summarizer else asked[0], writers, asked)


def single_shots(against: Sequence[str]) -> list[str]:
    """Return the names in `against` that are single-shot systems. If `against` is empty, return only that of the base
    model."""
    single = [name for name in against if _is_single_shot(name)] if against else [SINGLE_SHOT]
    if len(set(single)) != len(single):
        raise InputError("--against contains the same system twice: give each system once")
    return single


def evaluation_folder(run: str) -> Path:
    """Return the default folder of a run's evaluation. It is in the run's folder if the run is on a disk."""
    folder = open_folder(run)
    if folder.on_disk:
        return folder.path("evaluation")
    return Path("evaluations") / run.rstrip("/").rpartition("/")[2] / "evaluation"


def _is_single_shot(name: str) -> bool:
    return name.partition("=")[0] == SINGLE_SHOT


def _name(run: RunReader) -> str:
    return run.folder.address.rstrip("/").rpartition("/")[2]


def _scenario(run: RunReader) -> str:
    return Path(str(run.settings.config.get("scenario", ""))).name or _name(run)


@dataclass(frozen=True)
class AgentsEvaluation(Job):
    """A job in which judges compare runs with each other and with single-shot answers."""

    name = "evaluate agents"
    out: str
    """The folder of the report. The answers of the models and judges are stored in a subfolder."""
    groups: tuple[Group, ...]
    config: AgentsConfig
    models: Mapping[str, Model | ModelSpec]
    summarizer: AskedModel
    writers: Mapping[str, AskedModel]
    """The models that write the single-shot answers, by the name of their system."""
    judges: tuple[AskedModel, ...]
    place: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", str(inside.path(Path(self.out), KEPT)))

    @cached_property
    def contest(self) -> Contest:
        """The contest: all questions to models and judges, and their stored answers."""
        return Contest(
            open_folder(self.place),
            self.groups,
            self.config,
            summarizer=self.summarizer,
            writers=self.writers,
            judges=self.judges,
        )

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open the folder of the answers. Raises an `InputError` if one of the evaluated runs is unfinished."""
        for run in {run for group in self.groups for run in group.runs.values()}:
            if "imported" not in RunReader(run).settings.config:  # an imported run cannot be continued
                check_finished(run, "evaluated")
        return super().open(accept)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the stages that make solutions, then the stages in which judges compare them."""
        yield self.contest.solving()
        yield self.contest.judging()

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return all stages that call a model."""
        return [step.stage for step in self.contest.steps]

    def result(self, run: RunFolder) -> Evaluation:
        """Compute the figures of the evaluation, write the report, and return the figures."""
        made, pairs, verdicts = evaluate(self.contest)
        out = Path(self.out)
        made = with_votes(made, out)
        write_evidence(out, self.contest.prompts, pairs, verdicts)
        write_report(out, report(made), made)
        return made

    def absolute(self) -> AgentsEvaluation:
        """Return a copy with absolute paths."""
        groups = tuple(
            group._replace(runs={name: absolute_place(run) for name, run in group.runs.items()})
            for group in self.groups
        )
        return replace(self, out=absolute_place(self.out), groups=groups)

    @property
    def title(self) -> str:
        """The names of the compared groups."""
        return ", ".join(group.name for group in self.groups)
