"""Verifiers, unmodified, runs conversations in which its policy has a seat."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

import camel
from camel.core.errors import MissingExtra
from camel.core.transcript import Transcript
from camel.models.simulator import spawn
from camel.models.simulator.settings import SimulatorSettings
from tests.support import gsm8k
from tests.support.aside import ASIDE, with_aside
from tests.support.tiny_model import make_tokenizer

EPISODES = 20

PAGE = Path(__file__).parents[2] / "docs" / "train-seat.md"
SOCIETY = """
import camel

crew = camel.Society("<task>", members=["Ada", "Bob", "Cleo"], stop=camel.Ending(max_rounds=2))


def check(one):
    return len(one.messages) / 10


Tasks, Seat, Env = camel.environment(crew, [{"task": "Plan a menu"}], seat="Bob", check=check, using="other")
__all__ = ["Tasks", "Seat", "Env"]
"""
RUN = "import json, sys; from verifiers.v1.cli.eval.main import main; [main(one) for one in json.loads(sys.argv[1])]"


def evaluation(name: str, url: str, out: str, *options: str) -> list[str]:
    """The arguments of `vf-eval`."""
    own = ["-m", "policy", "--client.base-url", url, "--client.api-key-var", "NO_KEY", "--run.dir", out]
    return [name, *own, "--no-push", "--no-rich", *options]


def traces(folder: Path, out: str) -> list[dict[str, Any]]:
    lines = (folder / "outputs" / out / "traces.jsonl").read_text().splitlines()
    return [trace for line in lines for trace in json.loads(line)["traces"]]


def conversation(trace: dict[str, Any]) -> Transcript:
    return msgspec.convert(trace["info"]["conversation"], Transcript)


@contextmanager
def engine(tokenizer: Any, text: str) -> Generator[tuple[str, list[dict[str, Any]]]]:
    """An endpoint with the protocols of vLLM for training and for chat, which reports token ids and log probabilities."""
    calls: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
            said = [-(place + 1) / 64 for place, _ in enumerate(ids)]
            calls.append({"prompt": asked.get("token_ids"), "ids": ids, "said": said})
            content = [
                {"token": f"token_id:{one}", "token_id": one, "logprob": value}
                for one, value in zip(ids, said, strict=True)
            ]
            choice = {"index": 0, "logprobs": {"content": content}, "finish_reason": "stop"}
            choice |= (
                {"token_ids": ids}
                if "token_ids" in asked
                else {"message": {"role": "assistant", "content": text}}
            )
            self.answer(
                {"id": "1", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
            )

        def do_GET(self) -> None:
            self.answer({"object": "list", "data": [{"id": "policy", "object": "model"}]})

        def answer(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", calls
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What six runs of verifiers left. They share a process, because its imports take seconds."""
    if not ASIDE.exists():
        pytest.skip("needs the folder that tools/environment makes")
    folder = tmp_path_factory.mktemp("verifiers")
    (lesson,) = re.findall(r"```python elsewhere title=\"lesson.py\"\n(.*?)```", PAGE.read_text(), re.DOTALL)
    modules = {
        "lesson": lesson,
        "specified": lesson.replace("specify=False, ", ""),
        "noting": lesson.replace("specify=False", "specify=False, sampling=camel.Sampling(logprobs=0)"),
        "crew": SOCIETY,
    }
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)
    tokenizer = make_tokenizer(folder / "tokenizer")
    with (
        spawn(SimulatorSettings(length=None)) as other,
        spawn(SimulatorSettings(author=gsm8k.AUTHOR)) as policy,
        spawn(SimulatorSettings(rejects=("messages",))) as broken,
        engine(tokenizer, "Solution: #### 7") as (url, calls),
    ):
        train = ["--client.type", "train", "--client.renderer-model-name", str(folder / "tokenizer")]
        runs = [
            evaluation("lesson", policy.base_url, "lesson", "-n", str(EPISODES)),
            evaluation("specified", policy.base_url, "short", "-n", "1", "--env.agent.max-turns", "2"),
            evaluation("crew", policy.base_url, "crew"),
            evaluation("lesson", broken.base_url, "broken", "-n", "1"),
            evaluation("lesson", url, "tokens", "-n", "1", *train),
            evaluation("noting", url, "noting", "-n", "1"),
        ]
        environment = with_aside(folder, OPENAI_BASE_URL=other.base_url)
        command = [sys.executable, "-c", RUN, json.dumps(runs)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-5000:]
        outs = [one[one.index("--run.dir") + 1] for one in runs]
        ledgers = policy.ledger(), other.ledger()
    return {"ledgers": ledgers, "calls": calls, "outs": outs, **{out: traces(folder, out) for out in outs}}


