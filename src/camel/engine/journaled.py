"""Usage of the calls in open journals: made, but in no shard yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from camel.core.message import Usage
from camel.engine.site import ToolUse
from camel.engine.stage import read_step
from camel.models.recorded import tool_seconds_in, usage_in
from camel.runs.run import RunFolder
from camel.storage.journal import Damage


def journaled(
    folder: RunFolder,
    stage: str,
    damaged: Callable[[Damage], None] = lambda damage: None,
) -> Iterator[tuple[str, Usage, ToolUse]]:
    """Yield the model's name (if there are several), the usage and the tool calls of each step in the journals of open shards.
    `damaged` is called for each part that cannot be read."""
    for shard in sorted(folder.journaled(stage)):
        begun: set[tuple[int, int]] = set()
        for step in map(read_step, folder.replay(stage, shard, damaged)):
            seconds = 0.0 if step.begun else tool_seconds_in(step.result)
            new = seconds is not None and (step.item, step.step) not in begun
            yield *usage_in(step.result), ToolUse(int(new), seconds or 0.0)
            if step.begun:
                begun.add((step.item, step.step))
