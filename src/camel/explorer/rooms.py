"""Conversations held in the browser: two agents in a room, and a person in one of the seats if they like.

The one decision to know: a room drives the library's own conversation loop (`RolePlaying`) and adds only what a page needs:
finished messages as HTML, the message that is being written as text, and a wait for the person whose turn it is. The
server decides which model speaks and what it may cost; a browser contributes only roles, a task and messages.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from camel.core.action_text import call_line
from camel.core.checks import shown
from camel.core.critic import BestOf, Case
from camel.core.errors import CamelError, InputError, Left, ModelError
from camel.core.message import Sampling, Usage
from camel.core.model import Acted, Acting, Event, Model, Reply, Request, Retrying, WrappedModel
from camel.core.role_playing import AGENT_SAMPLING, ASSISTANT, USER, RolePlaying
from camel.core.stops import play_rules
from camel.core.task import SPECIFIER, TaskSpecifier
from camel.core.transcript import Transcript
from camel.engine.halt import Halt
from camel.explorer.colors import GRAY, SEATS, Mark
from camel.explorer.reading import ShownMessage, shown_messages
from camel.explorer.routing import event
from camel.explorer.saved import append, prepared
from camel.explorer.visitors import Visitor
from camel.jobs.budget import Budget, Meter, MeteredModel, ModelMeter
from camel.models.person import REVISIONS, Answer, HandOver, Person, PersonJudge, Ruling
from camel.models.prices import find

CRITIC = "critic"
MAX_TASK = 4_000
MAX_ROLE = 100
MAX_SAID = 20_000
"""Maximum length of a message that a browser may send, in characters."""
UNLIMITED = 4_096
"""Number of tokens that are charged to the budget for a cancelled reply without a token limit."""
TOGETHER = 0.06
"""Seconds for which pieces of a reply are collected before they are sent."""
QUIET = 10.0
"""Seconds after which an idle stream sends a comment, so that it is not closed."""

_log = logging.getLogger("uvicorn.error")
"""The server's log, which its terminal shows."""
Render = Callable[[Sequence[ShownMessage]], tuple[str, str]]
"""A function that returns the HTML of the last message, and the HTML of all messages drawn as bars."""
RenderCase = Callable[[Case, int], str]
"""A function that returns the HTML of proposals. The number tells them from earlier ones."""


