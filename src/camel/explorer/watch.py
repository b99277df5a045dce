"""The live page of a run: the open conversations, their last messages, what the run has used, and buttons to control it.

The one decision to know: everything is read from the run's folder. Replies come from the ends of the journals (each is
written before the conversation continues), totals from markers and journals together, rates and errors from the log. So
it works during a run, after it, and for a run that another machine executes. A journal stays open until it is read to its
end, even if its shard was committed meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Collection
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import ValidationError, convert
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from camel.core.action_text import call_line
from camel.core.errors import CamelError, InputError
from camel.core.grammar import parse
from camel.core.message import ToolCall, Usage
from camel.engine.stage import JournaledStep, read_step
from camel.explorer.colors import SEATS, ending
from camel.explorer.home import labels_in, open_source, run_head
from camel.explorer.routing import PageRequest, Refused, Site, event, event_stream
from camel.generation.config import CONVERSATIONS
from camel.generation.translate import STAGE as TRANSLATED
from camel.jobs.ledger import usage_of
from camel.jobs.progress import Snapshot
from camel.jobs.status import read_status
from camel.query.answers import NeedsConsent, NotThere
from camel.query.sources import CatalogueRun
from camel.record.release import RESTRICTED
from camel.reports.numbers import money, short
from camel.runs.again import named
from camel.runs.control import Wish, read_wish, wish
from camel.runs.plan import PlanRow, RunPlan, planned_layouts, read_plan
from camel.runs.scores import SCORE_STAGE
from camel.scenarios import RolePlay, Scenario, load
from camel.scenarios.lists import read_lists
from camel.storage.journal import Tail

EVERY = 0.4
"""Seconds between two readings of the journals."""
STATUS_EVERY = 2.0
"""Minimum seconds between two readings of markers and log. A slow reading increases the interval."""
WINDOW = 15.0
"""Seconds over which rates are averaged."""
LANES = 24
"""Maximum number of open conversations that are shown. The others are only counted."""
TEXT = 360
"""Maximum number of characters of a reply that are shown."""
KEPT = 2_000
"""Number of events that are stored for browsers that reconnect."""
GRACE = 30.0
"""Seconds for which journals stay open after the last browser has left."""
MOST_OPEN = 256
"""Maximum number of journals that are read at the same time."""


class _WatchedChoice(msgspec.Struct, gc=False):
    """One choice of a reply."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class _Reply(msgspec.Struct, gc=False):
    """The parts of a journaled reply that the page shows."""

    choices: tuple[_WatchedChoice, ...] = ()
    usage: Usage = Usage(calls=1, unknown=1)
    latency: float = 0.0


_reply = msgspec.msgpack.Decoder(_Reply).decode


class Lane(msgspec.Struct):
    """A conversation in progress, with its last message."""

    key: str
    id: str
    stage: str
    title: str
    who: str = ""
    """The role that spoke last."""
    css: str = "c-0"
    """The CSS class with the color of the speaker's seat."""
    text: str = ""
    replies: int = 0
    tokens: int = 0
    done: bool = False


class Event(msgspec.Struct, frozen=True):
    """A server-sent event with its number and kind."""

    number: int
    kind: str
    data: dict[str, Any]


