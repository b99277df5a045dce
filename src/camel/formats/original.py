"""The formats of the paper's datasets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.grammar import DONE_TOKEN
from camel.core.message import Message
from camel.core.role_playing import ASSISTANT, USER
from camel.core.stops import Stop
from camel.core.transcript import Speaker, Transcript
from camel.formats.json_rows import DOCUMENT_ENDINGS, ROW_ENDINGS, write_rows
from camel.record.release import Release


def _chat_rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
    seats = _Seats.of(transcript)
    row: dict[str, Any] = {
        **seats.roles,
        "id": transcript.id,
        "original_task": transcript.task.original,
        "specified_task": transcript.task.specified,
    }
    for number, message in enumerate(transcript.messages, 1):
        kind = "USER" if message.speaker == seats.user.name else "ASSISTANT"
        row[f"message_{number}"] = {
            "role_name": message.role,
            "role_type": kind,
            "role": kind.lower(),
            "content": message.content,
        }
    row["num_messages"] = len(transcript.messages)
    row["termination_reason"] = termination(transcript.stop, seats.user.name)
    yield row


def _instruction_rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
    seats = _Seats.of(transcript)
    for pair in pairs(transcript):
        yield {
            "id": transcript.id,
            **seats.roles,
            "original_task": transcript.task.original,
            "specified_task": transcript.task.specified,
            "role_1_response": pair.before,
            "role_1_message_id": pair.message.index + 1,
            "instruction": pair.instruction,
            "input": pair.input,
            "output": pair.output,
            "termination_reason": termination(transcript.stop, seats.user.name),
        }


def _problem_rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
    if (found := problem_of(transcript)) is None:
        if len(transcript.messages) > 2:
            raise InputError(
                f"conversation {shown(transcript.id)} is a role play, but the format 'problems' is for one question "
                "and one answer. Export it as chat or instruction"
            )
        return
    facts = transcript.inputs
    yield {
        "role_1": _Seats.of(transcript).roles["role_1"],
        "topic": facts.get("topic", ""),
        "sub_topic": facts.get("sub_topic") or facts.get("subtopic", ""),
        "message_1": found[0],
        "message_2": found[1],
    }


class _Seats(NamedTuple):
    """The user and the assistant of a conversation, as the paper's formats need them."""

    user: Speaker
    assistant: Speaker

    @staticmethod
    def of(transcript: Transcript) -> _Seats:
        """Find both seats by name. If the speakers have other names, the first one is the user."""
        if len(transcript.speakers) > 2:
            raise InputError(
                f"conversation {shown(transcript.id)} has {len(transcript.speakers)} speakers, but this format supports two: export as dataset"
            )
        named = {speaker.name: speaker for speaker in transcript.speakers}
        others = [speaker for speaker in transcript.speakers if speaker.name not in (USER, ASSISTANT)]
        found: list[Speaker] = []
        for name in (USER, ASSISTANT):
            # A conversation that failed before its start has no speakers; its inputs may contain the roles.
            unseen = Speaker(name, transcript.inputs.get(f"{name}_role", ""))
            found.append(named.get(name) or (others.pop(0) if others else unseen))
        return _Seats(*found)

    @property
    def roles(self) -> dict[str, str]:
        """The roles of both seats, as in the paper's format."""
        return {
            "role_1": f"{self.assistant.role}_RoleType.ASSISTANT",
            "role_2": f"{self.user.role}_RoleType.USER",
        }


_TERMINATION: dict[str, str] = {
    "done": DONE_TOKEN,
    "user_no_instruction": "user_no_instruct_threshold",
    "assistant_instructs": "assistant_instruct_threshold",
    "message_loop": "repeat_word_threshold",
    "max_messages": "max_num_messages",
}


_STOP_REASON = {text: reason for reason, text in _TERMINATION.items()}


def termination(stop: Stop | None, user: str = USER) -> str:
    """Return why a conversation ended, in the words of the paper's format. Return an empty string if it has not ended."""
    if stop is None:
        return ""
    if stop_reason(stop.detail) == stop.reason:  # imported, so already in the paper's format
        return stop.detail
    if stop.reason == "token_limit":
        return f"RoleType.{'USER' if stop.speaker == user else 'ASSISTANT'}: max_tokens_exceeded"
    return _TERMINATION.get(stop.reason) or f"{stop.reason}: {stop.detail}"


def stop_reason(text: str) -> str:
    """Return the stop reason for a text of the paper's format. Unknown texts become `stopped`."""
    if text.startswith("RoleType.") and ": max_tokens" in text:
        return "token_limit"
    return "error" if text.startswith("error: ") else _STOP_REASON.get(text, "stopped")


class SolvedInstruction(NamedTuple):
    """An instruction and its solution."""

    message: Message
    """The message with the instruction."""
    before: str
    """The text before the instruction in that message."""
    instruction: str
    input: str
    output: str


def pairs(transcript: Transcript) -> Iterator[SolvedInstruction]:
    """Yield every instruction of the user that the assistant's next message solves, according to the grammar's parser."""
    user = _Seats.of(transcript).user.name
    for asked, answered in pairwise(transcript.messages):
        if asked.speaker != user or answered.speaker == user:
            continue
        wanted, given = asked.move, answered.move
        if wanted.instruction is not None and given.solution is not None:
            before = _before(asked.content, wanted.instruction)
            yield SolvedInstruction(asked, before, wanted.instruction, wanted.input or "", given.solution)


_DECORATION = re.compile(r"(?:(?:^|\n)[ \t]*(?:\d{1,3}[.)]|[-+•*#]+)?[ \t]*[#*_]*[ \t]*|[ \t][*_]{1,3})\Z")
"""Matches decoration before a label of the format: a list number, a heading sign, bold."""


def _before(content: str, instruction: str) -> str:
    """Return the text before the label of `instruction` in a message."""
    if content.startswith(f"Instruction: {instruction}"):
        return ""
    text = content.replace("\r\n", "\n").replace("\r", "\n")
    marker = re.compile(r"instructions?[\s\d#*_:：]*" + re.escape(instruction), re.IGNORECASE)
    found = marker.search(text)
    return _DECORATION.sub("", text[: found.start()]).strip() if found else ""


def problem_of(transcript: Transcript) -> tuple[str, str] | None:
    """Return the problem and its solution. Return None if the conversation contains anything else."""
    said = transcript.messages
    if len(said) == 1 and said[0].speaker != USER:
        return transcript.task.text, said[0].content
    if len(said) == 2 and said[0].speaker == USER != said[1].speaker:
        return said[0].content, said[1].content
    return None


_write = partial(write_rows, release=Release(), metadata=False)
chat = partial(_write, rows=_chat_rows, endings=DOCUMENT_ENDINGS)
"""Writes the paper's chat format: one JSON object per conversation, as a file or a line. Without tool calls."""
instruction = partial(_write, rows=_instruction_rows, endings=ROW_ENDINGS)
"""Writes the paper's instruction format: each instruction with its solution. Without tool calls."""
problems = partial(_write, rows=_problem_rows, endings=DOCUMENT_ENDINGS)
"""Writes the paper's Math and Science format: a problem and its solution. Skips unanswered problems."""
