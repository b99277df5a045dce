"""The ablation job: generates a scenario without each sentence of its prompts in turn, and compares the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as fields_replaced
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from camel.core.model import Model
from camel.evaluation.comparison import AblationFigures, compare, outcomes_of, report
from camel.evaluation.findings import Findings, Looker
from camel.generation.ablation import (
    CONVERSATIONS,
    SEED,
    WHOLE,
    Variant,
    chosen,
    smaller,
    variants,
    write_variant,
)
from camel.generation.config import GenerateConfig
from camel.generation.generate import Generation, models_of
from camel.generation.plan import Plan, Range, make_plan
from camel.jobs.job import KEPT, Job, Step
from camel.models.spec import ModelSpec
from camel.reports.html import write_report
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.scenarios import Scenario
from camel.scenarios.reading import folder_of
from camel.storage.store import absolute_place

PAGE = "ablation.html"


@dataclass(frozen=True)
class Ablation(Job):
    """A job that generates runs of a scenario's variants in one folder and compares them."""

    name = "ablate"
    given: GenerateConfig
    out: str
    names: tuple[str, ...] = ()
    """Names of the sentences to remove, such as `user-02`. Default: all."""
    conversations: int = CONVERSATIONS
    """Maximum number of conversations per variant, if the configuration sets no counts."""
    processes: int = 1
    """Number of processes that run the detectors."""
    model: Model | None = None
    """A model that replaces the configured one."""
    place: str = field(init=False)
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.out)
        object.__setattr__(self, "models", models_of(self.given, self.model))

    @cached_property
    def config(self) -> GenerateConfig:
        """The configuration of all variants."""
        # Configured sizes are kept; the paper's 25,000 conversations per variant are not the default.
        counts = self.given.counts or smaller(self.given.loaded_scenario(), self.conversations)
        return replace(self.given, counts=counts, seed=SEED if self.given.seed is None else self.given.seed)

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario, with the sizes of the configuration."""
        return self.config.loaded_scenario()

    @cached_property
    def variants(self) -> list[Variant]:
        """The variants to generate."""
        return chosen(variants(self.scenario), self.names)

    def run_of(self, variant: Variant) -> Path:
        """Return the folder of a variant's run."""
        return Path(self.out) / variant.name / "run"

    def config_of(self, variant: Variant) -> GenerateConfig:
        """Return the configuration of a variant. The folder of the variant's scenario is written if needed."""
        folder = Path(self.out) / variant.name / "scenario" / self.scenario.name
        write_variant(folder_of(self.config.scenario), folder, self.scenario, variant)
        return replace(self.config, scenario=str(folder), out=str(self.run_of(variant)))

    def plan(self) -> Plan:
        """Estimate the cost of all variants: the lists once, and the conversations of each variant."""
        one = make_plan(self.config)
        *lists, talk = one.stages
        times = len(self.variants)
        need = Range(*(case.times(times) for case in talk.need))
        whole = replace(talk, items=talk.items * times, shards=talk.shards * times, need=need)
        return replace(one, stages=(*lists, whole))

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the generation of each variant's run, followed by the detectors' scan of it."""
        for variant in self.variants:
            lists_of = "" if variant.name == WHOLE else str(self.run_of(self.variants[0]))
            yield Generation(self.config_of(variant), self.model, lists_of)
        for variant in self.variants:
            yield Findings(str(self._kept(variant)), str(self.run_of(variant)), self.processes)

    def _kept(self, variant: Variant) -> Path:
        return Path(self.out) / variant.name / KEPT

    def result(self, run: RunFolder) -> AblationFigures:
        """Compare the variants, write the report, and return the figures."""
        seen = {
            one.name: outcomes_of(Looker(RunReader(self.run_of(one)), self._kept(one)).tables())
            for one in self.variants
        }
        whole, *others = self.variants
        made = compare(
            seen[whole.name],
            {variant.name: seen[variant.name] for variant in others},
            {variant.name: (variant.prompt, variant.sentence) for variant in others},
            scenario=self.scenario.name,
            model=self.config.model.name,
        )
        write_report(Path(self.out), "ablation", report(made), made.to_json())
        return made

    def absolute(self) -> Ablation:
        """Return the job with an absolute path."""
        return fields_replaced(self, out=absolute_place(self.out))

    @property
    def title(self) -> str:
        """The scenario's name."""
        return f"{self.given.scenario}, ablated"
