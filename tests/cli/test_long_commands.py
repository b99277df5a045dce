"""Every long command: over its budget, paused, stopped, killed, continued, and its JSON. The endpoint's ledger is the witness."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from camel import RolePlaying, ScriptedModel, generate
from camel.models.simulator import Constant, SimulatorSettings
from tests.support.command import camel
from tests.support.contests import a_run
from tests.support.forks import Program, wait_until
from tests.support.gates import GatedEndpoint, serve_gated

IN_FLIGHT = 4
GENERATE = 'scenario = "ai_society"\nout = "made"\ncounts = {{ assistant_role = 2, user_role = 2, task = 1 }}\n{more}[model]\nname = "gpt-4"\n'
EMERGENCE = (
    'base = "gpt-3"\njudges = ["gpt-4"]\nrepeats = 0\nout = "emerging"\n[[steps]]\nname = "AI Society"\nmodel = "gpt-3.5"\n'
    '[[domains]]\nname = "math"\nquestions = 12\nsubjects = ["geometry", "algebra"]\n'
)


def configured(folder: Path) -> None:
    (folder / "made.toml").write_text(GENERATE.format(more=""))


def a_finished_run(folder: Path) -> None:
    a_run(folder / "run", numbers=range(8), size=3)


def a_run_of_sixteen(folder: Path) -> None:
    a_run(folder / "run", numbers=range(16), size=3)


def a_run_with_prompts(folder: Path) -> None:
    play = RolePlaying("Help <name>", assistant="Agent", user="Customer", specify=False, max_messages=2)
    rows = [{"name": name} for name in ("Ada", "Bob", "Cleo", "Dan", "Eve", "Fay")]
    generate(play, inputs=rows, model=ScriptedModel(lambda request: "Hi"), out=folder / "run", progress=False)


def a_study(folder: Path) -> None:
    (folder / "study.toml").write_text(EMERGENCE)


class Command(NamedTuple):
    """A long command, and what it needs."""

    words: tuple[str, ...]
    place: str
    """What `camel run pause` and `camel run stop` are given."""
    prepare: Callable[[Path], None]
    calls: bool = True
    """Whether it asks a model."""
    same: int = 0
    """Calls that it makes in the same words for different items."""


COMMANDS = {
    "generate": Command(("generate", "made.toml"), "made", configured),
    "translate": Command(("translate", "run", "--to", "de", "--model", "gpt-4"), "run", a_finished_run),
    "ablate": Command(
        (
            "ablate",
            "run",
            "--out",
            "ablated",
            "--sentence",
            "user-01",
            "--model",
            "gpt-4",
            "--max-messages",
            "3",
            "--conversations",
            "6",
        ),
        "ablated",
        a_run_with_prompts,
    ),
    "study": Command(("study", "run", "--judge", "gpt-4", "--sample", "16"), "run/study", a_run_of_sixteen),
    "agents": Command(
        (
            "evaluate",
            "agents",
            "run",
            "--judge",
            "gpt-4",
            "--model",
            "gpt-3",
            "--sample",
            "4",
            "--repeats",
            "0",
        ),
        "run/evaluation",
        a_finished_run,
    ),
    "humaneval": Command(
        (
            "evaluate",
            "humaneval",
            "--model",
            "gpt-4",
            "-n",
            "3",
            "--problems",
            "8",
            "--seed",
            "1",
            "--out",
            "solved",
        ),
        "solved",
        lambda folder: None,
    ),
    "emergence": Command(("evaluate", "emergence", "study.toml"), "emerging", a_study),
    "rows": Command(("rows", "run", "--out", "made-rows"), "made-rows", a_finished_run, calls=False),
}
"""`camel map` needs a model of its own: `tests/maps` runs the same job."""


@pytest.fixture
def gate() -> Iterator[GatedEndpoint]:
    with serve_gated(SimulatorSettings(length=Constant(5))) as endpoint:
        yield endpoint


def last_of(out: str) -> dict[str, Any]:
    """The last object of `--json`, all lines of which are objects."""
    return [json.loads(line) for line in out.splitlines()][-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_long_command(gate: GatedEndpoint, tmp_path: Path, name: str):
    command = COMMANDS[name]
    command.prepare(tmp_path)
    many = ("--concurrency", str(IN_FLIGHT)) if command.calls else ()
    environment = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": gate.base_url}

    def start(*more: str) -> Program:
        return Program(*command.words, *many, *more, cwd=tmp_path, env=environment)

    def say(word: str) -> None:
        assert camel("run", word, command.place, cwd=tmp_path).status == 0

    # Over its budget: exit status 3, and as many calls as were allowed.
    limit = ("--budget-calls", "3") if command.calls else ("--budget-hours", "1e-9")
    with start(*limit, "--json") as process:
        assert process.wait() == 3, process.out + process.err
        ended = last_of(process.out)
    assert (ended["event"], ended["status"]) == ("end", "halted"), ended
    assert "budget" in ended["why"]
    assert gate.ledger().billed == (3 if command.calls else 0)

    # Paused: it begins nothing. Stopped by `camel run stop`: exit status 130, with how to continue.
    say("pause")
    with start() as process:
        wait_until(lambda: "paused" in process.out, "a word about the pause")
        time.sleep(0.5)
        assert process.poll() is None
        assert gate.ledger().billed == (3 if command.calls else 0)
        say("stop")
        assert process.wait() == 130, process.out + process.err
        (resume,) = {line for line in process.out.splitlines() if line.startswith("resume  ")}
        assert set(resume.removeprefix("resume  camel ").split()) == {*command.words, *many}
    say("resume")

    if command.calls:
        # Stopped by Ctrl-C: the calls in flight end and are kept.
        gate.hold_after(3)
        with start() as process:
            gate.wait_until_held()
            process.send_signal(signal.SIGINT)
            wait_until(lambda: "stopping" in process.out, "a word about the calls in flight")
            gate.release()
            assert process.wait() == 130, process.out + process.err
        assert gate.ledger().billed_repeats == 0
        # Killed: no more than the calls in flight are asked again.
        gate.hold_after(2)
        with start() as process:
            wait_until(lambda: gate.is_holding or process.poll() is not None, "a request at the gate")
            assert process.poll() is None, process.out + process.err
            process.kill()
            process.wait()
        gate.release()
        wait_until(lambda: gate.ledger().in_flight == 0, "the end of the calls")
    else:
        with start() as process:
            wait_until(lambda: "resume" in process.out, "its beginning")
            process.kill()
            process.wait()

    # And to its end, where nothing is left for another start.
    with start("--json") as process:
        assert process.wait() == 0, process.out + process.err
        ended = last_of(process.out)
    assert (ended["state"], ended["status"]) == ("complete", "complete")
    if name not in ("generate",):
        assert ended["result"] is not None
    assert gate.ledger().billed_repeats <= IN_FLIGHT + command.same
    billed = gate.ledger().billed
    with start() as process:
        assert process.wait() == 0, process.out + process.err
    assert gate.ledger().billed == billed
