"""`camel generate` and the verbs around it as a user sees them: output, exit codes, folders, and the endpoint's own
ledger as the witness of what was paid. Signals and kills are in processes of their own."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from camel import Run
from camel.cli.command import resume_line
from camel.jobs.signals import STOPPED
from camel.models.simulator import Constant, LogNormal, SimulatorProcess, SimulatorSettings
from tests.support import in_process
from tests.support.command import camel
from tests.support.endpoints import serve
from tests.support.forks import Program, wait_until
from tests.support.gates import GatedEndpoint, serve_gated
from tests.support.terminal import Terminal

ROOT = Path(__file__).parent.parent.parent
FILES = ("chat", "instruction", "messages", "sharegpt", "alpaca")


@pytest.fixture
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=LogNormal(median=6, p99=12))) as process:
        yield process


@pytest.fixture
def gate() -> Iterator[GatedEndpoint]:
    """An endpoint whose conversations all have nine messages, and which can hold its answers."""
    with serve_gated(SimulatorSettings(length=Constant(9))) as process:
        yield process


def write(
    folder: Path,
    endpoint: SimulatorProcess,
    *,
    scenario: str = "ai_society",
    counts: str = "assistant_role = 2, user_role = 2, task = 2",
    more: str = "",
    model: str = "",
    run: str = "concurrency = 4",
) -> Path:
    path = folder / "config.toml"
    path.write_text(
        f'scenario = "{scenario}"\nout = "run"\nlists = "asked"\ncounts = {{ {counts} }}\n{more}\n'
        f'[model]\nname = "simulated"\nbase_url = "{endpoint.base_url}"\n{model}\n[run]\n{run}\n'
    )
    return path


def status(folder: Path, run: str = "run") -> dict[str, Any]:
    done = camel("run", "status", run, "--json", cwd=folder)
    assert done.status == 0, done.stderr
    return json.loads(done.stdout)


def chats(folder: Path, run: str = "run") -> list[dict[str, Any]]:
    out = folder / f"{run}-chat.jsonl"
    assert camel("export", run, "chat", str(out), "--force", cwd=folder).status == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_from_nothing_to_an_export(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint)
    done = camel("generate", "config.toml", cwd=tmp_path)
    assert done.status == 0, done.stderr
    for expected in (
        "run     run\n",
        "log     run/log.jsonl\n",
        "resume  camel generate config.toml\n",
        "expect  8 conversations",
        "stage task",
        "complete: 8 conversations",
        "camel explore run",
    ):
        assert expected in done.stdout
    assert "\x1b" not in done.stdout
    now, ledger = status(tmp_path), endpoint.ledger()
    assert now["state"] == "complete"
    assert {stage["name"]: stage["committed"] for stage in now["stages"]} == {
        "assistant_role": 1,
        "user_role": 1,
        "task": 4,
        "conversations": 8,
    }
    assert sum(now["stops"].values()) == 8
    assert now["usage"]["calls"] == ledger.billed
    assert now["usage"]["prompt"] == ledger.prompt_tokens
    assert now["usage"]["completion"] == ledger.completion_tokens
    ids = [row["id"] for row in chats(tmp_path)]
    assert ids == [f"{a:03d}_{u:03d}_{t:03d}" for a in (1, 2) for u in (1, 2) for t in (1, 2)]
    # Complete is complete: the same command pays for nothing.
    again = camel("generate", "config.toml", cwd=tmp_path)
    assert again.status == 0
    assert endpoint.ledger().requests == ledger.requests


def test_every_format_and_back(endpoint: SimulatorProcess, tmp_path: Path, snapshot: Callable[..., None]):
    write(tmp_path, endpoint)
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    for name in FILES:
        done = camel("export", "run", name, f"{name}.jsonl", cwd=tmp_path)
        assert done.status == 0, done.stderr
        assert (tmp_path / f"{name}.jsonl").read_text().count("\n") >= 8
    card = ("--title", "My conversations", "--license", "cc-by-4.0")
    assert camel("export", "run", "dataset", "dataset", *card, cwd=tmp_path).status == 0
    text = (tmp_path / "dataset" / "README.md").read_text()
    assert 'license: "cc-by-4.0"' in text
    assert "# My conversations" in text
    done = camel("import", "chat.jsonl", "imported", cwd=tmp_path)
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("8 conversations")
    assert status(tmp_path, "imported")["state"] == "complete"
    chats(tmp_path, "imported")
    assert (tmp_path / "imported-chat.jsonl").read_bytes() == (tmp_path / "chat.jsonl").read_bytes()
    for arguments, word in (
        (("export", "run", "word", "x"), "word"),
        (("export", "run", "problems", "x.jsonl"), "chat or instruction"),
        (("export", "run", "chat", "chat.jsonl"), "--force"),
        (("export", "run", "chat", "x.jsonl", "--title", "T"), "dataset"),
        (("import", "messages.jsonl", "x"), "messages.jsonl"),
        (("export", "nowhere", "chat", "x.jsonl"), "nowhere"),
        (("import", "chat.jsonl", "imported"), "imported"),
        (("import", "chat.jsonl"), "camel import FILE"),
    ):
        done = camel(*arguments, cwd=tmp_path)
        assert done.status == 2
        assert word in done.stderr
        assert done.stderr.count("\n") == 1
        snapshot("errors", done.stderr, " ".join(arguments))


def test_questions(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint, scenario="math", counts="topic = 2, subtopic = 2, problem = 2")
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    assert [stage["committed"] for stage in status(tmp_path)["stages"]] == [1, 2, 4, 8]
    done = camel("export", "run", "problems", "problems.jsonl", cwd=tmp_path)
    assert done.stdout.startswith("8 answers as 8 rows")
    assert (tmp_path / "problems.jsonl").read_text().count("\n") == 8


def test_misalignment_is_gated_twice(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint, scenario="misalignment")
    refused = camel("generate", "config.toml", cwd=tmp_path)
    assert refused.status == 2
    assert "acknowledge" in refused.stderr
    assert endpoint.ledger().requests == 0
    write(tmp_path, endpoint, scenario="misalignment", more='acknowledge = ["misalignment"]')
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    refused = camel("export", "run", "chat", "x.jsonl", cwd=tmp_path)
    assert refused.status == 2
    assert not (tmp_path / "x.jsonl").exists()
    done = camel("export", "run", "chat", "x.jsonl", "--acknowledge", "misalignment", cwd=tmp_path)
    assert done.status == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert all(row["labels"] == ["misalignment"] and row["canary"] for row in rows)
    assert all("misalignment" in one.to_markdown() for one in Run(tmp_path / "run"))

    # Files of the original have no labels; who says which scenario they are of has said enough.
    for row in rows:
        del row["labels"], row["canary"]
    (tmp_path / "plain.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = camel("import", "plain.jsonl", "imported", "--scenario", "misalignment", cwd=tmp_path)
    assert done.status == 0, done.stderr
    assert camel("export", "imported", "chat", "y.jsonl", cwd=tmp_path).status == 2


def test_a_translation_as_a_user_sees_it(gate: GatedEndpoint, tmp_path: Path):
    write(tmp_path, gate, counts="assistant_role = 1, user_role = 2, task = 2")
    url = {"OPENAI_BASE_URL": gate.base_url}
    command = ["translate", "run", "--to", "de", "--model", "simulated", "--concurrency", "2"]
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    missing = camel("export", "run", "chat", "x.jsonl", "--language", "de", cwd=tmp_path)
    assert missing.status == 2
    assert "camel translate run --to de" in missing.stderr
    gate.hold_after(6)
    with Program(*command, cwd=tmp_path, env=url) as process:
        gate.wait_until_held()
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping" in process.out, "a word about the calls in flight")
        gate.release()
        assert process.wait() == 130
        assert "\nexpect  32 calls of simulated" in process.out
        assert process.out.endswith(f"\nresume  camel {' '.join(command)}\n")
    refused = camel(*command[:4], "--model", "other", cwd=tmp_path, **url)
    assert refused.status == 2
    assert "--model simulated" in refused.stderr
    done = camel(*command, cwd=tmp_path, **url)
    assert done.status == 0, done.stderr
    assert "translated-de 4/4" in done.stdout
    assert gate.ledger().billed_repeats == 0
    now = status(tmp_path)
    assert now["state"] == "complete"
    assert now["stages"][-1]["name"] == "translated-de"
    assert now["stages"][-1]["tokens"] > 0
    assert "translated-de: 4 of 4" in camel("run", "status", "run", cwd=tmp_path).stdout
    done = camel("export", "run", "chat", "de.jsonl", "--language", "de", cwd=tmp_path)
    assert done.stdout.startswith("4 conversations in de")
    assert (tmp_path / "de.jsonl").read_text().count("\n") == 4
    assert len(chats(tmp_path)) == 4


def test_an_unfinished_run_is_not_translated(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint, run="concurrency = 4\n[budget]\ncalls = 40")
    assert camel("generate", "config.toml", cwd=tmp_path).status == 3
    refused = camel("translate", "run", "--to", "de", "--model", "m", cwd=tmp_path, OPENAI_API_KEY="k")
    assert refused.status == 2
    assert "camel generate config.toml" in refused.stderr


def test_ctrl_c_once_ends_what_is_in_flight_and_resumes(gate: GatedEndpoint, tmp_path: Path):
    write(tmp_path, gate)
    gate.hold_after(25)
    with Program("generate", "config.toml", cwd=tmp_path) as process:
        gate.wait_until_held()
        assert status(tmp_path)["state"] == "working"
        second = camel("generate", "config.toml", cwd=tmp_path)
        assert second.status == 2
        assert "another process" in second.stderr
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping: " in process.out, "a word about the calls in flight")
        gate.release()
        assert process.wait() == 130
        assert process.out.endswith("\nresume  camel generate config.toml\n")
    before = gate.ledger()
    assert before.in_flight == 0
    now = status(tmp_path)
    assert (now["state"], now["why"]) == ("stopped", STOPPED)
    assert now["usage"]["calls"] == before.billed, "what is not committed is counted too"
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    after = gate.ledger()
    assert after.billed_repeats == 0
    assert status(tmp_path)["usage"]["calls"] == after.billed
    assert len(chats(tmp_path)) == 8


def test_ctrl_c_twice_leaves_at_once(gate: GatedEndpoint, tmp_path: Path):
    write(tmp_path, gate)
    gate.hold_after(0)
    with Program("generate", "config.toml", cwd=tmp_path) as process:
        gate.wait_until_held()
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping: " in process.out, "a word about the calls in flight")
        assert process.poll() is None, "the call in flight is waited for"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert gate.ledger().served == 0, "the call never ends"
        assert "resume  camel generate config.toml" in process.out
        assert "1 call in flight" in process.out.partition("Ctrl-C again")[2]


def test_the_panel_on_a_terminal(gate: GatedEndpoint, tmp_path: Path):
    write(tmp_path, gate)
    gate.hold_after(30)
    with Terminal(["generate", "config.toml"], tmp_path, {"COLUMNS": "100", "LINES": "40"}) as terminal:
        terminal.wait_for("in progress")
        gate.release()
        assert terminal.end() == 0
        output = terminal.raw
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.decode()).replace("\r", "")
    last = text[text.rindex("╭") :]
    for expected in ("ai_society · simulated · complete", "8 / 8", "86 ·", "in flight", "done", "8 (100%)"):
        assert expected in last
    assert "resume  camel generate config.toml" in text
    assert "camel explore run" in text[text.rindex("╰") :]
    assert b"\x1b[?25h" in output, "the cursor is given back"


def test_kill_and_resume(gate: GatedEndpoint, tmp_path: Path):
    write(tmp_path, gate, more="shard_size = 3")
    for more in (10, 30, 30):
        gate.hold_after(more)
        with Program("generate", "config.toml", cwd=tmp_path) as process:
            gate.wait_until_held()
            process.kill()
            process.wait()
        wait_until(lambda: gate.ledger().in_flight == 0, "the end of the calls")
    gate.release()
    now = status(tmp_path)
    assert now["state"] == "stopped"
    assert now["why"]
    assert now["resume"] == "camel generate config.toml"
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    assert gate.ledger().billed_repeats <= 3 * 4, "at most the calls in flight at each kill"
    assert [len(rows := chats(tmp_path)), len({row["id"] for row in rows})] == [8, 8]
    # 6 lists, and for each conversation the specifier and 9 messages.
    assert status(tmp_path)["usage"]["calls"] == 6 + 8 * 10


def test_another_configuration_is_refused_by_name(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint)
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    write(tmp_path, endpoint, counts="assistant_role = 2, user_role = 2, task = 3", more="seed = 7")
    requests = endpoint.ledger().requests
    refused = camel("generate", "config.toml", cwd=tmp_path)
    assert refused.status == 2
    assert refused.stderr.splitlines()[1:3] == ["  counts.task: 2 → 3", "  seed: not set → 7"]
    assert "--reuse-lists NEWDIR" in refused.stderr
    assert "concurrency" not in refused.stderr
    assert "fingerprint" not in refused.stderr
    assert endpoint.ledger().requests == requests
    # Where and how fast it is sent may change.
    write(tmp_path, endpoint, model="deadline = 60", run="concurrency = 2")
    assert camel("generate", "config.toml", "--concurrency", "3", cwd=tmp_path).status == 0


def test_a_run_next_to_its_configuration_is_not_paid_for_again(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint)
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    requests = endpoint.ledger().requests
    (tmp_path / "other").mkdir()
    for verb in (("generate",), ("generate", "--dry-run"), ("plan",)):
        refused = camel(*verb, "../config.toml", cwd=tmp_path / "other")
        assert refused.status == 2
        assert "--out ../run" in refused.stderr
        assert "--out run" in refused.stderr
    assert camel("generate", "../config.toml", "--out", "../run", cwd=tmp_path / "other").status == 0
    assert endpoint.ledger().requests == requests


def test_a_fork_keeps_the_lists_that_the_change_does_not_concern(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint)
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    write(tmp_path, endpoint, counts="assistant_role = 2, user_role = 2, task = 3")
    before = endpoint.ledger().requests
    told = camel("plan", "config.toml", cwd=tmp_path).stdout
    assert told.splitlines()[1] == "  counts.task: 2 → 3"
    assert " done" not in told
    dry = camel("generate", "config.toml", "--reuse-lists", "forked", "--dry-run", cwd=tmp_path).stdout
    assert "on 8 of" in dry
    assert not (tmp_path / "forked").exists()
    assert endpoint.ledger().requests == before
    done = camel("generate", "config.toml", "--reuse-lists", "forked", cwd=tmp_path)
    start = done.stdout.splitlines().index(dry.splitlines()[0])
    assert dry.splitlines()[:3] == done.stdout.splitlines()[start : start + 3]
    assert done.status == 0, done.stderr
    assert "lists of assistant_role, user_role\n" in done.stdout
    assert "resume  camel generate config.toml --out forked\n" in done.stdout
    now = status(tmp_path, "forked")
    assert now["forked_from"] == "run"
    assert now["usage"]["calls"] == endpoint.ledger().requests - before
    assert len(chats(tmp_path, "forked")) == 12
    # The same command continues it; a folder with other files is not touched.
    before = endpoint.ledger().requests
    assert camel("generate", "config.toml", "--reuse-lists", "forked", cwd=tmp_path).status == 0
    assert endpoint.ledger().requests == before
    assert (
        camel("generate", "config.toml", "--reuse-lists", "run", "--out", "forked", cwd=tmp_path).status == 2
    )
    write(tmp_path, endpoint, more="seed = 7")
    done = camel("generate", "config.toml", "--reuse-lists", "second", cwd=tmp_path)
    assert "lists of run" in done.stdout
    assert "assistant_role, user_role, task (seed changed)" in done.stdout
    listed = camel("run", "list", ".", cwd=tmp_path).stdout
    assert listed.count(" complete ") == 3


@pytest.mark.parametrize(
    ("budget", "word"),
    [("calls = 30", "30 calls"), ("tokens = 20_000", "20,000 tokens"), ("usd = 0.01", "$0.01")],
)
def test_a_budget_stops_the_run(gate: GatedEndpoint, tmp_path: Path, budget: str, word: str):
    model = "price = { input = 0.4, output = 1.6 }"
    write(tmp_path, gate, model=model, run=f"concurrency = 4\n[budget]\n{budget}")
    done = camel("generate", "config.toml", cwd=tmp_path)
    assert done.status == 3, done.stderr
    assert f"budget of {word}" in done.stdout
    assert "\nresume  camel generate config.toml\n" in done.stdout
    spent = gate.ledger()
    if "calls" in budget:
        assert spent.billed == 30
    # No call of this run is longer than 1,500 tokens.
    elif "tokens" in budget:
        assert 20_000 <= spent.prompt_tokens + spent.completion_tokens <= 20_000 + 4 * 1_500
    else:
        dollars = (0.4 * spent.prompt_tokens + 1.6 * spent.completion_tokens) / 1e6
        assert 0.01 <= dollars <= 0.01 + 4 * 0.001
    # Asked again with the same budget, it remembers what is not committed yet and makes no call.
    assert camel("generate", "config.toml", cwd=tmp_path).status == 3
    assert gate.ledger().requests == spent.requests
    write(tmp_path, gate)
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    assert gate.ledger().billed == 6 + 8 * 10
    assert gate.ledger().billed_repeats == 0


def test_what_has_ended_and_is_not_committed_is_not_lost(gate: GatedEndpoint, tmp_path: Path):
    write(tmp_path, gate, more="shard_size = 8", run="concurrency = 3\n[budget]\ncalls = 60")
    assert camel("generate", "config.toml", cwd=tmp_path).status == 3
    stage = status(tmp_path)["stages"][-1]
    assert stage["committed"] == 0
    assert 3 <= stage["finished"] <= 6
    assert f"0 of 8 committed, {stage['finished']} more" in camel("run", "status", "run", cwd=tmp_path).stdout
    # Nor does it look lost after a start that stops at once, before it got to all that is in the journal.
    assert camel("generate", "config.toml", cwd=tmp_path).status == 3
    assert status(tmp_path)["stages"][-1]["finished"] == stage["finished"]
    refused = camel("export", "run", "chat", "x.jsonl", cwd=tmp_path)
    assert refused.status == 2
    assert "camel run status run" in refused.stderr
    write(tmp_path, gate, more="shard_size = 8")
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    assert status(tmp_path)["stages"][-1] | {"tokens": 0} == {
        **stage,
        "committed": 8,
        "finished": 8,
        "tokens": 0,
    }


def test_a_budget_of_money_needs_a_price(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint, run="concurrency = 4\n[budget]\nusd = 1")
    refused = camel("generate", "config.toml", cwd=tmp_path)
    assert refused.status == 2
    assert "model.price" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_an_endpoint_that_is_down_leaves_a_run_that_resumes(tmp_path: Path, endpoint: SimulatorProcess):
    path = write(tmp_path, endpoint, model="deadline = 0.3", run="outage_patience = 0.02")
    path.write_text(path.read_text().replace(endpoint.base_url, "http://127.0.0.1:9/v1"))
    done = camel("generate", "config.toml", cwd=tmp_path)
    assert done.status == 3
    assert "stopped: " in done.stdout
    assert "resume  camel generate config.toml" in done.stdout
    write(tmp_path, endpoint)
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0


def test_json_lines(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint)
    done = camel("generate", "config.toml", "--json", cwd=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert kinds.count("stage") == 4
    assert all("time" in event for event in events)
    assert events[0]["resume"] == "camel generate config.toml"
    assert events[-1]["state"] == "complete"
    assert events[-1]["usage"]["calls"] == endpoint.ledger().billed


def test_the_log_holds_no_key_and_nothing_that_was_said(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint)
    secret = "sk-secret-0123456789"
    assert camel("generate", "config.toml", cwd=tmp_path, OPENAI_API_KEY=secret).status == 0
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert [json.loads(line)["event"] for line in log.splitlines()][:1] == ["start"]
    assert secret not in log
    for row in chats(tmp_path):
        assert row["specified_task"] not in log
        assert row["message_1"]["content"] not in log
    everything = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert secret.encode() not in everything


def test_a_dry_run_calls_nothing_and_makes_nothing(endpoint: SimulatorProcess, tmp_path: Path):
    write(tmp_path, endpoint)
    done = camel("generate", "config.toml", "--dry-run", cwd=tmp_path)
    assert done.status == 0, done.stderr
    for expected in ("2 × 2 × 2 = 8", "assumed", "── task specifier", "Never flip roles!"):
        assert expected in done.stdout
    plan = json.loads(camel("generate", "config.toml", "--dry-run", "--json", cwd=tmp_path).stdout)
    assert plan["items"] == 8
    assert len(plan["prompts"]) == 7
    assert endpoint.ledger().requests == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml"]


def test_bad_input_is_one_line(endpoint: SimulatorProcess, tmp_path: Path, snapshot: Callable[..., None]):
    write(tmp_path, endpoint)
    (tmp_path / "broken.toml").write_text("scenario = ")
    (tmp_path / "unknown.toml").write_text('scenario = "code"\nmodle = 1\n[model]\nname = "m"\n')
    (tmp_path / "count.toml").write_text('scenario = "code"\ncount = 1\n[model]\nname = "m"\n')
    (tmp_path / "inner.toml").write_text('scenario = "code"\n[model]\nname = "m"\n[run]\nconcurency = 3\n')
    (tmp_path / "outer.toml").write_text('scenario = "code"\nconcurrency = 3\n[model]\nname = "m"\n')
    (tmp_path / "nowhere.toml").write_text('scenario = "cooking"\n[model]\nname = "m"\n')
    (tmp_path / "modelless.toml").write_text('scenario = "code"\n')
    for arguments, word in (
        (("generate", "nothing.toml"), "nothing.toml"),
        (("generate", "broken.toml"), "broken.toml"),
        (("generate", "unknown.toml"), "did you mean model?"),
        (("generate", "count.toml"), "did you mean counts?"),
        (("plan", "inner.toml"), "did you mean concurrency?"),
        (("plan", "outer.toml"), "[run]"),
        (("plan", "nowhere.toml"), "cooking"),
        (("plan", "modelless.toml"), "model is missing"),
        (("generate", "config.toml", "--concurrency", "0"), "--concurrency"),
        (("generate", "config.toml", "--reuse-lists", "new"), "run"),
        (("plan", "config.toml", "--scale", "task"), "LEVEL=N"),
        (("plan", "config.toml", "--scale", "planet=3"), "planet"),
        (("plan", "config.toml", "--rate", "0"), "--rate"),
        (("run", "status", "."), "."),
        (("run", "list", "nowhere"), "nowhere"),
    ):
        done = camel(*arguments, cwd=tmp_path)
        assert done.status == 2, arguments
        assert word in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
        snapshot("errors", done.stderr, " ".join(arguments))


def test_a_folder_next_to_the_configuration_is_found_from_anywhere(
    endpoint: SimulatorProcess, tmp_path: Path
):
    (tmp_path / "sub").mkdir()
    assert camel("scenarios", "new", "cooking", cwd=tmp_path / "sub").status == 0
    (tmp_path / "sub" / "c.toml").write_text('scenario = "cooking"\n[model]\nname = "m"\n')
    (tmp_path / "sub" / "local.toml").write_text('scenario = "cooking"\n')
    for place, config in ((tmp_path, "sub/c.toml"), (tmp_path / "sub", "c.toml")):
        done = camel("plan", config, cwd=place)
        assert done.status == 0, done.stderr
    done = camel("plan", "local.toml", "--local", cwd=tmp_path / "sub")
    assert done.status == 0, done.stderr


@pytest.mark.parametrize("config", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_configurations_plan(config: Path, tmp_path: Path):
    path = tmp_path / config.name
    path.write_text(config.read_text().replace("# acknowledge", "acknowledge"))
    done = camel("plan", str(path), "--json", cwd=tmp_path)
    assert done.status == 0, done.stderr
    items = {"trial": 8, "code": 50_000, "math": 50_000, "ai_society": 25_000, "misalignment": 25_000}
    assert json.loads(done.stdout)["items"] == items.get(config.stem, 20_000)


def test_several_replicas(endpoint: SimulatorProcess, tmp_path: Path):
    """Both are used, each conversation by one of them, and shown while it runs."""
    with serve(SimulatorSettings(length=LogNormal(median=6, p99=12))) as other:
        path = write(tmp_path, endpoint, model="open_per_replica = 3\nrpm = 100_000")
        urls = [endpoint.base_url, other.base_url]
        path.write_text(path.read_text().replace(f'"{endpoint.base_url}"', json.dumps(urls)))
        before = endpoint.ledger().served
        done = camel("generate", "config.toml", "--json", cwd=tmp_path)
        assert done.status == 0, done.stderr
        last = json.loads(done.stdout.splitlines()[-1])
        served = [endpoint.ledger().served - before, other.ledger().served]
    assert {one["url"]: one["calls"] for one in last["replicas"]} == dict(zip(urls, served, strict=True))
    assert min(served) > 0
    assert all(one["state"] == "closed" and one["most_open"] == 3 for one in last["replicas"])
    assert sum(served) == status(tmp_path)["usage"]["calls"]


def test_the_resume_command_names_the_journals_of_a_store(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CAMEL_JOURNALS", "/fast disk/journals")
    command = in_process.parser()
    typed = ["generate", "a.toml", "--json", "--concurrency", "8", "--accept-change", "model.name"]
    with command.make_context("camel", typed) as outer:  # pyright: ignore[reportUnknownMemberType]
        name, inner, rest = command.resolve_command(outer, typed)  # pyright: ignore
        with inner.make_context(name, rest, parent=outer) as context:  # pyright: ignore
            again = [resume_line(context, where=where) for where in ("s3://b/run", "runs/a")]  # pyright: ignore
    line = "camel generate a.toml --concurrency 8"
    assert again == [f"CAMEL_JOURNALS='/fast disk/journals' {line}", line]
