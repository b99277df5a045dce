"""`camel evaluate emergence` as a user sees it: the paper's table planted and found, kills, budgets, with the endpoint's ledger."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from camel.models.simulator import SimulatorProcess, SimulatorSettings
from camel.training.emergence.results import PAPER
from tests.support import command
from tests.support.emergences import CHAIN, config, outcome
from tests.support.endpoints import serve
from tests.support.forks import Program, wait_until
from tests.support.gates import serve_gated
from tests.support.in_process import Done

TITLES = {"AI Society": "society", "Code": "code", "Math": "math", "Science": "science"}
LISTS, ANSWERS, VERDICTS, REPEATS = 6, 5 * 120, 2 * 5 * 120, 2 * 5 * 4 * 5


STUDY = ("evaluate", "emergence", "study.toml")


def environment(endpoint: SimulatorProcess) -> dict[str, str]:
    return {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": endpoint.base_url}


def camel(endpoint: SimulatorProcess, folder: Path, *args: str) -> Done:
    return command.camel(*STUDY, *args, cwd=folder, **environment(endpoint))


def table(folder: Path, out: str = "emergence") -> dict[tuple[int, int], dict[str, tuple[int, int, int]]]:
    """The table as the paper's is written down: draws, wins of model 1, wins of model 2."""
    found: dict[tuple[int, int], dict[str, tuple[int, int, int]]] = {}
    made: Any = json.loads((folder / out / "emergence.json").read_text())
    for one in made["table"]:
        counts = tuple(one[kind]["count"] for kind in ("draws", "before_wins", "after_wins"))
        found.setdefault(tuple(one["seen"]), {})[TITLES[one["domain"]]] = counts
    return found


DOMAINS = {"society": ("AI Society", 6, "x"), "code": ("Code", 5, "x"), "math": ("Math", 8, "mathematics")}
SMALL = "".join(
    f'[[domains]]\nname = "{name}"\ntitle = "{title}"\nquestions = {count}\nsubjects = ["{subject}"]\n'
    for name, (title, count, subject) in DOMAINS.items()
)


@pytest.mark.slow
def test_planted_outcomes_are_found(tmp_path: Path):
    (tmp_path / "study.toml").write_text(config(repeats=1) + SMALL)
    questions = sum(count for _, count, _ in DOMAINS.values())
    calls = 3 + 5 * questions + 2 * 5 * questions + 2 * 5 * 3
    wanted = {
        seen: {
            name: (
                count - sum(outcome(seen, name, n) in ("before", "after") for n in range(count)),
                sum(outcome(seen, name, n) == "before" for n in range(count)),
                sum(outcome(seen, name, n) == "after" for n in range(count)),
            )
            for name, (_, count, _) in DOMAINS.items()
        }
        for seen in PAPER
    }
    made = found(tmp_path, calls)
    assert table(tmp_path) == wanted
    assert sum(one["position"]["flips"] for one in made["judging"]["comparisons"]) == flips(DOMAINS)
    assert [one["label"] for one in made["models"]][:3] == [CHAIN[0], "AI Society", "AI Society + Code"]


@pytest.mark.thorough
def test_the_paper_s_table_is_planted_and_found(tmp_path: Path):
    (tmp_path / "study.toml").write_text(config())
    made = found(tmp_path, LISTS + ANSWERS + VERDICTS + REPEATS)
    assert table(tmp_path) == PAPER
    assert all(
        one["paper"] == list(PAPER[tuple(one["seen"])][TITLES[one["domain"]]]) for one in made["table"]
    )
    # The planted preference for a place is found, and changed nothing above.
    assert sum(one["position"]["flips"] for one in made["judging"]["comparisons"]) == flips(PAPER[0, 1]) > 20
    last = made["totals"][-1]
    assert last["after_wins"]["count"] == 120
    assert last["adjusted"] < 1e-9
    assert {path.name for path in (tmp_path / "emergence/questions").iterdir()} == {
        f"{name}.jsonl" for name in TITLES.values()
    }


def flips(domains: Collection[str]) -> int:
    """Comparisons in which the judge was planted to go by the place."""
    sizes = {name: DOMAINS[name][1] for name in domains} if domains is DOMAINS else {}
    return sum(
        outcome(seen, domain, number) in ("first", "second")
        for seen, planted in PAPER.items()
        for domain in domains
        for number in range(sizes.get(domain) or sum(planted[domain]))
    )


