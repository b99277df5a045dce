"""Finds tools by name: `python`, `mcp:SERVER`, `mcp:SERVER.TOOL`, `module:function`.

The one decision to know: nothing is available unless it is named. Patterns in `allow` also apply to tools that the user
named, and a call that matches none of them is refused when it is made.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, cast

from msgspec.structs import replace

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.message import Action
from camel.core.tools import FunctionTool, Tool, ToolFailed, Workplace, checked_name
from camel.tools.settings import (
    Rule,
    ServerSettings,
    ToolSettings,
    check_name,
    rules_for,
    server_of,
)


class RestrictedTool(Tool):
    """A tool whose arguments must match patterns."""

    def __init__(self, inner: Tool, rules: Sequence[Rule]) -> None:
        self.inner, self.rules = inner, rules
        self.name, self.description, self.parameters = inner.name, inner.description, inner.parameters
        self.read_only, self.idempotent, self.seconds = inner.read_only, inner.idempotent, inner.seconds
        self.version = inner.version

    async def call(self, arguments: dict[str, Any], place: Workplace) -> Any:
        """Call the tool if the arguments match a rule."""
        if not any(rule.fits(arguments) for rule in self.rules):
            allowed = " or ".join(
                ", ".join(f"{name} like {pattern!r}" for name, pattern in rule.patterns.items())
                for rule in self.rules
            )
            raise ToolFailed(f"the user does not allow these arguments. Allowed: {allowed}")
        return await self.inner.call(arguments, place)

    async def recall(self, arguments: dict[str, Any], action: Action, place: Workplace) -> None:
        """Restore the state of the tool."""
        await self.inner.recall(arguments, action, place)

    async def release(self, place: Workplace) -> None:
        """Free what the tool keeps."""
        await self.inner.release(place)


def find_tools(names: Sequence[str], settings: ToolSettings) -> list[Tool]:
    """Return the tools of all names. A server is started to learn its tools."""
    found: dict[str, Tool] = {}
    for given in names:
        name, settings = with_command(given, settings)
        for one, full in _find(check_name(name), settings):
            if one.name in found:
                raise InputError(
                    f"{name} has a tool called {shown(one.name)}, and so has another entry of {', '.join(names)}: remove one"
                )
            rules = rules_for(full, settings)
            limited = rules and all(rule.patterns for rule in rules)
            found[one.name] = RestrictedTool(one, rules) if rules and limited else one
    return list(found.values())


def resolve(name: str) -> Sequence[Tool]:
    """Return the tools of one name, without settings. A server is `mcp:NAME=COMMAND` or `mcp:NAME=URL`."""
    return find_tools([name], ToolSettings())


def with_command(name: str, settings: ToolSettings) -> tuple[str, ToolSettings]:
    """Add the server of `mcp:NAME=COMMAND` or `mcp:NAME=URL` to the settings, and return its name without it."""
    bare, sign, command = name.partition("=")
    if not sign or not name.startswith("mcp:"):
        return name, settings
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(f"the command of {bare} cannot be read: {error}") from None
    url = len(words) == 1 and words[0].startswith(("http://", "https://"))
    server = ServerSettings(url=words[0]) if url else ServerSettings(command=words)
    return bare, replace(settings, servers={**settings.servers, server_of(bare): server})


def _find(name: str, settings: ToolSettings) -> Iterator[tuple[Tool, str]]:
    """Yield the tools of a name, each with its full name."""
    if name == "python":
        from camel.tools.python import PythonTool

        yield PythonTool(), name
    elif server := server_of(name):
        if server not in settings.servers:
            raise InputError(
                f"there is no MCP server {server}{similar(server, settings.servers)}. Add it to your configuration: "
                f'[tools.servers.{server}] with command = ["…"], or write mcp:{server}=COMMAND'
            )
        from camel.tools.mcp_servers import server_tools

        yield from server_tools(name, settings)
    else:
        yield from ((one, name) for one in _imported(name))


def _imported(name: str) -> Iterator[Tool]:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise InputError(
            f"the tool {name} cannot be imported ({why}). Install its package, or set PYTHONPATH to the folder of {module}"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(f"the module {module} has no {path}{similar(part, dir(found))}")
        found = getattr(found, part)
    several: list[Any] = list(cast("Any", found)) if isinstance(found, list | tuple) else [found]
    for one in several:
        if isinstance(one, Tool):
            checked_name(one.name)
            yield one
        elif callable(one) and not isinstance(one, type):
            yield FunctionTool(one)
        else:
            raise InputError(f"{name} must be a function, a Tool or a list of them, not {shown(one)}")
