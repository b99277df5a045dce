"""Exports: the keys that other people's code reads, whole files or none, the same bytes every time."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import os
import subprocess
import sys
import tarfile
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from camel.core.errors import InputError
from camel.core.grammar import parse
from camel.core.message import Message
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.formats.conversation import alpaca, messages, sharegpt
from camel.formats.dataset import dataset
from camel.formats.exporters import FORMATS
from camel.formats.original import chat, instruction, problems, stop_reason, termination
from camel.record.release import Release
from camel.storage.files import file_name
from tests.support.conversations import GUID, RELEASE, talk


def solved(id: str = "001_001_001", **changes: Any) -> Transcript:
    fields: dict[str, Any] = {
        "id": id,
        "task": Task("What is 2+2?"),
        "speakers": [Speaker("assistant", "Mathematician", "Solve.", "Problem: What is 2+2?")],
        "messages": [Message(0, "assistant", "Mathematician", "It is 4.", "m-1")],
        "stop": Stop("max_messages", "one answer"),
        "scenario": "math",
        "inputs": {"topic": "Algebra", "subtopic": "Sums", "problem": "What is 2+2?"},
    }
    return Transcript(**{**fields, **changes})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


# ---------------------------------------------------------------- the original's formats


def test_chat_has_the_keys_of_the_original_in_their_order(tmp_path: Path):
    path = tmp_path / "chat.tar.gz"
    assert chat([talk()], path) == (path, 1, 1)
    ((name, data),) = members(path).items()
    row = json.loads(data)
    assert name == "001_002_003.json"
    assert list(row) == [
        *("role_1", "role_2", "id", "original_task", "specified_task"),
        *(f"message_{number}" for number in range(1, 6)),
        *("num_messages", "termination_reason"),
    ]
    assert row["role_1"] == "Python Programmer_RoleType.ASSISTANT"
    assert row["role_2"] == "Stock Trader_RoleType.USER"
    assert row["id"] == "001_002_003"
    assert (row["original_task"], row["specified_task"]) == ("Trade.", "Trade well, in Python.")
    assert list(row["message_1"].items()) == [
        ("role_name", "Stock Trader"),
        ("role_type", "USER"),
        ("role", "user"),
        ("content", "Instruction: Set up the project.\nInput: None"),
    ]
    assert (row["message_2"]["role_type"], row["message_2"]["role"]) == ("ASSISTANT", "assistant")
    assert (row["num_messages"], row["termination_reason"]) == (5, "<CAMEL_TASK_DONE>")


def test_chat_says_the_same_in_every_container(tmp_path: Path):
    given = [talk("001"), talk("002")]
    for name in ("a.tar.gz", "b.jsonl", "c.jsonl.gz", "d.json", "folder"):
        assert chat(given, tmp_path / name).rows == 2
    rows = lines(tmp_path / "b.jsonl")
    assert [json.loads(data) for data in members(tmp_path / "a.tar.gz").values()] == rows
    with gzip.open(tmp_path / "c.jsonl.gz") as file:
        assert [json.loads(line) for line in file] == rows
    assert json.loads((tmp_path / "d.json").read_bytes()) == rows
    assert [json.loads(file.read_bytes()) for file in sorted((tmp_path / "folder").iterdir())] == rows


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (None, ""),
        (Stop("done", "…"), "<CAMEL_TASK_DONE>"),
        (Stop("user_no_instruction", "…"), "user_no_instruct_threshold"),
        (Stop("assistant_instructs", "…"), "assistant_instruct_threshold"),
        (Stop("message_loop", "…"), "repeat_word_threshold"),
        (Stop("max_messages", "…"), "max_num_messages"),
        (Stop("token_limit", "…", "user"), "RoleType.USER: max_tokens_exceeded"),
        (Stop("token_limit", "…", "assistant"), "RoleType.ASSISTANT: max_tokens_exceeded"),
        (Stop("error", "RateLimited: slow down"), "error: RateLimited: slow down"),
        (Stop("stopped", "Ctrl-C"), "Ctrl-C"),
    ],
)
def test_the_end_in_the_original_words(stop: Stop | None, words: str):
    assert termination(stop) == words
    if stop is not None:
        assert stop_reason(words) == stop.reason
        assert termination(Stop(stop_reason(words), words)) == words


def test_instruction_pairs_each_instruction_with_its_solution(tmp_path: Path):
    unsolved = [
        "Instruction: A\nInput: None",
        "I cannot.",
        "Instruction: B\nInput: b",
        "Solution: C Next request.",
    ]
    path = tmp_path / "instructions.json"
    assert instruction([talk(), talk("2", unsolved)], path) == (path, 2, 3)
    rows = json.loads(path.read_bytes())
    assert list(rows[0]) == [
        *("id", "role_1", "role_2", "original_task", "specified_task", "role_1_response"),
        *("role_1_message_id", "instruction", "input", "output", "termination_reason"),
    ]
    keys = ("role_1_response", "role_1_message_id", "instruction", "input", "output")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        ("", 1, "Set up the project.", "", "Done, with poetry."),
        ("Well done!", 3, "Fetch prices.", "AAPL, MSFT", 'I call `fetch("AAPL")`.'),
        ("", 3, "B", "b", "C"),
    ]
    assert instruction([], path).rows == 0
    assert json.loads(path.read_bytes()) == []


def test_problems(tmp_path: Path):
    asked = talk("two", ["What is 3+3?", "6"], inputs={"topic": "T", "sub_topic": "S"})
    unanswered = solved("none", messages=[])
    assert problems([solved(), asked, unanswered], tmp_path / "math.jsonl")[1:] == (3, 2)
    first, second = lines(tmp_path / "math.jsonl")
    assert list(first.items()) == [
        ("role_1", "Mathematician_RoleType.ASSISTANT"),
        ("topic", "Algebra"),
        ("sub_topic", "Sums"),
        ("message_1", "What is 2+2?"),
        ("message_2", "It is 4."),
    ]
    assert (second["sub_topic"], second["message_1"], second["message_2"]) == ("S", "What is 3+3?", "6")
    with pytest.raises(InputError, match=r"\bchat\b.*\binstruction\b"):
        problems([talk()], tmp_path / "math.jsonl")
    assert len(lines(tmp_path / "math.jsonl")) == 2, "the file before stays"


def test_a_format_that_has_no_row_for_any_of_them_is_refused(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_text("before")
    with pytest.raises(InputError, match=r"\bproblems\b.*\balpaca\b"):
        instruction([solved()], path)
    assert path.read_text() == "before"


def test_two_seats_only(tmp_path: Path):
    three = talk(speakers=[Speaker(name, name) for name in "abc"])
    with pytest.raises(InputError, match="3 speakers"):
        chat([three], tmp_path / "x.jsonl")
    named = talk(
        said=[],
        speakers=[Speaker("chef", "Chef"), Speaker("cook", "Cook")],
        messages=[Message(0, "cook", "Cook", "Hm")],
    )
    chat([named], tmp_path / "x.jsonl")
    (row,) = lines(tmp_path / "x.jsonl")
    assert (row["role_1"], row["role_2"]) == ("Cook_RoleType.ASSISTANT", "Chef_RoleType.USER")
    assert row["message_1"]["role_type"] == "ASSISTANT"


def test_a_conversation_that_failed_is_left_out(tmp_path: Path):
    failed = talk("f", stop=Stop("error", "ContentRejected: boom"))
    assert chat([failed, talk("a")], tmp_path / "x.jsonl").rows == 1
    (row,) = lines(tmp_path / "x.jsonl")
    assert row["id"] == "a"


# ---------------------------------------------------------------- rows for training


def test_messages_from_either_seat(tmp_path: Path):
    path = tmp_path / "m.jsonl"
    messages([talk()], path)
    (row,) = lines(path)
    assert list(row) == ["messages", "metadata"]
    assert [turn["role"] for turn in row["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert row["messages"][0] == {"role": "system", "content": "You are the assistant."}
    messages([talk()], path, seat="user", system=False)
    (row,) = lines(path)
    assert row["messages"][0] == {"role": "user", "content": "Begin."}
    assert row["messages"][-1] == {"role": "assistant", "content": "<CAMEL_TASK_DONE>"}


def test_a_single_answer_is_a_chat_too(tmp_path: Path):
    path = tmp_path / "m.jsonl"
    silent = solved("silent", messages=[])
    bare = solved("bare", speakers=[Speaker("assistant", "Mathematician")])
    assert messages([solved(), bare, silent], path)[1:] == (3, 2)
    first, second = lines(path)
    assert [turn["content"] for turn in first["messages"]] == ["Solve.", "Problem: What is 2+2?", "It is 4."]
    assert [turn["content"] for turn in second["messages"]] == ["What is 2+2?", "It is 4."]


def test_sharegpt_and_alpaca(tmp_path: Path):
    sharegpt([talk()], tmp_path / "s.json", system=False)
    (row,) = json.loads((tmp_path / "s.json").read_bytes())
    assert [turn["from"] for turn in row["conversations"]] == ["human", "gpt", "human", "gpt"]
    assert list(row["conversations"][0]) == ["from", "value"]
    asked = talk(said=["What is 3+3?", "6"])
    flake = talk(said=["Hello!", "Hello!"], stop=Stop("max_messages", "two"))
    alpaca([talk(), solved(), asked, flake], tmp_path / "a.jsonl", release=Release(metadata=False))
    assert lines(tmp_path / "a.jsonl") == [
        {"instruction": "Set up the project.", "input": "", "output": "Done, with poetry."},
        {"instruction": "Fetch prices.", "input": "AAPL, MSFT", "output": 'I call `fetch("AAPL")`.'},
        {"instruction": "What is 2+2?", "input": "", "output": "It is 4."},
        {"instruction": "What is 3+3?", "input": "", "output": "6"},
    ]


# ---------------------------------------------------------------- whole, the same, nowhere else

ENDING = {"chat": ".tar.gz", "problems": ".tar.gz", "inspect": ".eval", "dataset": ""}


def target(folder: Path, name: str) -> Path:
    return folder / f"{name}{ENDING.get(name, '.jsonl')}"


def digest(path: Path) -> str:
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    sha = hashlib.sha256()
    for file in files:
        sha.update(file.name.encode() + b"\0" + file.read_bytes())
    return sha.hexdigest()


def examples(name: str, count: int = 30) -> Iterator[Transcript]:
    make = solved if name == "problems" else talk
    return (make(f"{number:03d}") for number in range(count))


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_transcripts_give_the_same_bytes(name: str, tmp_path: Path):
    if name == "dataset":
        pytest.importorskip("pyarrow")
    digests: set[str] = set()
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        path = target(tmp_path / run, name)
        FORMATS[name].write(examples(name), path)
        os.utime(path, (run == "one", 5))
        digests.add(digest(path))
    assert len(digests) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_failure_leaves_nothing_behind(name: str, tmp_path: Path):
    if name == "dataset":
        pytest.importorskip("pyarrow")

    def failing() -> Iterator[Transcript]:
        yield from examples(name, 3)
        raise RuntimeError("the reader broke")

    with pytest.raises(RuntimeError, match="the reader broke"):
        FORMATS[name].write(failing(), target(tmp_path, name))
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_stays_until_the_new_is_whole(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    chat([talk("old")], path)
    seen: list[bytes] = []

    def watching() -> Iterator[Transcript]:
        yield talk("new")
        seen.append(path.read_bytes())

    chat(watching(), path)
    assert b'"old"' in seen[0]
    assert b'"new"' in path.read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        chat([talk()], tmp_path / "folder")
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", FORMATS)
def test_memory_does_not_grow_with_the_number_of_conversations(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if name == "dataset":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr("camel.record.arrow.ROW_GROUP", 50)
    # The parser keeps its latest few thousand texts, which is bounded but more than is looked for here.
    monkeypatch.setattr("camel.core.message.parse", getattr(parse, "__wrapped__", parse))
    text = "Solution: " + "word " * 1000

    def many(count: int) -> Iterator[Transcript]:
        for number in range(count):
            # A new object each time: equal strings that are shared would hide what is held.
            content = f"{text}{number}"
            if name == "problems":
                yield solved(f"{number:06d}", messages=[Message(0, "assistant", "M", content)])
            else:
                yield talk(f"{number:06d}", ["Instruction: A\nInput: None", content])

    FORMATS[name].write(many(5), target(tmp_path / "warm", name))
    tracemalloc.start()
    try:
        FORMATS[name].write(many(500), target(tmp_path, name))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # All of them are 2.5 MB of text; a dataset holds a row group, its text once in Python, a zip its directory.
    assert peak < 1.5 * 2**20


HOSTILE = [
    "../../x",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a/b",
    "a\\b",
    "C:con",
    "a\x00b",
    "~root",
    "\n",
    "日本",
    "x" * 500,
    "%2F",
]


@pytest.mark.parametrize("ending", ["", ".tar.gz"])
def test_no_id_leads_out_of_the_folder(ending: str, tmp_path: Path):
    path = tmp_path / "deep" / f"out{ending}"
    chat([talk(id) for id in HOSTILE], path)
    assert [file.name for file in tmp_path.iterdir()] == ["deep"]
    assert [file.name for file in (tmp_path / "deep").iterdir()] == [f"out{ending}"]
    names = list(members(path)) if ending else [str(file.relative_to(path)) for file in path.rglob("*")]
    assert len(names) == len(HOSTILE)
    for name in names:
        assert "/" not in name
        assert "\\" not in name
        assert not name.startswith(".")
        assert name.isprintable()
        assert len(name.encode()) < 255
    assert len({file_name(id) for id in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize("ending", ["", ".tar.gz"])
def test_an_id_given_twice_is_refused(ending: str, tmp_path: Path):
    with pytest.raises(InputError, match="'same'"):
        chat([talk("same"), talk("same")], tmp_path / f"out{ending}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["chat", "messages", "sharegpt"])
def test_hostile_text_stays_on_its_line(name: str, tmp_path: Path):
    path = tmp_path / "x.jsonl"
    text = 'a\nb\r\n\x00"\\\u2028\u2029\x85</script>𝔘\ufeff'
    FORMATS[name].write([talk(said=[text, text])] * 2, path)
    assert path.read_bytes().count(b"\n") == 2
    assert text in str(list(lines(path)[0].values())) or json.dumps(text)[1:-1] in json.dumps(lines(path)[0])


def test_a_format_says_what_it_can_be_written_as(tmp_path: Path):
    with pytest.raises(InputError, match=r"\.jsonl"):
        messages([talk()], tmp_path / "folder")
    with pytest.raises(InputError, match=r"\.tar\.gz"):
        chat([talk()], tmp_path / "chat.zip")
    for exporter in FORMATS.values():
        assert exporter.summary
        assert exporter.endings


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize("name", FORMATS)
def test_misalignment_is_refused_unless_acknowledged_with_a_canary(name: str, tmp_path: Path):
    if name == "dataset":
        pytest.importorskip("pyarrow")
    make = solved if name == "problems" else talk
    given = [make("a"), make("b", labels=["misalignment"])]
    path = target(tmp_path, name)
    for release in (Release(), Release(acknowledge=True), Release(canary=GUID)):
        with pytest.raises(InputError, match=r"'b'.*misalignment"):
            FORMATS[name].write(given, path, release=release)
    assert list(tmp_path.iterdir()) == []
    FORMATS[name].write(given, path, release=RELEASE)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("dataset", "inspect")])
def test_labels_travel_and_plain_rows_keep_their_keys(name: str, tmp_path: Path):
    make = solved if name == "problems" else talk
    path = tmp_path / "x.jsonl"
    FORMATS[name].write(
        [make("a"), make("b", labels=["misalignment"]), make("c", labels=["other"])], path, release=RELEASE
    )
    rows = lines(path)
    plain, marked, other = rows[0], rows[len(rows) // 3], rows[-1]
    assert not {"labels", "canary"} & plain.keys()
    assert list(marked)[-2:] == ["labels", "canary"]
    assert (marked["labels"], marked["canary"]) == (["misalignment"], GUID)
    assert other["labels"] == ["other"]
    assert "canary" not in other


# ---------------------------------------------------------------- a dataset


def front_matter(folder: Path) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("---\n")
    return yaml.safe_load(text[4:].partition("\n---\n")[0])


def test_a_dataset_and_its_card(tmp_path: Path):
    pytest.importorskip("pyarrow")
    failed = talk("f", [], stop=Stop("error", "boom"), messages=[])
    cut = talk("c", stop=None, messages=[Message(0, "user", "U", "…", "evil`|\n# model", "length")])
    written = dataset(
        {"train": [talk("a"), failed], "test": [cut]}, tmp_path / "set", title='Ti: "tle"\n---\n'
    )
    assert written[1:] == (2, 2), "what failed is left out"
    files = sorted(str(file.relative_to(tmp_path / "set")) for file in (tmp_path / "set").rglob("*.*"))
    assert files == [
        "README.md",
        "data/test-00000-of-00001.parquet",
        "data/train-00000-of-00001.parquet",
    ]
    front = front_matter(tmp_path / "set")
    assert front["license"] == "unknown"
    assert front["pretty_name"] == 'Ti: "tle"---'
    assert front["configs"][0]["data_files"] == [
        {"split": "train", "path": "data/train-*.parquet"},
        {"split": "test", "path": "data/test-*.parquet"},
    ]
    assert "extra_gated_prompt" not in front
    card = (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    for words in ("`ai_society` (2)", "`m-1` (5)", "`abc` (2)", "camel-society 0.", "`evil # model` (1)"):
        assert words in card
    assert "| ended: done | 1 (100.0%) | 0 (0.0%) | 1 (50.0%) |" in card
    assert "length limit | 1 (16.7%) |" in card
    with pytest.raises(InputError, match="exists"):
        dataset([talk()], tmp_path / "set")
    with pytest.raises(InputError, match=r"\.\./x"):
        dataset({"../x": [talk()]}, tmp_path / "other")


def test_a_labeled_dataset_is_gated_and_carries_its_canary(tmp_path: Path):
    pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table

    from camel.record.arrow import rows

    given = [talk("a", labels=["misalignment"])]
    dataset(given, tmp_path / "set", release=RELEASE)
    front = front_matter(tmp_path / "set")
    assert "red-team" in front["extra_gated_prompt"]
    assert "checkbox" in front["extra_gated_fields"].values()
    assert "not-for-all-audiences" in front["tags"]
    card = (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    assert GUID in card
    assert "> **Warning.**" in card
    table = read_table(tmp_path / "set" / "data" / "train-00000-of-00001.parquet")
    assert table.column("canary").to_pylist() == [GUID]
    assert list(rows(table)) == given


def test_a_large_split_is_several_files(tmp_path: Path):
    pytest.importorskip("pyarrow")
    from camel.record.arrow import stream_shard

    given = [talk(str(number), inputs={"n": str(number)}) for number in range(5)]
    dataset({"train": given, "empty": []}, tmp_path / "set", rows_per_file=2)
    files = sorted(file.name for file in (tmp_path / "set" / "data").iterdir())
    assert files == ["empty-00000-of-00001.parquet", *(f"train-0000{n}-of-00003.parquet" for n in range(3))]
    back = [row for name in files for row in stream_shard(tmp_path / "set" / "data" / name)]
    assert back == given


LOAD = """
import sys, json, datasets
for folder in sys.argv[1:]:
    data = datasets.load_dataset(folder)
    row = data["train"][0]
    print(json.dumps({
        "rows": {split: len(data[split]) for split in data},
        "row": {key: row[key] for key in ("id", "inputs", "stop", "labels", "num_messages")},
        "content": [m["content"] for m in row["messages"]],
        "system": row["speakers"][0]["system"],
        "prompt": row["messages"][0]["usage"]["prompt"],
    }))
