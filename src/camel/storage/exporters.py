"""Exporters: transcripts in the formats that other people's code reads.

    chat          the original's conversations: an archive or a folder of JSON files, or lines
    instruction   the original's instruction and solution pairs
    problems      the original's Math and Science rows: a problem and its solution
    messages, sharegpt, alpaca    rows for training
    preferences   what a critic chose and what it did not, for training by preference
    dataset       Parquet files and a card; `datasets.load_dataset(folder)` opens it

Each takes any iterable, holds one transcript (`dataset`: one row group) at a time, and puts the result in its place
with a rename, so a file that is there is whole. The same transcripts in the same order give the same bytes.

The one decision to know: a row made from a transcript with labels carries them under an additional last key `labels`,
whatever the format; rows without labels have exactly the format's own keys. What is labelled `misalignment` is
refused unless the release acknowledges it and names a canary, which then stands in every such row under `canary`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from camel.core.errors import InputError, shown
from camel.core.grammar import DONE_TOKEN
from camel.core.message import Message
from camel.core.plugins import Plugin, Registry
from camel.core.role_playing import ASSISTANT, USER
from camel.core.stopping import Stop
from camel.core.transcript import Speaker, Transcript
from camel.storage.dataset import dataset
from camel.storage.files import sink
from camel.storage.inspect_log import ENDINGS, inspect_log
from camel.storage.release import Release, Written, marks, published


class Write(Protocol):
    """Writes transcripts to a path in one format."""

    def __call__(self, transcripts: Iterable[Transcript], path: Path, *, release: Release = ...) -> Written:
        """Write all of `transcripts`, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format, as a list of formats shows it."""

    write: Write
    summary: str
    endings: tuple[str, ...]
    """How a path may end; the empty ending is a folder."""


# ---------------------------------------------------------------- the original's formats


def chat(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Written:  # noqa: B008 - frozen
    """The original's chat format: one JSON object a conversation, in a file of its own or on a line."""
    return write_rows(
        transcripts, path, release, lambda transcript: [_chat_row(transcript)], DOCUMENT_ENDINGS
    )


