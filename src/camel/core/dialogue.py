"""Natural dialogue: two or more seats that speak freely, each with its own goal and private information.

`Dialogue` is a frozen declaration, in Python or as the table `[dialogue]` of a scenario; `play` passes its seats to the one
conversation loop. The one decision to know: every text is filled once. Values go into the seats' texts first, and those
go into the shipped prompt, so inserted text is never searched for placeholders and reaches the model exactly as given.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import msgspec
from msgspec.structs import replace

from camel.core.checks import shown, whole
from camel.core.conversation import Conversation
from camel.core.errors import BadReply, ContextOverflow, InputError
from camel.core.history import History
from camel.core.inception import fill, placeholders, texts
from camel.core.judge import quoted
from camel.core.member import Member, Names
from camel.core.memory import HistoryPolicy
from camel.core.message import Message, Sampling, Usage, in_one_line, well_formed, with_seed
from camel.core.model import Choice, Model, Reply, Request, Watch, checked_model
from camel.core.society import GroupDeclaration, GroupPlay, seat_models
from camel.core.stops import STOP_RULES, MaxMessages, MessageLoop, NextCall, Stop, StopRule, TokenLimit
from camel.core.task import Task
from camel.core.tools import Workplace
from camel.core.transcript import Transcript
from camel.core.turns import Policy, RoundRobin
from camel.core.world import columns_of, with_row

Models = Model | Mapping[str, Model]
GOAL = "goal"
"""The seat of the model that decides whether the goal is reached."""
RESERVED = (GOAL, "judge", "lists", "members")
"""Names of other seats in `[models]`."""
END = "[END]"
"""Ends a dialogue at the end of a message, if its speaker may end it. It is removed from the message."""
SEAT_SAMPLING = Sampling(temperature=0.7)
_TEXTS = ("task", "opening", "style", "length")
_SEAT_TEXTS = ("role", "brief", "goal", "private", "style", "prompt")
_END = re.compile(r"\s*\**\[END\][\s.!*]*\Z")
_YES = re.compile(r"\W*yes\b", re.IGNORECASE)
_FAREWELL = re.compile(
    r"\b(?:good\s?-?bye|bye|farewell|take care|see you|good night|so long|until (?:next time|then)|"
    r"have a (?:\w+ )?(?:great|good|nice|wonderful|lovely|pleasant) (?:one|day|evening|night|afternoon|week\w*|time|trip))\b"
    r"[^?]{0,160}\Z",
    re.IGNORECASE,
)


class Participant(Member, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A seat of a dialogue. All texts except the name may contain placeholders. Only its own prompt contains them, except
    the role, which the others know. A `prompt` replaces the shipped one and the other texts."""

    goal: str = ""
    """What it wants."""
    private: str = ""
    """What only it knows."""
    style: str = ""
    """How it speaks. Default: the dialogue's style."""


