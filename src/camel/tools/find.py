"""Finds tools by name: `python`, `mcp:SERVER`, `mcp:SERVER.TOOL`, `module:function`.

The one decision to know: nothing is available unless it is named. Patterns in `allow` also apply to tools that the user
named, and a call that matches none of them is refused when it is made.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import InputError, MissingExtra
from camel.core.plugins import import_named
from camel.core.tools import FunctionTool, Tool, ToolFailed, Workplace, checked_name
from camel.tools.settings import Rule, ServerSettings, ToolSettings, check_declared, rules_for, server_of


def find_tools(names: Sequence[str], settings: ToolSettings) -> list[Tool]:
    """Return the tools of all names. A server is started to learn its tools."""
    found: dict[str, Tool] = {}
    for given in names:
        name, settings = with_command(given, settings)
        check_declared(name, "", settings.servers)
        for one, full in _find(name, settings):
            if one.name in found and server_of(name):
                one.name = f"{server_of(name)}_{one.name}"[:64]
            if one.name in found:
                raise InputError(f"there are two tools called {one.name} in {', '.join(names)}: remove one")
            found[one.name] = _restricted(one, rules_for(full, settings))
    return list(found.values())


def resolve(name: str) -> Sequence[Tool]:
    """Return the tools of one name, without settings. A server is `mcp:NAME=COMMAND` or `mcp:NAME=URL`."""
    return find_tools([name], ToolSettings())


def with_command(name: str, settings: ToolSettings) -> tuple[str, ToolSettings]:
    """Add the server of `mcp:NAME=COMMAND` or `mcp:NAME=URL` to the settings, and return its name without it."""
    bare, sign, command = name.partition("=")
    if not sign or not (server := server_of(bare)):
        return name, settings
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(f"the command of {bare} cannot be read: {error}") from None
    url = len(words) == 1 and words[0].startswith(("http://", "https://"))
    found = ServerSettings(url=words[0]) if url else ServerSettings(command=words)
    if settings.servers.get(server, found) != found:
        raise InputError(f"there are two MCP servers called {server}: rename one")
    return bare, replace(settings, servers={**settings.servers, server: found})


def _restricted(tool: Tool, rules: Sequence[Rule]) -> Tool:
    """Return a tool that refuses calls that match no rule."""
    if not all(rule.patterns for rule in rules) or not rules:
        return tool
    tool = copy.copy(tool)
    execute = tool.call
    patterns = (", ".join(f"{name} like {one!r}" for name, one in rule.patterns.items()) for rule in rules)
    allowed = " or ".join(patterns)

    async def call(arguments: dict[str, Any], place: Workplace) -> Any:
        if not any(rule.fits(arguments) for rule in rules):
            raise ToolFailed(f"the user does not allow these arguments. Allowed: {allowed}")
        return await execute(arguments, place)

    tool.call = call
    return tool


def _find(name: str, settings: ToolSettings) -> Iterator[tuple[Tool, str]]:
    """Yield the tools of a name, each with its full name."""
    if name == "python":
        from camel.tools.python import PythonTool

        yield PythonTool(), name
    elif server_of(name):
        try:
            from camel.tools.mcp_servers import server_tools
        except ImportError as error:
            raise MissingExtra(f"An MCP server ({error.name})", "tools") from None
        yield from server_tools(name, settings)
    else:
        yield from ((one, name) for one in _imported(name))


def _imported(name: str) -> Iterator[Tool]:
    found: Any = import_named(name)
    for one in cast("Sequence[Any]", found) if isinstance(found, list | tuple) else (found,):
        if isinstance(one, Tool):
            checked_name(one.name)
        elif not callable(one) or isinstance(one, type):
            raise InputError(f"{name} must be a function, a Tool or a list of them, not {shown(one)}")
        yield one if isinstance(one, Tool) else FunctionTool(one)
