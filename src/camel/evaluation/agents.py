"""The evaluation of agents as a job: first all solutions, then all verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from camel.core.model import Model
from camel.evaluation.contest import Contest
from camel.evaluation.contest_records import AgentsConfig, Group
from camel.evaluation.report import report, write_evidence
from camel.evaluation.results import Evaluation, evaluate
from camel.evaluation.vote_results import with_votes
from camel.evaluation.windows import AskedModel
from camel.jobs.job import KEPT, Job, Stage, Step
from camel.jobs.status import check_finished
from camel.models.spec import ModelSpec
from camel.reports.report_files import write_report
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder, open_folder
from camel.storage import inside
from camel.storage.store import absolute_place


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
        write_report(out, "evaluation", report(made), made.to_json())
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
