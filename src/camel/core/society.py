"""A society: members who work on a task, who hears whom, who speaks next, and when it ends.

`Society` is a frozen declaration, in Python or from a file (`camel.scenarios.load_society`); `play` passes its members to
the one conversation loop. The one decision to know: turns and stop rules are pure functions of the messages, so a society
is journaled, resumed and replayed like a conversation of two.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar, cast, get_args

import msgspec
from msgspec.structs import replace

from camel.core.checks import at_least, shown
from camel.core.conversation import Agent, Conversation, Critic
from camel.core.errors import InputError
from camel.core.grammar import DONE_TOKEN
from camel.core.graphs import Everyone, Graph
from camel.core.heard import Hears, by_name, everyone
from camel.core.identity import identity_of
from camel.core.inception import fill, placeholders, texts
from camel.core.member import Member, Names
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling, with_seed
from camel.core.model import Model, Watch, checked_model
from camel.core.planner import CASTING, PLANNER, Casting, Planner, assign_roles, plan_task
from camel.core.play import Play
from camel.core.role_playing import AGENT_SAMPLING
from camel.core.stops import (
    MAX_MESSAGES,
    DoneToken,
    MaxMessages,
    MaxRounds,
    MessageLoop,
    StopRule,
    TokenLimit,
    Vote,
    checked_rules,
)
from camel.core.task import MAX_TASK_CHARS, Task, checked_text
from camel.core.tools import Workplace
from camel.core.transcript import Transcript
from camel.core.turns import Policy, RoundRobin
from camel.core.world import columns_of, start_world, with_row, world_class, world_toolbox

SHORT_THANKS = 100
"""Longest message, in characters, that counts as thanks only; in larger groups longer messages also begin with thanks."""
PLACEHOLDERS: tuple[str, ...] = ("NAME", "ROLE", "SELF", "BRIEF", "MEMBERS", "PROCEDURE", "TASK")
"""Placeholders of the members' prompts."""
_NAMED = 40
"""Maximum number of other members listed in a member's prompt."""

T = TypeVar("T", Casting, Planner)


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a society ends. The first condition that holds ends it. A loop, or a prompt that no longer fits, always ends it."""

    done: str = ""
    """The member that may declare the task done."""
    vote: Vote | None = None
    max_rounds: int | None = None
    """Maximum number of rounds. A round is one pass through the order or the groups, or as many messages as there are members."""
    max_messages: int | None = None
    """Maximum number of messages. Default: as given by `rounds`, or 40."""


class GroupDeclaration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A declaration of several speakers as plain data. Its first field is positional."""

    task: str = ""
    """The task or the situation, which all speakers know. `play` of a society may get another one."""

    def run(self: Any) -> Transcript:
        """Run it to its end from code that is not async; also works inside a notebook."""
        return self.play(self.own_model()).run()

    def identity(self: Any) -> dict[str, Any]:
        """Return what identifies the declaration: everything except the model and the rows of values."""
        declared = replace(self, model=None, world=world_class(self.world))
        return {"kind": self.kind, **identity_of(declared)}

    def own_model(self: Any) -> Model:
        """Return the declared model, or the one that the environment names."""
        return checked_model("" if self.model is None else self.model)


