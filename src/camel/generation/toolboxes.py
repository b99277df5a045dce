"""The tools of a run's seats: which ones the user allows, and what identifies them.

The one decision to know: nothing of a scenario is imported or started before the user has allowed it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.identity import identity_of
from camel.core.society import Society
from camel.core.tools import Toolbox
from camel.core.world import bound_tools, world_class
from camel.scenarios import Scenario
from camel.scenarios.checking import tools_of, world_of
from camel.tools.find import find_tools, with_command
from camel.tools.settings import ServerSettings, ToolSettings, check_tools, secret_values, server_of

if TYPE_CHECKING:
    from camel.generation.config import GenerateConfig


class RunTools:
    """The tools of a configuration and its scenario. It is false if there are none."""

    def __init__(self, config: GenerateConfig, scenario: Scenario, *, option: bool = False) -> None:
        """Raise an `InputError` for tools that the user does not allow in the configuration, or with the option `--allow`."""
        self._critic = config.critic_of(scenario)
        own, given, usual = config.tools or ToolSettings(), scenario.tools or ToolSettings(), ToolSettings()
        self.settings = replace(
            own,
            servers={**given.servers, **own.servers},
            form=given.form if own.form == usual.form else own.form,
            limits=given.limits if own.limits == usual.limits else own.limits,
        )
        self.world, named = world_of(scenario), tools_of(scenario)
        check_tools(chain.from_iterable(named.values()), self.world, self.settings, option=option)
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
    names = chain.from_iterable(tools_of(scenario).values())
    outside = [name for name in names if name == "python" or ":" in name]  # not the methods of the world
    return list(dict.fromkeys([*outside, *filter(None, [world_of(scenario)])]))


def allow_tools(society: Society, allow: Sequence[str]) -> Society:
    """Return the society of a file with tools in place of their names. Raise an `InputError` unless `allow` covers them and the
    world: the file may have another author."""
    settings, named, world = ToolSettings(allow=tuple(allow)), list[list[str]](), str(society.world or "")
    for member in society.members:
        named.append([])
        for given in map(str, member.tools):
            name, settings = with_command(given, settings)
            named[-1].append(name)
    check_tools(chain.from_iterable(named), world, settings, option=True)
    encoded = msgspec.json.encode(settings)
    boxes = (_toolbox(tuple(names), world, encoded) if names else () for names in named)
    members = (replace(one, tools=box) for one, box in zip(society.members, boxes, strict=True))
    return replace(society, members=tuple(members))


@lru_cache(maxsize=256)
def _toolbox(names: tuple[str, ...], world: str, settings: bytes) -> Toolbox:
    """Return a toolbox, made once per process."""
    chosen, found = msgspec.json.decode(settings, type=ToolSettings), bound_tools(names, world)
    others = find_tools([one for one in found if isinstance(one, str)], chosen)
    own = [one for one in found if not isinstance(one, str)]
    return Toolbox([*own, *others], form=chosen.form, limits=chosen.limits)
