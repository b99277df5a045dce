"""The garbage collector runs rarely while jobs run, and has its old thresholds afterwards."""

from __future__ import annotations

import gc
from contextlib import ExitStack

import pytest

from camel.engine.worker import YOUNG, relaxed_collection


@pytest.fixture(autouse=True)
def as_found():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_the_last_to_leave_restores_the_thresholds():
    gc.set_threshold(700, 10, 10)
    first, second = ExitStack(), ExitStack()
    first.enter_context(relaxed_collection())
    second.enter_context(relaxed_collection())
    first.close()
    assert gc.get_threshold() == (YOUNG, 10, 10), "the other is still running"
    second.close()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("threshold", [(0, 10, 10), (10 * YOUNG, 5, 5)])
def test_who_has_set_it_higher_or_off_keeps_that(threshold: tuple[int, int, int]):
    gc.set_threshold(*threshold)
    with relaxed_collection():
        assert gc.get_threshold() == threshold
    assert gc.get_threshold() == threshold
