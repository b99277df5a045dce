"""Exporters: transcripts in the formats that other people's code reads.

    chat          the original's conversations: an archive or a folder of JSON files, or lines
    instruction   the original's instruction and solution pairs
    problems      the original's Math and Science rows: a problem and its solution
    messages, sharegpt, alpaca    rows for training
    dataset       Parquet files and a card; `datasets.load_dataset(folder)` opens it

Each takes any iterable, holds one transcript (`dataset`: one row group) at a time, and puts the result in its place
with a rename, so a file that is there is whole. The same transcripts in the same order give the same bytes.

The one decision to know: a row made from a transcript with labels carries them under an additional last key `labels`,
whatever the format; rows without labels have exactly the format's own keys. What is labelled `misalignment` is
refused unless the release acknowledges it and names a canary, which then stands in every such row under `canary`.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import secrets
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast
from urllib.parse import quote

import msgspec

from camel._version import __version__
from camel.core.errors import InputError, shown
from camel.core.grammar import DONE_TOKEN
from camel.core.message import Message, Usage
from camel.core.role_playing import ASSISTANT, USER
from camel.core.stopping import Stop
from camel.core.transcript import Speaker, Transcript
from camel.storage import table
from camel.storage.journal import sync_folder

RESTRICTED = frozenset({"misalignment"})
"""Labels of what simulates malicious use."""


@dataclass(frozen=True, slots=True)
class Release:
    """What whoever publishes declares."""

    acknowledge: bool = False
    """Rows with a restricted label are meant to be in it, and whoever gets it will know."""
    canary: str = ""
    """A GUID that lets others find, and keep out of training, what came from here. Restricted rows need one."""


class Written(NamedTuple):
    """What an export came to."""

    path: Path
    conversations: int
    rows: int


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
    return _write(transcripts, path, release, lambda transcript: [_chat_row(transcript)], _DOCUMENT_ENDINGS)


def instruction(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Written:  # noqa: B008 - frozen
    """The original's instruction format: each instruction with the solution that answers it."""
    return _write(transcripts, path, release, _instruction_rows, _ROW_ENDINGS)


