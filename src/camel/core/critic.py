"""A critic in the loop: a speaker proposes, a judge chooses, scores or sends feedback (paper, section 3.2).

`BestOf` asks for several proposals and uses the one its judge prefers; `camel.core.search` looks further ahead. A judge
is anything with an async method `judge(case)`: a model (`camel.core.judge`), or a function of yours that applies a rule
or asks a person (`FunctionJudge`). The one decision to know: calls are made in waves. The calls of a wave start in an
order that does not depend on timing, and all are awaited before the next wave, because a journal identifies calls by
that order. What happens next depends only on their replies.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, cast

import msgspec
from msgspec.structs import replace

from camel.core.checks import shown, whole
from camel.core.conversation import Agent, Conversation
from camel.core.errors import InputError, RequestRejected
from camel.core.inception import fill, texts
from camel.core.message import Deliberation, Proposal, Sampling, Usage, well_formed
from camel.core.model import Choice, Reply, Request, Text

PROPOSALS, TEMPERATURE = 3, 0.8
"""As in the paper's code: three proposals at temperature 0.8."""
Fallback = Literal["first", "seeded"]
"""What is said when the judge does not decide: the first option, or a random one. The random seed is the conversation's id and
the message's index, so a replay chooses the same option."""


class Option(msgspec.Struct, frozen=True):
    """A candidate for the next message."""

    content: str
    then: tuple[Proposal, ...] = ()
    """The messages that would follow this one, if a search has looked ahead."""


class Case(NamedTuple):
    """What a judge is asked to decide."""

    conversation: Conversation
    """The conversation so far: `conversation.transcript` has its id, task and messages."""
    agent: Agent
    """The next speaker."""
    options: tuple[Option, ...]
    calls: int | None = None
    """Maximum number of calls the judge may make; None: no limit."""
    final: bool = True
    """Whether this is the last round. If it is, one of the options is said now, even if the judge gives feedback."""


class Verdict(msgspec.Struct, frozen=True):
    """What a judge decided: a choice, scores, feedback, or nothing."""

    choice: int | None = None
    """The index of the option to say or to revise, from 0."""
    scores: tuple[float, ...] = ()
    """One score per option; higher is better. Without a choice, the highest score wins."""
    reasons: tuple[str, ...] = ()
    """One reason per score."""
    reason: str = ""
    """Why it chose this option, or why it did not choose."""
    feedback: str = ""
    """What to change before the chosen option is said. Without a choice, it applies to the latest revision or to the first
    option."""
    critic: str = ""
    """The judge's name in the record."""
    usage: Usage = Usage()
    latency: float = 0.0
    calls: int = 0
    """Number of model calls that the judge made."""

    def chosen(self) -> int | None:
        """Return the index of the chosen option, or of the one with the highest score. None if there is neither."""
        if self.choice is None and self.scores:
            return self.scores.index(max(self.scores))
        return self.choice


class Judge(Protocol):
    """Decides between options. A judge that cannot decide returns a verdict without a choice; a judge that fails raises an
    error."""

    async def judge(self, case: Case) -> Verdict:
        """Judge `case` with at most `case.calls` calls."""
        ...


Answer = int | str | Sequence[float] | Verdict | None
"""What a judge function returns: an option's index, feedback for a revision, one score per option, or None for undecided."""


class FunctionJudge:
    """A judge that is a plain function, sync or async, from the case to an `Answer`.

    `FunctionJudge(lambda case: [-len(option.content) for option in case.options])` is a rule that prefers short messages. A
    person is a function that shows the options and waits: `FunctionJudge(ask, name="person")`.
    """

    def __init__(self, function: Callable[[Case], Answer | Awaitable[Answer]], *, name: str = "") -> None:
        if not callable(function):
            raise InputError(f"a judge must be a function of the case, not {shown(function)}")
        self._function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)

    async def judge(self, case: Case) -> Verdict:
        """Call the function. Raise an `InputError` if its answer names no option."""
        answer: Any = self._function(case)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            verdict = Verdict(reason="the judge did not decide")
        elif isinstance(answer, Verdict):
            verdict = answer
        elif isinstance(answer, str):
            verdict = Verdict(feedback=answer)
        elif isinstance(answer, int) and not isinstance(answer, bool):
            verdict = Verdict(answer)
        elif isinstance(answer, Iterable):
            verdict = Verdict(scores=tuple(cast("Iterable[float]", answer)))
        else:
            raise InputError(
                f"the judge {self.name} must return an index, text or scores, not {shown(answer)}"
            )
        checked_verdict(verdict, len(case.options), self.name)
        return verdict if verdict.critic else replace(verdict, critic=self.name)


