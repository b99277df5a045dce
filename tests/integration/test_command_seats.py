"""Agents of other frameworks in seats: a durable run with a program of its own, and the examples of examples/agents."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from camel import RolePlaying, Run, simulated_endpoint
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from tests.support.command import camel
from tests.support.endpoints import serve
from tests.support.forks import Program
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent.parent

AGENT = """
import hashlib, json, os, sys
def asked():
    return len(open("ledger").readlines()) if os.path.exists("ledger") else 0
for line in sys.stdin:
    request = json.loads(line)
    name = hashlib.sha256(json.dumps(request["messages"]).encode()).hexdigest()
    held = os.path.exists("hold") and asked() >= int(open("hold").read())
    with open("ledger", "a") as file:
        file.write(f"{name} {'held' if held else 'answered'}\\n")
    if not held:
        count = len(request["messages"])
        said = "<CAMEL_TASK_DONE>" if count > 8 else f"Instruction: Step {count}.\\nInput: None"
        print(json.dumps({"id": request["id"], "content": said, "usage": {"prompt_tokens": count}}), flush=True)
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=Constant(20))) as process:
        yield process


def ledger(folder: Path) -> list[tuple[str, str]]:
    """What the agent was asked, and whether it answered."""
    path = folder / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(name, outcome) for name, _, outcome in (line.partition(" ") for line in lines)]


def test_a_run_that_is_killed_asks_the_agent_nothing_twice(endpoint: SimulatorProcess, tmp_path: Path):
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "config.toml").write_text(
        'scenario = "ai_society"\nout = "run"\ncounts = { assistant_role = 2, user_role = 2, task = 2 }\n'
        f'[model]\nname = "simulated"\nbase_url = "{endpoint.base_url}"\n'
        f'[models.user]\nmodel = "command:{sys.executable} agent.py"\n[run]\nconcurrency = 2\n'
    )
    held = 0
    for limit in (3, 11, 20):
        (tmp_path / "hold").write_text(str(limit))
        with Program("generate", "config.toml", cwd=tmp_path) as process:
            # Both conversations wait for the agent, so all earlier replies are in the journal.
            wait_for(lambda: sum(one == "held" for _, one in ledger(tmp_path)) == held + 2)  # noqa: B023
            process.kill()
            process.wait()
        held += 2
    (tmp_path / "hold").unlink()
    done = camel("generate", "config.toml", cwd=tmp_path)
    assert done.status == 0, done.stderr
    asked = ledger(tmp_path)
    answered = [name for name, outcome in asked if outcome == "answered"]
    waiting = [name for name, outcome in asked if outcome == "held"]
    assert max(Counter(answered).values()) == 1
    assert len(waiting) == 6
    assert set(waiting) <= set(answered)
    run = Run(tmp_path / "run")
    conversations = list(run)
    assert len(conversations) == 8
    spoken = [message for one in conversations for message in one.messages if message.speaker == "user"]
    assert len(spoken) == len(answered)
    assert sum(message.usage.prompt for message in spoken) > 0


@pytest.mark.parametrize(
    ("example", "needs"), [("openai_agents_seat", "agents"), ("langgraph_seat", "langgraph")]
)
def test_an_agent_of_another_framework_takes_a_seat(
    example: str, needs: str, monkeypatch: pytest.MonkeyPatch
):
    if find_spec(needs) is None and not os.environ.get("CI"):
        pytest.skip(f"needs {needs}: pip install '.[dev-agents]'")
    program = f"command:{sys.executable} {ROOT / 'examples/agents' / example}.py"
    roles = {"assistant": "Chef", "user": "Beekeeper", "task": "A menu"}
    with simulated_endpoint(length=5) as endpoint:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        transcript = RolePlaying(**roles, model="gpt-4.1-mini", user_model=program, specifier=None).run()
        counted = endpoint.ledger()
    assert transcript.stop
    assert transcript.stop.reason == "done"
    users = [message for message in transcript.messages if message.speaker == "user"]
    assert {message.model for message in users} == {program}
    assert counted.billed == len(transcript.messages)
    assert counted.billed_repeats == 0
    assert (counted.prompt_tokens, counted.completion_tokens) == (
        transcript.usage.prompt,
        transcript.usage.completion,
    )
