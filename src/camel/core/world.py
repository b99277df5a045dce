"""A world: the state that the speakers of one conversation share and change with their tools.

    class Shop(World):
        def __init__(self, row):
            self.stock, self.sold = {"apple": int(row["apples"])}, []

        @tool
        def sell(self, item: str) -> str:
            "Sell one item to the customer."
            self.stock[item] -= 1
            self.sold.append(item)
            return "sold"

        def check(self):
            return self.sold == ["apple"]

The one decision to know: the attributes are the whole state, and they are JSON values. Each call works on a copy, and its
changes are recorded. So a call that fails changes nothing, and a resumed conversation has the same state without any call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, cast

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.message import Action
from camel.core.tools import (
    FunctionTool,
    Toolbox,
    ToolBroken,
    ToolResult,
    Workplace,
    checked_toolbox,
)
from camel.core.transcript import Score, Transcript

ALL = "world"
"""The name of all tools of a world in a list of tools."""
Change = list[list[Any]]
"""Changes of a state, in order: `[path, value]`, and `[path]` for what was removed."""


class World:
    """The shared state of a conversation. Subclasses set attributes in `__init__`, and mark the methods that are tools."""

    version: int = 1
    """Raise it when a method does something else, so that a run does not mix old and new results."""
    columns: tuple[str, ...] = ()
    """Columns of the table of inputs that it reads, if no text of the conversation mentions them."""

    def __init__(self, row: Mapping[str, str]) -> None:
        """Set the state at the start. It must depend only on `row`, the values that the conversation is made from."""

    def check(self) -> bool | float | Mapping[str, bool | float]:
        """Return a score of the state at the end, or several by name. Without this method there is no score."""
        return {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Bind the tools to the world."""
        super().__init_subclass__(**options)
        for name, one in [*vars(cls).items()]:
            if isinstance(one, FunctionTool) and not isinstance(one, WorldTool):
                setattr(cls, name, WorldTool(one))


class WorldTool(FunctionTool):
    """A method of a world. A call has no effect outside of its world, so it may be repeated after a crash."""

    def __init__(self, method: FunctionTool) -> None:
        self.__dict__.update(vars(method))

    async def call(self, arguments: dict[str, Any], place: Workplace) -> Any:
        """Call the method on a copy of the state, and keep the copy if the call succeeds."""
        given, held = self.converted(arguments), _held(self.name, place)
        world = held.world()
        result = await self.run(world, **given)
        after = state_of(world)
        change = difference(held.state, after)
        if change and self.read_only:
            raise ToolBroken(f"{self.name} is declared read_only, but changes the world: remove read_only")
        held.state = after
        return ToolResult(result, json.dumps(change) if change else "")

    async def recall(self, arguments: dict[str, Any], action: Action, place: Workplace) -> None:
        """Apply the recorded changes."""
        held = _held(self.name, place)
        try:
            held.state = with_change(held.state, json.loads(action.change or "[]"))
        except (LookupError, TypeError, AttributeError):
            raise ToolBroken(
                f"the recorded changes of {held.kind.__name__} do not fit its start: __init__ must depend only on the row"
            ) from None

    @property
    def repeatable(self) -> bool:
        """True: without its recorded changes, a call did not happen."""
        return True


class _Held:
    """The world of a conversation in its `Workplace`."""

    def __init__(self, world: World) -> None:
        self.kind, self.state = type(world), state_of(world)

    def world(self) -> World:
        """Return a copy of the world."""
        made = object.__new__(self.kind)
        vars(made).update(_copied(self.state, self.kind.__name__))
        return made


def _held(tool: str, place: Workplace) -> _Held:
    if held := place.kept.get(World):
        return held
    raise ToolBroken(f"the tool {tool} belongs to a world, and the conversation has none: pass world=…")


def world_class(world: Any) -> type[World] | None:
    """Return the class of a world, which is given as a class, as `module:Class`, or with its row. None if there is none."""
    if isinstance(world, partial):
        return world_class(cast("Any", world.func))
    found: Any = world
    if isinstance(world, str) and world:
        module, _, name = world.partition(":")
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(
                f"the world {shown(world)} cannot be imported as module:Class: {error}"
            ) from None
    if not found:
        return None
    if not isinstance(found, type) or not issubclass(found, World):
        raise InputError(
            f"world must be a subclass of camel.World or its name as module:Class, not {shown(world)}"
        )
    return found


def columns_of_world(world: Any) -> frozenset[str]:
    """Return the columns that a world reads."""
    kind = world_class(world)
    return frozenset(kind.columns if kind else ())


def with_row(world: Any, row: Mapping[str, Any]) -> Any:
    """Return a world with the values that it starts from."""
    kind = world_class(world)
    return kind and partial(kind, {str(name): str(value) for name, value in row.items()})


