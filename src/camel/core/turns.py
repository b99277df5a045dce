"""Turn policies: who speaks next.

The one decision to know: a policy is a pure function of the messages, so a replayed conversation takes the same turns.
A message names the next speaker where it *addresses* them (`Next: Ada`, `@Ada`, or `Ada, …` at the beginning of a
sentence); a name in a quotation or in code is only mentioned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from camel.core.conversation import Turns, round_robin
from camel.core.errors import InputError
from camel.core.grammar import mentions
from camel.core.member import Names, NamesMembers
from camel.core.message import Message


class _Policy(NamesMembers, frozen=True, tag_field="policy"):
    """Base class of policies that decide who speaks next."""

    sentence: ClassVar[str] = ""
    """What a member's prompt says about turns."""

    def round(self, members: int) -> int:
        """Return the number of messages in a round."""
        return members

    def together(self, members: int) -> int:
        """Return the maximum number of members that speak at the same time."""
        return 1

    def procedure(self, name: str) -> str:
        """Return the sentence about turns in a member's prompt."""
        return self.sentence


class RoundRobin(_Policy, frozen=True, tag="round_robin"):
    """All members speak in turn."""

    order: tuple[str, ...] = ()
    """The order of speakers. Default: the order of members. A member that is listed twice speaks twice in a round."""
    sentence = "The members speak one after the other, in a fixed order."

    def round(self, members: int) -> int:
        """Return the length of the order."""
        return len(self.order) or members

    def turns(self, names: Sequence[str]) -> Turns:
        """Return turns that depend on the number of messages."""
        return round_robin(self.order or names)


class Addressed(_Policy, frozen=True, tag="addressed"):
    """The member that the last message addresses speaks next. If it addresses no member, the next on the list speaks."""

    first: str = ""
    """The first speaker. Default: the first member."""
    sentence = 'Whoever you address speaks next: end your message with a line "Next: Name", or "@Name".'

    def mentioned(self) -> list[str]:
        """Return the first speaker, if one is declared."""
        return [self.first] if self.first else []

    def turns(self, names: Sequence[str]) -> Turns:
        """Return turns that depend on the text of the last message."""
        known, after = Names(names), dict(zip(names, [*names[1:], names[0]], strict=True))

        def turns(messages: Sequence[Message]) -> str:
            if not messages:
                return self.first or names[0]
            last = messages[-1]
            return addressed(last.content, known, not_to=(last.speaker,)) or after[last.speaker]

        return turns


class Moderated(_Policy, frozen=True, tag="moderated"):
    """A moderator speaks first and after every other member, and names the next speaker."""

    moderator: str

    def round(self, members: int) -> int:
        """Return the number of messages that the moderator needs to call every member once."""
        return 2 * (members - 1)

    def procedure(self, name: str) -> str:
        """Return how to call a member, for the moderator, or who moderates, for the others."""
        if name == self.moderator:
            return (
                "You moderate. You speak after every member, and your message decides who speaks next: end it with a "
                'line "Next: Name". Call everybody who has something to add, not always the same few.'
            )
        return (
            f"{self.moderator} moderates and calls who speaks next. Speak to the point you were called for."
        )

    def turns(self, names: Sequence[str]) -> Turns:
        """Return turns that alternate between the moderator and the member it calls, by default the next on the list."""
        others = [name for name in names if name != self.moderator]
        known, after = Names(others), dict(zip(others, [*others[1:], *others[:1]], strict=True))

        def turns(messages: Sequence[Message]) -> str:
            if not messages or messages[-1].speaker != self.moderator:
                return self.moderator
            if called := addressed(messages[-1].content, known):
                return called
            before = next((m.speaker for m in reversed(messages) if m.speaker != self.moderator), others[-1])
            return after[before]

        return turns


class Rounds(_Policy, frozen=True, tag="rounds"):
    """The members of a group speak at the same time and hear each other afterwards."""

    groups: tuple[tuple[str, ...], ...] = ()
    """The groups in order. Default: one group with all members."""
    sentence = "Members speak in rounds, several at the same time: you hear what they said when your next turn comes."

    def __post_init__(self) -> None:
        for group in self.groups:
            if not group or len(set(group)) < len(group):
                raise InputError("a group of [turns] is empty or contains a member twice: correct it")

    def round(self, members: int) -> int:
        """Return the number of messages in one pass through the groups."""
        return sum(map(len, self.groups)) or members

    def together(self, members: int) -> int:
        """Return the largest number of members that speak at the same time."""
        return max(map(len, self.groups), default=members)

    def turns(self, names: Sequence[str]) -> Turns:
        """Return turns in which the members of the current group that have not spoken yet come next, at the same time."""
        groups = self.groups or (tuple(names),)
        place = [(group, at) for group in groups for at in range(len(group))]

        def turns(messages: Sequence[Message]) -> Sequence[str]:
            group, spoken = place[len(messages) % len(place)]
            return group[spoken:]

        return turns


Policy = RoundRobin | Addressed | Moderated | Rounds


# --- which member a text addresses -------------------------------------------------------------------------------------------

_NEXT = re.compile(
    r"(?:^|(?<=[.!?…] ))[ \t*_#-]*next(?: speaker)?[ \t*_]*[:：][ \t*_@]*", re.IGNORECASE | re.MULTILINE
)
_AT = re.compile(r"(?<![\w@.])@")
_SIGNS = re.compile(r"[,?]")
_STARTS = ("\n", ". ", "! ", "? ", "… ")
"""Characters after which a sentence begins."""


def addressed(text: str, names: Names, not_to: Sequence[str] = ()) -> str | None:
    """Return the member that a text addresses, or None. A line `Next: Ada` comes before `@Ada`, and that before `Ada, …`."""
    is_mentioned = mentions(text)
    lines = _NEXT.finditer(text) if "ext" in text or "EXT" in text else ()
    handles = _AT.finditer(text) if "@" in text else ()
    for called in (_behind(lines, text, names), _behind(handles, text, names), _by_call(text, names)):
        for at, name in reversed(list(called)):
            if name not in not_to and not is_mentioned(at):
                return name
    return None


def _behind(signs: Iterable[re.Match[str]], text: str, names: Names) -> Iterator[tuple[int, str]]:
    """Yield the members that are named behind a sign such as `Next:` or `@`, each with its position."""
    for sign in signs:
        if found := names.at(text, sign.end()):
            yield sign.end(), found[0]


def _by_call(text: str, names: Names) -> Iterator[tuple[int, str]]:
    """Yield the members that a sentence calls, as in `Ada, what …` and `What do you think, Ada?`, each with its position."""
    for sign in _SIGNS.finditer(text):
        at = sign.start()
        floor = max(0, at - names.longest - 8)
        marks = _STARTS if sign[0] == "," else (", ",)
        starts = [end + len(mark) for mark in marks if (end := text.rfind(mark, floor, at)) >= 0]
        # Without the start of a sentence nearby, the name is in the middle of one.
        if (starts or (floor == 0 and sign[0] == ",")) and (
            name := names.get(text[max(starts, default=0) : at])
        ):
            yield at, name
