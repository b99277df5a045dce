"""Importers: read files in the formats of the paper's datasets, of trainers and of the export `dataset` as transcripts.

Reads archives (tar, zip), folders, one JSON file or JSON lines, compressed or not, without unpacking anything to disk, and
Parquet. Missing fields get their defaults and unknown ones are ignored. A document that cannot be parsed raises an
`InputError` that names it, or is passed to `on_error`.

The one decision to know: export, import and export again gives the same bytes. Instruction rows do not contain the original
messages, so the messages are rebuilt such that the grammar parses them to the same row. This fails only for text that
imitates the grammar (a few in 1,000 rows of a fuzzer that writes nothing else).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.grammar import Move, parse
from camel.core.message import Action, Message, well_formed
from camel.core.model import ToolSchema
from camel.core.role_playing import ASSISTANT, USER
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Score, Speaker, Transcript
from camel.formats.containers import Document, documents_in, is_table, tables_in, text_of
from camel.formats.original import stop_reason
from camel.index.build import no_cost, write_indexed
from camel.index.facets import Cost
from camel.record.arrow import rows as table_rows
from camel.runs.markers import Marker, new_attempt
from camel.runs.reader import LAST_STAGES
from camel.runs.run import RunFolder
from camel.runs.settings import Settings

_ROWS_PER_SHARD = 512

OnError = Callable[[InputError], None]
"""A function that is called with the error of each skipped document."""
T = TypeVar("T")


def instruction(path: Path, *, scenario: str = "", on_error: OnError | None = None) -> Iterator[Transcript]:
    """Read conversations in the paper's instruction format. Adjacent rows form one conversation.

    The file contains only solved instructions; the messages keep their original numbers.
    """
    rows = _read(_instruction, path, scenario=scenario, on_error=on_error)
    for shared, group in groupby(rows, key=itemgetter(0)):
        user, assistant = (speaker.role for speaker in shared.speakers)
        said: list[Message] = []
        for _, number, asked, solved in group:
            index = len(said) if number is None else number - 1
            said += [Message(index, USER, user, asked), Message(index + 1, ASSISTANT, assistant, solved)]
        yield msgspec.structs.replace(shared, messages=said)


def alpaca(path: Path, *, scenario: str = "", on_error: OnError | None = None) -> Iterator[Transcript]:
    """Read rows of instruction, input and output, each as one conversation. Adjacent rows with the same id get numbers."""
    last, number = "", 0
    for made in _read(_alpaca, path, scenario=scenario, on_error=on_error):
        last, number = made.id, number + 1 if made.id == last else 1
        yield msgspec.structs.replace(made, id=f"{last}-{number}") if number > 1 else made


def dataset(path: Path, *, scenario: str = "", on_error: OnError | None = None) -> Iterator[Transcript]:
    """Read the export `dataset` without loss. `on_error` is not used: a table is read completely or not at all."""
    if not is_table(path):
        raise InputError(f"'{path}' is not a dataset: it has no .parquet or .arrow file")
    for _, table in tables_in(path):
        for made in table_rows(table):
            yield msgspec.structs.replace(made, scenario=scenario) if scenario else made


def _read(
    convert: Callable[[Document, str], T], path: Path, *, scenario: str = "", on_error: OnError | None = None
) -> Iterator[T]:
    """Convert every document of a file, an archive or a folder."""
    for document in documents_in(path):
        try:
            made = convert(document, scenario)
        except InputError as error:
            if on_error is None:
                raise
            on_error(error)
        else:
            yield made


def _transcript(document: Document, scenario: str) -> Transcript:
    """Convert a conversation that `camel play --save` or `Transcript.to_json` wrote."""
    row = document.row()
    if "messages" not in row or "task" not in row:
        raise InputError(f"{document.where}: the row is not a transcript. {_looks_like(row)}")
    try:
        made = Transcript.from_json(msgspec.json.encode(row))
    except InputError as error:
        raise InputError(f"{document.where}: {error}") from None
    return msgspec.structs.replace(made, scenario=scenario) if scenario else made


def _chat(document: Document, scenario: str) -> Transcript:
    """Convert a conversation in the paper's chat format."""
    row, where = document.row(), document.where
    roles = {USER: _role(row, "role_2", where), ASSISTANT: _role(row, "role_1", where)}
    numbered = sorted((int(key[8:]), key) for key in row if re.fullmatch(r"message_[0-9]{1,9}", key))
    if not numbered and str(row.get("num_messages")) != "0":  # it may have failed before its first message
        raise InputError(f"{where}: the row has no message_1. {_looks_like(row)}")
    messages: list[Message] = []
    for index, (_, key) in enumerate(numbered):
        said = row[key]
        if not isinstance(said, dict):
            raise InputError(f"{where}: {key} must be a message, not {shown(said)}. {_looks_like(row)}")
        message = cast("dict[str, Any]", said)
        speaker = _speaker(message, index, where)
        role = text_of(message, "role_name", where) or roles[speaker]
        messages.append(Message(index, speaker, role, text_of(message, "content", where)))
    return Transcript(
        document.id(row, "id", "input"),
        _task(row, where),
        _speakers(roles[USER], roles[ASSISTANT]),
        messages,
        _stop(row, where),
        scenario,
        labels=_labels(row, where),
    )


