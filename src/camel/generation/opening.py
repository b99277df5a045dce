"""Creates or opens a run's folder, and checks that its configuration matches."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import InputError
from camel.generation.config import LISTS_PER_SHARD, SPECIFIED, GenerateConfig, last_stage
from camel.jobs.state import fingerprint
from camel.runs.layout import Segment
from camel.runs.plan import read_plan
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings
from camel.scenarios import Scenario

EARLIER = "earlier"
"""The subfolder with previews that were made with other settings."""
ACCEPTABLE = ("model.name", "model.weights", "models.SEAT.name")
_ACCEPTABLE = re.compile(r"model\.(?:name|weights)|models\..+\.name")
"""Settings that may change if the user accepts it. The records name the model of each message."""


def open_run(
    config: GenerateConfig, scenario: Scenario, *, forked_from: str = "", accept: Collection[str] = ()
) -> RunFolder:
    """Create or open the run's folder. Raise an `InputError` if an existing run has another configuration."""
    decisive = config.decisive(scenario)
    planned = {level.name: Segment(scenario.lists(level.name), LISTS_PER_SHARD) for level in scenario.asked}
    if config.inputs is None:  # the items of a table are in the run's plan
        whole = Segment(scenario.count, decisive["shard_size"])
        planned |= dict.fromkeys(item_stages(config, scenario), whole)
    settings = Settings(
        fingerprint(decisive),
        decisive,
        __version__,
        forked_from,
        lists=scenario.list_fingerprints(),
        planned=planned,
    )
    hint = (
        "undo the change, start a new run with --reuse-lists NEWDIR (reuses lists) or --out DIR, or, if only the model changed, add "
        "--accept-change model.name"
    )
    return open_made_from(config.where, settings, accept, hint, own_size=config.shard_size is not None)


def open_made_from(
    where: str, settings: Settings, accept: Collection[str], hint: str, *, own_size: bool = False
) -> RunFolder:
    """Create a run's folder, or open an existing one that was created with the same settings.

    `accept` names settings that may have changed: committed items stay, open items continue with the new value.
    """
    if unknown := sorted(name for name in accept if not _ACCEPTABLE.fullmatch(name)):
        raise InputError(f"--accept-change must be {', '.join(ACCEPTABLE)}, not {shown(unknown[0])}")
    folder, wanted = open_folder(where), settings.config
    if not folder.exists:
        folder.create(settings)
        return folder
    if accept:
        saved = {**folder.settings().config, **folder.accepted()}
        if new := {name: wanted.get(name) for name in accept if saved.get(name) != wanted.get(name)}:
            folder.accept(new)
    changed = differences(folder, wanted, own_size=own_size)
    if changed and not folder.reset_settings(settings) and not reset_preview(folder, settings):
        lines = "".join(f"\n  {line}" for line in changed)
        raise InputError(f"'{folder.address}' was created with other settings:{lines}\n{hint}")
    return folder


def item_stages(config: GenerateConfig, scenario: Scenario) -> list[str]:
    """Return the names of the stages that have one item per conversation or answer, in order."""
    return [*([SPECIFIED] if config.specifies_first(scenario) else []), last_stage(scenario)]


def reset_preview(folder: RunFolder, settings: Settings) -> bool:
    """Begin a run again that has only a preview, because its settings have changed. The old conversations are moved to the
    subfolder `earlier`. Return whether this was done."""
    plan = read_plan(folder)
    if plan is None or not plan.steps[-1].preview or not folder.on_disk:
        return False
    with folder.locked():
        place = folder.path(f"{EARLIER}/{len(folder.store.folders(EARLIER)) + 1:06d}")
        place.mkdir(parents=True)
        records = ("committed", "data", "plan", "again", "accepted", "stages", "index", "journal")
        for name in (*records, "run.json"):
            if (folder.root / name).exists():  # markers first: after a kill, nothing refers to moved data
                folder.path(name).rename(place / name)
    folder.create(settings)
    return True


def changes(folder: RunFolder, config: GenerateConfig, scenario: Scenario) -> list[str]:
    """Return the differences between a configuration and an existing run's, one line each."""
    return differences(folder, config.decisive(scenario), own_size=config.shard_size is not None)


def differences(folder: RunFolder, wanted: Mapping[str, Any], *, own_size: bool = False) -> list[str]:
    """Return the differences from an existing run's settings, one line each: name, old and new value. Shard sizes count only
    if `own_size` is true."""
    saved = {**folder.settings().config, **folder.accepted()}
    now: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(wanted))
    if not own_size and "shard_size" in now:
        # The default size may change between versions; a run keeps its own.
        now["shard_size"] = saved.get("shard_size", now["shard_size"])
    old, new = _flat(saved), _flat(now)
    if old.get("scenario_fingerprint") == new.get("scenario_fingerprint"):
        old["scenario"] = new.get("scenario")  # the same scenario, found under another path
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    lines = [
        f"{key}: {_change(old.get(key), new.get(key))}" for key in changed if key != "scenario_fingerprint"
    ]
    # The fingerprint follows from the scenario, its lists and its counts, so it matters only if those are equal.
    if "scenario_fingerprint" in changed and not any(
        key in ("scenario", "lists") or key.startswith("counts.") for key in changed
    ):
        lines.append("scenario: its prompts or its declaration have changed")
    return lines


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = config.get("counts") or {}
    sizes = {f"counts.{name}": count for name, count in counts.items()}
    return {**config, **sizes, "counts": None, "lists": config.get("lists", "asked")}


def _change(was: Any, now: Any) -> str:
    words = ["not set" if value is None else shown(value) for value in (was, now)]
    if isinstance(was, dict) and isinstance(now, dict):
        old, new = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
        return f"other {', '.join(sorted(name for name in {*old, *new} if old.get(name) != new.get(name)))}"
    return " → ".join(words)
