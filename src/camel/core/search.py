"""Tree search: critics that look ahead over what would follow each proposal, with the judge as value function.

A round forks the conversation for each proposal that is followed up, the others answer in the fork, and the speaker
proposes again. The judge scores the results, and the first proposal with the best outcome is said. Forks use the one
conversation loop, share their prefix to the byte, and advance in lock-step. The one decision to know: the number of
calls per message is bounded and includes calls of every kind. One call is always reserved for a judge that makes calls.
A round that cannot afford all branches drops the worst ones. If one call remains and branches still compete, the judge
scores them again in reverse order, because judges prefer certain positions.
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
"""Default limit on calls for one message."""


@dataclass(eq=False, slots=True)
class Branch:
    """A possible continuation and its score."""

    conversation: Conversation
    """A fork of the conversation. It contains the last step only after `entered` was called."""
    steps: Steps
    saying: Reply | None = None
    """The reply that is the last step, until `entered` adds it to the fork. None after that."""
    rounds: int = 0
    score: float | None = None
    ended: bool = False
    """Whether a stop rule ended this branch."""

    @property
    def worth(self) -> float:
        """The score for comparisons. A branch without a score compares as the lowest."""
        return float("-inf") if self.score is None else self.score

    def entered(self, name: str) -> Conversation:
        """Return the fork with the last step added as a message of the speaker `name`."""
        if self.saying is not None:
            self.conversation = self.conversation.fork()
            self.conversation.say(name, self.saying)
            self.saying = None
        return self.conversation

    def continues(self, name: str) -> bool:
        """Return whether the conversation would continue after the last step. Updates `ended`."""
        fork = self.entered(name)
        self.ended = fork.transcript.stop is not None or not fork.asked()
        return not self.ended


@dataclass(frozen=True, kw_only=True)
class TreeSearch(Proposing):
    """Base of the searches. A judge that scores works best; a judge that chooses gives scores of 1 and 0."""

    depth: int = 1
    """Rounds to look ahead; in each, the others answer and the speaker proposes again."""
    calls: int = CALLS
    """Maximum number of calls for one message, of all kinds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("depth", self.depth, 1, 100)
        whole("calls", self.calls, 2, 1_000_000)

    @abstractmethod
    def select(self, leaves: Sequence[Branch]) -> tuple[list[Branch], list[Branch]]:
        """Return two lists, best first: the leaves to keep, and the kept leaves to expand now."""

    async def reply(self, conversation: Conversation, agent: Agent, request: Request) -> Reply:
        """Return what `agent` says next."""
        sitting = Sitting(conversation, agent, request, self, self.calls)
        (first,) = await sitting.propose([(request, -1)])
        leaves = [Branch(conversation, (one,), sitting.replies[one]) for one in first]
        await _judge(sitting, leaves)
        while True:
            leaves, growing = self.select(leaves)
            rivals = {leaf.steps[0] for leaf in leaves}
            if not growing or len(rivals) == 1 or not sitting.left:
                break
            if not all(leaf.continues(agent.name) for leaf in growing):
                continue
            if sitting.left == sitting.reserve:
                await _judge_again(sitting, leaves)
                break
            before = sitting.left
            grown = await _grow(sitting, growing)
            leaves = [child for leaf in leaves for child in grown.get(leaf, [leaf])]
            if sitting.left == before:
                break  # no branch fits into the budget
        best = max(leaves, key=lambda leaf: leaf.worth)
        reason = sitting.drafts[best.steps[-1]].reason
        if ahead := len(best.steps) - 1:
            reason = f"{ahead} {'message' if ahead == 1 else 'messages'} ahead, at proposal {best.steps[-1] + 1}: {reason}"
        return sitting.reply(best.steps[0], reason)

    def may_grow(self, leaf: Branch) -> bool:
        """Return whether a leaf can be expanded."""
        return not leaf.ended and leaf.rounds < self.depth


@dataclass(frozen=True, kw_only=True)
class Beam(TreeSearch):
    """Beam search: each round expands the best branches of the previous round."""

    width: int = 2
    """Number of branches that each round expands."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("width", self.width, 1, 1_000)

    def select(self, leaves: Sequence[Branch]) -> tuple[list[Branch], list[Branch]]:
        """Keep the best `width` leaves and expand all of them."""
        kept = _ranked(leaves)[: self.width]
        return kept, [leaf for leaf in kept if self.may_grow(leaf)]


@dataclass(frozen=True, kw_only=True)
class BestFirst(TreeSearch):
    """Best-first search: expands the best branch so far until the calls are used or `depth` is reached."""

    depth: int = 3

    def select(self, leaves: Sequence[Branch]) -> tuple[list[Branch], list[Branch]]:
        """Keep all leaves and expand the best one."""
        return list(leaves), [leaf for leaf in _ranked(leaves) if self.may_grow(leaf)][:1]


def _ranked(leaves: Sequence[Branch]) -> list[Branch]:
    return sorted(leaves, key=lambda leaf: -leaf.worth)


async def _grow(sitting: Sitting, growing: Sequence[Branch]) -> dict[Branch, list[Branch]]:
    """Expand branches by one round within the call budget, and judge the results. Return the new leaves of each branch."""
    name = sitting.agent.name
    moved: list[Branch] = []
    while True:
        ready: list[tuple[Branch, Request]] = []
        waiting: list[tuple[Branch, int]] = []
        for branch in growing:
            calls = branch.conversation.asked() if branch.continues(name) else []
            if not calls:
                continue
            if [agent.name for agent, _ in calls] == [name]:
                ready.append((branch, calls[0][1]))
            else:
                waiting.append((branch, len(calls)))
        stepping: list[Branch] = []
        room = (sitting.left or 0) - sitting.reserve
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
    """Advance the fork of each branch by one message, all at the same time. Return the branches that advanced."""
    said = [len(branch.conversation.transcript.messages) for branch in branches]
    sitting.spent(sum(len(branch.conversation.asked()) for branch in branches))
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
    """Score leaves. If the judge does not decide, they keep their parents' scores."""
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
    """Judge the best leaf of each first proposal a second time in reverse order, and use the mean of both scores."""
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
