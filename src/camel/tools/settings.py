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
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from string import Template
from typing import Any, NamedTuple

import msgspec

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.tools import ToolForm, ToolLimits
from camel.core.world import ALL, bound_tools

_NAME = re.compile(r"python|mcp:[\w-]{1,32}(?:\.[^\s()=]{1,128})?|\w+(?:\.\w+)*:\w+(?:\.\w+)*", re.ASCII)
_ENTRY = re.compile(r'([^()\s]+)(?:\(((?:\s*[\w.-]+\s*=\s*"(?:[^"\\]|\\.)*"\s*(?:,|(?=\))))+)\))?')
_PATTERN = re.compile(r'([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*")')


class ServerSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An MCP server: a command to start, or a URL."""

    command: tuple[str, ...] = ()
    url: str = ""
    environment: tuple[str, ...] = ()  # names of variables that a started server gets
    headers: dict[str, str] = {}  # with $NAME for the value of an environment variable
    trust: bool = False  # whether the server decides which of its tools are read-only or may be repeated
    seconds: float = 60.0  # maximum duration of a call

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url) or (self.url and not re.match(r"https?://[^\s/]", self.url)):
            raise InputError('a server needs either command = ["…"] or url = "https://…"')
        if self.headers if self.command else self.environment:
            raise InputError("environment is for a server with a command, headers are for one with a url")
        if wrong := [name for name in self.environment if not re.fullmatch(r"[A-Za-z_]\w*", name)]:
            raise InputError(
                f"environment lists names of variables, not {shown(wrong[0])}: set the value in your shell"
            )
        if wrong := [text for text in self.headers.values() if not Template(text).is_valid() or "\n" in text]:
            raise InputError(f"this is not a header with $VARIABLES: {shown(wrong[0])}")
        if not 0 < self.seconds <= 86_400:
            raise InputError(f"the seconds of a server must be from 0 to 86400, not {shown(self.seconds)}")

    def values(self) -> dict[str, str]:
        """Return the environment variables that the server gets. Raise an `InputError` if one is not set."""
        used = {name for text in self.headers.values() for name in Template(text).get_identifiers()}
        for name in used.union(self.environment):
            if name not in os.environ:
                raise InputError(
                    f"the environment variable {name}, which a server needs, is not set: export {name}=…"
                )
        return {name: os.environ[name] for name in used.union(self.environment)}


class ToolSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The table `[tools]` of a configuration."""

    allow: tuple[str, ...] = ()
    """Tools and servers that a scenario may use: `python`, `mcp:SERVER`, `mcp:SERVER.TOOL`, `module:function`, each with
    optional patterns for arguments, such as `mcp:files.read_file(path="/data/*")`."""
    servers: dict[str, ServerSettings] = {}
    form: ToolForm = "native"
    limits: ToolLimits = ToolLimits()

    def __post_init__(self) -> None:
        if dots := [name for name in self.servers if "." in check_name(f"mcp:{name}")]:
            raise InputError(f"the name of a server must not contain a dot: {shown(dots[0])}")
        self.rules()

    def rules(self) -> list[Rule]:
        """Return what `allow` contains."""
        rules: list[Rule] = []
        for entry in self.allow:
            if not (found := _ENTRY.fullmatch(entry)):
                raise InputError(
                    f'cannot read {shown(entry)} in allow: write NAME or NAME(argument="pattern")'
                )
            patterns = {one[1]: json.loads(one[2]) for one in _PATTERN.finditer(found[2] or "")}
            rules.append(Rule(check_name(found[1]), patterns))
        return rules


