"""Conversations that are held in the browser: two agents at a table, and whoever likes in one of the seats.

The one decision to know: a table drives the library's own conversation loop (`RolePlaying`) and adds only what a page
needs: what has been said as HTML, what is being said as text, and a wait for the person whose turn it is. Which model
speaks, and what all of it may cost, is the server's to say; nothing that a browser sends reaches an endpoint but words.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import CamelError, InputError, ModelError
from camel.core.message import Sampling, Usage
from camel.core.model import Event, Model, Reply, Request, Retrying, WrappedModel
from camel.core.role_playing import AGENT_SAMPLING, ASSISTANT, USER, RolePlaying
from camel.core.stops import paper_rules
from camel.core.task import SPECIFIER, TaskSpecifier
from camel.core.transcript import Transcript
from camel.engine.halt import Halt
from camel.explorer.reading import Bubble, bubbles, hues_of
from camel.index.build import UNFINISHED, write_indexed
from camel.jobs.budget import Budget, Meter, MeteredModel, ModelMeter
from camel.jobs.ledger import STOPPED, totals_of
from camel.models.person import Answer, Person
from camel.models.prices import cost, find
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings

STAGE = "conversations"
FINGERPRINT = "agents"
SEATS = (USER, ASSISTANT)
MAX_TASK = 4_000
MAX_ROLE = 100
MAX_SAID = 20_000
"""Characters that a browser may send: a form is not a file."""
UNLIMITED = 4_096
"""Tokens that a reply without a limit counts as, where it is cut off."""
TOGETHER = 0.06
"""Seconds for which pieces of a reply are gathered before they are sent."""
QUIET = 10.0
"""Seconds after which a silent stream says that it is still there."""

_log = logging.getLogger("uvicorn.error")
"""The server's: whoever runs it sees it."""


