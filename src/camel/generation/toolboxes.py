"""The tools of a run's seats: which ones the user allows, and what identifies them.

The one decision to know: nothing of a scenario is imported or started before the user has allowed it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from camel.core.dialogue import Dialogue
from camel.core.errors import InputError
from camel.core.identity import identity_of
from camel.core.role_playing import ASSISTANT, USER, RolePlaying
from camel.core.society import Society
from camel.core.tools import Toolbox
from camel.core.world import ALL, bound_tools, world_class, world_toolbox, world_tools
from camel.scenarios import Meeting, RolePlay, Scenario
from camel.tools.find import find_tools
from camel.tools.settings import ToolSettings, check_allowed, secret_values, server_of

if TYPE_CHECKING:
    from camel.generation.config import GenerateConfig


class RunTools:
    """The tools of a configuration and its scenario."""

    def __init__(self, config: GenerateConfig, scenario: Scenario) -> None:
        """Raise an `InputError` for tools that the user does not allow."""
        self._config, self._scenario, end = config, scenario, scenario.end
        own, given, usual = config.tools or ToolSettings(), scenario.tools or ToolSettings(), ToolSettings()
        self.settings = replace(
            own,
            servers={**given.servers, **own.servers},
            form=given.form if own.form == usual.form else own.form,
            limits=given.limits if own.limits == usual.limits else own.limits,
        )
        society = end.society if isinstance(end, Meeting) else end
        self.world: str = cast("Any", getattr(society, "world", None)) or ""
        named: dict[str, Sequence[str]] = {}
        if isinstance(end, RolePlay):
            named = {ASSISTANT: end.assistant_tools or (), USER: end.user_tools or ()}
        elif isinstance(end, Dialogue):
            named = {seat.name: seat.tools for seat in end.seats}
        elif isinstance(end, Meeting):
            named = {f"members.{one.name}": one.tools for one in end.society.members}
        check_allowed([self.world] if self.world else [], self.settings)
        methods = {ALL, *(one.name for one in world_tools(world_class(self.world)))}
        check_allowed(
            [name for names in named.values() for name in names if name not in methods], self.settings
        )
        self._named = {seat: [names] for seat, names in named.items() if names}
        for seat, its in config.models.items():
            if several := [one.tools for one in its.candidates if one.tools]:
                self._named[seat] = several

    def __bool__(self) -> bool:
        """Whether a seat has tools, or there is a world."""
        return bool(self._named or self.world)

    def toolbox(self, names: Sequence[str]) -> Toolbox | None:
        """Return the tools of these names."""
        return _toolbox(tuple(names), self.world, msgspec.json.encode(self.settings)) if names else None

    @property
    def columns(self) -> list[str]:
        """The columns that the world reads."""
        kind = world_class(self.world)
        return list(kind.columns) if kind else []

    @property
    def secrets(self) -> Sequence[str]:
        """The values that results must not contain."""
        servers = {server_of(name) for several in self._named.values() for names in several for name in names}
        return secret_values(self.settings, [name for name in servers if name in self.settings.servers])

    def identity(self) -> dict[str, Any]:
        """Return what identifies the tools in the settings of a run. Raise an `InputError` if they cannot be used here."""
        found: dict[str, Any] = {"world": identity_of(world_class(self.world))} if self.world else {}
        critic = self._config.critic_of(self._scenario)
        for seat, several in self._named.items():
            boxes = [box for names in several if (box := self.toolbox(names))]
            check_repeatable(boxes if self._config.validate else ())
            for one in (one for box in boxes for one in box.tools.values()):
                if critic and seat in critic.seats and not one.read_only:
                    raise InputError(
                        f"the {seat} has a critic, who discards proposals, and the tool {one.name} may change something: use "
                        "tools that are declared read_only, or remove the critic"
                    )
            found[seat] = [
                {**box.identity(), **({"schemas": _hash(box)} if any(map(server_of, names)) else {})}
                for names, box in zip(several, boxes, strict=True)
            ]
        return found


def check_repeatable(boxes: Iterable[Toolbox | None]) -> None:
    """Raise an `InputError` for tools that a validation, which may make a conversation several times, must not use."""
    for one in (one for box in boxes if box for one in box.tools.values()):
        if not one.repeatable:
            raise InputError(
                f"validate may make a conversation several times, and the tool {one.name} may change something each time: "
                "remove validate, or declare the tool idempotent or read_only"
            )


def declared_boxes(declaration: Any) -> Iterator[Toolbox | None]:
    """Yield the tools of the seats of a role play, a society or a dialogue."""
    if isinstance(declaration, RolePlaying):
        yield from declaration.toolboxes
    elif isinstance(declaration, Society | Dialogue):
        seats = declaration.members if isinstance(declaration, Society) else declaration.seats
        yield from (world_toolbox(seat.tools, declaration.world) for seat in seats)


def _hash(box: Toolbox) -> str:
    return hashlib.sha256(msgspec.json.encode(box.schemas)).hexdigest()[:16]


@lru_cache(maxsize=256)
def _toolbox(names: tuple[str, ...], world: str, settings: bytes) -> Toolbox:
    """Return a toolbox, made once per process."""
    chosen, kind = msgspec.json.decode(settings, type=ToolSettings), world_class(world)
    found = bound_tools(names, kind) if kind else list(names)
    others = find_tools([one for one in found if isinstance(one, str)], chosen)
    own = [one for one in found if not isinstance(one, str)]
    return Toolbox([*own, *others], form=chosen.form, limits=chosen.limits)
