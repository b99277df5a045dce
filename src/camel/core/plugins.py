"""Plug-ins: parts of other installed packages, found by entry points and loaded at first use.

The one decision to know: names are read from the packages' metadata and nothing is imported before its first use, so a
broken plug-in breaks only what uses it, with an error that names its package. Built-in parts cannot be replaced: a
plug-in with the name of a built-in part is ignored, and `camel doctor` reports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from camel.core.checks import shown, similar
from camel.core.errors import InputError

Group = Literal["scenarios", "detectors", "stop_rules", "critics", "exporters", "models"]
"""Kinds of objects that a plug-in can add. The entry point group is `camel.` plus this name."""

T = TypeVar("T")


class PluginFailed(InputError):
    """A plug-in could not be loaded, or is not what its group asks for."""


class Plugin(NamedTuple):
    """An object that an installed package offers, such as a scenario or a stop rule."""

    group: str
    name: str
    package: str
    """The distribution and its version, for bug reports."""
    where: str
    """`module:attribute`."""

    def load(self) -> Any:
        """Import the object; any failure becomes a one-line error that names the package."""
        from importlib.metadata import EntryPoint

        with self.guard(f"cannot be loaded from {self.where}"):
            return EntryPoint(self.name, self.where, f"camel.{self.group}").load()

    @contextmanager
    def guard(self, problem: str, passes: type[Exception] | tuple[()] = ()) -> Generator[None]:
        """Raise errors of the plug-in's code as errors that name the plug-in, except those of the class `passes`."""
        try:
            yield
        except passes:
            raise
        except Exception as error:
            raise self.failed(f"{problem} ({type(error).__name__}: {error})") from error

    def failed(self, why: str) -> PluginFailed:
        """Return an error about this plug-in."""
        line = " ".join(why.split())
        said = f"the plug-in {shown(self.name)} (camel.{self.group}, from {self.package}) {line[:300]}"
        return PluginFailed(f"{said}. Upgrade the package, or remove it with `pip uninstall {self.bare}`")

    @property
    def bare(self) -> str:
        """The distribution's name without its version."""
        return self.package.split(" ")[0]


def import_named(where: str) -> Any:
    """Import `module:name`, also from the current folder. Raise an `InputError` for any failure."""
    module, _, path = where.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise InputError(
            f"cannot import {shown(where)} ({why}). Give it as module:name, from an installed package or the current folder"
        ) from error
    return found


@cache
def offered(group: Group) -> dict[str, tuple[Plugin, ...]]:
    """Return what installed packages offer in a group, by name. Only reads the packages' metadata, and only once."""
    from importlib.metadata import entry_points

    found: dict[str, list[Plugin]] = {}
    for entry in entry_points(group=f"camel.{group}"):
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
        plugin = Plugin(group, entry.name, package, entry.value)
        # A package that is on the path twice counts once.
        if plugin not in found.setdefault(entry.name, []):
            found[entry.name].append(plugin)
    return {name: tuple(several) for name, several in sorted(found.items())}


class Registry(MutableMapping[str, T], Generic[T]):
    """The objects of one kind by name: built-in ones first, then those of plug-ins, which are loaded at first use."""

    reserved: frozenset[str] = frozenset()
    """Names that no plug-in can use."""

    def __init__(
        self, group: Group, own: dict[str, T], check: Callable[[Plugin, Any], T], *, kind: str
    ) -> None:
        """`check` converts a plug-in's object, or raises `plugin.failed(why)`. `kind` is what errors call such an object."""
        self.group: Group = group
        self.kind = kind
        self._own, self._check = own, check
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name in self._own:
            return self._own[name]
        if name not in self._loaded:
            several = offered(self.group).get(name)
            if not several:
                raise KeyError(name)
            plugin = several[0]
            if len(several) > 1:
                packages = " and ".join(one.package for one in several)
                raise PluginFailed(
                    f"the packages {packages} both provide the {self.kind} {shown(name)}. Remove one of them with `pip uninstall`"
                )
            self._loaded[name] = self._check(plugin, plugin.load())
        return self._loaded[name]

    def __setitem__(self, name: str, part: T) -> None:
        """Add or replace an object, for this process only."""
        if name in self.reserved:
            raise InputError(f"the {self.kind} name {shown(name)} is reserved: choose another name")
        self._own[name] = part

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __contains__(self, name: object) -> bool:
        """Return whether there is an object of that name, even if it cannot be loaded."""
        return name in self._own or (name in offered(self.group) and name not in self.reserved)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in offered(self.group) if name not in self.own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def own(self) -> set[str]:
        """The names of built-in objects, and reserved names."""
        return {*self._own, *self.reserved}

    def find(self, name: str) -> T:
        """Return the object of that name, or raise an `InputError` that lists the names."""
        if name not in self:
            there = f"Use one of {', '.join(self)}" if len(self) else "No installed plug-in provides one"
            raise InputError(f"there is no {self.kind} {shown(name)}{similar(name, self)}. {there}")
        return self[name]


def taken(group: Group, own: set[str]) -> list[Plugin]:
    """Return plug-ins that are ignored because a built-in object has the same name."""
    return [plugin for name, several in offered(group).items() if name in own for plugin in several]
