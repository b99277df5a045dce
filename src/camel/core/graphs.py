"""Who hears whom: the edges of a society's message-passing graph, declared by their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from camel.core.checks import at_least
from camel.core.member import NamesMembers

Listeners = Mapping[str, Sequence[str]]
"""The listeners of each speaker."""


class _Shape(NamesMembers, frozen=True, tag_field="graph"):
    """Base class of graphs that declare who hears whom."""


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

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Return the listeners of each member: all others hear the center, and the center hears each of them."""
        others = [name for name in names if name != self.center]
        return {name: [self.center] for name in others} | {self.center: others}


class Groups(_Shape, frozen=True, tag="groups"):
    """Members of the same group hear each other. A member may be in several groups."""

    groups: tuple[tuple[str, ...], ...]

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Return the other members of the speaker's groups, each once."""
        pairs = (pair for group in self.groups for pair in permutations(group, 2))
        return Edges(tuple(pairs)).listeners(names)


class Edges(_Shape, frozen=True, tag="edges"):
    """An explicit list of pairs (speaker, listener)."""

    edges: tuple[tuple[str, str], ...]

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Return the listeners of each speaker, each once."""
        heard: dict[str, dict[str, None]] = {name: {} for name in names}
        for speaker, listener in self.edges:
            heard[speaker][listener] = None
        return {name: [other for other in found if other != name] for name, found in heard.items()}


Graph = Everyone | Ring | Star | Groups | Edges
