"""Role playing: an AI user instructs an AI assistant until their task is done (paper, section 3).

This file only sets the table: it checks what it was given, has the task specified, fills the inception prompts and
hands two agents to the conversation loop.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from camel.core import inception as prompts
from camel.core.checks import shown
from camel.core.conversation import Agent, Conversation, Critic
from camel.core.critic import BestOf
from camel.core.errors import InputError, ModelError, NoRoom
from camel.core.inception import Inception, fill
from camel.core.judge import ModelJudge
from camel.core.message import Sampling
from camel.core.model import Model, Watch, checked_model
from camel.core.play import Play
from camel.core.stops import MAX_MESSAGES, NextCall, Stop, StopRule, TokenLimit, checked_rules, paper_rules
from camel.core.task import (
    MAX_ROLE_CHARS,
    MAX_TASK_CHARS,
    SPECIFIER,
    Task,
    TaskSpecifier,
    as_sentence_part,
    checked_text,
)
from camel.core.transcript import Transcript

ASSISTANT, USER = "assistant", "user"
AGENT_SAMPLING = Sampling(temperature=0.2)
"""The original's default for both agents."""

T = TypeVar("T")


class RolePlaying(Play):
    """Two agents, an assistant and a user, working on a task.

    Iterate to follow the conversation message by message, or call `run()` for the finished transcript:

        async for message in RolePlaying("…", assistant="Python Programmer", user="Stock Trader", model="gpt-4.1-mini"):
            print(message.role, message.content)

    `model` is a name or an object; left out, it is the one that the environment names. `max_messages=10` is a limit of ten
    messages, `rules` replace the paper's rules beside it. A `critic` chooses what the assistant says, a `user_critic` what
    the user says; `critic=3` lets the model choose the best of three proposals. `specify=False` takes the task as it is.
    """

    def __init__(
        self,
        task: str,
        *,
        assistant: str,
        user: str,
        model: Model | str | None = None,
        user_model: Model | str | None = None,
        temperature: float | None = None,
        max_messages: int | None = None,
        specify: bool = True,
        sampling: Sampling = AGENT_SAMPLING,
        user_sampling: Sampling | None = None,
        specifier: TaskSpecifier | None = TaskSpecifier(),  # noqa: B008 - frozen
        rules: Sequence[StopRule] | None = None,
        critic: Critic | int | None = None,
        user_critic: Critic | int | None = None,
        inception: Inception | None = None,
        watch: Watch | None = None,
        id: str = "",
    ) -> None:
        self._roles = {
            "ASSISTANT_ROLE": checked_text("the assistant's role", assistant, MAX_ROLE_CHARS),
            "USER_ROLE": checked_text("the user's role", user, MAX_ROLE_CHARS),
        }
        self._task = Task(checked_text("the task", task, MAX_TASK_CHARS))
        speaks = checked_model("" if model is None else model)
        self._models = {ASSISTANT: speaks, USER: speaks if user_model is None else checked_model(user_model)}
        if temperature is not None:
            sampling = replace(sampling, temperature=temperature)
        self._sampling = {ASSISTANT: sampling, USER: sampling if user_sampling is None else user_sampling}
        self._critics = {ASSISTANT: self._critic(ASSISTANT, critic), USER: self._critic(USER, user_critic)}
        self._specifier = _checked("specifier", specifier, TaskSpecifier) if specify else None
        limit = MAX_MESSAGES if max_messages is None else max_messages
        self._rules = paper_rules(max_messages=limit) if rules is None else checked_rules(rules, max_messages)
        self._inception = _checked("inception", inception, Inception) or prompts.paper()
        self._watch = watch
        if watch is not None and not callable(watch):
            raise InputError(f"watch must be a function, not {shown(watch)}")
        self._conversation: Conversation | None = None
        self.transcript = Transcript(_checked("id", id, str) or uuid.uuid4().hex, self._task)
        self._drafted = self._agents(self._task.original)
        """The agents as they are if the task stays as given."""
        self._check_room()

    def _critic(self, seat: str, critic: Critic | int | None) -> Critic | None:
        """A critic; a number is that of the proposals of which the seat's model chooses the best."""
        if not isinstance(critic, int):
            return critic
        return BestOf(judge=ModelJudge(self._models[seat]), proposals=critic)

    async def prepare(self) -> Conversation:
        """Specify the task if that has not been done yet, and return the conversation, ready to begin."""
        if self._conversation is None:
            if self._specifier and self.transcript.stop is None:
                await self._specify(self._specifier)
            task = self.transcript.task
            agents = self._agents(task.text) if task.specified else self._drafted
            self._conversation = Conversation(agents, self.transcript, rules=self._rules, watch=self._watch)
        return self._conversation

    async def _specify(self, specifier: TaskSpecifier) -> None:
        try:
            self.transcript.task = await specifier.specify(
                self._task,
                self._inception.specifier,
                self._roles,
                self._models[ASSISTANT],
                self.transcript.id,
                self._watch,
            )
        except ModelError as error:
            self.transcript.stop = Stop.failed(error, SPECIFIER)
            raise

    def asked(self) -> list[Model | None]:
        """Both agents' models, and the specifier's."""
        return [*self._models.values(), self._specifier and self._specifier.model]

    def _agents(self, task: str) -> list[Agent]:
        """Build the user, who speaks first, and the assistant."""
        values = {**self._roles, "TASK": as_sentence_part(task)}
        return [
            Agent(
                name=USER,
                role=self._roles["USER_ROLE"],
                model=self._models[USER],
                system=fill(self._inception.user, values),
                opening=fill(self._inception.opening, values),
                sampling=self._sampling[USER],
                expects="instruction",
                critic=self._critics[USER],
            ),
            Agent(
                name=ASSISTANT,
                role=self._roles["ASSISTANT_ROLE"],
                model=self._models[ASSISTANT],
                system=fill(self._inception.assistant, values),
                sampling=self._sampling[ASSISTANT],
                expects="solution",
                critic=self._critics[ASSISTANT],
            ),
        ]

    def _check_room(self) -> None:
        """Refuse prompts that cannot fit their model's window before anything is paid for."""
        limits = [rule for rule in self._rules if isinstance(rule, TokenLimit)] or [TokenLimit(reserve=1)]
        for agent in self._drafted:
            call = NextCall(
                agent.name, agent.opened().tokens, agent.sampling.max_tokens, agent.context_tokens
            )
            for limit in limits:
                if stop := limit.check((), call):
                    raise NoRoom(f"{stop.detail}: shorten the task or the roles, or lower max_tokens")


def _checked(name: str, value: T, kind: type) -> T:
    if value is not None and not isinstance(value, kind):
        raise InputError(f"{name} must be a {kind.__name__}, not {shown(value)}")
    return value