def _looks_like(row: dict[str, Any]) -> str:
    """Return a hint about the format of a row, for an error message."""
    if "message_1" in row:
        found = "chat" if isinstance(row["message_1"], dict) else "problems"
    elif "instruction" in row and "output" in row:
        found = "instruction"
    elif "messages" in row and "speakers" in row:
        found = "dataset" if "num_messages" in row else "transcript"
    elif "messages" in row or "conversations" in row:
        found = "messages" if "messages" in row else "sharegpt"
    else:
        return f"Its keys are {shown(list(row))}. Choose --format {', '.join(IMPORTERS)}"
    return f"Try --format {found}"


def _speaker(message: dict[str, Any], index: int, where: str) -> str:
    kind = (text_of(message, "role_type", where) or text_of(message, "role", where)).upper()
    if kind.endswith((USER.upper(), ASSISTANT.upper())):
        return USER if kind.endswith(USER.upper()) else ASSISTANT
    # The user speaks first, and the two alternate.
    return ASSISTANT if index % 2 else USER


def _problem(document: Document, scenario: str) -> Transcript:
    """Convert a problem and its solution in the paper's Math and Science format."""
    row, where = document.row(), document.where
    if "message_1" not in row or "message_2" not in row:
        raise InputError(f"{where}: the row has no message_1 or no message_2. {_looks_like(row)}")
    if isinstance(row["message_1"], dict):
        raise InputError(f"{where}: message_1 is not text. {_looks_like(row)}")
    role, problem = _role(row, "role_1", where), text_of(row, "message_1", where)
    # Published files spell the first of these keys with a semicolon.
    topic = text_of(row, "topic", where) or text_of(row, "topic;", where)
    return Transcript(
        document.id(row, "id"),
        Task(problem),
        _speakers("User", role),
        [Message(0, USER, "User", problem), Message(1, ASSISTANT, role, text_of(row, "message_2", where))],
        Stop("done", "the question was answered", ASSISTANT),
        scenario,
        {"topic": topic, "subtopic": text_of(row, "sub_topic", where), "problem": problem},
        _labels(row, where),
    )


class _Function(msgspec.Struct):
    """A function in the format of OpenAI: a call of it, or its schema."""

    name: str | None = None
    arguments: Any = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    id: str | None = None
    function: _Function | None = None