class Goal(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Ends a dialogue when a model decides that something has happened in it."""

    text: str
    """What must have happened, as a sentence."""
    after: str = ""
    """The seat after whose messages the model is asked. Default: after all messages."""
    every: int = 1
    """Ask only after every n-th of these messages."""
    sampling: Sampling = Sampling(temperature=0.0)

    def __post_init__(self) -> None:
        whole("stops.goal.every", self.every, 1, 1_000)


class DialogueStops(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The stop rules of a dialogue. The limits on messages and tokens always apply."""

    goodbye: bool = True
    """Stop when every seat has said goodbye, one after the other."""
    message_loop: bool = True
    """Stop when the seats repeat themselves, or only exchange short thanks."""
    done: tuple[str, ...] = ()
    """The seats that may end the dialogue by writing `[END]` at the end of a message."""
    goal: Goal | None = None
    rules: tuple[str, ...] = ()
    """Names of further rules, such as those of plug-ins, which are checked last."""


class Dialogue(
    GroupDeclaration, frozen=True, omit_defaults=True, forbid_unknown_fields=True, dict=True, tag="dialogue"
):
    """A natural conversation: `Dialogue("A guest checks in", seats=["guest", "clerk"], model="gpt-4.1-mini").run()`.

    It is a declaration: every `run()` is a new conversation, and `camel.generate` fills `<placeholders>` in all texts from
    rows of values.
    """

    kind: ClassVar[str] = "dialogue"
    seats: tuple[Participant, ...] = ()
    """The seats, at least two; a plain name is also accepted in Python."""
    begins: str = ""
    """The seat that speaks first. Default: the first one."""
    opening: str = ""
    """The first message, if it is given. Otherwise the model of the seat that begins writes it."""
    turns: Policy = RoundRobin()
    """Who speaks next. Default: the seats take turns."""
    style: str = ""
    length: str = "one to three sentences"
    """The length of a message. Empty: the prompts do not mention it."""
    max_messages: int = 20
    stops: DialogueStops = DialogueStops()
    sampling: Sampling | None = None
    history: HistoryPolicy | None = None
    hear_actions: bool = False
    """Whether the others read the tool calls of a seat."""
    world: Any = None
    """The state that the seats' tools share: a subclass of `World`, or its name as `module:Class`."""
    model: Any = None
    """The model of all seats, a name or an object. Default: the one that the environment names. Python only."""

    def __post_init__(self) -> None:
        seats: Any = self.seats
        if not isinstance(seats, tuple | list) or len(cast("list[Any]", seats)) < 2:
            raise InputError(
                f"a dialogue needs a list of at least two seats, not {shown(self.seats)}: add [[dialogue.seats]]"
            )
        seats = tuple(Participant(one) if isinstance(one, str) else one for one in cast("list[Any]", seats))
        msgspec.structs.force_setattr(self, "seats", seats)
        whole("max_messages", self.max_messages, 1, 10_000)
        goal, names = self.stops.goal, Names(seat.name for seat in self.seats)
        if reserved := [name for name in names if name in RESERVED]:
            raise InputError(f"a seat must not be called {reserved[0]!r}: choose another name")
        for where, mentioned in (
            ("begins", [self.begins]),
            ("stops.done", self.stops.done),
            ("stops.goal.after", [goal.after] if goal else []),
            ("turns", self.turns.mentioned()),
        ):
            names.check(where, filter(None, mentioned))
        if self.begins and self.begins not in self.first:
            raise InputError(
                f"begins is {self.begins!r}, but [turns] lets {self.first[0]!r} begin: remove one"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the seats, from the seat that begins."""
        names = tuple(seat.name for seat in self.seats)
        place = names.index(self.begins) if self.begins else 0
        return names[place:] + names[:place]

    @property
    def first(self) -> Sequence[str]:
        """The seats that speak first."""
        found = self.turns.turns(self.names)(())
        return (found,) if isinstance(found, str) else found

    # --- as a declaration --------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The roles, as a title."""
        return " and ".join(seat.title for seat in self.seats)

    @property
    def texts(self) -> dict[str, str]:
        """All texts that may have placeholders, by name."""
        goal = {"stops.goal": self.stops.goal.text} if self.stops.goal else {}
        own = {name: getattr(self, name) for name in _TEXTS}
        seats = {f"{one.name}.{name}": getattr(one, name) for one in self.seats for name in _SEAT_TEXTS}
        return own | goal | seats

    @property
    def placeholders(self) -> frozenset[str]:
        """The placeholders of all texts, in lower case."""
        return placeholders(*self.texts.values()) | columns_of(self.world)

    def fill(self, row: Mapping[str, Any]) -> Dialogue:
        """Return a copy with its placeholders filled."""

        def filled(part: Any, names: Sequence[str]) -> Any:
            return replace(part, **{name: fill(getattr(part, name), row) for name in names})

        stops = replace(self.stops, goal=self.stops.goal and filled(self.stops.goal, ["text"]))
        seats = tuple(filled(seat, _SEAT_TEXTS) for seat in self.seats)
        return replace(filled(self, _TEXTS), seats=seats, stops=stops, world=with_row(self.world, row))

    def with_rules(self, rules: Sequence[StopRule]) -> Dialogue:
        """Raise an `InputError`: a dialogue declares its own stop rules."""
        raise InputError("rules cannot be used with a dialogue: set stops=DialogueStops(…) instead")

    def play(
        self,
        model: Models,
        *,
        id: str = "",
        seed: int | None = None,
        watch: Watch | None = None,
        workplace: Workplace | None = None,
    ) -> DialoguePlay:
        """Return a conversation that is ready to start. `model` is one model, or a mapping by seat with `""` for the others;
        the seat `goal` decides whether the goal is reached."""
        given: dict[str, Model] = dict(model) if isinstance(model, Mapping) else {"": model}
        judge, models = given.pop(GOAL, None), seat_models(given, self.names)
        judge = checked_model(judge or models.get("") or next(iter(models.values())))
        transcript = Transcript(id or uuid.uuid4().hex, Task(self.task))
        return DialoguePlay(models, transcript, seed, watch, workplace, self, judge)

    # --- as a conversation -------------------------------------------------------------------------------------------

    def prompts(self) -> Iterator[tuple[Participant, str]]:
        """Yield each seat with its system prompt."""
        shipped = texts("dialogue")
        for seat in self.seats:
            ends = [shipped["done"]] if seat.name in self.stops.done and END not in seat.prompt else []
            if seat.prompt:
                yield seat, "\n\n".join([seat.prompt, *ends])
                continue
            many = len(self.seats) > 2  # then names are needed to address others
            known = {one.name: f"{one.name}, {one.title}" if many else one.title for one in self.seats}
            own = known.pop(seat.name)
            turns = [shipped["goodbye"]] if self.stops.goodbye else []
            turns += [self.turns.procedure(seat.name)] if many else []
            values = {
                "SELF": own,
                "OTHERS": "; ".join(known.values()),
                "TASK": self.task,
                "BRIEF": seat.brief,
                "GOAL": seat.goal,
                "PRIVATE": seat.private,
                "STYLE": seat.style or self.style,
                "LENGTH": self.length,
                "TURNS": "\n".join([*turns, *ends]),
            }
            # A paragraph about something that the dialogue does not declare is left out.
            parts = shipped["seat"].split("\n\n")
            kept = (part for part in parts if all(values[name.upper()] for name in placeholders(part)))
            yield seat, "\n\n".join(fill(part, values) for part in kept)

    def rules(self, judge: Model, seed: int | None = None) -> tuple[StopRule, ...]:
        """Return the stop rules that are switched on, and the limits. `judge` decides whether the goal is reached."""
        rules: list[StopRule] = [EndMarker(self.stops.done)] if self.stops.done else []
        if goal := self.stops.goal:
            rules.append(GoalReached(goal, judge, with_seed(goal.sampling, seed)))
        if self.stops.goodbye:
            rules.append(Goodbye(len(self.seats)))
        if self.stops.message_loop:
            # Thanks are part of a natural conversation: only many very short ones in a row are a loop.
            rules.append(MessageLoop(pleasantries=3 * len(self.seats), pleasant_chars=60))
        named = (STOP_RULES.find(name)() for name in self.stops.rules)
        return (*rules, *named, MaxMessages(self.max_messages), TokenLimit())


@dataclass(eq=False)
class DialoguePlay(GroupPlay):
    """A conversation of a dialogue."""

    dialogue: Dialogue
    judge: Model
    """Decides whether the goal is reached."""

    async def _open(self) -> Conversation:
        dialogue, first = self.dialogue, self.dialogue.first
        agents = [
            self.agent(
                dialogue,
                seat,
                system,
                texts("dialogue")["begin"] if seat.name in first else "",
                seat.sampling or dialogue.sampling or SEAT_SAMPLING,
            )
            for seat, system in dialogue.prompts()
        ]
        conversation = self.begun(dialogue, agents, dialogue.rules(self.judge, self.seed))
        if dialogue.opening:
            conversation.say(first[0], Reply((Choice(dialogue.opening),), Usage()))
        return conversation

    def asked(self) -> Collection[Model]:
        """Return the models of the seats and of the goal rule."""
        return [*self.models.values(), self.judge]


# --- stop rules ------------------------------------------------------------------------------------------------------


class Goodbye(msgspec.Struct, frozen=True):
    """Everyone has said goodbye: the last messages, one per seat, all end with a farewell (in English)."""

    seats: int = 2

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Stop when all seats have said goodbye, one after the other."""
        last = messages[-self.seats :]
        if len({one.speaker for one in last}) < self.seats or not all(
            _FAREWELL.search(one.content) for one in last
        ):
            return None
        return Stop("goodbye", "everyone said goodbye", last[-1].speaker)


class _AskedAfter(msgspec.Struct, frozen=True):
    """A rule that decides when a message was said, and not before the next call."""

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        """Continue."""
        return None


class EndMarker(_AskedAfter, frozen=True):
    """One of the seats `by` ends the dialogue with `[END]` at the end of its message. The record is without the marker."""

    by: tuple[str, ...]

    async def decide(self, conversation: Conversation, since: int) -> Stop | None:
        """Stop when one of the messages from index `since` ends with the marker."""
        messages = conversation.transcript.messages
        for place in range(since, len(messages)):
            message = messages[place]
            if message.speaker in self.by and (found := _END.search(message.content)):
                messages[place] = replace(message, content=message.content[: found.start()])
                if place and place == len(messages) - 1 and not found.start() and not message.actions:
                    # Nothing else was said.
                    messages[-2:] = [replace(messages[-2], usage=messages[-2].usage + message.usage)]
                return Stop("done", f"the {message.speaker} ended the conversation", message.speaker)
        return None


class GoalReached(_AskedAfter, frozen=True):
    """A model decides that the goal is reached. The usage of its calls is added to the message that it was asked after."""

    goal: Goal
    model: Model
    sampling: Sampling

    async def decide(self, conversation: Conversation, since: int) -> Stop | None:
        """Ask the model, if it is its turn. An answer that does not begin with yes counts as no."""
        messages, goal = conversation.transcript.messages, self.goal
        counted = [not goal.after or one.speaker == goal.after for one in messages]
        if sum(counted) // goal.every == sum(counted[:since]) // goal.every:
            return None
        history = History()
        history.add("user", goal_question(goal.text, messages))
        try:
            reply = await self.model.reply(Request(history, self.sampling, conversation.transcript.id, GOAL))
        except ContextOverflow:
            return None
        except BadReply as error:
            reply = Reply((Choice(""),), error.usage or Usage())
        messages[-1] = replace(messages[-1], usage=messages[-1].usage + reply.usage)
        answer = in_one_line(well_formed(reply.content))
        if not _YES.match(answer):
            return None
        return Stop(
            "goal",
            f"the goal is reached, according to the model that was asked: {answer[:300]}",
            messages[-1].speaker,
        )


def goal_question(goal: str, messages: Sequence[Message]) -> str:
    """Return the question whether a goal is reached. Messages are quoted, so that none can pose as the question."""
    said = (f"{in_one_line(one.role)} ({one.speaker}):\n{quoted(one.content)}" for one in messages)
    return fill(texts("dialogue")["goal"], {"CONVERSATION": "\n\n".join(said), "GOAL": goal})