def found(folder: Path, calls: int) -> Any:
    """Plan a study, do it, and ask for it again; returns its figures."""
    with serve(SimulatorSettings(author="tests.support.emergences:author")) as endpoint:
        plan = camel(endpoint, folder, "--dry-run")
        assert plan.status == 0, plan.stdout + plan.stderr
        assert f"{calls:,} calls" in plan.stdout
        assert endpoint.ledger().requests == 0
        done = camel(endpoint, folder)
        assert done.status == 0, done.stdout + done.stderr
        assert endpoint.ledger().requests == calls
        again = camel(endpoint, folder, "--json")
        assert endpoint.ledger().requests == calls
    end = json.loads(again.stdout.splitlines()[-1])
    assert (end["event"], end["status"]) == ("end", "complete")
    made = end["result"]
    assert made == json.loads((folder / "emergence/emergence.json").read_text())
    return made


@pytest.mark.thorough  # CI kills runs, whose stages are the same: tests/integration/test_crash.py
def test_kills_at_random_moments_repeat_nothing_that_was_journaled(tmp_path: Path):
    """After each kill exactly what is not in the folder is asked; the table is that of an undisturbed study."""
    domains = "".join(
        f'[[domains]]\nname = "{name}"\ntitle = "{title}"\nquestions = {count}\nsubjects = ["{subject}"]\n'
        for name, title, count, subject in (
            ("society", "AI Society", 4, "x"), ("code", "Code", 3, "x"), ("math", "Math", 8, "mathematics"),
        )
    )  # fmt: skip
    (tmp_path / "study.toml").write_text(config(repeats=1, ends=False) + domains)
    args = ("--concurrency", "4", "--out")
    whole = 3 + 5 * 15 + 2 * 4 * 15 + 2 * 4 * 3
    chance = random.Random(7)
    with serve_gated(SimulatorSettings(author="tests.support.emergences:author")) as endpoint:
        journaled = served = 0
        for kill in range(30):
            # The first while the questions are being written.
            endpoint.hold_after(chance.randint(20, 80) if kill else 1)
            with Program(*STUDY, *args, "out", cwd=tmp_path, env=environment(endpoint)) as process:
                wait_until(
                    lambda process=process: endpoint.is_holding or process.poll() is not None,
                    "a moment to kill",
                )
                process.kill()
                process.wait()
            wait_until(lambda: endpoint.ledger().in_flight == 0, "the end of the calls")
            now, kept = endpoint.ledger().requests, _kept(tmp_path / "out" / "kept")
            # Paid since the last kill: what is kept, and at most what was in flight.
            assert kept - journaled <= now - served <= kept - journaled + 4, f"kill {kill}"
            journaled, served = kept, now
            if kept >= whole - 20:
                break
        endpoint.release()
        assert kill > 1
        done = camel(endpoint, tmp_path, *args, "out")
        assert done.status == 0, done.stdout + done.stderr
        assert endpoint.ledger().requests - served == whole - journaled
        assert camel(endpoint, tmp_path, *args, "undisturbed").status == 0
    for name in ("emergence.json", "emergence.md", "emergence.html", "pairs.jsonl", "verdicts.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes(), name


@pytest.mark.slow
def test_budgets_stop_it_and_the_same_command_continues(tmp_path: Path):
    own = '[[domains]]\nname = "society"\ntitle = "AI Society"\nquestions = 3\n'
    (tmp_path / "study.toml").write_text(config(repeats=0) + own)
    whole = 1 + 5 * 3 + 2 * 5 * 3
    with serve(SimulatorSettings(author="tests.support.emergences:author")) as endpoint:
        stopped = camel(endpoint, tmp_path, "--budget-calls", "12")
        assert stopped.status == 3, stopped.stdout + stopped.stderr
        assert "budget of 12 calls" in stopped.stdout
        assert endpoint.ledger().served == 12
        unknown = camel(endpoint, tmp_path, "--budget-usd", "1")
        assert unknown.status == 2
        assert "price" in unknown.stderr
        assert "Traceback" not in unknown.stderr
        assert camel(endpoint, tmp_path).status == 0
        assert endpoint.ledger().requests == whole


def _kept(folder: Path) -> int:
    """Calls whose answers are in a study's folder: in what is committed, or in the journal of what is not."""
    from camel.runs.run import RunFolder

    if not folder.exists():
        return 0
    kept, calls = RunFolder(folder), 0
    for stage in {*kept.stages(), *(path.name for path in (folder / "journal").glob("*"))}:
        done = kept.committed(stage)
        calls += sum(int(marker.totals.get("calls", 0)) for marker in kept.markers(stage, done))
        left = {int(path.name.partition("-")[0]) for path in (folder / "journal" / stage).glob("*-*")} - done
        calls += sum(1 for shard in left for _ in kept.replay(stage, shard))
    return calls
