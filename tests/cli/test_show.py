"""`camel show`: a run's summary and one conversation, for people at 80 columns and as JSON; text of models is escaped."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from camel.cli.screen import Screen
from camel.cli.show import show_conversation  # pyright: ignore[reportPrivateUsage]
from camel.core.action_text import RAISED
from camel.core.message import Action, Deliberation, Message, Proposal, ToolCall
from camel.core.model import Acted, Acting, Event, Text
from camel.core.stops import Stop
from camel.core.transcript import ResultCall, Score, Speaker
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.command import camel
from tests.support.contests import a_run, conversation
from tests.support.payloads import CONTROL, PAYLOADS, acts
from tests.support.scored import store_scores
from tests.support.societies import commit, transcript


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    a_run(tmp_path / "run", numbers=range(890, 902), size=5)
    return tmp_path


def test_the_summary_of_a_run(folder: Path):
    done = camel("show", "run", cwd=folder)
    assert done.status == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "ai_society" in lines[0]
    assert lines[1].split() == ["models", "base"]
    assert any("12 of 12" in line for line in lines)
    assert [line.split()[0] for line in lines if "3 messages · done" in line] == [
        str(n) for n in range(890, 900)
    ]
    assert "  Build shed 891" in next(line for line in lines if "shed 891" in line)
    assert "2 more" in lines[-1]
    assert "camel explore run" in lines[-1]


def test_the_summary_as_json(folder: Path):
    found = json.loads(camel("show", "run", "--json", cwd=folder).stdout)
    assert found["scenario"] == "ai_society"
    assert [one["id"] for one in found["conversations"]] == [str(n) for n in range(890, 900)]
    assert found["conversations"][0]["ended"] == "done"
    assert found["conversations"][0]["task"].startswith("Build shed 890")


def test_a_conversation(folder: Path):
    done = camel("show", "run", "891", cwd=folder)
    assert done.status == 0, done.stderr
    assert "▌ Trader (user)" in done.stdout
    assert "Solution: Boards for 891." in done.stdout
    assert "3 messages" in done.stdout
    assert json.loads(camel("show", "run", "891", "--json", cwd=folder).stdout)["id"] == "891"


def test_tool_calls_and_scores(tmp_path: Path):
    """The summary has the figures of the selected conversations, and a conversation has all its scores."""
    made = [transcript(number) for number in range(8)]
    for number, one in enumerate(made):
        one.scores = {"check": Score(1.0, by="check"), "fair\x1b": Score(None, "why\x1b", text="so")}
        one.messages = one.messages or [Message(0, "user", "Trader", "x")]
        one.messages[0] = replace(
            one.messages[0], actions=[Action("convert_time", error="no" * (number < 3))]
        )
        one.stop, one.unspoken = Stop("done", "done") if number < 2 else None, []
    folder = open_folder(tmp_path / "two")
    folder.create(Settings("f", {"shard_size": 4}, "0"))
    for shard in range(2):
        some = made[4 * shard : 4 * shard + 4]
        commit(folder, shard, some)
        store_scores(folder, "helpful", shard, [one.id for one in some], [Score(4.5, "because")] * 4)
    calls = sum(len(message.actions) for one in made for message in one.messages)
    whole = json.loads(camel("show", "two", "--json", cwd=tmp_path).stdout)
    assert (whole["matches"], whole["tool_calls"], whole["failed_tool_calls"]) == (8, calls, 3)
    done = camel("show", "two", "--where", 'stop = "done" and tool contains "time"', cwd=tmp_path)
    assert done.status == 0, done.stderr
    lines = {words[0]: words[1:] for line in done.stdout.splitlines() if (words := line.split())}
    assert lines["matches"][:3] == ["2", "of", "8"]
    assert lines["endings"] == ["done", "2"]
    assert lines["tools"][-2:] == ["2", "failed"]
    where = ("show", "two", "--where", 'stop = "done"', "--json")
    some = json.loads(camel(*where, cwd=tmp_path).stdout)
    assert (some["stops"], some["failed_tool_calls"]) == ({"done": 2}, 2)
    assert some["usage"]["calls"] == made[0].usage.calls + made[1].usage.calls
    assert camel("show", "two", "--where", 'stop = "nothing"', cwd=tmp_path).status == 0
    text = camel("show", "two", made[5].id, cwd=tmp_path).stdout
    assert any(line.split() == ["check", "1"] for line in text.splitlines())
    assert "4.5 because" in text
    assert "\x1b" not in text
    assert set(json.loads(camel("show", "two", made[5].id, "--json", cwd=tmp_path).stdout)["scores"]) >= {
        "helpful"
    }


def test_a_damaged_file_does_not_hide_the_summary(folder: Path):
    last = sorted((folder / "run").rglob("*.parquet"))[-1]
    last.write_bytes(b"damaged")
    done = camel("show", "run", cwd=folder)
    assert done.status == 0, done.stderr


def test_labeled_conversations_must_be_acknowledged(folder: Path):
    refused = camel("show", "run", "900", cwd=folder)
    assert (refused.status, refused.stdout) == (2, "")
    assert "--acknowledge misalignment" in refused.stderr
    assert camel("show", "run", "900", "--acknowledge", "misalignment", cwd=folder).status == 0
    a_run(folder / "labeled", numbers=range(900, 902))
    for more in ([], ["--json"]):
        hidden = camel("show", "labeled", *more, cwd=folder).stdout
        assert "Build shed" not in hidden
        assert "--acknowledge misalignment" in hidden


def test_mistakes_are_one_line(folder: Path):
    for words, named in ((("run", "7"), "camel show run"), (("nothing",), "camel run list")):
        done = camel("show", *words, cwd=folder)
        assert done.status == 2
        assert named in done.stderr
        assert done.stderr.count("\n") == 1


def test_seats_have_colors_and_control_characters_are_replaced():
    evil = "\x1b]0;title\x07 and more"
    chosen = Deliberation("judge", (Proposal("a"), Proposal("b")), 1)
    plain = conversation("ai_society", 1)
    plain.speakers = [Speaker("user", evil, model="m"), Speaker("assistant", "Smith")]
    plain.messages = [
        Message(0, "user", evil, f"word {evil} " * 30),
        replace(plain.messages[1], content="short", deliberation=chosen, reasoning=evil),
    ]
    plain.result = {evil: evil, "stars": 4}
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, highlight=False, color_system="standard")
    show_conversation(console, plain, prompts=True, reasoning=True)
    text = out.getvalue()
    assert "\x1b]0" not in text
    assert "\x07" not in text
    assert "\x1b[1;36m▌" in text
    assert "\x1b[1;32m▌ Smith" in text
    assert "critic: 2 of 2" in text
    assert "stars" in text


def test_the_result_is_a_table():
    record = conversation("ai_society", 1)
    for result, error, shown in (
        ({"mood": "good", "n": None}, "", ["good", "null"]),
        (None, "no JSON", ["no JSON"]),
    ):
        record.result, record.result_call = result, ResultCall(error=error)
        out = io.StringIO()
        show_conversation(Console(file=out, width=80), record, prompts=False, reasoning=False)
        assert all(text in out.getvalue() for text in shown)


def printed(
    events: Iterable[Event], *, width: int = 80, terminal: bool = True, together: bool = False
) -> str:
    """What a screen prints for these events, without its own colors."""
    file = io.StringIO()
    screen = Screen(
        Console(file=file, force_terminal=terminal, width=width, color_system=None), {"user": "Trader"}
    )
    screen.introduce([Speaker("user", "Trader"), Speaker("assistant", "Guide")], together=together)
    for event in events:
        screen.watch(event)
    screen.end_message()
    return file.getvalue()


def acting(call: ToolCall, **known: Any) -> tuple[Acting, Acted]:
    return Acting("user", call), Acted("user", Action(call.name, call.arguments, call=call.id, **known))


def test_a_call_is_one_line_before_the_text():
    begun, ended = acting(ToolCall("1", "search", '{"q": "tea"}'), result="found\n4", seconds=1.26)
    lines = printed([Text("user", "Let me see."), begun, ended, Text("user", "Four.")]).splitlines()
    assert lines == [
        "▌ Trader (user)",
        "Let me see.",
        '  ▸ search(q="tea") → found 4 (1.3 s)',
        "Four.",
        "",
    ]
    assert printed([begun]).splitlines()[-2] == '  ▸ search(q="tea")'  # while it is running


def test_results_of_parallel_calls_name_their_call():
    one, other = (acting(ToolCall(name, name), result=f"of {name}") for name in "ab")
    lines = printed([one[0], other[0], one[1], other[1]]).splitlines()
    assert lines[1:5] == ["  ▸ a()", "  ▸ b()", "  ▸ a() → of a", "  ▸ b() → of b"]
    # Not in the middle of another speaker's message.
    said = printed([Text("assistant", "I was"), *one, Text("assistant", " first")], together=True)
    assert "I was first" in said
    assert "▸" not in said


def test_failed_calls_say_so():
    def last(error: str) -> str:
        return printed(acting(ToolCall("1", "f"), error=error), width=200).splitlines()[1]

    assert last("no network") == "  ▸ f() → failed: no network"
    assert (
        last("Traceback (most recent call last):\n  line 1\nNameError: x") == "  ▸ f() → failed: NameError: x"
    )


def test_a_failed_call_of_python_shows_its_exception():
    error = (
        f'{RAISED}Traceback (most recent call last):\n  File "<call 1>", line 1\n    x\nNameError: \x1b[31mx'
    )
    line = printed(acting(ToolCall("1", "python"), error=error)).splitlines()[1]
    assert line == "  ▸ python() → failed: NameError: [31mx"


@pytest.mark.parametrize("text", [*CONTROL, *PAYLOADS[::9]])
@pytest.mark.parametrize("terminal", [True, False])
def test_hostile_calls_stay_in_their_lines(text: str, terminal: bool):
    for one in acts(text):
        events = Acting("user", ToolCall("1", one.tool, one.arguments)), Acted("user", one)
        for some in (events, events[1:]):
            lines = printed(some, terminal=terminal).splitlines()
            assert lines[0] == "▌ Trader (user)"
            assert all(line.startswith("  ▸ ") or not line for line in lines[1:])
            assert all(line.isprintable() for line in lines)
            assert max(map(len, lines)) <= (80 if terminal else 260)


def test_calls_of_a_stored_conversation():
    one = conversation("ai_society", 1)
    act = Action("search", '{"q": "tea"}', "found", said="Let me see.")
    one.messages[0] = replace(one.messages[0], actions=[act])
    one.unspoken = [Action("python", error="interrupted")]
    file = io.StringIO()
    show_conversation(Console(file=file, width=80), one, False, False)
    text = file.getvalue()
    assert (
        text.index("Let me see.")
        < text.index('  ▸ search(q="tea") → found')
        < text.index(one.messages[0].content)
    )
    assert text.index(one.messages[-1].content) < text.index("  ▸ python() → failed: interrupted")
