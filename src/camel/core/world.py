"""A world: the state that the speakers of one conversation share and change with their tools.

    class Shop(World):
        def __init__(self, row):
            self.stock, self.sold = int(row["stock"]), []

        @tool
        def sell(self, item: str) -> str:
            "Sell one item."
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
from typing import Any, cast

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.message import Action
from camel.core.plugins import import_named
from camel.core.tools import FunctionTool, Toolbox, ToolResult, Workplace, as_text, checked_toolbox
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
    """Columns of rows that it reads, if no text of the conversation mentions them. In a configuration, `[inputs] keep` has them."""

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

    raises = InputError

    def __init__(self, method: FunctionTool) -> None:
        for name, value in vars(method).items():
            setattr(self, name, value)

    def __reduce__(self) -> Any:
        """Pickle the method and the settings."""
        return WorldTool, (FunctionTool(self.function, **self._settings),)

    @property
    def repeatable(self) -> bool:
        """True: without its recorded changes, a call did not happen."""
        return True

    async def call(self, arguments: dict[str, Any], place: Workplace) -> Any:
        """Call the method on a copy of the world, and keep the copy if the call succeeds."""
        given, before = self.converted(arguments), self._world(place)
        world = object.__new__(type(before))
        world.__dict__.update(state_of(before))
        result = await self.run(world, **given)
        as_text(result, 1)  # raises an error for a value that is not JSON
        change = difference(vars(before), state_of(world))
        if change and self.read_only:
            raise InputError(f"{self.name} is declared read_only, but changes the world: remove read_only")
        place.kept[World] = world if change else before
        return ToolResult(result, json.dumps(change) if change else "")

    async def recall(self, arguments: dict[str, Any], action: Action, place: Workplace) -> None:
        """Apply the recorded changes."""
        world = self._world(place)
        try:
            apply_change(vars(world), json.loads(action.change or "[]"))
        except (LookupError, TypeError):
            name = type(world).__name__
            raise InputError(
                f"the recorded changes of {name} do not fit its start: __init__ must depend only on the row"
            ) from None

    def _world(self, place: Workplace) -> World:
        if World not in place.kept:
            raise InputError(f"the tool {self.name} belongs to a world, and there is none: pass world=…")
        return place.kept[World]


def world_class(world: Any) -> type[World] | None:
    """Return the class of a world, which is given as a class, as `module:Class`, or with its row. None if there is none."""
    found: Any = cast("Any", world.func) if isinstance(world, partial) else world
    if isinstance(world, str) and world:
        found = import_named(world)
    if found and not (isinstance(found, type) and issubclass(found, World)):
        raise InputError(
            f"world must be a subclass of World or its name as module:Class, not {shown(cast('Any', world))}"
        )
    return found or None


def columns_of(world: Any) -> frozenset[str]:
    """Return the columns that a world reads."""
    return frozenset(getattr(world_class(world), "columns", ()))


def with_row(world: Any, row: Mapping[str, Any]) -> Any:
    """Return a world with the values that it starts from."""
    kind = world_class(world)
    return kind and partial(kind, {str(name): str(value) for name, value in row.items()})


def world_toolbox(tools: Any, world: Any) -> Toolbox | None:
    """Return tools as a `Toolbox`. Names of the world's methods are its tools, and `world` names all of them."""
    several = isinstance(tools, Sequence) and not isinstance(tools, str)
    return checked_toolbox(bound_tools(cast("Any", tools), world) if several else tools)


def bound_tools(tools: Sequence[Any], world: Any) -> list[Any]:
    """Return a list of tools in which the names of a world's methods are replaced by its tools."""
    kind = world_class(world)
    own = {one.name: one for name in dir(kind) if isinstance(one := getattr(kind, name), WorldTool)}
    for one in tools:
        if kind and isinstance(one, str) and ":" not in one and one not in (*own, ALL, "python"):
            raise InputError(
                f"the world {kind.__name__} has no tool {shown(one)}{similar(one, [*own, 'python'])}. "
                f"It has {', '.join(own) or 'none: mark methods with @camel.tool'}. The name world means all of them"
            )
    lists = (own.values() if one == ALL and kind else (own.get(str(one), one),) for one in tools)
    return [one for several in lists for one in several]