class Society(
    GroupDeclaration, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, dict=True
):
    """Members, turns and ending of a group: `Society("Plan the festival", members=["Ada", "Bob"], model="gpt-4.1-mini").run()`.

    It is a declaration: every `run()` is a new conversation, and `camel.generate` fills `<placeholders>` in the task and
    the members' roles and briefs from rows of values.
    """

    kind: ClassVar[str] = "society"
    members: tuple[Member, ...] = ()
    """The members; a plain name is also accepted."""
    title: str = ""
    model: Any = None
    """The model of all members, a name or an object. Default: the one that the environment names."""
    prompt: str = ""
    """The members' system prompt: `<NAME>`, `<ROLE>`, `<SELF>` (both), `<BRIEF>`, `<MEMBERS>`, `<PROCEDURE>` and `<TASK>`
    are filled in. Default: one that comes with CAMEL. Shared text comes first, for the endpoint's prefix cache."""
    opening: str = ""
    """The first message that all members hear. Default: one that comes with CAMEL."""
    turns: Policy = RoundRobin()
    hears: Graph = Everyone()
    stop: Ending = Ending()
    sampling: Sampling | None = None
    roles: Casting | None = None
    """Further members that a model proposes before the conversation starts."""
    planner: Planner | None = None
    """Lets a model plan the task before the conversation starts."""
    values: dict[str, str] = {}
    """Values of further placeholders of the prompts and the opening."""
    history: HistoryPolicy | None = None
    """What happens to members' older turns when a prompt no longer fits. Default: `full`, which ends the society."""
    hear_actions: bool = False
    """Whether the others read the tool calls of a member."""
    world: Any = None
    """The state that the members' tools share: a subclass of `World`, or its name as `module:Class`."""

    def __post_init__(self) -> None:
        members: Any = self.members
        if isinstance(members, tuple | list):
            members = tuple(
                Member(one) if isinstance(one, str) else one for one in cast("list[Any]", members)
            )
            msgspec.structs.force_setattr(self, "members", members)
        if not isinstance(members, tuple | list) or not all(
            isinstance(member, Member) for member in cast("list[Any]", members)
        ):
            raise InputError(f"members must be a list of names or Member objects, not {shown(self.members)}")
        _one_of("turns", self.turns, get_args(Policy))
        _one_of("hears", self.hears, get_args(Graph))
        _one_of("stop", self.stop, (Ending,))
        names = Names(member.name for member in self.members)
        if not self.members and self.roles is None:
            raise InputError("there are no members: add [[members]], or [roles] to have a model propose them")
        names.check("turns", self.turns.mentioned())
        names.check("hears", self.hears.mentioned())
        names.check("stop.done", (self.stop.done,) if self.stop.done else ())
        names.check("stop.vote.by", self.stop.vote.by if self.stop.vote else ())
        if self.roles is None and self.turns.round(len(self.members)) < 1:
            raise InputError("the moderator is the only member: add another member")
        for name in ("max_messages", "max_rounds"):
            if (value := getattr(self.stop, name)) is not None:
                at_least(1, **{f"stop.{name}": value})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The members' names, in order."""
        return tuple(member.name for member in self.members)

    @property
    def usual_sampling(self) -> Sampling:
        """The sampling of members without settings of their own."""
        return self.sampling or AGENT_SAMPLING

    @property
    def limit(self) -> int:
        """Maximum number of messages."""
        size = len(self.members) + (self.roles.count if self.roles else 0)
        rounds = (self.stop.max_rounds or 0) * self.turns.round(size)
        return min(filter(None, (self.stop.max_messages, rounds)), default=MAX_MESSAGES)

    def rules(self) -> tuple[StopRule, ...]:
        """The stop rules, in the order in which they are checked."""
        stop, names = self.stop, self.names
        rules: list[StopRule] = []
        if stop.done:
            rules.append(DoneToken(stop.done, within=self.turns.together(len(names))))
        if stop.vote:
            rules.append(replace(stop.vote, by=stop.vote.by or names))
        if stop.max_rounds:
            rules.append(MaxRounds(stop.max_rounds, self.turns.round(len(names))))
        rules.append(MessageLoop(pleasantries=max(4, 2 * len(names)), pleasant_chars=SHORT_THANKS))
        return (*rules, MaxMessages(self.limit), TokenLimit())

    @property
    def placeholders(self) -> frozenset[str]:
        """The placeholders of the task and of the members' roles and briefs."""
        texts = (text for one in self.members for text in (one.role, one.brief))
        return placeholders(self.task, *texts) | columns_of(self.world)

    def fill(self, row: Mapping[str, Any]) -> Society:
        """Return a copy with its placeholders filled."""
        members = tuple(
            replace(one, role=fill(one.role, row), brief=fill(one.brief, row)) for one in self.members
        )
        world = with_row(self.world, row)
        return replace(self, task=fill(self.task, row), members=members, world=world)

    def with_rules(self, rules: Sequence[StopRule]) -> Society:
        """Raise an `InputError`: a society declares its own ending."""
        raise InputError("rules cannot be used with a society: set stop=Ending(…) instead")

    def play(
        self,
        model: Model | Mapping[str, Model],
        *,
        task: str = "",
        sampling: Sampling | None = None,
        seed: int | None = None,
        rules: Sequence[StopRule] | None = None,
        critics: Mapping[str, Critic] | None = None,
        watch: Watch | None = None,
        id: str = "",
        workplace: Workplace | None = None,
    ) -> SocietyPlay:
        """Return a conversation that is ready to start. `model` is one model, or a mapping by member with `""` for the others.

        `sampling` replaces the members' declared settings, and `rules` the declared ending. `critics` maps members to
        critics that choose what they say.
        """
        models = seat_models(model, self.names)
        Names(self.names).check("critics", critics or {})
        ending = None if rules is None else checked_rules(rules)
        text = checked_text("the task", task or self.task, MAX_TASK_CHARS)
        transcript = Transcript(id or uuid.uuid4().hex, Task(text))
        own = (sampling, ending, critics or {})
        return SocietyPlay(models, transcript, seed, watch, workplace, self, *own)

    def prompts(self, task: str) -> Iterator[tuple[Member, str, str]]:
        """Yield each member with its system prompt and its opening."""
        shipped = texts("society")
        prompt, opening = self.prompt or shipped["member"], self.opening or shipped["opening"]
        known = {member.name: member for member in self.members}
        near = self._near()
        for member in self.members:
            values = {
                **self.values,
                "NAME": member.name,
                "ROLE": member.title,
                "SELF": _introduced(member),
                "BRIEF": member.brief,
                "MEMBERS": _listed([known[name] for name in near[member.name]]),
                "PROCEDURE": self.procedure(member.name),
                "TASK": task,
            }
            template = member.prompt or prompt
            if not member.brief:
                template = template.replace("\n\n<BRIEF>", "")  # without an empty paragraph
            yield member, fill(template, values), fill(opening, values)

    def _near(self) -> Mapping[str, Sequence[str]]:
        """Return, for each member, the members that it hears or that hear it (itself included), in the declared order."""
        names, listeners = self.names, self.hears.listeners(self.names)
        if all(len(found) == len(names) - 1 for found in listeners.values()):
            return dict.fromkeys(names, names)
        near = {name: {name, *found} for name, found in listeners.items()}
        for speaker, found in listeners.items():
            for listener in found:
                near[listener].add(speaker)
        place = {name: at for at, name in enumerate(names)}
        return {name: sorted(found, key=place.__getitem__) for name, found in near.items()}

    def procedure(self, name: str) -> str:
        """Return what a member's prompt says about turns and ending, one line each."""
        lines = [self.turns.procedure(name)]
        if vote := self.stop.vote:
            voters = vote.by or self.names
            needed = replace(vote, by=voters).needed
            if name in voters:
                lines.append(
                    'When you have made up your mind, vote with a line of its own: "Vote: " and your choice in a few words, '
                    f"worded as the others word it. The last vote of each counts; {needed} of {len(voters)} decide."
                )
        if self.stop.done == name:
            lines.append(
                f"You alone decide when the task is done. Then, and not before, write {DONE_TOKEN} on a line of its own."
            )
        elif self.stop.done:
            lines.append(f"{self.stop.done} decides when the task is done.")
        return "\n".join(f"- {line}" for line in lines if line)