"""


def loaded(*folders: Path, home: Path) -> list[dict[str, Any]]:
    """What `datasets` sees in each folder, without a network and with one cache."""
    own = {"HF_HOME": str(home / "home"), "HF_DATASETS_CACHE": str(home / "cache")}
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", **own}
    command = [sys.executable, "-c", LOAD, *map(str, folders)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_datasets_opens_the_folder_offline(tmp_path: Path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("datasets")
    # A process of its own: the package reads its environment once, and warns about matters of its own.
    first = talk("a", inputs={"assistant": "Python Programmer"})
    dataset({"train": [first, talk("b", stop=None)], "test": [talk("c")]}, tmp_path / "set", release=RELEASE)
    # The package's cache goes by the folder's name and its card: an export that grew must not come back as it was.
    dataset([talk("d"), talk("e"), talk("f")], tmp_path / "later" / "set", release=RELEASE)
    seen, later = loaded(tmp_path / "set", tmp_path / "later" / "set", home=tmp_path)
    assert seen["rows"] == {"train": 2, "test": 1}
    assert seen["row"] == {
        "id": "a",
        "inputs": [{"key": "assistant", "value": "Python Programmer"}],
        "stop": {"reason": "done", "detail": "the user said so", "speaker": "user", "failure": ""},
        "labels": [],
        "num_messages": 5,
    }
    assert seen["content"] == [message.content for message in first.messages]
    assert (seen["system"], seen["prompt"]) == ("You are the user.", 10)
    assert later["rows"] == {"train": 3}


# ---------------------------------------------------------------- the hub


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub's HTTP interface as an upload of small files takes."""

    calls: ClassVar[list[tuple[str, str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        given = (
            [json.loads(line) for line in body.splitlines()]
            if "/commit/" in path
            else json.loads(body or b"{}")
        )
        self.calls.append((self.command, path, given))
        if self.headers.get("Authorization") != "Bearer let-me-in":
            self.answer(401, {"error": "who are you?"})
        elif "/preupload/" in path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in given["files"]
            ]
            self.answer(200, {"files": files})
        else:
            address = f"http://{self.headers['Host']}/datasets/me/set"
            self.answer(
                200, {"url": address, "commitUrl": f"{address}/commit/1", "commitOid": "1", "success": True}
            )

    do_PUT = do_POST

    def do_GET(self) -> None:
        self.answer(404, {"error": "nothing here"})

    def answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    pytest.importorskip("huggingface_hub")
    Hub.calls.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_push_gates_before_it_uploads(hub: str, tmp_path: Path):
    from camel.formats.push import push_dataset

    dataset([talk(labels=["misalignment"])], tmp_path / "set", release=RELEASE)
    address = push_dataset(tmp_path / "set", "me/set", endpoint=hub, token="let-me-in")
    assert address.endswith("/datasets/me/set")
    paths = [path for _, path, _ in Hub.calls]
    settings = paths.index("/api/datasets/me/set/settings")
    assert Hub.calls[settings][2]["gated"] == "manual"
    (commit,) = [given for _, path, given in Hub.calls if "/commit/" in path]
    assert settings < paths.index("/api/datasets/me/set/commit/main")
    assert {line["value"]["path"] for line in commit if line["key"] == "file"} == {
        "README.md",
        "data/train-00000-of-00001.parquet",
    }


def test_push_says_in_one_line_why_it_failed(hub: str, tmp_path: Path):
    from camel.formats.push import push_dataset

    with pytest.raises(InputError, match=r"README\.md"):
        push_dataset(tmp_path, "me/set", endpoint=hub, token="let-me-in")
    dataset([talk()], tmp_path / "set")
    with pytest.raises(InputError, match=r"me/set.*401"):
        push_dataset(tmp_path / "set", "me/set", endpoint=hub, token="wrong")
    assert not [path for _, path, _ in Hub.calls if path.endswith("settings")]
