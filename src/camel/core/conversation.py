"""The conversation loop: a walk over a message-passing graph of speakers (paper, section 3.1).

There is no other loop. Role playing is the graph with two nodes; a person is a speaker whose model is a person;
who speaks next and who hears whom are plain functions. All state is in the object, so whoever drives the loop may
stop after any message and go on later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from camel.core.agent import Agent
from camel.core.errors import ContextOverflow, InputError, ModelError
from camel.core.message import Message, well_formed
from camel.core.model import Reply, Request, Watch
from camel.core.stopping import NextCall, Stop, StopRule, checked_rules
from camel.core.transcript import Transcript

Turns = Callable[[Sequence[Message]], str]
"""Names who speaks next, given what was said."""
Hears = Callable[[str, str], bool]
"""Whether the first (a speaker) is heard by the second."""


def everyone(speaker: str, listener: str) -> bool:
    """Everyone hears everyone else."""
    return True


class Conversation:
    """Speakers who talk until a rule says stop."""

    def __init__(
        self,
        agents: Sequence[Agent],
        transcript: Transcript,
        *,
        rules: Sequence[StopRule],
        turns: Turns | None = None,
        hears: Hears = everyone,
        watch: Watch | None = None,
    ) -> None:
        self.agents = {agent.name: agent for agent in agents}
        if len(self.agents) != len(agents) or not agents:
            raise InputError("a conversation needs speakers with different names")
        self.transcript = transcript
        self.transcript.speakers = [agent.described() for agent in agents]
        self._rules = checked_rules(rules)
        self._turns = turns or round_robin([agent.name for agent in agents])
        self._listeners = {
            agent.name: [other for other in agents if other is not agent and hears(agent.name, other.name)]
            for agent in agents
        }
        self._histories = {agent.name: agent.opened() for agent in agents}
        self._watch = watch

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Walk on from where the conversation stands, one message at a time."""
        while self.transcript.stop is None:
            agent = self._next_speaker()
            history = self._histories[agent.name]
            call = NextCall(agent.name, history.tokens, agent.sampling.max_tokens, agent.context_tokens)
            if stop := self._first_stop(call):
                self.transcript.stop = stop
                return
            try:
                reply = await agent.model.reply(
                    Request(
                        history, agent.sampling, self.transcript.id, agent.name, agent.expects, self._watch
                    )
                )
            except ContextOverflow as error:
                # The estimate before the call was too low; to the conversation it is the same limit.
                self.transcript.stop = Stop(
                    "token_limit", f"the {agent.name}'s prompt no longer fits: {error}", agent.name
                )
                return
            except ModelError as error:
                self.transcript.stop = Stop("error", f"{type(error).__name__}: {error}", agent.name)
                raise
            message = self._heard(agent, reply)
            yield message

    def _next_speaker(self) -> Agent:
        name = self._turns(self.transcript.messages)
        try:
            return self.agents[name]
        except KeyError:
            raise InputError(f"turns named {name!r}, who is not in the conversation") from None

    def _first_stop(self, call: NextCall) -> Stop | None:
        for rule in self._rules:
            if stop := rule.check(self.transcript.messages, call):
                return stop
        return None

    def _heard(self, agent: Agent, reply: Reply) -> Message:
        """Record what was said and pass it on along the edges of the graph."""
        content, usage = well_formed(reply.content), reply.usage
        message = spoken(len(self.transcript.messages), agent.name, agent.role, content, reply)
        self.transcript.messages.append(message)
        # Several candidates share one count, which then says nothing about the one that was said.
        tokens = usage.completion or None if len(reply.choices) == 1 and not usage.unknown else None
        own = self._histories[agent.name]
        if usage.prompt:
            own.measured(usage.prompt)
        own.add("assistant", content, tokens=tokens)
        for listener in self._listeners[agent.name]:
            same_vocabulary = listener.model is agent.model
            self._histories[listener.name].add("user", content, tokens=tokens if same_vocabulary else None)
        return message


def spoken(index: int, speaker: str, role: str, content: str, reply: Reply) -> Message:
    """A reply as a message of a transcript."""
    return Message(
        index=index,
        speaker=speaker,
        role=role,
        content=content,
        model=reply.model,
        finish=reply.choices[0].finish,
        usage=reply.usage,
        latency=reply.latency,
        attempts=reply.attempts,
        guided=reply.guided,
    )


def round_robin(names: Sequence[str]) -> Turns:
    """Everybody in turn, in the order given."""
    order = tuple(names)
    return lambda messages: order[len(messages) % len(order)]
