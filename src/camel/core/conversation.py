"""The conversation loop: a walk over a message-passing graph of speakers (paper, section 3.1).

There is no other loop. Role playing is the graph with two nodes, and a person is a speaker whose model is a person. A
critic decides which of a speaker's proposals the others hear. Turns and listeners are plain functions. All state is in
the object, so the caller may stop after any message and continue later, or fork the conversation to look ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import Any, Protocol, cast, get_args

from msgspec.structs import replace

from camel.core.acting import ActingModel, Workplace, action_entries, tools_prompt
from camel.core.checks import shown
from camel.core.errors import ContextOverflow, InputError, Left, ModelError
from camel.core.heard import (
    Hears,
    Wording,
    by_name,
    edges_of,
    everyone,
    listeners_of,
    sent_for,
    together,
    with_actions,
)
from camel.core.history import History
from camel.core.memory import Forgotten, HistoryPolicy, forget, summarize
from camel.core.message import Message, Sampling, TokenTrace, Usage, well_formed
from camel.core.model import Choice, Expects, Model, Reply, Request, Watch, checked_model
from camel.core.stops import NextCall, Stop, StopRule, TokenLimit, checked_rules
from camel.core.tools import ActionInterrupted, Toolbox, checked_toolbox
from camel.core.transcript import Speaker, Transcript
from camel.core.world import check_world

Turns = Callable[[Sequence[Message]], str | Sequence[str]]
"""Returns the name of the next speaker, given the messages so far. Speakers that are returned together speak at the same time
and do not hear each other."""
_Heard = tuple[str, int | None]


class Critic(Protocol):
    """Decides what a speaker says.

    Start concurrent calls in an order that does not depend on timing, and await all of them before you start others:
    a journal identifies calls by that order.
    """

    async def reply(self, conversation: Conversation, agent: Agent, request: Request) -> Reply:
        """Return what `agent` says next, with the deliberation and the usage of every call made for it."""
        ...


class AwaitedRule(Protocol):
    """A stop rule that is asked when a message was said. It may call a model and replace the messages that were just said."""

    async def decide(self, conversation: Conversation, since: int) -> Stop | None:
        """Return a `Stop` to end the conversation. The messages from index `since` are new."""
        ...


@dataclass(frozen=True, slots=True)
class Agent:
    """A speaker: name, role, model and prompts. Holds no state: the conversation keeps what it heard."""

    name: str
    """Unique in its conversation; rules and transcripts refer to it."""
    role: str
    model: Model
    system: str = ""
    opening: str = ""
    """The first user message in the agent's chat. Only the agent that speaks first needs one."""
    sampling: Sampling = field(default_factory=Sampling)
    expects: Expects | None = None
    """The format of the agent's replies, for endpoints that can constrain output with a grammar."""
    critic: Critic | None = None
    """The critic that chooses what the agent says. None: the model's first reply is used."""
    history: HistoryPolicy = "full"
    """What happens to the agent's older turns when a prompt no longer fits the model's context window."""
    tools: Toolbox | None = None
    """What the agent may call before it speaks; a list of functions and tools is also accepted."""

    def __post_init__(self) -> None:
        name: Any = self.name
        sampling: Any = self.sampling
        if not isinstance(name, str) or not name:
            raise InputError(f"an agent's name must be text, not {shown(name)}")
        if not isinstance(sampling, Sampling):
            raise InputError(f"sampling must be a Sampling, not {shown(sampling)}")
        for field_name in ("role", "system", "opening"):
            if not isinstance(getattr(self, field_name), str):
                raise InputError(f"agent {field_name} must be text, not {shown(getattr(self, field_name))}")
        object.__setattr__(self, "model", checked_model(self.model))
        if self.history not in get_args(HistoryPolicy):
            raise InputError(f'history must be "full", "window" or "summarize", not {shown(self.history)}')
        if self.critic is not None and (
            isinstance(self.critic, type) or not callable(getattr(self.critic, "reply", None))
        ):
            raise InputError(
                f"critic must be an object with an async method reply(conversation, agent, request), not "
                f"{shown(self.critic)}"
            )
        tools = checked_toolbox(self.tools)
        object.__setattr__(self, "tools", tools)
        if tools and self.critic is not None:
            for one in tools.tools.values():
                if not one.read_only:
                    raise InputError(
                        f"the tool {one.name} may change something, and {name} has a critic, who discards proposals: use tools "
                        "that are declared read_only, or remove the critic"
                    )

    def without_critic(self) -> Agent:
        """Return the agent without its critic. A person is replaced by the person's stand-in model, if there is one."""
        stand_in = self.model.stand_in
        if self.critic is None and stand_in is None:
            return self
        return replace_fields(self, critic=None, model=stand_in or self.model)

    def described(self) -> Speaker:
        """Return the agent as the transcript records it."""
        named = self.name, self.role, self.system, self.opening
        about = Speaker(*named, self.sampling, self.model.name, self.history)
        if tools := self.tools:
            return replace(about, tools=list(tools.schemas), tool_form=tools.form)
        return about

    def at(self, place: Workplace) -> Agent:
        """Return the agent in a conversation: with a prompt and a model for its tools, if it has tools."""
        tools = self.tools
        if tools is None:
            return self
        for one in tools.tools.values() if place.again else ():
            if not one.repeatable:
                raise InputError(
                    f"validate may make a conversation again, and the tool {one.name} may change something each time: remove "
                    "validate, or declare the tool idempotent or read_only"
                )
        system = "\n\n".join(filter(None, (self.system, tools_prompt(tools))))
        model = ActingModel(self.model, self.name, tools, place)
        return replace_fields(self, system=system, model=model)


