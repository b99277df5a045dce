"""Imports: the original's files in every wrapping, exact round trips, and errors that name what is wrong."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.formats import containers, exporters
from camel.formats import documents as importers
from camel.formats.original import pairs
from camel.jobs.status import read_status
from camel.record.release import Release
from camel.runs.run import open_folder

RELEASE = Release(acknowledge=True, canary="c4n4ry")

# A conversation as the original wrote it.
ORIGINAL: dict[str, Any] = {
    "role_1": "Accountant_RoleType.ASSISTANT",
    "role_2": "Actor_RoleType.USER",
    "id": "001_002_003",
    "original_task": "Make a budget.",
    "specified_task": "Make a budget for a tour.",
    "message_1": {
        "role_name": "Actor",
        "role_type": "USER",
        "role": "user",
        "content": "Instruction: List the costs.\nInput: None",
    },
    "message_2": {
        "role_name": "Accountant",
        "role_type": "ASSISTANT",
        "role": "assistant",
        "content": "Solution: Travel, food.\n\nNext request.",
    },
    "num_messages": 2,
    "termination_reason": "RoleType.ASSISTANT: max_tokens_exceeded_by_camel",
}


def original(**changes: Any) -> dict[str, Any]:
    return {**ORIGINAL, **changes}


def numbered(count: int) -> list[dict[str, Any]]:
    return [original(id=f"{number:03d}") for number in range(count)]


def as_folder(path: Path, rows: list[dict[str, Any]]) -> Path:
    (path / "chat" / "deep").mkdir(parents=True)
    for row in rows:
        (path / "chat" / "deep" / f"{row['id']}.json").write_text(json.dumps(row), encoding="utf-8")
    (path / "chat" / "notes.txt").write_text("no JSON")
    (path / "chat" / ".DS_Store.json").write_bytes(b"\0")
    return path / "chat"


def as_tar(path: Path, rows: list[dict[str, Any]]) -> Path:
    with tarfile.open(path / "chat.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("chat/"), None)
        for row in rows:
            data = json.dumps(row).encode()
            entry = tarfile.TarInfo(f"chat/{row['id']}.json")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path / "chat.tar.gz"


def as_zip(path: Path, rows: list[dict[str, Any]]) -> Path:
    with zipfile.ZipFile(path / "chat.zip", "w") as archive:
        for row in rows:
            archive.writestr(f"chat/{row['id']}.json", json.dumps(row))
            archive.writestr(f"__MACOSX/chat/{row['id']}.json", b"\0")
    return path / "chat.zip"


def as_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    (path / "chat.jsonl").write_text("\ufeff" + "\n\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path / "chat.jsonl"


def as_compressed_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    (path / "chat.jsonl.gz").write_bytes(gzip.compress(as_lines(path, rows).read_bytes()))
    return path / "chat.jsonl.gz"


def as_array(path: Path, rows: list[dict[str, Any]]) -> Path:
    (path / "chat.json").write_text("\ufeff" + json.dumps(rows, indent=1), encoding="utf-8")
    return path / "chat.json"


WRAPPINGS = [as_folder, as_tar, as_zip, as_lines, as_compressed_lines, as_array]


@pytest.mark.parametrize("wrap", WRAPPINGS)
def test_chat_in_every_wrapping(wrap: Callable[[Path, list[dict[str, Any]]], Path], tmp_path: Path):
    got = list(importers.IMPORTERS["chat"](wrap(tmp_path, numbered(3)), scenario="ai_society"))
    assert [transcript.id for transcript in got] == ["000", "001", "002"]
    assert got[0] == Transcript(
        "000",
        Task("Make a budget.", "Make a budget for a tour."),
        [Speaker("user", "Actor"), Speaker("assistant", "Accountant")],
        [
            Message(0, "user", "Actor", "Instruction: List the costs.\nInput: None"),
            Message(1, "assistant", "Accountant", "Solution: Travel, food.\n\nNext request."),
        ],
        Stop("token_limit", "RoleType.ASSISTANT: max_tokens_exceeded_by_camel"),
        "ai_society",
    )


def test_a_single_object_in_a_file(tmp_path: Path):
    path = tmp_path / "007_001_002.json"
    path.write_text(json.dumps({key: value for key, value in ORIGINAL.items() if key != "id"}))
    (got,) = importers.IMPORTERS["chat"](path)
    assert got.id == "007_001_002"


def test_a_file_of_the_original_comes_out_as_it_went_in(tmp_path: Path):
    exporters.chat(importers.IMPORTERS["chat"](as_lines(tmp_path, [ORIGINAL])), tmp_path / "out.jsonl")
    row = json.loads((tmp_path / "out.jsonl").read_bytes())
    assert list(row.items()) == list(ORIGINAL.items())


def test_chat_takes_what_variants_there_are(tmp_path: Path):
    variant = {
        "input": "001_001_001",
        "role_1": "Chef",
        "planned_task": None,
        "specified_task": None,
        "message_10": {"content": "last", "role": "assistant"},
        "message_2": {"content": "second", "role_name": None},
        "message_1": {"content": "first", "role_type": "RoleType.USER", "role_name": "Cook"},
        "message_x": "no message",
        "num_messages": 99,
    }
    (got,) = importers.IMPORTERS["chat"](as_lines(tmp_path, [variant]))
    assert (got.id, got.task, got.stop) == ("001_001_001", Task(""), None)
    assert [(m.index, m.speaker, m.role, m.content) for m in got.messages] == [
        (0, "user", "Cook", "first"),
        (1, "assistant", "Chef", "second"),
        (2, "assistant", "Chef", "last"),
    ]


def test_half_a_surrogate_pair_does_not_get_in(tmp_path: Path):
    (tmp_path / "x.jsonl").write_bytes(b'{"id": "a\\ud800", "original_task": NaN, "num_messages": 0}')
    (got,) = importers.IMPORTERS["chat"](tmp_path / "x.jsonl")
    assert got.id == "a?"


def test_problems_with_the_published_key(tmp_path: Path):
    row = {
        "role_1": "Physicist_RoleType.ASSISTANT",
        "topic;": "Optics",
        "sub_topic": "Lenses",
        "message_1": "P",
        "message_2": "S",
    }
    (got,) = importers.IMPORTERS["problems"](
        as_zip(tmp_path, [{**row, "id": "001_002_003"}]), scenario="physics"
    )
    assert got.id == "001_002_003"
    assert [(m.speaker, m.role, m.content) for m in got.messages] == [
        ("user", "User", "P"),
        ("assistant", "Physicist", "S"),
    ]
    assert got.inputs == {"topic": "Optics", "subtopic": "Lenses", "problem": "P"}
    (tmp_path / "x.jsonl").write_text('{"message_1": "P"}')
    with pytest.raises(InputError, match=r"x\.jsonl:1: .*message_2"):
        list(importers.IMPORTERS["problems"](tmp_path / "x.jsonl"))


def test_instruction_rows_become_conversations(tmp_path: Path):
    shared = {
        key: ORIGINAL[key]
        for key in ("role_1", "role_2", "original_task", "specified_task", "termination_reason")
    }
    rows = [
        {"id": "1", **shared, "role_1_message_id": 1, "instruction": "A", "input": "", "output": "a"},
        {
            "id": "1",
            **shared,
            "role_1_message_id": "5",
            "role_1_response": "Good.",
            "instruction": "B",
            "input": "i",
            "output": "b",
        },
        {"id": "2", **shared, "instruction": "C", "input": "None", "output": "c"},
    ]
    (tmp_path / "i.json").write_text(json.dumps(rows))
    one, two = importers.instruction(tmp_path / "i.json")
    assert [(m.index, m.speaker, m.content) for m in one.messages] == [
        (0, "user", "Instruction: A\nInput: None"),
        (1, "assistant", "Solution: a\n\nNext request."),
        (4, "user", "Good.\n\nInstruction: B\nInput: i"),
        (5, "assistant", "Solution: b\n\nNext request."),
    ]
    assert (two.id, len(two.messages), two.speakers[0].role) == ("2", 2, "Actor")


# ---------------------------------------------------------------- round trips

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ids = st.one_of(texts, st.sampled_from(["../../x", "/a", "", ".", "x" * 300]))
stops = st.none() | st.builds(
    Stop,
    st.sampled_from(
        [
            "done",
            "user_no_instruction",
            "assistant_instructs",
            "token_limit",
            "max_messages",
            "message_loop",
            "stopped",
            "error",
        ]
    ),
    st.one_of(texts, st.sampled_from(["max_num_messages", "error: x", "<CAMEL_TASK_DONE>"])),
    st.sampled_from(["", "user", "assistant"]),
)
labels = st.lists(st.sampled_from(["misalignment", "other"]), max_size=2)


@st.composite
def talks(draw: st.DrawFn, contents: st.SearchStrategy[str] = texts) -> Transcript:
    roles = {"user": draw(texts), "assistant": draw(texts)}
    said = draw(st.lists(contents, max_size=5))
    names = ["assistant" if index % 2 else "user" for index in range(len(said))]
    spoken = zip(names, said, strict=True)
    return Transcript(
        draw(ids),
        Task(draw(texts), draw(texts), "m", Usage(1, 1, 0, 1)),
        [Speaker(name, role, "prompt") for name, role in roles.items()],
        [Message(index, name, roles[name], text, "m") for index, (name, text) in enumerate(spoken)],
        draw(stops),
        labels=draw(labels),
    )


moves = st.one_of(
    texts,
    st.builds("Instruction: {}\nInput: {}".format, texts, texts),
    st.builds("{}\n\n**Instruction:** {}".format, texts, texts),
    st.builds("Solution: {}\n\nNext request.".format, texts),
)
relaxed = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)


def unique(transcripts: list[Transcript]) -> list[Transcript]:
    return list({transcript.id: transcript for transcript in transcripts}.values())


@relaxed
@given(st.lists(talks(), max_size=4).map(unique), st.sampled_from([".tar.gz", ".jsonl", ".json"]))
def test_chat_survives_the_round_trip(tmp_path: Path, given: list[Transcript], ending: str):
    one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
    exporters.chat(given, one, release=RELEASE)
    back = list(importers.IMPORTERS["chat"](one))
    exporters.chat(back, two, release=RELEASE)
    assert one.read_bytes() == two.read_bytes()
    kept = [transcript for transcript in given if not transcript.failed]
    assert [transcript.labels for transcript in back] == [transcript.labels for transcript in kept]


@relaxed
@given(talks())
def test_a_transcript_that_was_saved_is_read_as_it_was(tmp_path: Path, given: Transcript):
    path = tmp_path / "conversation.json"
    path.write_bytes(given.to_json())
    assert list(importers.IMPORTERS["transcript"](path)) == [given]
    with pytest.raises(InputError, match="--format transcript"):
        list(importers.IMPORTERS["chat"](path))


@relaxed
@given(st.lists(talks(moves), max_size=4))
def test_instruction_survives_the_round_trip(tmp_path: Path, given: list[Transcript]):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assume(not given or any(True for talk in given if not talk.failed for _ in pairs(talk)))
    exporters.instruction(given, one, release=RELEASE)
    exporters.instruction(importers.instruction(one), two, release=RELEASE)
    assert one.read_bytes() == two.read_bytes()


HOSTILE_MOVES = [
    'Instruction: say "hello\nInput: ```',
    "Instruction: <!-- x",
    "Thanks.\n```py\nx = 1\n```\n1. Instruction: go\nInput: `",
    'You said "Instruction: x". Instruction: x\nInput: None',
    "Instruction: end with <CAMEL_TASK_DONE>\nInstruction: again",
    "# Instruction\n\nDo.\nInput: this\r\nInput: that",
    "Great! **Instruction:** Continue.",
]


@pytest.mark.parametrize("asked", HOSTILE_MOVES)
@pytest.mark.parametrize(
    "answer",
    [
        "Solution: ok",
        'Solution: ".<CAMEL_TASK_DONE>\nInstruction:',
        "Solution: x Next request. Next request.",
    ],
)
def test_text_that_imitates_the_grammar_survives_too(tmp_path: Path, asked: str, answer: str):
    roles = [Speaker("user", "U"), Speaker("assistant", "A")]
    said = [Message(0, "user", "U", asked), Message(1, "assistant", "A", answer)]
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert exporters.instruction([Transcript("x", Task("T"), roles, said)], one).rows == 1
    exporters.instruction(importers.instruction(one), two)
    assert one.read_bytes() == two.read_bytes()


@relaxed
@given(
    st.lists(st.tuples(ids, texts, texts, texts, labels), max_size=4), st.sampled_from([".tar.gz", ".jsonl"])
)
def test_problems_survive_the_round_trip(
    tmp_path: Path, given: list[tuple[str, str, str, str, list[str]]], ending: str
):
    made = [
        Transcript(
            id,
            Task(problem),
            [Speaker("assistant", role)],
            [Message(0, "assistant", role, solution)],
            inputs={"topic": problem[:3], "subtopic": role},
            labels=marks,
        )
        for id, problem, solution, role, marks in given
    ]
    one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
    exporters.problems(unique(made), one, release=RELEASE)
    exporters.problems(importers.IMPORTERS["problems"](one), two, release=RELEASE)
    assert one.read_bytes() == two.read_bytes()


def test_every_importer_has_its_exporter():
    assert importers.IMPORTERS.keys() - exporters.FORMATS.keys() == {"transcript"}


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", r"x\.jsonl:2 is not valid JSON"),
        ("[1]", r"x\.jsonl:2 .*\[1\]"),
        ('{"message_1": "text"}', r"x\.jsonl:2: message_1\b"),
        ('{"message_1": {"content": ["a"]}}', r"x\.jsonl:2: content\b"),
        ('{"num_messages": 0, "labels": "misalignment"}', r"x\.jsonl:2: labels"),
        ('{"num_messages": 0, "id": true}', r"x\.jsonl:2: id\b"),
        ("[" * 100_000, r"x\.jsonl:2 is not valid JSON"),
        ('{"id": "\udcff"}', r"x\.jsonl:2 is not valid JSON"),
    ],
)
def test_errors_name_the_place_and_can_be_passed_over(line: str, words: str, tmp_path: Path):
    path = tmp_path / "x.jsonl"
    rows = [json.dumps(original(id="1")), line, json.dumps(original(id="3"))]
    path.write_bytes("\n".join(rows).encode("utf-8", "surrogateescape"))
    reading = importers.IMPORTERS["chat"](path)
    assert next(reading).id == "1"
    with pytest.raises(InputError, match=words):
        next(reading)
    errors: list[InputError] = []
    assert [transcript.id for transcript in importers.IMPORTERS["chat"](path, on_error=errors.append)] == [
        "1",
        "3",
    ]
    assert len(errors) == 1


@pytest.mark.parametrize("wrap", [as_tar, as_zip, as_compressed_lines, as_array])
def test_a_file_that_was_cut_is_an_error_that_names_it(wrap: Callable[..., Path], tmp_path: Path):
    path = wrap(tmp_path, numbered(3))
    whole = path.read_bytes()
    for size in (len(whole) // 2, 10, 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=str(path)):
            list(importers.IMPORTERS["chat"](path))


def test_what_is_no_data_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"nothing\.json"):
        list(importers.IMPORTERS["chat"](tmp_path / "nothing.json"))
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(InputError, match=r"x\.csv.*\.jsonl"):
        list(importers.IMPORTERS["chat"](tmp_path / "x.csv"))


def test_a_document_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(containers, "MAX_DOCUMENT", 10_000)
    monkeypatch.setattr(containers, "_CHUNK", 1_000)
    bomb = [original(id="b", original_task="x" * 100_000)]
    for wrap in WRAPPINGS:
        (tmp_path / wrap.__name__).mkdir()
        with pytest.raises(InputError, match="10,000"):
            list(importers.IMPORTERS["chat"](wrap(tmp_path / wrap.__name__, bomb)))


def test_a_long_array_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(containers, "_CHUNK", 64)
    rows = [original(id=f"{number:03d}", original_task="日本𝔘" * number) for number in range(40)]
    (tmp_path / "x.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    got = list(importers.IMPORTERS["chat"](tmp_path / "x.json"))
    assert [(t.id, t.task.original) for t in got] == [(row["id"], row["original_task"]) for row in rows]


@pytest.mark.parametrize(
    ("read", "row", "words"),
    [
        (
            "chat",
            {"messages": [{"role": "user", "content": "x"}]},
            "--format messages",
        ),
        ("chat", {"conversations": [{"from": "human", "value": "x"}]}, "--format sharegpt"),
        ("chat", {"role_1": "A", "instruction": "x", "output": "y"}, "--format instruction"),
        ("chat", {"message_1": "x", "message_2": "y"}, "--format problems"),
        ("chat", {"text": "x"}, r"\['text'\].*--format chat, instruction, problems"),
        ("chat", {"num_messages": 3}, "no message_1"),
        ("problems", {"message_1": {"content": "x"}, "message_2": {}}, "--format chat"),
        ("instruction", {"message_1": {"content": "x"}}, "--format chat"),
    ],
)
def test_a_row_of_another_format_is_refused_and_named(
    read: str, row: dict[str, Any], words: str, tmp_path: Path
):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=words):
        list(importers.IMPORTERS[read](path))


def test_a_conversation_that_failed_before_it_began_is_read(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "1", "num_messages": 0, "termination_reason": "error: boom"}\n')
    (transcript,) = importers.IMPORTERS["chat"](path)
    assert transcript.messages == []


def test_an_import_is_complete_whatever_scenario_it_names(tmp_path: Path):
    pytest.importorskip("pyarrow")
    found = importers.IMPORTERS["chat"](as_lines(tmp_path, numbered(3)), scenario="ai_society")
    assert importers.store(open_folder(tmp_path / "run"), found, "chat") == 3
    status = read_status(tmp_path / "run")
    assert (status.state, status.scenario) == ("complete", "ai_society")
    with pytest.raises(InputError, match="not empty"):
        importers.store(open_folder(tmp_path / "run"), [], "chat")