class CallReader:
    """Collects the tool calls of a chat until the message that they belong to."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._waiting: list[int] = []  # places of the calls without a result
        self._count, self._step = 0, 0

    def read(self, turn: dict[str, Any], seat: str, role: str, said: str, where: str) -> bool:
        """Add the calls or the result in a turn. Return whether it has any."""
        if seat != ASSISTANT:
            return seat == "tool" and self._read_result(turn, said)
        given, said = (said, "") if role == "function_call" else (turn.get("tool_calls"), said)
        calls = _functions(given, where)
        for place, call in enumerate(calls):
            function = call.function or call
            given: Any = function.arguments or {}
            arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()
            name, id = well_formed(function.name or ""), well_formed(call.id or f"call-{self._count}")
            self._waiting.append(len(self._actions))
            self._actions.append(
                Action(name, well_formed(arguments), call=id, step=self._step, said="" if place else said)
            )
            self._count += 1
        self._step += bool(calls)
        return bool(calls)

    def _read_result(self, turn: dict[str, Any], content: str) -> bool:
        """Add a result to its call: the one with the id, or the first without a result. Others are ignored."""
        named = [place for place in self._waiting if self._actions[place].call == turn.get("tool_call_id")]
        texts = [content]
        if "value" in turn and len(self._waiting) > 1:  # ShareGPT has one turn for several results
            with suppress(msgspec.MsgspecError):
                texts = msgspec.json.decode(content, type=list[str])
        for place, text in zip(named or [*self._waiting], texts, strict=False):
            self._waiting.remove(place)
            error = text.removeprefix("Error: ")  # as `read_by_model` writes it
            outcome = {"result": text} if error == text else {"error": error}
            self._actions[place] = msgspec.structs.replace(self._actions[place], **outcome)
        return True

    def take(self) -> list[Action]:
        """Return the calls since the last message."""
        found, self._actions, self._waiting, self._step = self._actions, [], [], 0
        return found


def read_tools(given: Any, where: str) -> list[ToolSchema]:
    """Return the schemas of the column `tools`: a list in the format of OpenAI, or its JSON text. Skips tools without a name."""
    found = [one.function or one for one in _functions(given, where)]
    return [ToolSchema(one.name, one.description or "", one.parameters or {}) for one in found if one.name]


def _functions(given: Any, where: str) -> list[_Function]:
    try:
        found: Any = msgspec.json.decode(given) if isinstance(given, str) and given else given or []
        return msgspec.convert(found if isinstance(found, list) else [found], list[_Function])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{where}: invalid tools or tool calls: {error}. Fix them, or add --skip") from None


_SEATS = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), USER),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bing", "bard", "model", "function_call"), ASSISTANT),
    **dict.fromkeys(("tool", "function", "observation"), "tool"),
}
"""Names of roles in files of chats."""
_TURNS = ("messages", "conversations", "conversation")
_KNOWN = {*_TURNS, "tools", "id", "system", "metadata", "labels", "canary", "instruction", "input", "output"}


def _messages(document: Document, scenario: str) -> Transcript:
    """Convert a chat of OpenAI, TRL or ShareGPT. The system prompt and the tools become those of the assistant."""
    row, where = document.row(), document.where
    turns = next((cast("list[Any]", row[key]) for key in _TURNS if isinstance(row.get(key), list)), None)
    if turns is None:
        raise InputError(f"{where}: the row has no messages. {_looks_like(row)}")
    system, said, calls = text_of(row, "system", where), list[Message](), CallReader()
    for number, turn in enumerate(turns, 1):
        here = f"{where}: message {number}"
        if not isinstance(turn, dict):
            raise InputError(f"{here} must be a JSON object, not {shown(turn)}")
        turn = cast("dict[str, Any]", turn)
        role = text_of(turn, "role", here) or text_of(turn, "from", here)
        if (seat := _SEATS.get(role.lower())) is None:
            known = ", ".join(_SEATS)
            raise InputError(f"{here} has the role {shown(role)}. Use one of {known}, or add --skip")
        content = _content(turn, here)
        if calls.read(turn, seat, role.lower(), content, here):
            continue
        if seat == "system" and said:
            raise InputError(f"{here} is a system message after the first turn: remove it, or add --skip")
        if seat == "system":
            system = f"{system}\n\n{content}" if system else content
        else:
            if seat == USER and (actions := calls.take()):  # no message follows the calls
                said.append(Message(len(said), ASSISTANT, ASSISTANT.title(), "", actions=actions))
            made: Any = {"reasoning": text_of(turn, "reasoning_content", here), "actions": calls.take()}
            said.append(Message(len(said), seat, seat.title(), content, **made))
    chat = _described(document, row, system, said, None, scenario)
    chat.unspoken = calls.take()
    chat.speakers[1] = msgspec.structs.replace(chat.speakers[1], tools=read_tools(row.get("tools"), where))
    return chat


def _content(turn: dict[str, Any], where: str) -> str:
    """Return the text of a message, which may be a list of parts."""
    key = "value" if "value" in turn else "content"
    parts = turn.get(key)
    if not isinstance(parts, list):
        return text_of(turn, key, where)
    texts: list[str] = []
    for part in cast("list[Any]", parts):
        found = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        if "text" not in found:
            raise InputError(f"{where} has a part that is not text: {shown(found)}. Remove it, or add --skip")
        texts.append(text_of(found, "text", where))
    return "".join(texts)


def _alpaca(document: Document, scenario: str) -> Transcript:
    row, where = document.row(), document.where
    if "instruction" not in row or "output" not in row:
        raise InputError(f"{where}: the row has no instruction or no output. {_looks_like(row)}")
    asked, given = text_of(row, "instruction", where), text_of(row, "input", where)
    question = f"{asked}\n\n{given}" if given else asked
    said = [
        Message(0, USER, USER.title(), question),
        Message(1, ASSISTANT, ASSISTANT.title(), text_of(row, "output", where)),
    ]
    stop = Stop("done", "the question was answered", ASSISTANT)
    made = _described(document, row, text_of(row, "system", where), said, stop, scenario)
    made.inputs |= {"instruction": asked, "input": given} if given else {}
    return made


def _described(
    document: Document,
    row: dict[str, Any],
    system: str,
    said: list[Message],
    stop: Stop | None,
    scenario: str,
) -> Transcript:
    """Return the transcript of a chat with the values of its key `metadata`. Other values of the row become its inputs."""
    about: Any = row.get("metadata")
    # Other programs have other metadata.
    about = cast("dict[str, Any]", about) if isinstance(about, dict) and "run" in about else {}
    try:
        inputs: dict[str, str] = _decoded(about, "inputs", dict[str, str]) or {}
        scores: dict[str, Any] = _decoded(about, "scores", dict[str, float | str | None]) or {}
        result = _decoded(about, "result", dict[str, Any] | None)
    except msgspec.MsgspecError as error:
        raise InputError(f"{document.where}: metadata is not that of an export: {error}") from None
    others = {
        name: well_formed(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in row.items()
        if name not in _KNOWN and isinstance(value, str | int | float)
    }
    return Transcript(
        document.id(about if row.get("id") is None else row, "id"),
        Task(said[0].content if said and said[0].speaker == USER else ""),
        [Speaker(USER, USER.title()), Speaker(ASSISTANT, ASSISTANT.title(), system)],
        said,
        stop,
        scenario,
        others | inputs,
        _labels(row, document.where),
        scores={
            name: Score(None, text=value) if isinstance(value, str) else Score(value)
            for name, value in scores.items()
        },
        result=result,
    )


def _decoded(about: dict[str, Any], name: str, kind: Any) -> Any:
    """Return a value of `metadata`, which an export wrote as JSON."""
    value = about.get(name)
    return msgspec.json.decode(value, type=kind) if isinstance(value, str) and value else None


def _instruction(document: Document, scenario: str) -> tuple[Transcript, int | None, str, str]:
    """Return the conversation of a row without messages, the number of the row's first message, and both messages."""
    row, where = document.row(), document.where
    if "instruction" not in row or "output" not in row:
        raise InputError(f"{where}: the row has no instruction or no output. {_looks_like(row)}")
    number = row.get("role_1_message_id")
    if isinstance(number, str) and number.isdecimal() and len(number) < 10:
        number = int(number)
    assistant, user = _role(row, "role_1", where), _role(row, "role_2", where)
    shared = Transcript(
        document.id(row, "id"),
        _task(row, where),
        _speakers(user, assistant),
        [],
        _stop(row, where),
        scenario,
        labels=_labels(row, where),
    )
    keys = ("role_1_response", "instruction", "input", "output")
    before, asked, given, solved = (text_of(row, key, where) for key in keys)
    known = number if isinstance(number, int) and 0 < number < 2**31 else None
    return shared, known, _asked(before, asked, given), _solved(solved)


