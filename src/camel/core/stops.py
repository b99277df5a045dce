"""Stop rules: when a conversation ends, and why.

Each rule is a small frozen object asked before every call; the first to give a `Stop` ends the conversation, and
its reason and words go into the transcript. Rules are pure functions of what was said, so a replayed conversation
stops where the original did. The constants are the paper's (section 4.1, "Termination Conditions").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from math import ceil
from typing import Any, Literal, Protocol

import msgspec

from camel.core.checks import shown
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
    "stopped",
    "error",
]


MAX_MESSAGES = 40
"""The paper's limit."""


class Stop(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a conversation ended."""

    reason: str
    """One of `StopReason`, or the word of a rule of your own."""
    detail: str
    """The same in words, with the figures that decided it."""
    speaker: str = ""
    """Whose message or limit decided it, if one did."""
    failure: str = ""
    """The class of the failure, where one ended it."""

    @staticmethod
    def failed(error: Exception, speaker: str = "") -> Stop:
        """The end of a conversation that failed."""
        kind = type(error).__name__
        return Stop("error", f"{kind}: {error}", speaker, kind)


class NextCall(msgspec.Struct, frozen=True, gc=False):
    """The call that will be made unless a rule stops the conversation."""

    speaker: str
    prompt_tokens: int = 0
    """The length of its prompt, counted or cautiously estimated."""
    max_tokens: int | None = None
    """The most it may write, when limited."""
    context_tokens: int | None = None
    """The model's window, when known."""
    together: int = 0
    """Calls that will be made at the same time, before this one in their order."""


class StopRule(Protocol):
    """Decides whether a conversation ends here."""

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Return why to stop before `call` is made, or None to go on."""
        ...


class DoneToken(msgspec.Struct, frozen=True):
    """The user declares the task done with `<CAMEL_TASK_DONE>`. Nobody else can."""

    by: str = "user"
    within: int = 1
    """How many of the last messages may hold it: as many as are said at the same time."""

    def __post_init__(self) -> None:
        _at_least(1, within=self.within)

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when the last message is the user's and declares the task done."""
        for message in messages[-self.within :]:
            if message.speaker == self.by and message.move.done:
                return Stop("done", f"the {self.by} said that the task is done", self.by)
        return None


class NoInstruction(msgspec.Struct, frozen=True):
    """The user gives no instruction for some rounds in a row; the paper allows 3."""

    by: str = "user"
    rounds: int = 3

    def __post_init__(self) -> None:
        _at_least(1, rounds=self.rounds)

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when the user's last `rounds` messages carry no instruction."""
        if not messages or messages[-1].speaker != self.by:
            return None
        silent = 0
        for message in reversed(messages):
            if message.speaker == self.by:
                if message.move.instruction is not None:
                    return None
                silent += 1
                if silent == self.rounds:
                    return Stop(
                        "user_no_instruction",
                        f"the {self.by} gave no instruction for {silent} rounds",
                        self.by,
                    )
        return None


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
    """The next prompt and the completion reserved for it would not fit the speaker's window."""

    limit: int | None = None
    """A window to keep to; by default the model's own, and where that is unknown the rule is silent."""
    reserve: int = 512
    """Tokens kept free for the reply when the sampling sets no `max_tokens`."""

    def __post_init__(self) -> None:
        _at_least(1, limit=1 if self.limit is None else self.limit)
        _at_least(0, reserve=self.reserve)

    def room(self, call: NextCall) -> int | None:
        """Tokens that the call's prompt may have; None where no window is known."""
        limit, window = self.limit, call.context_tokens
        window = window if limit is None else min(limit, window or limit)
        reserve = self.reserve if call.max_tokens is None else call.max_tokens
        return None if window is None else window - reserve

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when the call about to be made has no room for its reply."""
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
    """The conversation reached its length limit; the paper's is 40, as cost grows with the square of it."""

    limit: int = 40

    def __post_init__(self) -> None:
        _at_least(1, limit=self.limit)

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when `limit` messages have been said."""
        if len(messages) + call.together >= self.limit:
            many = "1 message" if self.limit == 1 else f"{self.limit} messages"
            return Stop("max_messages", f"the conversation reached its limit of {many}")
        return None


class MaxRounds(msgspec.Struct, frozen=True):
    """So many rounds, of so many messages each."""

    limit: int
    size: int

    def __post_init__(self) -> None:
        _at_least(1, limit=self.limit, size=self.size)

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop before the first message of a round too many."""
        if len(messages) + call.together >= self.limit * self.size:
            rounds = "round is" if self.limit == 1 else f"{self.limit} rounds are"
            return Stop("max_rounds", f"the {rounds} over")
        return None


class Vote(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Enough of the voters want the same: each says so on a line `Vote: …`, and the last one it wrote counts."""

    by: tuple[str, ...] = ()
    """Who has a vote; in a society everybody, where it is left out."""
    share: float = 0.5
    """Of all voters, how many must agree: 1.0 is consensus. A half is never enough, it must be more."""

    def __post_init__(self) -> None:
        share: Any = self.share
        if not isinstance(share, int | float) or not 0.5 <= share <= 1:
            raise InputError(f"share must be a number from 0.5 to 1, not {shown(share)}")

    @property
    def needed(self) -> int:
        """How many votes decide."""
        voters = len(self.by)
        return max(voters // 2 + 1, ceil(self.share * voters - 1e-9))

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when one choice has the votes it needs."""
        if call.together:
            return None  # nothing was said since the first of those who speak together was asked about
        left, votes = set(self.by), dict[str, list[str]]()
        for message in reversed(messages):
            if message.speaker in left and (choice := voted(message.content)):
                left.discard(message.speaker)
                votes.setdefault(_alike(choice), []).append(choice)
                if not left:
                    break
        agreed = max(votes.values(), key=len, default=list[str]())
        if not self.by or len(agreed) < self.needed:
            return None
        return Stop("agreed", f"{len(agreed)} of {len(self.by)} voted for {shown(agreed[0])}")


class MessageLoop(msgspec.Struct, frozen=True):
    """The speakers go round in circles: thanking and taking leave of each other, or saying the same again.

    Pleasantries count only in short messages that neither instruct nor solve. A message repeats when it is nearly one
    of its speaker's own two before it and says no word that they did not, so that circles of one and of two messages
    are seen. A new word is progress: templates are filled in, lists are worked off and listings grow that way, and a
    conversation stopped too early is lost, while one stopped late is only longer.
    """

    pleasantries: int = 4
    """Messages in a row. The original meant 4 and never counted them."""
    pleasant_chars: int = 400
    """The longest message that is only thanks; in a larger society thanks open a speech, and only a short one is all thanks."""
    repeats: int = 2
    """Repeats in a row by each of the speakers."""
    stuck: int = 4
    """Repeats to the letter in a row by one speaker, whatever the others say. Not of a short line: "Continue." and
    "Yes." are said again for good reason."""
    similarity: float = 0.75
    """Share of pairs of neighbouring words in common (Jaccard) from which two messages are nearly the same. Pairs,
    because in a game or a puzzle the same few words in another order are another move."""

    def __post_init__(self) -> None:
        _at_least(1, pleasantries=self.pleasantries, repeats=self.repeats, stuck=self.stuck)
        _at_least(0, pleasant_chars=self.pleasant_chars)
        similarity: Any = self.similarity
        if not isinstance(similarity, int | float) or not 0 < similarity <= 1:
            raise InputError(f"similarity must be a number above 0 and at most 1, not {shown(similarity)}")

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when the last messages add nothing."""
        if call.together:
            return None  # nothing was said since the first of those who speak together was asked about
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
        """How many of the speaker's latest messages, without a gap, repeat one of the two before; `repeats` is enough."""
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
    """Return `rules` with the limits that always hold; raises an `InputError` in one line where one cannot be asked.

    A limit of messages (40 unless `max_messages` says another) and of the model's window are added where `rules` have none,
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
    """A plug-in's rule, whose failures name it."""

    plugin: Plugin
    rule: Any

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """What the rule says."""
        try:
            return self.rule.check(messages, call)
        except Exception as error:
            raise self.plugin.failed(f"failed when it was asked: {type(error).__name__}: {error}") from error


def _plugged(plugin: Plugin, part: Any) -> Callable[[], StopRule]:
    """What makes a plug-in's rule; it is made once to see that it is one."""
    try:
        _can_be_asked(part())
    except Exception as error:
        raise plugin.failed(f"must give a stop rule when it is called: {error}") from error
    return lambda: _PluggedRule(plugin, part())


STOP_RULES: Registry[Callable[[], StopRule]] = Registry("stop_rules", {}, _plugged, kind="stop rule")
"""Rules beside the paper's that a scenario can name in `stop_rules`, each as what makes it."""


def paper_rules(*, max_messages: int = MAX_MESSAGES) -> tuple[StopRule, ...]:
    """The paper's termination conditions with its constants, and the loop rule its code meant to have."""
    return (
        DoneToken(),
        AssistantInstructs(),
        NoInstruction(),
        MessageLoop(),
        MaxMessages(max_messages),
        TokenLimit(),
    )


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
    """Whoever spoke in about the last two rounds, however many take part."""
    window = 16
    speakers = {message.speaker for message in messages[-window:]}
    while window < min(2 * len(speakers), len(messages)):
        window = 2 * len(speakers)
        speakers = {message.speaker for message in messages[-window:]}
    return {message.speaker for message in messages[-2 * len(speakers) :]}


def voted(text: str) -> str:
    """What a message votes for, by its last line `Vote: …`; empty where it does not."""
    if "ote" not in text and "OTE" not in text:
        return ""
    is_mentioned = mentions(text)
    said = (
        found["choice"]
        for found in reversed(list(_VOTE.finditer(text)))
        if not is_mentioned(found.start("choice"))
    )
    choice = next(said, "")
    return "" if _alike(choice) in _NO_VOTE else choice


def _alike(choice: str) -> str:
    return " ".join(_WORD.findall(choice.casefold()))


def _said_by(speaker: str, messages: Sequence[Message]) -> Iterator[Message]:
    return (message for message in reversed(messages) if message.speaker == speaker)


def _repeats(text: str, before: str, earlier: str | None, similarity: float) -> bool:
    """Whether `text` says again what one of its speaker's two messages before it said."""
    if text in (before, earlier):
        return True
    known = [other for other in (before, earlier) if other and _may_be_similar(text, other, similarity)]
    if not known:
        return False
    heard = f"{before} {earlier or ''}".lower()
    # Nearly every message has a new word early on, so that the costly comparison is seldom made.
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
    """Whether a closer look is worth it: near-repeats are of like length and share some of any four short pieces."""
    size = len(one)
    if not size * similarity <= len(other) * 1.1 <= size / similarity * 1.21:
        return False
    step = size // 5
    return (
        size <= 80
        or one[step : step + 16] in other
        or one[2 * step : 2 * step + 16] in other
        or one[3 * step : 3 * step + 16] in other
        or one[4 * step - 16 : 4 * step] in other
    )


def _at_least(low: int, **values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InputError(f"{name} must be a whole number of at least {low}, not {shown(value)}")