class RunWatch:
    """Reads a run repeatedly, once for all browsers that watch it."""

    def __init__(self, source: CatalogueRun) -> None:
        self.source = source
        self.epoch = secrets.token_hex(4)
        """Distinguishes event numbers of this process from those of an earlier one."""
        self.events: deque[Event] = deque(maxlen=KEPT)
        self.number = 0
        self.lanes: OrderedDict[str, Lane] = OrderedDict()
        self.snapshot: Snapshot | None = None
        self._tails: dict[Path, Tail] = {}
        self._open: dict[tuple[str, int], Usage] = {}
        """Usage of the replies of each shard whose marker has not been read yet."""
        self._marked: dict[str, set[int]] = {}
        self._committed = Usage()
        """Usage of the shards whose markers have been read."""
        self._seen: deque[tuple[float, int, int]] = deque()
        self._status_at = 0.0
        self._scenario = _scenario(source)
        self._plan: RunPlan | None = None
        self._facts = lru_cache(maxsize=4_096)(self._read_facts)
        self._last: dict[str, Any] = {}
        self._viewers = 0
        self.closed = False
        self._looking, self._reading = asyncio.Lock(), threading.Lock()
        self._looked = 0.0

    @property
    def shows_text(self) -> bool:
        """Whether messages may be shown. They may not while the labels that they will get are unknown."""
        return self._scenario is not None or bool(self.source.parts)

    def hidden(self, allowed: Collection[str]) -> frozenset[str]:
        """Return the labels of the run to which the reader would first have to consent."""
        labels = labels_in(self.source).union(self._scenario.labels if self._scenario else ())
        return labels & RESTRICTED - set(allowed)

    # --- reading --------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Read what is new in the run. Concurrent callers share one reading."""
        async with self._looking:
            if time.monotonic() - self._looked >= EVERY / 2:
                await asyncio.to_thread(self.look_now)
                self._looked = time.monotonic()

    def look_now(self) -> None:
        """Read what is new in the run's folder, and add events for it."""
        with self._reading:
            changed, ended = self._read_journals()
            clock = time.monotonic()
            if clock >= self._status_at:
                with contextlib.suppress(CamelError, OSError):
                    self._read_markers()
                    self.snapshot = read_status(self.source.address)
                # A large run takes long to read, and is read less often.
                self._status_at = time.monotonic() + STATUS_EVERY + 20 * (time.monotonic() - clock)
            for lane in list(changed.values())[-LANES:]:
                self._tell("said", msgspec.to_builtins(lane))
            for path in ended:  # after the last messages, which would open their lanes again
                self._end(path)
            totals = self.totals()
            if totals != self._last:
                self._last = totals
                self._tell("totals", totals)

    def _tell(self, kind: str, data: dict[str, Any]) -> None:
        self.number += 1
        self.events.append(Event(self.number, kind, data))

    def _read_journals(self) -> tuple[dict[str, Lane], list[Path]]:
        """Return the lanes with new messages, and the journals that were deleted or moved."""
        changed: dict[str, Lane] = {}
        ended: list[Path] = []
        there: set[Path] = set()
        folder = self.source.folder
        journals = (path for stage in folder.journal_stages() for path in folder.files("journal", stage))
        for path in sorted(journals):
            there.add(path)
            if path not in self._tails and len(self._tails) < MOST_OPEN:
                with contextlib.suppress(OSError):
                    self._tails[path] = Tail(path)
        for path, tail in list(self._tails.items()):
            for payload in tail.new():
                with contextlib.suppress(msgspec.MsgspecError, IndexError):
                    lane = self._said(path, read_step(payload))
                    changed[lane.key] = lane
            if path not in there:  # its shard is committed, and its marker has the usage
                tail.close()
                del self._tails[path]
                ended.append(path)
        return changed, ended

    def _read_markers(self) -> None:
        """Count the usage of newly committed shards from their markers, and no longer from their journals."""
        folder = self.source.folder
        for stage in folder.stages():
            if stage.startswith((TRANSLATED, SCORE_STAGE)):  # another model may have done it
                continue
            marked = self._marked.setdefault(stage, set())
            new = folder.committed(stage) - marked
            for marker in folder.markers(stage, sorted(new)):
                self._committed += usage_of(marker.totals)
                self._open.pop((stage, marker.shard), None)
                marked.add(marker.shard)

    def _said(self, path: Path, entry: JournaledStep) -> Lane:
        reply = _reply(entry.result)
        stage, number = path.parent.name, path.name.partition("-")[0]
        shard = stage, int(number) if number.isdecimal() else -1
        if shard[1] not in self._marked.get(stage, ()):
            self._open[shard] = self._open.get(shard, Usage()) + reply.usage
        key, level = f"{stage}-{number}-{entry.item}", named(stage).stage
        id, title, roles = self._facts(level, entry.item)
        lane = self.lanes.pop(key, None) or Lane(key, id, stage, title)
        said = reply.choices[0]
        text = said.content or ", ".join(call_line(one.name, one.arguments) for one in said.calls)
        move = parse(text[:20_000])
        seat = "assistant" if move.solution is not None else "user" if move.instruction or move.done else ""
        lane.who, lane.css = (roles[seat], SEATS[seat].css) if seat else ("", "c-0")
        lane.text = (text if len(text) <= TEXT else text[: TEXT - 1] + "…") if self.shows_text else ""
        lane.replies += 1
        lane.tokens += reply.usage.total
        lane.done = move.done
        self.lanes[key] = lane
        while len(self.lanes) > 4 * LANES:
            self.lanes.popitem(last=False)
        return lane

    def _end(self, path: Path) -> None:
        """Close the lanes of a shard that is committed, or whose journal was moved."""
        prefix = f"{path.parent.name}-{path.name.partition('-')[0]}-"
        for key in [key for key in self.lanes if key.startswith(prefix)]:
            del self.lanes[key]
        self._tell("ended", {"prefix": prefix})

    # --- titles of lanes ----------------------------------------------------------------------------------

    def _read_facts(self, stage: str, item: int) -> tuple[str, str, dict[str, str]]:
        """Return the id of an item, the title of its lane, and the role in each seat."""
        unknown = {"user": "user", "assistant": "assistant"}
        scenario = self._scenario
        if scenario is None or stage in {level.name for level in scenario.asked}:
            title = f"List of {stage.replace('_', ' ')}"
            return f"{stage} {item + 1}", title, {"user": "", "assistant": ""}
        id = str(item)
        try:
            row = self._row(item)
            id = row.id if row else scenario.id(item)
            facts = row.values if row else scenario.facts(item, self._list)
        except (CamelError, OSError, LookupError, ValueError):
            return id, "", unknown
        if stage == CONVERSATIONS and isinstance(scenario.end, RolePlay):
            cast = scenario.end.cast(facts)
            return id, f"{cast.user} → {cast.assistant}", {"user": cast.user, "assistant": cast.assistant}
        return id, " · ".join(facts.values())[:200], unknown

    def _row(self, item: int) -> PlanRow | None:
        """Return the row of a table that an item was made from, or None if the run has no table."""
        if self._plan is None or item >= self._plan.count:
            self._plan = read_plan(self.source.folder)
        return self._plan.row(item) if self._plan and self._plan.steps[0].rows else None

    def _list(self, level: str, index: int) -> list[str]:
        assert self._scenario is not None
        folder = self.source.folder
        layout = planned_layouts(folder, folder.settings().planned)[level]
        shard = layout.shard_of(index)
        marker = folder.marker(level, shard)
        count = self._scenario.level(level).count
        text = folder.read(marker.file).decode("utf-8", "replace")
        return list(
            read_lists(text, source=marker.file, count=count)[index - layout.numbers(shard).start].items
        )

    # --- totals ------------------------------------------------------------------------------------------------

    def usage(self) -> Usage:
        """Return the usage of the run: from the log, or from markers and open journals if they contain more calls."""
        logged = self.snapshot.usage if self.snapshot else Usage()
        live = sum(self._open.values(), self._committed)
        return live if live.calls >= logged.calls else logged

    def totals(self) -> dict[str, Any]:
        """Return the figures of the page as text."""
        now = self.snapshot
        used = self.usage()
        clock = time.monotonic()
        if not self._seen or self._seen[-1][1:] != (used.calls, used.total) or clock - self._seen[-1][0] > 1:
            self._seen.append((clock, used.calls, used.total))
        while len(self._seen) > 2 and clock - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        then, calls, tokens = self._seen[0]
        passed = clock - then
        working = now is not None and now.state == "working"
        known = working and passed > 1  # two readings in quick succession give no rate
        price = now.money / max(1, now.usage.total) if now and now.money else 0
        stages = [{**msgspec.to_builtins(one), "name": one.title} for one in (now.stages if now else ())]
        open_lanes = sum(not lane.done for lane in self.lanes.values())
        figures = [
            ["tokens", short(used.total)],
            ["tokens/s", short((used.total - tokens) / passed) if known else ""],
            ["calls", f"{used.calls:,}"],
            ["calls/s", f"{(used.calls - calls) / passed:.1f}" if known else ""],
            ["spent", money(used.total * price) if price else ""],
            ["of the prompt cached", f"{used.cached / used.prompt:.0%}" if used.prompt else ""],
            ["in progress", f"{open_lanes:,}" if working else "0"],
            ["workers", f"{now.workers:,}" if now and working else ""],
            ["retries", f"{now.retries:,}" if now else "0"],
            ["rate limits", f"{now.rate_limited:,}" if now else "0"],
        ]
        return {
            "state": "paused" if now and now.paused else now.state if now else "new",
            "can": _can(now, self.source),
            "why": now.why if now else "",
            "working": working,
            "quiet": _quiet(now, working),
            "figures": [figure for figure in figures if figure[1]],
            "stages": stages,
            "stops": [[*ending(name)[:3], count] for name, count in (now.stops if now else {}).items()],
            "errors": [[name, count] for name, count in Counter(now.errors if now else {}).most_common()],
            "resume": now.resume if now and now.state in ("stopped", "new") else "",
        }

    def state(self) -> dict[str, Any]:
        """Return everything that a browser needs when it connects."""
        shown = list(self.lanes.values())[-LANES:]
        return {"totals": self.totals(), "lanes": [msgspec.to_builtins(lane) for lane in reversed(shown)]}

    def close(self) -> None:
        """Close the journals. The next browser needs a new `RunWatch`."""
        self.closed = True
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()

    # --- events -----------------------------------------------------------------------------------------------

    async def stream(self, last_id: str, allowed: Collection[str]) -> AsyncGenerator[bytes]:
        """Yield server-sent events: the state, then each change. A browser that reconnects first gets what it missed."""
        self._viewers += 1
        try:
            await self.look()
            sent = self.number
            epoch, _, number = last_id.partition("-")
            known = int(number) if number.isdecimal() and len(number) < 15 else -1
            missed = (
                [one for one in self.events if one.number > known]
                if epoch == self.epoch and known >= 0
                else []
            )
            yield b"retry: 1000\n\n"
            if missed and missed[0].number == known + 1:
                for one in missed:
                    yield self._encoded(one.kind, one.data, one.number)
                sent = missed[-1].number
            elif not (epoch == self.epoch and known == self.number):
                yield self._encoded("state", self.state(), sent)
            quiet = time.monotonic()
            while True:
                await asyncio.sleep(EVERY)
                await self.look()
                if await asyncio.to_thread(self.hidden, allowed):
                    yield self._encoded("closed", {}, self.number)
                    return
                for one in [one for one in self.events if one.number > sent]:
                    yield self._encoded(one.kind, one.data, one.number)
                    sent, quiet = one.number, time.monotonic()
                if time.monotonic() - quiet > 10:
                    quiet = time.monotonic()
                    yield b": still here\n\n"
        finally:
            self._viewers -= 1
            # After a while, because a browser may reconnect; but a deleted journal takes disk space while it is open.
            asyncio.get_running_loop().call_later(GRACE, self._close_if_alone)

    def _close_if_alone(self) -> None:
        if not self._viewers:
            self.close()

    def _encoded(self, kind: str, data: dict[str, Any], number: int) -> bytes:
        return event(f"{self.epoch}-{number}", kind, data)


