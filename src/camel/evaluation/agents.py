"""The evaluation of agents as a job: all solutions in one window, then all verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from camel.core.model import Model
from camel.evaluation.contest import Contest
from camel.evaluation.contest_records import AgentsConfig, Group
from camel.evaluation.report import write_report
from camel.evaluation.results import Evaluation, evaluate
from camel.evaluation.vote_results import with_votes
from camel.evaluation.windows import AskedModel
from camel.jobs.job import KEPT, Job, Stage, Step
from camel.jobs.status import check_finished
from camel.models.spec import ModelSpec
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder, open_folder
from camel.storage import inside
from camel.storage.store import absolute_place

"""The folder, in that of an evaluation, of every answer that was paid for."""


@dataclass(frozen=True)
class AgentsEvaluation(Job):
    """Runs compared with each other and with single shots, by judges."""

    name = "evaluate agents"
    out: str
    """The folder of the report; all answers are kept in one beside it."""
    groups: tuple[Group, ...]
    config: AgentsConfig
    models: Mapping[str, Model | ModelSpec]
    summariser: AskedModel
    writers: Mapping[str, AskedModel]
    """By the names of the single-shot systems."""
    judges: tuple[AskedModel, ...]
    place: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", str(inside.path(Path(self.out), KEPT)))

    @cached_property
    def contest(self) -> Contest:
        """What is asked, and what was said."""
        return Contest(
            open_folder(self.place),
            self.groups,
            self.config,
            summariser=self.summariser,
            writers=self.writers,
            judges=self.judges,
        )

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """The folder of the answers, if the runs are complete."""
        for run in {run for group in self.groups for run in group.runs.values()}:
            if "imported" not in RunReader(run).settings.config:  # those are as they are
                check_finished(run, "evaluated")
        return super().open(accept)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """The solutions, then the verdicts."""
        yield self.contest.solving()
        yield self.contest.judging()

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """All of them."""
        return [step.stage for step in self.contest.steps]

    def result(self, run: RunFolder) -> Evaluation:
        """The figures, which are also written as a report."""
        made, pairs, verdicts = evaluate(self.contest)
        made = with_votes(made, Path(self.out))
        write_report(self.contest, made, pairs, verdicts, Path(self.out))
        return made

    def absolute(self) -> AgentsEvaluation:
        """The same, with absolute paths."""
        groups = tuple(
            group._replace(runs={name: absolute_place(run) for name, run in group.runs.items()})
            for group in self.groups
        )
        return replace(self, out=absolute_place(self.out), groups=groups)

    @property
    def title(self) -> str:
        """What is compared."""
        return ", ".join(group.name for group in self.groups)
