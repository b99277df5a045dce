"""A map as a job: the vectors of a run's texts, then their layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from camel.core.errors import InputError
from camel.core.model import Model
from camel.jobs.job import Job, Step
from camel.maps.diversity import THRESHOLD
from camel.maps.embedders import Embedder
from camel.maps.embedding import Embedding, home
from camel.maps.layout import FIT
from camel.maps.make import Made, make_map
from camel.maps.texts import Of, checked
from camel.models.spec import ModelSpec
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder, open_folder


@dataclass(frozen=True)
class MapJob(Job):
    """The map of a run."""

    name = "map"
    run: str
    embedder: Embedder
    of: Of = "tasks"
    seed: int = 0
    groups: int | None = None
    threshold: float = THRESHOLD
    fit: int = FIT
    models: Mapping[str, Model | ModelSpec] = field(default_factory=dict[str, Model | ModelSpec], init=False)
    place: str = field(init=False)

    def __post_init__(self) -> None:
        checked(self.of)
        object.__setattr__(self, "place", str(home(open_folder(self.run), self.of, "vectors")))

    @cached_property
    def embedding(self) -> Embedding:
        """The vectors."""
        records = RunReader(self.run)
        if not len(records):
            raise InputError(
                f"{self.run} has no finished conversations yet: camel status {self.run} says how far it is"
            )
        return Embedding(records, self.embedder, of=self.of)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """The vectors, a shard of the run at a time."""
        yield from self.embedding.stages()

    def result(self, run: RunFolder) -> Made:
        """The map, laid out and written beside the run."""
        return make_map(
            self.embedding, seed=self.seed, groups=self.groups, threshold=self.threshold, fit=self.fit
        )

    @property
    def title(self) -> str:
        """What is embedded."""
        return f"{self.of} of {self.run}"
