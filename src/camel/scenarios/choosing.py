"""One role play of a scenario, with the values that the user chooses."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.role_playing import RolePlaying
from camel.scenarios.checking import load
from camel.scenarios.scenario import Cast, Level, RolePlay, Scenario


def role_play_of(scenario: str | Path, task: str = "", **values: str) -> RolePlaying:
    """Return a role play with the prompts, roles and stop rules of a scenario.

        camel.role_play_of("code", "Write a tool that compares invoices", language="Rust", domain="Accounting").run()

    `values` are items of the scenario's levels. A level that is not given has the first item of its list.
    """
    end, cast = choose_cast(scenario, task, values)
    return RolePlaying(**cast._asdict(), specifier=end.specifier(), rules=end.rules())


def choose_cast(name: str | Path, task: str, values: Mapping[str, str]) -> tuple[RolePlay, Cast]:
    """Return the role play that a scenario declares, and its roles, task and prompts with these values filled in."""
    scenario = load(name)
    end = scenario.end
    if not isinstance(end, RolePlay):
        raise InputError(
            f"'{scenario.name}' is not a role play. Make it with `camel generate --scenario {shlex.quote(str(name))}`"
        )
    if scenario.requires_acknowledgement:
        raise InputError(
            f"'{scenario.name}' makes harmful conversations. Make it with `camel generate`, which labels them"
        )
    if end.assistant_tools or end.user_tools or end.world:
        raise InputError(
            f"'{scenario.name}' uses tools. Make it with `camel generate`, which has their settings"
        )
    levels = {level.name: level for level in scenario.levels}
    for wrong in values.keys() - levels.keys():
        raise InputError(
            f"'{scenario.name}' has no level {shown(wrong)}{similar(wrong, levels)}. Its levels are {', '.join(levels)}"
        )
    given = {**values, **({_task_level(scenario, end): task} if task else {})}
    return end, end.cast({name: given.get(name) or _first(scenario, level) for name, level in levels.items()})


def _task_level(scenario: Scenario, end: RolePlay) -> str:
    """Return the name of the level that is the task."""
    names = [level.name for level in scenario.levels if end.task == f"<{level.placeholder}>"]
    if not names:
        raise InputError(
            f"the task of '{scenario.name}' is {shown(end.task)}. Set its levels instead of the task"
        )
    return names[0]


def _first(scenario: Scenario, level: Level) -> str:
    if not level.given:
        raise InputError(
            f"a model writes the list of '{level.name}' of '{scenario.name}'. Give one item: --set {level.name}=TEXT, or --task "
            "if it is the task"
        )
    return level.given[0].items[0]
