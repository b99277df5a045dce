"""The job behind `camel.generate(RolePlaying(…), inputs=…)`: conversations from a declaration and rows of values."""

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
from camel.generation.validation import ATTEMPT, Validator
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
    """A job with one conversation per row of values."""

    name = "generate"
    declaration: Declaration
    rows: tuple[Row, ...]
    model: Model | ModelSpec
    place: str
    seed: int | None = None
    """Random seed; each item gets its own seed derived from it."""
    validator: Validator | None = None
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", {"": self.model})
        ids = [row_id(row) for row in self.rows]
        if len(set(ids)) != len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise InputError(f"two rows of the inputs have the id {shown(twice)}: give each row its own id")
        if not self.rows:
            raise InputError("inputs has no rows: pass at least one")
        needed = self.declaration.placeholders
        for number, row in enumerate(self.rows):
            if missing := sorted(needed - {name.lower() for name in row}):
                raise InputError(
                    f"row {number} of the inputs ({shown(ids[number])}) has no {', '.join(missing)}, for "
                    f"{', '.join(f'<{name}>' for name in missing)}"
                )

    @property
    def title(self) -> str:
        """The declaration's title."""
        return self.declaration.title

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open or create the run's folder. Raise an `InputError` if the declaration, the model or the rows differ."""
        arrow()  # fail before any call is paid if results cannot be stored
        size = shard_size_for(len(self.rows))
        decisive: dict[str, Any] = {
            "scenario": self.title,
            "model.name": name_of(self.model),
            "declaration": self.declaration.identity(),
            "inputs": hashlib.sha256(msgspec.json.encode(self.rows, order="sorted")).hexdigest()[:16],
            "seed": self.seed,
            "shard_size": size,
        }
        if self.validator:
            decisive["validate"] = self.validator.identity()
        if isinstance(self.model, ModelSpec) and self.model.weights:
            decisive["model.weights"] = self.model.weights
        planned = {CONVERSATIONS: Planned(len(self.rows), size)}
        settings = Settings(fingerprint(decisive), decisive, __version__, planned=planned)
        hint = "undo the change, or use another folder; accept=['model.name'] continues with another model"
        return open_made_from(self.place, settings, accept, hint)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the one stage."""
        yield from self.outline(run)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return the stage of conversations."""
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
        """Run one conversation, several times if the validation rejects it."""
        attempt = partial(self._attempt, fingerprint, item)
        if self.validator is None:
            return await attempt(0, item.id)
        self.validator.check_inputs(list(self.rows[item.index]))
        return await self.validator.converse(item, attempt)

    async def _attempt(self, fingerprint: str, item: Item, number: int, session: str) -> Transcript:
        """Run one attempt at a conversation."""
        # Later attempts have a seed, so that no endpoint repeats the first one.
        seed = item_seed(self.seed or 0 if number else self.seed, item.index + number * ATTEMPT)
        item.draft = self._with_labels(item, Transcript(item.id, Task("")), fingerprint)
        try:
            play = self.declaration.fill(self.rows[item.index]).play(
                CheckedModel(item.model()), id=session, seed=seed
            )
        except NoRoom as error:
            item.draft.task, item.draft.stop = Task(str(error)), Stop("token_limit", str(error))
            return item.draft
        item.draft = self._with_labels(item, play.transcript, fingerprint)
        return await play.finish()

    def _with_labels(self, item: Item, transcript: Transcript, fingerprint: str) -> Transcript:
        row = self.rows[item.index]
        transcript.scenario, transcript.item, transcript.fingerprint = self.title, item.index, fingerprint
        transcript.inputs = {str(name): str(value) for name, value in row.items()}
        return transcript

    def absolute(self) -> Dialogues:
        """Return the job with an absolute path of its folder."""
        return replace(self, place=absolute_place(self.place))


def row_id(row: Row) -> str:
    """Return the id of a row's conversation: the value of `id`, or a hash of the row."""
    if given := row.get("id"):
        return str(given)
    return hashlib.sha256(msgspec.json.encode(dict(row), order="sorted")).hexdigest()[:12]
