"""`camel society` as a user sees it: its output, its exit code, its files; and many speakers on one screen."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from camel import Text, Transcript
from camel.cli.screen import PALETTE, Screen
from camel.core.message import Message, Sampling
from camel.core.model import Retrying
from camel.core.transcript import Speaker
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from tests.support import command
from tests.support.endpoints import serve
from tests.support.in_process import Done

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "societies"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(words=30, length=Constant(7))) as process:
        yield process


def camel(*args: str, cwd: Path) -> Done:
    return command.camel("society", *args, cwd=cwd)


@pytest.mark.parametrize(
    ("name", "messages", "reason"),
    [("debate", 7, "max_rounds"), ("software_team", 40, "max_messages"), ("town_hall", 60, "max_rounds")],
)
def test_the_examples_end_by_a_rule(
    name: str, messages: int, reason: str, endpoint: SimulatorProcess, tmp_path: Path
):
    args = (
        "--task",
        "Dig a pond",
        "--base-url",
        endpoint.base_url,
        "--save",
        "saved.json",
        "--save",
        "saved.md",
    )
    done = camel(str(EXAMPLES / f"{name}.toml"), *args, cwd=tmp_path)
    assert done.status == 0, done.stderr
    assert f"{messages} messages" in done.stdout
    transcript = Transcript.from_json((tmp_path / "saved.json").read_bytes())
    assert len(transcript.messages) == messages
    assert transcript.task.original == "Dig a pond"
    assert transcript.stop is not None
    assert transcript.stop.reason == reason
    # Everything that was said is on the screen, whole and under the name of who said it.
    for message in transcript.messages:
        assert message.content in done.stdout
        assert f"({message.speaker})" in done.stdout


def test_first_steps_are_seen_and_limits_can_be_given(endpoint: SimulatorProcess, tmp_path: Path):
    (tmp_path / "society.toml").write_text(
        'task = "Dig"\n[roles]\ncount = 2\n[planner]\nsteps = 2\n[[members]]\nname = "Chair"\n'
        '[turns]\npolicy = "moderated"\nmoderator = "Chair"\n'
    )
    args = ("--max-messages", "3", "--base-url", endpoint.base_url, "--show-prompts", "--max-tokens", "50")
    done = camel(".", *args, "--save", "saved.json", cwd=tmp_path)
    assert done.status == 0, done.stderr
    for expected in ("Task planner", "Role assignment", "▌ Chair\n", "You moderate.", "3 messages, 5 calls"):
        assert expected in done.stdout
    transcript = Transcript.from_json((tmp_path / "saved.json").read_bytes())
    assert len(transcript.speakers) == 3
    assert {speaker.sampling.max_tokens for speaker in transcript.speakers} == {50}


def test_an_option_changes_only_its_own_setting_of_each_member(endpoint: SimulatorProcess, tmp_path: Path):
    (tmp_path / "society.toml").write_text(
        'task = "Dig"\nsampling = { temperature = 0.7, top_p = 0.9 }\n[[members]]\nname = "A"\n'
        'sampling = { temperature = 0.0, max_tokens = 90 }\n[[members]]\nname = "B"\n'
    )

    def settings(*args: str) -> list[Sampling]:
        given = ("--base-url", endpoint.base_url, "--max-messages", "2", "--save", "saved.json", *args)
        done = camel(".", *given, cwd=tmp_path)
        assert done.status == 0, done.stderr
        transcript = Transcript.from_json((tmp_path / "saved.json").read_bytes())
        return [speaker.sampling for speaker in transcript.speakers]

    assert settings("--max-tokens", "50") == [Sampling(0.0, None, 50), Sampling(0.7, 0.9, 50)]
    assert settings("--temperature", "0.5") == [Sampling(0.5, None, 90), Sampling(0.5, 0.9)]


def test_a_mistake_is_one_line(endpoint: SimulatorProcess, tmp_path: Path):
    (tmp_path / "society.toml").write_text('[[members]]\nnam = "x"\n')
    before = endpoint.ledger().requests
    for args in ((".",), ("none.toml",), (str(EXAMPLES / "debate.toml"), "--max-messages", "0")):
        done = camel(*args, "--base-url", endpoint.base_url, cwd=tmp_path)
        assert done.status == 2
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert endpoint.ledger().requests == before


def screen(count: int, *, together: bool) -> tuple[Screen, io.StringIO]:
    out = io.StringIO()
    shown = Screen(Console(file=out, width=80), {})
    shown.introduce([Speaker(f"s{n}", f"Role {n}") for n in range(count)], together=together)
    return shown, out


def test_neighbors_on_the_screen_have_different_colors():
    shown, _ = screen(1_000, together=False)
    styles = [shown.style(f"s{n}") for n in range(1_000)]
    assert set(styles) == {f"bold {color}" for color in PALETTE}
    assert all(one != other for one, other in pairwise(styles))


def test_speakers_of_the_same_moment_are_shown_one_after_the_other():
    shown, out = screen(3, together=True)
    shown.watch(Text("s1", "from "))
    shown.watch(Text("s0", "not seen coming"))
    shown.watch(Retrying("s0", "HTTP 503", 1.0))
    shown.watch(Text("s1", "the second"))
    for name, text in (("s0", "not seen coming"), ("s1", "from the second"), ("s2", "nor this \x1b[2J")):
        shown.show_message(Message(0, name, "Role", text))
    assert out.getvalue() == (
        "▌ Role 1 (s1)\nfrom the second\n\n▌ Role 0 (s0)\nnot seen coming\n\n▌ Role 2 (s2)\nnor this ␚[2J\n\n"
    )
