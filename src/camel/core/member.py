"""A member of a society: a name that the others can address, a role, and a brief.

The one decision to know: names are part of the protocol. Messages are shown behind their speakers' names and names
decide turns, so a name is one line of letters, digits and spaces, and no two names of members read alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling
from camel.core.task import MAX_ROLE_CHARS, MAX_TASK_CHARS, checked_text

MAX_NAME_CHARS = 60
_NAME = re.compile(rf"[^\W_][\w .'’-]{{0,{MAX_NAME_CHARS - 1}}}")
_BETWEEN = re.compile(r"[\W_]+")
_RUN = re.compile(r"[\w .'’-]+")
_WORD_END = re.compile(r"(?<=\w)(?!\w)")


class Member(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A declared participant; its model is assigned when the society is played."""

    name: str
    """What the others call it."""
    role: str = ""
    """Its role, e.g. `Judge`. Default: its name."""
    brief: str = ""
    """What it knows, wants and watches over; fills `<BRIEF>` in the society's prompt."""
    prompt: str = ""
    """A system prompt that replaces the society's."""
    sampling: Sampling | None = None
    history: HistoryPolicy | None = None
    """What happens to its older turns when its prompt no longer fits. Default: the society's setting."""
    tools: Any = ()
    """What it may call before it speaks: a list of names, in Python also of functions and tools."""

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name != name.strip():
            raise InputError(
                f"a member's name must be up to {MAX_NAME_CHARS} letters, digits, spaces, hyphens, dots and apostrophes, "
                f"not {shown(name)}"
            )
        tools: Any = self.tools
        if type(tools) in (str, int, float, bool, dict):
            raise InputError(f"the tools of {name} must be a list, not {shown(tools)}")
        for field, limit in (("role", MAX_ROLE_CHARS), ("brief", MAX_TASK_CHARS), ("prompt", MAX_TASK_CHARS)):
            text: Any = getattr(self, field)
            if not isinstance(text, str) or text:
                checked_text(f"the {field} of {name}", text, limit)

    @property
    def title(self) -> str:
        """The member's role, or its name if it has no role."""
        return self.role or self.name


class NamesMembers(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base class of declarations about members: who speaks next, who hears whom. Every text in a field is a member's name."""

    def mentioned(self) -> list[str]:
        """Return the members named in the declaration."""
        return [*_texts_in(msgspec.structs.astuple(self))]


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in cast("Sequence[Any]", value) if isinstance(value, tuple | list) else ():
        yield from _texts_in(one)


class Names(Mapping[str, str]):
    """Maps names in any spelling to the members of a society: `@stock_trader` is `Stock Trader`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        for name in names:
            if other := self._names.get(key := as_key(name)):
                raise InputError(
                    f"the members' names {other!r} and {name!r} differ only in case, spaces or punctuation. Rename one"
                )
            self._names[key] = name
        self.longest = max(map(len, self._names.values()), default=0)
        self._starts = {key[:2] for key in self._names}

    def __getitem__(self, name: str) -> str:
        return self._names[as_key(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names.values())

    def __len__(self) -> int:
        return len(self._names)

    def check(self, where: str, names: Iterable[str]) -> None:
        """Raise an `InputError` unless each of `names` is exactly a member's name."""
        known = set(self._names.values())
        for name in names:
            if name not in known:
                listed = ", ".join([*self][:20]) + (", …" if len(self) > 20 else "")
                raise InputError(
                    f"[{where}] refers to {shown(name)}, which does not exist{similar(name, self)}. Use one of {listed}"
                )

    def at(self, text: str, place: int) -> tuple[str, int] | None:
        """Return the member whose name begins at position `place` of a text, and the position where the name ends. If several
        names match, the longest wins."""
        start = as_key(text[place : place + 8])[:2]
        if start not in self._starts and start[:1] not in self._starts:
            return None  # fast path for nearly all calls
        run = _RUN.match(text, place, place + self.longest + 8)
        if run is None:
            return None
        ends = [end.start() for end in _WORD_END.finditer(run[0])]
        # If the run was cut off inside a word, its last end does not count.
        for end in reversed(ends):
            at = place + end
            if at < len(text) and (text[at].isalnum() or text[at] == "_"):
                continue
            if name := self._names.get(as_key(text[place:at])):
                return name, at
        return None


def as_key(name: str) -> str:
    """Return a name in a form for comparison, without differences of case, spaces and hyphens."""
    return _BETWEEN.sub("", name).casefold()
