"""`camel evaluate agents` as a user sees it: planted outcomes, budgets, kills, with the endpoint's ledger as the witness."""

from __future__ import annotations

import json
import random
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from camel import InputError
from camel.cli import app
from camel.models.connect import label, split_name
from camel.models.simulator import SimulatorProcess, SimulatorSettings
from tests.support import command
from tests.support.contests import KINDS, PLANTED, kind_of
from tests.support.contests import a_run as planted_run
from tests.support.endpoints import serve
from tests.support.forks import Program, wait_until
from tests.support.gates import serve_gated
from tests.support.in_process import Done


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(author="tests.support.contests:author")) as process:
        yield process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    planted_run(tmp_path / "society")
    planted_run(tmp_path / "code", "code")
    return tmp_path


def environment(endpoint: SimulatorProcess) -> dict[str, str]:
    return {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": endpoint.base_url}


def camel(endpoint: SimulatorProcess, folder: Path, *args: str) -> Done:
    return command.camel("evaluate", "agents", *args, cwd=folder, **environment(endpoint))


def figures(folder: Path, where: str = "society/evaluation") -> Any:
    return json.loads((folder / where / "evaluation.json").read_text())


def counted(figures: Any) -> dict[str, tuple[int, ...]]:
    return {
        one["group"]: tuple(one["shares"][kind]["count"] for kind in ("wins", "losses", "draws"))
        for one in figures["headline"]
    }


SMALL = ("society", "--judge", "gpt-4", "--sample", "10", "--repeats", "2")


def here(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[str, str]:
    """The command in this process: what it prints to the two outputs."""
    app(["evaluate", "agents", *args], standalone_mode=False)
    return capsys.readouterr()


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, endpoint: SimulatorProcess, folder: Path) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.slow
@pytest.mark.usefixtures("inside")
def test_a_table_from_one_command(
    endpoint: SimulatorProcess, folder: Path, capsys: pytest.CaptureFixture[str]
):
    asked = endpoint.ledger().served
    plan, _ = here(capsys, *SMALL, "--dry-run")
    assert "10 tasks of 100" in plan
    assert "about 44 calls" in plan
    assert "$" in plan  # the base model has no price, the judge has
    assert endpoint.ledger().served == asked
    done, _ = here(capsys, *SMALL)
    assert "Paper: GPT-4 evaluation" in done
    assert "76.3%" in done
    assert endpoint.ledger().served == asked + 44
    out = folder / "society/evaluation"
    assert {"evaluation.html", "evaluation.md", "evaluation.json", "pairs.jsonl", "verdicts.jsonl"} <= {
        path.name for path in out.iterdir()
    }
    assert {path.stem for path in (out / "plots").iterdir()} == {"results", "order", "length"}
    assert {path.stem for path in (out / "prompts").iterdir()} == {"judge", "again", "summary", "single-shot"}
    again, said = here(capsys, *SMALL, "--json")
    events = [json.loads(line) for line in again.splitlines()]
    assert events[0]["event"] == "start"
    assert (events[-1]["event"], events[-1]["status"]) == ("end", "complete")
    assert events[-1]["result"] == figures(folder)
    assert not said
    assert endpoint.ledger().served == asked + 44


@pytest.mark.usefixtures("inside")
def test_two_runs_of_one_scenario_have_a_row_each(
    endpoint: SimulatorProcess, folder: Path, capsys: pytest.CaptureFixture[str]
):
    planted_run(folder / "other", numbers=range(50, 80))
    done, _ = here(capsys, "society", "other", "--sample", "3", "--repeats", "0", "--judge", "strong")
    assert done.count("Paper: Human evaluation") == 1
    assert [one["group"] for one in figures(folder)["headline"]] == ["society", "other"]


@pytest.mark.usefixtures("inside")
def test_runs_meet_each_other_and_the_single_shot(
    endpoint: SimulatorProcess, folder: Path, capsys: pytest.CaptureFixture[str]
):
    planted_run(folder / "other")
    asked = endpoint.ledger().served
    args = ("society", "--against", "other", "--against", "single-shot", "--sample", "6", "--repeats", "0")
    done, _ = here(capsys, *args, "--judge", "base")
    assert "agents / other" in done
    assert "base also wrote" in done
    # Both runs hold the same bytes: they are summarized and compared with the single shot once, and draw without a question.
    assert endpoint.ledger().served == asked + 6 + 6 + 2 * 6
    made = figures(folder)
    assert {one["system"] for one in made["ratings"]} == {"agents", "other", "single-shot"}
    same = next(one for one in made["headline"] if one["b"] == "other")
    assert same["shares"]["draws"]["count"] == 6


@pytest.mark.slow
def test_budgets_stop_it_and_the_same_command_continues(endpoint: SimulatorProcess, folder: Path):
    asked = endpoint.ledger().served
    for limit, total in (("13", 13), ("30", 30)):
        stopped = camel(endpoint, folder, *SMALL, "--budget-calls", limit)
        assert stopped.status == 3
        assert f"budget of {limit} calls" in stopped.stdout
        assert f"resume  camel evaluate agents {shlex.join(SMALL)} --budget-calls {limit}" in stopped.stdout
        assert endpoint.ledger().served == asked + total
    priced = (*SMALL, "--model", "gpt-4.1-mini")
    money = camel(endpoint, folder, *priced, "--budget-usd", "0.01", "--out", "priced")
    assert money.status == 3, money.stdout + money.stderr
    assert "budget of $0.01" in money.stdout
    before = endpoint.ledger().served
    assert camel(endpoint, folder, *SMALL).status == 0
    assert endpoint.ledger().served == before + 14


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nothing", "--judge", "x"], "nothing"),
        (["society"], "--judge"),
        (["society", "--judge", "x", "--against", "nobody"], "--against"),
        (["society", "--judge", "x", "--against", "code"], "code"),
        (["society", "--judge", "x", "--acknowledge", "all"], "--acknowledge"),
        (["society", "--judge", "x", "--judge-prompt", "none.txt"], "none.txt"),
        (["society", "--judge", "x", "--budget-usd", "1"], "price"),
        (["society", "--judge", "x", "--guided", "mine"], "--guided"),
        (["society", "--judge", "x", "--local"], "--local"),
    ],
)
@pytest.mark.usefixtures("inside")
def test_mistakes_cost_nothing_and_are_one_line(
    endpoint: SimulatorProcess,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    says: str,
    snapshot: Callable[..., None],
):
    asked = endpoint.ledger().served
    with pytest.raises(InputError) as raised:
        here(capsys, *args)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    snapshot("errors", raised.value)
    assert endpoint.ledger().served == asked


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(0, 100, 8), marks=pytest.mark.slow, id="some"),
        pytest.param(range(100), marks=pytest.mark.thorough, id="paper"),
    ],
)
def test_planted_outcomes_are_found(endpoint: SimulatorProcess, tmp_path: Path, numbers: range):
    """Every eighth of the tasks, or the paper's hundred."""
    planted_run(tmp_path / "society", numbers=numbers)
    planted_run(tmp_path / "code", "code", numbers)
    asked, tasks, repeats = endpoint.ledger().served, len(numbers), min(20, len(numbers))
    with serve(SimulatorSettings(author="tests.support.contests:contrary")) as other:
        done = camel(
            endpoint, tmp_path, "society", "code", "--judge", "one", "--judge", f"two@{other.base_url}",
            "--summarizer", "one", "--against", "single-shot", "--repeats", str(repeats),
        )  # fmt: skip
        assert done.status == 0, done.stdout + done.stderr
        assert other.ledger().served == 4 * tasks + 4 * repeats
    assert endpoint.ledger().served == asked + 4 * tasks + 4 * tasks + 4 * repeats
    made = figures(tmp_path)
    one = {found["group"]: found for found in made["comparisons"] if found["judge"] == "one"}
    assert one.keys() == PLANTED.keys()
    for group in PLANTED:
        planted = Counter(kind_of(group, number) for number in numbers)
        agents, single, equal, first, second = (planted[kind] for kind in KINDS)
        shares, position = one[group]["shares"], one[group]["position"]
        assert shares["of"] == tasks
        assert shares["wins"]["rate"] == agents / tasks
        assert shares["losses"]["rate"] == single / tasks
        assert shares["draws"]["rate"] == (equal + first + second) / tasks
        assert (position["to_first"], position["to_second"]) == (first, second)
        # What one order alone would have reported is off by the bias.
        assert position["a_first"]["wins"]["rate"] == (agents + first) / tasks
        assert position["b_first"]["wins"]["rate"] == (agents + second) / tasks
    if tasks == 100:
        assert one["ai_society"]["position"]["p"] < 0.05
    assert one["code"]["position"]["p"] == 1
    # The other judge finds the opposite in every fifth task.
    two = {found["group"]: found for found in made["comparisons"] if found["judge"] != "one"}
    assert {found["judge"] for found in two.values()} == {f"two@{other.base_url.split('/')[2]}"}
    contrary = sum((kind_of("code", number) == "agents") != (number % 5 == 0) for number in numbers)
    assert two["code"]["shares"]["wins"]["count"] == contrary
    (agreement,) = made["agreement"]
    assert 0 < agreement["kappa"]["kappa"] < 1
    assert agreement["kappa"]["items"] == 2 * tasks


