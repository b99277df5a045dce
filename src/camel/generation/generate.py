"""The generation job: a scenario's lists, level by level, then its conversations or answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from camel.core.conversation import spoken
from camel.core.dialogue import GOAL, Dialogue, Participant
from camel.core.errors import CamelError, NoRoom
from camel.core.history import History
from camel.core.member import Member
from camel.core.memory import HistoryPolicy
from camel.core.message import Message, Sampling, in_one_line, well_formed
from camel.core.model import Model, Request
from camel.core.play import Play
from camel.core.results import add_result
from camel.core.role_playing import AGENT_SAMPLING, ASSISTANT, USER, RolePlaying
from camel.core.stops import Stop
from camel.core.task import SPECIFIER, Task
from camel.core.transcript import Speaker, Transcript
from camel.engine.stage import Written, write_lines, write_whole
from camel.generation.config import ANSWERS, LISTS_PER_SHARD, SPECIFIED, GenerateConfig, last_stage
from camel.generation.conversations import conversation_stage
from camel.generation.forecast import PlanEstimator
from camel.generation.fork import fork_run
from camel.generation.opening import open_run
from camel.generation.seats import MEMBERS, SEATS, key_of, models_at
from camel.jobs.budget import Budget
from camel.jobs.item import Item, item_seed, seeded
from camel.jobs.job import ItemFailed, Job, Stage, Step
from camel.jobs.replies import CheckedModel
from camel.jobs.state import price_of
from camel.models.named import NamedModel
from camel.models.spec import ModelSpec
from camel.record.parquet import arrow
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.scenarios import Meeting, NamedList, Question, RolePlay, ask_list, read_lists, render_lists
from camel.storage.store import absolute_place

FAILED = "(failed) "
"""Prefix of the items of a list that failed."""


class ListFailed(ItemFailed):
    """A list that an item depends on failed."""

    def __init__(self, cause: str) -> None:
        level, _, why = cause.removeprefix(FAILED).partition(": ")
        super().__init__(f"its {level} list failed: {why}")
        self.cause = cause


class Seated(NamedTuple):
    """The model of a seat: its key in the job's models, and the seat's own settings."""

    key: str = ""
    sampling: Sampling | None = None
    prompt: str = ""
    history: HistoryPolicy | None = None


class AskedList(NamedTuple):
    """A list that a model wrote: the earlier items that it depends on, and its items."""

    parents: Sequence[str]
    items: Sequence[str]


@dataclass(frozen=True)
class Generation(Job):
    """The job that generates the data of a scenario."""

    name = "generate"
    config: GenerateConfig
    model: Model | None = None
    """Replaces the configured model, for example by one on this machine."""
    fork_of: str = ""
    """A run whose lists are reused, if they would be asked for in the same way."""
    place: str = field(init=False)
    models: Mapping[str, Model | ModelSpec] = field(init=False)
    budgets: Mapping[str, tuple[Collection[str], Budget]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.config.where)
        object.__setattr__(self, "models", models_of(self.config, self.model))
        budgets = {
            f"models.{name}": ([one.model.name for one in seat.candidates], seat.budget)
            for name, seat in self.config.models.items()
            if seat.budget != Budget()
        }
        object.__setattr__(self, "budgets", budgets)

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open or create the run's folder. Raise an `InputError` if its configuration differs."""
        arrow()  # fail before any call is paid if results cannot be stored
        if self.fork_of:
            return fork_run(self.config, self.fork_of, accept)
        return open_run(self.config, self.config.loaded_scenario(), accept=accept)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield one stage per list level, then the conversations or answers."""
        yield from self.outline(run)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return all stages."""
        return Maker(self.config, run).stages()

    def estimator(self, run: RunFolder) -> PlanEstimator:
        """Return an estimator that is updated as the run proceeds."""
        return PlanEstimator(run, self.config, self.fork_of)

    def absolute(self) -> Generation:
        """Return the job with an absolute path of its folder."""
        config = replace(self.config, out=absolute_place(self.place))
        return replace_fields(self, config=config, fork_of=self.fork_of and absolute_place(self.fork_of))

    @property
    def title(self) -> str:
        """The scenario's name."""
        return Path(self.config.scenario).name