def checked_judge(judge: object) -> Judge:
    """Return `judge` as a `Judge`. A plain function is wrapped, and anything else raises an `InputError`."""
    if not isinstance(judge, type) and callable(getattr(judge, "judge", None)):
        return cast("Judge", judge)
    if callable(judge) and not isinstance(judge, type):
        return FunctionJudge(cast("Any", judge))
    raise InputError(
        f"judge must be a function, or an object with an async method judge(case), not {shown(judge)}"
    )


def checked_verdict(verdict: Verdict, count: int, name: str) -> None:
    """Raise an `InputError` unless the verdict fits `count` options."""
    choice: Any = verdict.choice
    if choice is not None and (
        isinstance(choice, bool) or not isinstance(choice, int) or not 0 <= choice < count
    ):
        raise InputError(f"the judge '{name}' chose {shown(choice)}, but the options are 0 to {count - 1}")
    scores: tuple[Any, ...] = verdict.scores
    if scores and (
        len(scores) != count or not all(isinstance(s, int | float) and math.isfinite(s) for s in scores)
    ):
        raise InputError(
            f"the judge {name} must give a finite score to each of the {count} options, not {shown(scores)}"
        )


@dataclass(frozen=True, kw_only=True)
class Proposing:
    """Settings that all critics share: how proposals are requested, and the fallback when the judge does not decide."""

    judge: Judge
    """The judge; a plain function is wrapped in a `FunctionJudge`."""
    proposals: int = PROPOSALS
    """Number of proposals, requested in one call if the endpoint supports `n`, otherwise in several."""
    temperature: float | None = TEMPERATURE
    """The temperature of proposals, for a speaker that sets one. None keeps the speaker's own."""
    fallback: Fallback = "first"

    def __post_init__(self) -> None:
        object.__setattr__(self, "judge", checked_judge(self.judge))
        whole("proposals", self.proposals, 1, 100)
        if self.fallback not in ("first", "seeded"):
            raise InputError(f"fallback must be 'first' or 'seeded', not {shown(self.fallback)}")
        Sampling(temperature=self.temperature)

    def sampling(self, own: Sampling) -> Sampling:
        """Return the sampling settings for proposals of a speaker whose own settings are `own`."""
        if self.temperature is None or own.temperature is None:
            return own
        return replace(own, temperature=self.temperature)


