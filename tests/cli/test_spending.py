"""One budget over several models."""

from __future__ import annotations

import pytest

from camel.cli.spending import Purse
from camel.core.message import Usage
from camel.core.model import Choice, Reply
from camel.engine.halt import Halt, Halted
from camel.jobs.budget import Budget
from camel.models.catalogue import ModelPrice


@pytest.mark.parametrize("untold", [0, 1])
def test_the_models_together_keep_within_the_money(untold: int):
    halt = Halt()
    purse = Purse(Budget(money=10.0), halt)
    meters = [purse.share(name, ModelPrice(2e6, 0.0)) for name in ("a", "b")]  # two dollars for one token
    replies = [Reply((Choice("yes"),), Usage(1, 0, 0, 1))] * 2
    if untold:  # of every two replies, one does not say what it took
        replies[1] = Reply((Choice("yes"),), Usage(calls=1, unknown=1))
    calls = 0

    def call() -> None:
        nonlocal calls
        meters[calls % 2].begin()
        meters[calls % 2].end(replies[calls % 2], None)
        calls += 1

    while not purse.over_budget():
        call()
        assert calls < 100
    with pytest.raises(Halted, match=r"\$10\.00"):
        call()
    assert calls in (5, 6)
    assert halt.reason
