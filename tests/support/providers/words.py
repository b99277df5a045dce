"""What a provider's model says: a function of the conversation alone, with a thought before it that does harm where it is heard.

Speech is the simulator's, so conversations follow the format of the role play and end. Tokens are counted by characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import msgspec

from camel.models.simulator.authors import ChatMessage, Facts, society
from tests.support.thinkers import HEARD, MARKER, THOUGHT

CHARACTERS_PER_TOKEN = 2
"""Few, so that the prompts of short conversations reach the sizes from which providers cache."""

REFUSAL = "I cannot help with that."


class Turn(NamedTuple):
    """One message of a request, whatever its wire format."""

    role: str
    text: str


@dataclass(frozen=True)
class Heard:
    """The conversation that a request holds, the system prompt first."""

    turns: tuple[Turn, ...]

    @property
    def system(self) -> str:
        return "\n".join(turn.text for turn in self.turns if turn.role in ("system", "developer"))

    @property
    def talks(self) -> bool:
        """Whether an agent is asked, not the author of a list or of a specified task."""
        return bool(self.system)

    def mentions(self, word: str) -> bool:
        return any(word in turn.text for turn in self.turns)

    def digest(self, *more: object) -> int:
        """A number that is the same for equal conversations."""
        return int.from_bytes(sha256(repr((self.turns, more)).encode()).digest()[:8])


@dataclass(frozen=True)
class Said:
    """A reply before it has a shape."""

    text: str
    thought: str = ""
    finish: str = "stop"
    """`stop`, `length` or `content_filter`; the wire formats have their own words for them."""
    speech_tokens: int = 0
    thought_tokens: int = 0


@dataclass(frozen=True)
class Count:
    """Tokens as the provider counts them."""

    prompt: int
    """All of it, cached or not."""
    completion: int
    """Thoughts included."""
    cached: int = 0
    written: int = 0
    """Of the prompt: put into the cache by this request, at a higher price."""
    thought: int = 0


def tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def prompt_tokens(turns: tuple[Turn, ...]) -> int:
    return sum(tokens(turn.text) + 4 for turn in turns)


def speak(
    heard: Heard,
    *,
    thinks: bool,
    limit: int | None,
    choice: int = 0,
    messages: int = 5,
    thought_tokens: int = 0,
) -> Said:
    """The reply to a conversation that ends after so many messages; `thought_tokens` sets how many a thought takes."""
    facts = Facts(
        system=heard.system,
        messages=[
            ChatMessage(turn.role, msgspec.Raw(msgspec.json.encode(turn.text))) for turn in heard.turns
        ],
        turns=sum(turn.role == "assistant" for turn in heard.turns),
        conversation=Heard(heard.turns[:1]).digest(),
        draw=heard.digest(choice),
        words=12,
        length=messages,
    )
    text = HEARD if heard.mentions(MARKER) else society(facts)
    thought = THOUGHT if thinks else ""
    used = (thought_tokens or tokens(thought)) if thinks else 0
    if limit is None or used + tokens(text) <= limit:
        return Said(text, thought, "stop", tokens(text), used)
    if used >= limit:  # thinking took everything
        return Said("", thought[: limit * CHARACTERS_PER_TOKEN], "length", 0, limit)
    text = text[: (limit - used) * CHARACTERS_PER_TOKEN]
    return Said(text, thought, "length", limit - used, used)


class PrefixCache:
    """The prefixes of conversations that a provider has read before."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def look(self, turns: tuple[Turn, ...], least: int, unit: int) -> int:
        """Tokens of the longest known prefix, in whole units; 0 below the least that is cached."""
        found = max(
            (
                prompt_tokens(turns[:end])
                for end in range(1, len(turns) + 1)
                if Heard(turns[:end]).digest() in self._known
            ),
            default=0,
        )
        return found // unit * unit if found >= least else 0

    def add(self, turns: tuple[Turn, ...]) -> None:
        self._known.update(Heard(turns[:end]).digest() for end in range(1, len(turns) + 1))
