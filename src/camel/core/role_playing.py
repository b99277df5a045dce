"""Role playing: an AI user instructs an AI assistant until their task is done (paper, section 3).

This module checks its arguments, has the task specified, fills the inception prompts and
passes two agents to the conversation loop.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from camel.core import inception as prompts
from camel.core.checks import shown
from camel.core.conversation import Agent, Conversation, Critic
from camel.core.critic import BestOf
from camel.core.errors import InputError, NoRoom
from camel.core.history import History
from camel.core.identity import identity_of
from camel.core.inception import Inception, fill
from camel.core.judge import ModelJudge
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling, with_seed
from camel.core.model import Model, Watch, checked_model
from camel.core.play import Declaration, Play
from camel.core.stops import MAX_MESSAGES, NextCall, StopRule, TokenLimit, checked_rules, play_rules
from camel.core.task import MAX_ROLE_CHARS, MAX_TASK_CHARS, SPECIFIER, Task, TaskSpecifier, checked_text
from camel.core.tools import Toolbox, Workplace
from camel.core.transcript import Transcript
from camel.core.world import columns_of, start_world, with_row, world_class, world_toolbox

ASSISTANT, USER = "assistant", "user"
AGENT_SAMPLING = Sampling(temperature=0.2)
"""The default of the paper's code, for both agents."""

_TEXTS = ("task", "assistant", "user")
"""Arguments that may have placeholders."""

T = TypeVar("T")