@pytest.mark.slow
def test_ctrl_c_lets_the_calls_in_flight_end(folder: Path):
    args = ("society", "--judge", "strong", "--sample", "20", "--repeats", "0", "--concurrency", "4")
    with serve_gated(SimulatorSettings(author="tests.support.contests:author")) as endpoint:
        endpoint.hold_after(15)
        with Program("evaluate", "agents", *args, cwd=folder, env=environment(endpoint)) as process:
            endpoint.wait_until_held()
            process.send_signal(signal.SIGINT)
            wait_until(lambda: "stopping" in process.out, "a word about the calls in flight")
            endpoint.release()
            assert process.wait() == 130
            assert f"resume  camel evaluate agents {shlex.join(args)}" in process.out
        assert endpoint.ledger().served <= 15 + 4
        assert camel(endpoint, folder, *args).status == 0
        # Nothing was lost: each call was made once.
        assert endpoint.ledger().requests == 20 + 20 + 40


@pytest.mark.slow
def test_an_endpoint_that_fails_now_and_then_changes_no_figure(folder: Path, endpoint: SimulatorProcess):
    args = ("society", "--judge", "strong", "--sample", "20", "--repeats", "3")
    faults: Any = {"500": 0.04, "429": 0.04, "truncate": 0.03, "malformed": 0.03, "lost": 0.02}
    settings = SimulatorSettings(
        author="tests.support.contests:author", faults=faults, retry_after=0.01, seed=3
    )
    with serve(settings) as faulty:
        done = camel(faulty, folder, *args, "--out", "faulty")
        assert done.status == 0, done.stdout + done.stderr
        assert faulty.ledger().served == 20 + 20 + 40 + 6
        assert faulty.ledger().requests > 90
    assert camel(endpoint, folder, *args, "--out", "sound").status == 0
    for name in ("evaluation.json", "pairs.jsonl", "verdicts.jsonl"):
        assert (folder / "faulty" / name).read_bytes() == (folder / "sound" / name).read_bytes()


