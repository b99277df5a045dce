"""Conversations from a declaration and rows of values, as a job: what `camel.generate(RolePlaying(…), inputs=…)` runs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import CamelError, InputError, NoRoom
from camel.core.model import Model
from camel.core.play import Declaration
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.engine.stage import Written
from camel.generation.config import CONVERSATIONS, shard_size_for
from camel.generation.generate import stop_of, why_failed
from camel.index.build import write_indexed
from camel.jobs.item import Item
from camel.jobs.job import Job, Stage, Step
from camel.jobs.replies import CheckedModel
from camel.jobs.state import fingerprint, name_of, price_of
from camel.models.spec import ModelSpec
from camel.record.arrow import stream_shard
from camel.record.parquet import arrow
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Planned, Settings
from camel.storage.store import is_remote

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Dialogues(Job):
    """One conversation for each row."""

    name = "generate"
    declaration: Declaration
    rows: tuple[Row, ...]
    model: Model | ModelSpec
    place: str
    seed: int | None = None
    """Makes each call's seed a function of its item."""
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", {"": self.model})
        ids = [row_id(row) for row in self.rows]
        if len(set(ids)) != len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise InputError(
                f"two rows of the inputs have the same id, {shown(twice)}: ids tell conversations apart"
            )
        if not self.rows:
            raise InputError("the inputs have no rows")
        for number, row in enumerate(self.rows):
            if missing := sorted(self.declaration.placeholders - {name.lower() for name in row}):
                raise InputError(
                    f"row {number} of the inputs ({shown(ids[number])}) has no {', '.join(missing)}, for "
                    f"{', '.join(f'<{name}>' for name in missing)}"
                )

    @property
    def title(self) -> str:
        """What it is about."""
        return self.declaration.title

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """The run's folder, if it was made from the same declaration, model and rows."""
        arrow()  # what cannot be kept is not to be paid for first
        folder, size = open_folder(self.place), shard_size_for(len(self.rows))
        decisive: dict[str, Any] = {
            "scenario": self.title,
            "model.name": name_of(self.model),
            "declaration": self.declaration.identity(),
            "inputs": hashlib.sha256(msgspec.json.encode(self.rows, order="sorted")).hexdigest()[:16],
            "seed": self.seed,
            "shard_size": size,
        }
        decisive = msgspec.json.decode(msgspec.json.encode(decisive))
        planned = {CONVERSATIONS: Planned(len(self.rows), size)}
        settings = Settings(fingerprint(decisive), decisive, __version__, planned=planned)
        if not folder.exists:
            folder.create(settings)
            return folder
        if "model.name" in accept:
            folder.accept({"model.name": decisive["model.name"]})
        saved = {**folder.settings().config, **folder.accepted()}
        changed = [name for name in decisive if saved.get(name) != decisive[name]]
        if changed and not folder.make_anew(settings):
            details = "; ".join(f"{name}: {_change(saved.get(name), decisive[name])}" for name in changed)
            raise InputError(
                f"{folder.address} was made from something else ({details}): set it back, or generate into another folder"
            )
        return folder

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """One stage."""
        yield from self.outline(run)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """The conversations."""
        maker = _Maker(self, run)
        settings = run.settings()
        return [
            Stage(
                name=CONVERSATIONS,
                count=len(self.rows),
                work=maker.converse,
                write=maker.write,
                failed=maker.failed,
                failure=why_failed,
                counts=stop_of,
                id=lambda index: row_id(self.rows[index]),
                read=maker.read,
                fingerprint=settings.fingerprint,
                shard_size=int(settings.config["shard_size"]),
            )
        ]

    def absolute(self) -> Dialogues:
        """The same, with an absolute path."""
        return self if is_remote(self.place) else replace(self, place=str(Path(self.place).absolute()))


class _Maker:
    """Makes the conversations of a run."""

    def __init__(self, job: Dialogues, folder: RunFolder) -> None:
        self._job, self._folder = job, folder
        self._fingerprint = folder.settings().fingerprint

    async def converse(self, item: Item) -> Transcript:
        """One conversation."""
        row = self._job.rows[item.index]
        seed = None if self._job.seed is None else (self._job.seed * 1_000_003 + item.index) % 2**31
        try:
            play = self._job.declaration.fill(row).play(CheckedModel(item.model()), id=item.id, seed=seed)
        except NoRoom as error:
            return self._labelled(
                item, Transcript(item.id, Task(str(error)), stop=Stop("token_limit", str(error)))
            )
        item.draft = play.transcript
        return self._labelled(item, await play.finish())

    def failed(self, item: Item, error: CamelError) -> Transcript:
        """The record of a conversation that failed."""
        transcript: Transcript = item.draft or Transcript(item.id, Task(""))
        if not transcript.failed:
            transcript.stop = Stop.failed(error)
        return self._labelled(item, transcript)

    def _labelled(self, item: Item, transcript: Transcript) -> Transcript:
        row = self._job.rows[item.index]
        transcript.scenario, transcript.item = self._job.title, item.index
        transcript.inputs = {str(name): str(value) for name, value in row.items()}
        transcript.fingerprint = self._fingerprint
        return transcript

    def read(self, marker: Marker) -> list[Transcript]:
        """The records of a shard."""
        with self._folder.opened([marker.file]) as files:
            return list(stream_shard(next(files)))

    def write(self, path: Path, records: Sequence[Transcript]) -> Written:
        """Write a shard, and its index."""
        price = price_of(self._job.model)
        shard = write_indexed(
            self._folder,
            path.parent.name,
            path,
            records,
            self._fingerprint,
            lambda model, usage: price.cost(usage) if price else None,
        )
        return Written(shard.rows, shard.sha256, {})


def row_id(row: Row) -> str:
    """What the conversation of a row is called: its `id`, else a hash of it."""
    if given := row.get("id"):
        return str(given)
    return hashlib.sha256(msgspec.json.encode(dict(row), order="sorted")).hexdigest()[:12]


def _change(was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        old, new = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
        names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        return f"other {', '.join(names)}"
    return f"{shown(cast('object', was))} → {shown(cast('object', now))}"
