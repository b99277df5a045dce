"""Who hears whom: the edges of a society's message-passing graph, declared by their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError

Listeners = Mapping[str, Sequence[str]]
"""By speaker, those who hear it."""


class _Shape(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="graph"):
    """A shape can list the listeners of every speaker, and the names that it mentions."""

    def mentioned(self) -> Sequence[str]:
        """The members that the declaration names."""
        return ()


class Everyone(_Shape, frozen=True, tag="everyone"):
    """Everyone hears everyone else."""

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Everybody but the speaker."""
        return {name: [other for other in names if other != name] for name in names}


class Ring(_Shape, frozen=True, tag="ring"):
    """Each is heard by those who come after it."""

    reach: int = 1
    """How many of them."""

    def __post_init__(self) -> None:
        if isinstance(self.reach, bool) or self.reach < 1:
            raise InputError(f"reach must be a whole number of at least 1, not {shown(self.reach)}")

    def listeners(self, names: Sequence[str]) -> Listeners:
        """The next `reach`, around the ring."""
        count = len(names)
        steps = range(1, min(self.reach, count - 1) + 1)
        return {name: [names[(at + step) % count] for step in steps] for at, name in enumerate(names)}


class Star(_Shape, frozen=True, tag="star"):
    """One in the middle hears all and is heard by all; the others do not hear each other."""

    center: str

    def mentioned(self) -> Sequence[str]:
        """The one in the middle."""
        return (self.center,)

    def listeners(self, names: Sequence[str]) -> Listeners:
        """The middle for the others, and the others for the middle."""
        others = [name for name in names if name != self.center]
        return {name: [self.center] for name in others} | {self.center: others}


class Groups(_Shape, frozen=True, tag="groups"):
    """Those who share a group hear each other; who is in two of them carries word from one to the other."""

    groups: tuple[tuple[str, ...], ...]

    def mentioned(self) -> Sequence[str]:
        """Everybody in a group."""
        return [name for group in self.groups for name in group]

    def listeners(self, names: Sequence[str]) -> Listeners:
        """The others of each group that a speaker is in, once each."""
        heard: dict[str, dict[str, None]] = {name: {} for name in names}
        for group in self.groups:
            for name in group:
                heard[name].update(dict.fromkeys(group))
        return {name: [other for other in found if other != name] for name, found in heard.items()}


class Edges(_Shape, frozen=True, tag="edges"):
    """As listed: pairs of a speaker and one who hears it."""

    edges: tuple[tuple[str, str], ...]

    def mentioned(self) -> Sequence[str]:
        """Both ends of every edge."""
        return [name for edge in self.edges for name in edge]

    def listeners(self, names: Sequence[str]) -> Listeners:
        """Those at the other end, once each."""
        heard: dict[str, dict[str, None]] = {name: {} for name in names}
        for speaker, listener in self.edges:
            heard[speaker][listener] = None
        return {name: [other for other in found if other != name] for name, found in heard.items()}


Graph = Everyone | Ring | Star | Groups | Edges
