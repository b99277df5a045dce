"""Reused lists: a new run with a changed configuration that reuses lists of an existing run.

The one decision to know: only lists are reused. The inputs of a list (its prompt, its size, what it depends on, the model
and its settings) can be compared. A conversation depends on everything, so all conversations are generated again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import CamelError, InputError
from camel.engine.stage import write_whole
from camel.generation.config import GenerateConfig
from camel.generation.guesses import Need
from camel.generation.opening import open_run
from camel.generation.plan import Committed, ShardSums, committed_in, sample_of
from camel.runs.markers import new_attempt
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings
from camel.scenarios import Scenario, load

_MAKES_LISTS = (
    *("model.name", "model.weights", "model.guided", "models.lists", "models.lists.name"),
    *("sampling", "seed"),
)


class Reused(NamedTuple):
    """What a new run reuses of an existing one."""

    kept: list[str]
    """Levels whose lists the new run reuses."""
    why: dict[str, str]
    """Why lists of other levels are not reused, by level. Levels that had no list are omitted."""


def reuse_lists(config: GenerateConfig, source: str | Path, accept: Collection[str] = ()) -> RunFolder:
    """Open or create the run of `config`, with the lists that it can reuse from the run at `source`."""
    kept = look(config, source).kept
    folder = open_run(config, config.loaded_scenario(), forked_from=str(source), accept=accept)
    take_over(source, folder, kept)
    return folder


def look(config: GenerateConfig, source: str | Path) -> Reused:
    """Return what a run would reuse or has reused. Nothing is created."""
    old, new, scenario = open_folder(source), open_folder(config.where), config.loaded_scenario()
    settings = old.settings()
    if new.exists:
        if new.settings().forked_from != str(source):
            raise InputError(f"'{new.address}' contains another run: use a new folder")
        open_run(config, scenario)
    decisive: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config.decisive(scenario)))
    why = _changed(scenario, settings, decisive)
    there = [level.name for level in scenario.asked if old.committed(level.name)]
    return Reused(
        [level for level in there if level not in why],
        {level: reason for level, reason in why.items() if level in there},
    )


def committed_with_lists(config: GenerateConfig, source: str | Path, reused: Reused) -> dict[str, ShardSums]:
    """Return what a run with reused lists has committed, for its plan. If it does not exist yet, return what it will reuse."""
    new, old = open_folder(config.where), open_folder(source)
    if new.exists:
        return committed_in(new, config)
    found = sample_of(old, config)
    for level in reused.kept:
        sums = found.setdefault(level, ShardSums())
        for one in old.markers(level, old.committed(level)):
            sums.add(Committed(one.rows, Need(), one.shard))
    return found


def take_over(source: str | Path, new: RunFolder, levels: Iterable[str]) -> None:
    """Copy the committed lists of some levels from one run to another. Existing lists in the new run stay."""
    old, fingerprint = open_folder(source), new.settings().fingerprint
    for level in levels:
        for marker in old.markers(level, sorted(old.committed(level) - new.committed(level))):
            # A copy, not a link: users may edit the lists of each run.
            path = new.data_path(level, marker.shard, new_attempt(), Path(marker.file).suffix)
            write_whole(path, old.read(marker.file), marker.rows)
            file, size = new.persist(path)
            # The other run paid for it.
            reused = msgspec.structs.replace(marker, file=file, size=size, fingerprint=fingerprint, totals={})
            if not new.commit(reused):
                new.discard(path)


def _changed(scenario: Scenario, saved: Settings, wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return the levels whose lists would now be asked for in another way, each with the reason."""
    names = [level.name for level in scenario.asked]
    if other := [name for name in _MAKES_LISTS if saved.config.get(name) != wanted.get(name)]:
        return dict.fromkeys(names, f"{', '.join(other)} changed")
    before, now = saved.lists or _lists_before(saved.config), scenario.list_fingerprints()
    return {
        name: "its prompt, its size or what it depends on changed"
        for name in names
        if before.get(name) != now[name]
    }


def _lists_before(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the list fingerprints of an older run that did not store them. Empty if its scenario has changed since."""
    try:
        scenario = load(str(config["scenario"]), "asked").resized(config.get("counts", {}))
    except CamelError:
        return {}
    same = scenario.fingerprint() == config.get("scenario_fingerprint")
    return scenario.list_fingerprints() if same else {}
