"""A campaign: the stages of a scenario, run one after the other in a run's folder.

Each level that a model must be asked for is a stage whose items are lists; the last stage's items are the conversations
(or the answers). All of them are the engine's: journaled, committed in shards, resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.conversation import spoken
from camel.core.errors import BadReply, InputError, ModelError, NoRoom
from camel.core.history import History
from camel.core.message import Message, Sampling, Usage, in_one_line, well_formed
from camel.core.model import Model, Request
from camel.core.play import Play
from camel.core.role_playing import AGENT_SAMPLING, ASSISTANT, USER, RolePlaying
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.engine.fence import Fence
from camel.engine.halt import Halt
from camel.engine.journaled import journaled
from camel.engine.notices import Tell, unheard
from camel.engine.stage import Stage, Steps, Written, write_whole
from camel.engine.supervisor import RunStage, run_stage
from camel.generation.config import GenerateConfig, fingerprint
from camel.generation.retry import again, begin_retry, open_retry
from camel.index.build import write_indexed
from camel.jobs.budget import Meter, MeteredModel
from camel.jobs.failures import FailedItems, Failures, failure_of
from camel.jobs.replies import CheckedModel
from camel.models.catalogue import ModelPrice
from camel.models.connect import pool_of
from camel.models.recorded import CountedModel, RecordedModel
from camel.models.replica import ReplicaState
from camel.models.traced import traced
from camel.record.arrow import stream_shard
from camel.record.parquet import arrow
from camel.runs.again import Retry, named
from camel.runs.compact import damaged
from camel.runs.control import read_wish, wish
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from camel.runs.verify import gone
from camel.scenarios import (
    Meeting,
    NamedList,
    Question,
    RolePlay,
    Scenario,
    ask_list,
    read_lists,
    render_lists,
)
from camel.storage.journal import Damage

LISTS_PER_SHARD = 256
PASSES = 3
"""Times an item may be tried before an endpoint's failure becomes its record."""
CONVERSATIONS, ANSWERS = "conversations", "answers"
COUNTED = ("prompt", "completion", "cached", "calls", "unknown")
"""What of a shard's usage its marker keeps."""
MONEY = "money"
"""Dollars, under that name in a marker's totals: a price that changes later does not change what was paid."""
COUNTED_FIRST = 1_000
"""Markers that are read before the work begins; of more, only a budget makes it wait."""
FAILED = "(failed) "
"""Begins the lines of a list that could not be had."""
STOPPED = "stop."
"""Begins the names under which a marker counts why its conversations ended."""
FAILED_AS = "failed."
"""Begins the names under which a marker counts its failed conversations by the class of the failure."""


class Outcome(msgspec.Struct, frozen=True):
    """How a start of a campaign ended."""

    complete: bool
    halted: str
    """Why it stopped before it was complete, in words."""


ACCEPTABLE = ("model.name",)
"""What of a run's configuration may change once somebody says so: records name the model of each message."""


def open_run(
    config: GenerateConfig, scenario: Scenario, *, forked_from: str = "", accept: Collection[str] = ()
) -> RunFolder:
    """Make the run's folder, or continue with the one that is there if it was made from the same configuration.

    `accept` names what may have changed: what is committed stays, what is open continues with the new value.
    """
    if unknown := sorted(set(accept) - set(ACCEPTABLE)):
        raise InputError(f"--accept-change takes {', '.join(ACCEPTABLE)}, not {shown(unknown[0])}")
    folder = config.open_folder()
    decisive = config.decisive(scenario)
    lists = scenario.list_fingerprints()
    settings = Settings(fingerprint(decisive), decisive, __version__, forked_from, lists=lists)
    if not folder.exists:
        folder.create(settings)
        return folder
    if accept:
        wanted, saved = config.decisive(scenario), {**folder.settings().config, **folder.accepted()}
        if new := {name: wanted[name] for name in accept if saved.get(name) != wanted[name]}:
            folder.accept(new)
    if (changed := changes(folder, config, scenario)) and not folder.make_anew(settings):
        lines = "".join(f"\n  {line}" for line in changed)
        raise InputError(
            f"{folder.address} was made from another configuration:{lines}\n"
            "set it back, begin a run beside it with --fork NEWDIR (keeps the lists it can), or afresh with --out DIR; "
            "with another model the run continues if you say --accept-change model.name"
        )
    return folder