@dataclass(frozen=True, kw_only=True)
class BestOf(Proposing):
    """A critic that requests several proposals and uses the one its judge chooses, or a revision of it.

    `RolePlaying(…, critic=BestOf(judge=ModelJudge(model)))`. Every proposal, score, choice and reason is in the
    message's `deliberation`.
    """

    revisions: int = 1
    """Maximum number of revisions after feedback. After that, one of the options is said as it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("revisions", self.revisions, 0, 100)

    async def reply(self, conversation: Conversation, agent: Agent, request: Request) -> Reply:
        """Return what `agent` says next."""
        sitting = Sitting(conversation, agent, request, self)
        (options,) = await sitting.propose([(request, -1)])
        left = self.revisions
        while True:
            verdict = await sitting.judged([(one,) for one in options], final=not left)
            chosen = sitting.decided(verdict, options, final=not left)
            if not verdict.feedback or not left:
                return sitting.reply(chosen, verdict.reason)
            left -= 1
            options = [chosen, await sitting.revise(chosen, verdict.feedback)]


Steps = tuple[int, ...]
"""One option of a `Sitting`: the indexes of its proposals, from the next message to the last one that a search looked ahead."""


@dataclass(slots=True)
class Sitting:
    """The deliberation on one message: proposals and verdicts so far, their cost, and the remaining calls."""

    conversation: Conversation
    agent: Agent
    request: Request
    settings: Proposing
    left: int | None = None
    """Number of calls that may still be made. None: no limit."""
    drafts: list[Proposal] = field(default_factory=list[Proposal])
    replies: dict[int, Reply] = field(default_factory=dict[int, Reply])
    """The reply that contained each proposal for this message, by the proposal's index. Each has one choice."""
    usage: Usage = field(default_factory=Usage)
    latency: float = 0.0
    """Sum of the latencies of all rounds of calls, as the replies report them. A replay gives the same value."""
    attempts: int = 1
    limited: int = 0
    several: bool = True
    """Whether the endpoint supports several choices per call."""
    critic: str = ""
    fallbacks: list[str] = field(default_factory=list[str])

    # --- proposals -----------------------------------------------------------------------------------------------

    async def propose(self, asked: Sequence[tuple[Request, int]]) -> list[list[int]]:
        """Request proposals for several requests at the same time. Each request comes with the index of the proposal that it
        answers.

        An endpoint that supports `n` gives them all in one call. If it gives fewer or rejects `n`, the rest is requested
        one by one. If there is a seed, each call has its own.
        """
        wanted = self.settings.proposals
        asked = asked if self.left is None else asked[: max(0, self.left - self.reserve)]
        samplings = [self.settings.sampling(request.sampling) for request, _ in asked]
        replies: list[list[Reply]] = [[] for _ in asked]
        if self.several and wanted > 1:
            settings = [replace(sampling, n=wanted) for sampling in samplings]
            outcomes = await self.wave(
                [quiet(request, sampling) for (request, _), sampling in zip(asked, settings, strict=True)]
            )
            for place, outcome in enumerate(outcomes):
                if type(outcome) is RequestRejected:
                    self.several = False  # the endpoint does not support `n`
                    self.spent(-1)
                else:
                    replies[place].append(reply_of(outcome))
        rest: list[tuple[int, int]] = []
        for place, its in enumerate(replies):
            have = sum(len(reply.choices) for reply in its)
            rest += [(number, place) for number in range(have, wanted)]
        rest.sort()  # the second proposals of all requests before any third
        if self.left is not None:
            # Without a proposal yet, the judge needs no reserved call.
            rest = rest[: max(0, self.left - (self.reserve if self.drafts or any(replies) else 0))]
        more = [quiet(asked[place][0], seeded(samplings[place], number)) for number, place in rest]
        for (_, place), outcome in zip(rest, await self.wave(more), strict=True):
            replies[place].append(reply_of(outcome))
        drafts: list[list[int]] = []
        for its, (request, parent) in zip(replies, asked, strict=True):
            # A count that is too high may be a sum over choices.
            if request is self.request and its and 0 < its[0].usage.prompt <= request.history.tokens:
                request.history.measured(its[0].usage.prompt)
            found = [(reply, choice) for reply in its for choice in reply.choices][:wanted]
            drafts.append([self.draft(reply, choice, parent) for reply, choice in found])
        return drafts

    async def revise(self, draft: int, feedback: str) -> int:
        """Ask the speaker to revise a proposal, and return the index of the revision."""
        history = self.request.history.copy()
        history.add("assistant", self.drafts[draft].content)
        history.add("user", fill(texts("critic")["revise"], {"FEEDBACK": feedback.strip()}))
        sampling = self.settings.sampling(self.request.sampling)
        (outcome,) = await self.wave([replace(quiet(self.request, sampling), history=history)])
        reply = reply_of(outcome)
        self.drafts[draft] = replace(self.drafts[draft], reason=well_formed(feedback))
        return self.draft(reply, reply.choices[0], draft, revises=True)

    def draft(self, reply: Reply, choice: Choice, parent: int, *, revises: bool = False) -> int:
        """Record a proposal and return its index."""
        self.drafts.append(Proposal(well_formed(choice.content), parent=parent, revises=revises))
        number = len(self.drafts) - 1
        self.replies[number] = replace(reply, choices=(choice,))
        return number

    @property
    def reserve(self) -> int:
        """Return the number of calls to reserve for the judge."""
        return 0 if isinstance(self.settings.judge, FunctionJudge) else 1

    # --- judgment ------------------------------------------------------------------------------------------------

    async def judged(self, paths: Sequence[Steps], *, final: bool = True) -> Verdict:
        """Ask the judge about the options, record its scores and return the verdict. It is undecided if the limit of calls is
        reached."""
        if self.left is not None and self.left < self.reserve:
            return Verdict(reason="no call remains in the budget")
        options = [
            Option(self.drafts[path[0]].content, tuple(self.drafts[step] for step in path[1:]))
            for path in paths
        ]
        case = Case(self.conversation, self.agent, tuple(options), self.left, final)
        verdict = await self.settings.judge.judge(case)
        checked_verdict(verdict, len(paths), verdict.critic or "of the critic")
        self.spent(verdict.calls)
        self.usage += verdict.usage
        self.latency += verdict.latency
        if verdict.calls or not self.critic:  # prefer a judge that made a call
            self.critic = verdict.critic or self.critic
        reasons = [*verdict.reasons, *[""] * len(paths)]
        for path, score, reason in zip(paths, verdict.scores, reasons, strict=False):
            last = path[-1]
            self.drafts[last] = replace(self.drafts[last], score=float(score), reason=well_formed(reason))
        return verdict

    def decided(self, verdict: Verdict, options: Sequence[int], *, final: bool) -> int:
        """Return the option that the verdict chooses. If it chooses none, return the one that the fallback rule chooses."""
        place = verdict.chosen()
        if place is None and verdict.feedback:
            place = len(options) - 1 if self.drafts[options[-1]].revises else 0
            if final:
                self.fallbacks.append("latest: there was feedback, but no revision remained")
        if place is None:
            place = self.fall_back(verdict.reason, len(options))
        return options[place]

    def fall_back(self, why: str, count: int) -> int:
        """Choose an option by the fallback rule, and record that it was used."""
        rule = self.settings.fallback
        self.fallbacks.append(f"{rule}: {why or 'the judge did not decide'}")
        if rule == "first":
            return 0
        transcript = self.conversation.transcript
        drawn = hashlib.blake2b(
            f"{transcript.id}/{len(transcript.messages)}".encode(), digest_size=8
        ).digest()
        return int.from_bytes(drawn) % count

    # --- calls and their cost ------------------------------------------------------------------------------------

    async def wave(self, requests: Sequence[Request]) -> list[Reply | BaseException]:
        """Send several requests to the speaker's model at the same time and wait for all."""
        self.spent(len(requests))
        model = self.agent.model
        outcomes = await asyncio.gather(
            *(model.reply(request) for request in requests), return_exceptions=True
        )
        replies = [outcome for outcome in outcomes if isinstance(outcome, Reply)]
        for reply in replies:
            self.usage += reply.usage
            self.attempts = max(self.attempts, reply.attempts)
            self.limited += reply.limited
        self.latency += max((reply.latency for reply in replies), default=0.0)
        return outcomes

    def spent(self, calls: int) -> None:
        """Subtract calls from the budget."""
        if self.left is not None:
            self.left = max(0, self.left - calls)

    def reply(self, chosen: int, reason: str) -> Reply:
        """Return the chosen message with its deliberation."""
        found, drafts = self.replies[chosen], tuple(self.drafts)
        deliberation = Deliberation(
            self.critic, drafts, chosen, well_formed(reason), "; ".join(dict.fromkeys(self.fallbacks))
        )
        if self.request.watch:
            self.request.watch(Text(self.request.speaker, drafts[chosen].content))
        return replace(
            found,
            usage=self.usage,
            latency=self.latency,
            attempts=self.attempts,
            limited=self.limited,
            deliberation=deliberation,
        )


def quiet(request: Request, sampling: Sampling) -> Request:
    """Return the request with other sampling settings, and without streaming because a proposal may never be said."""
    return replace(request, sampling=sampling, watch=None)


def seeded(sampling: Sampling, number: int) -> Sampling:
    """Return the settings with another seed, so that equal requests give different proposals. Unchanged if there is no seed."""
    return sampling if sampling.seed is None else replace(sampling, seed=(sampling.seed + number) % 2**31)


def reply_of(outcome: Reply | BaseException) -> Reply:
    """Return the reply of a call, or raise its error."""
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