@dataclass(eq=False)
class GroupPlay(Play):
    """A conversation of declared speakers; created by `play` of their declaration.

    Iterate to follow it message by message, or call `run()` for the finished transcript.
    """

    models: dict[str, Model]
    """The models by speaker, as `seat_models` returns them."""
    transcript: Transcript
    seed: int | None
    watch: Watch | None
    workplace: Workplace | None

    def agent(
        self,
        group: Any,
        member: Member,
        system: str,
        opening: str,
        sampling: Sampling,
        critic: Critic | None = None,
    ) -> Agent:
        """Return a speaker of the declaration `group`."""
        return Agent(
            name=member.name,
            role=member.title,
            model=self.models[member.name if member.name in self.models else ""],
            system=system,
            opening=opening,
            sampling=with_seed(sampling, self.seed),
            critic=critic,
            history=member.history or group.history or "full",
            tools=world_toolbox(member.tools, group.world),
        )

    def begun(
        self,
        group: Any,
        agents: Sequence[Agent],
        rules: Sequence[StopRule],
        hears: Hears | Mapping[str, Collection[str]] = everyone,
    ) -> Conversation:
        """Return the conversation of the speakers of the declaration `group`."""
        self.transcript.turns = None if group.turns == RoundRobin() else msgspec.to_builtins(group.turns)
        return Conversation(
            agents,
            self.transcript,
            rules=rules,
            turns=group.turns.turns(group.names),
            hears=hears,
            wording=by_name if len(agents) > 2 else None,
            watch=self.watch,
            hear_actions=group.hear_actions,
            workplace=start_world(group.world, self.workplace),
        )