def changes(folder: RunFolder, config: GenerateConfig, scenario: Scenario) -> list[str]:
    """What of a configuration is not as the run that is there was made with, a line each; it goes on only if nothing is."""
    saved, decisive = {**folder.settings().config, **folder.accepted()}, config.decisive(scenario)
    if config.shard_size is None:
        # What is usual may change from one version to the next; a run keeps what it was made with.
        decisive["shard_size"] = saved.get("shard_size", decisive["shard_size"])
    return _changes(saved, msgspec.json.decode(msgspec.json.encode(decisive)))


def _changes(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two configurations, a line each: its name, what it was and what it is."""

    def flat(config: Mapping[str, Any]) -> dict[str, Any]:
        counts: dict[str, Any] = config.get("counts") or {}
        return {**config, **{f"counts.{name}": count for name, count in counts.items()}, "counts": None}

    old, new = flat(saved), flat(wanted)
    if old.get("scenario_fingerprint") == new.get("scenario_fingerprint"):
        old["scenario"] = new.get("scenario")  # the same, found on another way
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    prompts = "scenario_fingerprint"
    if prompts in changed:
        changed.remove(prompts)
        # It follows from the scenario and its counts: only where those are the same does it say anything of its own.
        if not any(key == "scenario" or key.startswith("counts.") for key in changed):
            return [*_lines(changed, old, new), "scenario: its prompts or its declaration were changed"]
    return _lines(changed, old, new)


def _lines(changed: Sequence[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    def words(value: Any) -> str:
        return "not set" if value is None else shown(value)

    return [f"{key}: {words(old.get(key))} → {words(new.get(key))}" for key in changed]


@dataclass(slots=True)
class Tally:
    """How far a stage is, as whoever watches it wants to know; in memory only."""

    planned: int
    committed: int = 0
    finished: int = 0
    """Items that have ended, committed or about to be."""
    open: int = 0
    """Items being worked on."""
    failed: int = 0
    usage: Usage = field(default_factory=Usage)
    """What the finished items have used."""


@dataclass(slots=True)
class Counted:
    """What the markers of a stage say, those that have been read."""

    shards: set[int] = field(default_factory=set[int])
    usage: Usage = field(default_factory=Usage)
    dearer: float = 0.0
    failed: int = 0
    stops: Counter[str] = field(default_factory=Counter[str])

    def add(self, marker: Marker, price: ModelPrice | None) -> None:
        """Take note of a marker; what it was paid at may be another price than today's."""
        self.shards.add(marker.shard)
        self.usage += usage_of(marker.totals)
        self.dearer += dearer(marker.totals, price)
        self.failed += int(marker.totals.get("failed", 0))
        self.stops.update(stops_of(marker.totals))


class Campaign:
    """A scenario being generated."""

    def __init__(
        self,
        config: GenerateConfig,
        model: Model,
        *,
        halt: Halt | None = None,
        shared: bool = False,
        accept: Collection[str] = (),
        retry_failed: bool = False,
    ) -> None:
        """`shared` is a worker of a cluster, where others decide whether the run stops; for `accept` see `open_run`.

        With `retry_failed`, items that have failed before are done again. What was begun of that is continued without it.
        """
        arrow()  # what cannot be kept is not to be paid for first
        self.config = config
        self.scenario = config.loaded_scenario()
        self.halt = halt or Halt()
        failures = Failures(
            self.halt,
            patience=60 * config.run.outage_patience,
            shared=shared,
            tell=lambda event, text, **fields: self.tell(event, text, **fields),
        )
        self.meter = Meter(config.budget, config.price(), self.halt, failures)
        self.folder = open_run(config, self.scenario, accept=accept)
        self.fingerprint = self.folder.settings().fingerprint
        self.stops: Counter[str] = Counter()
        """Why conversations ended, over all starts."""
        self.stage = ""
        self.workers = 1
        """Processes at work: this one, or those of a cluster."""
        self.tell: Tell = unheard
        """Is told what happens beside the work."""
        self._endpoint = model
        self.elsewhere: list[ReplicaState] = []
        """The endpoints of a model that is spoken to by others, as they tell it."""
        self._retry_failed = retry_failed
        self._own = self._stages()
        self.stages: list[Stage] = []
        """In order. A retry that is not finished has stages of its own, each after the one whose items it does again."""
        self.tallies = dict[str, Tally]()
        self._counted = dict[str, Counted]()
        self._model = MeteredModel(traced(model, config.model.name), self.meter)
        self._last_pass = False
        self._list_shard = lru_cache(maxsize=64)(self._read_list_shard)
        self._take_up(open_retry(self.folder))
        self._counting: asyncio.Future[None] | None = None
        """What reads the markers while the work goes on already."""
        self._stopped = False
        self._unused: dict[str, Usage] = {}
        """What replies took that could not be used, by the conversation that failed for them."""
        self._in_journals = 0
        """Answers that earlier starts have journaled for shards that are still open."""
        self._damaged = 0
        """Answers that were journaled and cannot be read."""

    @property
    def last(self) -> Stage:
        """The stage whose records are the run's: its conversations, or its answers."""
        return self._own[-1]

    def _take_up(self, retry: Retry | None) -> None:
        """Have the stages of a retry, or none."""
        stages: list[Stage] = []
        for stage in self._own:
            stages.append(self._tallied(stage))
            if retry and stage.name in retry.stages:
                write = self._write_transcripts if stage is self.last else self._write_lists
                stages.append(self._tallied(again(stage, retry, self.folder, self._read_records, write)))
        self.stages = stages
        self.tallies = {stage.name: Tally(stage.count) for stage in stages}
        self._counted = {stage.name: Counted() for stage in stages}

    def replicas(self) -> list[ReplicaState]:
        """The model's endpoints as they are now; none where the model is of another kind."""
        pool = pool_of(self._endpoint)
        return pool.states() if pool else self.elsewhere

    def progress(self) -> dict[str, tuple[int, int]]:
        """Committed and planned items of each stage."""
        done: dict[str, tuple[int, int]] = {}
        for stage in self.stages:
            shards = self.folder.committed(stage.name)
            done[stage.name] = sum(len(stage.indices(shard)) for shard in shards), stage.count
        return done

    async def run(
        self,
        committed: Callable[[str, int], None] = lambda stage, shard: None,
        run_stage: RunStage = run_stage,
    ) -> Outcome:
        """Work until everything is committed or something stops it; `run_stage` says where the work is done."""
        with self.folder.locked():
            # Before anything is counted: until then workers of a killed start may still be paid for calls.
            await self._wait_for_others()
            self._begin_retry()
            with self._counting_begun():
                if read_wish(self.folder) == "stop":  # of somebody who wished it of an earlier start
                    wish(self.folder, "go")
                if any(tally.committed < tally.planned for tally in self.tallies.values()):
                    self.folder.hold_journals(self.last.name)
                self._miss_no_file()
                self._say_what_was()
                return await self._work(committed, run_stage)

    def _begin_retry(self) -> None:
        """Find what failed before, and have it done again; what was begun of that goes first."""
        if not self._retry_failed or open_retry(self.folder):
            return
        retry = begin_retry(self.folder, self._own, self._read_records)
        if retry is None:
            self.tell("retry", "nothing has failed, so nothing is retried", items=0)
            return
        items = sum(len(shard) for shards in retry.stages.values() for shard in shards.values())
        self.tell("retry", f"{items:,} items that failed are done again", items=items)
        self._take_up(retry)

    async def _work(self, committed: Callable[[str, int], None], run_stage: RunStage) -> Outcome:
        """Work through the stages, one after the other."""
        for stage in self.stages:
            self.stage = stage.name
            self._list_shard.cache_clear()

            def note(shard: int, stage: Stage = stage) -> None:
                self.tallies[stage.name].committed += len(stage.indices(shard))
                committed(stage.name, shard)

            complete = False
            for attempt in range(PASSES):
                self.try_for_the(attempt)
                if attempt:
                    await self._counting_done()
                    # Another pass begins open shards anew and would count their items twice.
                    self._recount()
                complete = await run_stage(
                    stage,
                    self.folder,
                    concurrency=self.config.run.concurrency,
                    fingerprint=self.fingerprint,
                    halt=self.halt,
                    committed=note,
                    attempt=attempt,
                )
                if not complete and (reason := self.meter.failures.all_rejected()):
                    self.halt.set(reason)
                if complete or self.halt.reason:
                    break
            if not complete:
                return Outcome(False, self.halt.reason or "some items could not be finished")
            if stage.again is not None:  # what its stage had counted is no longer so
                self._counted[named(stage.name).stage] = Counted()
                self._recount()
        await self._counting_done()
        return Outcome(True, "")

    def _miss_no_file(self) -> None:
        """Raise, before anything is paid, where what was called complete has lost files since."""
        lost = [file for stage in self._own for file in gone(self.folder, stage.name)]
        if lost:
            more = f", and {len(lost) - 1:,} other data files are" if lost[1:] else ""
            raise damaged(self.folder, lost[0], f"is gone{more}")

    async def _wait_for_others(self) -> None:
        """Return when no worker of an earlier start can be at work."""
        if left := Fence(self.folder).left():
            self.tell(
                "waiting",
                f"waiting {left:.0f} s at most: an earlier start of this run was killed, and its workers may be at work until "
                "their leases have run out",
                seconds=left,
            )
            await asyncio.sleep(left)

    def _say_what_was(self) -> None:
        """Tell what an earlier start has left."""
        done = sum(tally.committed for tally in self.tallies.values())
        if done or self._in_journals:
            self.tell(
                "resumed",
                f"goes on: {done:,} of {sum(stage.count for stage in self.stages):,} items are committed, "
                f"{self._in_journals:,} answers for others are in the journal; "
                + (
                    f"another {self._damaged:,} cannot be read and will be paid for again"
                    if self._damaged
                    else "none of them is asked again"
                ),
                committed=done,
                journaled=self._in_journals,
            )

    def try_for_the(self, attempt: int) -> None:
        """Say how often a stage was gone through before: in the last pass a failure becomes the item's record."""
        self._last_pass = attempt == PASSES - 1

    def _stages(self) -> list[Stage]:
        lists = [
            Stage(
                name=level.name,
                count=self.scenario.lists(level.name),
                work=partial(self._ask, level.name),
                write=self._write_lists,
                suffix=".txt",
                shard_size=LISTS_PER_SHARD,
            )
            for level in self.scenario.asked
        ]
        talk = self.scenario.talks
        name = CONVERSATIONS if talk else ANSWERS
        last = Stage(
            name=name,
            count=self.scenario.count,
            work=self._converse if talk else self._answer,
            write=self._write_transcripts,
            shard_size=int(self.folder.settings().config["shard_size"]),
        )
        return [*lists, last]

    def _tallied(self, stage: Stage) -> Stage:
        """The same stage, whose work is counted."""
        own = named(stage.name).stage
        last = own == self.last.name

        async def counted(index: int, steps: Steps) -> Any:
            tally = self.tallies[stage.name]
            tally.open += 1
            try:
                record = await stage.work(index, steps)
            finally:
                tally.open -= 1
                # Its replica has room for another conversation.
                self._endpoint.release(self.scenario.id(index) if last else f"{own}-{index}")
            tally.finished += 1
            tally.usage += record.usage
            if isinstance(record, Transcript) and record.stop:
                self.stops[record.stop.reason] += 1
                tally.failed += record.stop.reason == "error"
            return record

        return replace(stage, work=counted)

    async def _ask(self, level: str, index: int, steps: Steps) -> AskedList:
        """One list of a level."""
        facts = await self._looked_up(partial(self.scenario.list_facts, level, index))
        declared = self.scenario.level(level)
        if cause := _failed_list(facts):
            return AskedList(list(facts.values()), [cause] * declared.count, Usage())
        model = CountedModel(self._recorded(steps))
        try:
            items = await ask_list(
                model,
                self.scenario.list_prompt(level, facts),
                declared.count,
                sampling=self._seeded(declared.sampling or self.config.sampling or AGENT_SAMPLING, index),
                session=f"{level}-{index}",
                ask=declared.ask,
                names=self.scenario.is_name(level),
            )
        except ModelError as error:
            # Whatever needs it fails for the same reason; the list's file says so, and can be edited.
            why = failure_of(error, self.halt, last=self._last_pass)
            items = [in_one_line(f"{FAILED}{level}: {why}")[:300]] * declared.count
        return AskedList(list(facts.values()), items, model.usage)

    async def _converse(self, index: int, steps: Steps) -> Transcript:
        """One conversation."""
        facts = await self._looked_up(partial(self.scenario.facts, index))
        if cause := _failed_list(facts):
            return self._without_list(index, facts, cause)
        try:
            play = self._play(index, facts, self._checked(steps))
        except NoRoom as error:
            return self._labelled(index, self._without_room(index, facts, error), facts)
        try:
            transcript = await play.finish()
        except ModelError as error:
            self._give_up_or_wait(error, play.transcript)
            transcript = play.transcript
        return self._labelled(index, transcript, facts)

    def _without_list(self, index: int, facts: dict[str, str], cause: str) -> Transcript:
        """The record of a conversation that needs a list which failed."""
        level, _, why = cause.removeprefix(FAILED).partition(": ")
        stop = Stop("error", f"ListFailed: its {level} list could not be made: {why}", failure="ListFailed")
        return self._labelled(index, Transcript(self.scenario.id(index), Task(cause), stop=stop), facts)

    def _without_room(self, index: int, facts: dict[str, str], error: NoRoom) -> Transcript:
        """The record of a conversation whose task is too long. Where no task would fit, the settings are wrong, and the
        error is everybody's."""
        end = self.scenario.end
        assert isinstance(end, RolePlay)
        self._play(index, facts, self._model, task="?")
        cast = end.cast(facts)
        speakers = [Speaker(USER, cast.user), Speaker(ASSISTANT, cast.assistant)]
        stop = Stop("token_limit", str(error), USER)
        return Transcript(self.scenario.id(index), Task(cast.task), speakers, stop=stop)

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

    async def _answer(self, index: int, steps: Steps) -> Transcript:
        """One question and its answer, as a conversation of two messages."""
        end = self.scenario.end
        assert isinstance(end, Question)
        facts = await self._looked_up(partial(self.scenario.facts, index))
        if cause := _failed_list(facts):
            return self._without_list(index, facts, cause)
        asked = end.asked(facts)
        identity = self.scenario.id(index)
        sampling = self._seeded(self.config.sampling or end.sampling or AGENT_SAMPLING, index)
        transcript = Transcript(identity, Task(asked.problem))
        transcript.speakers = [Speaker(USER, "User"), Speaker(ASSISTANT, asked.role, sampling=sampling)]
        transcript.messages.append(Message(0, USER, "User", asked.problem))
        history = History()
        history.add("user", asked.prompt)
        try:
            reply = await self._checked(steps).reply(Request(history, sampling, identity, ASSISTANT))
        except ModelError as error:
            self._give_up_or_wait(error, transcript)
            transcript.stop = Stop.failed(error, ASSISTANT)
        else:
            transcript.messages.append(spoken(1, ASSISTANT, asked.role, well_formed(reply.content), reply))
            transcript.stop = Stop("done", "the question was answered", ASSISTANT)
        return self._labelled(index, transcript, facts)

    async def _looked_up(
        self, facts: Callable[[Callable[[str, int], Sequence[str]]], dict[str, str]]
    ) -> dict[str, str]:
        """Facts by the lists, which of a store are read on a thread: a worker that waits for it still has to say that it
        is alive."""
        return facts(self.lists) if self.folder.on_disk else await asyncio.to_thread(facts, self.lists)

    def lists(self, level: str, index: int) -> Sequence[str]:
        """The items of a list that has been committed."""
        return self._list_shard(level, index // LISTS_PER_SHARD)[index % LISTS_PER_SHARD]

    def _read_list_shard(self, level: str, shard: int) -> list[Sequence[str]]:
        return [one.items for one in self._read_lists(self.folder.marker(level, shard))]

    def _read_records(self, marker: Marker) -> list[Any]:
        """The records of a shard."""
        if marker.stage != self.last.name:
            return [AskedList(one.parents, one.items, Usage()) for one in self._read_lists(marker)]
        with self.folder.opened([marker.file]) as files:
            return list(stream_shard(next(files)))

    def _read_lists(self, marker: Marker) -> list[NamedList]:
        """Read what a person may have edited since: only the counts must still be right."""
        count, text = self.scenario.level(marker.stage).count, self.folder.read(marker.file).decode("utf-8")
        return read_lists(text, source=f"{self.folder.address}/{marker.file}", count=count)

    def _write_lists(
        self,
        path: Path,
        records: Sequence[AskedList],
        before: Marker | None = None,
        new: Sequence[AskedList] | None = None,
    ) -> Written:
        """Write lists; `before` and `new` are of a shard that is written anew (`camel.generation.retry`)."""
        data = render_lists((record.parents, record.items) for record in records).encode()
        usage = sum((one.usage for one in (records if new is None else new)), Usage())
        totals = self._totals(usage, before)
        if failed := sum(record.failed for record in records):
            totals["failed"] = float(failed)
        return write_whole(path, data, len(records), totals)

    def _write_transcripts(
        self,
        path: Path,
        records: Sequence[Transcript],
        before: Marker | None = None,
        new: Sequence[Transcript] | None = None,
    ) -> Written:
        """Write conversations; `before` and `new` are of a shard that is written anew: what failed was paid for, too."""
        shard = write_indexed(self.folder, path.parent.name, path, records, self.fingerprint, self._cost)
        made = records if new is None else new
        usage = sum((one.usage + self._unused.pop(one.id, Usage()) for one in made), Usage())
        stops = Counter(record.stop.reason for record in records if record.stop)
        counted = {f"{STOPPED}{reason}": float(count) for reason, count in sorted(stops.items())}
        counted |= failures_in(records)
        return Written(
            shard.rows,
            shard.sha256,
            {**self._totals(usage, before), "failed": float(stops["error"]), **counted},
        )

    def _totals(self, usage: Usage, before: Marker | None) -> dict[str, float]:
        """What a shard has used, with what was paid for it before it is written anew."""
        if before is None:
            return totals_of(usage, self.meter.price)
        totals = totals_of(usage + usage_of(before.totals), self.meter.price)
        if MONEY in totals:
            totals[MONEY] += dearer(before.totals, self.meter.price)
        return totals

    def _cost(self, model: str, usage: Usage) -> float | None:
        """What a conversation has cost, where the model's price is known."""
        return self.meter.price.cost(usage) if self.meter.price else None

    def _recount(self) -> None:
        """Count what is committed: read the markers that have not been read yet."""
        self._read_markers(self._committed())
        self.stops.clear()
        for stage in self.stages:
            self._tally_names(stage, self._counted[stage.name].shards)
            self._add(stage.name, self._counted[stage.name])

    @contextlib.contextmanager
    def _counting_begun(self) -> Generator[None]:
        """Count what is committed, now, or beside the work where markers are many and no budget waits for them."""
        self._stopped = False
        self._begin_counting()
        try:
            yield
        finally:
            self._stopped = True

    def _begin_counting(self) -> None:
        self.meter.before = self._journaled()
        limits = self.config.budget
        committed = self._committed()
        few = sum(map(len, committed.values())) <= COUNTED_FIRST
        if few or limits.money or limits.tokens or limits.calls:
            self._recount()
            self.meter.before += sum((tally.usage for tally in self.tallies.values()), Usage())
            self.meter.dearer = sum(counted.dearer for counted in self._counted.values())
            return
        for stage in self.stages:
            self._tally_names(stage, committed[stage.name])
        loop = asyncio.get_running_loop()
        self._counting = loop.run_in_executor(None, self._read_markers, committed)
        self._counting.add_done_callback(self._catch_up)

    def _committed(self) -> dict[str, set[int]]:
        return {stage.name: self.folder.committed(stage.name) for stage in self.stages}

    def _read_markers(self, committed: Mapping[str, set[int]]) -> None:
        """Read them, until the run stops; on a thread, so that it touches nothing that is shown."""
        for name, shards in committed.items():
            counted = self._counted[name]
            if named(name).retry:  # what its markers say, the newest markers of its stage say
                counted.shards |= shards
                continue
            for marker in self.folder.markers(name, shards - counted.shards):
                counted.add(marker, self.meter.price)
                if self._counting is not None and (self._stopped or self.halt.reason):
                    return

    def _catch_up(self, done: asyncio.Future[None]) -> None:
        """Show what was read beside the work."""
        if error := done.exception():
            self.halt.set(str(error))
            return
        for name, counted in self._counted.items():
            self._add(name, counted)
            self.meter.before += counted.usage
            self.meter.dearer += counted.dearer

    async def _counting_done(self) -> None:
        if self._counting is not None:
            await self._counting

    def _tally_names(self, stage: Stage, shards: set[int]) -> None:
        """A tally of shards of which only the names are known."""
        items = sum(len(stage.indices(shard)) for shard in shards)
        self.tallies[stage.name] = Tally(stage.count, items, items)

    def _add(self, stage: str, counted: Counted) -> None:
        """What the markers say, on top of that."""
        tally = self.tallies[stage]
        tally.usage += counted.usage
        tally.failed += counted.failed
        self.stops.update(counted.stops)

    def _journaled(self) -> Usage:
        """What earlier starts have used for shards that are still open, by their journals."""
        used = Usage()
        for stage in self.stages:
            open_shards = self.folder.journaled(stage.name)
            for usage in journaled(self.folder, stage.name, open_shards, self._tell_of_damage):
                used += usage
                self._in_journals += 1
        return used

    def _tell_of_damage(self, damage: Damage) -> None:
        self._damaged += damage.records or 0
        text = (
            f"{damage}; the run pays for it again, and for later replies of the item if the new one differs"
        )
        self.tell("damage", text, file=str(damage.path), records=damage.records)

    def _recorded(self, steps: Steps) -> Model:
        return RecordedModel(self._model, steps.once)

    def _seeded(self, sampling: Sampling, index: int) -> Sampling:
        """The same settings with a seed of the item's own, where the run has one."""
        if self.config.seed is None:
            return sampling
        return msgspec.structs.replace(sampling, seed=self._seed(index))

    def _seed(self, index: int) -> int:
        return ((self.config.seed or 0) * 1_000_003 + index) % 2**31

    def _checked(self, steps: Steps) -> Model:
        return CheckedModel(self._recorded(steps), self.config.run.cut_replies)

    def _give_up_or_wait(self, error: ModelError, transcript: Transcript) -> None:
        """Let an item's failure become its record, unless another try could still help."""
        failure_of(error, self.halt, last=self._last_pass)
        if isinstance(error, BadReply) and error.usage:
            self._unused[transcript.id] = error.usage

    def _labelled(self, index: int, transcript: Transcript, facts: dict[str, str]) -> Transcript:
        transcript.scenario, transcript.inputs, transcript.item = self.scenario.name, facts, index
        transcript.labels, transcript.fingerprint = list(self.scenario.labels), self.fingerprint
        return transcript


def _failed_list(facts: Mapping[str, str]) -> str:
    """Why a list failed from which one of these was to come; empty where none did."""
    return next((fact for fact in facts.values() if fact.startswith(FAILED)), "")


class AskedList(NamedTuple):
    """A list as a model gave it: its parents in words, its items, and what they took."""

    parents: Sequence[str]
    items: Sequence[str]
    usage: Usage

    @property
    def failed(self) -> bool:
        """Whether it could not be had."""
        return any(item.startswith(FAILED) for item in self.items)


def failures_in(records: Sequence[Transcript]) -> dict[str, float]:
    """How many failed, by the class of the failure, as a marker counts them."""
    classes = Counter(
        record.stop.failure or record.stop.detail.partition(":")[0]
        for record in records
        if record.failed and record.stop
    )
    return {f"{FAILED_AS}{name}": float(count) for name, count in sorted(classes.items())}


def failed_items(folder: RunFolder, stage: str) -> list[FailedItems]:
    """The failed items of a stage by class, the most frequent first, each with an example."""
    counts: Counter[str] = Counter()
    where: dict[str, Marker] = {}
    for marker in folder.markers(stage, sorted(folder.committed(stage))):
        for name, count in marker.totals.items():
            if name.startswith(FAILED_AS):
                counts[name.removeprefix(FAILED_AS)] += int(count)
                where.setdefault(name.removeprefix(FAILED_AS), marker)
    found: list[FailedItems] = []
    for name, count in counts.most_common():
        with folder.opened([where[name].file]) as files:
            rows = stream_shard(next(files))
            stops = ((row.id, row.stop.detail) for row in rows if row.failed and row.stop)
            example, words = next((one for one in stops if one[1].startswith(f"{name}:")), ("", name))
        found.append(FailedItems(name, count, example, words.partition(": ")[2]))
    return found


def usage_of(totals: Mapping[str, float]) -> Usage:
    """The usage in a marker's totals."""
    return Usage(**{name: int(totals.get(name, 0)) for name in COUNTED})


def stops_of(totals: Mapping[str, float]) -> dict[str, int]:
    """Why conversations ended, in a marker's totals."""
    return {
        name.removeprefix(STOPPED): int(count) for name, count in totals.items() if name.startswith(STOPPED)
    }


def totals_of(usage: Usage, price: ModelPrice | None = None) -> dict[str, float]:
    """A usage as a marker keeps it, with what it cost at the price of its day."""
    money = {} if price is None else {MONEY: price.cost(usage)}
    return {
        name: float(count) for name in COUNTED if (count := getattr(usage, name)) or name != "unknown"
    } | money


def dearer(totals: Mapping[str, float], price: ModelPrice | None) -> float:
    """Dollars that a shard has cost beyond what its tokens would at `price`; 0 where its marker does not say."""
    if price is None or MONEY not in totals:
        return 0.0
    return totals[MONEY] - price.cost(usage_of(totals))
