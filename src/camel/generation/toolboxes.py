"""The tools of a run's seats: which ones the user allows, and what identifies them.

The one decision to know: nothing of a scenario is imported or started before the user has allowed it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from camel.core.dialogue import Dialogue
from camel.core.errors import InputError
from camel.core.identity import identity_of
from camel.core.role_playing import ASSISTANT, USER
from camel.core.tools import Toolbox
from camel.core.world import bound_tools, world_class
from camel.scenarios import Meeting, RolePlay, Scenario
from camel.tools.find import find_tools
from camel.tools.settings import ServerSettings, ToolSettings, check_allowed, secret_values, server_of

if TYPE_CHECKING:
    from camel.generation.config import GenerateConfig


class RunTools:
    """The tools of a configuration and its scenario. It is false if there are none."""

    def __init__(self, config: GenerateConfig, scenario: Scenario) -> None:
        """Raise an `InputError` for tools that the user does not allow."""
        self._critic = config.critic_of(scenario)
        own, given, usual = config.tools or ToolSettings(), scenario.tools or ToolSettings(), ToolSettings()
        self.settings = replace(
            own,
            servers={**given.servers, **own.servers},
            form=given.form if own.form == usual.form else own.form,
            limits=given.limits if own.limits == usual.limits else own.limits,
        )
        self.world, named = _world_of(scenario), _named_in(scenario)
        check_allowed([self.world] if self.world else [], self.settings)
        scenarios = [one for names in named.values() for one in bound_tools(names, self.world)]
        check_allowed([one for one in scenarios if isinstance(one, str)], self.settings)
        users: dict[str, Any] = {
            seat: [one.tools for one in its.candidates if one.tools] for seat, its in config.models.items()
        }
        self._named: dict[str, Any] = {seat: [names] for seat, names in named.items() if names}
        self._named |= {seat.removeprefix("members."): several for seat, several in users.items() if several}

    def __bool__(self) -> bool:
        return bool(self._named or self.world)

    def toolbox(self, names: Sequence[str]) -> Toolbox | None:
        """Return the tools of these names."""
        return _toolbox(tuple(names), self.world, msgspec.json.encode(self.settings)) if names else None

    @property
    def secrets(self) -> Sequence[str]:
        """The values that results must not contain."""
        return secret_values(replace(self.settings, servers=self._servers()))

    @property
    def variables(self) -> Sequence[str]:
        """Names of the environment variables that servers get."""
        return [name for one in self._servers().values() for name in one.values()]

    def _servers(self) -> dict[str, ServerSettings]:
        used = {server_of(name) for several in self._named.values() for names in several for name in names}
        return {name: one for name, one in self.settings.servers.items() if name in used}

    def identity(self) -> dict[str, Any]:
        """Return what identifies the tools in the settings of a run. Raise an `InputError` if a critic cannot have them."""
        found: dict[str, Any] = {"world": identity_of(world_class(self.world))} if self.world else {}
        for seat, several in self._named.items():
            found[seat] = []
            for names in several:
                box = _toolbox(tuple(names), self.world, msgspec.json.encode(self.settings))
                changing = [one.name for one in box.tools.values() if not one.read_only]
                if changing and self._critic and seat in self._critic.seats:
                    raise InputError(
                        f"the {seat} has a critic, who discards proposals, and the tool {changing[0]} may change something: use "
                        "tools that are declared read_only, or remove the critic"
                    )
                served = any(map(server_of, names))
                schemas = hashlib.sha256(msgspec.json.encode(box.schemas)).hexdigest()[:16] if served else ""
                found[seat].append({**box.identity(), "schemas": schemas})
        return found


def named_tools(scenario: Scenario) -> list[str]:
    """Return the names of the tools and of the world that a scenario uses, as `allow` lists them."""
    names = [name for several in _named_in(scenario).values() for name in several]
    return list(dict.fromkeys([*names, *filter(None, [_world_of(scenario)])]))


def _world_of(scenario: Scenario) -> str:
    end = scenario.end
    return str(getattr(end.society if isinstance(end, Meeting) else end, "world", None) or "")


def _named_in(scenario: Scenario) -> dict[str, Sequence[str]]:
    """Return the names of tools, by seat."""
    end = scenario.end
    if isinstance(end, RolePlay):
        return {ASSISTANT: end.assistant_tools or (), USER: end.user_tools or ()}
    seats = (
        end.seats if isinstance(end, Dialogue) else end.society.members if isinstance(end, Meeting) else ()
    )
    return {seat.name: tuple(map(str, seat.tools)) for seat in seats}


@lru_cache(maxsize=256)
def _toolbox(names: tuple[str, ...], world: str, settings: bytes) -> Toolbox:
    """Return a toolbox, made once per process."""
    chosen, found = msgspec.json.decode(settings, type=ToolSettings), bound_tools(names, world)
    others = find_tools([one for one in found if isinstance(one, str)], chosen)
    own = [one for one in found if not isinstance(one, str)]
    return Toolbox([*own, *others], form=chosen.form, limits=chosen.limits)
