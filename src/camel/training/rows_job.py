"""The job that makes training rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from camel.core.model import Model
from camel.jobs.job import Job, Step
from camel.models.spec import ModelSpec
from camel.runs.run import RunFolder
from camel.training.recipe import Recipe
from camel.training.rows import RowBuilder, RowsReport


@dataclass(frozen=True)
class RowsJob(Job):
    """A job that makes the rows of a recipe."""

    name = "rows"
    recipe: Recipe
    replace: bool = False
    """Whether to replace rows of another recipe in the output folder."""
    place: str = field(init=False)
    models: Mapping[str, Model | ModelSpec] = field(default_factory=dict[str, Model | ModelSpec], init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.recipe.out)

    @cached_property
    def builder(self) -> RowBuilder:
        """The builder of the rows. The first use creates the output folder."""
        return RowBuilder(self.recipe, replace=self.replace)

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Return the output folder."""
        return self.builder.folder

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the stages: make rows from conversations, then remove duplicates and apply weights."""
        yield from self.builder.stages()

    def result(self, run: RunFolder) -> RowsReport:
        """Write the dataset card, and return the report."""
        self.builder.write_card()
        return self.builder.report()

    @property
    def title(self) -> str:
        """The name of the job in progress displays."""
        return f"rows of {', '.join(source.run for source in self.recipe.sources)}"