def _asked(before: str, instruction: str, given: str) -> str:
    """Rebuild the user's message from a row."""
    before = f"{before}\n\n" if before else ""
    written = before + Move(instruction, given or None).render()
    bare, tight = f"{before}Instruction: {instruction}", f"{before}Instruction:{instruction}"
    return _reads_as(
        lambda move: (move.instruction, move.input or "") == (instruction, given),
        *(text + more for text in (written, bare, tight) for more in ("", "\nInstruction:")),
    )


def _solved(output: str) -> str:
    """Rebuild the assistant's message from a row."""
    bare, tight = f"Solution: {output}", f"Solution:{output}"
    return _reads_as(
        lambda move: move.solution == output,
        *(text + more for text in (bare, tight) for more in ("\n\nNext request.", "\nInstruction:", "")),
    )


def _reads_as(right: Callable[[Move], bool], *texts: str) -> str:
    """Return the first of `texts` that the grammar parses as expected.

    That is nearly always the first one. Text that itself looks like the grammar (an open quotation, a done token) may need
    another marker after it; if none works, the text is kept, and only its parsed form changes.
    """
    return next((text for text in texts if right(parse(text))), texts[0])


def _speakers(user: str, assistant: str) -> list[Speaker]:
    return [Speaker(USER, user), Speaker(ASSISTANT, assistant)]