class RoomLimits(msgspec.Struct, frozen=True):
    """What the app allows, whoever asks."""

    at_once: int = 4
    """Conversations that go on at the same time."""
    messages: int = 40
    """Of one conversation."""
    seat_seconds: float = 900.0
    """For which a person is waited for."""
    alone_seconds: float = 120.0
    """After which a conversation ends that nobody watches: nobody pays for what nobody reads."""
    kept: int = 50
    """Conversations that have ended and can still be read and saved."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above zero, not {shown(getattr(self, name))}")


class Full(InputError):
    """There is no room for another conversation now."""


class Wanted(NamedTuple):
    """What somebody asked for."""

    assistant: str
    user: str
    task: str
    seat: str = ""
    """Where they sit themselves: `user`, `assistant`, or nowhere."""
    messages: int = 40
    specify: bool = True


class Writing(NamedTuple):
    """What is being said and is not a message yet."""

    number: int
    """Tells one such text from the next."""
    speaker: str
    text: str
    note: str = ""


class Table:
    """One conversation, from its beginning to its end."""

    def __init__(
        self, id: str, owner: str, wanted: Wanted, limits: RoomLimits, render: Callable[[Bubble], str]
    ) -> None:
        self.id, self.owner, self.wanted, self._limits, self._render = id, owner, wanted, limits, render
        self.play: RolePlaying
        self.html: list[str] = []
        """The messages, ready to be shown."""
        self.writing: Writing | None = None
        self.ended = False
        self.saved = ""
        """The conversation's id in the run, once it is there."""
        self.roles = {USER: wanted.user, ASSISTANT: wanted.assistant, SPECIFIER: "Task specifier"}
        self._hues = hues_of([wanted.user, wanted.assistant])
        self._changed = asyncio.Event()
        self._answer: asyncio.Future[Answer] | None = None
        self._watchers, self._alone_since = 0, time.monotonic()
        self._written = 0
        self._stopped = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def transcript(self) -> Transcript:
        """What has been said."""
        return self.play.transcript

    @property
    def waits(self) -> bool:
        """Whether it is a person's turn."""
        return self._answer is not None

    def look(self, speaker: str) -> dict[str, Any]:
        """How a message of a speaker looks before it is one."""
        role = self.roles.get(speaker, speaker)
        return {
            "speaker": speaker,
            "role": role,
            "hue": self._hues.get(role, 0),
            "side": "left" if speaker == USER else "right",
        }

    # --- what happens --------------------------------------------------------------------------------------------

    def begin(self, group: asyncio.TaskGroup, ended: Callable[[Table], Awaitable[None]]) -> None:
        """Have them talk."""
        self._task = group.create_task(self._talk(ended), name=f"table-{self.id}")
        self._task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        """A task that is stopped before its first step does nothing at all."""
        if not self.ended:
            self.play.end(self._stopped or "it was stopped before it began")
            self.ended = True
            self._tell()

    async def _talk(self, ended: Callable[[Table], Awaitable[None]]) -> None:
        try:
            async for _ in self.play:
                self.html.append(self._render(bubbles(self.transcript)[-1]))
                self.writing = None
                self._tell()
                if not self._watchers and time.monotonic() - self._alone_since > self._limits.alone_seconds:
                    self.play.end("nobody was watching any more")
        except asyncio.CancelledError:
            self.play.end(self._stopped or "the server was stopped")
        except ModelError as error:
            self.play.end(f"{type(error).__name__}: {error}", "error")
        except CamelError as error:  # the budget, mostly
            self.play.end(str(error))
        except Exception:  # ours to mend; it must not end what is said at the other tables
            self.play.end("the server met an error of its own, which its terminal shows", "error")
            _log.exception("a conversation failed")
        self.ended, self.writing = True, None
        try:
            await ended(self)
        except (CamelError, OSError):
            _log.exception("a conversation could not be saved")
        self._tell()

    def watch(self, event: Event) -> None:
        """Hear what is being said, piece by piece."""
        if isinstance(event, Retrying):
            self._written += 1
            self.writing = Writing(self._written, event.speaker, "", f"{event.error}; trying again")
        else:
            now = self.writing
            if now is None or now.speaker != event.speaker or now.note:
                self._written += 1
                now = Writing(self._written, event.speaker, "")
            self.writing = now._replace(text=now.text + event.text)
        self._tell()

    async def ask(self, request: Request) -> Answer:
        """Wait for the person at the table."""
        self._answer = asyncio.get_running_loop().create_future()
        self.writing = None
        self._tell()
        try:
            return await asyncio.wait_for(self._answer, self._limits.seat_seconds)
        except TimeoutError:
            return None
        finally:
            self._answer = None
            self._tell()

    def answer(self, answer: Answer) -> None:
        """What the person says, or that the model speaks for them."""
        if self._answer is None or self._answer.done():
            raise InputError("it is not your turn now: wait until the other one has spoken")
        if isinstance(answer, str):
            if not answer.strip():
                raise InputError("say something, or let the model answer for you")
            if len(answer) > MAX_SAID:
                raise InputError(f"that is {len(answer):,} characters: say it in {MAX_SAID:,}")
        self._answer.set_result(answer)

    def stop(self, why: str = "it was stopped by whoever began it") -> None:
        """End it now; what was said stays."""
        if not self.ended and self._task is not None:
            self._stopped = why
            self._task.cancel()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- who watches ---------------------------------------------------------------------------------------------

    async def stream(self, seen: int) -> AsyncGenerator[bytes]:
        """Server-sent events: messages after the first `seen`, what is being said, whose turn it is, the end."""
        self._watchers += 1
        try:
            async for part in self._stream(seen):
                yield part
        finally:
            self._watchers -= 1
            self._alone_since = time.monotonic()

    async def _stream(self, seen: int) -> AsyncGenerator[bytes]:
        yield b"retry: 1000\n\n"
        sent, told = (0, 0), dict[str, Any]()
        while True:
            # Before anything is read: what comes meanwhile, also the last message, is not missed.
            changed, ended = self._changed, self.ended
            for number in range(seen, len(self.html)):
                yield _event("message", {"html": self.html[number]}, number + 1)
            seen = max(seen, len(self.html))
            if now := self.writing:
                start = sent[1] if sent[0] == now.number else 0
                if start < len(now.text) or sent[0] != now.number:
                    piece = {
                        "from": start,
                        "text": now.text[start:],
                        "note": now.note,
                        **self.look(now.speaker),
                    }
                    yield _event("writing", piece, seen)
                sent = now.number, len(now.text)
            state = self.state()
            if state != told:
                told = state
                yield _event("state", state, seen)
            if ended:
                yield _event("ended", {}, seen)
                return
            try:
                await asyncio.wait_for(changed.wait(), QUIET)
            except TimeoutError:
                yield b": still here\n\n"
            await asyncio.sleep(TOGETHER)

    def state(self) -> dict[str, Any]:
        """What stands around the messages."""
        transcript = self.transcript
        return {
            "task": transcript.task.text,
            "specified": bool(transcript.task.specified),
            "messages": len(self.html),
            "tokens": transcript.usage.total,
            "turn": self.waits,
            "writing": self.writing is not None,
            "ended": self.ended,
        }


