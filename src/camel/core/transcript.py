"""The record of a conversation: speakers, messages, why it ended and what it cost.

Everything else (chat and instruction formats, training rows, statistics) is derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from camel.core.action_text import action_texts, one_line
from camel.core.errors import InputError
from camel.core.heard import heard_by, sent_for
from camel.core.message import Action, Deliberation, Message, Sampling, Usage, in_one_line
from camel.core.model import ToolSchema
from camel.core.resolve import resolvers
from camel.core.stops import EXCLUDED, Stop
from camel.core.task import Task

SCHEMA = 2
"""Version of the record format; raised when a field changes its meaning. `upgrade` reads earlier versions."""


class Speaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """A speaker of the conversation as configured."""

    name: str
    role: str
    system: str = ""
    opening: str = ""
    sampling: Sampling = Sampling()
    model: str = ""
    """The configured name of its model."""
    history: str = "full"
    """What happens to the speaker's older turns when a prompt no longer fits: `full`, `window` or `summarize`."""
    tools: list[ToolSchema] = []
    """The tools that it may call, as its model sees them."""
    tool_form: str = "native"
    """How its model writes calls: `native` in the fields of the protocol, `text` as text."""


class Score(msgspec.Struct, frozen=True, omit_defaults=True):
    """A score that a model, a rule or a person gave to a conversation."""

    value: float | None
    reason: str = ""
    by: str = ""
    """The rater: a model, a rule or a person."""
    version: int = 1
    text: str = ""
    """The score if it is a word, such as a language."""


class ResultCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requests for a conversation's structured result."""

    model: str = ""
    """The model name that the endpoint reported."""
    usage: Usage = Usage()
    error: str = ""
    """Why there is no result. Empty if there is one, or if none was requested."""


class RejectedAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt at a conversation that did not pass the run's validation."""

    stop: str
    """Why the attempt ended."""
    why: str
    """Why it was rejected."""
    messages: list[Message]
    usage: Usage = Usage()
    """Usage of all calls of the attempt, including the specifier's and the judge's."""


