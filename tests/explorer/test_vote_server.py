"""`camel vote` under many voters, and killed among them: what was answered counts, once.

The expected result is the tally of the voters: each records whose text was on which side, and what the server answered.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from camel.evaluation.pairs import read_pairs, read_verdicts
from camel.evaluation.vote_results import read_results
from camel.evaluation.votes import CastVote, latest, read_records
from camel.explorer.renderer import as_html
from camel.models.simulator import SimulatorProcess, SimulatorSettings, spawn
from tests.support import in_process
from tests.support.ballots import SYSTEMS, Server, folder_of, hidden_fields, pairs
from tests.support.societies import society
from tests.support.thread_server import ThreadServer

pytestmark = pytest.mark.slow
Tally = dict[tuple[str, str], str]


class Voter:
    """An impatient voter: clicks twice, reloads, loses the network, goes back and changes the vote."""

    def __init__(self, name: str, url: str, tally: Tally) -> None:
        self.name, self.url, self.tally = name, url, tally
        self.chance = random.Random(name)
        self.posts = 0
        self.leaks: list[str] = []

    async def ask(self, method: str, path: str, **data: str) -> tuple[int, str, str]:
        """Ask until there is an answer, whatever becomes of the server meanwhile."""
        while True:
            try:
                async with self.session.request(
                    method, self.url + path, data=data or None, allow_redirects=False
                ) as answer:
                    text = await answer.text()
                    said = f"{answer.headers} {text}"
                    self.leaks += [name for name in SYSTEMS if name in said]
                    return answer.status, answer.headers.get("location", ""), text
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)

    async def click(self, path: str, page: str, choice: str) -> None:
        """Once, twice or thrice at the same time, and perhaps without waiting for the first."""
        form = {**hidden_fields(page), "choice": choice}
        clicks = [
            asyncio.create_task(self.ask("POST", path, **form))
            for _ in range(self.chance.choice((1, 2, 2, 3)))
        ]
        self.posts += len(clicks)
        if len(clicks) > 1 and self.chance.random() < 0.3:
            await asyncio.sleep(self.chance.random() * 0.02)
            clicks.pop().cancel()
        for status, where, _ in await asyncio.gather(*clicks):
            assert status == 303
            assert where
        self.tally[self.name, number_of(page)] = meaning(page, choice)

    async def vote(self) -> None:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as self.session:
            page = (await self.ask("GET", "/"))[2]
            assert (await self.ask("POST", "/join", **hidden_fields(page), name=self.name))[0] == 303
            last = ""
            while path := (await self.ask("GET", "/"))[1]:
                page = (await self.ask("GET", path))[2]
                if self.chance.random() < 0.3:
                    page = (await self.ask("GET", path))[2]
                await self.click(path, page, self.chance.choice(("A", "A", "B", "draw", "skip")))
                if last and self.chance.random() < 0.15:
                    page = (await self.ask("GET", last))[2]
                    was = re.search(r'value="(\w+)"[^>]*aria-pressed="true"', page)
                    assert was
                    assert meaning(page, was[1]) == self.tally[self.name, number_of(page)]
                    await self.click(last, page, "B" if was[1] != "B" else "A")
                last = path


def number_of(page: str) -> str:
    found = re.search(r"Task number (\d+):", page)
    assert found
    return found[1]


def meaning(page: str, choice: str) -> str:
    """What a choice on this page means, given whose text is on the left."""
    left, right = re.findall(r'<article class="side-col.*?</article>', page, re.DOTALL)
    assert ("<strong>first</strong>" in left) != ("<strong>first</strong>" in right)
    here = "a" if "<strong>first</strong>" in left else "b"
    return {"A": here, "B": "ab"[here == "a"]}.get(choice, choice)


def kept(folder: Path) -> Tally:
    votes = latest(read_records(folder / "votes"))
    return {
        (who, one.pair.rpartition("/")[2]): one.choice for who, mine in votes.items() for one in mine.values()
    }


@pytest.mark.parametrize(
    ("people", "count"), [(12, 5), pytest.param(50, 8, marks=pytest.mark.thorough, id="fifty")]
)
async def test_many_voters_at_once(tmp_path: Path, people: int, count: int):
    folder = folder_of(tmp_path / "evaluation", pairs(count))
    server = await asyncio.to_thread(ThreadServer, "vote", folder)
    tally: Tally = {}
    voters = [Voter(f"Voter {n}", server.url, tally) for n in range(people)]
    try:
        await asyncio.gather(*(voter.vote() for voter in voters))
    finally:
        await asyncio.to_thread(server.stop)
    assert len(tally) == people * count
    assert kept(folder) == tally
    records = [one for one in read_records(folder / "votes") if isinstance(one, CastVote)]
    changes = sum(count - 1 for count in _count(records).values())
    assert len(records) == people * count + changes
    assert sum(voter.posts for voter in voters) > 1.5 * people * count, "far more was clicked than counts"
    assert not [leak for voter in voters for leak in voter.leaks]
    made = read_results(folder)
    assert made.votes == sum(choice != "skip" for choice in tally.values())
    assert made.skipped == sum(choice == "skip" for choice in tally.values())
    [one] = made.compared
    assert one.wins.count == sum(choice == "a" for choice in tally.values())
    assert one.losses.count == sum(choice == "b" for choice in tally.values())
    assert {who.voter: who.votes for who in made.voters} == {
        voter.name: sum(who == voter.name and choice != "skip" for (who, _), choice in tally.items())
        for voter in voters
    }


def _count(records: list[CastVote]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for one in records:
        counts[one.voter, one.pair] = counts.get((one.voter, one.pair), 0) + 1
    return counts


@pytest.mark.parametrize(
    ("people", "count", "kills"),
    [(6, 12, 2), pytest.param(12, 25, 4, marks=pytest.mark.thorough, id="many")],
)
async def test_killed_among_voters_no_answered_vote_is_lost(
    tmp_path: Path, people: int, count: int, kills: int
):
    folder = folder_of(tmp_path / "evaluation", pairs(count))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = await asyncio.to_thread(Server, folder, port=port)
    tally: Tally = {}
    voters = [Voter(f"Voter {n}", server.url, tally) for n in range(people)]
    chance, seen = random.Random(7), [0]
    voting: Any = asyncio.gather(*(voter.vote() for voter in voters))
    try:
        for _ in range(kills):
            wanted = min(len(tally) + chance.randrange(15, 30), people * count - 20)
            while len(tally) < wanted and not voting.done():  # noqa: ASYNC110 - the voters tell nobody
                await asyncio.sleep(0.005)
            answered = dict(tally)
            await asyncio.to_thread(server.kill)
            on_disk = kept(folder)
            # Answered before the kill: on the disk, though a change that was under way may have come after it.
            assert answered.keys() <= on_disk.keys()
            seen.append(len(answered))
            server = await asyncio.to_thread(Server, folder, port=port)
        await voting
    finally:
        voting.cancel()
        await asyncio.to_thread(server.stop)
    assert seen == sorted(set(seen)), "it was killed in the middle of it each time"
    assert kept(folder) == tally
    assert len(tally) == people * count
    assert len(list((folder / "votes").glob("0*"))) == kills + 1, "one journal per start of the server"


def test_what_was_evaluated_can_be_voted_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From `camel evaluate agents` over the browser to agreement with the judge.

    Voters who answer as the judge did have kappa 1.
    """
    society(tmp_path / "society", rows=20)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    options = "--model base --judge gpt-4 --sample 6"
    command = ["evaluate", "agents", "society", *options.split()]

    def evaluate(endpoint: SimulatorProcess) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        done = in_process.invoke(command)
        assert done.exit_code == 0, done.output

    with spawn(SimulatorSettings(author="tests.support.ballots:author")) as endpoint:
        evaluate(endpoint)
    folder = tmp_path / "society/evaluation"
    verdicts = {one.pair: one.winner for one in read_verdicts(folder)}
    made = read_pairs(folder)
    assert len(made) == 6

    async def vote(url: str) -> None:
        for name in ("Ada", "Ben"):
            voter = Voter(name, url, {})
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as voter.session:
                page = (await voter.ask("GET", "/"))[2]
                await voter.ask("POST", "/join", **hidden_fields(page), name=name)
                while path := (await voter.ask("GET", "/"))[1]:
                    page = (await voter.ask("GET", path))[2]
                    one = next(
                        one for one in made if as_html(one.task) in page and as_html(one.text_a) in page
                    )
                    left = page.index(as_html(one.text_a)) < page.index(as_html(one.text_b))
                    winner = verdicts[one.id]
                    choice = "AB"[(winner == "a") != left] if winner in ("a", "b") else "draw"
                    assert (await voter.ask("POST", path, **hidden_fields(page), choice=choice))[0] == 303

    server = ThreadServer("vote", folder)
    try:
        asyncio.run(vote(server.url))
    finally:
        server.stop()
    results = read_results(folder)
    assert results.votes == 12
    assert [(one.one, one.kappa.kappa, one.kappa.items) for one in results.judges] == [("gpt-4", 1.0, 6)]
    assert results.agreement.kappa == 1.0
    with spawn(SimulatorSettings(author="tests.support.ballots:author")) as endpoint:
        evaluate(endpoint)
        assert endpoint.ledger().requests == 0, "the same command asks nothing again"
    assert "people (2 voted)" in (folder / "evaluation.md").read_text(), "and its report has the votes"
