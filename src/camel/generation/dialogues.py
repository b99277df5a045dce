"""The job behind `camel.generate(RolePlaying(…), inputs=…)`: conversations from a declaration and rows of values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from camel.core.tools import Workplace
from camel.core.transcript import Transcript
from camel.generation.config import CONVERSATIONS
from camel.generation.conversations import conversation_stage, returned_record
from camel.generation.opening import open_made_from
from camel.generation.table_plan import plan_rows
from camel.generation.validation import Validator, attempt_seed, converse
from camel.jobs.item import Item, id_number
from camel.jobs.job import Job, Stage
from camel.jobs.replies import CheckedModel, Cut
from camel.jobs.state import fingerprint, name_of, price_of
from camel.models.spec import ModelSpec
from camel.record.parquet import arrow
from camel.runs.plan import RunPlan, read_plan
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
    seats: Mapping[str, Model | ModelSpec] = field(default_factory=dict[str, Model | ModelSpec])
    """Models of seats. Other seats use `model`."""
    cut: Cut = "fail"
    """What happens to replies that are cut off at the token limit."""
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", {"": self.model, **self.seats})

    @property
    def title(self) -> str:
        """The declaration's title."""
        return self.declaration.title

    def identity(self) -> dict[str, Any]:
        """Return the identity of the declaration, and the seed."""
        return {**self.declaration.identity(), "seed": self.seed}

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
        decisive |= {f"models.{name}.name": [name_of(one)] for name, one in self.seats.items()}
        if isinstance(self.model, ModelSpec) and self.model.weights:
            decisive["model.weights"] = self.model.weights
        settings = Settings(fingerprint(decisive), decisive, __version__)
        hint = "undo the change, or use another folder; accept=['model.name'] continues with another model"
        return open_made_from(self.place, settings, accept, hint)

    def prepare(self, run: RunFolder) -> None:
        """Compare the rows with those that the run has."""
        plan_rows(run, self.rows, self.declaration.placeholders, [CONVERSATIONS], preview=self.preview)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return the stage of conversations."""
        plan = read_plan(run)
        if plan is None:
            raise InputError(f"'{run.address}' has no plan: start the run on the machine that has its rows")
        return [self.conversations(run, plan)]

    def conversations(self, run: RunFolder, plan: RunPlan) -> Stage:
        """Return the stage of a plan's conversations."""
        return conversation_stage(
            run,
            price_of(self.model),
            name=CONVERSATIONS,
            work=partial(self._converse, run.settings().fingerprint, plan),
            id=lambda index: plan.row(index).id,
            layout=plan.layouts[CONVERSATIONS],
        )

    async def _converse(self, fingerprint: str, plan: RunPlan, item: Item) -> Transcript:
        """Run one conversation, several times if the validation rejects it."""
        if found := await returned_record(plan, CONVERSATIONS, item.index):
            return found
        values = plan.row(item.index).values
        attempt = partial(self._attempt, fingerprint, item, values)
        transcript = await converse(self.validator, item, attempt, values)
        usual = Sampling(seed=attempt_seed(self.seed, id_number(item.id), 0))
        return await add_result(transcript, item.model, self.result_settings, usual)

    async def _attempt(
        self, fingerprint: str, item: Item, values: Mapping[str, str], number: int, session: str
    ) -> Transcript:
        """Run one attempt at a conversation."""
        seed = attempt_seed(self.seed, id_number(item.id), number)
        item.draft = self._with_labels(item, Transcript(item.id, Task("")), fingerprint, values)
        try:
            models = {name: CheckedModel(item.model(name), self.cut) for name in self.models}
            given = models if self.seats else models[""]
            place = Workplace(perform=item.act, again=self.validator is not None)
            play = self.declaration.fill(values).play(given, id=session, seed=seed, workplace=place)
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
