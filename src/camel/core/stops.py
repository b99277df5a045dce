"""Stop rules: when a conversation ends, and why.

Each rule is a small frozen object that is checked before every call. The first that returns a `Stop` ends the
conversation, and its reason and detail go into the transcript. Rules are pure functions of the messages, so a replayed
conversation stops where the original did. The constants are the paper's (section 4.1, "Termination Conditions").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise, takewhile
from math import ceil
from typing import Any, Literal, Protocol

import msgspec

from camel.core.checks import at_least, shown
from camel.core.errors import InputError
from camel.core.grammar import mentions
from camel.core.message import Message
from camel.core.plugins import Plugin, Registry

StopReason = Literal[
    "done",
    "user_no_instruction",
    "assistant_instructs",
    "token_limit",
    "max_messages",
    "max_rounds",
    "agreed",
    "message_loop",
    "goodbye",
    "goal",
    "stopped",
    "rejected",
    "error",
]
EXCLUDED = frozenset({"error", "rejected", "superseded"})
"""Reasons of conversations that exports, training rows and counts skip."""


MAX_MESSAGES = 40
"""The paper's limit."""


class Stop(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a conversation ended."""

    reason: str
    """One of `StopReason`, or the reason of your own rule."""
    detail: str
    """A sentence with the values that decided it."""
    speaker: str = ""
    """The speaker whose message or limit decided it, if there is one."""
    failure: str = ""
    """The class of the error, if one ended it."""

    @staticmethod
    def failed(error: Exception, speaker: str = "") -> Stop:
        """Return the stop of a conversation that failed."""
        kind = type(error).__name__
        return Stop("error", f"{kind}: {error}", speaker, kind)


class NextCall(msgspec.Struct, frozen=True, gc=False):
    """The next call, unless a rule stops the conversation."""

    speaker: str
    prompt_tokens: int = 0
    """The length of the call's prompt in tokens, counted or estimated on the high side."""
    max_tokens: int | None = None
    """Maximum tokens of the reply, if there is a limit."""
    context_tokens: int | None = None
    """The model's context window, if known."""
    together: int = 0
    """Number of calls at the same time that come before this one in the order of speakers."""


class StopRule(Protocol):
    """Decides whether a conversation ends here."""

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Return a `Stop` to end the conversation before `call`, or None to continue."""
        ...


class DoneToken(msgspec.Struct, frozen=True):
    """The user declares the task done with `<CAMEL_TASK_DONE>`. No other speaker can."""

    by: str = "user"
    within: int = 1
    """Number of latest messages to check. Set it to the number of speakers that speak at the same time."""

    def __post_init__(self) -> None:
        at_least(1, within=self.within)

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when one of the latest messages is by the speaker `by` and declares the task done."""
        for message in messages[-self.within :]:
            if message.speaker == self.by and message.move.done:
                return Stop("done", f"the {self.by} said that the task is done", self.by)
        return None


class NoInstruction(msgspec.Struct, frozen=True):
    """The user gives no instruction for several rounds in a row; the paper's limit is 3."""

    by: str = "user"
    rounds: int = 3

    def __post_init__(self) -> None:
        at_least(1, rounds=self.rounds)

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when the user's last `rounds` messages carry no instruction."""
        if not messages or messages[-1].speaker != self.by or messages[-1].move.instruction is not None:
            return None
        latest = islice(_said_by(self.by, messages), self.rounds)
        silent = sum(1 for _ in takewhile(lambda message: message.move.instruction is None, latest))
        if silent < self.rounds:
            return None
        return Stop("user_no_instruction", f"the {self.by} gave no instruction for {silent} rounds", self.by)


class AssistantInstructs(msgspec.Struct, frozen=True):
    """The assistant gives an instruction: the roles have flipped."""

    by: str = "assistant"

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when the last message is the assistant's and instructs."""
        if messages and messages[-1].speaker == self.by and messages[-1].move.instruction is not None:
            return Stop(
                "assistant_instructs", f"the {self.by} gave an instruction: the roles flipped", self.by
            )
        return None


class TokenLimit(msgspec.Struct, frozen=True):
    """The next prompt and the completion reserved for it would not fit the context window of the speaker's model."""

    limit: int | None = None
    """Context window in tokens. Default: the model's own; if that is unknown, the rule never stops."""
    reserve: int = 512
    """Tokens reserved for the reply if the sampling sets no `max_tokens`."""

    def __post_init__(self) -> None:
        at_least(1, limit=1 if self.limit is None else self.limit)
        at_least(0, reserve=self.reserve)

    def room(self, call: NextCall) -> int | None:
        """Return the maximum tokens of the call's prompt, or None if the context window is unknown."""
        limit, window = self.limit, call.context_tokens
        window = window if limit is None else min(limit, window or limit)
        reserve = self.reserve if call.max_tokens is None else call.max_tokens
        return None if window is None else window - reserve

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when the prompt of the next call leaves no room for the reply."""
        room = self.room(call)
        if room is None or call.prompt_tokens <= room:
            return None
        reserve = self.reserve if call.max_tokens is None else call.max_tokens
        return Stop(
            "token_limit",
            f"the {call.speaker}'s next call needs about {call.prompt_tokens:,} prompt tokens and {reserve:,} "
            f"for the reply, more than its limit of {room + reserve:,}",
            call.speaker,
        )


class MaxMessages(msgspec.Struct, frozen=True):
    """Limit on the number of messages. The paper's is 40, because cost grows with its square."""

    limit: int = 40

    def __post_init__(self) -> None:
        at_least(1, limit=self.limit)

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when `limit` messages have been said."""
        if len(messages) + call.together >= self.limit:
            many = "1 message" if self.limit == 1 else f"{self.limit} messages"
            return Stop("max_messages", f"the conversation reached its limit of {many}")
        return None


class MaxRounds(msgspec.Struct, frozen=True):
    """Limit on the number of rounds, with a fixed number of messages per round."""

    limit: int
    size: int

    def __post_init__(self) -> None:
        at_least(1, limit=self.limit, size=self.size)

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when `limit` rounds are over."""
        if len(messages) + call.together >= self.limit * self.size:
            rounds = "round is" if self.limit == 1 else f"{self.limit} rounds are"
            return Stop("max_rounds", f"the {rounds} over")
        return None


class Vote(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Enough voters agree. A vote is a line `Vote: …`; the last vote of each voter counts."""

    by: tuple[str, ...] = ()
    """The voters. Default in a society: all members."""
    share: float = 0.5
    """Share of all voters that must agree; 1.0 is consensus. Exactly half is never enough."""

    def __post_init__(self) -> None:
        share: Any = self.share
        if not isinstance(share, int | float) or not 0.5 <= share <= 1:
            raise InputError(f"share must be a number from 0.5 to 1, not {shown(share)}")

    @property
    def needed(self) -> int:
        """Number of equal votes that decide."""
        voters = len(self.by)
        return max(voters // 2 + 1, ceil(self.share * voters - 1e-9))

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when one choice has the votes it needs."""
        if call.together:
            return None  # already checked for the first of these simultaneous speakers
        left, votes = set(self.by), dict[str, list[str]]()
        for message in reversed(messages):
            if message.speaker in left and (choice := voted(message.content)):
                left.discard(message.speaker)
                votes.setdefault(alike(choice), []).append(choice)
                if not left:
                    break
        agreed = max(votes.values(), key=len, default=list[str]())
        if not self.by or len(agreed) < self.needed:
            return None
        return Stop("agreed", f"{len(agreed)} of {len(self.by)} voted for {shown(agreed[0])}")


class MessageLoop(msgspec.Struct, frozen=True):
    """The speakers are in a loop: they only exchange thanks and goodbyes, or repeat themselves.

    Thanks count only in short messages without an instruction or a solution. A message is a repeat if it is nearly equal to one
    of its speaker's two previous messages and has no new word, so loops of one and of two messages are found. A new word counts
    as progress: filled-in templates and growing listings change that way. The rule stops late rather than early, because a
    conversation that stops too early is lost.
    """

    pleasantries: int = 4
    """Number of messages in a row with nothing but thanks. The paper's code has 4 but never counts them."""
    pleasant_chars: int = 400
    """Longest message in characters that can be thanks only. Larger societies use a smaller limit."""
    repeats: int = 2
    """Number of repeats in a row that every speaker must make."""
    stuck: int = 4
    """Number of exact repeats in a row by one speaker, whatever the others say. Lines such as "Continue." do not count."""
    similarity: float = 0.75
    """Similarity (Jaccard, over pairs of adjacent words) from which two messages count as nearly equal. Pairs,
    because in a game or a puzzle the same few words in another order are another move."""

    def __post_init__(self) -> None:
        at_least(1, pleasantries=self.pleasantries, repeats=self.repeats, stuck=self.stuck)
        at_least(0, pleasant_chars=self.pleasant_chars)
        similarity: Any = self.similarity
        if not isinstance(similarity, int | float) or not 0 < similarity <= 1:
            raise InputError(f"similarity must be a number above 0 and at most 1, not {shown(similarity)}")

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when the last messages add nothing."""
        if call.together:
            return None  # already checked for the first of these simultaneous speakers
        if len(messages) >= self.pleasantries and all(
            _is_pleasantry(message, self.pleasant_chars)
            for message in messages[: -self.pleasantries - 1 : -1]
        ):
            return Stop("message_loop", f"the last {self.pleasantries} messages were only thanks or goodbyes")
        if not messages or not self._repeats(messages, messages[-1].speaker):
            return None
        last = messages[-1].speaker
        if len(messages[-1].content) > _SHORT_CHARS:
            own = [m.content for m in islice(_said_by(last, messages), self.stuck + 1)]
            if len(own) > self.stuck and len({" ".join(text.lower().split()) for text in own}) == 1:
                return Stop("message_loop", f"the {last} said the same {len(own)} times in a row", last)
        recent = _recent_speakers(messages)
        if all(self._repeats(messages, speaker) >= self.repeats for speaker in recent):
            return Stop("message_loop", f"every speaker repeated itself {self.repeats} times in a row")
        return None

    def _repeats(self, messages: Sequence[Message], speaker: str) -> int:
        """Count the speaker's latest messages in a row that repeat one of its two previous messages. Stop counting at `repeats`."""
        own = _said_by(speaker, messages)
        latest, before = next(own, None), next(own, None)
        repeats = 0
        while latest and before and repeats < self.repeats:
            earlier = next(own, None)
            if not _repeats(latest.content, before.content, earlier and earlier.content, self.similarity):
                break
            latest, before, repeats = before, earlier, repeats + 1
        return repeats


def checked_rules(rules: Iterable[StopRule], max_messages: int | None = None) -> tuple[StopRule, ...]:
    """Return `rules` with the limits that always apply; raises an `InputError` for an object that is no stop rule.

    Adds a limit on messages (`max_messages`, default 40) and the limit of the model's window if `rules` have none,
    so that every conversation ends.
    """
    given: Any = rules
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise InputError(f"rules must be a list of stop rules, not {shown(given)}")
    checked: tuple[Any, ...] = tuple(rules)
    for rule in checked:
        _can_be_asked(rule)
    if max_messages is not None or not any(isinstance(rule, MaxMessages) for rule in checked):
        checked = (*checked, MaxMessages(MAX_MESSAGES if max_messages is None else max_messages))
    return checked if any(isinstance(rule, TokenLimit) for rule in checked) else (*checked, TokenLimit())


def _can_be_asked(rule: Any) -> None:
    if isinstance(rule, type) or not callable(getattr(rule, "check", None)):
        raise InputError(f"a stop rule must be an object with a method check, not {shown(rule)}")


class _PluggedRule(msgspec.Struct, frozen=True):
    """A plug-in's stop rule. If it raises an error, the error names the plug-in."""

    plugin: Plugin
    rule: Any

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Check the plug-in's rule."""
        with self.plugin.guard("raised an error in its method check()"):
            return self.rule.check(messages, call)


def _plugged(plugin: Plugin, part: Any) -> Callable[[], StopRule]:
    """Return a factory of a plug-in's stop rules. It is called once here to check what it returns."""
    try:
        _can_be_asked(part())
    except Exception as error:
        raise plugin.failed(f"must return a stop rule when it is called ({error})") from error
    return lambda: _PluggedRule(plugin, part())


_OWN: dict[str, Callable[[], StopRule]] = {"message_loop": MessageLoop}
STOP_RULES = Registry("stop_rules", _OWN, _plugged, kind="stop rule")
"""Further rules that a scenario can name in `stop_rules`, each as a factory."""


def paper_rules(*, max_messages: int = MAX_MESSAGES) -> tuple[StopRule, ...]:
    """Return the paper's five stop rules with its constants."""
    return (DoneToken(), AssistantInstructs(), NoInstruction(), MaxMessages(max_messages), TokenLimit())


def play_rules(names: Iterable[str] = ("message_loop",), *, max_messages: int = MAX_MESSAGES) -> tuple[StopRule, ...]:  # fmt: skip
    """Return the paper's rules and the rules of these names in `STOP_RULES`, which come before the two limits."""
    *first, most, window = paper_rules(max_messages=max_messages)
    return (*first, *(STOP_RULES.find(name)() for name in names), most, window)


_PLEASANT = re.compile(
    r"\b(?:thank(?:s| you)?|you(?:'|’)?re welcome|welcome|good\s?bye|bye|farewell|take care|my pleasure|"
    r"have a (?:great|good|nice|wonderful|lovely)|see you|good luck|best wishes|glad (?:i|to)|happy to (?:help|assist))\b",
    re.IGNORECASE,
)
_SHORT_CHARS = 80
_VOTE = re.compile(
    r"^[ \t*_#-]*(?:(?:my|final) )*vote[ \t*_]*[:：][ \t*_]*(?P<choice>\S.{0,200}?)[ \t*_.!]*$",
    re.IGNORECASE | re.MULTILINE,
)
_NO_VOTE = ("", "none", "abstain", "abstention", "undecided", "pending", "not yet")
_WORD = re.compile(r"\w+")
_PUNCTUATION = ".,;:!?…()[]*_\"'“”‘’"


def _is_pleasantry(message: Message, longest: int) -> bool:
    move = message.move
    # A marker around nothing but thanks ("Solution: You're welcome! Next request.") is still only thanks.
    if move.instruction is not None or (move.solution is not None and len(move.solution) > 120):
        return False
    return len(message.content) <= longest and _PLEASANT.search(message.content) is not None


def _recent_speakers(messages: Sequence[Message]) -> set[str]:
    """Return the speakers of about the last two rounds."""
    window = 16
    speakers = {message.speaker for message in messages[-window:]}
    while window < min(2 * len(speakers), len(messages)):
        window = 2 * len(speakers)
        speakers = {message.speaker for message in messages[-window:]}
    return {message.speaker for message in messages[-2 * len(speakers) :]}


def voted(text: str) -> str:
    """Return what a message votes for in its last line `Vote: …`, or an empty string."""
    if "ote" not in text and "OTE" not in text:
        return ""
    is_mentioned = mentions(text)
    said = (
        found["choice"]
        for found in reversed(list(_VOTE.finditer(text)))
        if not is_mentioned(found.start("choice"))
    )
    choice = next(said, "")
    return "" if alike(choice) in _NO_VOTE else choice


def alike(choice: str) -> str:
    """Return a vote's choice without case and punctuation, to compare it with others."""
    return " ".join(_WORD.findall(choice.casefold()))


def _said_by(speaker: str, messages: Sequence[Message]) -> Iterator[Message]:
    return (message for message in reversed(messages) if message.speaker == speaker)


def _repeats(text: str, before: str, earlier: str | None, similarity: float) -> bool:
    """Return whether `text` repeats one of its speaker's two previous messages."""
    if text in (before, earlier):
        return True
    known = [other for other in (before, earlier) if other and _may_be_similar(text, other, similarity)]
    if not known:
        return False
    heard = f"{before} {earlier or ''}".lower()
    # Nearly every message has a new word early on, so the costly comparison is rare.
    if not all(word.strip(_PUNCTUATION) in heard for word in text.lower().split()):
        return False
    words = _WORD.findall(text.lower())
    if not set(words).issubset(_WORD.findall(heard)):
        return False
    pairs = set(pairwise(words))
    for other in known:
        others = set(pairwise(_WORD.findall(other.lower())))
        if len(pairs & others) >= similarity * len(pairs | others):
            return True
    return False


def _may_be_similar(one: str, other: str, similarity: float) -> bool:
    """Return False if two texts cannot be near-repeats, because their lengths differ too much or they share no short piece."""
    size = len(one)
    if not size * similarity <= len(other) * 1.1 <= size / similarity * 1.21:
        return False
    step = size // 5
    return size <= 80 or any(one[at : at + 16] in other for at in (step, 2 * step, 3 * step, 4 * step - 16))
