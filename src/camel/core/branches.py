"""A branch: a recorded conversation that is continued from one of its messages, unchanged or with a change.

The one decision to know: a branch is restored from the record alone. The speakers' prompts, settings and messages are in
it, so a branch needs neither the scenario nor the program that made the conversation, and pays for none of its messages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as replace_fields
from typing import Literal

import msgspec
from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.conversation import Agent, Conversation, Turns
from camel.core.errors import InputError
from camel.core.heard import by_name, everyone
from camel.core.message import Message, Sampling, Usage, with_seed
from camel.core.model import Choice, Expects, Model, Reply, Request, WrappedModel
from camel.core.play import Play
from camel.core.role_playing import ASSISTANT, USER
from camel.core.stops import MAX_MESSAGES, MaxMessages, StopRule, TokenLimit, play_rules
from camel.core.tools import Workplace
from camel.core.transcript import Speaker, Transcript
from camel.core.turns import Policy

_EXPECTS: dict[str, Expects] = {USER: "instruction", ASSISTANT: "solution"}


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What differs in a branch. Without any field, the conversation is only continued again."""

    message: str | None = None
    """The text of the message at which the branch begins. Otherwise its speaker writes a new one."""
    seat: str = ""
    """The seat to which the other fields apply. Default: all seats."""
    role: str = ""
    """The seat's role, which replaces the recorded one in all prompts. Needs `seat`."""
    without: str = ""
    """A sentence that is removed from the system prompts. It may contain placeholders, such as `<TASK>`."""
    sampling: Sampling | None = None
    model: bool = False
    """Whether the seat has the other model of the job."""

    def __post_init__(self) -> None:
        if self.role and not self.seat:
            raise InputError("a changed role needs the seat that has it, such as assistant")


class Continuation(Play):
    """A continuation of a recorded conversation, before its first new message."""

    def __init__(
        self,
        record: Transcript,
        at: int,
        models: Mapping[str, Model],
        change: Change | None = None,
        *,
        id: str = "",
        seed: int | None = None,
        rules: Sequence[StopRule] | None = None,
        turns: Policy | Turns | None = None,
        workplace: Workplace | None = None,
    ) -> None:
        """Continue from message `at`, counted from 1. `models` are by seat, with `""` for the others. `rules` are
        those of a role play by default, and `turns` the recorded policy, or the order of the speakers."""
        if not 1 <= at <= len(record.messages) + 1:
            raise InputError(
                f"{record.id} has {len(record.messages)} messages, so a branch cannot begin at message {at}"
            )
        change = change or Change()
        kept = record.messages[: at - 1]
        if change.message is not None:
            if at > len(record.messages):
                raise InputError(f"{record.id} has no message {at} whose text could be changed")
            kept = [*kept, replace(record.messages[at - 1], content=change.message)]
        self.record = replace(record, messages=kept)
        self._rules, self._turns, self._place = rules, turns, workplace
        self._agents = [self._agent(one, models, change, seed) for one in record.speakers]
        self.transcript = replace(
            record,
            id=id or record.id,
            messages=[],
            stop=None,
            task=replace(record.task, usage=type(record.task.usage)()),
            scores={},
            result=None,
            result_call=type(record.result_call)(),
            rejected=[],
            unspoken=[],
        )

    def _agent(
        self, speaker: Speaker, models: Mapping[str, Model], change: Change, seed: int | None
    ) -> Agent:
        own = change.seat in ("", speaker.name)
        system, opening, role = speaker.system, speaker.opening, speaker.role
        if change.role:
            before = next((one.role for one in self.record.speakers if one.name == change.seat), None)
            if before is None:
                raise InputError(f"{self.record.id} has no seat {shown(change.seat)}")
            system, opening = system.replace(before, change.role), opening.replace(before, change.role)
            role = change.role if own else role
        if change.without and own:
            system = without(system, filled(change.without, self.record))
        sampling = change.sampling if change.sampling is not None and own else speaker.sampling
        if speaker.tools:
            raise InputError(
                f"{speaker.name} of {self.record.id} has tools, and a record does not contain them"
            )
        return Agent(
            name=speaker.name,
            role=role,
            model=models.get(speaker.name, models.get("", None)),  # pyright: ignore[reportArgumentType] - checked by Agent
            system=system,
            opening=opening,
            sampling=with_seed(sampling, seed),
            expects=_EXPECTS.get(speaker.name) if "Instruction:" in system else None,
            history=speaker.history,  # pyright: ignore[reportArgumentType] - checked by Agent
        )

    async def _open(self) -> Conversation:
        record = self.record
        if record.wording not in ("", by_name.__name__):
            raise InputError(
                f"{record.id} has a wording of its own ({record.wording}), which the record does not contain"
            )
        turns = self._turns_of(record)
        for index, message in enumerate(record.messages):
            said = turns(record.messages[: index if message.seen < 0 else message.seen])
            if message.speaker not in ((said,) if isinstance(said, str) else said):
                raise InputError(
                    f"the speakers of {record.id} do not take turns in a fixed order, and who speaks next is not in the record. "
                    "Pass turns, such as turns=camel.Addressed() or your own function"
                )
        # Those that speak together did not hear each other, so a branch within them begins with all of them.
        last = record.messages[-1] if record.messages else None
        start = 0 if last is None else last.index if last.seen < 0 else last.seen
        said, kept = turns(record.messages[:start]), len(record.messages)
        again = {one.speaker: one for one in record.messages[start:]}
        if isinstance(said, str) or len(said) == len(again):
            start, again = kept, {}
        conversation = Conversation(
            [
                replace_fields(one, model=_Repeating(one.model, again[one.name]))
                if one.name in again
                else one
                for one in self._agents
            ],
            self.transcript,
            rules=self._rules or usual_rules(record),
            turns=turns,
            hears=everyone if record.hears is None else record.hears,
            wording=by_name if record.wording else None,
            hear_actions=record.hear_actions,
            workplace=self._place,
        )
        conversation.restore(replace(record, messages=record.messages[:start]))
        return conversation

    def _turns_of(self, record: Transcript) -> Turns:
        given = self._turns
        if given is None:
            try:
                given = msgspec.convert(record.turns or {"policy": "round_robin"}, Policy)
            except msgspec.ValidationError as error:
                raise InputError(f"{record.id} has unknown turns ({error}): pass turns") from None
        return given.turns([one.name for one in record.speakers]) if isinstance(given, Policy) else given

    def asked(self) -> Iterable[Model | None]:
        """Return the models of all seats."""
        return [agent.model for agent in self._agents]


