"""Tree search: critics that look ahead over what would follow each proposal, with the judge as value function.

The conversation is forked for each proposal that is followed up, the others answer there, and the speaker proposes
again: that is a round. The judge scores where that leads, and of the first proposals the one is said that leads
furthest. Forks are the one conversation loop itself, they share their prefix to the byte, and they advance in
lock-step. The one decision to know: the number of calls is bounded, every kind of call counts, and the bound is never
passed. One call is always kept for a judge that makes any; what a level cannot afford it leaves out, the worse branches first; and
where one call is left and branches still compete, the judge is asked again in reverse order, as judges favour places.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from camel.core.checks import whole
from camel.core.conversation import Agent, Conversation
from camel.core.critic import Proposing, Sitting, Steps
from camel.core.message import Proposal, well_formed
from camel.core.model import Reply, Request

CALLS = 24
"""What one message may cost unless said otherwise."""


@dataclass(eq=False, slots=True)
class Branch:
    """A way on from here: what would be said, and how good that is."""

    conversation: Conversation
    """A fork; its last step has been said there, or will be when it is looked into."""
    steps: Steps
    saying: Reply | None = None
    """The last step, while it has not been said in the fork."""
    rounds: int = 0
    score: float | None = None
    ended: bool = False
    """A stop rule ended it: nothing follows."""

    @property
    def worth(self) -> float:
        """For comparisons: what was not judged comes last."""
        return float("-inf") if self.score is None else self.score

    def entered(self, name: str) -> Conversation:
        """The fork, with the last step said."""
        if self.saying is not None:
            self.conversation = self.conversation.fork()
            self.conversation.say(name, self.saying)
            self.saying = None
        return self.conversation

    def goes_on(self, name: str) -> bool:
        """Whether anybody would speak next."""
        fork = self.entered(name)
        self.ended = fork.transcript.stop is not None or not fork.asked()
        return not self.ended


@dataclass(frozen=True, kw_only=True)
class TreeSearch(Proposing):
    """What the searches have in common. A judge that scores suits them best; of one that chooses, 1 and 0 are the scores."""

    depth: int = 1
    """Rounds to look ahead: in each the others answer and the speaker proposes again."""
    calls: int = CALLS
    """The most calls for one message, of all kinds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("depth", self.depth, 1, 100)
        whole("calls", self.calls, 2, 1_000_000)

    @abstractmethod
    def select(self, leaves: Sequence[Branch]) -> tuple[list[Branch], list[Branch]]:
        """The leaves that stay in the running, and those of them to look further into now, the best first."""

    async def reply(self, conversation: Conversation, agent: Agent, request: Request) -> Reply:
        """What `agent` says next."""
        sitting = Sitting(conversation, agent, request, self, self.calls)
        (first,) = await sitting.propose([(request, -1)])
        leaves = [Branch(conversation, (one,), sitting.replies[one]) for one in first]
        await _judge(sitting, leaves)
        while True:
            leaves, growing = self.select(leaves)
            rivals = {leaf.steps[0] for leaf in leaves}
            if not growing or len(rivals) == 1 or not sitting.left:
                break
            if not all(leaf.goes_on(agent.name) for leaf in growing):
                continue
            if sitting.left == sitting.reserve:
                await _judge_again(sitting, leaves)
                break
            before = sitting.left
            grown = await _grow(sitting, growing)
            leaves = [child for leaf in leaves for child in grown.get(leaf, [leaf])]
            if sitting.left == before:
                break  # no way on is cheap enough
        best = max(leaves, key=lambda leaf: leaf.worth)
        reason = sitting.drafts[best.steps[-1]].reason
        if ahead := len(best.steps) - 1:
            reason = f"{ahead} {'message' if ahead == 1 else 'messages'} ahead, at proposal {best.steps[-1] + 1}: {reason}"
        return sitting.reply(best.steps[0], reason)

    def may_grow(self, leaf: Branch) -> bool:
        """Whether there is anything to see beyond a leaf."""
        return not leaf.ended and leaf.rounds < self.depth


