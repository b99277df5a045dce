"""The agents app: one loop for models and people, limits that hold, and nothing of the server's in its pages."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn
from starlette.testclient import TestClient

from camel import RolePlaying, Run
from camel.core.errors import InputError, NotAuthorized
from camel.core.message import Action, Sampling, ToolCall, Usage
from camel.core.model import Acted, Acting, Choice, Model, Reply, Request, Retrying, Text
from camel.core.task import SPECIFIER
from camel.explorer.app import create_app, listening
from camel.explorer.app import settings as serving_settings
from camel.explorer.rooms import Agents, Room, RoomLimits, Wanted, prepared
from camel.jobs.budget import Budget
from camel.jobs.status import read_status
from camel.models.person import PERSON
from camel.models.scripted import ScriptedModel
from camel.models.simulator import Constant, SimulatorSettings, spawn
from camel.query.catalogue import Catalogue
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.browser import Reader
from tests.support.explorer_client import BASE
from tests.support.payloads import CONTROL, PAYLOADS
from tests.support.societies import society
from tests.support.thread_server import ThreadServer
from tests.support.waiting import wait_for
from tests.support.web_page import Page

WANTED = {"assistant": "Guide", "user": "Nomad", "task": "Find a well", "messages": "6"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are sent as they come, and what was saved is found without waiting for the catalogue's next look."""
    monkeypatch.setattr("camel.explorer.rooms.TOGETHER", 0.0)
    monkeypatch.setattr("camel.query.database.FRESH", -math.inf)


def line(request: Request) -> str:
    """A society that never tires: every message is another one."""
    count = len(request.history.entries)
    return (
        f"Instruction: Step {count}\nInput: None" if request.speaker == "user" else f"Solution: Done {count}."
    )


class Slow(Model):
    """A model that says its text word by word, once it may start."""

    name = "slow"

    def __init__(self, author: Callable[[Request], str] = line) -> None:
        self._author = author
        self.go = asyncio.Event()
        self.asked = 0

    async def reply(self, request: Request) -> Reply:
        self.asked += 1
        await self.go.wait()
        said = self._author(request)
        if request.watch:
            request.watch(Text(request.speaker, "what is void"))
            await asyncio.sleep(0.01)
            request.watch(Retrying(request.speaker, "it broke", 0))
            for word in re.split(r"(?<= )", said):
                request.watch(Text(request.speaker, word))
                await asyncio.sleep(0.002)
        return Reply((Choice(said),), Usage(10, 5, 0, 1), self.name)


