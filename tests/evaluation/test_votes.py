"""Votes: stored once and durably, distributed evenly, and counted correctly."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.evaluation import vote_results, votes
from camel.evaluation.agreement import cohen, fleiss
from camel.evaluation.pairs import Pair, PairVerdict, write_pairs, write_verdicts
from camel.evaluation.vote_results import read_results, results_of, votes_csv
from camel.evaluation.votes import (
    BallotBox,
    CastVote,
    Dealer,
    Stale,
    key_of,
    latest,
    read_records,
    voter_name,
    votes_folder,
)
from camel.storage.journal import JournalBroken


def pair(number: int, **changed: Any) -> Pair:
    given: dict[str, Any] = {
        "id": f"p{number}",
        "task": f"task {number}",
        "system_a": "society",
        "text_a": f"good {number}",
        "system_b": "single",
        "text_b": f"plain {number}",
    }
    return Pair(**{**given, **changed})


def vote(voter: str, number: int, choice: Any, nonce: str = "", first: Any = "a") -> CastVote:
    one = pair(number)
    return CastVote(voter, one.id, key_of(one), choice, first, nonce or f"{voter}-{number}-{choice}", 1.0)


def counted(folder: Path) -> dict[tuple[str, str], str]:
    """Return the votes that count, read from the disk."""
    found = latest(read_records(folder))
    return {(who, one.pair): one.choice for who, mine in found.items() for one in mine.values()}


async def keep(folder: Path, *given: CastVote) -> None:
    box = BallotBox(folder)
    for one in given:
        await box.add(one)
    await box.close()


# --- once and durably ----------------------------------------------------------------------------------------------


async def test_simultaneous_clicks_are_one_vote(tmp_path: Path):
    box = BallotBox(tmp_path)
    voters = [f"v{n}" for n in range(50)]
    clicks = [vote(who, n, "abs"[(n + len(who)) % 2]) for who in voters for n in range(6)] * 3
    random.Random(1).shuffle(clicks)
    await asyncio.gather(*map(box.add, clicks))
    await box.close()
    records = [one for one in read_records(tmp_path) if isinstance(one, CastVote)]
    assert len(records) == 50 * 6 == len({(one.voter, one.pair) for one in records})
    assert sum(box.counts.values()) == 300


async def test_a_vote_changes_only_if_the_voter_has_seen_it(tmp_path: Path):
    box = BallotBox(tmp_path)
    await box.add(vote("Ada", 1, "a", "n1"))
    with pytest.raises(Stale) as stale:  # another tab, opened before
        await box.add(vote("Ada", 1, "b", "n2"))
    assert stale.value.vote.choice == "a"
    await box.add(vote("Ada", 1, "b", "n3"), replaces="n1")
    with pytest.raises(Stale):  # the first form is sent again
        await box.add(vote("Ada", 1, "a", "n1"))
    with pytest.raises(Stale):
        await box.add(vote("Ada", 1, "draw", "n4"), replaces="n1")
    await box.add(vote("Ada", 1, "skip", "n5"), replaces="n3")
    assert box.counts[key_of(pair(1))] == 0
    await box.close()
    assert counted(tmp_path) == {("Ada", "p1"): "skip"}
    assert len(list(read_records(tmp_path))) == 3, "what was replaced is still there"


async def test_after_truncation_at_any_byte_complete_votes_count_and_new_ones_work(tmp_path: Path):
    given = [vote("Ada", n, "a") for n in range(4)] + [vote("Ben", 1, "draw")]
    await keep(tmp_path / "whole", *given)
    data = (tmp_path / "whole" / "000001").read_bytes()
    sizes: list[int] = []
    for size in range(len(data) + 1):
        folder = tmp_path / f"cut{size}"
        folder.mkdir()
        (folder / "000001").write_bytes(data[:size])
        before = counted(folder)
        assert list(before) == [(one.voter, one.pair) for one in given][: len(before)]
        sizes.append(len(before))
        if size % 37 == 0:
            await keep(folder, vote("Eve", 9, "b"))
            assert counted(folder) == {**before, ("Eve", "p9"): "b"}
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(given)


async def test_a_full_disk_is_an_error_and_the_next_attempt_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    box = BallotBox(tmp_path)
    await box.add(vote("Ada", 1, "a"))
    sync, full = os.fdatasync, [True]

    def fails(file: int) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        sync(file)

    monkeypatch.setattr(os, "fdatasync", fails)
    for _ in range(2):  # it may be on the disk, but was not confirmed
        with pytest.raises(JournalBroken):
            await box.add(vote("Ada", 2, "a"))
    assert key_of(pair(2)) not in box.of("Ada")
    full[0] = False
    await box.add(vote("Ada", 2, "b", "other"))
    await box.close()
    assert counted(tmp_path) == {("Ada", "p1"): "a", ("Ada", "p2"): "b"}


def test_only_one_process_can_take_votes(tmp_path: Path):
    box = BallotBox(tmp_path)
    with pytest.raises(InputError, match="another process"):
        BallotBox(tmp_path)
    asyncio.run(box.close())
    again = BallotBox(tmp_path)
    assert again.secret == box.secret
    assert (tmp_path / ".secret").stat().st_mode & 0o077 == 0
    asyncio.run(again.close())
    (tmp_path / ".secret").write_bytes(b"short")
    with pytest.raises(InputError, match="damaged"):
        BallotBox(tmp_path)


def test_a_folder_that_cannot_store_votes_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot store votes"):
        BallotBox(tmp_path / "file" / "votes")


Click = st.tuples(
    st.sampled_from(["Ada", "Ben"]),
    st.integers(0, 2),
    st.sampled_from(["a", "b", "draw", "skip"]),
    st.sampled_from(["new", "seen", "again", "restart", "torn"]),
)


def tear(folder: Path) -> None:
    """Add half a frame at the end: a vote that was never confirmed."""
    for path in sorted(folder.glob("0*"))[-1:]:
        with path.open("ab") as file:
            file.write(b"\x40\x00\x00\x00\x01\x02")


@settings(max_examples=25, deadline=None)
@given(st.lists(Click, max_size=25))
def test_any_sequence_of_clicks_matches_a_simple_model(clicks: list[Any]):
    """Compares with a dictionary: a first vote counts, a change needs the last vote, and restarts change nothing."""

    async def go(folder: Path) -> None:
        box = BallotBox(folder)
        model: dict[tuple[str, str], CastVote] = {}
        for at, (who, number, choice, how) in enumerate(clicks):
            if how in ("restart", "torn"):
                await box.close()
                if how == "torn":
                    tear(folder)
                box = BallotBox(folder)
            made = vote(who, number, choice, f"n{at}")
            last = model.get((who, made.pair))
            if how == "again" and last is not None:
                made = last
            replaces = last.nonce if last is not None and how == "seen" else ""
            if last is not None and last.choice != made.choice and not replaces:
                with pytest.raises(Stale) as stale:
                    await box.add(made, replaces)
                assert stale.value.vote == last
                continue
            kept = await box.add(made, replaces)
            assert kept.choice == made.choice
            if last is None or last.choice != made.choice:
                model[who, made.pair] = made
        await box.close()
        assert counted(folder) == {key: one.choice for key, one in model.items()}

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(go(Path(folder)))


# --- names ---------------------------------------------------------------------------------------------------------


async def test_names_that_differ_in_case_are_one_voter(tmp_path: Path):
    box = BallotBox(tmp_path)
    names = await asyncio.gather(*(box.join(name) for name in ("Ada", "ADA", "ada", "Ben")))
    assert set(names) == {"Ada", "Ben"}
    joined = [box.join(name, new=True) for name in ("Cleo", "CLEO", "ada", "Dan")]
    said = await asyncio.gather(*joined, return_exceptions=True)
    assert [one if isinstance(one, str) else type(one) for one in said] == [
        "Cleo",
        InputError,
        InputError,
        "Dan",
    ]
    await box.close()
    again = BallotBox(tmp_path)
    assert again.known("aDa") == "Ada"
    await again.close()


@pytest.mark.parametrize("text", ["", "  ", "=1+1", "-x", "@x", "a\x00b", "x" * 61, "\u202egnp", "\n"])
def test_invalid_names_are_rejected(text: str):
    with pytest.raises(InputError):
        voter_name(text)


def test_whitespace_in_names_is_normalized():
    assert voter_name("  Grace \t Hopper ") == "Grace Hopper"
    assert voter_name("Zoe\u0308") == "Zoë"
    assert voter_name("李雷") == "李雷"


def test_the_folder_of_votes(tmp_path: Path):
    write_pairs(tmp_path, [pair(1)])
    assert votes_folder(tmp_path) == votes_folder(tmp_path / "pairs.jsonl") == tmp_path / "votes"
    assert votes_folder(tmp_path / "mine.jsonl") == tmp_path / "mine.votes"


# --- distribution of pairs -----------------------------------------------------------------------------------------


async def test_votes_are_distributed_evenly_while_voters_come_and_go(tmp_path: Path):
    box = BallotBox(tmp_path)
    dealer = Dealer([pair(n) for n in range(30)], box)
    chance = random.Random(5)
    active = [f"v{n}" for n in range(12)]
    for round in range(25):
        chance.shuffle(active)
        shown = {who: dealer.next(who) for who in active}
        assert all(dealer.next(who) == key for who, key in shown.items()), "a reload shows the same"
        if not round:
            assert len(set(shown.values())) == len(active), "who come together look at different pairs"
        for who, key in shown.items():
            if key is not None and chance.random() < 0.8:
                one = dealer.pairs[key]
                await box.add(CastVote(who, one.id, key, "a", "a", f"{round}", 1.0))
        counts = [box.counts[key] for key in dealer.pairs]
        # One more than optimal, because a voter sees each pair once and may leave without an answer.
        assert max(counts) - min(counts) <= 3
        if round == 12:
            active = [*active[:5], "late1", "late2"]
    orders = {tuple(dealer.order(who)) for who in active}
    assert len(orders) == len(active)
    await box.close()


async def test_no_pair_remains_and_hidden_pairs_are_skipped(tmp_path: Path):
    box = BallotBox(tmp_path)
    pairs = [pair(n, labels=("misalignment",) if n == 2 else ()) for n in range(4)]
    dealer = Dealer(pairs, box)
    seen: list[str] = []
    while key := dealer.next("Ada", lambda one: not one.labels):
        seen.append(dealer.pairs[key].id)
        await box.add(CastVote("Ada", dealer.pairs[key].id, key, "skip", "a", "n", 1.0))
    assert sorted(seen) == ["p0", "p1", "p3"]
    assert dealer.next("Ada") == key_of(pairs[2])
    assert dealer.next("Ada", lambda one: not one.labels) is None, "consent was withdrawn while it was shown"
    await box.close()


async def test_a_voter_who_leaves_releases_the_pair(tmp_path: Path):
    box, now = BallotBox(tmp_path), [0.0]
    dealer = Dealer([pair(1), pair(2)], box, clock=lambda: now[0])
    gone = dealer.next("Ada")
    assert dealer.next("Ben") != gone
    now[0] = votes.HELD + 1
    assert dealer.next("Cleo") == dealer.order("Cleo")[0]
    await box.close()


# --- results -------------------------------------------------------------------------------------------------------


def planted(pairs: int, voters: int, seed: int = 3) -> list[CastVote]:
    chance = random.Random(seed)
    return [
        vote(
            f"v{who}",
            n,
            chance.choices(["a", "b", "draw", "skip"], [6, 2, 1, 1])[0],
            first=chance.choice("ab"),
        )
        for who in range(voters)
        for n in range(pairs)
    ]


def test_results_equal_a_manual_count():
    given = planted(40, 5)
    made = results_of([pair(n) for n in range(40)], given)
    tally = Counter(one.choice for one in given)
    [one] = made.compared
    assert (one.wins.count, one.draws.count, one.losses.count) == (tally["a"], tally["draw"], tally["b"])
    assert one.votes == made.votes == 200 - tally["skip"]
    assert one.skipped == made.skipped == tally["skip"]
    assert one.wins.low < one.wins.rate < one.wins.high
    assert one.score.value == pytest.approx((tally["a"] + tally["draw"] / 2) / made.votes)
    assert sum(who.votes for who in made.voters) == made.votes
    by_pair: dict[str, list[str]] = {}
    for v in given:
        if v.choice != "skip":
            by_pair.setdefault(v.pair, []).append(v.choice)
    assert made.agreement == fleiss(by_pair.values())
    sided = [v for v in given if v.choice in "ab"]
    assert made.first.count == sum(v.choice == v.first for v in sided)
    wins = sum(2 * said.count("a") > len(said) for said in by_pair.values())
    assert one.majority.wins.count == wins
    assert len(made.between) == 10
    ones = {v.pair: v.choice for v in given if v.voter == "v0" and v.choice != "skip"}
    twos = {v.pair: v.choice for v in given if v.voter == "v1" and v.choice != "skip"}
    both = [key for key in ones if key in twos]
    assert made.between[0].kappa == cohen((ones[k], twos[k]) for k in both)


def test_votes_on_the_same_pair_are_not_independent():
    """Ten equal votes on each of 20 pairs are 20 observations, not 200."""
    one_mind = [vote(f"v{who}", n, "a" if n < 12 else "b") for n in range(20) for who in range(10)]
    spread = [vote("v", n, "a" if n < 120 else "b") for n in range(200)]
    [close] = results_of([pair(n) for n in range(20)], one_mind).compared
    [wide] = results_of([pair(n) for n in range(200)], spread).compared
    assert close.wins.rate == wide.wins.rate == 0.6
    ratio = (close.wins.high - close.wins.low) / (wide.wins.high - wide.wins.low)
    assert 2.5 < ratio < 4  # about the square root of ten
    all_one = results_of(
        [pair(n) for n in range(20)], [vote(f"v{w}", n, "a") for n in range(20) for w in range(10)]
    )
    assert 0.8 < all_one.compared[0].wins.low < 0.9, "of 20, not of 200"
    assert 0.85 < all_one.compared[0].score.low < 0.99
    assert all_one.compared[0].score.value == all_one.compared[0].score.high == 1


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_intervals_contain_their_shares(counts: list[tuple[int, int, int]]):
    rates, score = vote_results.clustered(counts)
    assert sum(rate.count for rate in rates) == sum(map(sum, counts))
    for rate in rates:
        assert 0 <= rate.low <= rate.rate + 1e-9
        assert rate.rate <= rate.high + 1e-9 <= 1 + 2e-9
    assert 0 <= score.low <= score.value <= score.high <= 1


def test_groups_and_systems_are_separate_and_changed_texts_do_not_count():
    pairs = [
        pair(1, group="code"),
        pair(2, group="ai_society"),
        pair(3, system_b="other", group="code"),
        pair(4, group="code", text_a="rewritten"),
    ]
    given = [CastVote("Ada", one.id, key_of(one), "a", "a", "n", 1.0) for one in pairs[:3]] + [
        vote("Ada", 4, "b")
    ]
    made = results_of(pairs, given)
    assert [(one.group, one.system_b, one.pairs, one.votes) for one in made.compared] == [
        ("code", "single", 2, 1),
        ("ai_society", "single", 1, 1),
        ("code", "other", 1, 1),
    ]
    assert made.elsewhere == 1
    assert made.votes == 3


async def test_results_of_a_folder_with_judges(tmp_path: Path):
    pairs = [pair(n) for n in range(12)]
    write_pairs(tmp_path, pairs)
    assert read_results(tmp_path).votes == 0
    said = "aabbaabbadab"
    words = {"a": "a", "b": "b", "d": "draw"}
    box = BallotBox(votes_folder(tmp_path))
    for who in ("Ada", "Ben", "Cleo"):
        for n, letter in enumerate(said):
            choice = words[letter] if who != "Cleo" else "skip" if n == 0 else "a"
            await box.add(vote(who, n, choice))
    await box.join("=Nobody")
    await box.close()
    verdicts = [
        PairVerdict(one.id, "judge-1", words[letter]) for one, letter in zip(pairs, said, strict=True)
    ]  # type: ignore[arg-type]
    verdicts += [PairVerdict(one.id, "judge-2", None) for one in pairs]
    verdicts += [PairVerdict(one.id, "Ada", "b", kind="human") for one in pairs]
    write_verdicts(tmp_path, verdicts)
    made = read_results(tmp_path)
    assert [(one.one, one.kappa.kappa, one.kappa.items) for one in made.judges] == [("judge-1", 1.0, 12)]
    assert {one.voter: one.votes for one in made.voters} == {"Ada": 12, "Ben": 12, "Cleo": 11, "=Nobody": 0}
    rows = list(csv.DictReader(io.StringIO(votes_csv(tmp_path))))
    assert len(rows) == 36
    assert {row["vote"] for row in rows} == {"a", "b", "draw", "skip"}
    assert all(row["winner"] == {"a": "society", "b": "single"}.get(row["vote"], "") for row in rows)
    assert b'"schema": 1' in made.to_json()


def test_no_csv_cell_is_a_formula(tmp_path: Path):
    write_pairs(tmp_path, [pair(1, id="=cmd|' /C calc'!A0", system_a="@sum", system_b="+b\nx")])
    from camel.evaluation.pairs import read_pairs

    [one] = read_pairs(tmp_path)
    asyncio.run(keep(votes_folder(tmp_path), CastVote("Ada", one.id, key_of(one), "b", "a", "n", 1.0)))
    [row] = list(csv.reader(io.StringIO(votes_csv(tmp_path))))[1:]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)