class Conversation:
    """Speakers who converse until a stop rule ends the conversation."""

    def __init__(
        self,
        agents: Sequence[Agent],
        transcript: Transcript,
        *,
        rules: Sequence[StopRule],
        turns: Turns | None = None,
        hears: Hears | Mapping[str, Collection[str]] = everyone,
        wording: Wording | None = None,
        watch: Watch | None = None,
        hear_actions: bool = False,
        workplace: Workplace | None = None,
    ) -> None:
        """If `hear_actions` is true, listeners also read the tool calls of speakers. `workplace` is what the tools share."""
        self._place = workplace or Workplace()
        agents = [agent.at(self._place) for agent in agents]
        self.agents = {agent.name: agent for agent in agents}
        if len(self.agents) != len(agents) or not agents:
            raise InputError("the speakers are empty or contain a name twice: pass at least one, each once")
        self.transcript = transcript
        self.transcript.speakers = [agent.described() for agent in agents]
        self._rules = checked_rules(rules)
        self._awaited = [cast("AwaitedRule", rule) for rule in self._rules if hasattr(rule, "decide")]
        self._turns = turns or round_robin([agent.name for agent in agents])
        self._wording = wording or by_name
        names = list(self.agents)
        edges = edges_of(names, hears)
        if any(len(found) < len(names) - 1 for found in edges.values()):
            transcript.hears = edges
        transcript.hear_actions = hear_actions
        transcript.wording = getattr(wording, "__name__", type(wording).__name__) if wording else ""
        self._listeners = listeners_of(edges, named=wording is not None)
        self._histories = {agent.name: History(agent.system) for agent in agents}
        self._inboxes: dict[str, list[_Heard]] = {
            agent.name: [(agent.opening, None)] if agent.opening else [] for agent in agents
        }
        """The texts that each speaker has heard since it last spoke, with the length in tokens if known."""
        self._forgotten: dict[str, Forgotten] = {}
        """What each speaker with a shortened history has dropped."""
        self._summarizes = True
        self._watch = watch
        self._told = len(transcript.messages)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Continue the conversation, one message at a time."""
        messages = self.transcript.messages
        try:
            while True:
                while self._told < len(messages):
                    self._told += 1
                    yield messages[self._told - 1]
                if self.transcript.stop is not None:
                    check_world(self._place, self.transcript)
                    return
                await self.step()
        finally:
            for agent in self.agents.values():
                if isinstance(agent.model, ActingModel):
                    await agent.model.release_tools()

    async def step(self) -> None:
        """Get one message from each agent that speaks now. End the conversation instead if a stop rule asks for it."""
        seen = len(self.transcript.messages)
        await self._say_next(seen)
        for rule in self._awaited if len(self.transcript.messages) > seen else ():
            try:
                self.transcript.stop = self.transcript.stop or await rule.decide(self, seen)
            except ModelError as error:
                self.transcript.stop = Stop.failed(error, "stop rule")
                raise

    async def _say_next(self, seen: int) -> None:
        calls = self.asked()
        if len(calls) == 1:
            if reply := await self._ask(*calls[0]):
                self._heard(calls[0][0], reply)
            return
        # Started in order and all awaited, so that a journal numbers the calls the same each time. Critics and summaries
        # make several calls each, so they take turns.
        turn = asyncio.Lock()
        outcomes = await asyncio.gather(
            *(self._ask(*call, turn=turn) for call in calls), return_exceptions=True
        )
        for (agent, _), outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, Reply):
                self._heard(agent, outcome, seen)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def asked(self) -> list[tuple[Agent, Request]]:
        """Return the agents that speak now, each with its request. Return an empty list if a stop rule ends the conversation
        here."""
        calls: list[tuple[Agent, Request]] = []
        messages = self.transcript.messages
        for agent in self._next_speakers():
            history = self._opened(agent.name)
            call = NextCall(
                agent.name, history.tokens, agent.sampling.max_tokens, agent.model.context_tokens, len(calls)
            )
            if agent.history != "full" and (shorter := self._forget(agent, call)):
                history, call = shorter, replace(call, prompt_tokens=shorter.tokens)
            if stop := next(filter(None, (rule.check(messages, call) for rule in self._rules)), None):
                if not calls:
                    self.transcript.stop = stop
                break  # the earlier ones still speak; the rules are checked again after them
            request = Request(
                history, agent.sampling, self.transcript.id, agent.name, agent.expects, self._watch
            )
            calls.append((agent, request))
        return calls

    async def _ask(self, agent: Agent, request: Request, turn: asyncio.Lock | None = None) -> Reply | None:
        """Return an agent's reply, or None if the call ended the conversation."""
        try:
            if self._forgotten and (forgotten := self._forgotten.get(agent.name)) and forgotten.pending:
                async with turn or contextlib.nullcontext():
                    history, forgotten = await summarize(agent.model, request, agent.opening, forgotten)
                self._histories[agent.name], self._forgotten[agent.name] = history, forgotten
                request = replace(request, history=history)
            if agent.critic is not None:
                async with turn or contextlib.nullcontext():
                    return await agent.critic.reply(self, agent, request)
            return await agent.model.reply(request)
        except Left as left:
            self.transcript.stop = Stop("stopped", str(left), agent.name)
            return None
        except ContextOverflow as error:
            # The estimate before the call was too low; record the same reason as if it had been right.
            self.transcript.stop = Stop(
                "token_limit", f"the {agent.name}'s prompt no longer fits: {error}", agent.name
            )
            return None
        except ActionInterrupted as error:
            self.transcript.stop = Stop.failed(error, agent.name)
            return None
        except ModelError as error:
            self.transcript.stop = Stop.failed(error, agent.name)
            raise
        finally:
            if self._place.unspoken:
                self.transcript.unspoken = [*self._place.unspoken]

    def _forget(self, agent: Agent, call: NextCall) -> History | None:
        """Shorten the agent's history and return it if the prompt of `call` does not fit. Return None if nothing was dropped."""
        rooms = (rule.room(call) for rule in self._rules if isinstance(rule, TokenLimit))
        room = min((room for room in rooms if room is not None), default=None)
        if room is None or call.prompt_tokens <= room:
            return None
        name, summarizes = agent.name, self._summarizes and agent.history == "summarize"
        before = self._forgotten.get(name, Forgotten())
        if found := forget(self._histories[name], agent.opening, room, before, summarizes=summarizes):
            self._histories[name], self._forgotten[name] = found
        return found and found[0]

    def _next_speakers(self) -> Iterator[Agent]:
        named = self._turns(self.transcript.messages)
        if not named:  # the loop would never end
            raise InputError("turns returned no speaker: it must return at least one name")
        for name in (named,) if isinstance(named, str) else named:
            try:
                yield self.agents[name]
            except KeyError:
                raise InputError(f"turns returned {name!r}, who is not in the conversation") from None

    def _opened(self, name: str) -> History:
        """Return a speaker's history, with the texts it has heard added as one entry. Chat templates need alternating turns."""
        history, inbox = self._histories[name], self._inboxes[name]
        if inbox:
            text, tokens = inbox[0]
            if len(inbox) > 1:
                text = together([text for text, _ in inbox])
                lengths = [length for _, length in inbox if length is not None]
                tokens = sum(lengths) if len(lengths) == len(inbox) else None
            history.add("user", text, tokens=tokens)
            inbox.clear()
        return history

    def _heard(self, agent: Agent, reply: Reply, seen: int = -1) -> Message:
        """Add the reply to the transcript as a message, and pass it to its listeners."""
        content, usage = well_formed(reply.content), reply.usage
        index = len(self.transcript.messages)
        message = spoken(index, agent.name, agent.role, content, reply, -1 if seen == index else seen)
        if self._forgotten and (forgotten := self._forgotten.get(agent.name)):
            total = usage + forgotten.usage
            message = replace(message, forgot=forgotten.turns, summary=forgotten.summary, usage=total)
            self._forgotten[agent.name] = forgotten._replace(summary="", usage=Usage())
        self.transcript.messages.append(message)
        # The count is only this message's if there was one candidate and one call, without a thought or with the
        # thought counted separately.
        single = reply.deliberation is None and not reply.actions
        counted = len(reply.choices) == 1 and single and not usage.unknown
        if reply.choices[0].reasoning and not usage.reasoning:
            counted = False
        tokens = usage.completion - usage.reasoning or None if counted else None
        own = self._histories[agent.name]
        if usage.prompt and single:
            own.measured(usage.prompt)
        for entry in action_entries(message.actions, agent.tools.form) if agent.tools else ():
            own.append(entry)
        own.add("assistant", content, tokens=tokens)
        named, alone = self._listeners[agent.name]
        if self.transcript.hear_actions and message.actions:
            told, tokens = with_actions(message), None
        else:
            told = message
        if named:
            heard = self._wording(told), None  # formatted once for all listeners
            for listener in named:
                self._inboxes[listener].append(heard)
        for listener in alone:
            # Another model's vocabulary gives another count.
            known = tokens if self.agents[listener].model is agent.model else None
            self._inboxes[listener].append((told.content, known))
        return message

    def fork(self) -> Conversation:
        """Return an independent copy of the conversation, for a critic that looks ahead.

        Speakers of the copy have no critics and do not summarize, so that looking ahead does not recurse. Prompts and session
        are the same to the byte, so that the endpoint has them cached.
        """
        other = copy(self)
        other.transcript = replace(self.transcript, messages=self.transcript.messages.copy())
        other.agents = {name: agent.without_critic() for name, agent in self.agents.items()}
        other._histories = {name: history.copy() for name, history in self._histories.items()}
        other._inboxes = {name: inbox.copy() for name, inbox in self._inboxes.items()}
        other._forgotten = {n: one._replace(pending=(), usage=Usage()) for n, one in self._forgotten.items()}
        other._summarizes = False
        other._awaited = []
        other._watch = None
        other._told = len(other.transcript.messages)
        return other

    def restore(self, record: Transcript) -> None:
        """Add the messages of a record of this conversation, without calling a model. Their usage is not counted again."""
        for index, message in enumerate(record.messages):
            if message.forgot or message.summary:
                self._inboxes[message.speaker].clear()
                self._histories[message.speaker] = history = History()
                for entry in sent_for(record, index):
                    history.append(entry)
                self._forgotten[message.speaker] = Forgotten(message.forgot, summary=message.summary)
            if message.seen < 0:  # the speakers that speak together hear nothing of each other
                together = [one.speaker for one in record.messages[index + 1 :] if one.seen == index]
                for name in (message.speaker, *together):
                    self._opened(name)
            choice = Choice(message.content, message.finish, reasoning=message.reasoning)
            # Its usage measures the length of the prompt.
            usage = Usage() if message.summary else message.usage
            reply = Reply((choice,), usage, message.model, actions=tuple(message.actions))
            reply = replace(reply, deliberation=message.deliberation)
            heard = self._heard(self.agents[message.speaker], reply, message.seen)
            self.transcript.messages[-1] = replace(heard, usage=Usage())
        self.transcript.stop = None
        self._told = len(self.transcript.messages)

    def _repr_html_(self) -> str:
        """Show the messages so far in a notebook."""
        return self.transcript._repr_html_()  # pyright: ignore[reportPrivateUsage] - the notebook's name for it

    def say(self, name: str, reply: Reply) -> Message:
        """Add a message of a speaker without calling a model. The iterator yields it as the next message."""
        self._opened(name)
        return self._heard(self.agents[name], reply)


def spoken(index: int, speaker: str, role: str, content: str, reply: Reply, seen: int = -1) -> Message:
    """Turn a reply into a message of a transcript."""
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
        deliberation=reply.deliberation,
        reasoning=reply.choices[0].reasoning,
        actions=list(reply.actions),
        tokens=_trace(reply.choices[0].logprobs),
        seen=seen,
    )


def _trace(tokens: Sequence[Any] | None) -> TokenTrace | None:
    """Return the tokens of a reply with their log probabilities, and their ids if the endpoint sent them."""
    if not tokens:
        return None
    dicts = [cast("dict[str, Any]", token) for token in tokens if isinstance(token, dict)]
    told = [token for token in dicts if isinstance(token.get("logprob"), int | float)]
    ids = [int(token["token_id"]) for token in told if isinstance(token.get("token_id"), int)]
    return TokenTrace(ids if len(ids) == len(told) else [], [float(token["logprob"]) for token in told])


def round_robin(names: Sequence[str]) -> Turns:
    """Return turns in which all speakers speak one after the other, in the given order."""
    order = tuple(names)
    return lambda messages: order[len(messages) % len(order)]
