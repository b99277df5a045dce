"""The `.eval` log: held against what its readers need, and where inspect_ai is installed against its own reader."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.formats.exporters import inspect_log
from tests.support.conversations import CHOSEN, GUID, RELEASE, talk

READER = os.environ.get("INSPECT_PYTHON", sys.executable)
"""A Python that has inspect_ai: its needs are not ours, so that it may live in a virtualenv of its own."""


# What inspect_ai 0.3.285 requires of each document, and the values that its types allow, as far as we write them.


class Tokens(msgspec.Struct, forbid_unknown_fields=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_cache_read: int


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    role: Literal["system", "user", "assistant"]
    content: str
    source: Literal["input", "generate"] | None = None
    metadata: dict[str, Any] | None = None
    model: str | None = None


class Choice(msgspec.Struct, forbid_unknown_fields=True):
    message: ChatMessage
    stop_reason: Literal["stop", "max_tokens", "model_length", "tool_calls", "content_filter", "unknown"]


class Output(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    choices: list[Choice]
    completion: str
    usage: Tokens | None = None
    time: float | None = None


class Score(msgspec.Struct, forbid_unknown_fields=True):
    value: str
    explanation: str
    answer: str | None = None


class Limit(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["message", "token"]
    limit: float
    reason: str


class Failure(msgspec.Struct, forbid_unknown_fields=True):
    message: str
    traceback: str
    traceback_ansi: str


class Sample(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    epoch: int
    input: str
    target: str
    messages: list[ChatMessage]
    output: Output
    scores: dict[str, Score]
    metadata: dict[str, Any]
    store: dict[str, Any]
    events: list[Any]
    model_usage: dict[str, Tokens]
    role_usage: dict[str, Tokens]
    total_time: float
    uuid: str
    attachments: dict[str, str]
    turn_count: int
    error: Failure | None = None
    limit: Limit | None = None


class Summary(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    epoch: int
    input: str
    target: str
    metadata: dict[str, Any]
    scores: dict[str, Score]
    model_usage: dict[str, Tokens]
    role_usage: dict[str, Tokens]
    total_time: float
    uuid: str
    completed: bool
    message_count: int
    turn_count: int
    error: str | None = None
    limit: str | None = None
    limit_reason: str | None = None


class Header(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[2]
    status: Literal["success"]
    eval: dict[str, Any]
    plan: dict[str, Any]
    results: dict[str, Any]
    stats: dict[str, Any]


class Log:
    """A log, read as its readers read it."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as log:
            assert log.testzip() is None
            self.names = log.namelist()
            self.header = msgspec.json.decode(log.read("header.json"), type=Header)
            self.summaries = msgspec.json.decode(log.read("summaries.json"), type=list[Summary])
            # By the name that the id gives: this is how a reader finds a sample.
            found = [log.read(f"samples/{one.id}_epoch_{one.epoch}.json") for one in self.summaries]
        self.samples = [msgspec.json.decode(data, type=Sample) for data in found]
        assert len(self.names) == len(set(self.names)) == len(found) + 3
        assert self.header.eval["dataset"]["sample_ids"] == [one.id for one in self.samples]
        for name in ("created", "task", "dataset", "model", "config"):
            assert self.header.eval[name]


def society() -> Transcript:
    names = ("Ada", "Ben", "Cy")
    said = [Message(n, name, f"Role of {name}", f"{name} speaks") for n, name in enumerate(names)]
    return Transcript("s", Task("converse"), [Speaker(name, f"Role of {name}") for name in names], said)


MANY = [
    talk("001"),
    talk("002", stop=Stop("error", "ServerFailed: it broke")),
    talk("003", stop=Stop("max_messages", "40")),
    talk("004", stop=Stop("token_limit", "full", "user")),
    talk("005", said=[], stop=None),
    society(),
    talk("a/../../b ü"),
]


def test_each_document_is_what_its_reader_needs(tmp_path: Path):
    written = inspect_log(MANY, tmp_path / "run.eval")
    log = Log(tmp_path / "run.eval")
    assert written.conversations == len(log.samples) == len(MANY)
    for transcript, sample in zip(MANY, log.samples, strict=True):
        said = [message.content for message in sample.messages if message.role != "system"]
        assert len(said) == len(transcript.messages)
        assert all(m.content in shown for m, shown in zip(transcript.messages, said, strict=True))
        assert sample.metadata["id"] == transcript.id
    first, error, messages, tokens, empty, several, odd = log.samples
    assert [m.role for m in first.messages if m.role != "system"] == ["user", "assistant"] * 2 + ["user"]
    assert first.scores["ended"].value == "done"
    assert error.error
    assert error.error.message == "ServerFailed: it broke"
    assert [one.limit and one.limit.type for one in (messages, tokens)] == ["message", "token"]
    assert empty.output.choices == []
    assert [m.content for m in several.messages] == [
        "Role of Ada: Ada speaks",
        "Role of Ben: Ben speaks",
        "Cy speaks",
    ]
    assert "/" not in odd.id
    assert log.header.results["total_samples"] == len(MANY)
    assert log.header.results["completed_samples"] == len(MANY) - 1