@dataclass(frozen=True, kw_only=True)
class Beam(TreeSearch):
    """Looks ahead round by round, each time from the best branches of the round before."""

    width: int = 2
    """Branches that are followed up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("width", self.width, 1, 1_000)

    def select(self, leaves: Sequence[Branch]) -> tuple[list[Branch], list[Branch]]:
        """Keep the best, and look into all of them."""
        kept = _ranked(leaves)[: self.width]
        return kept, [leaf for leaf in kept if self.may_grow(leaf)]


@dataclass(frozen=True, kw_only=True)
class BestFirst(TreeSearch):
    """Looks further into whichever branch is the best so far, until the calls are spent or `depth` is reached."""

    depth: int = 3

    def select(self, leaves: Sequence[Branch]) -> tuple[list[Branch], list[Branch]]:
        """Keep all, and look into the best; it stays the best only if what follows is as good."""
        return list(leaves), [leaf for leaf in _ranked(leaves) if self.may_grow(leaf)][:1]


def _ranked(leaves: Sequence[Branch]) -> list[Branch]:
    return sorted(leaves, key=lambda leaf: -leaf.worth)


async def _grow(sitting: Sitting, growing: Sequence[Branch]) -> dict[Branch, list[Branch]]:
    """Take branches a round further as far as the budget goes, and judge where that leads: what each grew into."""
    name = sitting.agent.name
    moved: list[Branch] = []
    while True:
        ready: list[tuple[Branch, Request]] = []
        waiting: list[tuple[Branch, int]] = []
        for branch in growing:
            calls = branch.conversation.asked() if branch.goes_on(name) else []
            if not calls:
                continue
            if [agent.name for agent, _ in calls] == [name]:
                ready.append((branch, calls[0][1]))
            else:
                waiting.append((branch, len(calls)))
        stepping: list[Branch] = []
        room = _left(sitting) - sitting.reserve
        for branch, cost in waiting:
            if cost <= room:
                stepping.append(branch)
                room -= cost
        if not stepping:
            break
        moved += [branch for branch in await _step(sitting, stepping) if branch not in moved]
    proposed = await sitting.propose([(request, branch.steps[-1]) for branch, request in ready])
    grown: dict[Branch, list[Branch]] = {}
    for (branch, _), drafts in zip(ready, proposed, strict=False):
        grown[branch] = [
            Branch(
                branch.conversation,
                (*branch.steps, one),
                sitting.replies[one],
                branch.rounds + 1,
                branch.score,
            )
            for one in drafts
        ]
    new = [leaf for branch in growing for leaf in grown.get(branch, [branch] if branch in moved else [])]
    if new:
        await _judge(sitting, new)
    return grown


async def _step(sitting: Sitting, branches: Sequence[Branch]) -> list[Branch]:
    """Let somebody speak in each fork, all at the same time; those in which somebody did."""
    said = [len(branch.conversation.transcript.messages) for branch in branches]
    costs = [len(branch.conversation.asked()) for branch in branches]
    sitting.spent(sum(costs))
    outcomes = await asyncio.gather(
        *(branch.conversation.step() for branch in branches), return_exceptions=True
    )
    latency, moved = 0.0, list[Branch]()
    for branch, before in zip(branches, said, strict=True):
        for message in branch.conversation.transcript.messages[before:]:
            sitting.usage += message.usage
            sitting.attempts = max(sitting.attempts, message.attempts)
            latency = max(latency, message.latency)
            sitting.drafts.append(Proposal(message.content, speaker=message.speaker, parent=branch.steps[-1]))
            branch.steps = (*branch.steps, len(sitting.drafts) - 1)
        if len(branch.conversation.transcript.messages) > before:
            moved.append(branch)
    sitting.latency += latency
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return moved


async def _judge(sitting: Sitting, leaves: Sequence[Branch]) -> None:
    """Score leaves. Where the judge does not decide, those that grew keep the scores of what they grew from."""
    verdict = await sitting.judged([leaf.steps for leaf in leaves])
    scores = verdict.scores
    if not scores and verdict.choice is not None:
        scores = tuple(float(place == verdict.choice) for place in range(len(leaves)))
        reasons = [verdict.reason if score else "" for score in scores]
        for leaf, score, reason in zip(leaves, scores, reasons, strict=True):
            last = leaf.steps[-1]
            sitting.drafts[last] = replace(sitting.drafts[last], score=score, reason=well_formed(reason))
    if scores:
        for leaf, score in zip(leaves, scores, strict=True):
            leaf.score = float(score)
        return
    if all(leaf.score is None for leaf in leaves):
        leaves[sitting.fall_back(verdict.reason, len(leaves))].score = 0.0
    else:
        sitting.fallbacks.append(f"earlier scores: {verdict.reason}")


async def _judge_again(sitting: Sitting, leaves: Sequence[Branch]) -> None:
    """A second opinion on the best leaf of each first proposal, in reverse order; what counts is the mean of both."""
    best: dict[int, Branch] = {}
    for leaf in _ranked(leaves):
        best.setdefault(leaf.steps[0], leaf)
    rivals = list(reversed(best.values()))
    first = [leaf.score for leaf in rivals]
    await _judge(sitting, rivals)
    for leaf, before in zip(rivals, first, strict=True):
        if before is not None and leaf.score is not None:
            leaf.score = (before + leaf.score) / 2
            last = leaf.steps[-1]
            sitting.drafts[last] = replace(sitting.drafts[last], score=leaf.score)


def _left(sitting: Sitting) -> int:
    assert sitting.left is not None
    return sitting.left
