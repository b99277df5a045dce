"""Makes the records of a run: lists, conversations, answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from camel.core.conversation import spoken
from camel.core.dialogue import GOAL, SEAT_SAMPLING, Dialogue, Participant
from camel.core.errors import CamelError, NoRoom
from camel.core.history import History
from camel.core.member import Member
from camel.core.memory import HistoryPolicy
from camel.core.message import Message, Sampling, in_one_line, well_formed, with_seed
from camel.core.model import Model, Request
from camel.core.play import Play
from camel.core.results import add_result
from camel.core.role_playing import AGENT_SAMPLING, ASSISTANT, USER, RolePlaying
from camel.core.stops import Stop
from camel.core.task import SPECIFIER, Task
from camel.core.tools import Workplace
from camel.core.transcript import Speaker, Transcript
from camel.core.world import with_row
from camel.engine.stage import write_lines, write_whole
from camel.generation.config import ANSWERS, LISTS_PER_SHARD, SPECIFIED, GenerateConfig, last_stage
from camel.generation.conversations import conversation_stage, returned_record
from camel.generation.seats import MEMBERS, SEATS, key_of
from camel.generation.toolboxes import RunTools
from camel.generation.validation import attempt_seed, converse
from camel.inputs.settings import column_key
from camel.jobs.item import Item, id_number, item_seed
from camel.jobs.job import ItemFailed, Stage
from camel.jobs.replies import CheckedModel
from camel.jobs.state import price_of
from camel.runs.markers import Marker
from camel.runs.plan import RunPlan, planned_layouts, read_plan
from camel.runs.run import RunFolder
from camel.scenarios import Meeting, NamedList, Question, RolePlay, ask_list, read_lists, render_lists

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
    tools: tuple[str, ...] = ()


def failed_list_in(texts: Iterable[str]) -> str:
    """Return the error of a failed list among these facts or items, or an empty string if none failed."""
    return next((text for text in texts if text.startswith(FAILED)), "")


class Maker:
    """Makes the records of a run: lists, conversations, answers."""

    def __init__(self, config: GenerateConfig, folder: RunFolder, plan: RunPlan | None = None) -> None:
        """`plan` is the run's plan, if it is already in memory."""
        self.config, self.folder = config, folder
        self.scenario = config.loaded_scenario()
        self._settings = folder.settings()
        self._plan = plan or read_plan(folder)
        self._layouts = self._plan.layouts if self._plan else planned_layouts(folder, self._settings.planned)
        self._list_shard = lru_cache(maxsize=64)(lambda *shard: self._read_lists(folder.marker(*shard)))
        self._validator = config.validate.validator() if config.validate else None
        self._tasks = lru_cache(maxsize=64)(self._read_tasks)
        self._tools = RunTools(config, self.scenario)
        self._secrets = self._tools.secrets

    def _list_stages(self) -> list[Stage]:
        """Return one stage per level whose lists a model writes."""
        return [
            Stage(
                name=level.name,
                count=self._layouts[level.name].count,
                work=partial(self._ask, level.name),
                write=lambda path, lists: write_whole(path, render_lists(lists).encode(), len(lists)),
                failed=partial(self._failed_list, level.name),
                failure=lambda record: failed_list_in(record.items).removeprefix(FAILED).partition(": ")[2],
                id=lambda index, level=level.name: f"{level}-{index}",
                read=self._read_lists,
                fingerprint=self._settings.fingerprint,
                seat="lists",
                suffix=".txt",
                shard_size=LISTS_PER_SHARD,
                segments=self._layouts[level.name].segments,
            )
            for level in self.scenario.asked
        ]

    async def _ask(self, level: str, item: Item) -> NamedList:
        """Ask for one list of a level."""
        facts = item.draft = await self._read_facts(partial(self.scenario.list_facts, level, item.index))
        if failed := failed_list_in(facts.values()):
            raise ListFailed(failed)
        declared, seat = self.scenario.level(level), self._seat(item, "lists")
        sampling = seat.sampling or declared.sampling or self.config.sampling or AGENT_SAMPLING
        items = await ask_list(
            item.model(seat.key),
            self.scenario.list_prompt(level, facts),
            declared.count,
            sampling=with_seed(sampling, item_seed(self.config.seed, item.index)),
            session=item.id,
            ask=declared.ask,
            names=self.scenario.is_name(level),
        )
        return NamedList(tuple(facts.values()), tuple(items))

    def _failed_list(self, level: str, item: Item, error: CamelError) -> NamedList:
        """Return the record of a failed list. Items that depend on it fail with the same error, unless a user edits its file."""
        if isinstance(error, ListFailed):
            why = error.cause
        else:
            why = in_one_line(f"{FAILED}{level}: {type(error).__name__}: {error}")[:300]
        return NamedList(tuple(item.draft.values()), (why,) * self.scenario.level(level).count)

    def lists(self, level: str, index: int) -> Sequence[str]:
        """Return the items of a committed list."""
        layout = self._layouts[level]
        shard = layout.shard_of(index)
        return self._list_shard(level, shard)[index - layout.numbers(shard).start].items

    def _read_lists(self, marker: Marker) -> list[NamedList]:
        """Read lists that a user may have edited. Only the number of items must still match."""
        count, text = self.scenario.level(marker.stage).count, self.folder.read(marker.file).decode("utf-8")
        return read_lists(text, source=f"{self.folder.address}/{marker.file}", count=count)

    async def _read_facts(
        self, facts: Callable[[Callable[[str, int], Sequence[str]]], dict[str, str]]
    ) -> dict[str, str]:
        """Return facts that are read from lists. An object store is read on a thread, so that heartbeats continue."""
        return facts(self.lists) if self.folder.on_disk else await asyncio.to_thread(facts, self.lists)

    def _seat(self, item: Item, name: str) -> Seated:
        """Return the model of a seat in one conversation."""
        seat = self.config.models.get(name)
        if seat is None:
            return Seated(name if name in ("lists", SPECIFIER) else "")  # these may have other settings
        number = seat.drawn(name, item.id)
        one = seat.candidates[number]
        return Seated(key_of(name, number), one.sampling, one.prompt, one.history, one.tools)

    def stages(self) -> list[Stage]:
        """Return the stages, in order."""
        lists = self._list_stages()
        name = last_stage(self.scenario)
        last = conversation_stage(
            self.folder,
            price_of(self.config.model),
            name=name,
            work=self._answer if name == ANSWERS else self._converse,
            id=self._id,
            layout=self._layouts[name],
        )
        if SPECIFIED in self._layouts:
            tasks = Stage(
                name=SPECIFIED,
                count=last.count,
                work=self._specify,
                write=write_lines,
                failed=lambda item, error: f"{type(error).__name__}: {error}"[:300],
                failure=lambda record: record if isinstance(record, str) else "",
                id=last.id,
                read=lambda marker: self._read_tasks(marker.shard),
                fingerprint=self._settings.fingerprint,
                seat="specifier",
                suffix=".jsonl",
                shard_size=last.shard_size,
                segments=last.segments,
                inactive=last.inactive,
            )
            return [*lists, tasks, last]
        return [*lists, last]

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
        """Return the specified tasks of a shard. If a task failed, its place has a text with the reason."""
        data = self.folder.read(self.folder.marker(SPECIFIED, shard).file)
        return msgspec.json.Decoder(Task | str | None).decode_lines(data)

    async def _specified(self, index: int) -> Task | None:
        """Return the task that an earlier stage specified, or None if the conversation itself specifies it."""
        if SPECIFIED not in self._layouts:
            return None
        layout = self._layouts[SPECIFIED]
        shard = layout.shard_of(index)
        found = (await asyncio.to_thread(self._tasks, shard))[layout.items(shard).index(index)]
        if isinstance(found, str):
            raise ItemFailed(f"its task could not be specified: {found}")
        return found

    async def _converse(self, item: Item) -> Transcript:
        """Run one conversation, several times if the validation rejects it."""
        if returned := await returned_record(self._plan, last_stage(self.scenario), item.index):
            return returned
        facts = await self._facts(item)
        task = await self._specified(item.index)
        attempt = partial(self._attempt, item, facts, task)
        transcript = await converse(self._validator, item, attempt, facts, given_task=task is not None)
        return await self._with_result(item, transcript)

    async def _attempt(
        self, item: Item, facts: dict[str, str], task: Task | None, number: int, session: str
    ) -> Transcript:
        """Run one attempt at a conversation."""
        try:
            play = self._play(item, facts, number, session, specify=task is None)
        except NoRoom as error:
            return self._with_labels(item.index, self._without_room(item, facts, error), facts)
        item.draft = self._with_labels(item.index, play.transcript, facts)
        if task:
            play.transcript.task = task
        return await play.finish()

    def _models(self, item: Item) -> Callable[[str], Model]:
        """Return a function that returns the model for a key. Seats with the same key share one object."""

        def made(key: str) -> Model:
            return CheckedModel(item.model(key), self.config.run.cut_replies)

        return cache(made)

    def _id(self, index: int) -> str:
        """Return the id of an item's conversation."""
        return self._plan.row(index).id if self.config.inputs and self._plan else self.scenario.id(index)

    def _seed_of(self, item: Item, attempt: int = 0) -> int | None:
        """Return the seed of an attempt at an item. For a row of a table it depends on the row's id, not on its place."""
        number = item.index if self.config.inputs is None else id_number(item.id)
        return attempt_seed(self.config.seed, number, attempt)

    def _most_messages(self, facts: dict[str, str]) -> dict[str, int]:
        """Return the limit of messages that a table's row has, as a field. Empty if it has none."""
        inputs = self.config.inputs
        most = inputs and facts.get(column_key(inputs.max_messages))
        return {"max_messages": int(most)} if most else {}

    def _limited(self, sampling: Sampling, facts: dict[str, str]) -> Sampling:
        """Return the sampling with the limit of tokens that a table's row has."""
        inputs = self.config.inputs
        most = inputs and facts.get(column_key(inputs.max_tokens))
        return replace(sampling, max_tokens=int(most)) if most else sampling

    async def _facts(self, item: Item) -> dict[str, str]:
        """Return the values of an item's placeholders. Raise `ListFailed` if one of the lists failed."""
        if self.config.inputs and self._plan:
            facts = self._plan.row(item.index).values
        else:
            facts = await self._read_facts(partial(self.scenario.facts, item.index))
        failed = failed_list_in(facts.values())
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

    def _play(
        self, item: Item, facts: dict[str, str], attempt: int = 0, session: str = "", **other: Any
    ) -> Play:
        """Return one conversation, ready to start. `attempt` determines its seeds, `other` overrides the scenario's arguments."""
        end, seed = self.scenario.end, self._seed_of(item, attempt)
        # What the tools of one attempt share. Their calls are journaled.
        place = Workplace(perform=item.act, secrets=self._secrets, again=self._validator is not None)
        begun: dict[str, Any] = {"id": session or item.id, "workplace": place}
        if isinstance(end, Meeting):
            return self._meeting(item, end, facts, seed=seed, **begun)
        if isinstance(end, Dialogue):
            return self._dialogue(item, end, facts, seed=seed, **begun)
        assert isinstance(end, RolePlay)
        seats = {name: self._seat(item, name) for name in SEATS}
        models = self._models(item)
        if prompts := {name: seat.prompt for name, seat in seats.items() if seat.prompt}:
            end = replace(end, inception=replace(end.inception, **prompts))
        usual = self._limited(self.config.sampling or end.sampling or AGENT_SAMPLING, facts)
        end = replace(end, **self._most_messages(facts))
        usual_history = self.config.history or end.history or "full"
        sampling = {name: with_seed(seat.sampling or usual, seed) for name, seat in seats.items()}
        specifier = end.specifier()
        if specifier is not None:
            asked = with_seed(seats[SPECIFIER].sampling or specifier.sampling, seed)
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
            assistant_tools=self._tools.toolbox(seats[ASSISTANT].tools or end.assistant_tools or ()),
            user_tools=self._tools.toolbox(seats[USER].tools or end.user_tools or ()),
            hear_actions=end.hear_actions or False,
            world=with_row(end.world or None, facts),
            **begun,
        )

    def _meeting(self, item: Item, end: Meeting, facts: dict[str, str], **begun: Any) -> Play:
        """Return one conversation of a society, ready to start."""
        models, usual = self._models(item), self.config.sampling or end.sampling
        seated: dict[str, Model] = {"": models("")}
        members: list[Member] = []
        for member in end.society.members:
            seat = self._seat(item, f"{MEMBERS}.{member.name}")
            own = {
                "sampling": self._limited(
                    seat.sampling or usual or member.sampling or end.society.usual_sampling, facts
                ),
                "prompt": seat.prompt or member.prompt,
                "history": seat.history or member.history,
                "tools": self._tools.toolbox(seat.tools or member.tools),
            }
            members.append(replace(member, **own))
            seated[member.name] = models(seat.key)
        society, task = replace(end, society=replace(end.society, members=tuple(members))).filled(facts)
        society = replace(
            society,
            stop=replace(society.stop, **self._most_messages(facts)),
            world=with_row(society.world, facts),
        )
        if self.config.history:
            society = replace(society, history=self.config.history)
        return society.play(
            seated,
            task=task,
            sampling=None if self.config.models or usual is None else self._limited(usual, facts),
            **begun,
        )

    def _dialogue(self, item: Item, end: Dialogue, facts: dict[str, str], **begun: Any) -> Play:
        """Return one dialogue, ready to start."""
        models, seated = self._models(item), {name: self._seat(item, name) for name in (*end.names, GOAL)}
        seats: list[Participant] = []
        for seat in end.seats:
            one = seated[seat.name]
            sampling = one.sampling or self.config.sampling or seat.sampling or end.sampling or SEAT_SAMPLING
            sampling = self._limited(sampling, facts)
            history = one.history or self.config.history or seat.history
            prompt, tools = one.prompt or seat.prompt, self._tools.toolbox(one.tools or seat.tools)
            seats.append(replace(seat, prompt=prompt, sampling=sampling, history=history, tools=tools))
        goal = end.stops.goal
        if goal and (sampling := seated[GOAL].sampling or self.config.sampling):
            goal = replace(goal, sampling=sampling)
        end = replace(
            end, seats=tuple(seats), stops=replace(end.stops, goal=goal), **self._most_messages(facts)
        )
        keyed = {"": models(""), **{name: models(one.key) for name, one in seated.items()}}
        return end.fill(facts).play(keyed, **begun)

    async def _answer(self, item: Item) -> Transcript:
        """Ask one question, and return the question and the answer as a conversation of two messages."""
        end = self.scenario.end
        assert isinstance(end, Question)
        facts = await self._facts(item)
        asked = end.asked(facts)
        seat = self._seat(item, ASSISTANT)
        usual = self.config.sampling or end.sampling or AGENT_SAMPLING
        sampling = with_seed(seat.sampling or usual, self._seed_of(item))
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
        usual = with_seed(self.config.sampling or AGENT_SAMPLING, self._seed_of(item))
        return await add_result(transcript, item.model, self.config.result_of(self.scenario), usual)

    def _with_labels(self, index: int, transcript: Transcript, facts: dict[str, str]) -> Transcript:
        transcript.scenario, transcript.inputs, transcript.item = self.scenario.name, facts, index
        transcript.labels = list(self.scenario.labels)
        transcript.fingerprint = self._settings.fingerprint
        return transcript
