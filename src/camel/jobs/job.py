"""A job: what a long command declares. The runner does the rest.

    class Titles(Job):
        name = "titles"
        def stages(self, run):
            yield Stage(name="titles", count=len(self.texts), work=self.ask, write=write_lines)

A job says what its stages are, what is done for one item of a stage, and how records are written. Locks, journals, budgets,
failures, retries, progress, pausing, stopping and continuing are the runner's (`camel.jobs.runner`), here and on a cluster.

The one decision to know: `stages` is a generator that is advanced when everything before is committed. So a stage may
depend on the records of those before it. It must depend on nothing else: a later start runs it again to get to the same
place, and so does every worker of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from camel.core.errors import CamelError
from camel.core.message import Usage
from camel.core.model import Model
from camel.engine.stage import Written
from camel.jobs.budget import Budget
from camel.models.spec import ModelSpec
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder

if TYPE_CHECKING:
    from camel.jobs.item import Item


KEPT = "kept"
"""Where a job whose folder is for a report keeps its records."""


class ItemFailed(CamelError):
    """Raised by the work for an item that fails for a reason of the job's own, such as a list that could not be made."""


def _sound(record: Any) -> str:
    return ""


def _nothing(record: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Items that are done in the same way, numbered from 0."""

    name: str
    count: int
    work: Callable[[Item], Awaitable[Any]]
    """From an item to its record. It lets every `ModelError` through."""
    write: Callable[[Path, Sequence[Any]], Written]
    """Writes the records of a shard, in the order of their items, durably. Called on a thread."""
    failed: Callable[[Item, CamelError], Any] | None = None
    """The record of an item that failed; `item.draft` has what there was. None: a failure stops the job."""
    failure: Callable[[Any], str] = _sound
    """Why a record failed, as `Class: words`; empty where it did not."""
    counts: Callable[[Any], Iterable[str]] = _nothing
    """Names under which a record is counted, such as `stop.done`."""
    id: Callable[[int], str] = str
    """What an item is called, in sessions, lists of failures and errors."""
    read: Callable[[Marker], Sequence[Any]] | None = None
    """Reads the records of a shard; without it failed items are counted, but not listed and not retried."""
    identity: Mapping[str, Any] | None = None
    """What decides the records. It is stored when the stage is begun, and a difference is refused; None: it is in the name,
    or in the job's settings."""
    fingerprint: str = ""
    """Of what decides the records, kept with each shard; of the identity unless given."""
    seat: str = ""
    """Whose model is asked, by which answers in open journals are priced."""
    suffix: str = ".parquet"
    shard_size: int = 1024
    items: Mapping[int, Sequence[int]] | None = None
    """By shard, the items to work on; None: all of them."""
    concurrency: int | None = None
    """Items at a time; None: as many as the job may have."""


class Estimator(Protocol):
    """Estimates what a job uses in all, by what it has committed."""

    def add(self, marker: Marker) -> None:
        """Take note of a finished shard."""
        ...

    def expected(self) -> Usage:
        """What all starts together will have used."""
        ...

    def forecast(self) -> Iterable[str]:
        """What to expect, in lines to show before the first call."""
        ...


class Job(ABC):
    """What a long command declares: a value without open files, connections or secrets, which can be pickled."""

    name: ClassVar[str]
    log: ClassVar[str] = "log.jsonl"
    """The file in its folder that tells what happened."""
    place: str
    """The folder, or the address in an object store, where its records and journals are."""
    models: Mapping[str, Model | ModelSpec]
    """By seat; a seat that is not named has the one under "". Empty where no model is asked."""
    budgets: Mapping[str, tuple[Collection[str], Budget]] = {}
    """By what it is called, the budget of some of the models, by their names."""

    @abstractmethod
    def stages(self, run: RunFolder) -> Iterator[Step]:
        """The steps, one after the other: a stage, several that share one window, or another job."""

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """The stages that are known before the first is done, for progress and budgets."""
        return ()

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """The folder, made where it is not there. `accept` names changes of settings that a person accepts."""
        folder = open_folder(self.place)
        folder.root.mkdir(parents=True, exist_ok=True)
        return folder

    def estimator(self, run: RunFolder) -> Estimator | None:
        """Tells what the whole job is expected to use; None where nobody knows."""
        return None

    def result(self, run: RunFolder) -> Any:
        """What came of it, once everything is committed."""
        return None

    def absolute(self) -> Job:
        """The same job with paths that mean the same in every process that sees the same file system."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed when it is needed: it may be large, and is computed again."""
        cached = {
            name
            for kind in type(self).__mro__
            for name in vars(kind)
            if isinstance(vars(kind)[name], cached_property)
        }
        return {name: value for name, value in self.__dict__.items() if name not in cached}

    @property
    def title(self) -> str:
        """What it is about, in a few words."""
        return self.name


Step: TypeAlias = Stage | tuple[Stage, ...] | Job
