"""`camel vote` as a user sees it in a terminal; what it serves is tested in tests/explorer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from camel.evaluation.pairs import Pair, PairVerdict, write_pairs, write_verdicts
from camel.evaluation.votes import BallotBox, CastVote, key_of, votes_folder
from tests.support.command import camel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("voted")
    pairs = [
        Pair(f"{n}", "t", "society", "long" * n, "single", "x", group="ai_society") for n in range(1, 11)
    ]
    write_pairs(made, pairs)
    write_verdicts(
        made, [PairVerdict(one.id, "strong-model", "a" if int(one.id) < 7 else "b") for one in pairs]
    )

    async def vote() -> None:
        box = BallotBox(votes_folder(made))
        for who in ("Ada", "Ben"):
            for one in pairs:
                choice = "a" if int(one.id) < 7 else "skip" if int(one.id) == 10 else "b"
                await box.add(CastVote(who, one.id, key_of(one), choice, "a", "n", 0.0))
        await box.close()

    asyncio.run(vote())
    return made


def test_results(folder: Path, snapshot: Callable[..., None]):
    assert camel("vote", ".", "--results", "--out", "out/votes.csv", cwd=folder).status == 0
    done = camel("vote", ".", "--results", "--out", "out/figures.json", cwd=folder)
    assert done.status == 0, done.stderr
    assert done.stdout.count("(Cohen's kappa)  1.00") == 2
    snapshot("screen", done.stdout)
    figures = json.loads((folder / "out/figures.json").read_text())
    assert figures["compared"][0]["wins"]["count"] == 12
    assert len((folder / "out/votes.csv").read_text().splitlines()) == 21
    assert json.loads(camel("vote", ".", "--results", "--json", cwd=folder).stdout) == figures
    assert "18 votes" in camel("vote", "pairs.jsonl", "--results", cwd=folder).stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["gone", "--results"], "gone"),
        (["gone"], "gone"),
        ([".", "--json"], "--results"),
        ([".", "--results", "--out", "x.pdf"], ".csv"),
        ([".", "--url", "vote.example.org"], "https://vote.example.org"),
        ([".", "--invite", "=x"], "=x"),
    ],
)
def test_mistakes_are_one_line(folder: Path, args: list[str], says: str, snapshot: Callable[..., None]):
    done = camel("vote", *args, "--no-open", "--port", "0", cwd=folder)
    assert done.status == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    snapshot("errors", done.stderr)
