"""The record of a conversation: who spoke, what was said, why it ended and what it cost.

Everything else (chat and instruction formats, training rows, statistics) is derived from it.
"""

from __future__ import annotations

import msgspec

from camel.core.errors import InputError
from camel.core.message import Message, Sampling, Usage, in_one_line
from camel.core.stopping import Stop
from camel.core.task import Task

SCHEMA = 1
"""Version of the record; raised when a field changes its meaning."""


class Speaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """A seat of the conversation as it was set up."""

    name: str
    role: str
    system: str = ""
    opening: str = ""
    sampling: Sampling = Sampling()


class Transcript(msgspec.Struct):
    """One conversation, finished or not."""

    id: str
    task: Task
    speakers: list[Speaker] = []
    messages: list[Message] = []
    stop: Stop | None = None
    """None while the conversation goes on, or when whoever drove it simply walked away."""
    scenario: str = ""
    facts: dict[str, str] = {}
    """What the scenario drew it from, by level: roles and task, or topic and problem."""
    labels: list[str] = []
    """Marks that must travel with every copy, e.g. `misalignment`."""
    fingerprint: str = ""
    """Of the configuration of the run it belongs to."""
    schema: int = SCHEMA

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
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"this is not a transcript: {error}") from None
        if transcript.schema > SCHEMA:
            raise InputError(
                f"this transcript has schema {transcript.schema}; this version reads up to {SCHEMA}: upgrade"
            )
        return transcript

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from camel.core.notebook import transcript_html

        return transcript_html(self)

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


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
