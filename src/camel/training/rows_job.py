"""Making rows as a job."""

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
    """The rows of a recipe, in its folder."""

    name = "rows"
    recipe: Recipe
    replace: bool = False
    """Whether rows of another recipe that lie there are replaced."""
    place: str = field(init=False)
    models: Mapping[str, Model | ModelSpec] = field(default_factory=dict[str, Model | ModelSpec], init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.recipe.out)

    @cached_property
    def builder(self) -> RowBuilder:
        """What makes them."""
        return RowBuilder(self.recipe, replace=self.replace)

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """The folder of the rows."""
        return self.builder.folder

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Shaped rows, then those without duplicates."""
        yield from self.builder.stages()

    def result(self, run: RunFolder) -> RowsReport:
        """What became of everything."""
        self.builder.write_card()
        return self.builder.report()

    @property
    def title(self) -> str:
        """Where they are from."""
        return f"rows of {', '.join(source.run for source in self.recipe.sources)}"