def instruction(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Written:  # noqa: B008 - frozen
    """The original's instruction format: each instruction with the solution that answers it."""
    return write_rows(transcripts, path, release, _instruction_rows, ROW_ENDINGS)


def problems(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Written:  # noqa: B008 - frozen
    """The original's Math and Science format: a problem and its solution. Unanswered problems are left out."""
    return write_rows(transcripts, path, release, _problem_rows, DOCUMENT_ENDINGS)


def _chat_row(transcript: Transcript) -> dict[str, Any]:
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
    return row


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
    if (found := _problem(transcript)) is None:
        if len(transcript.messages) > 2:
            raise InputError(
                f"conversation {shown(transcript.id)} is not one problem and its solution: export a role play as chat "
                "or instruction"
            )
        return
    facts = transcript.facts
    yield {
        "role_1": _Seats.of(transcript).roles["role_1"],
        "topic": facts.get("topic", ""),
        "sub_topic": facts.get("sub_topic") or facts.get("subtopic", ""),
        "message_1": found[0],
        "message_2": found[1],
    }


class _Seats(NamedTuple):
    """The two seats that the original's formats know."""

    user: Speaker
    assistant: Speaker

    @staticmethod
    def of(transcript: Transcript) -> _Seats:
        """By name; whoever is named otherwise instructs if they come first."""
        if len(transcript.speakers) > 2:
            raise InputError(
                f"conversation {shown(transcript.id)} has {len(transcript.speakers)} speakers, and the format has room for two"
            )
        named = {speaker.name: speaker for speaker in transcript.speakers}
        others = [speaker for speaker in transcript.speakers if speaker.name not in (USER, ASSISTANT)]
        found: list[Speaker] = []
        for name in (USER, ASSISTANT):
            # A conversation that failed before it began has no speakers; its facts may still tell the roles.
            unseen = Speaker(name, transcript.facts.get(f"{name}_role", ""))
            found.append(named.get(name) or (others.pop(0) if others else unseen))
        return _Seats(*found)

    @property
    def roles(self) -> dict[str, str]:
        """The roles as the original writes them."""
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
    """Why a conversation ended, in the original's words; empty when it did not."""
    if stop is None:
        return ""
    if stop_reason(stop.detail) == stop.reason:  # the original's own words already: it was imported
        return stop.detail
    if stop.reason == "token_limit":
        return f"RoleType.{'USER' if stop.speaker == user else 'ASSISTANT'}: max_tokens_exceeded"
    return _TERMINATION.get(stop.reason) or f"{stop.reason}: {stop.detail}"


def stop_reason(text: str) -> str:
    """What the original's words for the end of a conversation mean; words of nobody's are `stopped`."""
    if text.startswith("RoleType.") and ": max_tokens" in text:
        return "token_limit"
    return "error" if text.startswith("error: ") else _STOP_REASON.get(text, "stopped")


# ---------------------------------------------------------------- what a conversation holds for training


class Pair(NamedTuple):
    """An instruction and the solution that answers it."""

    message: Message
    """The message that gave the instruction."""
    before: str
    """What that message says before the instruction."""
    instruction: str
    input: str
    output: str


def pairs(transcript: Transcript) -> Iterator[Pair]:
    """Every instruction of the user that the assistant's next message solves, by the grammar's own parser."""
    user = _Seats.of(transcript).user.name
    for asked, answered in pairwise(transcript.messages):
        if asked.speaker != user or answered.speaker == user:
            continue
        wanted, given = asked.move, answered.move
        if wanted.instruction is not None and given.solution is not None:
            before = _before(asked.content, wanted.instruction)
            yield Pair(asked, before, wanted.instruction, wanted.input or "", given.solution)


_DECORATION = re.compile(r"(?:(?:^|\n)[ \t]*(?:\d{1,3}[.)]|[-+•*#]+)?[ \t]*[#*_]*[ \t]*|[ \t][*_]{1,3})\Z")
"""What belongs to the marker that follows: a list's number, a heading's sign, bold."""


def _before(content: str, instruction: str) -> str:
    """What stands before the marker of `instruction`."""
    if content.startswith(f"Instruction: {instruction}"):
        return ""
    text = content.replace("\r\n", "\n").replace("\r", "\n")
    marker = re.compile(r"instructions?[\s\d#*_:：]*" + re.escape(instruction), re.IGNORECASE)
    found = marker.search(text)
    return _DECORATION.sub("", text[: found.start()]).strip() if found else ""


def _problem(transcript: Transcript) -> tuple[str, str] | None:
    """A problem and its solution, if that is all there was."""
    said = transcript.messages
    if len(said) == 1 and said[0].speaker != USER:
        return transcript.task.text, said[0].content
    if len(said) == 2 and said[0].speaker == USER != said[1].speaker:
        return said[0].content, said[1].content
    return None


def messages(
    transcripts: Iterable[Transcript],
    path: Path,
    *,
    release: Release = Release(),  # noqa: B008 - frozen
    seat: str = ASSISTANT,
    system: bool = True,
) -> Written:
    """`{"messages": [{"role", "content"}…]}`, as OpenAI and TRL read it: what the model in `seat` heard and said."""

    def rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
        if turns := _turns(transcript, seat, system=system):
            yield {"messages": [{"role": role, "content": content} for role, content in turns]}

    return write_rows(transcripts, path, release, rows, ROW_ENDINGS)


_SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}


def sharegpt(
    transcripts: Iterable[Transcript],
    path: Path,
    *,
    release: Release = Release(),  # noqa: B008 - frozen
    seat: str = ASSISTANT,
    system: bool = True,
) -> Written:
    """`{"conversations": [{"from", "value"}…]}`: what the model in `seat` heard and said."""

    def rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
        if turns := _turns(transcript, seat, system=system):
            yield {"conversations": [{"from": _SHAREGPT[role], "value": content} for role, content in turns]}

    return write_rows(transcripts, path, release, rows, ROW_ENDINGS)


def alpaca(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Written:  # noqa: B008 - frozen
    """`{"instruction", "input", "output"}`: every solved instruction, or the problem and its solution."""

    def rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
        # A role play of two messages never ends as done: the token would be the third.
        answered = len(transcript.speakers) == 1 or (transcript.stop and transcript.stop.reason == "done")
        if answered and (found := _problem(transcript)):
            yield {"instruction": found[0], "input": "", "output": found[1]}
            return
        for pair in pairs(transcript):
            yield {"instruction": pair.instruction, "input": pair.input, "output": pair.output}

    return write_rows(transcripts, path, release, rows, ROW_ENDINGS)


def preferences(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Written:  # noqa: B008 - frozen
    """`{"prompt", "chosen", "rejected"}` as TRL's preference trainers read it: a critic's choice against each rival.

    A rival is another first proposal, or the version that a revision replaced; those with the same words or the same
    score are none. What was settled without the critic is left out.
    """
    return write_rows(transcripts, path, release, _preference_rows, ROW_ENDINGS)


def _preference_rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
    for place, message in enumerate(transcript.messages):
        found = message.deliberation
        if found is None or found.fallback:
            continue
        heard = msgspec.structs.replace(transcript, messages=transcript.messages[: place + 1])
        prompt = _turns(heard, message.speaker, system=True)[:-1]
        chosen = found.proposals[found.choice]
        seen = {chosen.content}
        for one in found.proposals:
            same = one.score is not None and one.score == chosen.score
            if one.speaker or (one.parent >= 0 and not one.revises) or one.content in seen or same:
                continue
            seen.add(one.content)
            row = {"prompt": [{"role": role, "content": content} for role, content in prompt]}
            for name, proposal in (("chosen", chosen), ("rejected", one)):
                row[name] = [{"role": "assistant", "content": proposal.content}]
            yield row


def _turns(transcript: Transcript, seat: str, *, system: bool) -> list[tuple[str, str]]:
    """A chat as one seat took part in it, up to the last thing it said; empty when it said nothing."""
    said = [message.speaker == seat for message in transcript.messages]
    if not any(said):
        return []
    speaker = next((found for found in transcript.speakers if found.name == seat), Speaker(seat, ""))
    turns = [("system", speaker.system)] if system and speaker.system else []
    if speaker.opening:
        turns.append(("user", speaker.opening))
    elif said[0]:
        turns.append(("user", transcript.task.text))
    last = len(said) - said[::-1].index(True)
    for message, own in zip(transcript.messages[:last], said, strict=False):
        turns.append(("assistant" if own else "user", message.content))
    return turns


# ---------------------------------------------------------------- writing


DOCUMENT_ENDINGS = (".tar.gz", ".tgz", ".jsonl", ".jsonl.gz", ".json", ".json.gz", "")
ROW_ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_encode = msgspec.json.Encoder().encode


def write_rows(
    transcripts: Iterable[Transcript],
    path: Path,
    release: Release,
    rows: Callable[[Transcript], Iterable[dict[str, Any]]],
    endings: tuple[str, ...],
) -> Written:
    """Write the rows that `rows` makes of each transcript as JSON, by how the path ends; whole or not at all."""
    conversations = count = 0
    with sink(path, endings) as put:
        for transcript in published(transcripts, release):
            marked = marks(transcript, release)
            conversations += 1
            for row in rows(transcript):
                put(transcript.id, _encode({**row, **marked} if marked else row))
                count += 1
        if conversations and not count:
            raise InputError(
                f"none of the {conversations:,} conversations has a row for this format: export questions and answers "
                "as problems or alpaca, role plays as chat or instruction, those with a critic as preferences"
            )
    return Written(path, conversations, count)


_OWN = {
    "chat": Exporter(chat, "the original's conversations, one JSON object each", DOCUMENT_ENDINGS),
    "instruction": Exporter(instruction, "the original's instruction and solution pairs", ROW_ENDINGS),
    "problems": Exporter(
        problems, "the original's Math and Science problems and solutions", DOCUMENT_ENDINGS
    ),
    "messages": Exporter(messages, "chat messages as OpenAI and TRL read them", ROW_ENDINGS),
    "sharegpt": Exporter(sharegpt, "conversations of human and gpt", ROW_ENDINGS),
    "alpaca": Exporter(alpaca, "instruction, input, output", ROW_ENDINGS),
    "preferences": Exporter(preferences, "a critic's choices and what they were preferred to", ROW_ENDINGS),
    "inspect": Exporter(inspect_log, "a log for the viewer of inspect_ai", ENDINGS),
    "dataset": Exporter(dataset, "Parquet files and a card for datasets.load_dataset and the hub", ("",)),
}


def _plugged(plugin: Plugin, part: Any) -> Exporter:
    """A plug-in's exporter. What it is not meant to see does not reach it: the gate is ours, whatever it writes."""
    if not isinstance(part, Exporter):
        raise plugin.failed(f"must be an Exporter of camel.storage.exporters, not {shown(part)}")

    def write(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Written:  # noqa: B008 - frozen
        return part.write(published(transcripts, release), path, release=release)

    return Exporter(write, part.summary, part.endings)


FORMATS: Registry[Exporter] = Registry("exporters", _OWN, _plugged, kind="format")
"""Every format by its name on the command line."""