class RolePlaying(Play, Declaration):
    """Two agents, an assistant and a user, working on a task.

    Iterate to follow the conversation message by message, or call `run()` for the finished transcript:

        async for message in RolePlaying("…", assistant="Python Programmer", user="Stock Trader", model="gpt-4.1-mini"):
            print(message.role, message.content)

    It is a declaration: every `run()` is a new conversation, and `camel.generate` fills `<placeholders>` in the task and the
    roles from rows of values. `model` is a name or an object; the default is the one that the environment names.
    `max_messages=10` limits the length, `rules` replace the other rules. A `critic` chooses what the assistant
    says, a `user_critic` what the user says; `critic=3` lets the model choose the best of three proposals. `specify=False`
    uses the task as it is. `history="window"` or `"summarize"` lets both continue when a prompt no longer fits;
    `user_history` overrides it for the user. `values` are the values of further placeholders of the prompts.
    `assistant_tools` and `user_tools` are functions and tools that an agent may call before it speaks; with `hear_actions`
    the other agent reads the calls. `world`, a subclass of `World`, is a state that the tools of both share.
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
        history: HistoryPolicy = "full",
        user_history: HistoryPolicy | None = None,
        values: Mapping[str, str] | None = None,
        assistant_tools: Sequence[Any] | Toolbox | None = None,
        user_tools: Sequence[Any] | Toolbox | None = None,
        hear_actions: bool = False,
        world: Any = None,
        watch: Watch | None = None,
        id: str = "",
        workplace: Workplace | None = None,
    ) -> None:
        self._given: dict[str, Any] = {
            **locals(),  # all arguments, for `again`
            "assistant_tools": world_toolbox(assistant_tools, world),
            "user_tools": world_toolbox(user_tools, world),
            "world": world_class(world) if isinstance(world, str) else world,
        }
        for name in ("self", "id", "workplace"):
            del self._given[name]
        self._workplace = workplace
        self._roles = {
            **(values or {}),
            "ASSISTANT_ROLE": checked_text("the assistant's role", assistant, MAX_ROLE_CHARS),
            "USER_ROLE": checked_text("the user's role", user, MAX_ROLE_CHARS),
        }
        self._task = Task(checked_text("the task", task, MAX_TASK_CHARS))
        if temperature is not None:
            sampling = replace(sampling, temperature=temperature)
        self._sampling = {ASSISTANT: sampling, USER: sampling if user_sampling is None else user_sampling}
        self._specifier = _checked("specifier", specifier, TaskSpecifier) if specify else None
        limit = MAX_MESSAGES if max_messages is None else max_messages
        self._rules = play_rules(max_messages=limit) if rules is None else checked_rules(rules, max_messages)
        self._inception = _checked("inception", inception, Inception) or prompts.paper()
        self._watch = watch
        if watch is not None and not callable(watch):
            raise InputError(f"watch must be a function, not {shown(watch)}")
        self.transcript = Transcript(_checked("id", id, str) or uuid.uuid4().hex, self._task)
        self._drafted: list[Agent] = []
        """The agents for the task as given."""
        self._models: dict[str, Model] = {}
        self._critics: dict[str, Critic | None] = {}
        if model is not None:  # otherwise it is resolved when the conversation starts
            self._seat()

    def _seat(self) -> None:
        """Find the models of all seats, and check that the prompts fit into their context windows."""
        if self._drafted:
            return
        model, user_model = self._given["model"], self._given["user_model"]
        speaks = checked_model("" if model is None else model)
        self._models = {ASSISTANT: speaks, USER: speaks if user_model is None else checked_model(user_model)}
        self._critics = {
            ASSISTANT: self._critic(ASSISTANT, self._given["critic"]),
            USER: self._critic(USER, self._given["user_critic"]),
        }
        self._drafted = self._agents(self._task)
        self._check_room()

    def _critic(self, seat: str, critic: Critic | int | None) -> Critic | None:
        """Return a critic. If `critic` is a number, the seat's model chooses the best of that many proposals."""
        if not isinstance(critic, int):
            return critic
        return BestOf(judge=ModelJudge(self._models[seat]), proposals=critic)

    # --- as a declaration --------------------------------------------------------------------------------------------

    def again(self, **changes: Any) -> RolePlaying:
        """Return a copy with changes, for another conversation."""
        return RolePlaying(**{**self._given, **changes})

    def run(self) -> Transcript:
        """Run a new conversation to its end from code that is not async; also works inside a notebook."""
        return self.again().run() if self.transcript.stop and self.transcript.messages else super().run()

    @property
    def title(self) -> str:
        """The two roles, as a title."""
        return f"{self._given['assistant']} and {self._given['user']}"

    @property
    def placeholders(self) -> frozenset[str]:
        """The placeholders of the task and the roles."""
        texts = (self._given[name] for name in _TEXTS)
        return prompts.placeholders(*texts) | columns_of(self._given["world"])

    def fill(self, row: Mapping[str, Any]) -> RolePlaying:
        """Return a copy with its placeholders filled."""
        filled = {name: fill(self._given[name], row) for name in _TEXTS}
        return self.again(**filled, world=with_row(self._given["world"], row))

    def identity(self) -> dict[str, Any]:
        """Return what identifies the declaration: everything except the models and the rows."""
        # Omit later arguments that have their defaults, so that older runs keep their identity.
        unset = ("user_history", "values", "assistant_tools", "user_tools", "world")
        usual = {"history": "full", "hear_actions": False, **dict.fromkeys(unset)}
        left_out = ("model", "watch", *(name for name in usual if self._given[name] == usual[name]))
        return {
            "kind": "role playing",
            **{name: identity_of(value) for name, value in self._given.items() if name not in left_out},
        }

    def with_rules(self, rules: Sequence[StopRule]) -> RolePlaying:
        """Return a copy with other stop rules. The limits on messages and tokens always apply."""
        return self.again(rules=rules)

    def own_model(self) -> Model:
        """Return the declared model, or the one that the environment names."""
        return checked_model("" if self._given["model"] is None else self._given["model"])

    def play(
        self,
        model: Model | Mapping[str, Model],
        *,
        id: str = "",
        seed: int | None = None,
        workplace: Workplace | None = None,
    ) -> RolePlaying:
        """Return one conversation, ready to start. `model` is one model, or models by seat with `""` for the others."""
        changes: dict[str, Any] = {"model": model}
        if isinstance(model, Mapping):
            if unknown := sorted({*model} - {"", ASSISTANT, USER}):
                raise InputError(f"there is no seat {unknown[0]!r} in a role play. Use {ASSISTANT} or {USER}")
            changes = {"model": model.get(ASSISTANT, model[""]), "user_model": model.get(USER, model[""])}
        own, specifier = self._given["user_sampling"], self._specifier
        changes["sampling"] = with_seed(self._given["sampling"], seed)
        changes["user_sampling"] = own and with_seed(own, seed)
        if specifier:
            changes["specifier"] = replace(specifier, sampling=with_seed(specifier.sampling, seed))
        return self.again(**changes, id=id, workplace=workplace)

    # --- as a conversation -------------------------------------------------------------------------------------------

    async def _open(self) -> Conversation:
        self._seat()
        if self._specifier and self.transcript.stop is None:
            await self._specify(self._specifier)
        task = self.transcript.task
        return Conversation(
            self._agents(task) if task.specified else self._drafted,
            self.transcript,
            rules=self._rules,
            watch=self._watch,
            hear_actions=self._given["hear_actions"],
            workplace=start_world(self._given["world"], self._workplace),
        )

    async def _specify(self, specifier: TaskSpecifier) -> None:
        with self._record_failure(SPECIFIER):
            self.transcript.task = await specifier.specify(
                self._task,
                self._inception.specifier,
                self._roles,
                self._models[ASSISTANT],
                self.transcript.id,
                self._watch,
            )

    def asked(self) -> list[Model | None]:
        """Return the models of both agents and of the task specifier."""
        self._seat()
        return [*self._models.values(), self._specifier and self._specifier.model]

    def _agents(self, task: Task) -> list[Agent]:
        """Build the user, who speaks first, and the assistant."""
        values = {**self._roles, "TASK": task.inserted}
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
                history=self._given["user_history"] or self._given["history"],
                tools=self._given["user_tools"],
            ),
            Agent(
                name=ASSISTANT,
                role=self._roles["ASSISTANT_ROLE"],
                model=self._models[ASSISTANT],
                system=fill(self._inception.assistant, values),
                sampling=self._sampling[ASSISTANT],
                expects="solution",
                critic=self._critics[ASSISTANT],
                history=self._given["history"],
                tools=self._given["assistant_tools"],
            ),
        ]

    def _check_room(self) -> None:
        """Raise `NoRoom` if an agent's first prompt does not fit the model's context window, before any call is paid for."""
        limits = [rule for rule in self._rules if isinstance(rule, TokenLimit)] or [TokenLimit(reserve=1)]
        for agent in self._drafted:
            history = History(agent.system)
            if agent.opening:
                history.add("user", agent.opening)
            call = NextCall(agent.name, history.tokens, agent.sampling.max_tokens, agent.model.context_tokens)
            for limit in limits:
                if stop := limit.check((), call):
                    raise NoRoom(f"{stop.detail}: shorten the task or the roles, or lower max_tokens")


def _checked(name: str, value: T, kind: type) -> T:
    if value is not None and not isinstance(value, kind):
        raise InputError(f"{name} must be a {kind.__name__}, not {shown(value)}")
    return value