class Maker:
    """Makes the records of a run: lists, conversations, answers."""

    def __init__(self, config: GenerateConfig, folder: RunFolder) -> None:
        self.config, self.folder = config, folder
        self.scenario = config.loaded_scenario()
        self._settings = folder.settings()
        self._list_shard = lru_cache(maxsize=64)(self._read_list_shard)
        self._tasks = lru_cache(maxsize=64)(self._read_tasks)

    def stages(self) -> list[Stage]:
        """Return the stages, in order."""
        fingerprint = self._settings.fingerprint
        lists = [
            Stage(
                name=level.name,
                count=self.scenario.lists(level.name),
                work=partial(self._ask, level.name),
                write=_write_lists,
                failed=partial(self._failed_list, level.name),
                failure=_why_list_failed,
                id=lambda index, level=level.name: f"{level}-{index}",
                read=self._read_asked,
                fingerprint=fingerprint,
                seat="lists",
                suffix=".txt",
                shard_size=LISTS_PER_SHARD,
            )
            for level in self.scenario.asked
        ]
        name = last_stage(self.scenario)
        last = conversation_stage(
            self.folder,
            price_of(self.config.model),
            name=name,
            count=self.scenario.count,
            work=self._answer if name == ANSWERS else self._converse,
            id=self.scenario.id,
        )
        if SPECIFIED in self._settings.planned:
            tasks = Stage(
                name=SPECIFIED,
                count=last.count,
                work=self._specify,
                write=write_lines,
                failed=lambda item, error: f"{type(error).__name__}: {error}"[:300],
                failure=lambda record: record if isinstance(record, str) else "",
                id=last.id,
                read=lambda marker: self._read_tasks(marker.shard),
                fingerprint=fingerprint,
                seat="specifier",
                suffix=".jsonl",
                shard_size=last.shard_size,
            )
            return [*lists, tasks, last]
        return [*lists, last]

    # --- lists -------------------------------------------------------------------------------------------------------

    async def _ask(self, level: str, item: Item) -> AskedList:
        """Ask for one list of a level."""
        facts = item.draft = await self._read_facts(partial(self.scenario.list_facts, level, item.index))
        if failed := _failed_list_in(facts):
            raise ListFailed(failed)
        declared, seat = self.scenario.level(level), self._seat(item, "lists")
        sampling = seat.sampling or declared.sampling or self.config.sampling or AGENT_SAMPLING
        items = await ask_list(
            item.model(seat.key),
            self.scenario.list_prompt(level, facts),
            declared.count,
            sampling=seeded(sampling, self.config.seed, item.index),
            session=item.id,
            ask=declared.ask,
            names=self.scenario.is_name(level),
        )
        return AskedList(list(facts.values()), items)

    def _failed_list(self, level: str, item: Item, error: CamelError) -> AskedList:
        """Return the record of a failed list. Items that depend on it fail with the same error, unless a user edits its file."""
        if isinstance(error, ListFailed):
            why = error.cause
        else:
            why = in_one_line(f"{FAILED}{level}: {type(error).__name__}: {error}")[:300]
        return AskedList(list(item.draft.values()), [why] * self.scenario.level(level).count)

    def lists(self, level: str, index: int) -> Sequence[str]:
        """Return the items of a committed list."""
        return self._list_shard(level, index // LISTS_PER_SHARD)[index % LISTS_PER_SHARD]

    def _read_list_shard(self, level: str, shard: int) -> list[Sequence[str]]:
        return [one.items for one in self._read_lists(self.folder.marker(level, shard))]

    def _read_asked(self, marker: Marker) -> list[AskedList]:
        return [AskedList(one.parents, one.items) for one in self._read_lists(marker)]

    def _read_lists(self, marker: Marker) -> list[NamedList]:
        """Read lists that a user may have edited. Only the number of items must still match."""
        count, text = self.scenario.level(marker.stage).count, self.folder.read(marker.file).decode("utf-8")
        return read_lists(text, source=f"{self.folder.address}/{marker.file}", count=count)

    async def _read_facts(
        self, facts: Callable[[Callable[[str, int], Sequence[str]]], dict[str, str]]
    ) -> dict[str, str]:
        """Return facts that are read from lists. An object store is read on a thread, so that heartbeats continue."""
        return facts(self.lists) if self.folder.on_disk else await asyncio.to_thread(facts, self.lists)

    # --- tasks, conversations and answers ----------------------------------------------------------------------------

    async def _specify(self, item: Item) -> Task | str | None:
        """Specify the task of one conversation. Return None if the prompt does not fit, which the conversation reports later."""
        facts = await self._facts(item)
        try:
            play = self._play(item, facts)
        except NoRoom:  # the conversation reports it
            return None
        await play.prepare()
        return play.transcript.task

    def _read_tasks(self, shard: int) -> list[Task | str | None]:
        """Return the specified tasks of a shard. A text in place of a task is the reason why it failed."""
        data = self.folder.read(self.folder.marker(SPECIFIED, shard).file)
        return msgspec.json.Decoder(Task | str | None).decode_lines(data)

    async def _specified(self, index: int) -> Task | None:
        """Return the task that an earlier stage specified, or None if the conversation itself specifies it."""
        if SPECIFIED not in self._settings.planned:
            return None
        size = int(self._settings.config["shard_size"])
        found = (await asyncio.to_thread(self._tasks, index // size))[index % size]
        if isinstance(found, str):
            raise ItemFailed(f"its task could not be specified: {found}")
        return found

    async def _converse(self, item: Item) -> Transcript:
        """Run one conversation."""
        facts = await self._facts(item)
        task = await self._specified(item.index)
        try:
            play = self._play(item, facts, specify=task is None)
        except NoRoom as error:
            return self._with_labels(item.index, self._without_room(item, facts, error), facts)
        item.draft = self._with_labels(item.index, play.transcript, facts)
        if task:
            play.transcript.task = task
        return await self._with_result(item, await play.finish())

    def _seat(self, item: Item, name: str) -> Seated:
        """Return the model of a seat in one conversation."""
        seat = self.config.models.get(name)
        if seat is None:
            return Seated(name if name in ("lists", SPECIFIER) else "")  # these may have other settings
        number = seat.drawn(name, item.id)
        one = seat.candidates[number]
        return Seated(key_of(name, number), one.sampling, one.prompt, one.history)

    def _models(self, item: Item) -> Callable[[str], Model]:
        """Return a function that returns the model for a key. Seats with the same key share one object."""

        def made(key: str) -> Model:
            return CheckedModel(item.model(key), self.config.run.cut_replies)

        return cache(made)

    async def _facts(self, item: Item) -> dict[str, str]:
        """Return the values of an item's placeholders. Raise `ListFailed` if one of the lists failed."""
        facts = await self._read_facts(partial(self.scenario.facts, item.index))
        failed = _failed_list_in(facts)
        item.draft = self._with_labels(item.index, Transcript(item.id, Task(failed)), facts)
        if failed:
            raise ListFailed(failed)
        return facts

    def _without_room(self, item: Item, facts: dict[str, str], error: NoRoom) -> Transcript:
        """Return the record of a conversation whose task is too long. Raises `NoRoom` if no task would fit, because then the
        settings are wrong."""
        end = self.scenario.end
        assert isinstance(end, RolePlay)
        self._play(item, facts, task="?")
        cast = end.cast(facts)
        speakers = [Speaker(USER, cast.user), Speaker(ASSISTANT, cast.assistant)]
        stop = Stop("token_limit", str(error), USER)
        return Transcript(item.id, Task(cast.task), speakers, stop=stop)

    def _play(self, item: Item, facts: dict[str, str], **other: Any) -> Play:
        """Return one role play, ready to start. `other` has arguments that override the scenario's."""
        end, seed, index = self.scenario.end, self.config.seed, item.index
        if isinstance(end, Meeting):
            return self._meeting(item, end, facts)
        if isinstance(end, Dialogue):
            return self._dialogue(item, end, facts)
        assert isinstance(end, RolePlay)
        seats = {name: self._seat(item, name) for name in SEATS}
        models = self._models(item)
        if prompts := {name: seat.prompt for name, seat in seats.items() if seat.prompt}:
            end = replace(end, inception=replace(end.inception, **prompts))
        usual = self.config.sampling or end.sampling or AGENT_SAMPLING
        usual_history = self.config.history or end.history or "full"
        sampling = {name: seeded(seat.sampling or usual, seed, index) for name, seat in seats.items()}
        specifier = end.specifier()
        if specifier is not None:
            asked = seeded(seats[SPECIFIER].sampling or specifier.sampling, seed, index)
            specifier = replace(specifier, sampling=asked, model=models(seats[SPECIFIER].key))
        critic = self.config.critic_of(self.scenario)
        judge = models(seats["critic"].key)
        return RolePlaying(
            **end.cast(facts)._asdict() | other,
            **(critic.cast(judge, sampling["critic"])._asdict() if critic else {}),
            model=models(seats[ASSISTANT].key),
            user_model=models(seats[USER].key),
            sampling=sampling[ASSISTANT],
            user_sampling=sampling[USER],
            specifier=specifier,
            rules=end.rules(),
            history=seats[ASSISTANT].history or usual_history,
            user_history=seats[USER].history or usual_history,
            id=self.scenario.id(index),
        )

    def _meeting(self, item: Item, end: Meeting, facts: dict[str, str]) -> Play:
        """Return one conversation of a society, ready to start."""
        models, usual = self._models(item), self.config.sampling or end.sampling
        seated: dict[str, Model] = {"": models("")}
        members: list[Member] = []
        for member in end.society.members:
            seat = self._seat(item, f"{MEMBERS}.{member.name}")
            own = {
                "sampling": seat.sampling or usual or member.sampling,
                "prompt": seat.prompt or member.prompt,
                "history": seat.history or member.history,
            }
            members.append(replace(member, **own))
            seated[member.name] = models(seat.key)
        society, task = replace(end, society=replace(end.society, members=tuple(members))).filled(facts)
        if self.config.history:
            society = replace(society, history=self.config.history)
        return society.play(
            seated,
            task=task,
            sampling=None if self.config.models else usual,
            seed=item_seed(self.config.seed, item.index),
            id=self.scenario.id(item.index),
        )

    def _dialogue(self, item: Item, end: Dialogue, facts: dict[str, str]) -> Play:
        """Return one dialogue, ready to start."""
        models, seated = self._models(item), {name: self._seat(item, name) for name in (*end.names, GOAL)}
        seats: list[Participant] = []
        for seat in end.seats:
            one = seated[seat.name]
            sampling = one.sampling or self.config.sampling or seat.sampling
            history = one.history or self.config.history or seat.history
            prompt = one.prompt or seat.prompt
            seats.append(replace(seat, prompt=prompt, sampling=sampling, history=history))
        goal = end.stops.goal
        if goal and (sampling := seated[GOAL].sampling or self.config.sampling):
            goal = replace(goal, sampling=sampling)
        end = replace(end, seats=tuple(seats), stops=replace(end.stops, goal=goal))
        return end.fill(facts).play(
            {"": models(""), **{name: models(one.key) for name, one in seated.items()}},
            seed=item_seed(self.config.seed, item.index),
            id=self.scenario.id(item.index),
        )

    async def _answer(self, item: Item) -> Transcript:
        """Ask one question, and return the question and the answer as a conversation of two messages."""
        end = self.scenario.end
        assert isinstance(end, Question)
        facts = await self._facts(item)
        asked = end.asked(facts)
        seat = self._seat(item, ASSISTANT)
        usual = self.config.sampling or end.sampling or AGENT_SAMPLING
        sampling = seeded(seat.sampling or usual, self.config.seed, item.index)
        transcript = item.draft = self._with_labels(
            item.index, Transcript(item.id, Task(asked.problem)), facts
        )
        transcript.speakers = [Speaker(USER, "User"), Speaker(ASSISTANT, asked.role, sampling=sampling)]
        transcript.messages.append(Message(0, USER, "User", asked.problem))
        history = History()
        history.add("user", asked.prompt)
        model = self._models(item)(seat.key)
        reply = await model.reply(Request(history, sampling, item.id, ASSISTANT))
        transcript.messages.append(spoken(1, ASSISTANT, asked.role, well_formed(reply.content), reply))
        transcript.stop = Stop("done", "the question was answered", ASSISTANT)
        return await self._with_result(item, transcript)

    async def _with_result(self, item: Item, transcript: Transcript) -> Transcript:
        """Ask for the conversation's structured result, if one is configured."""
        usual = seeded(self.config.sampling or AGENT_SAMPLING, self.config.seed, item.index)
        return await add_result(transcript, item.model, self.config.result_of(self.scenario), usual)

    def _with_labels(self, index: int, transcript: Transcript, facts: dict[str, str]) -> Transcript:
        transcript.scenario, transcript.inputs, transcript.item = self.scenario.name, facts, index
        transcript.labels = list(self.scenario.labels)
        transcript.fingerprint = self._settings.fingerprint
        return transcript


def models_of(config: GenerateConfig, model: Model | None) -> dict[str, Model | ModelSpec]:
    """Return the models of a configuration by seat. `model`, if given, replaces the default one."""
    section = config.model
    usual = section if model is None else NamedModel(model, section.name, section.cost())
    seats: dict[str, Model | ModelSpec] = {"": usual, **models_at(config.models)}
    if model is None and section.batch and last_stage(config.loaded_scenario()) != ANSWERS:
        # Conversations do not use batches: they are sequences of calls, and each batch may take a day.
        once = {name: seats.get(name, section) for name in ("lists", "specifier")}
        direct = {
            name: replace(spec, batch=False) for name, spec in seats.items() if isinstance(spec, ModelSpec)
        }
        seats |= {**direct, **once}
    return seats


def _failed_list_in(facts: Mapping[str, str]) -> str:
    """Return the error of a failed list among these facts, or an empty string if none failed."""
    return next((fact for fact in facts.values() if fact.startswith(FAILED)), "")


def _why_list_failed(record: AskedList) -> str:
    cause = next((item for item in record.items if item.startswith(FAILED)), "")
    return cause.removeprefix(FAILED).partition(": ")[2]


def _write_lists(path: Path, records: Sequence[AskedList]) -> Written:
    data = render_lists((record.parents, record.items) for record in records).encode()
    return write_whole(path, data, len(records))
