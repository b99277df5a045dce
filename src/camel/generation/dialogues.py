"""Conversations from a declaration and rows of values, as a job: what `camel.generate(RolePlaying(…), inputs=…)` runs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import InputError, NoRoom
from camel.core.model import Model
from camel.core.play import Declaration
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.generation.config import CONVERSATIONS, shard_size_for
from camel.generation.conversations import conversation_stage
from camel.generation.opening import open_made_from
from camel.jobs.item import Item, item_seed
from camel.jobs.job import Job, Stage, Step
from camel.jobs.replies import CheckedModel
from camel.jobs.state import fingerprint, name_of, price_of
from camel.models.spec import ModelSpec
from camel.record.parquet import arrow
from camel.runs.run import RunFolder
from camel.runs.settings import Planned, Settings
from camel.storage.store import absolute_place

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
        needed = self.declaration.placeholders
        for number, row in enumerate(self.rows):
            if missing := sorted(needed - {name.lower() for name in row}):
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
        size = shard_size_for(len(self.rows))
        decisive: dict[str, Any] = {
            "scenario": self.title,
            "model.name": name_of(self.model),
            "declaration": self.declaration.identity(),
            "inputs": hashlib.sha256(msgspec.json.encode(self.rows, order="sorted")).hexdigest()[:16],
            "seed": self.seed,
            "shard_size": size,
        }
        if isinstance(self.model, ModelSpec) and self.model.weights:
            decisive["model.weights"] = self.model.weights
        planned = {CONVERSATIONS: Planned(len(self.rows), size)}
        settings = Settings(fingerprint(decisive), decisive, __version__, planned=planned)
        hint = "set it back, or generate into another folder; with accept=['model.name'] it continues with another model"
        return open_made_from(self.place, settings, accept, hint)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """One stage."""
        yield from self.outline(run)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """The conversations."""
        rows = self.rows
        return [
            conversation_stage(
                run,
                price_of(self.model),
                name=CONVERSATIONS,
                count=len(rows),
                work=partial(self._converse, run.settings().fingerprint),
                id=lambda index: row_id(rows[index]),
            )
        ]

    async def _converse(self, fingerprint: str, item: Item) -> Transcript:
        """One conversation."""
        seed = item_seed(self.seed, item.index)
        item.draft = self._labelled(item, Transcript(item.id, Task("")), fingerprint)
        try:
            play = self.declaration.fill(self.rows[item.index]).play(
                CheckedModel(item.model()), id=item.id, seed=seed
            )
        except NoRoom as error:
            item.draft.task, item.draft.stop = Task(str(error)), Stop("token_limit", str(error))
            return item.draft
        item.draft = self._labelled(item, play.transcript, fingerprint)
        return await play.finish()

    def _labelled(self, item: Item, transcript: Transcript, fingerprint: str) -> Transcript:
        row = self.rows[item.index]
        transcript.scenario, transcript.item, transcript.fingerprint = self.title, item.index, fingerprint
        transcript.inputs = {str(name): str(value) for name, value in row.items()}
        return transcript

    def absolute(self) -> Dialogues:
        """The same, with an absolute path."""
        return replace(self, place=absolute_place(self.place))


def row_id(row: Row) -> str:
    """What the conversation of a row is called: its `id`, else a hash of it."""
    if given := row.get("id"):
        return str(given)
    return hashlib.sha256(msgspec.json.encode(dict(row), order="sorted")).hexdigest()[:12]
