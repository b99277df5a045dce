"""A summary of many replicas names those that need attention."""

from __future__ import annotations

from camel.models.replica import WORST, ReplicaState, ReplicaTotals, worst_replicas


def state(number: int, *, broken: bool = False, failed: int = 0, busy: int = 1) -> ReplicaState:
    return ReplicaState(
        url=f"http://r{number:04d}/v1",
        state="open" if broken else "closed",
        limit=None,
        in_flight=busy,
        waiting=0,
        open=2,
        most_open=None,
        calls=10,
        refused=1,
        failed=failed,
        cached=0.5,
    )


def test_of_many_replicas_the_worst_are_named_and_all_are_summed():
    states = [
        state(one, broken=one == 7, failed=3 * (one in (5, 900)), busy=9 if one == 1_500 else 1)
        for one in range(2_000)
    ]
    worst = worst_replicas(states)
    assert len(worst) == WORST
    assert [one.url for one in worst[:4]] == [states[place].url for place in (7, 5, 900, 1_500)]
    totals = ReplicaTotals.of(states)
    assert totals == ReplicaTotals(2_000, 1_999, 2_008, 0, 4_000, 20_000, 2_000, 6)


def test_few_replicas_are_all_named_in_their_order():
    states = [state(2), state(1, broken=True), state(3, failed=4)]
    assert worst_replicas(states) == states
