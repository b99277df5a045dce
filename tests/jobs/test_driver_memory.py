"""The memory of a driver does not grow with the number of committed shards."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

from camel.engine.halt import Halt
from camel.engine.leases import Leases
from camel.engine.stage import ShardTable
from camel.generation.guesses import Need
from camel.generation.plan import Committed, ShardSums
from camel.jobs.budget import Budget, Meter
from camel.jobs.job import Job, Stage
from camel.jobs.ledger import Counted
from camel.jobs.state import JobState, Models
from camel.runs.listing import shard_file
from camel.runs.markers import Marker
from camel.runs.run import RunFolder

PER_SHARD = 4
"""Bytes. A set of ints takes about 60 for each."""


class Counting(Job):
    """A job of one stage with shards of one item."""

    name = "counting"

    def __init__(self, place: Path, shards: int) -> None:
        self.place, self.models, self.shards = str(place), {}, shards

    def outline(self, run: RunFolder) -> list[Stage]:
        async def work(item: Any) -> None:
            raise AssertionError

        return [Stage(name="s", count=self.shards, shard_size=1, work=work, write=lambda path, records: None)]  # pyright: ignore


def test_the_memory_of_a_resume_is_flat_in_the_number_of_shards(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr("camel.jobs.state.missing_files", lambda *given: [])
    monkeypatch.setattr(RunFolder, "markers", lambda self, stage, shards: iter(()))
    held: dict[int, int] = {}
    for shards in (1_000, 20_000):
        place = tmp_path / str(shards)
        (place / "committed" / "s").mkdir(parents=True)
        for shard in range(shards - 1):
            (place / "committed" / "s" / shard_file(shard)).touch()
        halt = Halt()
        meter = Meter(Budget(calls=1), halt)
        job = Counting(place, shards)
        tracemalloc.start()
        state = JobState(job, meter, Models(meter, 1), lambda event, text, **fields: None)
        state.begin(state.outline)
        assert state.tallies["s"].committed == shards - 1
        table = ShardTable([state.workload(state.outline[0])])
        done = table.done(state.folder)
        leases = Leases(len(table), done)
        assert len(done) == leases.done == shards - 1
        held[shards] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert held[20_000] - held[1_000] < PER_SHARD * 19_000


def test_sums_over_shards_take_no_memory_per_shard():
    tracemalloc.start()
    sums, counted = ShardSums(), Counted()
    for shard in range(1_000):
        sums.add(Committed(8, Need(40, 1000, 100), shard, 0.1))
        counted.add(Marker("s", shard, "data/x", 8, "", "f", {"calls": 40.0, "stop.done": 8.0}))
    before = tracemalloc.get_traced_memory()[0]
    for shard in range(1_000, 20_000):
        sums.add(Committed(8, Need(40, 1000, 100), shard, 0.1))
        counted.add(Marker("s", shard, "data/x", 8, "", "f", {"calls": 40.0, "stop.done": 8.0}))
    assert tracemalloc.get_traced_memory()[0] - before < PER_SHARD * 19_000
    tracemalloc.stop()
    assert (sums.shards, len(counted.shards), counted.usage.calls) == (20_000, 20_000, 800_000)