def _scenario(source: CatalogueRun) -> Scenario | None:
    config = source.folder.settings().config
    try:
        name, lists = str(config.get("scenario", "")), config.get("lists", "asked")
        return load(name, lists).resized(config.get("counts", {}))
    except (CamelError, OSError):
        return None


def _quiet(now: Snapshot | None, working: bool) -> str:
    """Return the text that the page shows while no conversation is in progress."""
    if now and now.state == "complete":
        return "The run is complete."
    return "Messages appear here as they are written." if working else "The run is not being executed."


def _can(now: Snapshot | None, source: CatalogueRun) -> list[str]:
    """Return the requests that the run can accept: "pause" or "go", and "stop". Return none if no process can execute them."""
    if now is None or now.state == "complete" or (source.folder.on_disk and now.state != "working"):
        return []
    return ["go" if read_wish(source.folder) == "pause" else "pause", "stop"]


def add_watch_pages(site: Site) -> None:
    """Add the routes of the live page."""
    watched: dict[str, RunWatch] = {}

    def read_once(source: CatalogueRun) -> RunWatch:
        one = RunWatch(source)
        try:
            one.look_now()
        finally:
            one.close()
        return one

    @site.get("/watch/{run}")
    def watch(asked: PageRequest) -> Response:
        one = read_once(open_source(asked))
        return asked.page(
            "watch.html",
            here="runs",
            run=run_head(asked, one.source.name, "watch"),
            now=one.state(),
            events=f"/watch/{quote(one.source.name, safe='')}/events",
            text_hidden=not one.shows_text,
            control=site.control and f"/watch/{quote(one.source.name, safe='')}/control",
            wishes=(("pause", "Pause"), ("go", "Resume"), ("stop", "Stop after current calls")),
        )

    async def answer_wish(request: Request) -> Response:
        form = await site.form(request, "Open the live page of the run and press the button there.")

        def grant(wished: Wish) -> str:
            source = open_source(PageRequest(site, request))
            # The same wish twice is accepted: a button may be clicked twice.
            if wished not in read_once(source).totals()["can"] and wished != read_wish(source.folder):
                raise InputError(
                    f"the run cannot {wished} now: its live page has a button for what is possible"
                )
            wish(source.folder, wished)
            return source.name

        try:
            run = await asyncio.to_thread(grant, convert(form.get("wish", ""), Wish))
        except NeedsConsent:
            text = "Open the page of the run and give consent first."
            raise Refused(403, "Request rejected", text) from None
        except NotThere:
            raise
        except (ValidationError, CamelError, OSError) as error:
            raise Refused(400, "Request rejected", str(error)) from None
        return RedirectResponse(f"/watch/{quote(run, safe='')}", 303)

    site.add("POST /watch/{run}/control", answer_wish)

    @site.get("/watch/{run}/events")
    def events(asked: PageRequest) -> Response:
        source = open_source(asked)
        one = watched.get(source.name)
        if one is None or one.closed:
            one = watched[source.name] = RunWatch(source)
        one.source = source  # the current one, which has what was committed since
        return event_stream(
            asked.request, one.stream(asked.request.headers.get("last-event-id", ""), asked.allowed)
        )
