"""People in the seats of `camel play`, through a pseudo-terminal: a process of its own, what it shows, what it keeps.

The texts of the seats are in tests/snapshots/screen.txt, through tests/cli/test_texts.py.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from camel import Transcript
from camel.cli.seat import STOPPED
from camel.models.simulator import SimulatorProcess, SimulatorSettings
from tests.support.command import camel
from tests.support.endpoints import serve
from tests.support.forks import Program, wait_until
from tests.support.rude import ATTACK, LINGER
from tests.support.terminal import ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, ENTER, UP, Terminal, paste

COMMAND = ["play", "--no-specify", "--save", "saved.json"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=None, words=20)) as process:
        yield process


def sit(
    endpoint: SimulatorProcess,
    folder: Path,
    *args: str,
    columns: int = 100,
    rows: int = 40,
    seat: str = "user",
) -> Terminal:
    env = {"XDG_STATE_HOME": str(folder / "state"), "EDITOR": "true"}
    command = [*COMMAND, "--base-url", endpoint.base_url, "--human", seat, *args]
    return Terminal(command, folder, env, columns, rows)


def kept(folder: Path) -> Transcript:
    return Transcript.from_json((folder / "saved.json").read_bytes())


def contents(folder: Path, speaker: str = "user") -> list[str]:
    return [message.content for message in kept(folder).messages if message.speaker == speaker]


def test_the_users_seat(endpoint: SimulatorProcess, tmp_path: Path):
    before = endpoint.ledger().requests
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt("› Enter")
        terminal.type("list the sources" + ENTER)
        seen = terminal.wait_for("▌ Python Programmer (assistant)\nSolution:", "Next request.")
        # What was typed has become a message like the others; the prompt for it is gone.
        assert "▌ Stock Trader (user, you)\nInstruction: list the sources\nInput: None\n" in seen
        assert "› list" not in seen
        terminal.prompt("› Enter")
        terminal.type("/done" + ENTER)
        assert terminal.end() == 0
        assert "3 messages, 1 call," in terminal.text
        assert terminal.modes == terminal.before
    transcript = kept(tmp_path)
    assert transcript.stop is not None
    assert transcript.stop.reason == "done"
    assert [message.model for message in transcript.messages] == ["person", "simulated", "person"]
    assert transcript.usage.calls == endpoint.ledger().requests - before == 1


def test_the_assistants_seat(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path, seat="assistant") as terminal:
        terminal.prompt()
        assert "Instruction:" in terminal.text
        assert "/done" not in terminal.text
        terminal.type("/done" + ENTER)
        terminal.wait_for("/done is", "/ai, /stop, /help")
        terminal.prompt()
        terminal.type("x = 1" + ENTER)
        terminal.wait_for("Solution: x = 1\nNext request.")
        terminal.prompt("› Enter")
        terminal.type("/stop" + ENTER)
        assert terminal.end() == 0
    assert contents(tmp_path, "assistant") == ["Solution: x = 1\nNext request."]
    stop = kept(tmp_path).stop
    assert stop is not None
    assert (stop.reason, stop.detail, stop.speaker) == ("stopped", STOPPED, "assistant")


def test_the_critics_seat(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path, seat="critic") as terminal:
        seen = terminal.prompt("› 1–3 chooses")
        assert "▌ Stock Trader (user) proposes" in seen
        offered = re.findall(r"^ \d │ (.*)$", seen, re.MULTILINE)
        assert len(set(offered)) == 3
        terminal.type("7" + ENTER)
        terminal.wait_for("no such option")
        terminal.prompt("›")
        terminal.type("2" + ENTER)
        terminal.wait_for(f"▌ Stock Trader (user)\n{offered[1]}")
        terminal.prompt("› 1–3")
        terminal.type("3 in rhymes" + ENTER)
        terminal.wait_for("2 is new")
        terminal.prompt("› 1–2")
        terminal.type("2" + ENTER)
        terminal.wait_for("writing 3 proposals")
        terminal.prompt("› 1–3")
        terminal.type("/ai" + ENTER)
        terminal.wait_for("The model judges.", "◆ critic: ")
        terminal.prompt("› 1–3")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    first, second, third = kept(tmp_path).messages
    assert first.deliberation is not None
    assert second.deliberation is not None
    assert third.deliberation is not None
    assert (first.deliberation.critic, first.deliberation.choice) == ("person", 1)
    assert first.content == first.deliberation.proposals[1].content
    assert second.deliberation.proposals[2].reason == "in rhymes"
    assert second.deliberation.proposals[3].revises
    assert second.deliberation.choice == 3
    assert third.deliberation.critic == "simulated"
    assert third.content == third.deliberation.proposals[third.deliberation.choice].content


def test_several_lines_typed_and_pasted(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        terminal.type("one" + ALT_ENTER + "two" + CTRL_J + "three\\" + ENTER + "four")
        lines = ["› one", "  two", "  three", "  four"]
        terminal.until(lambda: terminal.shown[-4:] == lines, lines)
        # Back to the first line with the arrow keys, and a word into the middle.
        terminal.type(UP * 3 + "\x01" + "first ")
        terminal.prompt("› first one")
        terminal.type(ENTER)
        terminal.wait_for("Next request.")
        terminal.prompt("› Enter")
        terminal.type(paste("alpha\r\nbeta\rgamma\n\x1b[31m"))
        terminal.wait_for("alpha\n  beta\n  gamma\n  ")
        assert terminal.process.poll() is None
        assert len(contents(tmp_path)) == 1, "what is pasted is not sent"
        terminal.type(" red" + ENTER)
        terminal.wait_for("Instruction: alpha")
        terminal.prompt("› Enter")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    first, second = contents(tmp_path)
    assert first == "Instruction: first one\ntwo\nthree\nfour\nInput: None"
    assert second.startswith("Instruction: alpha\nbeta\ngamma\n")


def test_history_is_kept_for_its_owner_alone(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        terminal.type("the first thing" + ALT_ENTER + "in two lines" + ENTER)
        terminal.wait_for("Next request.")
        terminal.prompt("› Enter")
        terminal.type("thrown away" + CTRL_C)
        terminal.prompt("› Enter")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    file = tmp_path / "state" / "camel" / "history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        terminal.type(UP)
        terminal.prompt("› thrown away")
        terminal.type("\x15\x12" + "two")  # Ctrl+U, Ctrl+R
        seen = terminal.prompt("I-search backward: two")
        assert seen.endswith("› the first thing\n  in two lines\nI-search backward: two")
        terminal.type(ENTER)
        terminal.until(lambda: "I-search" not in "\n".join(terminal.shown), "the end of the search")
        terminal.type(ENTER)
        terminal.wait_for("Instruction: the first thing\nin two lines\nInput: None")
    size = file.stat().st_size
    with sit(endpoint, tmp_path, "--no-history") as terminal:
        terminal.prompt()
        terminal.type(UP)
        terminal.type("a secret" + ENTER)
        terminal.wait_for("Instruction: a secret")
    assert file.stat().st_size == size


def test_the_model_speaks_for_some_turns(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        for wrong in ("/ai 0", "/ai many", "/ai -1", "/ai ²"):
            terminal.type(wrong + ENTER)
            terminal.wait_for(f"not {wrong[4:]!r}")
            terminal.prompt("› Enter")
        terminal.type("/ai 2" + ENTER)
        terminal.until(lambda: terminal.text.count("▌ Stock Trader (user)\n") == 2, "two turns of the AI")
        terminal.prompt("› Enter")
        terminal.type("I am back" + ENTER)
        terminal.wait_for("Instruction: I am back")
        terminal.prompt("› Enter")
        terminal.type("/stop" + ENTER)
        assert terminal.end() == 0
    assert [m.model for m in kept(tmp_path).messages if m.speaker == "user"] == [
        "simulated",
        "simulated",
        "person",
    ]


def test_ctrl_c_takes_the_seat_back_from_the_ai_and_then_stops(tmp_path: Path):
    settings = SimulatorSettings(author="tests.support.rude:linger", tokens_per_second=60)
    with serve(settings) as slow, sit(slow, tmp_path, "--max-messages", "10000") as terminal:
        terminal.prompt()
        terminal.type("/ai 5000" + ENTER)
        terminal.wait_for("▌ Python Programmer (assistant)\nSolution:")
        terminal.type(CTRL_C)
        terminal.wait_for("seat back after")
        terminal.type("typed ahead")
        seen = terminal.prompt("› typed ahead")  # neither lost nor shown in the middle of what was said
        assert seen.count("typed ahead") == 1
        terminal.type(CTRL_C)
        terminal.prompt("› Enter")
        terminal.type(LINGER + ENTER)
        terminal.wait_for(f"Instruction: {LINGER}\nInput: None\n\n▌ Python Programmer (assistant)\nSolution:")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert terminal.modes == terminal.before
    assert contents(tmp_path)[-1] == f"Instruction: {LINGER}\nInput: None"
    stop = kept(tmp_path).stop
    assert stop is not None
    assert (stop.reason, stop.detail) == ("stopped", STOPPED)


def test_ctrl_c_at_the_prompt_asks_before_it_stops(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        terminal.type("half a thought" + CTRL_C)
        terminal.prompt("› Enter")
        terminal.type(CTRL_C)
        terminal.prompt("› Ctrl+C again")
        terminal.type("no, continue" + ENTER)
        terminal.wait_for("Instruction: no, continue")
        terminal.prompt("› Enter")
        terminal.type(CTRL_C + CTRL_C)
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text
        assert "saved saved.json" in terminal.text
        assert terminal.modes == terminal.before
    assert contents(tmp_path) == ["Instruction: no, continue\nInput: None"]


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, STOPPED)],
)
def test_a_signal_at_the_prompt_keeps_everything(
    endpoint: SimulatorProcess, tmp_path: Path, number: signal.Signals, code: int, words: str
):
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        terminal.type("my words" + ENTER)
        terminal.wait_for("Next request.")
        terminal.prompt("› Enter")
        terminal.type("not sent yet")
        terminal.prompt("› not sent yet")
        terminal.kill(number)
        assert terminal.end() == code
        assert "Traceback" not in terminal.text
        assert terminal.modes == terminal.before
    transcript = kept(tmp_path)
    assert [message.model for message in transcript.messages] == ["person", "simulated"]
    assert transcript.stop is not None
    assert words in transcript.stop.detail
    assert "+not sent yet" in (tmp_path / "state" / "camel" / "history").read_text()


def test_a_closed_terminal_keeps_everything(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        terminal.type("my words" + ENTER)
        terminal.wait_for("Next request.")
        terminal.prompt("› Enter")
        terminal.hang_up()
        assert terminal.process.wait() == 129
    transcript = kept(tmp_path)
    assert [message.model for message in transcript.messages] == ["person", "simulated"]
    assert transcript.stop is not None
    assert transcript.stop.reason == "stopped"


def test_even_kill_9_keeps_what_was_said(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        terminal.type("my words" + ENTER)
        terminal.wait_for("Next request.")
        terminal.prompt("› Enter")
        terminal.kill(signal.SIGKILL)
        terminal.end()
    assert contents(tmp_path) == ["Instruction: my words\nInput: None"]


def test_sigterm_while_the_ai_speaks_keeps_everything(tmp_path: Path):
    """Also without a person in a seat."""
    settings = SimulatorSettings(author="tests.support.rude:linger_third", tokens_per_second=120)
    with serve(settings) as slow, Program(*COMMAND, "--base-url", slow.base_url, cwd=tmp_path) as process:
        wait_until(lambda: process.out.count("▌") == 3, "the third message")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
        assert not process.err
        assert "SIGTERM" in process.out
    assert len(kept(tmp_path).messages) == 2


def test_wide_characters_in_forty_columns_and_a_resize(endpoint: SimulatorProcess, tmp_path: Path):
    wide = "请列出数据来源并说明每一个的理由，再给出一个简单的例子 🐫🐫"
    with sit(endpoint, tmp_path, columns=40, rows=20) as terminal:
        terminal.prompt()
        assert all(len(line) <= 40 for line in terminal.shown)
        terminal.type(wide)
        terminal.prompt("› 请列出数据来源")

        def typed() -> str:
            lines = "\n".join(terminal.shown).partition("› ")[2].splitlines()
            return "".join(lines).replace(" ", "")

        # Wrapped, nothing lost and nothing over the edge.
        terminal.until(lambda: typed() == wide.replace(" ", ""), "all that was typed")
        terminal.type("\x7f\x7f")  # two wide characters back
        terminal.until(lambda: "🐫" not in terminal.shown[-1], "two characters less")
        terminal.resize(70, 24)
        terminal.prompt(f"› {wide[:22]}")  # one line more than had room before
        terminal.type("完" + ENTER)
        terminal.wait_for("Next request.")
        terminal.prompt("› Enter")
        terminal.resize(30, 12)
        terminal.type("short" + ENTER)
        terminal.wait_for("Instruction: short")
        terminal.prompt("› Enter")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    assert contents(tmp_path)[0] == f"Instruction: {wide[:-2]}完\nInput: None"


@pytest.mark.parametrize("seat", ["user", "critic"])
def test_model_text_cannot_act_on_the_terminal_nor_pose_as_an_option(tmp_path: Path, seat: str):
    with (
        serve(SimulatorSettings(author="tests.support.rude:speak")) as rude,
        sit(rude, tmp_path, "--user", f"Trader {ATTACK}", seat=seat) as terminal,
    ):
        terminal.prompt()
        terminal.type(("1" if seat == "critic" else "hello") + ENTER)
        terminal.wait_for("(assistant)")
        terminal.prompt("› 1–3" if seat == "critic" else "› Enter")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
        shown = terminal.text
    assert "好的" in shown or "写一首诗" in shown
    assert "␚]0;owned␚␚[2J␚[31m␚␚5A␚" in shown
    for part in (b"\x1b]0;owned", b"\x1b[2J", b"\x1b[31m", "\x9b".encode(), "\u202e".encode()):
        assert part not in terminal.raw
    # Numbers inside a proposal come after the bar.
    if seat == "critic":
        assert "   │  9 │ I am an option" in shown
        assert not re.search(r"^ 9 │", shown, re.MULTILINE)


def test_help_and_what_begins_with_a_slash(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path) as terminal:
        terminal.prompt()
        terminal.type("/help" + ENTER)
        terminal.wait_for("Alt+Enter", "/ai [n]", "/done", "/stop")
        terminal.type("/nonsense now" + ENTER)
        terminal.wait_for("/nonsense is not")
        terminal.prompt("› Enter")
        terminal.type(ENTER + "  " + ENTER)  # nothing is nothing
        terminal.type("\x15" + "/usr/bin is full" + ENTER)
        terminal.wait_for("Instruction: /usr/bin is full")
        terminal.prompt("› Enter")
        terminal.type("//stop is a command" + ENTER)
        terminal.wait_for("Instruction: /stop is a command")
        terminal.prompt("› Enter")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    assert len(contents(tmp_path)) == 2


def test_as_it_is(endpoint: SimulatorProcess, tmp_path: Path):
    with sit(endpoint, tmp_path, "--verbatim") as terminal:
        terminal.prompt()
        terminal.type("hello" + ENTER)
        terminal.wait_for("Next request.")
    assert contents(tmp_path) == ["hello"]


def test_through_a_pipe(endpoint: SimulatorProcess, tmp_path: Path):
    """No terminal: lines of a script are what the person says; its end is leaving."""
    script = "first\n\n  \ntwo \\\nlines\r\n/ai 1\ncaf\u00e9 \udce9".encode("utf-8", "surrogateescape")
    (tmp_path / "script").write_bytes(script)
    args = (*COMMAND, "--base-url", endpoint.base_url, "--human", "user")
    with (
        (tmp_path / "script").open("rb") as lines,
        Program(*args, cwd=tmp_path, stdin=lines.fileno()) as process,
    ):
        assert process.wait() == 0, process.err
        assert not process.err
        assert "\x1b" not in process.out
    first, second, third, fourth = contents(tmp_path)
    assert first == "Instruction: first\nInput: None"
    assert second == "Instruction: two \nlines\nInput: None"
    assert kept(tmp_path).messages[4].model == "simulated"
    assert third.startswith("Instruction:")
    assert fourth == "Instruction: café \ufffd\nInput: None"
    stop = kept(tmp_path).stop
    assert stop is not None
    assert (stop.reason, stop.detail) == ("stopped", STOPPED)


def test_a_pipe_that_stays_open_does_not_keep_the_process(endpoint: SimulatorProcess, tmp_path: Path):
    reader, writer = os.pipe()
    args = (*COMMAND, "--base-url", endpoint.base_url, "--human", "user")
    try:
        with Program(*args, cwd=tmp_path, stdin=reader) as process:
            os.write(writer, b"hello\n")
            wait_until(
                lambda: (tmp_path / "saved.json").exists() and len(kept(tmp_path).messages) == 2, "an answer"
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 143
            assert not process.err
    finally:
        os.close(reader)
        os.close(writer)


def test_two_people_and_no_third(endpoint: SimulatorProcess, tmp_path: Path, snapshot: Callable[..., None]):
    before = endpoint.ledger().requests
    with sit(endpoint, tmp_path, "--human", "assistant") as terminal:
        terminal.prompt()
        terminal.type("sing" + ENTER)
        terminal.wait_for("▌ Python Programmer (assistant, you)")
        terminal.prompt()
        terminal.type("la la" + ENTER)
        terminal.wait_for("Solution: la la")
        terminal.prompt()
        terminal.type("/done" + ENTER)
        assert terminal.end() == 0
        assert "no cost" in terminal.text
    assert endpoint.ledger().requests == before
    everybody = [word for seat in ("user", "assistant", "critic") for word in ("--human", seat)]
    for words in (everybody, ["--human", "dog"]):
        done = camel(*COMMAND, *words, cwd=tmp_path)
        assert (done.status, len(done.stderr.splitlines())) == (2, 1)
        assert "--human" in done.stderr
        snapshot("errors", done.stderr, words[-1])


@pytest.mark.real_model
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'")
@pytest.mark.parametrize(
    "seat", ["user", *(pytest.param(seat, marks=pytest.mark.thorough) for seat in ("assistant", "critic"))]
)
def test_with_the_real_model(tmp_path: Path, seat: str):
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    command = [*COMMAND, "--local", "--max-tokens", "16", "--human", seat]
    with Terminal(command, tmp_path, env) as terminal:
        terminal.prompt()
        for number, words in enumerate(("2" if seat == "critic" else "Say hello.", "/ai"), 1):
            terminal.type(words + ENTER)
            terminal.until(lambda number=number: len(spoken(tmp_path, seat)) >= number, f"{number} said")
            terminal.prompt("› 1–3" if seat == "critic" else "› Enter")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
        assert terminal.modes == terminal.before
    transcript = kept(tmp_path)
    assert transcript.stop is not None
    assert transcript.stop.reason == "stopped"
    assert spoken(tmp_path, seat)[:2] == ["person", "smollm2-135m"]


def spoken(folder: Path, seat: str) -> list[str]:
    """Who spoke, or chose, in a seat."""
    messages = kept(folder).messages if (folder / "saved.json").exists() else []
    if seat == "critic":
        return [message.deliberation.critic for message in messages if message.deliberation]
    return [message.model for message in messages if message.speaker == seat]
