"""Estimates from assumptions, before a run has committed anything: numbers of calls and lengths of replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from camel.core.dialogue import GOAL, Dialogue
from camel.core.member import Member
from camel.core.message import Usage
from camel.core.results import ResultSettings
from camel.core.society import Society
from camel.generation.config import Assumptions, Figure, GenerateConfig, Guess
from camel.generation.seats import MEMBERS
from camel.models.prices import ModelPrice
from camel.scenarios import Level, Meeting, Question, RolePlay, Scenario, sample
from camel.scenarios.critics import CriticSettings

TOKENS_PER_WORD = 1.4
VERDICT_TOKENS = 60
"""Tokens of a critic's answer."""
RESULT_TOKENS = 20
"""Tokens of one field of a result."""
TOKENS_PER_MESSAGE = 4
"""Tokens that a chat template adds to a message."""
FURTHER_CALLS = Figure(0.0, 0.1, 2.0)
"""Additional calls per list for duplicates and bad lines, which are rare."""
STORED = Figure(0.15, 0.4, 0.5)
"""Bytes on disk per byte of text, in Parquet with zstd; fewer if a model repeats itself."""


class Need(NamedTuple):
    """Calls, tokens and bytes of one or many items."""

    calls: float = 0.0
    prompt: float = 0.0
    completion: float = 0.0
    cached: float = 0.0
    """The part of `prompt` that is cached."""
    bytes: float = 0.0
    """Bytes on disk after the commit."""

    def times(self, factor: float) -> Need:
        """Return this need multiplied by a factor."""
        return Need(*(value * factor for value in self))

    def plus(self, *others: Need) -> Need:
        """Return the sum of several needs."""
        return Need(*map(sum, zip(self, *others, strict=True)))

    def usage(self) -> Usage:
        """Return the need as a `Usage`."""
        return Usage(round(self.prompt), round(self.completion), round(self.cached), round(self.calls))


def messages_assumed(scenario: Scenario, assumed: Assumptions) -> Figure:
    """Return the assumed number of messages in a conversation, at most the scenario's limit."""
    end = scenario.end
    if isinstance(end, Meeting):
        # If nothing else ends it, it reaches its limit.
        ends_early = bool(end.society.stop.done or end.society.stop.vote)
        return Figure(*(end.society.limit * part for part in ((0.3, 0.7, 1.0) if ends_early else (1, 1, 1))))
    most = end.max_messages if isinstance(end, RolePlay | Dialogue) else 1
    return Figure(*(min(case_of(assumed.messages, case), most) for case in range(3)))