@dataclass(eq=False)
class SocietyPlay(GroupPlay):
    """A conversation of a society."""

    society: Society
    sampling: Sampling | None
    rules: Sequence[StopRule] | None
    critics: Mapping[str, Critic]

    async def _open(self) -> Conversation:
        if self.transcript.stop is None:
            await self._plan()
            await self._cast()
        society, usual = self.society, self.society.usual_sampling
        agents: list[Agent] = []
        for member, system, opening in society.prompts(self.transcript.task.text):
            sampling = self.sampling or member.sampling or usual
            agents.append(
                self.agent(society, member, system, opening, sampling, self.critics.get(member.name))
            )
        rules = society.rules() if self.rules is None else self.rules
        return self.begun(society, agents, rules, society.hears.listeners(society.names))

    def asked(self) -> Collection[Model]:
        """Return the members' models."""
        return self.models.values()

    async def _plan(self) -> None:
        planner, task = self.society.planner, self.transcript.task
        if planner is None or task.specified:
            return
        with self._record_failure(PLANNER):
            plan = await plan_task(
                self._any_model(),
                task.original,
                self._seeded(planner),
                session=self.transcript.id,
                watch=self.watch,
            )
        text = plan.text(task.original) if plan.steps else ""
        self.transcript.task = replace(task, specified=text, model=plan.model, usage=task.usage + plan.usage)

    async def _cast(self) -> None:
        casting, society = self.society.roles, self.society
        if casting is None:
            return
        task = self.transcript.task
        with self._record_failure(CASTING):
            cast = await assign_roles(
                self._any_model(),
                task.text,
                self._seeded(casting),
                taken=society.names,
                session=self.transcript.id,
                watch=self.watch,
            )
        self.society = replace(society, members=(*society.members, *cast.members), roles=None)
        self.transcript.task = replace(task, model=task.model or cast.model, usage=task.usage + cast.usage)

    def _any_model(self) -> Model:
        return self.models.get("") or next(iter(self.models.values()))

    def _seeded(self, step: T) -> T:
        return replace(step, sampling=with_seed(step.sampling, self.seed))


def seat_models(model: Model | Mapping[str, Model], names: Sequence[str]) -> dict[str, Model]:
    """Return the models by member. The key `""` has the model of members that have no own one."""
    if not isinstance(model, Mapping):
        return {"": checked_model(model)}
    models = {name: checked_model(one) for name, one in model.items()}
    Names(names).check("model", (name for name in models if name))
    if "" not in models and (missing := [name for name in names if name not in models]):
        raise InputError(
            f'the member {missing[0]!r} has no model: pass one under this name, or a default under ""'
        )
    return models


def _one_of(name: str, value: object, kinds: tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        listed = " or ".join(kind.__name__ for kind in kinds)
        raise InputError(f"{name} must be an object of the class {listed}, not {shown(value)}")


def _introduced(member: Member) -> str:
    return member.name if member.title == member.name else f"{member.name}, {member.role}"


def _listed(members: Sequence[Member]) -> str:
    """Return the first members, one per line, and the number of the others."""
    lines = [f"- {_introduced(member)}" for member in members[:_NAMED]]
    more = [f"- and {len(members) - _NAMED} others"] if len(members) > _NAMED else []
    return "\n".join([*lines, *more])
