"""A job: the declaration of a long command. The runner executes it.

    class Titles(Job):
        name = "titles"
        def stages(self, run):
            yield Stage(name="titles", count=len(self.texts), work=self.ask, write=write_lines)

A job declares its stages, the work for one item of a stage, and how records are written. The runner (`camel.jobs.runner`)
handles locks, journals, budgets, failures, retries, progress, pause, stop and resume, here and on a cluster.

The one decision to know: `stages` is a generator that advances when everything before is committed. So a stage may depend
on the records of earlier stages, and on nothing else: every restart and every worker of a cluster runs the generator again
to get to the same place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from camel.core.errors import CamelError
from camel.core.identity import identity_of
from camel.core.message import Usage
from camel.core.model import Model
from camel.engine.stage import StageItems, Written
from camel.jobs.budget import Budget
from camel.models.spec import ModelSpec
from camel.runs.copies import CopyLimits
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder
from camel.storage.files import make_folder
from camel.storage.store import absolute_place

if TYPE_CHECKING:
    from camel.jobs.item import Item


KEPT = "kept"
"""The subfolder with a job's records, if the job's own folder is for a report."""


class ItemFailed(CamelError):
    """Raised by a work function if an item fails for a reason specific to the job, such as a list that cannot be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(StageItems):
    """Items with the same work function, numbered from 0."""

    work: Callable[[Item], Awaitable[Any]]
    """Returns the record of an item. It must not catch `ModelError`."""
    write: Callable[[Path, Sequence[Any]], Written]
    """Writes the records of a shard durably, in the order of their items. Called on a thread."""
    failed: Callable[[Item, CamelError], Any] | None = None
    """Returns the record of a failed item, from `item.draft`. None: a failure stops the job."""
    failure: Callable[[Any], str] = lambda record: ""
    """Returns why the item of a record failed, as `Class: text`. Empty if it did not fail."""
    counts: Callable[[Any], Iterable[str]] = lambda record: ()
    """Returns the names under which a record is counted, such as `stop.done`."""
    id: Callable[[int], str] = str
    """Returns the id of an item, for sessions, lists of failures and errors."""
    read: Callable[[Marker], Sequence[Any]] | None = None
    """Reads the records of a shard. Without it, failed items are counted, but not listed or retried."""
    identity: Mapping[str, Any] | None = None
    """What determines the records. It is stored when the stage starts, and a different value later raises an error; None:
    it is in the stage's name or in the job's settings."""
    seat: str = ""
    """The seat whose model is called; its price applies to replies in open journals."""
    number: Callable[[Any], int] | None = None
    """Returns the item of a record. Without it, the records of a shard must be those of its items, in order."""
    concurrency: int | None = None
    """Maximum number of items in flight; None: the job's limit."""


class Estimator(Protocol):
    """Estimates the total usage of a job from its committed shards."""

    def add(self, marker: Marker) -> None:
        """Add a finished shard."""
        ...

    def expected(self) -> Usage:
        """Return the estimated total usage over all processes."""
        ...

    def forecast(self) -> Iterable[str]:
        """Return the estimate as lines to show before the first call."""
        ...


class Job:
    """The declaration of a long-running command. It can be pickled, and has no open files, connections or secrets."""

    name: ClassVar[str]
    log: ClassVar[str] = "log.jsonl"
    """The name of the log in the job's folder."""
    place: str
    """The folder or object-store address of the job's records and journals."""
    models: Mapping[str, Model | ModelSpec]
    """Models by seat. The key "" has the default. Empty if no model is called."""
    budgets: Mapping[str, tuple[Collection[str], Budget]] = {}
    """Further budgets by name, each with the names of its models."""
    variables: Collection[str] = ()
    """Names of environment variables that workers need, in addition to those of the models."""
    copy_limits: CopyLimits = CopyLimits()
    """What the loss of a node may cost, if the nodes of a cluster share no disk (`camel.runs.copies`)."""

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the steps in order. A step is a stage, several stages that share one limit on items in flight, or another job.
        Default: the stages of the outline, one after the other."""
        yield from self.outline(run)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return the stages that are known in advance, for progress and budgets."""
        return ()

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open or create the folder. `accept` names changes of settings that the user accepts."""
        folder = open_folder(self.place)
        make_folder(folder.root)
        return folder

    def prepare(self, run: RunFolder) -> None:
        """Plan the items before the work starts. Called once, by the driver, which may lock the run for it."""

    def estimator(self, run: RunFolder) -> Estimator | None:
        """Return an estimator of the job's total usage, or None if the job has none."""
        return None

    def result(self, run: RunFolder) -> Any:
        """Return the job's result. Called after everything is committed."""
        return None

    def identity(self) -> dict[str, Any]:
        """Return what the job was asked, except its models."""
        asked: dict[str, Any] = {
            name: value
            for name, value in self.__getstate__().items()
            if name[0] != "_" and name not in ("models", "place", "out")
        }
        return {
            name: identity_of(value)
            for name, value in asked.items()
            if not isinstance(value, Model | ModelSpec)
        }

    def absolute(self) -> Job:
        """Return the job with absolute paths, valid in every process on the same file system."""
        if not is_dataclass(self):
            return self
        paths = [one.name for one in fields(self) if one.init and one.name in ("place", "out", "run")]
        return replace(self, **{name: absolute_place(getattr(self, name)) for name in paths})

    def __getstate__(self) -> dict[str, Any]:
        """Omit cached properties: they may be large, and can be computed again."""
        cached = {
            name
            for kind in type(self).__mro__
            for name in vars(kind)
            if isinstance(vars(kind)[name], cached_property)
        }
        return {name: value for name, value in self.__dict__.items() if name not in cached}

    @property
    def title(self) -> str:
        """A short title."""
        return self.name


Step: TypeAlias = Stage | tuple[Stage, ...] | Job
