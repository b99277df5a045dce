"""Generation as a job: the lists that a scenario asks for, level after level, then its conversations or answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from camel.core.conversation import spoken
from camel.core.errors import CamelError, NoRoom
from camel.core.history import History
from camel.core.message import Message, Sampling, Usage, in_one_line, well_formed
from camel.core.model import Model, Request
from camel.core.play import Play
from camel.core.role_playing import AGENT_SAMPLING, ASSISTANT, USER, RolePlaying
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.engine.stage import Written, write_whole
from camel.generation.config import ANSWERS, LISTS_PER_SHARD, GenerateConfig, last_stage
from camel.generation.fork import take_over
from camel.generation.opening import open_run
from camel.generation.plan import PlanEstimator
from camel.index.build import write_indexed
from camel.jobs.item import Item
from camel.jobs.job import ItemFailed, Job, Stage, Step
from camel.jobs.ledger import STOPPED
from camel.jobs.replies import CheckedModel
from camel.models.named import NamedModel
from camel.models.spec import ModelSpec
from camel.record.arrow import stream_shard
from camel.record.parquet import arrow
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.scenarios import Meeting, NamedList, Question, RolePlay, ask_list, read_lists, render_lists
from camel.storage.store import is_remote

FAILED = "(failed) "
"""Begins the lines of a list that could not be had."""


class ListFailed(ItemFailed):
    """A list that an item needs could not be made."""

    def __init__(self, cause: str) -> None:
        level, _, why = cause.removeprefix(FAILED).partition(": ")
        super().__init__(f"its {level} list could not be made: {why}")
        self.cause = cause


class AskedList(NamedTuple):
    """A list as a model gave it: its parents in words, and its items."""

    parents: Sequence[str]
    items: Sequence[str]


@dataclass(frozen=True)
class Generation(Job):
    """A scenario being generated."""

    name = "generate"
    config: GenerateConfig
    model: Model | None = None
    """Instead of the configuration's, for example one that is served here."""
    lists_from: str = ""
    """A run of which it takes over the lists."""
    place: str = field(init=False)
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        section = self.config.model
        named = section if self.model is None else NamedModel(self.model, section.name, section.cost())
        object.__setattr__(self, "place", self.config.where)
        object.__setattr__(self, "models", {"": named})

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """The run's folder, if it was made from the same configuration."""
        arrow()  # what cannot be kept is not to be paid for first
        scenario = self.config.loaded_scenario()
        folder = open_run(self.config, scenario, forked_from=self.lists_from, accept=accept)
        if self.lists_from:
            take_over(self.lists_from, folder, [level.name for level in scenario.asked])
        return folder

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """One stage for each level that a model is asked for, then the conversations or answers."""
        yield from self.outline(run)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """All of them."""
        return Maker(self.config, run).stages()

    def estimator(self, run: RunFolder) -> PlanEstimator:
        """A plan of the run, made anew as it proceeds."""
        return PlanEstimator(run, self.config)

    def absolute(self) -> Generation:
        """The same, with an absolute path of its folder."""
        config, where = self.config, self.config.where
        if not is_remote(where):
            config = msgspec.structs.replace(config, out=str(Path(where).absolute()))
        return Generation(config, self.model, self.lists_from)

    @property
    def title(self) -> str:
        """The scenario."""
        return Path(self.config.scenario).name


