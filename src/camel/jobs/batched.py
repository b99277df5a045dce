"""A model that uses its provider's batch API. Items wait for their replies as usual.

    batches/NUMBER-KEY.json           when a batch was submitted, and the ids of its requests; durable before it is submitted
    batches/NUMBER-KEY-sent.json      the provider's id of the batch

The one decision to know: a request's id follows from its item, its step and its content. So after a kill, a submitted
request waits for the same batch. It is submitted again only if its line has failed or expired.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from camel.core.errors import CamelError, ModelError, RequestRejected, ServerFailed
from camel.core.model import Reply, Request, WrappedModel
from camel.engine.halt import Halted
from camel.engine.stage import current_step
from camel.jobs.budget import ModelMeter
from camel.jobs.failures import NEVER_ANSWERED
from camel.models.batch_api import ProviderBatch, batch_api
from camel.models.chat import ChatModel
from camel.storage.store import Store

FOLDER, SENT = "batches", "-sent.json"
LINES, BYTES = 50_000, 90 * 2**20
"""Maximum size of a batch that all providers accept."""
SHARDS = 500
"""Maximum number of shards whose items wait at a time, because each shard has an open file."""
QUIET, TICK = 2.0, 0.2
"""Seconds without a new request after which a batch is submitted, and seconds between two checks."""
FIRST_LOOK, LONGEST_LOOK = 2.0, 60.0
"""Seconds between two checks of a batch: at first, and at most."""
TRIES = 3
"""Maximum number of batches in which a request may fail, and of batches in a row that may be rejected."""
_Waiting: TypeAlias = "tuple[Request, asyncio.Future[Reply]]"


@dataclass(slots=True)
class _Batch:
    file: str
    made: float
    ids: tuple[str, ...]
    id: str = ""
    """The provider's id; empty if it is unknown whether the batch was submitted."""
    waiting: dict[str, _Waiting] = field(default_factory=dict[str, _Waiting])
    done: int = -1
    due: float = 0.0
    pause: float = FIRST_LOOK


