"""The generation job: a scenario's lists, level by level, then its conversations or answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path

from msgspec.structs import replace

from camel.core.model import Model
from camel.generation.config import ANSWERS, GenerateConfig, last_stage
from camel.generation.forecast import PlanEstimator
from camel.generation.maker import Maker
from camel.generation.opening import item_stages, open_run
from camel.generation.reuse import reuse_lists
from camel.generation.seats import JUDGE, models_at
from camel.generation.table_plan import first_segments, plan_preview, plan_rows
from camel.generation.toolboxes import RunTools
from camel.jobs.budget import Budget
from camel.jobs.job import Job, Stage
from camel.models.connect import NamedModel
from camel.models.spec import ModelSpec
from camel.record.parquet import arrow
from camel.runs.copies import CopyLimits
from camel.runs.plan import RunPlan, read_plan
from camel.runs.run import RunFolder
from camel.scenarios.checking import columns_of
from camel.storage.store import absolute_place


@dataclass(frozen=True)
class Generation(Job):
    """The job that generates the data of a scenario."""

    name = "generate"
    config: GenerateConfig
    model: Model | None = None
    """Replaces the configured model, for example by one on this machine."""
    lists_of: str = ""
    """A run whose lists are reused, if they would be asked for in the same way."""
    preview: int = 0
    """Number of conversations of a preview. 0: all conversations."""
    place: str = field(init=False)
    models: Mapping[str, Model | ModelSpec] = field(init=False)
    budgets: Mapping[str, tuple[Collection[str], Budget]] = field(init=False)
    copy_limits: CopyLimits = field(init=False)
    variables: Collection[str] = field(init=False)

    def __post_init__(self) -> None:
        run = self.config.run
        object.__setattr__(self, "place", self.config.where)
        object.__setattr__(self, "copy_limits", CopyLimits(run.copy_every, run.copy_bytes))
        object.__setattr__(self, "models", models_of(self.config, self.model))
        budgets = {
            f"models.{name}": ([one.model.name for one in seat.candidates], seat.budget)
            for name, seat in self.config.models.items()
            if seat.budget != Budget()
        }
        object.__setattr__(self, "budgets", budgets)
        tools = RunTools(self.config, self.config.loaded_scenario())
        object.__setattr__(self, "variables", tools.variables)

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open or create the run's folder. Raise an `InputError` if its configuration differs."""
        arrow()  # fail before any call is paid if results cannot be stored
        if self.lists_of:
            return reuse_lists(self.config, self.lists_of, accept)
        return open_run(self.config, self.config.loaded_scenario(), accept=accept)

    def prepare(self, run: RunFolder) -> None:
        """Plan the rows of a table, or a preview and what follows it."""
        config, scenario = self.config, self.config.loaded_scenario()
        stages = item_stages(config, scenario)
        if config.inputs is not None:
            used = columns_of(scenario)
            plan_rows(run, config.inputs, used, stages, shard_size=config.shard_size, preview=self.preview)
        elif self.preview or read_plan(run):
            first = first_segments(scenario, stages, self.preview)
            plan_preview(run, first, run.settings().planned, self.preview)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return all stages."""
        return Maker(self.config, run).stages()

    def conversations(self, run: RunFolder, plan: RunPlan) -> Stage:
        """Return the stage of a plan's conversations or answers."""
        return Maker(self.config, run, plan).stages()[-1]

    def estimator(self, run: RunFolder) -> PlanEstimator:
        """Return an estimator that is updated as the run proceeds."""
        return PlanEstimator(run, self.config, self.lists_of)

    def absolute(self) -> Generation:
        """Return the job with an absolute path of its folder."""
        config = replace(self.config, out=absolute_place(self.place))
        return replace_fields(self, config=config, lists_of=self.lists_of and absolute_place(self.lists_of))

    @property
    def title(self) -> str:
        """The scenario's name."""
        return Path(self.config.scenario).name


def models_of(config: GenerateConfig, model: Model | None) -> dict[str, Model | ModelSpec]:
    """Return the models of a configuration by seat. `model`, if given, replaces the default one."""
    section = config.model
    usual = section if model is None else NamedModel(model, section.name, section.cost())
    seats: dict[str, Model | ModelSpec] = {"": usual, **models_at(config.models)}
    if config.validate and config.validate.judge and config.judge:
        seats[JUDGE] = config.judges[0]
    if model is None and section.batch and last_stage(config.loaded_scenario()) != ANSWERS:
        # Conversations do not use batches: they are sequences of calls, and each batch may take a day.
        once = {name: seats.get(name, section) for name in ("lists", "specifier")}
        direct = {
            name: replace(spec, batch=False) for name, spec in seats.items() if isinstance(spec, ModelSpec)
        }
        seats |= {**direct, **once}
    return seats
