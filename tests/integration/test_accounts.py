"""The chaos benchmark's account finds what it is there to find."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow")


from camel.models.simulator import LedgerRow
from camel.storage.journal import Journal
from tests.support.accounts import Account, Strike, Tail, account

CALLS = {"aa": ("item", 0), "bb": ("item", 1)}


def _row(time: float, digest: str = "aa", client: int = 1, outcome: str = "served") -> LedgerRow:
    return LedgerRow(int(time), time, "item", digest, 0, client, outcome)


def _account(*rows: LedgerRow, durable: float = 100.0, strikes: tuple[Strike, ...] = ()) -> Account:
    tail = Tail(Path("nowhere"), lambda stage, index: "item")
    tail.durable[("item", 0)] = durable
    return account(rows, CALLS, tail, list(strikes), impatient=False)


def test_what_is_durable_and_sent_again_is_found():
    assert _account(_row(1), _row(5), durable=2).sent_durable == 1
    assert _account(_row(1), _row(5), durable=6).sent_durable == 0


def test_a_repeat_needs_a_reason():
    assert len(_account(_row(1), _row(5)).unexcused) == 1
    assert not _account(_row(1, outcome="503"), _row(5)).unexcused
    strike = Strike("worker", 2, [7], {1}, 3)
    told = _account(_row(1), _row(5), strikes=(strike,))
    assert (told.lost, told.unexcused, strike.in_flight) == (1, [], {("item", 0)})
    late = _account(_row(2.5, client=9, outcome="client_gone"), _row(5), strikes=(strike,))
    assert (late.lost, late.unexcused) == (1, []), "by a connection that nobody saw"
    for other in (Strike("worker", 2, [7], {9}, 3), Strike("worker", 0.1, [7], {1}, 0.4)):
        assert len(_account(_row(1), _row(5), strikes=(other,)).unexcused) == 1, (
            "another client, or too early"
        )
    noted_late = _account(_row(3.3), _row(5), strikes=(strike,))
    assert (noted_late.lost, noted_late.unexcused) == (1, []), (
        "a busy endpoint notes it after its sender's death"
    )
    assert len(_account(_row(1), _row(5), durable=2.5, strikes=(strike,)).unexcused) == 1, "it was journaled"
    soon = _account(_row(1), _row(2.4), durable=2.8, strikes=(strike,))
    assert (soon.lost, soon.unexcused) == (1, []), "another had it before the dead one was looked through"
    assert len(_account(_row(1), _row(1.5), durable=2.8, strikes=(strike,)).unexcused) == 1, "before the blow"


def test_what_was_kept_between_two_looks_was_not_in_flight():
    for again, in_flight in (([], set[tuple[str, int]]()), ([_row(5, "bb")], {("item", 1)})):
        strike = Strike("worker", 2, [7], {1}, 3)
        _account(_row(1, "bb"), *again, strikes=(strike,))
        assert strike.in_flight == in_flight


def test_who_wakes_up_and_calls_is_found():
    strike = Strike("stop", 2, [7], {1}, 3, woken=10, gone=12)
    assert _account(_row(1), _row(11), strikes=(strike,)).by_zombies == 1
    assert _account(_row(1), _row(11, client=2), strikes=(strike,)).by_zombies == 0


def test_what_nobody_should_ask_is_found():
    assert _account(_row(1, "cc")).unknown == 1


async def test_journals_are_read_while_they_grow_and_after_they_are_gone(tmp_path: Path):
    path = tmp_path / "conversations" / "000000-ab"
    journal = Journal(path)
    with Tail(tmp_path, lambda stage, index: f"{stage}-{index}") as tail:
        await journal.append(msgspec.msgpack.encode([3, 0, b"check", b"result"]))
        tail.scan()
        assert list(tail.durable) == [("conversations-3", 0)]
        await journal.append(msgspec.msgpack.encode([3, 1, b"check", b"result"]))
        path.unlink()
        await journal.close()
        await asyncio.to_thread(tail.scan)
        assert list(tail.durable) == [("conversations-3", 0), ("conversations-3", 1)]
        assert not tail.twice