@pytest.mark.slow
def test_verifiers_runs_the_environment(made: dict[str, Any]):
    found = made["lesson"]
    assert len(found) == EPISODES
    assert all(trace["ok"] for trace in found)
    planted = {question: float(place % 10 != 9) for place, (question, _) in enumerate(gsm8k.problems())}
    rewards = {trace["task"]["data"]["row"]["task"]: trace["rewards"]["check"]["score"] for trace in found}
    assert rewards == {question: planted[question] for question in rewards}
    assert len(rewards) == EPISODES
    assert sum(rewards.values()) == EPISODES - 2
    for trace in found:
        assert trace["metrics"] == {"messages": 6, "other_calls": 3}
        assert len(trace["calls"]) == 3
        # One branch: each prompt extends the one before it, as trainers need it.
        nodes = trace["nodes"]
        assert [node.get("parent") for node in nodes] == [None, *range(len(nodes) - 1)]
        said = [node["message"]["content"] for node in nodes if node["sampled"]]
        assert said == [one.content for one in conversation(trace).messages if one.speaker == "assistant"]


@pytest.mark.slow
def test_every_call_is_the_policys_or_another_models(made: dict[str, Any]):
    policy, other = made["ledgers"]
    own = [
        call["usage"] for out in ("lesson", "short", "crew") for trace in made[out] for call in trace["calls"]
    ]
    assert policy.billed == len(own)
    assert policy.prompt_tokens == sum(one["prompt_tokens"] for one in own)
    assert policy.completion_tokens == sum(one["completion_tokens"] for one in own)
    found = [(out, trace) for out in made["outs"] for trace in made[out]]
    used = [one for _, trace in found for one in trace["extra_usage"]]
    assert other.prompt_tokens == sum(one["prompt_tokens"] for one in used)
    assert other.completion_tokens == sum(one["completion_tokens"] for one in used)
    assert other.billed == len(used)
    seats = [("Bob" if out == "crew" else "assistant", conversation(trace)) for out, trace in found]
    said = sum(one.speaker != seat for seat, talk in seats for one in talk.messages)
    assert other.billed == said + len(made["short"])  # whose task was specified


@pytest.mark.slow
def test_limits_failures_and_societies(made: dict[str, Any]):
    (short,), (crew,), (broken,) = made["short"], made["crew"], made["broken"]
    assert short["ok"]
    assert short["stop_condition"] == "max_turns"
    assert [one.speaker for one in conversation(short).messages].count("assistant") == 2
    assert conversation(short).task.model == "gpt-4.1-mini"
    assert crew["rewards"]["check"]["score"] == 0.6
    assert len(crew["calls"]) == 2
    assert not broken["ok"]
    assert "Unsupported parameter" in broken["errors"][-1]["message"]
    assert not broken["rewards"]


@pytest.mark.slow
def test_token_ids_and_log_probabilities_reach_the_trainer(made: dict[str, Any]):
    (trace,), calls = made["tokens"], made["calls"][:3]
    nodes = trace["nodes"]
    assert [one for node in nodes for one in node["token_ids"]] == calls[-1]["prompt"] + calls[-1]["ids"]
    sampled = [node for node in nodes if node["sampled"]]
    assert len(sampled) == len(calls) == 3
    for node, call in zip(sampled, calls, strict=True):
        own = [one for one, mine in zip(node["token_ids"], node["mask"], strict=True) if mine]
        assert own == call["ids"]
        assert node["logprobs"] == pytest.approx(call["said"], abs=1e-4)


@pytest.mark.slow
def test_the_record_has_the_token_ids_and_log_probabilities_of_an_endpoint(made: dict[str, Any]):
    (trace,), calls = made["noting"], made["calls"][3:]
    tokens = [one.tokens for one in conversation(trace).messages if one.speaker == "assistant"]
    assert [(one.ids, one.logprobs) for one in tokens if one] == [(one["ids"], one["said"]) for one in calls]
    assert len(calls) == 3


def test_without_verifiers_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(MissingExtra, match=r"camel-society\[verifiers\]"):
        camel.environment(camel.RolePlaying("<task>", assistant="A", user="B"), [], check="done")
