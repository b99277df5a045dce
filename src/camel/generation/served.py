"""The job behind `camel serve FILE`: each request is a conversation of one run, which grows while it is in progress.

The one decision to know: a request is a step of the run's plan, with one item in a shard of its own. The step is durable
before the first call. If the process is killed, the journal of the item is continued when the same request comes again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.grammar import DONE_TOKEN
from camel.core.role_playing import ASSISTANT
from camel.core.stops import alike, voted
from camel.core.transcript import Transcript
from camel.engine.halt import Unfinished
from camel.engine.stage import Workload
from camel.engine.supervisor import StepPass
from camel.engine.worker import run_worker
from camel.generation.config import CONVERSATIONS, last_stage
from camel.generation.conversations import read_transcripts
from camel.generation.dialogues import Dialogues
from camel.generation.generate import Generation
from camel.jobs.item import Item
from camel.jobs.job import ItemFailed, Job, Stage
from camel.jobs.runner import Runner
from camel.record.parquet import arrow
from camel.runs.bits import BitSet
from camel.runs.layout import Layout, Segment
from camel.runs.plan import VALUE, PlanRow, PlanStep, RunPlan, add_step, read_plan
from camel.runs.run import RunFolder

SOURCE = "requests"
"""The first word of the source of the plan's steps. The id and the hash of the request follow."""
DELIVERED = "delivered.txt"
"""The file with the numbers of the items whose replies were sent."""
KEYED = "key-"
"""Prefix of the ids of requests with a key."""
WAIT = 0.5
"""Seconds between two checks whether the run must stop."""


class KeyReused(InputError):
    """A key was used before, for another request."""


