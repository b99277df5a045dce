"""Usage of the calls in open journals: paid for, but in no shard yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from camel.core.message import Usage
from camel.engine.stage import read_step
from camel.models.recorded import usage_in
from camel.runs.run import RunFolder
from camel.storage.journal import Damage


def journaled(
    folder: RunFolder,
    stage: str,
    damaged: Callable[[Damage], None] = lambda damage: None,
) -> Iterator[tuple[str, Usage]]:
    """Yield the model's name (if there are several) and the usage of each call in the journals of open shards. `damaged` is
    called for each part that cannot be read."""
    for shard in sorted(folder.journaled(stage)):
        for entry in folder.replay(stage, shard, damaged):
            yield usage_in(read_step(entry).result)