class RoomLimits(msgspec.Struct, frozen=True):
    """Limits of the agents app."""

    at_once: int = 4
    """Maximum number of conversations in progress."""
    messages: int = 40
    """Maximum number of messages per conversation."""
    seat_seconds: float = 900.0
    """Seconds to wait for a person's message."""
    alone_seconds: float = 120.0
    """Seconds after which a conversation that no browser watches ends, so that it costs nothing more."""
    kept: int = 50
    """Number of ended conversations that stay in memory, where they can still be read and saved."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above zero, not {shown(getattr(self, name))}")


class Full(InputError):
    """Raised if no further conversation can start, because too many are in progress or the budget is used up."""


class Wanted(NamedTuple):
    """A conversation that a browser requested."""

    assistant: str
    user: str
    task: str
    seat: str = ""
    """The seat of the person: `user`, `assistant`, `critic`, or empty to watch."""
    messages: int = 40
    specify: bool = True


class Writing(NamedTuple):
    """The message that is being written at the moment."""

    number: int
    """A counter that distinguishes this message from the next one."""
    speaker: str
    text: str
    note: str = ""


class Room:
    """One conversation, from its beginning to its end."""

    def __init__(self, id: str, owner: str, wanted: Wanted, limits: RoomLimits, render: Render) -> None:
        self.id, self.owner, self.wanted, self._limits, self._render = id, owner, wanted, limits, render
        self.play: RolePlaying
        self.visitor: Visitor | None = None
        """Who pays for the conversation, on a public server."""
        self.html: list[str] = []
        """The HTML of each finished message."""
        self.score = ""
        """The HTML that draws the conversation as bars, one per message."""
        self.writing: Writing | None = None
        self.case: Case | None = None
        """The proposals from which the person in the critic's seat must choose now."""
        self.round = 0
        """Number of times the person was asked. A choice is only accepted for the current proposals."""
        self.render_case: RenderCase = lambda case, number: ""
        self.ended = False
        self.saved = ""
        """The conversation's id in the run, once it is saved."""
        self.roles = {USER: wanted.user, ASSISTANT: wanted.assistant, SPECIFIER: "Task specifier"}
        self._changed = asyncio.Event()
        self._answer: asyncio.Future[Answer | Ruling] | None = None
        self._watchers, self._alone_since = 0, time.monotonic()
        self._written = 0
        self._stopped = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def transcript(self) -> Transcript:
        """The transcript of the messages so far."""
        return self.play.transcript

    @property
    def waits(self) -> bool:
        """Whether the conversation waits for the person's message."""
        return self._answer is not None

    def mark(self, speaker: str) -> Mark:
        """Return the color and sign of a speaker."""
        return SEATS.get(speaker) or Mark(speaker, "c-0", "open", GRAY)

    # --- the conversation --------------------------------------------------------------------------------------------

    def begin(self, group: asyncio.TaskGroup, ended: Callable[[Room], Awaitable[None]]) -> None:
        """Start the conversation."""
        self._task = group.create_task(self._converse(ended), name=f"room-{self.id}")
        self._task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        """Mark a conversation as ended if its task was cancelled before it began."""
        if not self.ended:
            self.play.end(self._stopped or "stopped before it began")
            self.ended = True
            self._tell()

    async def _converse(self, ended: Callable[[Room], Awaitable[None]]) -> None:
        try:
            async for _ in self.play:
                html, self.score = self._render(shown_messages(self.transcript))
                self.html.append(html)
                self.writing = None
                self._tell()
                if not self._watchers and time.monotonic() - self._alone_since > self._limits.alone_seconds:
                    self.play.end("no browser was watching")
        except asyncio.CancelledError:
            self.play.end(self._stopped or "the server stopped")
        except ModelError as error:
            self.play.end(f"{type(error).__name__}: {error}", "error")
        except CamelError as error:  # usually the budget
            self.play.end(str(error))
        except Exception:  # a bug of ours must not end the other conversations
            self.play.end("internal error: details are in the terminal of the server", "error")
            _log.exception("a conversation failed")
        self.ended, self.writing = True, None
        try:
            await ended(self)
        except (CamelError, OSError):
            _log.exception("a conversation could not be saved")
        self._tell()

    def watch(self, event: Event) -> None:
        """Add a streamed event to the message that is being written, and wake the streams."""
        if isinstance(event, Acted):
            return  # the message will show the result
        if isinstance(event, Retrying | Acting):
            self._written += 1
            acts = isinstance(event, Acting)
            note = (
                call_line(event.call.name, event.call.arguments) if acts else f"{event.error}; trying again"
            )
            self.writing = Writing(self._written, event.speaker, "", note)
        else:
            now = self.writing
            if now is None or now.speaker != event.speaker or now.note:
                self._written += 1
                now = Writing(self._written, event.speaker, "")
            self.writing = now._replace(text=now.text + event.text)
        self._tell()

    async def ask(self, request: Request) -> Answer:
        """Wait for the person's message. Return None, which ends the conversation, if none arrives in time."""
        return cast("Answer", await self._wait())

    async def choose(self, case: Case) -> Ruling | HandOver:
        """Wait for the person's choice between proposals. End the conversation if none arrives in time."""
        if (answer := await self._wait(case)) is None:
            raise Left("the person in the critic's seat left")
        return cast("Ruling | HandOver", answer)

    async def _wait(self, case: Case | None = None) -> Answer | Ruling:
        self._answer = asyncio.get_running_loop().create_future()
        self.writing, self.case = None, case
        self.round += 1
        self._tell()
        try:
            return await asyncio.wait_for(self._answer, self._limits.seat_seconds)
        except TimeoutError:
            return None
        finally:
            self._answer = self.case = None
            self._tell()

    def answer(self, answer: Answer | Ruling) -> None:
        """Accept the person's message or choice, or the request that the model answers. Raise an `InputError` if it is not their
        turn."""
        if self._answer is None or self._answer.done():
            raise InputError("it is not your turn: wait for the other agent")
        text, case = (answer.feedback if isinstance(answer, Ruling) else answer), self.case
        if isinstance(answer, Ruling) and case is not None:
            if answer.choice is not None and not 0 <= answer.choice < len(case.options):
                raise InputError(f"choose a proposal from 1 to {len(case.options)}")
            if text and case.final:
                raise InputError("no more changes of this message are possible: choose a proposal")
        elif isinstance(answer, Ruling) or (case is not None and isinstance(answer, str)):
            raise InputError("proposals are chosen, and messages are written: reload the page")
        elif isinstance(answer, str) and not answer.strip():
            raise InputError("the message is empty: write something, or let the model answer")
        if isinstance(text, str) and len(text) > MAX_SAID:
            raise InputError(f"the message has {len(text):,} characters: at most {MAX_SAID:,} are allowed")
        self._answer.set_result(answer)

    def stop(self, why: str = "stopped by the person who started it") -> None:
        """End the conversation now. Its messages can still be read."""
        if not self.ended and self._task is not None:
            self._stopped = why
            self._task.cancel()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- events ---------------------------------------------------------------------------------------------

    async def stream(self, seen: int) -> AsyncGenerator[bytes]:
        """Yield server-sent events: messages after the first `seen`, the one being written, whose turn it is, the end."""
        self._watchers += 1
        try:
            yield b"retry: 1000\n\n"
            sent, told = (0, 0), dict[str, Any]()
            while True:
                # Before anything is read, so that no change in the meantime is missed.
                changed, ended = self._changed, self.ended
                for number in range(seen, len(self.html)):
                    made = {"html": self.html[number], "score": self.score}
                    yield event(str(number + 1), "message", made)
                seen = max(seen, len(self.html))
                if now := self.writing:
                    start = sent[1] if sent[0] == now.number else 0
                    if start < len(now.text) or sent[0] != now.number:
                        piece = {
                            "from": start,
                            "text": now.text[start:],
                            "note": now.note,
                            "speaker": now.speaker,
                            "role": self.roles.get(now.speaker, now.speaker),
                            "css": self.mark(now.speaker).css,
                        }
                        yield event(str(seen), "writing", piece)
                    sent = now.number, len(now.text)
                state = self.state()
                if state != told:
                    told = state
                    yield event(str(seen), "state", state)
                if ended:
                    yield event(str(seen), "ended", {})
                    return
                try:
                    await asyncio.wait_for(changed.wait(), QUIET)
                except TimeoutError:
                    yield b": still here\n\n"
                await asyncio.sleep(TOGETHER)
        finally:
            self._watchers -= 1
            self._alone_since = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Return the figures around the messages, and who speaks next."""
        transcript = self.transcript
        last = transcript.messages[-1].speaker if transcript.messages else ASSISTANT
        return {
            "next": self.roles[USER if last == ASSISTANT else ASSISTANT],
            "task": transcript.task.text,
            "specified": bool(transcript.task.specified),
            "messages": len(self.html),
            "tokens": transcript.usage.total,
            "turn": self.waits,
            "proposals": self.render_case(self.case, self.round) if self.case else "",
            "writing": self.writing is not None,
            "ended": self.ended,
        }


class _Paying(WrappedModel):
    """A model that also counts cancelled calls, because the endpoint charges for them, and charges a visitor."""

    def __init__(self, model: Model, meter: ModelMeter, visitor: Visitor | None) -> None:
        super().__init__(MeteredModel(model, meter))
        self._meter, self._visitor = meter, visitor

    async def reply(self, request: Request) -> Reply:
        """Make the call if the budgets allow it."""
        if self._visitor:
            self._visitor.check_budget()
        used = Usage()
        try:
            reply = await self.inner.reply(request)
            used = reply.usage
            return reply
        except asyncio.CancelledError:
            # The maximum, because the endpoint does not report the tokens.
            most = request.sampling.max_tokens or UNLIMITED
            used = self._meter.priced(Usage(request.history.tokens, most, calls=1, unknown=1))
            self._meter.usage += used
            raise
        finally:
            if self._visitor:
                self._visitor.used += used


class Agents:
    """All rooms of a server: the model that speaks in them, the limits, and the run in which conversations are saved."""

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
        fork_options: Sequence[str] = (),
    ) -> None:
        """`fork_options` are the options of `camel fork` that name the same model."""
        self.name = name or model.name
        self.limits, self._sampling, self._keep_all = limits, sampling, keep_all
        self.fork_options = fork_options
        price = model.price or find(self.name)
        if budget.usd is not None and price is None:
            raise InputError(f"the price of '{self.name}' is unknown: use --budget-tokens instead")
        self.meter = Meter(budget, Halt())
        self._chat, self._price = model, price
        self.folder = prepared(out)
        self._rooms: OrderedDict[str, Room] = OrderedDict()
        self._group: asyncio.TaskGroup | None = None
        self._saving = asyncio.Lock()
        self.render: Render = lambda shown: ("", "")
        """Renders messages as HTML. The app replaces this default."""
        self.render_case: RenderCase = lambda case, number: ""
        """Renders proposals as HTML. The app replaces this default, too."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Allow conversations inside this context. When the context exits, all conversations end."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    yield
                finally:
                    self._group = None
                    for room in self._rooms.values():
                        room.stop("the server stopped")
        finally:
            # Its connections belong to this event loop.
            await self._chat.aclose()

    def charge(self, usage: Usage) -> None:
        """Charge what another process has used to the budget."""
        self.meter.model(self.name, self._price).usage += usage

    @property
    def in_progress(self) -> int:
        """The number of conversations that have not ended."""
        return sum(not room.ended for room in self._rooms.values())

    def begin(self, owner: str, wanted: Wanted, visitor: Visitor | None = None) -> Room:
        """Start a conversation. Raise an `InputError` if it cannot start."""
        if why := self.meter.over_budget():
            raise Full(f"{why}: restart the server with a larger budget")
        if self._group is None or self.in_progress >= self.limits.at_once:
            raise Full(
                f"{self.limits.at_once} conversations are in progress, which is the limit: stop one, or try again later"
            )
        # The endpoint may work again after a failure; the budget was checked above.
        self.meter.restart(Halt())
        wanted = _checked(wanted, self.limits)
        if visitor:
            visitor.start(sum(not room.ended and room.visitor is visitor for room in self._rooms.values()))
        room = Room(secrets.token_urlsafe(12), owner, wanted, self.limits, self.render)
        room.visitor = visitor
        model = _Paying(self._chat, self.meter.model(self.name, self._price), visitor)
        person = Person(room.ask, model=model)
        room.render_case = self.render_case
        critic = None
        if wanted.seat == CRITIC:
            critic = BestOf(judge=PersonJudge(room.choose, model), revisions=REVISIONS)
        sampling = self._sampling
        room.play = RolePlaying(
            assistant=wanted.assistant,
            user=wanted.user,
            task=wanted.task,
            model=person if wanted.seat == ASSISTANT else model,
            user_model=person if wanted.seat == USER else model,
            critic=critic,
            user_critic=critic,
            sampling=sampling,
            specifier=TaskSpecifier(sampling=Sampling(temperature=1.0, max_tokens=sampling.max_tokens))
            if wanted.specify
            else None,
            rules=play_rules(max_messages=wanted.messages),
            watch=room.watch,
        )
        self._rooms[room.id] = room
        ended = [one.id for one in self._rooms.values() if one.ended]
        for id in ended[: max(0, len(ended) - self.limits.kept)]:
            del self._rooms[id]
        room.begin(self._group, self._ended)
        return room

    def find(self, id: str) -> Room | None:
        """Return a room by its id. Return None if it does not exist."""
        return self._rooms.get(id)

    def of(self, owner: str) -> list[Room]:
        """Return the rooms that a browser started, the latest first."""
        return [room for room in reversed(self._rooms.values()) if owner and room.owner == owner]

    async def _ended(self, room: Room) -> None:
        if self._keep_all and room.html:
            await self.save(room)

    async def save(self, room: Room) -> str:
        """Save an ended conversation in the run, and return its id there."""
        if not room.ended:
            raise InputError("only an ended conversation can be saved: stop it first")
        if not room.html:
            raise InputError("the conversation has no messages: there is nothing to save")
        async with self._saving:
            if not room.saved:
                await asyncio.to_thread(append, self.folder, room.transcript)
                room.saved = room.transcript.id
        return room.saved


def _checked(wanted: Wanted, limits: RoomLimits) -> Wanted:
    for name, text, most in (
        ("the assistant's role", wanted.assistant, MAX_ROLE),
        ("the user's role", wanted.user, MAX_ROLE),
        ("the task", wanted.task, MAX_TASK),
    ):
        if not text.strip():
            raise InputError(f"{name} is missing: enter it, or choose an example")
        if len(text) > most:
            raise InputError(f"{name} has {len(text):,} characters: at most {most:,} are allowed")
    if wanted.seat not in ("", USER, ASSISTANT, CRITIC):
        raise InputError(f"the seat must be user, assistant, critic or empty, not {shown(wanted.seat)}")
    if not 2 <= wanted.messages <= limits.messages:
        raise InputError(f"messages must be from 2 to {limits.messages}, not {wanted.messages}")
    return wanted