class _Paying(WrappedModel):
    """A model whose calls count even where they are cut off: whoever stops a reply has had it written, and it is billed."""

    def __init__(self, model: Model, meter: ModelMeter) -> None:
        super().__init__(MeteredModel(model, meter))
        self._meter = meter

    async def reply(self, request: Request) -> Reply:
        """Make the call if there is room for it."""
        try:
            return await self.inner.reply(request)
        except asyncio.CancelledError:
            # As much as it may have been: nobody will say how much it was.
            most = request.sampling.max_tokens or UNLIMITED
            self._meter.usage += Usage(request.history.tokens, most, calls=1, unknown=1)
            raise


class Agents:
    """All tables of a server: the model that speaks there, what is allowed, and the run that keeps what is saved."""

    def __init__(
        self,
        model: Model,
        out: str | Path,
        *,
        name: str = "",
        sampling: Sampling = AGENT_SAMPLING,
        limits: RoomLimits = RoomLimits(),  # noqa: B008 - frozen
        budget: Budget = Budget(),  # noqa: B008 - frozen
        keep_all: bool = False,
    ) -> None:
        self.name = name or model.name
        self.limits, self._sampling, self._keep_all = limits, sampling, keep_all
        price = model.price or find(self.name)
        if budget.usd is not None and price is None:
            raise InputError(
                f"the price of {self.name} is not known: limit tokens (--budget-tokens) and not money"
            )
        self.meter = Meter(budget, Halt())
        self._chat, self._model = model, _Paying(model, self.meter.model(self.name, price))
        self.folder = prepared(out)
        self._tables: OrderedDict[str, Table] = OrderedDict()
        self._group: asyncio.TaskGroup | None = None
        self._saving = asyncio.Lock()
        self.render: Callable[[Bubble], str] = lambda bubble: ""
        """Makes HTML of a message; the app gives its own."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Let conversations be held until it is left; then all of them end."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    yield
                finally:
                    self._group = None
                    for table in self._tables.values():
                        table.stop("the server was stopped")
        finally:
            # Its connections are this event loop's.
            await self._chat.aclose()

    @property
    def going_on(self) -> int:
        """Conversations that have not ended."""
        return sum(not table.ended for table in self._tables.values())

    def used_up(self) -> str:
        """Why nothing more is said here, in words; empty while there is room."""
        return self.meter.over_budget()

    def begin(self, owner: str, wanted: Wanted) -> Table:
        """Set a table; raises an `InputError` where it cannot be."""
        if why := self.used_up():
            raise Full(f"{why}: whoever runs this server can start it again with a larger one")
        if self._group is None or self.going_on >= self.limits.at_once:
            raise Full(
                f"{self.limits.at_once} conversations go on, and there is no room for more: stop one, or come back soon"
            )
        # One that was halted because an endpoint failed may try again; the budget has just been looked at.
        self.meter.restart(Halt())
        table = Table(
            secrets.token_urlsafe(12), owner, _checked(wanted, self.limits), self.limits, self.render
        )
        person = Person(table.ask, model=self._model)
        sampling = self._sampling
        table.play = RolePlaying(
            assistant=wanted.assistant,
            user=wanted.user,
            task=wanted.task,
            model=person if wanted.seat == ASSISTANT else self._model,
            user_model=person if wanted.seat == USER else self._model,
            sampling=sampling,
            specifier=TaskSpecifier(sampling=Sampling(temperature=1.0, max_tokens=sampling.max_tokens))
            if wanted.specify
            else None,
            rules=paper_rules(max_messages=wanted.messages),
            watch=table.watch,
        )
        self._tables[table.id] = table
        ended = [one.id for one in self._tables.values() if one.ended]
        for id in ended[: max(0, len(ended) - self.limits.kept)]:
            del self._tables[id]
        table.begin(self._group, self._ended)
        return table

    def find(self, id: str) -> Table | None:
        """A table by its id."""
        return self._tables.get(id)

    def of(self, owner: str) -> list[Table]:
        """The tables that somebody has begun, the latest first."""
        return [table for table in reversed(self._tables.values()) if owner and table.owner == owner]

    async def _ended(self, table: Table) -> None:
        if self._keep_all and table.html:
            await self.save(table)

    async def save(self, table: Table) -> str:
        """Keep a conversation that has ended in the run; returns its id there."""
        if not table.ended:
            raise InputError("it can be saved when it has ended: stop it first")
        if not table.html:
            raise InputError("nothing was said: there is nothing to save")
        async with self._saving:
            if not table.saved:
                await asyncio.to_thread(append, self.folder, table.transcript)
                table.saved = table.transcript.id
        return table.saved


def prepared(out: str | Path) -> RunFolder:
    """The run that keeps what is saved, made where there is none."""
    folder = open_folder(out)
    if not folder.exists:
        if folder.stages():
            raise InputError(f"{folder.address} has data and no run.json: choose another folder")
        folder.create(Settings(FINGERPRINT, {"scenario": "agents app", "shard_size": 1}, __version__))
    elif folder.settings().fingerprint != FINGERPRINT:
        raise InputError(f"{folder.address} is a run of something else: choose another folder to save to")
    return folder


def append(folder: RunFolder, transcript: Transcript) -> None:
    """Add a conversation to a run as a shard of its own; `camel run compact` puts many of them together."""
    transcript = msgspec.structs.replace(transcript, fingerprint=FINGERPRINT)
    reason = transcript.stop.reason if transcript.stop else UNFINISHED
    totals = {**totals_of(transcript.usage), "failed": float(reason == "error"), f"{STOPPED}{reason}": 1.0}
    while True:
        shard = max(folder.committed(STAGE), default=-1) + 1
        path = folder.data_path(STAGE, shard, new_attempt(), ".parquet")
        written = write_indexed(folder, STAGE, path, [transcript], FINGERPRINT, cost)
        file, size = folder.persist(path)
        if folder.commit(Marker(STAGE, shard, file, written.rows, written.sha256, FINGERPRINT, totals, size)):
            return
        folder.discard(path)  # another server was quicker with this number


def _checked(wanted: Wanted, limits: RoomLimits) -> Wanted:
    for name, text, most in (
        ("the assistant's role", wanted.assistant, MAX_ROLE),
        ("the user's role", wanted.user, MAX_ROLE),
        ("the task", wanted.task, MAX_TASK),
    ):
        if not text.strip():
            raise InputError(f"{name} is missing: write it, or choose an example")
        if len(text) > most:
            raise InputError(f"{name} has {len(text):,} characters: {most:,} are allowed here")
    if wanted.seat not in ("", *SEATS):
        raise InputError(f"there is no seat {shown(wanted.seat)}")
    if not 2 <= wanted.messages <= limits.messages:
        raise InputError(
            f"a conversation here has from 2 to {limits.messages} messages, not {wanted.messages}"
        )
    return wanted


def _event(kind: str, data: dict[str, Any], number: int) -> bytes:
    # JSON has no line ends in it, so that no text can begin a line, and with it an event, of its own.
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), msgspec.json.encode(data))
