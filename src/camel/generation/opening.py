"""A run's folder and its configuration: made together, and continued only where both fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import InputError
from camel.generation.config import LISTS_PER_SHARD, GenerateConfig, last_stage
from camel.jobs.state import fingerprint
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Planned, Settings
from camel.scenarios import Scenario

ACCEPTABLE = ("model.name",)
"""What of a run's configuration may change once somebody says so: records name the model of each message."""


def open_run(
    config: GenerateConfig, scenario: Scenario, *, forked_from: str = "", accept: Collection[str] = ()
) -> RunFolder:
    """Make the run's folder, or continue with the one that is there if it was made from the same configuration.

    `accept` names what may have changed: what is committed stays, what is open continues with the new value.
    """
    if unknown := sorted(set(accept) - set(ACCEPTABLE)):
        raise InputError(f"--accept-change takes {', '.join(ACCEPTABLE)}, not {shown(unknown[0])}")
    folder = open_folder(config.where)
    decisive = config.decisive(scenario)
    planned = {level.name: Planned(scenario.lists(level.name), LISTS_PER_SHARD) for level in scenario.asked}
    planned[last_stage(scenario)] = Planned(scenario.count, decisive["shard_size"])
    settings = Settings(
        fingerprint(decisive),
        decisive,
        __version__,
        forked_from,
        lists=scenario.list_fingerprints(),
        planned=planned,
    )
    if not folder.exists:
        folder.create(settings)
        return folder
    if accept:
        wanted, saved = config.decisive(scenario), {**folder.settings().config, **folder.accepted()}
        if new := {name: wanted[name] for name in accept if saved.get(name) != wanted[name]}:
            folder.accept(new)
    if (changed := changes(folder, config, scenario)) and not folder.make_anew(settings):
        lines = "".join(f"\n  {line}" for line in changed)
        raise InputError(
            f"{folder.address} was made from another configuration:{lines}\n"
            "set it back, begin a run beside it with --fork NEWDIR (keeps the lists it can), or afresh with --out DIR; "
            "with another model the run continues if you say --accept-change model.name"
        )
    return folder


def changes(folder: RunFolder, config: GenerateConfig, scenario: Scenario) -> list[str]:
    """What of a configuration is not as the run that is there was made with, a line each; it goes on only if nothing is."""
    saved, decisive = {**folder.settings().config, **folder.accepted()}, config.decisive(scenario)
    if config.shard_size is None:
        # What is usual may change from one version to the next; a run keeps what it was made with.
        decisive["shard_size"] = saved.get("shard_size", decisive["shard_size"])
    return _changes(saved, msgspec.json.decode(msgspec.json.encode(decisive)))


def _changes(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two configurations, a line each: its name, what it was and what it is."""

    def flat(config: Mapping[str, Any]) -> dict[str, Any]:
        counts: dict[str, Any] = config.get("counts") or {}
        return {**config, **{f"counts.{name}": count for name, count in counts.items()}, "counts": None}

    old, new = flat(saved), flat(wanted)
    if old.get("scenario_fingerprint") == new.get("scenario_fingerprint"):
        old["scenario"] = new.get("scenario")  # the same, found on another way
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    prompts = "scenario_fingerprint"
    if prompts in changed:
        changed.remove(prompts)
        # It follows from the scenario and its counts: only where those are the same does it say anything of its own.
        if not any(key == "scenario" or key.startswith("counts.") for key in changed):
            return [*_lines(changed, old, new), "scenario: its prompts or its declaration were changed"]
    return _lines(changed, old, new)


def _lines(changed: Sequence[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    def words(value: Any) -> str:
        return "not set" if value is None else shown(value)

    return [f"{key}: {words(old.get(key))} → {words(new.get(key))}" for key in changed]