class Visitor:
    """A browser: a client with cookies of its own."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def token(self) -> str:
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.client.get("/play").text)
        assert found
        return found[1]

    def begin(self, **changed: str) -> str:
        answer = self.client.post("/play", data={"token": self.token(), **WANTED, **changed})
        assert answer.status_code == 303, Page(answer.text).said
        return answer.headers["location"]

    def do(self, where: str, what: str, text: str = "") -> int:
        return self.client.post(where, data={"token": self.token(), "do": what, "text": text}).status_code

    def page(self, where: str) -> Page:
        page = Page(self.client.get(where).text)
        assert page.wrong == []
        return page

    def events(self, where: str, seen: int = 0, **headers: str) -> list[tuple[str, Any]]:
        """All that happens there, to the end."""
        text = self.client.get(f"{where}/events?seen={seen}", headers=headers).text
        found = re.findall(r"^event: (\w+)\ndata: (.*)$", text, re.MULTILINE)
        return [(kind, json.loads(data)) for kind, data in found]

    def wait(self, where: str, words: str) -> None:
        wait_for(lambda: words in self.page(where).said)

    def wait_turn(self, agents: Agents, where: str) -> None:
        """Wait until the person at the room may speak."""
        wait_for(lambda: room_at(agents, where).waits)

    def wait_end(self, agents: Agents, where: str, reason: str) -> None:
        """Wait until the conversation has ended, for this reason."""
        room = room_at(agents, where)
        wait_for(lambda: room.ended)
        assert room.transcript.stop
        assert room.transcript.stop.reason == reason
        assert room.transcript.stop.detail[1:] in self.page(where).said


def room_at(agents: Agents, where: str) -> Room:
    room = agents.find(where.rpartition("/")[2])
    assert room
    return room


@contextmanager
def serving(
    tmp_path: Path, model: Model, **settings: Any
) -> Iterator[tuple[Visitor, Agents, Callable[[], Visitor]]]:
    agents = Agents(model, tmp_path / "agents", **settings)
    with Catalogue([tmp_path / "agents"]) as catalogue:
        app = create_app(catalogue, agents=agents)

        def visitor() -> Visitor:
            # Without a start of its own: all are guests of the one server below.
            return Visitor(TestClient(app, base_url=BASE, follow_redirects=False))

        with TestClient(app, base_url=BASE, follow_redirects=False) as first:

            def another() -> Visitor:
                made = visitor()
                made.client.portal = first.portal
                return made

            yield Visitor(first), agents, another


def test_a_conversation_of_two_agents_is_saved(tmp_path: Path):
    model = ScriptedModel(line)
    with serving(tmp_path, model) as (visitor, agents, _):
        where = visitor.begin(specify="on")
        events = visitor.events(where)
        said = [data["html"] for kind, data in events if kind == "message"]
        assert len(said) == 6
        assert events[-1][0] == "ended"
        assert all(Page(html).wrong == [] for html in said)
        page = visitor.page(where)
        assert "message limit" in page.said
        assert visitor.do(where, "save") == visitor.do(where, "save") == 303
        room = room_at(agents, where)
        link = next(link for link in visitor.page(where).links if link.startswith("/conversation/agents"))
        assert "Done 2." in visitor.page(link).said
    kept = list(Run(tmp_path / "agents"))
    assert [one.id for one in kept] == [room.saved], "saved once"
    assert kept[0].messages == room.transcript.messages
    assert kept[0].stop == room.transcript.stop
    assert read_status(str(tmp_path / "agents")).usage.total == kept[0].usage.total
    assert len(model.requests) == 7, "six messages and the task; nothing was asked twice"


def test_what_is_being_said_arrives_piece_by_piece(tmp_path: Path):
    model = Slow(lambda request: line(request) + " and on" * 10)
    with serving(tmp_path, model) as (visitor, _, _):
        where = visitor.begin(messages="3")
        visitor.client.portal.call(model.go.set)
        events = visitor.events(where)
        text, texts = "", list[str]()
        for kind, data in events:
            if kind == "writing":
                text = data["text"] if data["from"] == 0 else text + data["text"]
                assert data["css"] == f"s-{data['speaker']}"
            elif kind == "message":
                texts.append(text)
        assert len(texts) == 3
        for one in texts:
            assert "void" not in one
            assert re.match(r"(Instruction: Step|Solution: Done) \d.* and on and on", one, re.DOTALL), one
        assert events[-1][0] == "ended"
        assert [data["ended"] for kind, data in events if kind == "state"][-1]
        # Who comes back gets what was missed, and nothing twice.
        for seen, headers in ((2, {}), (0, {"last-event-id": "2"})):
            again = [data for kind, data in visitor.events(where, seen, **headers) if kind == "message"]
            assert len(again) == 1


async def test_what_is_said_last_reaches_who_reads_slowly():
    """The conversation ends while the reader takes what came before."""
    room = Room("id", "owner", Wanted("A", "B", "a task"), RoomLimits(), lambda shown: ("", ""))
    room.play = RolePlaying(assistant="A", user="B", task="a task", model=ScriptedModel(line))
    room.html.append("first")
    stream = room.stream(0)
    got = b""
    while b"event: state" not in got:
        got += await anext(stream)
    room.html.append("last")
    room.ended = True
    room._tell()
    async for part in stream:
        got += part
    assert got.count(b"event: message") == 2
    assert got.rstrip().endswith(b"{}")


async def test_calls_are_noted_while_the_agent_acts():
    room = Room("id", "owner", Wanted("A", "B", "a task"), RoomLimits(), lambda shown: ("", ""))
    room.watch(Text("assistant", "Let me see"))
    room.watch(Acting("assistant", ToolCall("1", "search", '{"q": "tea"}')))
    assert room.writing is not None
    assert (room.writing.text, room.writing.note) == ("", 'search(q="tea")')
    room.watch(Acted("assistant", Action("search", result="found")))
    room.watch(Text("assistant", "Solution"))
    assert (room.writing.text, room.writing.note) == ("Solution", "")
    for text in CONTROL:
        room.watch(Acting("assistant", ToolCall("2", text, text)))
        assert room.writing.note.isprintable()
        assert len(room.writing.note) < 200


def test_a_person_in_a_seat(tmp_path: Path):
    model = ScriptedModel(line)
    with serving(tmp_path, model) as (visitor, agents, another):
        where = visitor.begin(seat="user", specify="")
        visitor.wait_turn(agents, where)
        assert visitor.do(where, "say", "   ") == 409
        assert visitor.do(where, "say", "x" * 20_001) == 409
        assert visitor.do(where, "say", "Look <b>there</b>") == 303
        visitor.wait(where, "Done 2.")
        visitor.wait_turn(agents, where)
        assert visitor.do(where, "hand") == 303
        visitor.wait(where, "Done 4.")
        stranger = another()
        assert "Another browser started this conversation" in stranger.page(where).said
        for what in ("say", "stop", "save", "hand"):
            assert stranger.do(where, what, "x") == 403
        assert visitor.do(where, "save") == 409, "not before it has ended"
        assert visitor.do(where, "anything") == 409
        assert visitor.do(where, "stop") == 303
        visitor.wait_end(agents, where, "stopped")
        assert visitor.do(where, "say", "too late") == 409
        said = room_at(agents, where).transcript.messages
    assert [message.model for message in said] == [PERSON, "scripted", "scripted", "scripted"]
    assert said[0].content == "Instruction: Look <b>there</b>\nInput: None"


def test_what_may_be_said_may_be_said_in_any_script(tmp_path: Path):
    with serving(tmp_path, ScriptedModel(line)) as (visitor, agents, _):
        where = visitor.begin(seat="user", specify="")
        visitor.wait_turn(agents, where)
        assert visitor.do(where, "say", "🐫" * 20_001) == 409
        assert visitor.do(where, "say", "🐫" * 20_000) == 303
        visitor.wait(where, "Done 2.")
        said = room_at(agents, where).transcript.messages
        assert said[0].content.count("🐫") == 20_000


def test_forms_of_others_are_not_taken(tmp_path: Path):
    with serving(tmp_path, ScriptedModel(line)) as (visitor, agents, _):
        client = visitor.client
        where = visitor.begin(seat="user")
        for target, data in (("/play", WANTED), (where, {"do": "stop"})):
            assert client.post(target, data=data).status_code == 403
            assert client.post(target, data={**data, "token": "0" * 64}).status_code == 403
            good = {**data, "token": visitor.token()}
            for headers in ({"origin": "http://evil.invalid"}, {"sec-fetch-site": "cross-site"}):
                assert client.post(target, data=good, headers=headers).status_code == 403
        assert client.post(where, data={**good, "x": "y" * 300_000}).status_code == 403
        assert agents.in_progress == 1
        assert client.get("/play/nothing-here").status_code == 404
        assert client.get("/play/nothing-here/events").status_code == 404


def test_nothing_but_words_comes_from_the_browser(tmp_path: Path):
    """A model, an address or a key in the form changes nothing."""
    model = ScriptedModel(line)
    with serving(tmp_path, model) as (visitor, agents, _):
        where = visitor.begin(
            model="evil", base_url="http://169.254.169.254/", api_key="k", max_tokens="99999"
        )
        visitor.events(where)
        transcript = room_at(agents, where).transcript
    assert {message.model for message in transcript.messages} == {"scripted"}
    assert {request.sampling.max_tokens for request in model.requests} == {None}


def test_limits(tmp_path: Path):
    model = Slow()
    with serving(tmp_path, model, limits=RoomLimits(at_once=2, messages=8)) as (visitor, agents, another):
        first = visitor.begin()
        another().begin()
        full = visitor.client.post("/play", data={"token": visitor.token(), **WANTED})
        assert full.status_code == 429
        assert re.search(r"\b2\b", Page(full.text).said)
        visitor.do(first, "stop")
        visitor.wait_end(agents, first, "stopped")
        visitor.begin()
        for wrong in (
            {"messages": "9"},
            {"messages": "1"},
            {"task": ""},
            {"task": "x" * 4_001},
            {"user": "x" * 101},
            {"assistant": " "},
            {"seat": "referee"},
        ):
            visitor.client.portal.call(model.go.set)
            for room in list(agents._rooms.values()):
                visitor.client.portal.call(room.stop)
            wait_for(lambda: not agents.in_progress)
            refused = visitor.client.post("/play", data={"token": visitor.token(), **WANTED, **wrong})
            assert refused.status_code == 400, wrong
            assert Page(refused.text).wrong == []
    for wrong_limits in ({"at_once": 0}, {"messages": -1}, {"seat_seconds": 0}):
        with pytest.raises(InputError, match="above zero"):
            RoomLimits(**wrong_limits)


def test_the_budget_ends_it(tmp_path: Path):
    model = ScriptedModel(lambda request: Reply((Choice(line(request)),), Usage(50, 50, 0, 1), "scripted"))
    with serving(tmp_path, model, budget=Budget(tokens=350)) as (visitor, agents, _):
        where = visitor.begin(messages="20")
        visitor.events(where)
        assert "350 tokens" in visitor.page(where).said
        assert len(model.requests) == 4, "not one call beyond it"
        again = visitor.client.post("/play", data={"token": visitor.token(), **WANTED})
        assert again.status_code == 429
        assert visitor.do(where, "save") == 303, "what was paid for can be kept"
        assert agents.meter.usage.total == 400
    with pytest.raises(InputError, match="price"):
        Agents(model, tmp_path / "agents", budget=Budget(usd=1.0))


def test_who_stops_a_reply_pays_for_it(tmp_path: Path):
    """Otherwise calls that are stopped again and again would cost nothing in the budget."""
    model = Slow()
    sampling = Sampling(max_tokens=100)
    with serving(tmp_path, model, sampling=sampling, budget=Budget(tokens=5_000)) as (visitor, agents, _):
        for number in range(1, 4):
            where = visitor.begin()
            wait_for(lambda number=number: model.asked >= number)
            visitor.do(where, "stop")
            visitor.wait_end(agents, where, "stopped")
            assert agents.meter.usage.completion == 100 * number
            assert agents.meter.usage.prompt > 100 * number


def test_a_room_that_is_stopped_at_once_has_ended(tmp_path: Path):
    agents = Agents(ScriptedModel(line), tmp_path / "agents")

    async def at_once() -> bool:
        async with agents.open():
            room = agents.begin("me", Wanted("Guide", "Nomad", "Find a well"))
            room.stop()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return room.ended

    assert asyncio.run(at_once())
    assert agents.in_progress == 0


def test_a_failure_is_shown_and_leaves_the_others_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def author(request: Request) -> Any:
        if request.speaker == SPECIFIER:
            return "A task"
        if "broken" in str(request.history.entries[0].content):
            raise RuntimeError("a mistake of ours")
        if "refused" in str(request.history.entries[0].content):
            return NotAuthorized("the key is wrong", status=401)
        return line(request)

    with serving(tmp_path, ScriptedModel(author)) as (visitor, _, _):
        broken = visitor.begin(user="broken", specify="")
        refused = visitor.begin(user="refused", specify="")
        visitor.events(broken)
        visitor.events(refused)
        assert "a mistake of ours" not in visitor.page(broken).said
        assert caplog.records[-1].exc_info, "the terminal shows it"
        assert "NotAuthorized: the key is wrong" in visitor.page(refused).said
        good = visitor.begin(specify="")
        assert sum(kind == "message" for kind, _ in visitor.events(good)) == 6
        assert visitor.do(broken, "save") == 409, "nothing was said"


def test_nobody_pays_for_what_nobody_reads(tmp_path: Path):
    model = ScriptedModel(line)
    limits = RoomLimits(alone_seconds=1e-9)
    with serving(tmp_path, model, limits=limits) as (visitor, agents, _):
        where = visitor.begin(messages="40", specify="")
        visitor.wait_end(agents, where, "stopped")
    assert len(model.requests) == 1


def test_who_says_nothing_has_left(tmp_path: Path):
    with serving(tmp_path, ScriptedModel(line), limits=RoomLimits(seat_seconds=0.01)) as (visitor, agents, _):
        where = visitor.begin(seat="assistant")
        visitor.wait_end(agents, where, "stopped")


def test_the_end_of_the_server_is_the_end_of_all(tmp_path: Path):
    with serving(tmp_path, ScriptedModel(line), keep_all=True) as (visitor, agents, _):
        watched = visitor.begin()
        visitor.events(watched)
        seated = visitor.begin(seat="assistant")
        visitor.wait_turn(agents, seated)
    kept = list(Run(tmp_path / "agents"))
    assert [one.stop.reason for one in kept if one.stop] == ["max_messages", "stopped"]
    assert kept[1].stop


def test_rooms_that_ended_are_forgotten_in_time(tmp_path: Path):
    with serving(tmp_path, ScriptedModel(line), limits=RoomLimits(kept=2)) as (visitor, agents, _):
        places = []
        for _ in range(5):
            places.append(visitor.begin(specify="", messages="2"))
            visitor.events(places[-1])
        assert visitor.client.get(places[0]).status_code == 404
        assert visitor.client.get(places[-1]).status_code == 200
        assert len(agents._rooms) <= 3


def test_hostile_words_stay_words(tmp_path: Path):
    said = iter([text for text in PAYLOADS for _ in range(2)])
    model = ScriptedModel(lambda request: f"Instruction: {next(said)}\nSolution: x")
    with serving(tmp_path, model, limits=RoomLimits(messages=2)) as (visitor, _, _):
        for text in PAYLOADS[::3]:
            clean = text.encode("utf-8", "replace").decode()[:100]
            if not clean.strip():
                continue
            where = visitor.begin(user=clean, assistant=clean, task=clean, messages="2", specify="")
            for kind, data in visitor.events(where):
                if kind == "message":
                    assert Page(data["html"]).wrong == []
            assert clean.split()[0] in visitor.page(where).said
        visitor.page("/play")


def test_the_run_that_keeps_them(tmp_path: Path):
    assert prepared(tmp_path / "new").address == prepared(tmp_path / "new").address
    society(tmp_path / "other", rows=3)
    with pytest.raises(InputError, match="other"):
        prepared(tmp_path / "other")
    (tmp_path / "half" / "committed" / "conversations").mkdir(parents=True)
    with pytest.raises(InputError, match="half"):
        prepared(tmp_path / "half")


def test_every_route_needs_the_token(tmp_path: Path):
    agents = Agents(ScriptedModel(line), tmp_path / "agents")
    with Catalogue([tmp_path / "agents"]) as catalogue:
        app = create_app(catalogue, agents=agents, token="s" * 20)
        client = TestClient(app, base_url=BASE, follow_redirects=False)
        for path in ("/play", "/play/x", "/play/x/events"):
            assert client.get(path).status_code == 401
        for path in ("/play", "/play/x"):
            assert client.post(path, data=WANTED).status_code == 401
        there = {route.path for route in app.routes if "/play" in getattr(route, "path", "")}  # type: ignore[attr-defined]
    assert there == {"/play", "/play/{room}", "/play/{room}/events"}


def test_the_app_without_agents_has_none(tmp_path: Path):
    open_folder(tmp_path / "run").create(Settings("f", {}, "0"))
    with Catalogue([tmp_path / "run"]) as catalogue:
        client = TestClient(create_app(catalogue), base_url=BASE)
        assert client.get("/play").status_code == 404
        assert "/play" not in client.get("/").text


@pytest.mark.slow
def test_in_a_browser(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    settings = SimulatorSettings(length=Constant(7), tokens_per_second=400, words=40)
    with spawn(settings) as endpoint:
        app = ThreadServer("agents", "--out", tmp_path / "agents", "--base-url", endpoint.base_url)
        try:
            reader = Reader(chromium, app)
            page = reader.page
            reader.go("/play")
            page.click(".ideas a >> nth=1")
            assert page.input_value("[name=assistant]") == "Chef"
            page.click("button:has-text('Start')")
            page.wait_for_selector(".ending:not(.waiting)")
            count = page.locator(".message").count()
            assert count == 7
            assert page.locator(".message.writing").count() == 0
            page.click("button:has-text('Save')")
            page.wait_for_selector("a.btn[href^='/conversation/']")
            page.click("a.btn[href^='/conversation/']")
            page.wait_for_selector("svg.score")
            assert page.locator(".message").count() == count
            # A seat: what is said appears, the model answers, and it can be asked to speak instead.
            reader.go("/play?assistant=Chef&user=Event+Planner&task=Plan+a+dinner&seat=user")
            page.click("button:has-text('Start')")
            page.wait_for_selector("#composer[data-turn=yes]")
            assert page.evaluate("document.activeElement.id") == "say"
            page.keyboard.type("Propose <b>one</b> starter")
            page.keyboard.press("Control+Enter")
            page.wait_for_selector("#m2")
            assert "Propose <b>one</b> starter" in page.inner_text("#m1")
            assert page.input_value("#say") == ""
            page.wait_for_selector("#composer[data-turn=yes]")
            page.click("button[value=hand]")
            page.wait_for_selector("#m4")
            page.reload()
            assert page.locator(".message").count() >= 4
            page.click("button:has-text('Stop')")
            page.wait_for_selector(".ending:not(.waiting)")
            # The critic's seat: a change of a proposal, a choice, and markup that stays text.
            reader.go("/play?assistant=Chef&user=Event+Planner&task=Plan+a+buffet&seat=critic")
            page.click("button:has-text('Start')")
            page.wait_for_selector(".option >> nth=2")
            page.check("[name=proposal][value='2']")
            page.fill("#say", "<img src=x onerror=window.pwned=1>")
            page.click("button[value=change]")
            page.wait_for_selector(".option >> nth=2", state="detached")
            page.check("[name=proposal][value='2']")
            page.click("button[value=choose]")
            page.wait_for_selector("#m1 .critic")
            assert "Chosen from 4 proposals" in page.inner_text("#m1 .critic summary")
            assert "<img src=x onerror=window.pwned=1>" in page.text_content("#m1 .critic")
            assert page.evaluate("window.pwned") is None
            page.wait_for_selector(".option >> nth=2")
            page.click("button[value=hand]")
            page.wait_for_selector("#m2 .critic")
            page.click("button:has-text('Stop')")
            page.wait_for_selector(".ending:not(.waiting)")
            for width in (390, 1280):
                page.set_viewport_size({"width": width, "height": 800})
                for path in ("/play", page.url):
                    reader.go(path)
                    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
            assert "sk-very-secret" not in page.content()
            reader.close()
            # Without JavaScript: the same forms, and the page shows what was said when it is loaded again.
            plain = Reader(chromium, app, java_script_enabled=False)
            plain.go("/play?assistant=Chef&user=Event+Planner&task=Plan+a+lunch&seat=user")
            with plain.page.expect_navigation():
                plain.page.click("button:has-text('Start')")
            for wanted in ("#whose:has-text('your turn')", "#m2"):
                wait_for(lambda wanted=wanted: plain.page.reload() and plain.page.locator(wanted).count())
                if wanted != "#m2":
                    plain.page.fill("#say", "Propose a starter")
                    with plain.page.expect_navigation():
                        plain.page.click("button[value=say]")
            plain.close()
            ledger = endpoint.ledger()
        finally:
            app.stop()
        assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
        assert ledger.billed < 40
        assert ledger.billed_repeats == 0, "nothing was paid for twice"
    assert len(Run(tmp_path / "agents")) == 1


class Here:
    """The app in a thread of this process, over any model."""

    def __init__(self, agents: Agents) -> None:
        self._catalogue = Catalogue([agents.folder.address])
        self._socket = listening("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(serving_settings(create_app(self._catalogue, agents=agents)))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def __enter__(self) -> Here:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._socket.close()
        self._catalogue.close()


class Held(Model):
    """A model that says its first words, and the rest when it may continue."""

    name = "held"

    def __init__(self) -> None:
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def reply(self, request: Request) -> Reply:
        assert request.watch
        request.watch(Text(request.speaker, "My first <b>words</b>"))
        event = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()
        return Reply((Choice(line(request)),), Usage(10, 5, 0, 1), self.name)

    def go_on(self) -> None:
        wait_for(lambda: self._waiting)
        loop, event = self._waiting.pop()
        loop.call_soon_threadsafe(event.set)


@pytest.mark.slow
def test_words_appear_in_a_browser_while_they_are_written(chromium: Any, tmp_path: Path):
    model = Held()
    with Here(Agents(model, tmp_path / "agents")) as here:
        reader = Reader(chromium, here)
        page = reader.page
        reader.go("/play?" + urlencode({"user": "Nomad", "assistant": "Guide", "task": "Find a well"}))
        page.uncheck("[name=specify]")
        page.fill("[name=messages]", "2")
        page.click("button:has-text('Start')")
        for number in (1, 2):
            page.wait_for_selector(".message.writing:has-text('My first <b>words</b>')")
            model.go_on()
            page.wait_for_selector(f"#m{number}:has-text('{'Step' if number == 1 else 'Done'}')")
        page.wait_for_selector(".ending:not(.waiting)")
        assert page.locator(".message.writing").count() == 0
        reader.close()


@pytest.mark.slow
def test_hostile_words_in_a_browser(chromium: Any, tmp_path: Path):
    """Every payload as it streams in, as a finished message, as a role and as a task: nothing runs, nothing is fetched."""
    clean = [text.encode("utf-8", "replace").decode() for text in PAYLOADS]
    said = itertools.count()

    def author(request: Request) -> str:
        one, other = (clean[next(said) % len(clean)] for _ in range(2))
        if request.speaker == "user":
            return f"Instruction: {one}\nInput: {other}"
        return f"{one}\n\nSolution: {other}\nNext request."

    model = ScriptedModel(author)
    rules = RoomLimits(messages=200)
    with Here(Agents(model, tmp_path / "agents", limits=rules, keep_all=True)) as here:
        reader = Reader(chromium, here)
        page = reader.page
        for number in range(0, len(clean), 40):
            hostile = next(text for text in clean[number:] if text.strip())[:100]
            reader.go("/play?" + urlencode({"user": hostile, "assistant": "x", "task": hostile}))
            page.uncheck("[name=specify]")
            page.fill("[name=messages]", "40")
            page.click("button:has-text('Start')")
            page.wait_for_selector(".ending:not(.waiting)")
            assert page.locator(".message").count() >= 1
            assert page.evaluate("window.pwned") is None
            for fold in page.locator(".message details").all()[:3]:
                fold.locator("summary").click()
        reader.close()
    assert next(said) > len(clean), "all of them were said"
    assert len(Run(tmp_path / "agents")) >= 3


@pytest.mark.real_model
def test_with_the_real_model(tmp_path: Path, small_model: Any):
    """The small model behind the whole of it: words arrive in pieces, a person says something, it is saved."""
    sampling, limits = Sampling(temperature=0.8, max_tokens=16), RoomLimits(messages=2)
    with serving(tmp_path, small_model, sampling=sampling, limits=limits, budget=Budget(tokens=50_000)) as (
        visitor,
        agents,
        _,
    ):
        where = visitor.begin(messages="2", specify="on")
        events = visitor.events(where)
        assert [kind for kind, _ in events].count("writing") > 4
        said = [kind for kind, _ in events].count("message")
        assert 1 <= said <= 2
        seated = visitor.begin(messages="2", seat="user", specify="")
        visitor.wait_turn(agents, seated)
        assert visitor.do(seated, "say", "Name one well") == 303
        visitor.events(seated)
        for one in (where, seated):
            assert visitor.do(one, "save") == 303
        used = agents.meter.usage
    kept = list(Run(tmp_path / "agents"))
    assert [len(one.messages) for one in kept] == [said, 2]
    assert [message.model for message in kept[1].messages] == [PERSON, small_model.name]
    assert used == sum((one.usage for one in kept), Usage())


def test_a_person_in_the_seat_of_the_critic(tmp_path: Path):
    """The person chooses, asks for a change of a proposal, and hands over, as in the terminal."""
    count = itertools.count(1)

    def propose(request: Request) -> str:
        if request.expects is None:
            return '{"choice": 1, "reason": "short"}'
        move = "Instruction: Step {}\nInput: None" if request.speaker == "user" else "Solution: Done {}."
        return move.format(f"<b>{next(count)}</b>")

    with serving(tmp_path, ScriptedModel(propose)) as (visitor, agents, another):
        where = visitor.begin(seat="critic", specify="", messages="3")
        room = room_at(agents, where)

        def rule(what: str, proposal: str, text: str = "", round: int | None = None) -> int:
            form = {"token": visitor.token(), "do": what, "proposal": proposal, "text": text}
            number = room.round if round is None else round
            return visitor.client.post(where, data=form | {"round": str(number)}).status_code

        visitor.wait_turn(agents, where)
        page = visitor.page(where)
        assert "<b>2</b>" in page.said, "as text, not as markup"
        assert 'name="proposal"' not in another().client.get(where).text
        assert visitor.do(where, "say", "Instruction: mine") == 409
        for proposal, text, what in (
            ("", "", "choose"),
            ("4", "", "choose"),
            ("0", "", "choose"),
            ("1", " ", "change"),
        ):
            assert rule(what, proposal, text) == 409
        assert rule("choose", "1", round=room.round - 1) == 409, "of proposals that are gone"
        assert rule("change", "2", "shorter") == 303
        wait_for(lambda: room.case is not None and room.round == 2)
        assert room.case
        assert [option.content.partition("<b>")[2][0] for option in room.case.options] == ["2", "4"]
        assert rule("choose", "2") == 303
        wait_for(lambda: room.case is not None and room.round == 3)
        assert visitor.do(where, "hand") == 303
        wait_for(lambda: room.case is not None and room.round == 4)
        assert rule("choose", "3") == 303
        visitor.wait_end(agents, where, "max_messages")
        first, second, third = (message.deliberation for message in room.transcript.messages)
    assert first
    assert (first.critic, first.choice, len(first.proposals)) == (PERSON, 3, 4)
    assert first.proposals[1].reason == "shorter"
    assert first.proposals[3].revises
    assert second
    assert second.critic != PERSON
    assert third
    assert third.choice == 2
