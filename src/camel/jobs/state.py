"""A running job in one process: its models, its folder and the progress of its stages. Used by the runner and workers."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError, ModelError
from camel.core.message import Usage
from camel.core.model import Model, Price
from camel.engine.halt import Tell, Unfinished
from camel.engine.journaled import journaled
from camel.engine.site import ToolUse
from camel.engine.stage import StageItems, Steps, Workload, Written
from camel.jobs.batched import FOLDER, BatchedModel
from camel.jobs.budget import Meter, MeteredModel
from camel.jobs.failures import failure_of
from camel.jobs.item import Item, Seat
from camel.jobs.job import ItemFailed, Job, Stage
from camel.jobs.ledger import (
    MONEY,
    TOOLS,
    Counted,
    Tally,
    committed_shards,
    model_totals,
    models_in,
    tools_of,
    totals_in,
    totals_of,
    usage_of,
)
from camel.models.connect import NamedModel, chat_of, pool_of
from camel.models.prices import find
from camel.models.replica import ReplicaState
from camel.models.spec import ModelSpec
from camel.models.traced import traced
from camel.runs.again import Retry, StageName, named
from camel.runs.bits import BitSet
from camel.runs.compact import damaged
from camel.runs.run import RunFolder
from camel.runs.verify import missing_files
from camel.storage.journal import Damage

COUNTED_FIRST = 1_000
"""Maximum number of markers to read before the work starts; more are read in the background, unless there is a budget."""


class Models:
    """The models of a job and its nested jobs, each opened once, at first use."""

    def __init__(self, meter: Meter, concurrency: int) -> None:
        self._meter, self._concurrency = meter, concurrency
        self._seats: dict[Model | bytes, Seat] = {}
        self._own: list[Model] = []
        """Models that were opened here and are closed here."""
        self.opened: Callable[[str, Model], None] = lambda name, model: None
        """Called with each opened model."""
        self.folder: RunFolder | None = None
        """Folder of the outermost job, for batches; None: no batches here."""

    def seat(self, job: Job, name: str) -> Seat:
        """Return the model of a job's seat."""
        spec = job.models.get(name) or job.models[""]
        key = msgspec.json.encode(spec) if isinstance(spec, ModelSpec) else spec
        if key not in self._seats:
            self._seats[key] = self._open(spec)
        return self._seats[key]

    def _open(self, spec: Model | ModelSpec) -> Seat:
        meter = self._meter.model(meter_name(spec), price_of(spec))
        if isinstance(spec, ModelSpec):
            model, folder = spec.open(self._concurrency), self.folder
            if folder and (chat := chat_of(model)) and (spec.batch or folder.store.names(FOLDER)):
                model = BatchedModel(chat, folder.store, meter, submits=spec.batch)
            self._own.append(model)
        else:
            model = spec.inner if isinstance(spec, NamedModel) else spec
        self.opened(meter.name, model)
        return Seat(MeteredModel(traced(model, meter.name), meter), meter, model)

    def declare(self, job: Job) -> None:
        """Register the prices of a job's models before any of them is opened."""
        for spec in job.models.values():
            self._meter.model(meter_name(spec), price_of(spec))
        self._meter.limits |= job.budgets

    def replicas(self) -> list[ReplicaState]:
        """Return the current state of the open models' endpoints."""
        pools = {seat.meter.name: pool_of(seat.opened) for seat in self._seats.values()}
        return [state for pool in pools.values() if pool is not None for state in pool.states()]

    def adjustments(self) -> list[str]:
        """Return the fields that requests omit or rename because an endpoint rejected them."""
        chats = [(seat.meter.name, chat) for seat in self._seats.values() if (chat := chat_of(seat.opened))]
        return [f"{name}: {line}" for name, chat in chats for line in chat.wire.adjustments]

    async def rest(self) -> None:
        """Tell all models that no call comes for a while."""
        for seat in self._seats.values():
            await seat.opened.rest()

    async def aclose(self, *, given: bool = False) -> None:
        """Close the models that were opened here, and rest the others. If `given` is true, close the others, too."""
        await self.rest()
        for model in [seat.opened for seat in self._seats.values()] if given else self._own:
            await model.aclose()