class _Repeating(WrappedModel):
    """Says a recorded message again, which costs nothing, and then asks the wrapped model."""

    def __init__(self, model: Model, said: Message) -> None:
        super().__init__(model)
        self._said: Message | None = said

    async def reply(self, request: Request) -> Reply:
        """Return the message, or the reply of the wrapped model."""
        said, self._said = self._said, None
        if said is None:
            return await self.inner.reply(request)
        choice = Choice(said.content, said.finish, reasoning=said.reasoning)
        return Reply((choice,), Usage(), said.model, deliberation=said.deliberation)


def usual_rules(record: Transcript) -> Sequence[StopRule]:
    """Return the stop rules of a role play, or only the limits if the speakers are others."""
    if {one.name for one in record.speakers} == {USER, ASSISTANT}:
        return play_rules()
    return (MaxMessages(MAX_MESSAGES), TokenLimit())


def placeholders(record: Transcript) -> dict[str, str]:
    """Return the values of the placeholders of a record's prompts, with the longest value first."""
    roles = {f"<{one.name.upper()}_ROLE>": one.role for one in record.speakers}
    values = {f"<{name.upper()}>": value for name, value in record.inputs.items()} | roles
    values["<TASK>"] = record.task.inserted
    return dict(sorted(values.items(), key=lambda one: -len(one[1])))


def template_of(prompt: str, record: Transcript) -> str:
    """Return a recorded prompt with placeholders instead of its values."""
    for name, value in placeholders(record).items():
        prompt = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", name, prompt) if value else prompt
    return prompt


def filled(text: str, record: Transcript) -> str:
    """Return a text with the values of a record instead of placeholders."""
    for name, value in placeholders(record).items():
        text = text.replace(name, value)
    return text


def without(text: str, sentence: str) -> str:
    """Return a text without a sentence, and without a gap in its place."""
    made, *rest = text.split(sentence)
    for part in rest:
        made = made.rstrip(" ") + part if part.startswith("\n") else made + part.lstrip(" ")
    return re.sub(r"\n{3,}", "\n\n", made).strip() if rest else text


def cut_replies(records: Iterable[Transcript]) -> Literal["keep", "fail"]:
    """Return `keep` if replies that were cut off at the token limit are among the messages: new ones are treated alike."""
    return "keep" if any(said.finish == "length" for one in records for said in one.messages) else "fail"


def usage_after(record: Transcript, at: int) -> Usage:
    """Return the usage of the recorded messages after the first `at`: what a continuation from there is expected to need."""
    rest = record.messages[at:]
    used = sum((one.usage for one in rest), Usage())
    return replace(used, calls=max(used.calls, len(rest)))


def digest_of(record: Transcript) -> str:
    """Return a hash of what a continuation is restored from."""
    said = [(one.speaker, one.content, one.seen) for one in record.messages]
    return hashlib.blake2b(msgspec.json.encode([record.speakers, said]), digest_size=8).hexdigest()
