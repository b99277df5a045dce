"""The live view: what is in a run's folder, told as it comes, and nothing twice or never."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel.core.message import Action, ToolCall, Usage
from camel.core.model import Choice, Reply
from camel.engine.stage import NOTHING, JournaledStep, write_step
from camel.explorer import watch
from camel.explorer.watch import RunWatch
from camel.query.catalogue import Catalogue
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings
from camel.storage.journal import Journal, Tail
from camel.storage.store import StoreFailed
from tests.support.payloads import CONTROL
from tests.support.societies import commit, society, transcript

STAGE = "conversations"
EVERY = watch.EVERY
"""Seconds between two looks, as users have it; tests look more often."""


async def say(journal: Journal, item: int, step: int, text: str) -> None:
    reply = msgspec.msgpack.encode(Reply((Choice(text),), Usage(10, 5, 2, 1), "m"))
    await journal.append(msgspec.msgpack.encode((item, step, b"check", reply)))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = open_folder(tmp_path / "run")
    config = {
        "scenario": "ai_society",
        "counts": {"assistant_role": 2, "user_role": 2, "task": 2},
        "shard_size": 4,
    }
    made.create(Settings("f", config, "0"))
    return made


@pytest.fixture
def now(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(watch, "STATUS_EVERY", 0.0)
    monkeypatch.setattr(watch, "EVERY", 0.02)
    with Catalogue([folder.root]) as catalogue:
        one = RunWatch(catalogue.runs[0])
        yield one
        one.close()


async def test_replies_appear_and_are_counted_once(folder: RunFolder, now: RunWatch):
    journal = folder.open_journal(STAGE, 0, "a1")
    await say(journal, 0, 0, "Instruction: Fetch water\nInput: None")
    now.look_now()
    assert [lane.text for lane in now.lanes.values()] == ["Instruction: Fetch water\nInput: None"]
    assert now.usage().calls == 1
    await say(journal, 0, 1, "Solution: Here it is.\nNext request.")
    await say(journal, 1, 0, "Instruction: Sing")
    now.look_now()
    now.look_now()
    assert {lane.id: lane.replies for lane in now.lanes.values()} == {"001_001_001": 2, "001_001_002": 1}
    assert now.usage() == Usage(30, 15, 6, 3)
    # Said, committed and dropped between two looks: still heard, and counted by the marker from then on.
    await say(journal, 1, 1, "<CAMEL_TASK_DONE>")
    commit(folder, 0, [transcript(n) for n in range(4)])
    await journal.close()
    folder.drop_journals(STAGE, 0)
    before = now.number
    now.look_now()
    told = [event for event in now.events if event.number > before]
    assert [event.kind for event in told if event.kind != "totals"] == ["said", "ended"]
    assert any(event.kind == "said" and event.data["done"] for event in told)
    assert not now.lanes


async def test_tool_calls_in_a_journal(folder: RunFolder, now: RunWatch):
    """A reply that calls tools shows the calls. The entries before and after a call are no replies."""
    journal = folder.open_journal(STAGE, 0, "a1")
    calls = ToolCall("1", "search", '{"q": "tea"}'), ToolCall("2", CONTROL[0], CONTROL[-1])
    replies = (Choice("", calls=calls), Choice("Solution: Tea.", calls=calls[:1]))
    done = msgspec.msgpack.encode((msgspec.msgpack.encode(Action("search", result=CONTROL[-2])),))
    for step, choice in zip((0, 3), replies, strict=True):
        reply = msgspec.msgpack.encode(Reply((choice,), Usage(10, 5, 2, 1), "m"))
        await journal.append(msgspec.msgpack.encode((0, step, b"check", reply)))
        await journal.append(write_step(JournaledStep(0, step + 1, b"check", NOTHING, begun=True)))
        await journal.append(write_step(JournaledStep(0, step + 1, b"check", done)))
        now.look_now()
        (lane,) = now.lanes.values()
        assert lane.text.startswith(('search(q="tea"), [2J[31mred', "Solution: Tea.")[step // 3])
        assert len(lane.text) <= watch.TEXT
    assert lane.replies == now.usage().calls == 2
    await journal.close()


async def test_half_a_reply_waits_for_its_other_half(tmp_path: Path):
    whole = Journal(tmp_path / "whole")
    for n in range(3):
        await whole.append(b"payload %d" % n)
    await whole.close()
    data = (tmp_path / "whole").read_bytes()
    grown = tmp_path / "grown"
    grown.write_bytes(b"")
    tail, seen = Tail(grown), []
    with grown.open("ab", buffering=0) as file:
        for byte in data:
            file.write(bytes([byte]))
            seen += tail.new()
    assert seen == [b"payload 0", b"payload 1", b"payload 2"]
    tail.close()


async def first(stream: Any, count: int) -> list[dict[str, Any]]:
    """Events of a stream, decoded."""
    found: list[dict[str, Any]] = []
    async with contextlib.aclosing(stream):
        async for part in stream:
            fields = dict(line.split(": ", 1) for line in part.decode().splitlines() if ": " in line)
            if "event" in fields:
                found.append(
                    {
                        "id": fields["id"],
                        "event": fields["event"],
                        "data": msgspec.json.decode(fields["data"]),
                    }
                )
            if len(found) >= count:
                break
    return found


async def test_a_viewer_that_was_cut_off_gets_what_it_missed(folder: RunFolder, now: RunWatch):
    journal = folder.open_journal(STAGE, 0, "a1")
    await say(journal, 0, 0, "Instruction: One")
    begun = await first(now.stream("", ()), 1)
    assert begun[0]["event"] == "state"
    assert begun[0]["data"]["lanes"][0]["text"] == "Instruction: One"
    for n in range(3):
        await say(journal, n, 1, f"Solution: {n} event: said\ndata: forged\n\n")
    missed = await first(now.stream(begun[0]["id"], ()), 3)
    assert [event["data"]["text"][:11] for event in missed if event["event"] == "said"] == [
        f"Solution: {n}" for n in range(3)
    ]
    # Of another start of the server: everything, once.
    again = await first(now.stream("00000000-7", ()), 1)
    assert again[0]["event"] == "state"
    assert len(again[0]["data"]["lanes"]) == 3
    for odd in ("", "x", f"{now.epoch}-", f"{now.epoch}-{'9' * 40}", f"{now.epoch}--1", "é-1"):
        assert (await first(now.stream(odd, ()), 1))[0]["event"] == "state"
    await journal.close()


async def test_an_event_is_sent_at_the_next_look(
    folder: RunFolder, now: RunWatch, monkeypatch: pytest.MonkeyPatch
):
    assert EVERY <= 0.5, "what was said is seen within a second"
    looks: list[int] = []
    look_now = now.look_now
    monkeypatch.setattr(now, "look_now", lambda: (looks.append(now.number), look_now()))
    journal = folder.open_journal(STAGE, 0, "a1")
    await say(journal, 0, 0, "Instruction: One")
    stream = now.stream("", ())
    await anext(stream)
    await anext(stream)
    await say(journal, 1, 0, "Instruction: Two")
    looks.clear()
    async with asyncio.timeout(120):
        async for part in stream:
            if b"Instruction: Two" in part:
                break
    assert len(looks) == 1
    await stream.aclose()
    await journal.close()


async def test_a_stream_is_closed_when_its_run_becomes_restricted(folder: RunFolder, now: RunWatch):
    stream = now.stream("", ())
    await anext(stream)
    await anext(stream)
    commit(folder, 0, [transcript(0, labels=["misalignment"])])
    with Catalogue([folder.root]) as catalogue:
        now.source = catalogue.runs[0]
        rest = [part async for part in stream]
    assert b"event: closed" in rest[-1]


async def test_nobody_waits_for_a_store_that_does_not_answer(
    folder: RunFolder, now: RunWatch, monkeypatch: pytest.MonkeyPatch
):
    asked: list[threading.Thread] = []

    def fails(_: RunFolder) -> Any:
        asked.append(threading.current_thread())
        raise StoreFailed("no answer")

    monkeypatch.setattr(RunFolder, "settings", fails)
    journal = folder.open_journal(STAGE, 0, "a1")
    stream = now.stream("", ())
    await anext(stream)
    await anext(stream)
    await say(journal, 0, 0, "Instruction: One")
    await anext(stream)
    await stream.aclose()
    await journal.close()
    assert threading.main_thread() not in asked


def test_labels_that_a_run_will_have_are_known_while_its_store_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = open_folder(tmp_path / "run")
    made.create(Settings("f", {"scenario": "misalignment"}, "0"))
    with Catalogue([made.root]) as catalogue:
        one = RunWatch(catalogue.runs[0])

        def fails(_: RunFolder) -> Any:
            raise StoreFailed("no answer")

        monkeypatch.setattr(RunFolder, "settings", fails)
        assert one.hidden(()) == {"misalignment"}
        assert not one.hidden(["misalignment"])
        one.close()


def test_text_waits_until_its_labels_are_known(tmp_path: Path):
    made = open_folder(tmp_path / "run")
    made.create(Settings("f", {"scenario": str(tmp_path / "gone")}, "0"))
    with Catalogue([made.root]) as catalogue:
        one = RunWatch(catalogue.runs[0])
        assert not one.shows_text
        journal = made.open_journal(STAGE, 0, "a1")
        asyncio.run(say(journal, 0, 0, "Instruction: a secret"))
        one.look_now()
        assert [lane.text for lane in one.lanes.values()] == [""]
        assert one.usage().calls == 1
        one.close()


def test_a_finished_run_is_watched_too(tmp_path: Path):
    society(tmp_path / "run", rows=20)
    with Catalogue([tmp_path / "run"]) as catalogue:
        one = RunWatch(catalogue.runs[0])
        one.look_now()
        assert not one.state()["lanes"]
        assert one.state()["totals"]["figures"]
        assert "complete" in one.state()["totals"]["quiet"]