def name_of(spec: Model | ModelSpec) -> str:
    """Return the name of a model in reports and budgets."""
    return spec.name or type(spec).__name__


def meter_name(spec: Model | ModelSpec) -> str:
    """Return the name under which a model's cost is counted: calls in batches cost less."""
    return f"{name_of(spec)} (batch)" if spec.batch else name_of(spec)


def price_of(spec: Model | ModelSpec) -> Price | None:
    """Return the price of a model, if known."""
    return spec.cost() if isinstance(spec, ModelSpec) else spec.price or find(spec.name)


@dataclass(slots=True)
class _Ended:
    """An item that has ended."""

    record: Any
    usage: Usage
    priced: bool
    by_model: dict[str, Usage]
    tools: ToolUse


class JobState:
    """One job: its counts, and the workloads of its stages."""

    def __init__(
        self,
        job: Job,
        meter: Meter,
        models: Models,
        tell: Tell,
        *,
        accept: Collection[str] = (),
        shared: bool = False,
    ) -> None:
        """`shared` marks a worker of a cluster: the driver starts the stages and counts committed items."""
        self.job, self.meter, self.halt = job, meter, meter.halt
        self.tell, self._accept, self._shared = tell, accept, shared
        self._seat = partial(models.seat, job)
        models.declare(job)
        self.folder = job.open(accept)
        if self.folder.copier:
            self.folder.copier.limits = job.copy_limits
        if not shared:
            job.prepare(self.folder)
        self.last_pass = False
        """Whether a failure becomes the item's record, because this is the last pass."""
        self.tallies: dict[str, Tally] = {}
        self.stages: dict[str, Stage] = {}
        self._counted: dict[str, Counted] = {}
        self.retry: Retry | None = None
        self.journaled = 0
        """Number of journaled replies of open shards."""
        self.damaged = 0
        """Number of damaged replies in journals."""
        self._counting: asyncio.Future[None] | None = None
        """The task that reads markers in the background."""
        self.over = False
        """Whether the job has ended, so that no more markers are read in the background."""

    # --- stages ------------------------------------------------------------------------------------------------------

    @cached_property
    def outline(self) -> list[Stage]:
        """The stages that are known in advance."""
        return [self.begun(stage) for stage in self.job.outline(self.folder)]

    def begun(self, stage: Stage) -> Stage:
        """Store the identity of a new stage, or compare it with the stored one. Return the stage with its stored shard size."""
        if stage.identity is None:
            return stage
        wanted = {**msgspec.to_builtins(stage.identity), "count": stage.count, "shard_size": stage.shard_size}
        if self._shared:
            begun = self.folder.begun_with(stage.name) or wanted
        else:
            begun = self.folder.begun(stage.name, wanted)
            self._check_same(stage, begun)
        identity = {key: begun.get(key) for key in wanted}
        return replace(
            stage,
            shard_size=int(begun.get("shard_size", stage.shard_size)),
            fingerprint=stage.fingerprint or fingerprint(identity),
        )

    def _check_same(self, stage: Stage, begun: Mapping[str, Any]) -> None:
        """Raise an `InputError` if a stage was started with other settings that the user has not accepted."""
        assert stage.identity is not None
        wanted = msgspec.to_builtins(stage.identity)
        if "model" in wanted and "model.name" in self._accept:
            changed = f"{stage.name}.model"
            if self.folder.accepted().get(changed, begun.get("model")) != wanted["model"]:
                self.folder.accept({changed: wanted["model"]})
        model = self.folder.accepted().get(f"{stage.name}.model", begun.get("model"))
        now = {**begun, "model": model}
        if differs := [name for name in wanted if now.get(name) != wanted[name]]:
            details = ", ".join(
                f"{name} was {shown(now.get(name))} and is {shown(wanted[name])}" for name in differs
            )
            hint = (
                f": use --model {shlex.quote(str(model))}, or add --accept-change model.name"
                if differs == ["model"]
                else ""
            )
            raise InputError(f"the stage '{stage.name}' was started with other settings ({details}){hint}")

    def begin(self, stages: Iterable[Stage]) -> None:
        """Add stages that are not known yet, and count their existing results."""
        new = [stage for stage in stages if stage.name not in self.tallies]
        committed: dict[str, BitSet] = {}
        for stage in new:
            self.stages[stage.name] = stage
            self.tallies[stage.name], self._counted[stage.name] = Tally(stage.planned), Counted()
            if self._shared:
                continue
            name, there = named(stage.name), self.folder.committed(stage.name)
            committed[stage.name] = there & BitSet.of_range(0, stage.layout.shards)
            if lost := missing_files(self.folder, name.stage, None if name.retry else there):
                more = f", and {len(lost) - 1:,} other data files are" if lost[1:] else ""
                raise damaged(self.folder, lost[0], f"is missing{more}")
        if new and not self._shared:
            self._begin_counting(committed)

    def retried(self, stages: Iterable[Stage]) -> list[Stage]:
        """Return the stages of the unfinished retry, limited to the items to retry."""
        if self.retry is None:
            return []
        number, found = self.retry.number, self.retry.stages
        return [
            replace(stage, name=str(StageName(stage.name, number)), items=found[stage.name])
            for stage in stages
            if stage.name in found
        ]

    def workload(self, stage: Stage) -> Workload:
        """Return the stage as a workload for the engine."""
        items: dict[str, Any] = {one.name: getattr(stage, one.name) for one in fields(StageItems) if one.init}
        return Workload(**items, work=partial(self._work, stage), write=partial(self._write, stage))

    async def _work(self, stage: Stage, index: int, steps: Steps) -> _Ended:
        """Run one item under the failure policy."""
        tally = self.tallies[stage.name]
        item = Item(index, stage.id(index), steps, self._seat, self.meter, self.tell)
        tally.open += 1
        try:
            record = await stage.work(item)
        except (ModelError, ItemFailed) as error:
            if isinstance(error, ModelError) and stage.failed is not None:
                failure_of(error, self.halt, last=self.last_pass)
            if stage.failed is None:
                self.halt.set(f"{stage.id(index)}: {error}")
                raise Unfinished(str(error)) from None
            record = stage.failed(item, error)
        finally:
            tally.open -= 1
            item.release()
        usage = item.usage
        tally.finished += 1
        tally.usage += usage
        tally.failed += bool(stage.failure(record))
        tally.counts.update(stage.counts(record))
        return _Ended(record, usage, item.money is not None, item.by_model, item.tools)

    def _write(self, stage: Stage, path: Path, ended: Sequence[_Ended]) -> Written:
        """Write a shard and count its records."""
        usage = sum((one.usage for one in ended), Usage())
        tools = sum((one.tools for one in ended), ToolUse())
        paid = [one.priced for one in ended if one.usage.calls]
        priced = bool(paid) and all(paid)
        used_by: dict[str, Usage] = {}
        records: Sequence[Any] = [one.record for one in ended]
        name = named(stage.name)
        if name.retry:
            # A retry writes whole shards with the kept records; failed attempts were paid for, too.
            shard = int(path.name.partition("-")[0])
            before = self.folder.marker(name.stage, shard)
            assert stage.read is not None
            assert stage.items is not None
            new = dict(zip(stage.items[shard], records, strict=True))
            old = stage.read(before)
            numbers = stage.layout.items(shard) if stage.number is None else map(stage.number, old)
            kept = dict(zip(numbers, old, strict=False)) | new
            records = [kept[item] for item in sorted(kept) if item not in (stage.inactive or ())]
            usage, tools = usage + usage_of(before.totals), tools + tools_of(before.totals)
            priced = priced or MONEY in before.totals
            used_by.update(models_in(before.totals))
        written = stage.write(path, records)
        used = totals_of(usage, priced=priced)
        if len(self.meter.models) > 1:
            for name, its in [pair for one in ended for pair in one.by_model.items()]:
                used_by[name] = used_by.get(name, Usage()) + its
            used |= model_totals(used_by)
        totals = {**(used if self.job.models else {}), **totals_in(stage, records)}
        made = dict(zip(TOOLS, msgspec.structs.astuple(tools), strict=True)) if tools.calls else {}
        return written._replace(totals={**totals, **made, **written.totals})

    # --- counting ----------------------------------------------------------------------------------------------------

    def _price(self, stage: str) -> Callable[[Usage], Usage]:
        """Return a function that adds the cost to the usage in a marker or journal that lacks it."""
        spec = self.asked_by(self.stages[stage])
        meter = spec and self.meter.model(meter_name(spec), price_of(spec))
        return meter.priced if meter else lambda usage: usage

    def asked_by(self, stage: Stage) -> Model | ModelSpec | None:
        """Return the model that a stage calls, or None."""
        return self.job.models.get(stage.seat) or self.job.models.get("")

    def _begin_counting(self, committed: Mapping[str, BitSet]) -> None:
        """Count committed items: now, or in the background if there are many markers and no budget."""
        names = list(committed)
        for name in names:
            price = self._price(name)
            for by, used, tools in journaled(self.folder, name, self._tell_of_damage):
                usage = used if used.usd else price(used)
                self.meter.before += usage
                self.meter.tools_before += tools
                if by in self.meter.models:
                    self.meter.models[by].before += usage
                self.journaled += 1
        few = sum(map(len, committed.values())) <= COUNTED_FIRST
        for name, shards in committed.items():
            self._tally_names(name, shards)
        if few or self.meter.budget.counts:
            self._read_markers(committed)
            for name in names:
                self._add(name)
            return
        loop = asyncio.get_running_loop()
        self._counting = loop.run_in_executor(None, self._read_markers, committed)
        self._counting.add_done_callback(partial(self._catch_up, names))

    def recount(self, names: Iterable[str]) -> None:
        """Count committed items again, reading only markers that were not read yet."""
        for name in names:
            self._read_markers({name: committed_shards(self.folder, self.stages[name])})
            self._tally_names(name, self._counted[name].shards)
            self.tallies[name].add(self._counted[name])

    def reset_count(self, stage: str) -> None:
        """Forget the counts of a stage, because its shards were rewritten."""
        self._counted[stage] = Counted()
        self.recount([stage])

    def _read_markers(self, committed: Mapping[str, BitSet]) -> None:
        """Read markers until the run stops. Runs on a thread, so it must not change what is displayed."""
        for name, shards in committed.items():
            counted = self._counted[name]
            if named(name).retry:  # the newest markers of its stage include a retry
                counted.shards |= shards
                continue
            price = self._price(name)
            for marker in self.folder.markers(name, shards - counted.shards):
                counted.add(marker, price)
                if self._counting is not None and (self.over or self.halt.reason):
                    return

    def _catch_up(self, names: Sequence[str], done: asyncio.Future[None]) -> None:
        """Add the counts that were read in the background to the displayed ones."""
        if error := done.exception():
            self.halt.set(str(error))
            return
        for name in names:
            self._add(name)

    def _add(self, name: str) -> None:
        counted = self._counted[name]
        self.tallies[name].add(counted)
        self.meter.before += counted.usage
        self.meter.tools_before += counted.tools
        for model, usage in counted.by_model.items():
            if model in self.meter.models:
                self.meter.models[model].before += usage

    async def counted(self) -> None:
        """Wait until counting is finished."""
        if self._counting is not None:
            await self._counting

    def _tally_names(self, name: str, shards: BitSet) -> None:
        """Count the items of shards from the shards' names only, without reading markers."""
        stage = self.stages[name]
        if stage.items is None:
            items = stage.layout.count_items(shards)
        else:
            items = sum(len(its) for shard, its in stage.items.items() if shard in shards)
        self.tallies[name] = Tally(stage.planned, items, items)

    def _tell_of_damage(self, damage: Damage) -> None:
        self.damaged += damage.records or 0
        text = f"{damage}; this reply is paid for again, and later replies of the item if the new one differs"
        self.tell("damage", text, file=str(damage.path), records=damage.records)


def fingerprint(identity: Mapping[str, Any]) -> str:
    """Return a short hash of an identity, which determines the records."""
    return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()[:16]