def _role(row: dict[str, Any], key: str, where: str) -> str:
    return re.sub(r"_RoleType\.\w+\Z", "", text_of(row, key, where))


def _task(row: dict[str, Any], where: str) -> Task:
    return Task(text_of(row, "original_task", where), text_of(row, "specified_task", where))


def _stop(row: dict[str, Any], where: str) -> Stop | None:
    text = text_of(row, "termination_reason", where)
    return Stop(stop_reason(text), text) if text else None


def _labels(row: dict[str, Any], where: str) -> list[str]:
    try:
        labels = msgspec.convert(row.get("labels") or [], list[str])
    except msgspec.ValidationError:
        raise InputError(f"{where}: labels must be a list of texts, not {shown(row['labels'])}") from None
    return [well_formed(label) for label in labels]


IMPORTERS: dict[str, Callable[..., Iterator[Transcript]]] = {
    "chat": partial(_read, _chat),
    "instruction": instruction,
    "problems": partial(_read, _problem),
    "transcript": partial(_read, _transcript),
    "messages": partial(_read, _messages),
    "sharegpt": partial(_read, _messages),
    "alpaca": alpaca,
    "dataset": dataset,
}
"""Import formats by name: the export formats that can be read back, and the format of `camel play --save`."""


def store(folder: RunFolder, transcripts: Iterable[Transcript], format: str, cost: Cost = no_cost) -> int:
    """Store transcripts as a new run, and return the number of conversations.

    Writes the data first, then its marker, then `run.json`, so that an interrupted import is not a run.
    """
    if folder.exists or folder.stages() or (folder.root.exists() and any(folder.root.iterdir())):
        raise InputError(f"'{folder.address}' is not empty. Import into a new folder")
    stage, left = LAST_STAGES[0], iter(transcripts)
    rows = number = 0
    scenarios: set[str] = set()
    while some := list(islice(left, _ROWS_PER_SHARD)):
        path = folder.data_path(stage, number, new_attempt(), ".parquet")
        written = write_indexed(folder, stage, path, some, "imported", cost)
        file, size = folder.persist(path)
        folder.commit(Marker(stage, number, file, written.rows, written.sha256, "imported", {}, size))
        scenarios |= {transcript.scenario for transcript in some}
        rows, number = rows + written.rows, number + 1
    if not rows:
        raise InputError(
            "there is nothing to import: use .json, .jsonl, .tar.gz, .zip or a folder of .json files"
        )
    config = {"scenario": ", ".join(sorted(scenarios - {""})) or "imported", "imported": format}
    folder.create(Settings("imported", config, __version__))
    return rows
