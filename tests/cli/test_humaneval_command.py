"""`camel evaluate humaneval` as a user sees it: planted outcomes are what it reports, and the endpoint's ledger is the
witness that nothing is asked twice."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import pytest

from camel.engine.stage import read_step
from camel.evaluation.humaneval.records import SAMPLES, HumanEvalConfig, prompt_text
from camel.evaluation.humaneval.report import PAPER, HumanEvalReport
from camel.evaluation.humaneval.solving import HumanEval, report
from camel.models.scripted import ScriptedModel
from camel.models.simulator import SimulatorProcess, SimulatorSettings
from camel.reports.html import render_html
from camel.reports.markdown import render_markdown
from camel.reports.plots import drawn
from camel.runs.run import RunFolder
from tests.support import command, planted
from tests.support.closed_pages import browse, check
from tests.support.endpoints import serve
from tests.support.forks import Program, wait_until
from tests.support.gates import GatedEndpoint, serve_gated
from tests.support.in_process import Done
from tests.support.jobs import run as run_job

HUMANEVAL = ("evaluate", "humaneval", "--seed", "1")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(author="tests.support.planted:author")) as process:
        yield process


def environment(endpoint: SimulatorProcess) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": endpoint.base_url,
        "CAMEL_MODEL": "simulated",
    }


def camel(endpoint: SimulatorProcess, cwd: Path, *args: str, **more: str) -> Done:
    return command.camel(*HUMANEVAL, *args, cwd=cwd, **environment(endpoint) | more)


def result_in(done: Done) -> dict[str, Any]:
    """The figures that `--json` prints last."""
    end = json.loads(done.stdout.splitlines()[-1])
    assert end["event"] == "end"
    return end["result"]


def samples_in(folder: Path, n: int) -> dict[str, list[str]]:
    """The answers of each problem, read from the files."""
    found: dict[str, list[str]] = {}
    run = RunFolder(folder)
    for shard in range(n):
        for line in run.read(run.marker(SAMPLES, shard).file).splitlines():
            row = json.loads(line)
            found.setdefault(row["problem"], []).append(row["content"])
    return found


def check_planted(folder: Path, n: int, problems: int) -> dict[str, Any]:
    """The report says of each problem what was planted, and pass@k follows from that by counting."""
    figures = json.loads((folder / "humaneval.json").read_text())
    answers = samples_in(folder, n)
    assert len(answers) == problems
    assert {len(row) for row in answers.values()} == {n}
    wanted = {problem: planted.planted(row) for problem, row in answers.items()}
    assert {one["problem"]: (one["humaneval"], one["plus"]) for one in figures["by_problem"]} == wanted
    for suite, place in (("humaneval", 0), ("plus", 1)):
        for one in figures["curve"][suite]:
            k, total = one["k"], Fraction(0)
            for counts in wanted.values():
                passed = counts[place]
                if n <= 12:
                    outcomes = [number < passed for number in range(n)]
                    total += Fraction(sum(map(any, itertools.combinations(outcomes, k))), comb(n, k))
                else:
                    none = Fraction(1)
                    for drawn in range(k):  # one after the other, each failing
                        none *= Fraction(max(0, n - passed - drawn), n - drawn)
                    total += 1 - none
            assert one["rate"] == pytest.approx(float(total / problems), abs=1e-12)
            assert one["low"] <= one["rate"] <= one["high"]
    return figures


@pytest.mark.slow
def test_planted_outcomes_are_reported(endpoint: SimulatorProcess, tmp_path: Path):
    endpoint.reset()
    dry = camel(endpoint, tmp_path, "-n", "4", "--problems", "6", "--dry-run")
    assert dry.status == 0, dry.stderr
    assert "24 calls of simulated" in dry.stdout
    assert "has_close_elements" in dry.stdout
    assert endpoint.ledger().served == 0
    assert not list(tmp_path.iterdir())
    done = camel(endpoint, tmp_path, "-n", "4", "-k", "1", "-k", "3", "--problems", "6")
    assert done.status == 0, done.stdout + done.stderr
    assert "CAMEL-7B (paper)" in done.stdout
    folder = tmp_path / "runs/humaneval-simulated"
    figures = check_planted(folder, 4, 6)
    assert [one["k"] for one in figures["humaneval"]] == [1, 3]
    assert figures["outcomes"]["passed"] > 0
    assert figures["contained"] is True
    assert figures["config"]["model"] == "simulated"
    assert figures["usage"]["calls"] == endpoint.ledger().served == 24
    assert {path.suffix for path in (folder / "plots").iterdir()} == {".svg", ".png", ".csv"}
    # The same again asks nobody and runs nothing.
    again = camel(endpoint, tmp_path, "-n", "4", "-k", "1", "-k", "3", "--problems", "6", "--json")
    assert result_in(again) == figures
    assert endpoint.ledger().served == 24
    # A larger number of samples continues from the smaller one.
    more = camel(endpoint, tmp_path, "-n", "5", "--problems", "6")
    assert more.status == 0, more.stderr
    check_planted(folder, 5, 6)
    assert endpoint.ledger().served == 30
    assert command.camel("run", "verify", str(folder), cwd=tmp_path).status == 0
    assert "complete" in command.camel("run", "status", str(folder), cwd=tmp_path).stdout
    # And fewer are among them.
    fewer = camel(endpoint, tmp_path, "-n", "4", "-k", "1", "-k", "3", "--problems", "6", "--json")
    assert result_in(fewer) == figures
    other = camel(endpoint, tmp_path, "-n", "4", "--problems", "6", "--temperature", "0.1")
    assert other.status == 2
    assert "sampling" in other.stderr
    assert endpoint.ledger().served == 30


def test_what_cannot_be_is_refused_before_anything_is_paid(endpoint: SimulatorProcess, tmp_path: Path):
    endpoint.reset()
    wrong = camel(endpoint, tmp_path, "-n", "2", "-k", "3")
    assert wrong.status == 2
    assert "-k must" in wrong.stderr
    bare = tmp_path / "bin"
    bare.mkdir()
    # In processes of their own: where the sandbox is found is looked up once.
    without = environment(endpoint) | {"PATH": str(bare)}
    args = (*HUMANEVAL, "-n", "2", "--problems", "2")
    with Program(*args, cwd=tmp_path, env=without) as none:
        assert none.wait() == 2
        assert "apt install bubblewrap" in none.err
    money = camel(endpoint, tmp_path, "-n", "2", "--problems", "2", "--budget-usd", "1")
    assert money.status == 2
    assert endpoint.ledger().requests == 0
    words = "--run-programs-of-the-model-without-a-sandbox"
    with Program(*args, words, cwd=tmp_path, env=without) as told:
        assert told.wait() == 0, told.err
        assert "without a sandbox" in told.out


@pytest.mark.slow
def test_a_budget_stops_it_and_the_same_command_continues(endpoint: SimulatorProcess, tmp_path: Path):
    endpoint.reset()
    args = ("-n", "4", "--problems", "5", "--out", "kept")
    stopped = camel(endpoint, tmp_path, *args, "--budget-calls", "7")
    assert stopped.status == 3
    assert "budget of 7 calls" in stopped.stdout
    assert endpoint.ledger().served == 7
    assert camel(endpoint, tmp_path, *args).status == 0
    check_planted(tmp_path / "kept", 4, 5)
    assert endpoint.ledger().served == 20


def journaled(folder: Path, n: int, problems: int) -> int:
    """Samples that are on the disk, in shards or in journals."""
    if not (folder / "run.json").exists():
        return 0
    run = RunFolder(folder)
    done = run.committed(SAMPLES)
    left = {
        (read_step(entry).item, read_step(entry).step)
        for shard in set(range(n)) - done
        for entry in run.replay(SAMPLES, shard)
    }
    return len(done) * problems + len(left)


def killed_at_random(tmp_path: Path, kills: int, n: int, problems: int) -> None:
    """Kill it so often while it asks, and once while it judges."""
    rng, lost = random.Random(7), 0
    with serve_gated(SimulatorSettings(author="tests.support.planted:author")) as endpoint:
        args = ("-n", str(n), "--problems", str(problems), "--out", "kept", "--concurrency", "8")
        folder, total = tmp_path / "kept", n * problems

        def judging() -> bool:
            committed = folder / "committed"
            return committed.exists() and any(committed.glob("verdicts*/*.json"))

        def kill_when(reached: Callable[[], bool]) -> None:
            with Program(*HUMANEVAL, *args, cwd=tmp_path, env=environment(endpoint)) as child:

                def ready() -> bool:
                    assert child.poll() is None, "it ended before it could be killed"
                    return reached()

                wait_until(ready, "a moment to kill")
                child.kill()
                child.wait()
            wait_until(lambda: not endpoint.ledger().in_flight, "the end of the calls")
            for left in Path(tempfile.gettempdir()).glob(f"camel-sandbox-{child.pid}-*"):
                shutil.rmtree(left)

        for number in range(kills):
            # Between what was reached before and the next of as many marks: it is always still asking.
            mark = rng.randint(total * number // (kills + 1) + 1, total * (number + 1) // (kills + 1))
            endpoint.hold_after(max(1, mark - distinct(endpoint)))
            kill_when(lambda: endpoint.is_holding and journaled(folder, n, problems) > 0)
            kept = journaled(folder, n, problems)
            assert kept < total
            lost += distinct(endpoint) - kept
        assert kept > 0
        endpoint.release()
        before = endpoint.ledger().requests
        kill_when(judging)
        # What was on the disk was not asked for again, and everything else was, once.
        assert endpoint.ledger().requests - before == total - kept
        # What was paid for twice was in flight at a kill: answered, and not on the disk yet.
        assert endpoint.ledger().billed_repeats <= lost <= 16 * kills
        before = endpoint.ledger().requests
        done = camel(endpoint, tmp_path, *args)
        assert done.status == 0, done.stdout + done.stderr
        assert endpoint.ledger().requests == before
        figures = check_planted(folder, n, problems)
        # An undisturbed evaluation says the same.
        calm = camel(endpoint, tmp_path, "-n", str(n), "--problems", str(problems), "--out", "calm")
        assert calm.status == 0, calm.stderr
        assert json.loads((tmp_path / "calm/humaneval.json").read_text()) == figures


def distinct(endpoint: GatedEndpoint) -> int:
    """Samples that the endpoint has answered, each counted once."""
    ledger = endpoint.ledger()
    return ledger.billed - ledger.billed_repeats


@pytest.mark.slow
def test_it_continues_after_a_kill(tmp_path: Path):
    killed_at_random(tmp_path, 1, 5, 6)


@pytest.mark.thorough
@pytest.mark.slow
def test_killed_at_random_points_it_ends_with_the_same_numbers(tmp_path: Path):
    killed_at_random(tmp_path, 5, 15, 20)


@pytest.mark.slow
def test_it_can_be_resumed_after_ctrl_c(tmp_path: Path):
    with serve_gated(SimulatorSettings(author="tests.support.planted:author")) as endpoint:
        args = ("-n", "5", "--problems", "6", "--out", "kept", "--concurrency", "4")
        endpoint.hold_after(12)
        with Program(*HUMANEVAL, *args, cwd=tmp_path, env=environment(endpoint)) as child:
            endpoint.wait_until_held()
            child.send_signal(signal.SIGINT)
            wait_until(lambda: "stopping" in child.out, "a word about the calls in flight")
            endpoint.release()
            assert child.wait() == 130
            assert "resume  camel evaluate humaneval -n 5 --problems 6" in child.out
        assert endpoint.ledger().served == journaled(tmp_path / "kept", 5, 6) <= 12 + 4
        assert camel(endpoint, tmp_path, *args).status == 0
        assert endpoint.ledger().served == 30
        check_planted(tmp_path / "kept", 5, 6)


@pytest.mark.thorough
def test_all_problems_as_planted(endpoint: SimulatorProcess, tmp_path: Path):
    """All 164 problems; with 200 samples of each, the paper's size, it is `python -m benchmarks.humaneval`."""
    endpoint.reset()
    done = camel(endpoint, tmp_path, "-n", "20", "--out", "kept")
    assert done.status == 0, done.stdout + done.stderr
    figures = check_planted(tmp_path / "kept", 20, 164)
    assert [one["k"] for one in figures["plus"]] == [1, 10]
    assert [one["plus"] for one in figures["by_problem"]] != [
        one["humaneval"] for one in figures["by_problem"]
    ]
    ledger = endpoint.ledger()
    assert (ledger.served, ledger.billed_repeats) == (164 * 20, 0)
    assert figures["usage"]["calls"] == 164 * 20
    assert figures["usage"]["completion"] == ledger.completion_tokens