class Rule(NamedTuple):
    """An entry of `allow`."""

    name: str
    patterns: Mapping[str, str]

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the arguments of a call match all patterns."""
        return all(_matches(arguments.get(name, ""), pattern) for name, pattern in self.patterns.items())


def check_name(name: str) -> str:
    """Return the name of a tool or server. Raise an `InputError` if it is not one."""
    if name == ALL:
        raise InputError('world means all tools of a world: declare world = "module:Class", and allow it')
    if not _NAME.fullmatch(name):
        kinds = "python, mcp:SERVER, mcp:SERVER.TOOL, module:function, and module:Class for a world"
        suggestion = similar(name, ["python"])
        raise InputError(f"{shown(name)} is not the name of a tool{suggestion}. Names are {kinds}")
    return name


def check_declared(name: str, world: str, servers: Iterable[str]) -> None:
    """Raise an `InputError` if a speaker's tool has a wrong name, or an unknown server. Nothing is imported or started."""
    server = "" if world and ":" not in name else server_of(check_name(name))
    if server and server not in servers:
        raise InputError(
            f"there is no MCP server {server}{similar(server, servers)}. In a scenario or configuration, declare "
            f'[tools.servers.{server}] with command = ["…"] or url = "https://…". Elsewhere, write {name}=COMMAND or {name}=URL'
        )


def check_tools(names: Iterable[str], world: str, settings: ToolSettings, *, option: bool = False) -> None:
    """Raise an `InputError` unless names are right and `allow` covers them and the world, which is imported only after that."""
    named = list(dict.fromkeys(names))
    for name in named:
        check_declared(name, world, settings.servers)
    outside = [name for name in named if name == "python" or ":" in name]
    check_allowed([*filter(None, [world]), *outside], settings, option=option)
    bound_tools(named, world)


def check_allowed(named: Iterable[str], settings: ToolSettings, *, option: bool = False) -> None:
    """Raise an `InputError` unless `allow` covers every tool and server in `named`. `option` is whether it is `--allow`."""
    rules = {name: rules_for(check_name(name), settings) for name in named}
    missing = [name for name, found in rules.items() if not found]
    if not missing:
        return
    unused = {rule.name for rule in settings.rules() if not any(rule in found for found in rules.values())}
    notes = [f"{one} is allowed, but not used{hint}" for one in unused if (hint := similar(one, missing))]
    for name in dict.fromkeys(map(server_of, missing)):
        if server := settings.servers.get(name):
            starts = f"starts the command `{shlex.join(server.command)}`"
            notes.append(f"mcp:{name} {starts if server.command else f'connects to {server.url}'}")
    listed = json.dumps([*settings.allow, *missing])
    typed = " ".join(f"--allow {shlex.quote(name)}" for name in missing)
    with_option = f"add {typed} (in Python: allow={listed})"
    advice = with_option if option else f"set in [tools] of your configuration: allow = {listed}"
    parts = [f"you have not allowed {', '.join(missing)}", *notes, f"If you trust this, {advice}"]
    raise InputError(". ".join(parts))


def rules_for(name: str, settings: ToolSettings) -> list[Rule]:
    """Return the rules for a tool or a server. The rules for a tool include those for its server, and the other way round."""
    server = f"mcp:{server_of(name)}"
    return [
        rule
        for rule in settings.rules()
        if rule.name in (name, server) or (name == server and rule.name.startswith(f"{server}."))
    ]


def server_of(name: str) -> str:
    """Return the server in `mcp:SERVER` or `mcp:SERVER.TOOL`. Empty for other names."""
    return name[4:].partition(".")[0] if name.startswith("mcp:") else ""


def secret_values(settings: ToolSettings) -> tuple[str, ...]:
    """Return the values of the environment variables that servers get, for `Workplace.secrets`."""
    values = {value for server in settings.servers.values() for value in server.values().values()}
    # A very short value is no secret. Longest first, as one may contain another; JSON writes some characters differently.
    forms = {form for value in values if len(value) > 3 for form in (value, json.dumps(value)[1:-1])}
    return tuple(sorted(forms, key=len, reverse=True))


def _matches(value: Any, pattern: str) -> bool:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    # `*` also matches slashes, so "/data/../etc" would match "/data/*".
    climbs = ".." in re.split(r"[/\\]", text) and ".." not in pattern
    return not climbs and fnmatchcase(text, pattern)