@pytest.mark.thorough  # CI kills runs, whose stages are the same: tests/integration/test_crash.py
def test_kills_at_random_moments_repeat_nothing_that_was_journaled(folder: Path, tmp_path: Path):
    """After each kill exactly what is not in the folder is asked; the figures are those of an undisturbed evaluation."""
    args = (
        "society",
        "--judge",
        "strong",
        "--sample",
        "40",
        "--repeats",
        "5",
        "--concurrency",
        "4",
        "--out",
        "out",
    )
    whole = 40 + 40 + 80 + 10
    chance = random.Random(11)
    with serve_gated(SimulatorSettings(author="tests.support.contests:author")) as endpoint:
        journaled = served = 0
        for kill in range(40):
            endpoint.hold_after(chance.randint(1, 30))
            with Program("evaluate", "agents", *args, cwd=folder, env=environment(endpoint)) as process:
                wait_until(
                    lambda process=process: endpoint.is_holding or process.poll() is not None,
                    "a moment to kill",
                )
                process.kill()
                process.wait()
            wait_until(lambda: endpoint.ledger().in_flight == 0, "the end of the calls")
            now = endpoint.ledger().requests
            kept = _kept(folder)
            # Paid since the last kill: what is kept, and at most what was in flight.
            assert kept - journaled <= now - served <= kept - journaled + 4, f"kill {kill}"
            journaled, served = kept, now
            if kept >= whole - 20:
                break
        endpoint.release()
        assert kill > 3
        done = camel(endpoint, folder, *args)
        assert done.status == 0, done.stdout + done.stderr
        assert endpoint.ledger().requests - served == whole - journaled
        undisturbed = camel(endpoint, folder, *args[:-1], "undisturbed")
        assert undisturbed.status == 0
    for name in ("evaluation.json", "evaluation.md", "evaluation.html", "pairs.jsonl", "verdicts.jsonl"):
        assert (folder / "out" / name).read_bytes() == (folder / "undisturbed" / name).read_bytes()


def _kept(folder: Path) -> int:
    """Calls whose answers are in an evaluation's folder: in what is committed, or in the journal of what is not."""
    from camel.runs.run import RunFolder

    kept = RunFolder(folder / "out" / "kept")
    if not kept.root.exists():
        return 0
    calls = 0
    for stage in {*kept.stages(), *(path.name for path in (kept.root / "journal").glob("*"))}:
        done = kept.committed(stage)
        calls += sum(
            json.loads(kept.read(kept.marker(stage, shard).file)).get("usage", {}).get("calls", 0)
            for shard in done
        )
        open_ = {
            int(path.name.partition("-")[0]) for path in (kept.root / "journal" / stage).glob("*-*")
        } - done
        calls += sum(1 for shard in open_ for _ in kept.replay(stage, shard))
    return calls


def test_a_model_s_name_in_reports_holds_no_password():
    assert label(*split_name("gpt@https://me:hunter2@example.org:8443/v1")) == "gpt@example.org:8443"
    assert label(*split_name("gpt")) == "gpt"
