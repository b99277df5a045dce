"""The job behind `camel.generate(RolePlaying(…), inputs=…)`: conversations from a declaration and rows of values."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.errors import InputError, NoRoom
from camel.core.message import Sampling
from camel.core.model import Model
from camel.core.play import Declaration
from camel.core.results import ResultSettings, add_result
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.generation.config import CONVERSATIONS
from camel.generation.conversations import conversation_stage
from camel.generation.opening import open_made_from
from camel.generation.table_plan import plan_rows
from camel.generation.validation import ATTEMPT, Validator
from camel.jobs.item import Item, item_seed
from camel.jobs.job import Job, Stage, Step
from camel.jobs.replies import CheckedModel
from camel.jobs.state import fingerprint, name_of, price_of
from camel.models.spec import ModelSpec
from camel.record.parquet import arrow
from camel.runs.plan import RunPlan, earlier_record, read_plan
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from camel.storage.store import absolute_place


@dataclass(frozen=True)
class Dialogues(Job):
    """A job with one conversation per row of values."""

    name = "generate"
    declaration: Declaration
    rows: Any
    """The table: `Inputs`, a DataFrame, an Arrow table or an iterable of dictionaries. None on the workers of a cluster,
    which read the rows from the run's plan."""
    model: Model | ModelSpec
    place: str
    seed: int | None = None
    """Random seed; each item gets its own seed derived from it and from its id."""
    preview: int = 0
    """Number of conversations of a preview. 0: all rows."""
    result_settings: ResultSettings | None = None
    """The structured result of each conversation."""
    validator: Validator | None = None
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", {"": self.model})

    @property
    def title(self) -> str:
        """The declaration's title."""
        return self.declaration.title

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open or create the run's folder. Raise an `InputError` if the declaration or the model differs."""
        arrow()  # fail before any call is paid if results cannot be stored
        decisive: dict[str, Any] = {
            "scenario": self.title,
            "model.name": name_of(self.model),
            "declaration": self.declaration.identity(),
            "inputs": {"columns": sorted(self.declaration.placeholders)},
            "seed": self.seed,
        }
        decisive |= {"result": msgspec.to_builtins(self.result_settings)} if self.result_settings else {}
        if self.validator:
            decisive["validate"] = self.validator.identity()
        if isinstance(self.model, ModelSpec) and self.model.weights:
            decisive["model.weights"] = self.model.weights
        settings = Settings(fingerprint(decisive), decisive, __version__)
        hint = "undo the change, or use another folder; accept=['model.name'] continues with another model"
        return open_made_from(self.place, settings, accept, hint)

    def prepare(self, run: RunFolder) -> None:
        """Compare the rows with those that the run has."""
        plan_rows(run, self.rows, self.declaration.placeholders, [CONVERSATIONS], preview=self.preview)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the one stage."""
        yield from self.outline(run)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return the stage of conversations."""
        plan = read_plan(run)
        if plan is None:
            raise InputError(f"'{run.address}' has no plan: start the run on the machine that has its rows")
        layout = plan.layouts[CONVERSATIONS]
        return [
            conversation_stage(
                run,
                price_of(self.model),
                name=CONVERSATIONS,
                count=layout.count,
                work=partial(self._converse, run.settings().fingerprint, plan),
                id=lambda index: plan.row(index).id,
                layout=layout,
            )
        ]

    async def _converse(self, fingerprint: str, plan: RunPlan, item: Item) -> Transcript:
        """Run one conversation, several times if the validation rejects it."""
        if found := await asyncio.to_thread(earlier_record, plan, CONVERSATIONS, item.index):
            return found
        values = plan.row(item.index).values
        attempt = partial(self._attempt, fingerprint, item, values)
        if self.validator is None:
            transcript = await attempt(0, item.id)
        else:
            self.validator.check_inputs(values)
            transcript = await self.validator.converse(item, attempt)
        usual = Sampling(seed=self._seed_of(item))
        return await add_result(transcript, item.model, self.result_settings, usual)

    def _seed_of(self, item: Item, attempt: int = 0) -> int | None:
        """Return the seed of an attempt. It depends on the row's id, not on its place."""
        number = int(hashlib.sha256(item.id.encode()).hexdigest()[:8], 16)
        # Later attempts have a seed, so that no endpoint repeats the first one.
        return item_seed(self.seed or 0 if attempt else self.seed, number + attempt * ATTEMPT)

    async def _attempt(
        self, fingerprint: str, item: Item, values: Mapping[str, str], number: int, session: str
    ) -> Transcript:
        """Run one attempt at a conversation."""
        seed = self._seed_of(item, number)
        item.draft = self._with_labels(item, Transcript(item.id, Task("")), fingerprint, values)
        try:
            play = self.declaration.fill(values).play(CheckedModel(item.model()), id=session, seed=seed)
        except NoRoom as error:
            item.draft.task, item.draft.stop = Task(str(error)), Stop("token_limit", str(error))
            return item.draft
        item.draft = self._with_labels(item, play.transcript, fingerprint, values)
        return await play.finish()

    def _with_labels(
        self, item: Item, transcript: Transcript, fingerprint: str, values: Mapping[str, str]
    ) -> Transcript:
        transcript.scenario, transcript.item, transcript.fingerprint = self.title, item.index, fingerprint
        transcript.inputs = dict(values)
        return transcript

    def absolute(self) -> Dialogues:
        """Return the job for other processes: with an absolute path, and without the rows, which are in the run's plan."""
        return replace(self, place=absolute_place(self.place), rows=None)