def world_toolbox(tools: Any, world: Any) -> Toolbox | None:
    """Return tools as a `Toolbox`. Names of the world's methods are its tools, and `world` names all of them."""
    kind = world_class(world)
    if kind is None or not tools or isinstance(tools, Toolbox | str) or not isinstance(tools, Sequence):
        return checked_toolbox(tools)
    return checked_toolbox(bound_tools(cast("Sequence[Any]", tools), kind))


def world_tools(kind: type[World] | None) -> list[WorldTool]:
    """Return the tools of a world."""
    return [one for name in dir(kind) if isinstance(one := getattr(kind, name), WorldTool)]


def bound_tools(tools: Sequence[Any], kind: type[World]) -> list[Any]:
    """Return a list of tools in which names of a world's methods are replaced by its tools."""
    own = {one.name: one for one in world_tools(kind)}
    found: list[Any] = []
    for one in tools:
        found += own.values() if one == ALL else [own.get(one, one) if isinstance(one, str) else one]
    return found


def start_world(world: Any, place: Workplace | None) -> Workplace:
    """Put the world of a conversation into its workplace, which is made if there is none."""
    place = place or Workplace()
    kind = world_class(world)
    if kind is not None:
        start = world if isinstance(world, partial) else partial(kind, {})
        place.kept[World] = _Held(_called(f"{kind.__name__}.__init__", start))
    return place


def _called(name: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        raise InputError(
            f"{name} raised {type(error).__name__}: {error}. Fix it and resume; no call is paid for twice"
        ) from error


def check_world(place: Workplace, transcript: Transcript) -> None:
    """Store what the world's `check` returns as scores of a conversation that has ended and did not fail."""
    held: _Held | None = place.kept.get(World)
    if held is None or transcript.stop is None or transcript.failed:
        return
    found: Any = _called(f"{held.kind.__name__}.check", held.world().check)
    named = cast("dict[Any, Any]", found) if isinstance(found, Mapping) else {"check": found}
    for name, value in named.items():
        if not isinstance(name, str) or not isinstance(value, bool | int | float):
            raise InputError(
                f"{held.kind.__name__}.check must return a number, or numbers by name, not {shown(found)}"
            )
    transcript.scores = transcript.scores | {
        name: Score(float(value), by="check") for name, value in named.items()
    }


# --- states ------------------------------------------------------------------------------------------------------


def state_of(world: World) -> dict[str, Any]:
    """Return a copy of the attributes of a world. Raise a `ToolBroken` that names one that is not a JSON value."""
    return {name: _copied(value, f"{type(world).__name__}.{name}") for name, value in vars(world).items()}


def difference(before: Any, after: Any) -> Change:
    """Return the changes that make `after` of `before`. Both are JSON values."""
    found: Change = []
    _compare(before, after, [], found)
    return found


def with_change(state: Any, change: Change) -> Any:
    """Return a state with changes applied. The given state is changed, too."""
    for path, *value in change:
        if not path:
            state = value[0]
            continue
        place = state
        for key in path[:-1]:
            place = place[key]
        if not value:
            del place[path[-1]]
        elif isinstance(place, list) and path[-1] == len(cast("list[Any]", place)):
            place.append(value[0])
        else:
            place[path[-1]] = value[0]
    return state


def _compare(before: Any, after: Any, path: list[Any], found: Change) -> None:
    if type(before) is not type(after):
        found.append([path, after])
    elif isinstance(before, dict):
        found += [[[*path, key]] for key in before if key not in after]
        for key, value in after.items():
            if key in before:
                _compare(before[key], value, [*path, key], found)
            else:
                found.append([[*path, key], value])
    elif isinstance(before, list):
        old, new = cast("list[Any]", before), cast("list[Any]", after)
        least = min(len(old), len(new))
        inner: Change = []
        for place in range(least):
            _compare(old[place], new[place], [*path, place], inner)
        if inner and len(old) != len(new):  # usually something was removed in the middle
            found.append([path, new])
            return
        found += inner
        found += [[[*path, place]] for place in range(len(old) - 1, least - 1, -1)]
        found += [[[*path, place], new[place]] for place in range(least, len(new))]
    elif before != after:
        found.append([path, after])


def _copied(value: Any, where: str) -> Any:
    """Return a copy of a JSON value."""
    kind = type(value)
    if value is None or kind in (str, bool, int) or (kind is float and math.isfinite(value)):
        return value
    try:
        if kind is list:
            return [_copied(one, where) for one in value]
        if kind is dict and all(type(key) is str for key in value):
            return {key: _copied(one, where) for key, one in value.items()}
    except RecursionError:
        raise ToolBroken(f"{where} is nested too deeply, or contains itself: use plain JSON values") from None
    raise ToolBroken(
        f"{where} has {shown(value)} of type {kind.__name__}, which is not a JSON value: use text, numbers, true and false, "
        "None, lists, and dicts with text as keys"
    )
