"""Steps with an effect: the journal has an entry before each, so a restart can tell which may have happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camel.engine.halt import Halt, Unfinished
from camel.engine.stage import Steps
from camel.engine.worker import ReplayMismatch
from camel.models.recorded import uncounted, uncounted_result
from tests.support.bench import Bench
from tests.support.virtual_time import virtual_time


class Effects(Bench):
    """A workload whose second step has an effect."""

    def __init__(self, root: Path, count: int = 6, **other: Any) -> None:
        super().__init__(root, count, **other)
        self.calls: list[tuple[int, bool]] = []
        self.repeatable = False
        self.during: Callable[[int], None] = lambda index: None

    async def work(self, index: int, steps: Steps) -> list[Any]:
        async def effect(interrupted: bool) -> bytes:
            self.calls.append((index, interrupted))
            await asyncio.sleep(0)
            self.during(index)
            return uncounted(b"done %d" % index)

        said = await steps.once(self.check(index, 0), lambda: self.make(index, 0))
        found = await steps.act(self.check(index, 1), effect, repeatable=self.repeatable)
        return [index, said.decode(), uncounted_result(found).decode()]


@virtual_time
async def test_a_result_in_the_journal_is_used_and_a_missing_one_is_known(tmp_path: Path):
    bench = Effects(tmp_path, shard_size=6)

    def die(index: int) -> None:
        if index == 2:
            raise Unfinished("as if the process had died here")

    bench.during = die
    assert not await bench.run()
    assert sorted(bench.calls) == [(index, False) for index in range(6)]
    bench.during = lambda index: None
    assert await bench.run()
    assert bench.calls[6:] == [(2, True)], (
        "only the call without a result is executed again, and the tool knows"
    )
    assert [row[2] for row in bench.data()] == [f"done {index}" for index in range(6)]
    assert set(bench.taken.values()) == {1}


@virtual_time
async def test_a_repeatable_step_has_no_entry_before_it(tmp_path: Path):
    bench = Effects(tmp_path, 1)

    def die(index: int) -> None:
        raise Unfinished("as if the process had died here")

    bench.repeatable, bench.during = True, die
    assert not await bench.run()
    bench.during = lambda index: None
    assert await bench.run()
    assert bench.calls == [(0, False), (0, False)]


@virtual_time
async def test_a_tool_that_was_declared_repeatable_later_is_executed_again(tmp_path: Path):
    bench = Effects(tmp_path, 1)

    def die(index: int) -> None:
        raise Unfinished("as if the process had died here")

    bench.during = die
    assert not await bench.run()
    bench.repeatable, bench.during = True, lambda index: None
    assert await bench.run()
    assert [row[2] for row in bench.data()] == ["done 0"]


@virtual_time
async def test_a_stop_comes_before_the_entry(tmp_path: Path):
    """A run that was stopped in good order has executed nothing that it does not know the result of."""
    bench, halt = Effects(tmp_path), Halt()

    async def stop(index: int, step: int) -> None:
        if index == 3:
            halt.set("stopped")

    bench.before = stop
    assert not await bench.run(halt=halt)
    before = len(bench.calls)
    assert await bench.run()
    assert not [index for index, interrupted in bench.calls[before:] if interrupted]
    assert sorted(index for index, _ in bench.calls) == list(range(6))


@virtual_time
async def test_another_effect_than_the_one_in_the_journal_stops_the_run(tmp_path: Path):
    bench = Effects(tmp_path, 1)

    def die(index: int) -> None:
        raise Unfinished("as if the process had died here")

    bench.during = die
    assert not await bench.run()
    bench.check = lambda index, step: b"another" if step else b"0 0"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ReplayMismatch):
        await bench.run()
    assert len(bench.calls) == 1
