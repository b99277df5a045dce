"""Who hears whom: the edges of a society's message-passing graph, declared by their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from camel.core.checks import at_least

Listeners = Mapping[str, Sequence[str]]
"""The listeners of each speaker."""


class _Shape(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="graph"):
    """Base class of graphs that declare who hears whom."""

    def mentioned(self) -> Sequence[str]:
        """Return the members named in the declaration."""
        return ()


class Everyone(_Shape, frozen=True, tag="everyone"):
    """Everyone hears everyone else."""

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Return everyone except the speaker."""
        return {name: [other for other in names if other != name] for name in names}


class Ring(_Shape, frozen=True, tag="ring"):
    """Each member is heard by the next members in the ring."""

    reach: int = 1
    """Number of next members that hear each speaker."""

    def __post_init__(self) -> None:
        at_least(1, reach=self.reach)

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Return the next `reach` members around the ring."""
        count = len(names)
        steps = range(1, min(self.reach, count - 1) + 1)
        return {name: [names[(at + step) % count] for step in steps] for at, name in enumerate(names)}


class Star(_Shape, frozen=True, tag="star"):
    """The center hears everyone, and everyone hears the center. The others do not hear each other."""

    center: str

    def mentioned(self) -> Sequence[str]:
        """Return the center."""
        return (self.center,)

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Return the listeners of each member: all others hear the center, and the center hears each of them."""
        others = [name for name in names if name != self.center]
        return {name: [self.center] for name in others} | {self.center: others}


class Groups(_Shape, frozen=True, tag="groups"):
    """Members of the same group hear each other. A member may be in several groups."""

    groups: tuple[tuple[str, ...], ...]

    def mentioned(self) -> Sequence[str]:
        """Return everyone who is in a group."""
        return [name for group in self.groups for name in group]

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Return the other members of the speaker's groups, each once."""
        heard: dict[str, dict[str, None]] = {name: {} for name in names}
        for group in self.groups:
            for name in group:
                heard[name].update(dict.fromkeys(group))
        return {name: [other for other in found if other != name] for name, found in heard.items()}


class Edges(_Shape, frozen=True, tag="edges"):
    """An explicit list of pairs (speaker, listener)."""

    edges: tuple[tuple[str, str], ...]

    def mentioned(self) -> Sequence[str]:
        """Return all members that are named in an edge."""
        return [name for edge in self.edges for name in edge]

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Return the listeners of each speaker, each once."""
        heard: dict[str, dict[str, None]] = {name: {} for name in names}
        for speaker, listener in self.edges:
            heard[speaker][listener] = None
        return {name: [other for other in found if other != name] for name, found in heard.items()}


Graph = Everyone | Ring | Star | Groups | Edges
