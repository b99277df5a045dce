"""A stop rule: a pure function of the messages, checked before every call. Each conversation gets a new one, made without arguments."""

from collections.abc import Sequence
from dataclasses import dataclass

from camel import Message, NextCall, Stop


@dataclass(frozen=True)
class WordBudget:
    """Ends a conversation that has become long, counting all speakers."""

    words: int = 2000

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when more words than allowed have been said."""
        said = sum(len(message.content.split()) for message in messages)
        return (
            Stop("word_budget", f"{said:,} words were said, of {self.words:,}") if said > self.words else None
        )
