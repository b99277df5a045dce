"""Forking: a new run under a changed configuration that keeps what the change does not concern.

The one decision to know: only lists are kept. What a list was made from (its prompt, its size, what it depends on, the
model and its settings) can be compared; a conversation depends on everything, so those begin afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import CamelError, InputError
from camel.generation.campaign import open_run
from camel.generation.config import GenerateConfig
from camel.scenarios import Scenario, load
from camel.storage.run import RunFolder, new_attempt, open_folder

_MAKES_LISTS = ("scenario", "model.name", "model.guided", "sampling", "seed")


def fork_run(config: GenerateConfig, source: str | Path) -> list[str]:
    """Make the run that `config` describes out of the one at `source`; returns the stages that it takes over.

    Where that was done before, it is left as it is.
    """
    old, new = open_folder(source), config.open_folder()
    settings = old.settings()
    if new.exists and new.settings().forked_from != str(source):
        raise InputError(f"{new.address} holds another run: fork into a new folder")
    scenario = config.loaded_scenario()
    new = open_run(config, scenario, forked_from=str(source))
    decisive: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config.decisive(scenario)))
    reused = _reusable(scenario, settings.config, decisive)
    take_over(source, new, reused)
    return [level for level in reused if old.committed(level)]


def take_over(source: str | Path, new: RunFolder, levels: Iterable[str]) -> None:
    """Copy what a run has committed of the lists of some levels into another; what that has stays."""
    old, fingerprint = open_folder(source), new.settings().fingerprint
    for level in levels:
        for marker in old.markers(level, sorted(old.committed(level) - new.committed(level))):
            # A copy, not a link: lists are there to be edited, in each run by itself.
            path = new.data_path(level, marker.shard, new_attempt(), Path(marker.file).suffix)
            path.write_bytes(old.read(marker.file))
            file, size = new.keep(path)
            # What was paid for it was paid by the other run.
            forked = msgspec.structs.replace(marker, file=file, size=size, fingerprint=fingerprint, totals={})
            if not new.commit(forked):
                new.discard(path)


def _reusable(scenario: Scenario, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The levels whose lists would be asked for in the same words and sizes as before."""
    if any(saved.get(name) != wanted.get(name) for name in _MAKES_LISTS):
        return []
    counts: dict[str, int] = saved.get("counts", {})
    try:
        before = load(str(saved["scenario"])).resized(counts)
    except CamelError:
        return []
    if before.fingerprint() != saved.get("scenario_fingerprint"):
        return []
    same = {level.name for level in scenario.levels if counts.get(level.name) == level.count}
    return [level.name for level in scenario.asked if same >= {level.name, *scenario.needs(level.name)}]