# --- the report ----------------------------------------------------------------------------------------------------

EVIL = "<script>alert(1)</script>```\n# heading | [x](http://evil.example)\n\x00\u202e"


def evil_report(tmp_path: Path) -> HumanEvalReport:
    answer = f"```python\ndef has_close_elements(a, b):\n    raise ValueError({EVIL!r})\n```"
    model = ScriptedModel(
        lambda request: answer if "has_close" in request.history.entries[0].content else EVIL
    )
    config = HumanEvalConfig(EVIL, prompt_text(), problems=2)
    ended = run_job(HumanEval(str(tmp_path / "kept"), config, 2, model, ks=(1, 2)))
    assert ended.status == "complete"
    return ended.result


def test_the_report_is_closed_and_says_what_the_model_said_as_text(tmp_path: Path):
    made = evil_report(tmp_path)
    assert made.outcomes == {"no code": 2, "raised": 2}
    blocks = report(made)
    html = render_html(blocks, {plot.name: drawn(plot) for plot in blocks.plots})
    check(html)
    assert "&lt;script&gt;alert(1)" in html
    text = render_markdown(blocks)
    assert "<script>" not in re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "57.9" in text
    assert "57.9" in html


@pytest.mark.slow
def test_a_browser_has_nothing_to_complain_about(tmp_path: Path):
    blocks = report(evil_report(tmp_path))
    (tmp_path / "humaneval.html").write_text(
        render_html(blocks, {plot.name: drawn(plot) for plot in blocks.plots}), "utf-8"
    )
    browse(tmp_path / "humaneval.html")


def test_the_paper_s_numbers_are_the_paper_s():
    rows = {row.model: row for row in PAPER}
    assert rows["CAMEL-7B"].humaneval == {1: 14.0, 100: 57.9}
    assert rows["CAMEL-7B"].plus == {1: 12.2, 100: 50.0}
    assert rows["gpt-3.5-turbo"].plus == {1: 61.7, 100: 89.8}
    assert rows["LLaMA-7B"].plus == {}
