"""`camel play` as a user sees it: its output, its exit code, its files."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from camel import Text, Transcript
from camel.cli.output import visible
from camel.cli.play import _read_prompts
from camel.cli.screen import Screen, price
from camel.core.errors import InputError
from camel.core.message import Message, Usage
from camel.core.model import Retrying
from camel.core.task import Task
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from tests.support.command import camel
from tests.support.endpoints import serve
from tests.support.forks import Program, wait_until
from tests.support.gates import serve_gated
from tests.support.in_process import Done
from tests.support.thinkers import MARKER


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=Constant(7))) as process:
        yield process


def play(*args: str, cwd: Path, **environment: str) -> Done:
    return camel("play", *args, cwd=cwd, **environment)


def test_a_conversation_from_start_to_end(endpoint: SimulatorProcess, tmp_path: Path):
    done = play("--base-url", endpoint.base_url, "--save", "saved.json", "--save", "saved.md", cwd=tmp_path)
    assert done.status == 0, done.stderr
    for expected in (
        "Task specifier",
        "Stock Trader (user)",
        "Python Programmer (assistant)",
        "Instruction:",
        "Solution:",
        "7 messages, 8 calls",
        "no price for simulated",
        "saved saved.json",
    ):
        assert expected in done.stdout
    assert "\x1b" not in done.stdout, "colors only on a terminal"
    transcript = Transcript.from_json((tmp_path / "saved.json").read_bytes())
    assert transcript.stop is not None
    assert transcript.stop.reason == "done"
    # Everything that was said was also on the screen, whole.
    assert all(message.content in done.stdout for message in transcript.messages)
    assert transcript.task.specified in done.stdout
    assert transcript.messages[1].content.splitlines()[0] in (tmp_path / "saved.md").read_text()


def test_a_critic_chooses(endpoint: SimulatorProcess, tmp_path: Path):
    done = play("--base-url", endpoint.base_url, "--critic", "3", "--save", "saved.json", cwd=tmp_path)
    assert done.status == 0, done.stderr
    transcript = Transcript.from_json((tmp_path / "saved.json").read_bytes())
    assert all(m.deliberation and len(m.deliberation.proposals) == 3 for m in transcript.messages)
    assert done.stdout.count("◆ critic: ") == len(transcript.messages) == 7
    first = transcript.messages[0]
    assert first.content in done.stdout
    assert first.deliberation
    assert first.deliberation.reason in done.stdout
    refused = play("--base-url", endpoint.base_url, "--critic", "-1", cwd=tmp_path)
    assert refused.status == 2
    assert "proposals" in refused.stderr


def test_thoughts_are_printed_only_when_asked_for(tmp_path: Path):
    author = "tests.support.thinkers:between_tags"
    with serve(SimulatorSettings(length=Constant(5), author=author)) as thinking:
        for options, seen in (((), False), (("--show-reasoning",), True)):
            done = play("--base-url", thinking.base_url, "--save", "saved.md", *options, cwd=tmp_path)
            assert done.status == 0, done.stderr
            assert (f"reasoning: {MARKER}" in done.stdout) == (MARKER in done.stdout) == seen
            assert MARKER not in (tmp_path / "saved.md").read_text()


def test_through_the_environment_without_specifier(endpoint: SimulatorProcess, tmp_path: Path):
    (tmp_path / "assistant.txt").write_text("Advise the <USER_ROLE>.\n")
    done = play(
        "--no-specify",
        "--show-prompts",
        "--prompts",
        ".",
        "--max-messages",
        "4",
        cwd=tmp_path,
        OPENAI_BASE_URL=endpoint.base_url,
    )
    assert done.status == 0, done.stderr
    assert "Task specifier" not in done.stdout
    assert "Never forget you are a Stock Trader and I am a Python Programmer." in done.stdout
    assert "Advise the Stock Trader." in done.stdout, "the assistant's prompt is ours, the user's the paper's"
    assert "4 messages, 4 calls" in done.stdout


def test_a_prompt_under_a_name_that_nobody_reads_is_refused(tmp_path: Path, snapshot: Callable[..., None]):
    for name in ("assistant", "usr"):
        (tmp_path / f"{name}.txt").write_text("About <TASK>.\n")
    with pytest.raises(InputError, match=r"usr\.txt") as refused:
        _read_prompts(tmp_path)
    snapshot("errors", refused.value)
    (tmp_path / "usr.txt").unlink()
    assert _read_prompts(tmp_path).assistant == "About <TASK>."


def test_a_prompt_that_mentions_what_nobody_fills_in(tmp_path: Path):
    (tmp_path / "user.txt").write_text("Ask the <ASSISTANT_ROLL> about <TASK>, or say <CAMEL_TASK_DONE>.\n")
    done = play("--prompts", ".", cwd=tmp_path)
    assert done.status == 2
    assert len(done.stderr.strip().splitlines()) == 1
    for expected in ("user.txt", "<ASSISTANT_ROLL>", "did you mean <ASSISTANT_ROLE>?"):
        assert expected in done.stderr


def test_an_endpoint_that_is_not_there(tmp_path: Path, snapshot: Callable[..., None]):
    done = play("--base-url", "http://127.0.0.1:9/v1", cwd=tmp_path)
    assert done.status == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "http://127.0.0.1:9/v1" in done.stderr
    snapshot("errors", done.stderr)


def test_a_failing_call_keeps_what_was_said(tmp_path: Path):
    with serve(SimulatorSettings(length=Constant(9), capacity=0, retry_after=0.01)) as full:
        done = play("--base-url", full.base_url, "--model", "m", "--save", "saved.json", cwd=tmp_path)
    assert done.status == 1
    assert "RateLimited" in done.stdout
    stop = Transcript.from_json((tmp_path / "saved.json").read_bytes()).stop
    assert stop is not None
    assert stop.reason == "error"


def test_ctrl_c_ends_cleanly_and_keeps_what_was_said(tmp_path: Path):
    settings = SimulatorSettings(author="tests.support.rude:linger_third", tokens_per_second=120)
    with serve(settings) as slow:
        args = ("play", "--base-url", slow.base_url, "--no-specify", "--save", "saved.json")
        with Program(*args, cwd=tmp_path) as process:
            wait_until(lambda: process.out.count("▌") == 3, "the third message")
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
            assert not process.err
    transcript = Transcript.from_json((tmp_path / "saved.json").read_bytes())
    assert len(transcript.messages) == 2, "two messages were complete, the third was being written"
    assert transcript.stop is not None
    assert transcript.stop.reason == "stopped"


def test_model_text_cannot_act_on_the_terminal():
    out = io.StringIO()
    screen = Screen(
        Console(file=out, force_terminal=True, color_system=None), {"user": "[red]Trader[/red]\x1b[31m"}
    )
    screen.watch(Text("user", "[bold]plain[/bold] \x1b]0;owned\x07\x1b[2J\r\u202edlrow :smile:"))
    screen.end_message()
    printed = out.getvalue()
    assert "[bold]plain[/bold]" in printed
    assert "[red]Trader[/red]" in printed
    assert ":smile:" in printed
    assert not set(printed) & set("\x1b\x07\r\u202e")


def test_a_retry_says_that_the_partial_text_is_discarded():
    out = io.StringIO()
    screen = Screen(Console(file=out), {"user": "Trader"})
    screen.watch(Text("user", "half a mess"))
    screen.watch(Retrying("user", "HTTP 503", 1.5))
    screen.watch(Text("user", "whole message"))
    printed = out.getvalue()
    assert printed.count("Trader (user)") == 2
    assert "discarded" in printed
    assert "HTTP 503" in printed


def test_price_in_words():
    message = Message(
        0, "user", "Trader", "hi", model="gpt-4.1-mini", usage=Usage(1_000_000, 1_000_000, 500_000, 1)
    )
    transcript = Transcript("x", Task("t"), messages=[message])
    assert price(transcript) == "$1.85"  # 0.5M at 0.40, 0.5M cached at 0.10, 1M out at 1.60
    transcript.messages.append(
        Message(1, "assistant", "P", "ho", model="nobody-knows", usage=Usage(1, 1, 0, 1))
    )
    assert price(transcript) == "cost unknown (no price for nobody-knows)"


def test_visible_keeps_lines_and_tabs():
    assert visible("a\n\tb\x00\x9b") == "a\n\tb␚␚"


def test_an_unknown_count_is_never_called_free():
    silent = Message(0, "user", "T", "hi", model="gpt-4.1-mini", usage=Usage(calls=1, unknown=1))
    assert price(Transcript("x", Task("t"), messages=[silent])) == "at least $0.0000"
    ours = Message(0, "user", "T", "hi", model="smollm2-135m", usage=Usage(9, 9, 0, 1))
    assert price(Transcript("x", Task("t"), messages=[ours])) == "free"
    assert price(Transcript("x", Task("t"))) == "no cost"


def test_a_closed_pipe_loses_nothing(tmp_path: Path):
    with serve_gated(SimulatorSettings(length=Constant(7))) as endpoint:
        endpoint.hold_after(3)
        reader, writer = os.pipe()
        args = ("play", "--base-url", endpoint.base_url, "--save", "saved.json")
        try:
            with Program(*args, cwd=tmp_path, stdout=writer) as process:
                endpoint.wait_until_held()
                os.close(reader)
                endpoint.release()
                process.wait()
                assert "Traceback" not in process.err
        finally:
            os.close(writer)
    assert Transcript.from_json((tmp_path / "saved.json").read_bytes()).messages


def test_a_file_that_cannot_be_written_is_refused_before_any_call(endpoint: SimulatorProcess, tmp_path: Path):
    before = endpoint.ledger().requests
    done = play("--base-url", endpoint.base_url, "--save", "/proc/saved.json", cwd=tmp_path)
    assert done.status == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert endpoint.ledger().requests == before