class BatchedModel(WrappedModel):
    """Collects requests until none has come for a while, and submits them as one batch."""

    def __init__(self, chat: ChatModel, store: Store, meter: ModelMeter, *, submits: bool = True) -> None:
        """If `submits` is false, requests are sent directly. The run stops if a request is already in a submitted batch."""
        super().__init__(chat)
        self._api, self._wire, self._store, self._submits = batch_api(chat), chat.wire, store, submits
        self._meter, self._failures = meter.meter, meter.failures
        self._tell = partial(meter.failures.tell, "batch")
        self._queue, self._batches = dict[str, _Waiting](), list[_Batch]()
        self._known = dict[str, _Batch]()
        """The last batch of each request, by the request's id."""
        self._tries, self._refusals = Counter[str](), 0
        self._last = self._due = self._well = 0.0
        """When the last request came, when the next batch may be submitted, and when the endpoint last answered."""
        self._task: asyncio.Future[None] | None = None
        for file in sorted(f"{FOLDER}/{name}" for name in store.names(FOLDER) if not name.endswith(SENT)):
            batch = _Batch(file, *msgspec.json.decode(store.get(file), type=tuple[float, tuple[str, ...]]))
            with contextlib.suppress(FileNotFoundError):
                batch.id = store.get(file.removesuffix(".json") + SENT).decode()
            self._add(batch)

    async def reply(self, request: Request) -> Reply:
        """Wait for the batch that answers the request."""
        meter, loop = self._meter, asyncio.get_running_loop()
        asked = msgspec.msgpack.encode((current_step.get(), request.digest()))
        batch = self._known.get(id := hashlib.blake2b(asked, digest_size=16).hexdigest())
        # A request without a session is a probe of the failure policy, which does not wait for a batch.
        if not request.session or not (self._submits or batch):
            return await self.inner.reply(request)
        if batch and not self._submits:
            raise self._stop(
                f"requests of this run are in the batch {self._store.address}/{batch.file}: run the command with --batch"
            )
        answer: asyncio.Future[Reply] = loop.create_future()
        (batch.waiting if batch else self._queue)[id] = request, answer
        self._last = loop.time()
        if self._task is None:
            self._well, self._task = self._last, asyncio.ensure_future(self._work())
        meter.in_flight -= 1  # a stop of the run loses nothing here
        try:
            return await answer
        finally:
            meter.in_flight += 1

    async def aclose(self) -> None:
        """Stop without canceling batches. The next process collects them."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await super().aclose()

    async def _work(self) -> None:
        """Submit batches and collect results until no request waits, or the run stops."""
        halt, loop = self._meter.halt, asyncio.get_running_loop()
        try:
            while not halt.reason and (self._queue or any(one.waiting for one in self._batches)):
                if loop.time() - self._last >= QUIET or len(self._queue) >= LINES:
                    if self._queue and self._due <= loop.time():
                        await self._submit()
                    for batch in [one for one in self._batches if one.waiting and one.due <= loop.time()]:
                        await self._look(batch)
                await asyncio.sleep(TICK)
        except Exception as error:
            self._stop(str(error) if isinstance(error, CamelError) else repr(error))
        finally:
            self._task = None
            for waiting in (self._queue, *(one.waiting for one in self._batches)):
                for _, answer in waiting.values():
                    if not answer.done():
                        answer.set_exception(Halted(halt.reason))
                waiting.clear()

    def _stop(self, reason: str) -> Halted:
        self._meter.halt.set(reason)
        return Halted(self._meter.halt.reason)

    async def _submit(self) -> None:
        in_batches, lines, size = sum(len(one.waiting) for one in self._batches), dict[str, bytes](), 0
        room = min(LINES, self._meter.room() - in_batches)
        if room <= 0 and not in_batches:
            raise Halted(self._meter.over_budget())
        await self._meter.halt.unpaused()
        for id, (request, _) in self._queue.items():
            body = self._wire.encode(request)
            size += len(body) + 200
            if len(lines) >= room or (lines and size > BYTES):
                break
            lines[id] = body
        if not lines:
            return
        number = int(self._batches[-1].file[len(FOLDER) + 1 :][:6]) + 1 if self._batches else 0
        batch = _Batch(f"{FOLDER}/{number:06d}-{token_hex(8)}.json", time.time(), tuple(lines))
        try:
            uploaded = await self._api.upload(lines)
            written = msgspec.json.encode((batch.made, batch.ids))
            await asyncio.to_thread(self._store.create, batch.file, written)
            self._add(batch)
            batch.waiting = {id: self._queue.pop(id) for id in lines}
            await self._note(batch, await self._api.create(lines, uploaded, batch.file))
        except ModelError as error:
            if batch.waiting and (error.status is None or isinstance(error, ServerFailed)):
                return  # it may have been submitted, so look for it
            if batch.waiting:
                await asyncio.to_thread(self._store.remove, [batch.file])
                self._put_back(batch)
            self._retry_or_halt(error, "the endpoint rejected a batch", "omit --batch if it has no batch API")

    async def _look(self, batch: _Batch) -> None:
        now, where = asyncio.get_running_loop().time(), f"{self._store.address}/{batch.file}"
        batch.due, batch.pause = now + batch.pause, min(LONGEST_LOOK, 2 * batch.pause)
        try:
            found = batch.id or await self._api.find(batch.file, batch.made, batch.ids)
            if found == "" and batch.pause == LONGEST_LOOK:
                raise Halted(
                    f"{len(batch.ids):,} requests may be in flight: the run was interrupted while it submitted them, and "
                    f"{self.base_url} lists no such batch. If the provider's site lists none either, delete {where} and "
                    "run the same command again, which submits them again"
                )
            if found and not batch.id:
                await self._note(batch, found)
            if batch.id:
                await self._collect(batch, await self._api.look(batch.id))
        except ModelError as error:
            advice = f"to submit (and pay for) its {len(batch.ids):,} requests again, delete {where}"
            self._retry_or_halt(error, f"cannot read the batch {batch.id}", advice)

    async def _collect(self, batch: _Batch, found: ProviderBatch) -> None:
        """Deliver the replies of a batch if it has ended. Requests without a reply are submitted again."""
        now, count, asked = asyncio.get_running_loop().time(), len(batch.ids), list(batch.waiting)
        self._well, self._failures.answered = now, True
        if not found.ended:
            if found.done != batch.done:
                self._tell(f"waiting for a batch of {count:,}, {found.done:,} done")
            batch.done = found.done
            return
        async for id, outcome in self._api.results(found):
            self._settle(batch, id, outcome)
        self._refusals = self._refusals + 1 if found.refused else 0
        if self._refusals == TRIES:
            raise Halted(f"the endpoint rejected {TRIES} batches in a row: {found.refused}")
        if found.refused:
            self._put_back(batch)
            self._due = now + LONGEST_LOOK
        for id in asked:
            self._settle(batch, id, ServerFailed("the batch ended without a result for the request"))
        why = f" (rejected: {found.refused})" if found.refused else ""
        self._tell(f"a batch of {count:,} has ended{why}; {len(self._queue):,} requests wait for the next")

    def _settle(self, batch: _Batch, id: str, outcome: Reply | ModelError) -> None:
        """Deliver the outcome of a request, or submit it again if that can help."""
        request, answer = batch.waiting.pop(id, (None, None))
        if request is None or answer is None or answer.done():
            return
        self._tries[id] += 1
        if isinstance(outcome, Reply):
            model, held = outcome.model or self.name, self._wire.constraint(request)
            answer.set_result(replace(outcome, model=model, attempts=self._tries.pop(id), guided=held))
            return
        plain = type(outcome) is RequestRejected and self._wire.adjust(str(outcome), request.sampling)
        if (outcome.retryable or plain) and self._tries[id] < TRIES:
            self._queue[id] = request, answer
            del self._known[id]
        else:
            answer.set_exception(outcome)

    def _retry_or_halt(self, error: ModelError, what: str, advice: str) -> None:
        """Schedule a retry if that may help. Otherwise raise `Halted`."""
        patience, now = self._failures.patience, asyncio.get_running_loop().time()
        limit = patience if self._failures.answered else min(patience, NEVER_ANSWERED)
        if not error.retryable or now - self._well >= limit:
            raise Halted(f"{what}: {error}; {advice}")
        self._due = now + LONGEST_LOOK
        self._tell(f"{what} for now: {error}")

    def _add(self, batch: _Batch) -> None:
        self._batches.append(batch)
        self._known |= dict.fromkeys(batch.ids, batch)

    def _put_back(self, batch: _Batch) -> None:
        for id in batch.waiting:
            del self._known[id]
        self._queue, batch.waiting = self._queue | batch.waiting, {}

    async def _note(self, batch: _Batch, id: str) -> None:
        batch.id = id
        await asyncio.to_thread(self._store.create, batch.file.removesuffix(".json") + SENT, id.encode())
