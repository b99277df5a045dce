"""The record of a conversation: who spoke, what was said, why it ended and what it cost.

Everything else (chat and instruction formats, training rows, statistics) is derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.heard import heard_by, sent_for
from camel.core.message import Deliberation, Message, Sampling, Usage, in_one_line
from camel.core.resolve import resolvers
from camel.core.stops import Stop
from camel.core.task import Task

SCHEMA = 2
"""Version of the record; raised when a field changes its meaning. `upgrade` reads earlier ones."""


class Speaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """A seat of the conversation as it was set up."""

    name: str
    role: str
    system: str = ""
    opening: str = ""
    sampling: Sampling = Sampling()
    model: str = ""
    """The model that was asked to speak here, by the name that it was configured with."""
    history: str = "full"
    """How much of what it heard it remembers."""


class Score(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody or something thought of a conversation."""

    value: float | None
    reason: str = ""
    by: str = ""
    """Who gave it: a model, a rule or a person."""
    version: int = 1


class Transcript(msgspec.Struct):
    """One conversation, finished or not."""

    id: str
    task: Task
    speakers: list[Speaker] = []
    messages: list[Message] = []
    stop: Stop | None = None
    """None while the conversation goes on, or when whoever drove it simply walked away."""
    scenario: str = ""
    inputs: dict[str, str] = {}
    """What it was made from, by name: roles and task, topic and problem, or the columns of a table."""
    labels: list[str] = []
    """Marks that must travel with every copy, e.g. `misalignment`."""
    fingerprint: str = ""
    """Of the configuration of the run it belongs to."""
    schema: int = SCHEMA
    item: int = -1
    """Its number in the run; -1 where it belongs to none."""
    hears: dict[str, list[str]] | None = None
    """By speaker, who hears it; None: everyone hears everyone else."""
    wording: str = ""
    """How messages read to those who hear them: `plain`, `by_name`, or the name of a wording of your own; empty: by the number of speakers."""
    scores: dict[str, Score] = {}

    @property
    def usage(self) -> Usage:
        """Tokens of all calls, the task specifier's included."""
        return sum((message.usage for message in self.messages), self.task.usage)

    @property
    def failed(self) -> bool:
        """Whether it ended because a call failed; such conversations are in no export."""
        return self.stop is not None and self.stop.reason == "error"

    def to_json(self) -> bytes:
        """Serialise the record, indented for people."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @staticmethod
    def from_json(data: bytes | str) -> Transcript:
        """Read a record back; raises an `InputError` when it is not one, or of a schema newer than this version's."""
        try:
            transcript = msgspec.json.decode(data, type=Transcript)
            before = msgspec.json.decode(data, type=_Before)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"this is not a transcript: {error}") from None
        check_schema(transcript.schema)
        transcript.inputs = transcript.inputs or before.facts
        return upgrade(transcript)

    def __str__(self) -> str:
        """Short, for reading on a terminal: who, what about, the beginning of every message, and how it ended."""
        roles = " and ".join(in_one_line(speaker.role or speaker.name) for speaker in self.speakers)
        lines = [f"{roles}: {_short(self.task.text)}" if roles else _short(self.task.text)]
        lines += [
            f"{message.index + 1:>3}. {_short(message.role)}: {_short(message.content)}"
            for message in self.messages
        ]
        end = f"ended: {_short(self.stop.detail)}" if self.stop else "not ended"
        return "\n".join([*lines, f"{end}; {self.usage.calls} calls, {self.usage.total:,} tokens"])

    def __repr__(self) -> str:
        """In one line: a conversation has thousands of words, and `str` shows how each message begins."""
        end = self.stop.reason if self.stop else "not ended"
        return f"<Transcript {self.id!r}: {len(self.messages)} messages, {end}>"

    def to_messages(self, seat: str) -> list[dict[str, str]]:
        """What one speaker heard and said, in the form that chat templates and trainers take."""
        return [{"role": entry.role, "content": entry.content} for entry in heard_by(self, seat)]

    def prompt_of(self, index: int) -> list[dict[str, str]]:
        """What the speaker of a message was sent before it, in the same form: without what it had forgotten."""
        return [{"role": entry.role, "content": entry.content} for entry in sent_for(self, index)]

    def findings(self) -> Sequence[Any]:
        """What the detectors find in it: role flipping, loops, refusals and others, by message."""
        return resolvers.findings(self)

    def save(self, path: str | Path) -> Path:
        """Write it as JSON; `Transcript.load` reads it back."""
        Path(path).write_bytes(self.to_json())
        return Path(path)

    @staticmethod
    def load(path: str | Path) -> Transcript:
        """Read what `save` wrote."""
        return Transcript.from_json(Path(path).read_bytes())

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return resolvers.html(self)

    def to_markdown(self) -> str:
        """Write the conversation for reading. What was said stands in block quotes, so that it cannot pose as a heading."""
        roles = " and ".join(in_one_line(speaker.role) for speaker in self.speakers)
        lines = [f"# {roles}", ""]
        if self.labels:  # in every copy, so that none is passed on without
            lines += [f"**Labels:** {', '.join(map(in_one_line, self.labels))}", ""]
        lines += ["**Task:**", "", _quoted(self.task.original), ""]
        if self.task.specified:
            lines += ["**Specified task:**", "", _quoted(self.task.specified), ""]
        for message in self.messages:
            lines += [
                f"### {message.index + 1}. {in_one_line(message.role)} ({in_one_line(message.speaker)})",
                "",
                _quoted(message.content),
                "",
            ]
        if self.stop:
            lines += ["---", "", f"Ended because {in_one_line(self.stop.detail)}."]
        usage = self.usage
        return "\n".join(
            [*lines, f"{usage.calls} calls, {usage.prompt:,} + {usage.completion:,} tokens.", ""]
        )


class _Before(msgspec.Struct):
    """What a transcript of an earlier schema holds under another name."""

    facts: dict[str, str] = {}


class _Weighed(msgspec.Struct):
    """What a critic weighed for a message, as files of schema 1 have it."""

    message: int
    deliberation: Deliberation


_weighed = msgspec.json.Decoder(list[_Weighed]).decode


def check_schema(schema: int) -> None:
    """Raise an `InputError` for a record of a later version."""
    if schema > SCHEMA:
        raise InputError(
            f"this transcript has schema {schema}, and this version of camel reads up to {SCHEMA}: upgrade camel"
        )


def upgrade(transcript: Transcript, weighed: str | None = None) -> Transcript:
    """A transcript of an earlier schema as one of this; `weighed` is the column of schema 1 with what critics weighed."""
    if transcript.schema == 1:
        for one in _weighed(weighed) if weighed else ():
            message = transcript.messages[one.message]
            transcript.messages[one.message] = replace(message, deliberation=one.deliberation)
        transcript.schema = SCHEMA
    return transcript


def _short(text: str, most: int = 100) -> str:
    """The beginning of a text, in one line and without what a terminal would obey."""
    line = "".join(char for char in in_one_line(text) if char.isprintable())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