def problems(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Written:  # noqa: B008 - frozen
    """The original's Math and Science format: a problem and its solution. Unanswered problems are left out."""
    return _write(transcripts, path, release, _problem_rows, _DOCUMENT_ENDINGS)


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
            raise InputError(f"conversation {shown(transcript.id)} is not one problem and its solution")
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

    return _write(transcripts, path, release, rows, _ROW_ENDINGS)


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

    return _write(transcripts, path, release, rows, _ROW_ENDINGS)


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

    return _write(transcripts, path, release, rows, _ROW_ENDINGS)


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


_DOCUMENT_ENDINGS = (".tar.gz", ".tgz", ".jsonl", ".jsonl.gz", ".json", ".json.gz", "")
_ROW_ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_Put = Callable[[str, bytes], None]
"""Takes the name of a document and its JSON."""

_encode = msgspec.json.Encoder().encode


def _write(
    transcripts: Iterable[Transcript],
    path: Path,
    release: Release,
    rows: Callable[[Transcript], Iterable[dict[str, Any]]],
    endings: tuple[str, ...],
) -> Written:
    conversations = count = 0
    with _sink(path, endings) as put:
        for transcript in transcripts:
            marks = _marks(transcript, release)
            conversations += 1
            for row in rows(transcript):
                put(transcript.id, _encode({**row, **marks} if marks else row))
                count += 1
    return Written(path, conversations, count)


def _marks(transcript: Transcript, release: Release) -> dict[str, Any]:
    """What a labelled row carries besides; refuses what the release does not acknowledge."""
    if not transcript.labels:
        return {}
    restricted = RESTRICTED.intersection(transcript.labels)
    if restricted and not (release.acknowledge and release.canary):
        raise InputError(
            f"conversation {shown(transcript.id)} is labelled {', '.join(sorted(restricted))}: "
            "exporting it takes acknowledge and a canary GUID"
        )
    return {"labels": transcript.labels, **({"canary": release.canary} if restricted else {})}


@contextlib.contextmanager
def _sink(path: Path, endings: tuple[str, ...]) -> Generator[_Put]:
    """Where documents go, by how the path ends."""
    ending = next(
        (end for end in sorted(endings, key=len, reverse=True) if path.name.lower().endswith(end)), None
    )
    if ending is None or (
        ending == "" and path.suffix in (".zip", ".gz", ".tar", ".parquet", ".csv", ".txt")
    ):
        known = ", ".join(end or "a folder" for end in endings)
        raise InputError(f"{path.name}: this format is written as {known}")
    if ending == "":
        with new_folder(path) as folder:
            yield lambda name, data: _put_file(folder, name, data)
        return
    with _replacing(path) as file, _compressed(file, ending) as stream:
        if ending in (".tar.gz", ".tgz"):
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
                yield _Archive(archive).put
        elif ending.startswith(".jsonl"):
            yield lambda name, data: _put_all(stream, data, b"\n")
        else:
            array = _Array(stream)
            yield array.put
            array.end()


def _put_all(stream: IO[bytes], *parts: bytes) -> None:
    for part in parts:
        stream.write(part)


class _Array:
    """A JSON array that is never in memory as a whole."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._next = b"[\n"

    def put(self, name: str, data: bytes) -> None:
        _put_all(self._stream, self._next, data)
        self._next = b",\n"

    def end(self) -> None:
        self._stream.write(b"[]\n" if self._next == b"[\n" else b"\n]\n")


def _put_file(folder: Path, name: str, data: bytes) -> None:
    try:
        with (folder / file_name(name)).open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise InputError(f"two conversations have the id {shown(name)}") from None


class _Archive:
    """A tar whose bytes depend on nothing but its documents."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._names: set[str] = set()

    def put(self, name: str, data: bytes) -> None:
        entry = tarfile.TarInfo(file_name(name))
        if entry.name in self._names:
            raise InputError(f"two conversations have the id {shown(name)}")
        self._names.add(entry.name)
        entry.size = len(data)
        self._archive.addfile(entry, BytesIO(data))
        cast("Any", self._archive).members = []  # kept for a listing that nobody asks for


def file_name(id: str) -> str:
    """A file name for an id: letters, digits, `_`, `-` and `.` stay, and nothing leads out of the folder.

    Different ids have different names; `urllib.parse.unquote` gives the id back unless it was very long.
    """
    name = quote(id, safe="", errors="replace").replace("~", "%7E") or "%"
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > 180:
        start = re.sub(r"[^A-Za-z0-9_-]+", "-", id[:100])
        name = f"{start}-{hashlib.sha256(id.encode('utf-8', 'replace')).hexdigest()}"
    return f"{name}.json"


@contextlib.contextmanager
def _replacing(path: Path) -> Generator[IO[bytes]]:
    """A file that takes the place of `path` once it is whole and durable."""
    if path.is_dir():
        raise InputError(f"{path} is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A folder that appears as `path` once everything in it has been written. Never replaces one that holds anything."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} exists: move it away or choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    temporary.mkdir()
    try:
        yield temporary
        sync_folder(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.partial")


@contextlib.contextmanager
def _compressed(file: IO[bytes], ending: str) -> Generator[IO[bytes]]:
    if not ending.endswith("gz"):
        yield file
        return
    # No name and no time in the header, so that the bytes are the same every time.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as stream:
        yield cast("IO[bytes]", stream)


# ---------------------------------------------------------------- a dataset


def dataset(
    transcripts: Iterable[Transcript] | Mapping[str, Iterable[Transcript]],
    path: Path,
    *,
    release: Release = Release(),  # noqa: B008 - frozen
    title: str = "",
    licence: str = "cc-by-nc-4.0",
    rows_per_file: int = 100_000,
) -> Written:
    """A folder of Parquet files and a card, ready for `datasets.load_dataset` and for the hub.

    `transcripts` may map the names of splits to their transcripts; otherwise all of them are `train`.
    """
    given = cast("Any", transcripts)
    splits = cast(
        "Mapping[str, Iterable[Transcript]]", given if isinstance(given, Mapping) else {"train": given}
    )
    figures = {split: _Figures() for split in splits}
    with new_folder(path) as folder:
        (folder / "data").mkdir()
        for split, rows in splits.items():
            if not re.fullmatch(r"[A-Za-z]\w*", split, re.ASCII):
                raise InputError(f"a split is named by letters, digits and _, not {shown(split)}")
            _write_split(
                folder / "data", split, _counted(rows, figures[split], release), release, rows_per_file
            )
        card = _card(title or path.name, licence, figures, release)
        with (folder / "README.md").open("wb") as file:
            file.write(card.encode())
            file.flush()
            os.fsync(file.fileno())
    count = sum(figure.conversations for figure in figures.values())
    return Written(path, count, count)


def _counted(transcripts: Iterable[Transcript], figures: _Figures, release: Release) -> Iterator[Transcript]:
    for transcript in transcripts:
        _marks(transcript, release)
        figures.add(transcript)
        yield transcript


def _write_split(
    folder: Path, split: str, transcripts: Iterator[Transcript], release: Release, rows_per_file: int
) -> None:
    layout = _dataset_schema(release)
    files: list[Path] = []
    first = next(transcripts, None)
    while first is not None or not files:
        rows = chain([first], islice(transcripts, rows_per_file - 1)) if first is not None else iter(())
        files.append(folder / f"{split}-{len(files):05d}")
        groups = (_as_dataset(batch, layout, release) for batch in table.batches(rows))
        table.write_batches(files[-1], groups, layout)
        first = next(transcripts, None)
    for number, file in enumerate(files):
        file.rename(folder / f"{split}-{number:05d}-of-{len(files):05d}.parquet")


def _dataset_schema(release: Release) -> Any:
    """A transcript's schema, with facts as pairs, because `datasets` knows no maps, and the canary on every row."""
    pa = table.arrow()
    pair = pa.struct([("key", pa.string()), ("value", pa.string())])
    fields = [pa.field("facts", pa.list_(pair)) if f.name == "facts" else f for f in table.schema()]
    if release.canary:
        fields.append(pa.field("canary", pa.string()))
    return pa.schema(fields)


def _as_dataset(batch: Any, layout: Any, release: Release) -> Any:
    pa = table.arrow()
    columns = {name: batch.column(name) for name in batch.schema.names}
    facts = columns["facts"]
    pair = layout.field("facts").type.value_type
    columns["facts"] = pa.ListArray.from_arrays(
        facts.offsets, pa.StructArray.from_arrays([facts.keys, facts.items], fields=list(pair))
    )
    if release.canary:
        columns["canary"] = pa.repeat(pa.scalar(release.canary, pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in layout.names], schema=layout)


@dataclass(slots=True)
class _Figures:
    """What the card says about a split; small however many transcripts it has seen."""

    conversations: int = 0
    usage: Usage = field(default_factory=Usage)
    characters: int = 0
    lengths: Counter[int] = field(default_factory=Counter[int])
    stops: Counter[str] = field(default_factory=Counter[str])
    finishes: Counter[str] = field(default_factory=Counter[str])
    empty: int = 0
    models: Counter[str] = field(default_factory=Counter[str])
    scenarios: Counter[str] = field(default_factory=Counter[str])
    fingerprints: Counter[str] = field(default_factory=Counter[str])
    labels: Counter[str] = field(default_factory=Counter[str])

    def add(self, transcript: Transcript) -> None:
        self.conversations += 1
        self.usage += transcript.usage
        self.lengths[len(transcript.messages)] += 1
        self.stops[transcript.stop.reason if transcript.stop else "unfinished"] += 1
        self.scenarios[transcript.scenario] += 1
        self.fingerprints[transcript.fingerprint] += 1
        self.labels.update(transcript.labels)
        for message in transcript.messages:
            self.characters += len(message.content)
            self.finishes[message.finish] += 1
            self.empty += not message.content.strip()
            self.models[message.model] += 1

    def update(self, other: _Figures) -> None:
        self.conversations += other.conversations
        self.usage += other.usage
        self.characters += other.characters
        self.empty += other.empty
        for name in ("lengths", "stops", "finishes", "models", "scenarios", "fingerprints", "labels"):
            getattr(self, name).update(getattr(other, name))

    @property
    def messages(self) -> int:
        return sum(length * count for length, count in self.lengths.items())

    def length_at(self, share: float) -> int:
        """The number of messages that this share of the conversations does not exceed."""
        seen = 0
        for length, count in sorted(self.lengths.items()):
            seen += count
            if seen >= share * self.conversations:
                return length
        return 0


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_FAILURES = {
    "error": "ended by an error of the model or its endpoint",
    "assistant_instructs": "the assistant gave an instruction (role flipping)",
    "user_no_instruction": "the user stopped giving instructions",
    "message_loop": "the speakers repeated themselves",
    "token_limit": "cut off at the context window",
    "unfinished": "without an end",
}
_WARNING = (
    "These conversations simulate malicious use, for red-team research only. They contain harmful content by design: "
    "do not train a deployed model on them, and do not act on what they say."
)


def _card(title: str, licence: str, figures: Mapping[str, _Figures], release: Release) -> str:
    """The dataset's README: YAML for machines, then words for people."""
    total = _Figures()
    for figure in figures.values():
        total.update(figure)
    restricted = sorted(RESTRICTED.intersection(total.labels))
    size = next((name for limit, name in _SIZES if total.conversations < limit), "n>1M")
    front = [
        "---",
        f"pretty_name: {_quoted(title)}",
        f"license: {_quoted(licence)}",
        "task_categories:",
        "- text-generation",
        "tags:",
        "- synthetic",
        "- role-playing",
        "- camel",
        *(["- red-teaming", "- not-for-all-audiences"] if restricted else []),
        "size_categories:",
        f"- {size}",
        *(_gate() if restricted else []),
        "configs:",
        "- config_name: default",
        "  data_files:",
        *(line for split in figures for line in (f"  - split: {split}", f"    path: data/{split}-*.parquet")),
        "---",
    ]
    parts = [
        [f"# {_plain(title)}"],
        [f"> **Warning.** {_WARNING}"] if restricted else [],
        [f"Canary: `{_plain(release.canary)}`. Data with this GUID must not be in a training corpus."]
        if release.canary and restricted
        else [f"Canary: `{_plain(release.canary)}`."]
        if release.canary
        else [],
        [
            f"{total.conversations:,} conversations between language-model agents, {total.messages:,} messages, "
            "generated with CAMEL. Text written by models: it contains errors and inventions.",
        ],
        ["## Provenance", "", *_provenance(total, licence)],
        ["## Statistics", "", *_statistics(figures, total)],
        ["## Known failure rates", "", *_failure_rates(total)],
        ["## Columns", "", *_COLUMNS],
    ]
    return "\n".join(front) + "\n\n" + "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _gate() -> list[str]:
    agreement = "I will use this data for safety research only, and not to train a deployed model"
    return [
        f"extra_gated_prompt: {_quoted(_WARNING)}",
        "extra_gated_fields:",
        "  Name: text",
        "  Affiliation: text",
        "  Purpose: text",
        f"  {_quoted(agreement)}: checkbox",
    ]


def _provenance(total: _Figures, licence: str) -> list[str]:
    return [
        f"- Scenario: {_listed(total.scenarios)}",
        f"- Models, by messages: {_listed(total.models)}",
        f"- Configuration fingerprint: {_listed(total.fingerprints)}",
        *([f"- Labels: {_listed(total.labels)}"] if total.labels else []),
        f"- Written by camel-society {__version__}",
        f"- Licence: {_plain(licence)}; what a model wrote is also subject to the terms of that model.",
    ]


def _statistics(figures: Mapping[str, _Figures], total: _Figures) -> list[str]:
    columns = {**figures, **({"all": total} if len(figures) > 1 else {})}
    rows: list[tuple[str, Callable[[_Figures], str]]] = [
        ("conversations", lambda f: f"{f.conversations:,}"),
        ("messages", lambda f: f"{f.messages:,}"),
        (
            "messages a conversation, median (5% – 95%)",
            lambda f: f"{f.length_at(0.5)} ({f.length_at(0.05)} – {f.length_at(0.95)})",
        ),
        ("characters a message, mean", lambda f: f"{f.characters / max(1, f.messages):,.0f}"),
        ("calls", lambda f: f"{f.usage.calls:,}"),
        ("prompt tokens", lambda f: f"{f.usage.prompt:,}"),
        ("of these cached", lambda f: f"{f.usage.cached:,}"),
        ("completion tokens", lambda f: f"{f.usage.completion:,}"),
        ("calls without a token count", lambda f: f"{f.usage.unknown:,}"),
    ]
    return [
        f"| | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
        *(f"| {name} | {' | '.join(map(show, columns.values()))} |" for name, show in rows),
        *(
            f"| ended: {reason} | {' | '.join(_share(f.stops[reason], f.conversations) for f in columns.values())} |"
            for reason, _ in _ranked(total.stops)
        ),
    ]


def _failure_rates(total: _Figures) -> list[str]:
    found = [
        f"| {words} | {_share(total.stops[reason], total.conversations)} |"
        for reason, words in _FAILURES.items()
    ]
    of_messages = {
        "messages cut off at their length limit": total.finishes["length"],
        "messages that are refusals or were filtered": total.finishes["refusal"]
        + total.finishes["content_filter"],
        "messages without text": total.empty,
    }
    found += [f"| {words} | {_share(count, total.messages)} |" for words, count in of_messages.items()]
    return ["| | |", "|---|---:|", *found, "", "What was said has not been checked for truth."]


_COLUMNS = [
    "One row a conversation: `id`, `scenario`, `task` (original, specified), `speakers` (with their system prompts and, as JSON,",
    "their sampling), `messages` (speaker, role, content, model, finish reason, token usage, latency), `stop` (why it ended), `facts`",
    "(what the scenario drew it from), `labels`, `fingerprint`, `schema`, and totals.",
]


def _share(count: int, total: int) -> str:
    return f"{count:,} ({count / total:.1%})" if total else "0"


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    """By frequency; those of the same by name, so that no two exports differ."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _listed(counts: Counter[str], most: int = 8) -> str:
    """Names by frequency; they come from endpoints and configurations, so they are shown as code."""
    named = [(name, count) for name, count in _ranked(counts) if name]
    shown_names = [f"`{_plain(name)}` ({count:,})" for name, count in named[:most]]
    if len(named) > most:
        shown_names.append(f"and {len(named) - most:,} more")
    return ", ".join(shown_names) or "not recorded"


def _plain(text: str) -> str:
    """On one line and without what Markdown or a table would read as markup."""
    return " ".join(re.sub(r"[`|<>\[\]*\\]", " ", text).split())[:200]


def _quoted(text: str) -> str:
    """As a YAML string on one line."""
    plain = "".join(char for char in text if char.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


FORMATS: dict[str, Exporter] = {
    "chat": Exporter(chat, "the original's conversations, one JSON object each", _DOCUMENT_ENDINGS),
    "instruction": Exporter(instruction, "the original's instruction and solution pairs", _ROW_ENDINGS),
    "problems": Exporter(
        problems, "the original's Math and Science problems and solutions", _DOCUMENT_ENDINGS
    ),
    "messages": Exporter(messages, "chat messages as OpenAI and TRL read them", _ROW_ENDINGS),
    "sharegpt": Exporter(sharegpt, "conversations of human and gpt", _ROW_ENDINGS),
    "alpaca": Exporter(alpaca, "instruction, input, output", _ROW_ENDINGS),
    "dataset": Exporter(dataset, "Parquet files and a card for datasets.load_dataset and the hub", ("",)),
}
"""Every format by its name on the command line."""