def start_world(world: Any, place: Workplace | None) -> Workplace:
    """Put the world of a conversation into its workplace, which is made if there is none."""
    place, kind = place or Workplace(), world_class(world)
    if kind is not None:
        start = cast("Any", world) if isinstance(world, partial) else partial(kind, {})
        made = _called(f"{kind.__name__}.__init__", start)
        made.__dict__.update(state_of(made))
        place.kept[World] = made
    return place


def check_world(place: Workplace, transcript: Transcript) -> None:
    """Store what the world's `check` returns as scores of a conversation that has ended and did not fail."""
    world: World | None = place.kept.get(World)
    if world is None or transcript.stop is None or transcript.failed:
        return
    name = f"{type(world).__name__}.check"
    found: Any = _called(name, world.check)
    named = cast("dict[Any, Any]", found) if isinstance(found, Mapping) else {"check": found}
    if not all(isinstance(key, str) and isinstance(one, bool | int | float) for key, one in named.items()):
        raise InputError(f"{name} must return a number, or numbers by name, not {shown(named)}")
    scores = {key: Score(float(one), by="check") for key, one in named.items()}
    transcript.scores = {**transcript.scores, **scores}


def _called(name: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        problem = f"{name} raised {type(error).__name__}: {error}"
        raise InputError(f"{problem}. Fix it and resume; no call is paid for twice") from error


def state_of(world: World) -> dict[str, Any]:
    """Return a copy of the attributes of a world. Raise an `InputError` that names one that is not a JSON value."""
    return {name: _copied(value, f"{type(world).__name__}.{name}") for name, value in vars(world).items()}


def difference(before: Any, after: Any, path: Sequence[Any] = ()) -> Change:
    """Return the changes that make `after` of `before`. Both are JSON values."""
    kind = cast("Any", type(before)) if type(before) is type(after) else None
    if kind is dict:
        found: Change = [[[*path, key]] for key in before if key not in after]
        for key, value in after.items():
            found += (
                difference(before[key], value, (*path, key)) if key in before else [[[*path, key], value]]
            )
        return found
    if kind is list and len(before) <= len(after):
        each = (difference(*pair, (*path, at)) for at, pair in enumerate(zip(before, after, strict=False)))
        added: Change = [[[*path, at], after[at]] for at in range(len(before), len(after))]
        return [change for changes in each for change in changes] + added
    return [] if kind and before == after else [[[*path], after]]


def apply_change(state: Any, change: Change) -> Any:
    """Apply changes to a state and return it. It is another object only if the whole state was replaced."""
    for path, *value in change:
        if not path:
            state = value[0]
            continue
        place = state
        for key in path[:-1]:
            place = place[key]
        if not value:
            del place[path[-1]]
        elif type(place) is list and path[-1] == len(cast("Any", place)):
            cast("Any", place).append(value[0])
        else:
            place[path[-1]] = value[0]
    return state


def _copied(value: Any, where: str) -> Any:
    """Return a copy of a JSON value."""
    kind = cast("Any", type(value))
    if value is None or kind in (str, bool, int) or (kind is float and math.isfinite(value)):
        return value
    try:
        if kind is list:
            return [_copied(one, where) for one in value]
        if kind is dict:
            if wrong := [key for key in value if type(key) is not str]:
                raise InputError(f"{where} has the key {shown(wrong[0])}: keys must be text, as in JSON")
            return {key: _copied(one, where) for key, one in value.items()}
    except RecursionError:
        raise InputError(f"{where} is nested too deeply, or contains itself: use JSON values") from None
    raise InputError(f"{where} has {shown(value)} of type {kind.__name__}, which is not a JSON value")