class GrowingPlan(RunPlan):
    """A plan to which requests are added while the run is in progress. The texts of earlier ones are read when needed."""

    def __init__(self, folder: RunFolder, stage: str) -> None:
        steps: Sequence[PlanStep] = found.steps if (found := read_plan(folder)) else []
        sources = [one.source.split() for one in steps]
        if any(len(one) != 3 or one[0] != SOURCE for one in sources):
            raise InputError(
                f"'{folder.address}' was not made by `camel serve`: use another folder with --out"
            )
        super().__init__(folder, steps)
        self.stage, self.inactive, self.ever_inactive = stage, BitSet(), BitSet()
        self.requests = [PlanRow(id, hash, {}) for _, id, hash in sources]

    def row(self, item: int) -> PlanRow:
        """Return the request of an item."""
        row = self.requests[item]
        return row if row.values else super().row(item)

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layout of the one stage, as of the start."""
        return {self.stage: self.layout(self.stage, self.stage)}

    def add(self, row: PlanRow) -> int:
        """Add a request durably, and return its item. The caller must wait before it adds another."""
        source, segments = f"{SOURCE} {row.id} {row.hash}", {self.stage: Segment(1, 1)}
        step = PlanStep(len(self.requests) + 1, segments, {"new": 1}, source, rows=True)
        values = {f"{VALUE}{name}": [text] for name, text in row.values.items()}
        with tempfile.TemporaryDirectory(prefix="camel-plan-") as scratch:
            path = Path(scratch) / "row.parquet"
            table = arrow().table({"id": [row.id], "hash": [row.hash], **values})
            arrow("pyarrow.parquet").write_table(table, path)
            add_step(self.folder, step, path, BitSet())
        self.requests.append(row)
        return len(self.requests) - 1


class Served(Job):
    """The conversations of a declaration or a scenario, one for each request."""

    name = "serve"
    plan: GrowingPlan

    def __init__(self, made_by: Dialogues | Generation) -> None:
        self.made_by, self.place = made_by, made_by.place
        self.models, self.budgets = made_by.models, made_by.budgets
        if any(one.batch for one in self.models.values()):
            raise InputError("a request cannot wait for a batch: remove batch from the model's settings")

    @property
    def title(self) -> str:
        """The title of the declaration, or the scenario's name."""
        return self.made_by.title

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open or create the run's folder. Raise an `InputError` if it was created with other settings."""
        return self.made_by.open(accept)

    def prepare(self, run: RunFolder) -> None:
        """Read the requests of earlier processes."""
        made_by = self.made_by
        scenario = made_by.config.loaded_scenario() if isinstance(made_by, Generation) else None
        self.plan = GrowingPlan(run, last_stage(scenario) if scenario else CONVERSATIONS)

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return the stage of conversations or answers. An unsuitable request fails only its own item."""
        stage = self.made_by.conversations(run, self.plan)
        return [replace(stage, work=partial(_work, stage.work))]


async def _work(work: Callable[[Item], Awaitable[Any]], item: Item) -> Any:
    try:
        return await work(item)
    except InputError as error:
        raise ItemFailed(str(error)) from None


class Requests:
    """The requests of a served run: finds or adds the item of each one, and waits for its conversation."""

    def __init__(
        self, job: Served, runner: Runner, open_door: Callable[[], AbstractAsyncContextManager[None]]
    ) -> None:
        """`open_door` returns the context in which requests arrive."""
        self._plan, self._runner, self._folder, self._open_door = job.plan, runner, runner.folder, open_door
        self._done = runner.folder.committed(job.plan.stage)
        self._log = runner.folder.root / DELIVERED
        delivered = set(self._log.read_text().split()) if self._log.exists() else set[str]()
        self._keyed: dict[str, int] = {}
        self._left: dict[str, list[int]] = {}
        """Items without a key whose replies were not delivered and that no request waits for, by the request's hash."""
        for item, row in enumerate(job.plan.requests):
            if row.id.startswith(KEYED) or str(item) not in delivered:
                self.release(item)
        self._adding, self._more = asyncio.Lock(), asyncio.Event()
        self._queue: deque[int] = deque()
        self._waiting: dict[int, asyncio.Future[str]] = {}
        """The items in progress. The result is why an item could not be finished, or empty."""
        runner.supervisor = self._supervise

    async def accept(self, values: dict[str, str], body: bytes, key: str = "") -> int:
        """Return the item of a request: that of an earlier one with the same key, or with an equal body if its reply was not
        delivered, otherwise a new one. Raise `KeyReused` if the key's request had another body."""
        hash = hashlib.sha256(body + msgspec.json.encode(values, order="sorted")).hexdigest()
        id = f"{KEYED}{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}" if key else ""
        while (item := self._keyed.get(id)) is None:
            if not key and self._left.get(hash):
                return self._left[hash].pop(0)
            # Shielded, so that a client that disconnects does not interrupt a step of the plan.
            await asyncio.shield(asyncio.ensure_future(self._add(id, hash, values)))
        if self._plan.requests[item].hash != hash:
            raise KeyReused("this Idempotency-Key was used for another request: use a new key")
        return item

    async def _add(self, id: str, hash: str, values: dict[str, str]) -> None:
        async with self._adding:
            if id not in self._keyed:
                row = PlanRow(id or f"chat-{secrets.token_hex(12)}", hash, values)
                self.release(await asyncio.to_thread(self._plan.add, row))
                self._runner.state.tallies[self._plan.stage].planned += 1

    async def reply(self, item: int) -> tuple[Transcript, Mapping[str, float]]:
        """Wait until the conversation of an item has ended, and return its record and totals. Raise `Unfinished` if it cannot be finished
        now; then the same request continues it."""
        if item not in self._done:
            if item not in self._waiting:
                self._waiting[item] = asyncio.get_running_loop().create_future()
                self._queue.append(item)
                self._more.set()
            if reason := self._runner.halt.reason or await asyncio.shield(self._waiting[item]):
                raise Unfinished(reason)
        marker = self._folder.marker(self._plan.stage, item)
        found = await asyncio.to_thread(read_transcripts, self._folder, marker)
        return found[0], marker.totals

    def note_delivered(self, item: int) -> None:
        """Record that the reply of an item was sent."""
        if not self._plan.requests[item].id.startswith(KEYED):
            with self._log.open("a") as log:
                log.write(f"{item}\n")

    def release(self, item: int) -> None:
        """Let another request have the item, because its reply was not delivered."""
        row = self._plan.requests[item]
        if row.id.startswith(KEYED):
            self._keyed[row.id] = item
        else:
            self._left.setdefault(row.hash, []).append(item)

    async def _supervise(self, work: StepPass) -> bool:
        """Work on requests as they arrive, until the run is halted."""
        (workload,), folder, halt = work.workloads, work.folder, work.halt
        folder.sweep(workload.name)

        async def lease() -> tuple[Workload, int] | None:
            while not halt.reason:
                if self._queue:
                    item = self._queue.popleft()
                    return replace(workload, items={item: (item,)}), item
                self._more.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._more.wait(), WAIT)
            return None

        def done(stage: Workload, shard: int) -> None:
            work.committed(stage.name, shard)
            if shard >= workload.layout.shards:  # planned after the start
                self._runner.state.tallies[stage.name].committed += 1
            self._done.add(shard)
            self._waiting.pop(shard).set_result("")

        def left(stage: Workload, shard: int) -> None:
            self._waiting.pop(shard).set_result(halt.reason or "the model's endpoint failed")

        async with self._open_door():
            try:
                await run_worker(
                    folder, lease, concurrency=work.concurrency, halt=halt, committed=done, left=left
                )
            finally:
                for waiting in self._waiting.values():
                    waiting.set_result(halt.reason or "the server has stopped")
        return False


def reply_text(transcript: Transcript) -> str:
    """Return the result of a conversation: its structured result, the choice that the vote decided, the last solution of the
    assistant, or the last message."""
    if transcript.result is not None:
        return msgspec.json.encode(transcript.result).decode()
    messages = transcript.messages
    if transcript.stop and transcript.stop.reason == "agreed":
        votes: dict[str, list[str]] = {}
        for choice in {one.speaker: found for one in messages if (found := voted(one.content))}.values():
            votes.setdefault(alike(choice), []).append(choice)
        return max(votes.values(), key=len)[0]
    assistant = [one for one in messages if one.speaker == ASSISTANT]
    texts = [one.move.solution or one.content for one in assistant] or [one.content for one in messages]
    plain = (text.replace(DONE_TOKEN, "").strip() for text in reversed(texts))
    return next(filter(None, plain), "")