def test_tokens_and_choices(tmp_path: Path):
    one = talk("001")
    spent = [msgspec.structs.replace(m, usage=Usage(10, 2, 4, 1), model="m-1") for m in one.messages]
    spent[1] = msgspec.structs.replace(spent[1], deliberation=CHOSEN)
    task = Task("vague", "precise", "m-2", Usage(7, 3, 0, 1))
    whole = msgspec.structs.replace(one, messages=spent, task=task)
    inspect_log([whole], tmp_path / "run.eval")
    log = Log(tmp_path / "run.eval")
    assert sum(used.total_tokens for used in log.samples[0].model_usage.values()) == whole.usage.total
    count = len(spent)
    assert log.samples[0].model_usage["m-1"] == Tokens(6 * count, 2 * count, 12 * count, 4 * count)
    assert log.header.eval["model"] == "m-1"
    choice = next(m for m in log.samples[0].messages if m.metadata and "deliberation" in m.metadata)
    assert choice.metadata
    assert choice.metadata["deliberation"]["choice"] == CHOSEN.choice


def test_labels_travel(tmp_path: Path):
    bad = talk("001", labels=["misalignment"])
    with pytest.raises(InputError, match="acknowledge"):
        inspect_log([bad], tmp_path / "run.eval")
    assert not list(tmp_path.iterdir())
    inspect_log([bad], tmp_path / "run.eval", release=RELEASE)
    log = Log(tmp_path / "run.eval")
    assert log.samples[0].metadata["labels"] == ["misalignment"]
    assert log.samples[0].metadata["canary"] == log.header.eval["metadata"]["canary"] == GUID
    assert "misalignment" in log.header.eval["tags"]


def test_what_is_refused(tmp_path: Path):
    for records, name, words in (
        ([talk("1"), talk("1")], "run.eval", "two conversations"),
        ([], "run.eval", "no conversations"),
        ([talk("1")], "run.json", r"\.eval"),
    ):
        with pytest.raises(InputError, match=words):
            inspect_log(records, tmp_path / name)
    assert not list(tmp_path.iterdir())


@given(st.text(min_size=1, max_size=300), st.text(max_size=100))
def test_any_id_and_text(tmp_path_factory: pytest.TempPathFactory, id: str, text: str):
    path = tmp_path_factory.mktemp("log") / "run.eval"
    clean = text.encode("utf-8", "replace").decode()
    inspect_log([talk(id.encode("utf-8", "replace").decode(), said=[clean or "x"])], path)
    log = Log(path)
    assert all(".." not in name.split("/") and not name.startswith("/") for name in log.names)
    assert log.samples[0].messages[-1].content == (clean or "x")


def has_reader() -> bool:
    if sys.executable == READER:
        return importlib.util.find_spec("inspect_ai") is not None
    return True


@pytest.mark.slow
@pytest.mark.skipif(not has_reader(), reason="needs inspect_ai here, or INSPECT_PYTHON where it is")
def test_the_reader_of_inspect_ai(tmp_path: Path):
    """The witness: their code reads it, all of it, and says what we meant."""
    inspect_log(MANY, tmp_path / "run.eval")
    script = """
import sys
from inspect_ai.log import read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries
path = sys.argv[1]
header = read_eval_log(path, header_only=True)
log = read_eval_log(path)
assert header.status == "success" and header.results.total_samples == len(log.samples) == int(sys.argv[2])
samples = {sample.id: sample for sample in log.samples}
for summary in read_eval_log_sample_summaries(path):
    one = read_eval_log_sample(path, id=summary.id)
    assert one.messages == samples[summary.id].messages
    assert summary.message_count == len(one.messages)
    assert one.scores["ended"].value == summary.scores["ended"].value
print(samples["001"].output.completion)
"""
    command = [READER, "-c", script, str(tmp_path / "run.eval"), str(len(MANY))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert MANY[0].messages[-2].content in done.stdout