class Transcript(msgspec.Struct):
    """One conversation, finished or not."""

    id: str
    task: Task
    speakers: list[Speaker] = []
    messages: list[Message] = []
    stop: Stop | None = None
    """Why it ended; None while it is in progress, or if the program stopped iterating."""
    scenario: str = ""
    inputs: dict[str, str] = {}
    """The values it was made from, by name: roles and task, topic and problem, or the columns of a table."""
    labels: list[str] = []
    """Labels that every copy must keep, e.g. `misalignment`."""
    fingerprint: str = ""
    """Hash of its run's configuration."""
    schema: int = SCHEMA
    item: int = -1
    """Index of the conversation in its run. -1 outside of a run."""
    hears: dict[str, list[str]] | None = None
    """The listeners of each speaker; None: everyone hears everyone else."""
    wording: str = ""
    """How listeners read messages: `plain`, `by_name`, or your own wording's name; empty: depends on the number of speakers."""
    scores: dict[str, Score] = {}
    result: dict[str, Any] | None = None
    """The structured result, if one was requested and made."""
    result_call: ResultCall = ResultCall()
    rejected: list[RejectedAttempt] = []
    """Earlier attempts that did not pass the run's validation. Their usage counts; exports do not contain them."""
    hear_actions: bool = False
    """Whether listeners read the tool calls of speakers."""
    unspoken: list[Action] = []
    """Tool calls for a message that was never said, because the conversation ended."""
    turns: dict[str, Any] | None = None
    """How the next speaker of a society is chosen, if not in the order of the speakers: the fields of its turn policy."""

    @property
    def usage(self) -> Usage:
        """Tokens of all calls, including those for the task, the result and rejected attempts."""
        others = self.task.usage + self.result_call.usage
        return sum((one.usage for one in (*self.messages, *self.rejected)), others)

    @property
    def failed(self) -> bool:
        """Whether it ended because a call failed."""
        return self.stop is not None and self.stop.reason == "error"

    @property
    def excluded(self) -> bool:
        """Whether exports, training rows and counts skip it: it failed, was rejected, or its row was deleted or changed."""
        return self.stop is not None and self.stop.reason in EXCLUDED

    def to_json(self) -> bytes:
        """Serialize the record as indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @staticmethod
    def from_json(data: bytes | str) -> Transcript:
        """Read a record. Raise an `InputError` if it is not a transcript, or if its schema is newer than this version's."""
        try:
            transcript = msgspec.json.decode(data, type=Transcript)
            before = msgspec.json.decode(data, type=_Before)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"this is not a transcript ({error})") from None
        check_schema(transcript.schema)
        transcript.inputs = transcript.inputs or before.facts
        return upgrade(transcript)

    def __str__(self) -> str:
        """Return a summary for a terminal: roles, task, the beginning of every message, and how the conversation ended."""
        roles = " and ".join(in_one_line(speaker.role or speaker.name) for speaker in self.speakers)
        lines = [f"{roles}: {one_line(self.task.text)}" if roles else one_line(self.task.text)]
        lines += [
            f"{message.index + 1:>3}. {one_line(message.role)}{_calls(message.actions)}: {one_line(message.content)}"
            for message in self.messages
        ]
        lines += [f"     never said{_calls(self.unspoken)}"] if self.unspoken else []
        end = f"ended: {one_line(self.stop.detail)}" if self.stop else "not ended"
        return "\n".join([*lines, f"{end}; {self.usage.calls} calls, {self.usage.total:,} tokens"])

    def __repr__(self) -> str:
        """Return one line. `str` shows the beginning of each message."""
        end = self.stop.reason if self.stop else "not ended"
        return f"<Transcript {self.id!r}: {len(self.messages)} messages, {end}>"

    def to_messages(self, seat: str) -> list[dict[str, Any]]:
        """Return the messages that one speaker heard and said, in the format of chat templates and trainers. Tool calls and
        their results are included."""
        return [entry.to_dict() for entry in heard_by(self, seat)]

    def prompt_of(self, index: int) -> list[dict[str, Any]]:
        """Return the prompt that was sent for a message, as `to_messages` does, but without turns its speaker had dropped."""
        return [entry.to_dict() for entry in sent_for(self, index)]

    def findings(self) -> Sequence[Any]:
        """Return what the detectors find in the conversation: role flipping, loops, refusals and others, by message."""
        return resolvers.findings(self)

    def save(self, path: str | Path) -> Path:
        """Write the transcript as JSON and return the path. `Transcript.load` reads it back."""
        Path(path).write_bytes(self.to_json())
        return Path(path)

    @staticmethod
    def load(path: str | Path) -> Transcript:
        """Read a file that `save` wrote."""
        return Transcript.from_json(Path(path).read_bytes())

    def _repr_html_(self) -> str:
        """Show it in a notebook."""
        return resolvers.html(self)

    def to_markdown(self) -> str:
        """Return the conversation as Markdown. Messages are block quotes, so that they cannot pose as headings."""
        roles = " and ".join(in_one_line(speaker.role) for speaker in self.speakers)
        lines = [f"# {roles}", ""]
        if self.labels:  # every copy keeps its labels
            lines += [f"**Labels:** {', '.join(map(in_one_line, self.labels))}", ""]
        lines += ["**Task:**", "", _quoted(self.task.original), ""]
        if self.task.specified:
            lines += ["**Specified task:**", "", _quoted(self.task.specified), ""]
        for message in self.messages:
            title = f"### {message.index + 1}. {in_one_line(message.role)} ({in_one_line(message.speaker)})"
            lines += [title, "", *map(_quoted_action, message.actions), _quoted(message.content), ""]
        never = ["### Calls before a message that was never said", ""] if self.unspoken else []
        lines += [*never, *map(_quoted_action, self.unspoken)]
        if self.stop:
            lines += ["---", "", f"Ended because {in_one_line(self.stop.detail)}."]
        usage = self.usage
        return "\n".join(
            [*lines, f"{usage.calls} calls, {usage.prompt:,} + {usage.completion:,} tokens.", ""]
        )


class _Before(msgspec.Struct):
    """Fields that had another name in earlier schemas."""

    facts: dict[str, str] = {}


class _Weighed(msgspec.Struct):
    """A critic's options for a message, in the format of schema 1."""

    message: int
    deliberation: Deliberation


_weighed = msgspec.json.Decoder(list[_Weighed]).decode


def check_schema(schema: int) -> None:
    """Raise an `InputError` if `schema` is newer than this version of CAMEL can read."""
    if schema > SCHEMA:
        raise InputError(
            f"this transcript has schema {schema}, and this version of camel reads up to {SCHEMA}: upgrade camel"
        )


def upgrade(transcript: Transcript, weighed: str | None = None) -> Transcript:
    """Convert a transcript of an earlier schema. `weighed` is the column of schema 1 that contains the critics' options."""
    if transcript.schema == 1:
        for one in _weighed(weighed) if weighed else ():
            message = transcript.messages[one.message]
            transcript.messages[one.message] = replace(message, deliberation=one.deliberation)
        transcript.schema = SCHEMA
    return transcript


def _calls(actions: Sequence[Action]) -> str:
    """Return a mark for tool calls, such as ` [2 tool calls: search, python]`."""
    names = ", ".join(dict.fromkeys(one_line(one.tool, 64) for one in actions))
    return f" [{len(actions)} tool call{'s' * (len(actions) > 1)}: {one_line(names)}]" if actions else ""


def _quoted_action(action: Action) -> str:
    """Return a tool call as a block quote. Its texts are code, so that they cannot be formatted."""
    texts = [("Tool call", one_line(action.tool, 64)), *action_texts(action)]
    code = [(name, "".join(f"\n    {line}" for line in text.splitlines())) for name, text in texts]
    return _quoted("\n\n".join(f"**{name}**\n{text}" for name, text in code)) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