class Guesses:
    """Estimates one item of each kind from assumptions, in three cases: low, likely, high."""

    def __init__(
        self,
        scenario: Scenario,
        assumed: Assumptions,
        critic: CriticSettings | None = None,
        result: ResultSettings | None = None,
    ) -> None:
        self._scenario, self._assumed, self._critic, self._result = scenario, assumed, critic, result
        rendered = [len(part.text) / assumed.characters_per_token for part in sample(scenario)]
        asked = len(scenario.asked)
        self._list_prompts = dict(zip((level.name for level in scenario.asked), rendered, strict=False))
        self._end_prompts = rendered[asked:]

    def shares(self, config: GenerateConfig) -> list[tuple[float, ModelPrice | None]]:
        """Return each model's approximate share of a conversation's tokens, and its price."""
        end, parts = self._scenario.end, dict[str, float]()
        if isinstance(end, Meeting):
            parts = {f"{MEMBERS}.{name}": 1.0 for name in end.society.names}
        elif isinstance(end, Dialogue):
            parts = dict.fromkeys(end.names, 1.0)
            parts |= {GOAL: len(end.names) / end.stops.goal.every} if end.stops.goal else {}
        elif isinstance(end, RolePlay):
            parts = {"user": 0.5, "assistant": 0.5, "specifier": 0.02 if end.specify else 0.0}
            if self._critic:
                # Of the additional calls per message, one judges and the others propose.
                parts["critic"] = len(self._critic.seats) / 2
        else:
            parts = {"assistant": 1.0}
        parts["result"] = 0.1 if self._result else 0.0
        shares: list[tuple[float, ModelPrice | None]] = []
        for name, part in parts.items():
            seat = config.models.get(name)
            if seat is None:
                shares.append((part, config.model.cost()))
                continue
            total = sum(one.weight for one in seat.candidates)
            shares += [(part * one.weight / total, one.model.cost()) for one in seat.candidates]
        return [one for one in shares if one[0]]

    def of_list(self, level: Level) -> Callable[[int], Need]:
        """Return a function that estimates one list of a level. Each further call for a list contains the items so far."""

        def need(case: int) -> Need:
            item = case_of(self._assumed.item_tokens, case)
            full, rest = divmod(level.count, level.ask)
            least = full + (rest > 0)
            extra = FURTHER_CALLS[case]
            named = level.ask * least * (least - 1) / 2 + extra * level.count
            prompt = (least + extra) * (self._list_prompts[level.name] + TOKENS_PER_MESSAGE) + named * item
            completion = level.count * item * (1 + extra / 4)
            return Need(least + extra, prompt, completion, 0, level.count * item * 4)

        return need

    def of_conversation(self, case: int) -> Need:
        """Estimate one conversation, in which each call sends all earlier messages."""
        end, assumed = self._scenario.end, self._assumed
        if isinstance(end, Meeting):
            return self._of_meeting(end.society, case)
        if isinstance(end, Dialogue):
            need, goal = (
                self._of_meeting(Society(members=tuple(map(Member, end.names))), case),
                end.stops.goal,
            )
            asked = 1 / goal.every / (len(end.seats) if goal.after else 1) if goal else 0.0
            calls = need.calls * asked
            return need.plus(Need(calls, need.prompt * asked, calls * VERDICT_TOKENS))
        assert isinstance(end, RolePlay)
        messages = messages_assumed(self._scenario, assumed)[case]
        message = case_of(assumed.message_tokens, case)
        word_limit = end.word_limit * TOKENS_PER_WORD
        prompts = list(self._end_prompts)
        specified = (prompts.pop(0) if end.specify else 0.0), (word_limit if end.specify else 0.0)
        assistant, user, opening = prompts[:3]
        system = (assistant + user + opening) / 2 + specified[1] + 2 * TOKENS_PER_MESSAGE
        # Near the limit, the number of messages varies little.
        spread = assumed.spread * min(1.0, (end.max_messages - messages) / messages)
        before = messages * (messages * (1 + spread**2) - 1) / 2
        talk = messages * system + before * (message + TOKENS_PER_MESSAGE)
        completion = messages * message + specified[1]
        calls, stored = messages, completion
        if self._critic:
            # Each call for a criticized message sends all earlier messages; the critic's call also has the proposals. A call
            # for proposals returns several of them, a judgment a few words for each.
            share = len(self._critic.seats) / 2 * messages
            extra = share * (self._critic.calls_per_message()[case] - 1)
            proposed = self._critic.proposals * message
            talk += extra * (talk / messages + proposed / 2)
            completion += share * (proposed - message) + extra * (proposed + VERDICT_TOKENS) / 2
            calls, stored = messages + extra, completion
        return Need(
            calls + bool(end.specify),
            talk + specified[0],
            completion,
            talk * min(1.0, case_of(assumed.cached, case)),
            (stored + 2 * system) * assumed.characters_per_token * STORED[case],
        )

    def of_task(self, case: int) -> Need:
        """Estimate one task that is specified before its conversation."""
        end = self._scenario.end
        assert isinstance(end, RolePlay)
        return Need(1, self._end_prompts[0], end.word_limit * TOKENS_PER_WORD)

    def of_rest(self, case: int) -> Need:
        """Estimate a conversation without the call that specifies its task."""
        return self.of_conversation(case).plus(self.of_task(case).times(-1))

    def with_result(self, item: Need, case: int) -> Need:
        """Add the request for the result, if there is one. It contains the whole conversation."""
        if self._result is None:
            return item
        rate, schema = self._assumed.characters_per_token, self._result.validator.schema
        asked = (len(self._result.prompt) + len(msgspec.json.encode(schema))) / rate
        answer = RESULT_TOKENS * len(schema.get("properties", ()))
        return item.plus(Need(1, item.completion + asked, answer, 0, answer * rate * STORED[case]))

    def _of_meeting(self, society: Society, case: int) -> Need:
        """Estimate one conversation of a society, up to its message limit. Each call sends what its speaker heard and said."""
        assumed, prompts = self._assumed, list(self._end_prompts)
        messages = messages_assumed(self._scenario, assumed)[case]
        message = case_of(assumed.message_tokens, case)
        first = [prompts.pop(0) for step in (society.planner, society.roles) if step]
        asked = sum(first) + TOKENS_PER_MESSAGE * len(first)
        listed = sum(
            count * case_of(assumed.item_tokens, case)
            for count in (society.planner and society.planner.steps, society.roles and society.roles.count)
            if count
        )
        members = len(society.members) + (society.roles.count if society.roles else 0)
        system = (sum(prompts) / len(prompts) if prompts else 200.0) + listed + 2 * TOKENS_PER_MESSAGE
        edges = sum(map(len, society.hears.listeners(society.names).values()))
        fixed = len(society.names) or 1
        share = (edges / fixed + 1) / fixed  # share of all messages that a member hears or says
        talk = messages * system + messages * (messages - 1) / 2 * share * (message + TOKENS_PER_MESSAGE)
        completion = messages * message + listed
        return Need(
            messages + len(first),
            talk + asked,
            completion,
            talk * min(1.0, case_of(assumed.cached, case)),
            (completion + members * system) * assumed.characters_per_token * STORED[case],
        )

    def of_answer(self, case: int) -> Need:
        """Estimate one question and its answer."""
        end, assumed = self._scenario.end, self._assumed
        assert isinstance(end, Question)
        unknown = min(2, len(self._list_prompts)) * case_of(assumed.item_tokens, case)
        prompt = self._end_prompts[0] + TOKENS_PER_MESSAGE + unknown
        answer = case_of(assumed.answer_tokens, case)
        return Need(1, prompt, answer, 0, (prompt + answer) * assumed.characters_per_token * STORED[case])


def case_of(guess: Guess, case: int) -> float:
    """Return the value of a guess in one case: 0 is low, 1 likely, 2 high."""
    return guess[case] if isinstance(guess, Figure) else guess
