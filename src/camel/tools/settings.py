"""Settings of tools: servers, limits, and what the user allows.

    [tools]
    allow = ["python", "mcp:time", 'mcp:files.read_file(path="/data/*")']
    [tools.servers.files]
    command = ["mcp-server-files", "/data"]
    environment = ["FILES_TOKEN"]

The one decision to know: secrets are named, never written. A server gets the values of the named variables, and results do
not contain them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from string import Template
from typing import Any, NamedTuple

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.tools import ToolForm, ToolLimits

_SERVER = re.compile(r"[A-Za-z0-9_-]{1,32}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"python|mcp:[A-Za-z0-9_-]{1,32}(?:\.[^\s()=]{1,128})?|\w+(?:\.\w+)*:\w+(?:\.\w+)*")
_ENTRY = re.compile(r"([^()\s]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_PATTERN = re.compile(r'\s*([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*")\s*(?:,|$)')
_SHORT = 4
"""A value with fewer characters is no secret, and replacing it would damage results."""


class ServerSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An MCP server: a command to start, or a URL."""

    command: tuple[str, ...] = ()
    url: str = ""
    environment: tuple[str, ...] = ()
    """Names of environment variables that the started server gets."""
    headers: dict[str, str] = {}
    """HTTP headers. `$NAME` stands for the value of an environment variable."""
    trust: bool = False
    """Whether the server's own word counts for which tools are read-only or may be repeated."""
    seconds: float = 60.0
    """Maximum duration of a call."""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise InputError('a server needs either command = ["…"] or url = "https://…"')
        if self.url and not re.match(r"https?://[^\s/]", self.url):
            raise InputError(
                f"the url of a server must start with https:// or http://, not {shown(self.url)}"
            )
        if self.command and self.headers:
            raise InputError("headers are for servers with a url: use environment for a command")
        if self.url and self.environment:
            raise InputError("environment is for servers with a command: use headers for a url")
        if self.command and (not self.command[0] or any("\0" in word for word in self.command)):
            raise InputError(f"this is not a command: {shown(self.command)}")
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise InputError(
                    f"environment must list names of variables, not {shown(name)}: set the value in your shell"
                )
        for name, value in self.headers.items():
            if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not Template(value).is_valid() or "\n" in value:
                raise InputError(f"this is not a header with $VARIABLES: {shown(f'{name}: {value}')}")
        if not 0 < self.seconds <= 86_400:
            raise InputError(
                f"the seconds of a server must be above 0 and at most 86400, not {shown(self.seconds)}"
            )

    @property
    def variables(self) -> list[str]:
        """The names of the environment variables that the server gets."""
        headers = (Template(value).get_identifiers() for value in self.headers.values())
        return list(dict.fromkeys([*self.environment, *(name for names in headers for name in names)]))

    def values(self) -> dict[str, str]:
        """Return the values of `variables`. Raise an `InputError` if one is not set."""
        if missing := [name for name in self.variables if name not in os.environ]:
            raise InputError(f"the environment variable {missing[0]} is not set: export {missing[0]}=…")
        return {name: os.environ[name] for name in self.variables}


class ToolSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The table `[tools]` of a configuration."""

    allow: tuple[str, ...] = ()
    """Tools and servers that a scenario may use: `python`, `mcp:SERVER`, `mcp:SERVER.TOOL`, `module:function`, each with
    optional patterns for arguments, such as `mcp:files.read_file(path="/data/*")`."""
    servers: dict[str, ServerSettings] = {}
    form: ToolForm = "native"
    limits: ToolLimits = ToolLimits()

    def __post_init__(self) -> None:
        for name in self.servers:
            if not _SERVER.fullmatch(name):
                raise InputError(
                    f"the name of a server must be up to 32 letters, digits, hyphens and underscores, not {shown(name)}"
                )
        self.rules()

    def rules(self) -> list[Rule]:
        """Return what `allow` contains."""
        return [_read_rule(entry) for entry in self.allow]


class Rule(NamedTuple):
    """An entry of `allow`."""

    name: str
    patterns: Mapping[str, str]

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the arguments of a call match all patterns."""
        return all(_matches(arguments.get(name, ""), pattern) for name, pattern in self.patterns.items())


def check_name(name: str) -> str:
    """Return the name of a tool or server. Raise an `InputError` if it is not one."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{shown(name)} is not the name of a tool: use python, mcp:SERVER, mcp:SERVER.TOOL or module:function"
        )
    return name


def check_allowed(named: Iterable[str], settings: ToolSettings) -> None:
    """Raise an `InputError` unless `allow` covers every tool and server in `named`."""
    missing = [name for name in dict.fromkeys(map(check_name, named)) if rules_for(name, settings) is None]
    if not missing:
        return
    line = json.dumps([*settings.allow, *missing], ensure_ascii=False)
    starts = "".join(
        f". mcp:{name} starts the command {shown(shlex.join(server.command))} on this computer"
        for name, server in settings.servers.items()
        if server.command and any(server_of(one) == name for one in missing)
    )
    raise InputError(
        f"the scenario uses {', '.join(missing)}, which you have not allowed{starts}. "
        f"If you trust it, add this line to [tools] of your configuration: allow = {line}"
    )


def rules_for(name: str, settings: ToolSettings) -> list[Rule] | None:
    """Return the rules for a tool or a server, or None if there are none. Rules for a server apply to all of its tools."""
    server = server_of(name)
    found = [
        rule
        for rule in settings.rules()
        if rule.name in (name, f"mcp:{server}") or (name == f"mcp:{server}" == f"mcp:{server_of(rule.name)}")
    ]
    return found or None


def server_of(name: str) -> str:
    """Return the server in `mcp:SERVER` or `mcp:SERVER.TOOL`. Empty for other names."""
    return name[4:].partition(".")[0] if name.startswith("mcp:") else ""


def secret_values(settings: ToolSettings, servers: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the values of the environment variables that servers get, for `Workplace.secrets`. Default: all servers."""
    values = (
        value
        for name, server in settings.servers.items()
        if servers is None or name in servers
        for value in server.values().values()
    )
    # Longest first, because one secret may contain another. JSON writes some characters in another way.
    forms = {form for value in values for form in (value, json.dumps(value)[1:-1]) if len(value) >= _SHORT}
    return tuple(sorted(forms, key=len, reverse=True))


def _read_rule(entry: str) -> Rule:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise InputError(
            f'this entry of allow cannot be read: {shown(entry)}. Write name(argument="pattern")'
        )
    return Rule(check_name(found[1]), dict(_patterns(entry, found[2] or "")))


def _patterns(entry: str, text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while text[place:].strip():
        found = _PATTERN.match(text, place)
        try:
            pattern = json.loads(found[2]) if found else ""
        except ValueError:
            found = None
        if found is None:
            raise InputError(
                f'the patterns of this entry of allow cannot be read: {shown(entry)}. Write name(argument="pattern")'
            )
        yield found[1], pattern  # pyright: ignore[reportPossiblyUnboundVariable]
        place = found.end()


def _matches(value: Any, pattern: str) -> bool:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    # `*` also matches slashes, so "/data/../etc" would match "/data/*".
    climbs = ".." in re.split(r"[/\\]", text) and ".." not in pattern
    return not climbs and fnmatchcase(text, pattern)