class Maker:
    """Makes the records of a run: lists, conversations, answers."""

    def __init__(self, config: GenerateConfig, folder: RunFolder) -> None:
        self.config, self.folder = config, folder
        self.scenario = config.loaded_scenario()
        self._settings = folder.settings()
        self._list_shard = lru_cache(maxsize=64)(self._read_list_shard)

    def stages(self) -> list[Stage]:
        """The stages, in order."""
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
                suffix=".txt",
                shard_size=LISTS_PER_SHARD,
            )
            for level in self.scenario.asked
        ]
        name = last_stage(self.scenario)
        last = Stage(
            name=name,
            count=self.scenario.count,
            work=self._answer if name == ANSWERS else self._converse,
            write=self._write_transcripts,
            failed=self._failed,
            failure=why_failed,
            counts=stop_of,
            id=self.scenario.id,
            read=self._read_transcripts,
            fingerprint=fingerprint,
            shard_size=int(self._settings.config["shard_size"]),
        )
        return [*lists, last]

    # --- lists -------------------------------------------------------------------------------------------------------

    async def _ask(self, level: str, item: Item) -> AskedList:
        """One list of a level."""
        facts = item.draft = await self._looked_up(partial(self.scenario.list_facts, level, item.index))
        _check_lists(facts)
        declared = self.scenario.level(level)
        items = await ask_list(
            item.model(),
            self.scenario.list_prompt(level, facts),
            declared.count,
            sampling=self._seeded(declared.sampling or self.config.sampling or AGENT_SAMPLING, item.index),
            session=item.id,
            ask=declared.ask,
            names=self.scenario.is_name(level),
        )
        return AskedList(list(facts.values()), items)

    def _failed_list(self, level: str, item: Item, error: CamelError) -> AskedList:
        """A list that says why it is none: whatever needs it fails for the same reason, and its file can be edited."""
        if isinstance(error, ListFailed):
            why = error.cause
        else:
            why = in_one_line(f"{FAILED}{level}: {type(error).__name__}: {error}")[:300]
        return AskedList(list(item.draft.values()), [why] * self.scenario.level(level).count)

    def lists(self, level: str, index: int) -> Sequence[str]:
        """The items of a list that has been committed."""
        return self._list_shard(level, index // LISTS_PER_SHARD)[index % LISTS_PER_SHARD]

    def _read_list_shard(self, level: str, shard: int) -> list[Sequence[str]]:
        return [one.items for one in self._read_lists(self.folder.marker(level, shard))]

    def _read_asked(self, marker: Marker) -> list[AskedList]:
        return [AskedList(one.parents, one.items) for one in self._read_lists(marker)]

    def _read_lists(self, marker: Marker) -> list[NamedList]:
        """Read what a person may have edited since: only the counts must still be right."""
        count, text = self.scenario.level(marker.stage).count, self.folder.read(marker.file).decode("utf-8")
        return read_lists(text, source=f"{self.folder.address}/{marker.file}", count=count)

    async def _looked_up(
        self, facts: Callable[[Callable[[str, int], Sequence[str]]], dict[str, str]]
    ) -> dict[str, str]:
        """Facts by the lists, which of a store are read on a thread: a worker that waits for it still has to say that it
        is alive."""
        return facts(self.lists) if self.folder.on_disk else await asyncio.to_thread(facts, self.lists)

    # --- conversations and answers -----------------------------------------------------------------------------------

    async def _converse(self, item: Item) -> Transcript:
        """One conversation."""
        facts, draft = await self._begun(item)
        model = CheckedModel(item.model(), self.config.run.cut_replies)
        try:
            play = self._play(item.index, facts, model)
        except NoRoom as error:
            return self._labelled(item.index, self._without_room(item, facts, error), facts)
        draft.transcript = play.transcript
        return self._labelled(item.index, await play.finish(), facts)

    async def _begun(self, item: Item) -> tuple[dict[str, str], _Draft]:
        """The facts of an item; raises where a list that they are from failed."""
        facts = await self._looked_up(partial(self.scenario.facts, item.index))
        draft = item.draft = _Draft(facts)
        _check_lists(facts)
        return facts, draft

    def _failed(self, item: Item, error: CamelError) -> Transcript:
        """The record of a conversation, or an answer, that failed."""
        draft: _Draft = item.draft
        transcript = draft.transcript
        if transcript is None:
            task = error.cause if isinstance(error, ListFailed) else ""
            transcript = Transcript(item.id, Task(task))
        if not transcript.failed:
            transcript.stop = Stop.failed(error)
        return self._labelled(item.index, transcript, draft.facts)

    def _without_room(self, item: Item, facts: dict[str, str], error: NoRoom) -> Transcript:
        """The record of a conversation whose task is too long. Where no task would fit, the settings are wrong, and the
        error is everybody's."""
        end = self.scenario.end
        assert isinstance(end, RolePlay)
        self._play(item.index, facts, item.model(), task="?")
        cast = end.cast(facts)
        speakers = [Speaker(USER, cast.user), Speaker(ASSISTANT, cast.assistant)]
        stop = Stop("token_limit", str(error), USER)
        return Transcript(item.id, Task(cast.task), speakers, stop=stop)

    def _play(self, index: int, facts: dict[str, str], model: Model, **other: str) -> Play:
        """The table of one conversation, set; `other` than the scenario has it."""
        end = self.scenario.end
        if isinstance(end, Meeting):
            society, task = end.filled(facts)
            return society.play(
                model,
                task=task,
                sampling=self.config.sampling or end.sampling,
                seed=None if self.config.seed is None else self._seed(index),
                id=self.scenario.id(index),
            )
        assert isinstance(end, RolePlay)
        specifier = end.specifier()
        if specifier is not None:
            specifier = msgspec.structs.replace(specifier, sampling=self._seeded(specifier.sampling, index))
        sampling = self._seeded(self.config.sampling or end.sampling or AGENT_SAMPLING, index)
        critic = self.config.critic_of(self.scenario)
        return RolePlaying(
            **end.cast(facts)._asdict() | other,
            **(critic.cast(model, sampling)._asdict() if critic else {}),
            model=model,
            sampling=sampling,
            specifier=specifier,
            rules=end.rules(),
            id=self.scenario.id(index),
        )

    async def _answer(self, item: Item) -> Transcript:
        """One question and its answer, as a conversation of two messages."""
        end = self.scenario.end
        assert isinstance(end, Question)
        facts, draft = await self._begun(item)
        asked = end.asked(facts)
        sampling = self._seeded(self.config.sampling or end.sampling or AGENT_SAMPLING, item.index)
        transcript = draft.transcript = Transcript(item.id, Task(asked.problem))
        transcript.speakers = [Speaker(USER, "User"), Speaker(ASSISTANT, asked.role, sampling=sampling)]
        transcript.messages.append(Message(0, USER, "User", asked.problem))
        history = History()
        history.add("user", asked.prompt)
        model = CheckedModel(item.model(), self.config.run.cut_replies)
        reply = await model.reply(Request(history, sampling, item.id, ASSISTANT))
        transcript.messages.append(spoken(1, ASSISTANT, asked.role, well_formed(reply.content), reply))
        transcript.stop = Stop("done", "the question was answered", ASSISTANT)
        return self._labelled(item.index, transcript, facts)

    def _read_transcripts(self, marker: Marker) -> list[Transcript]:
        with self.folder.opened([marker.file]) as files:
            return list(stream_shard(next(files)))

    def _write_transcripts(self, path: Path, records: Sequence[Transcript]) -> Written:
        fingerprint = self._settings.fingerprint
        shard = write_indexed(self.folder, path.parent.name, path, records, fingerprint, self._cost)
        return Written(shard.rows, shard.sha256, {})

    def _cost(self, model: str, usage: Usage) -> float | None:
        """What a conversation has cost, where the model's price is known."""
        price = self.config.model.cost()
        return price.cost(usage) if price else None

    def _seeded(self, sampling: Sampling, index: int) -> Sampling:
        """The same settings with a seed of the item's own, where the run has one."""
        if self.config.seed is None:
            return sampling
        return msgspec.structs.replace(sampling, seed=self._seed(index))

    def _seed(self, index: int) -> int:
        return ((self.config.seed or 0) * 1_000_003 + index) % 2**31

    def _labelled(self, index: int, transcript: Transcript, facts: dict[str, str]) -> Transcript:
        transcript.scenario, transcript.inputs, transcript.item = self.scenario.name, facts, index
        transcript.labels = list(self.scenario.labels)
        transcript.fingerprint = self._settings.fingerprint
        return transcript


@dataclass(slots=True)
class _Draft:
    """What there is of a conversation's record."""

    facts: dict[str, str]
    transcript: Transcript | None = None


def _check_lists(facts: Mapping[str, str]) -> None:
    """Raise where a list failed from which one of these was to come."""
    if cause := next((fact for fact in facts.values() if fact.startswith(FAILED)), ""):
        raise ListFailed(cause)


def _why_list_failed(record: AskedList) -> str:
    cause = next((item for item in record.items if item.startswith(FAILED)), "")
    return cause.removeprefix(FAILED).partition(": ")[2]


def why_failed(record: Transcript) -> str:
    """Why a conversation failed, as `Class: words`; empty where it did not."""
    return record.stop.detail if record.failed and record.stop else ""


def stop_of(record: Transcript) -> Iterable[str]:
    """The name under which a conversation is counted: why it ended."""
    return (f"{STOPPED}{record.stop.reason}",) if record.stop else ()


def _write_lists(path: Path, records: Sequence[AskedList]) -> Written:
    data = render_lists((record.parents, record.items) for record in records).encode()
    return write_whole(path, data, len(records))
