"""Exports contain the reasoning of models only on request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from camel.core.message import Message
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.formats.exporters import FORMATS
from camel.record.release import Release

THOUGHT = "MARKER: what nobody heard"


def conversation() -> Transcript:
    said = [
        ("user", "Instruction: name a fruit\nInput: None"),
        ("assistant", "Solution: apple. Next request."),
        ("user", "<CAMEL_TASK_DONE>"),
    ]
    messages = [Message(at, seat, seat, text, reasoning=THOUGHT) for at, (seat, text) in enumerate(said)]
    speakers = [Speaker("user", "user", "You instruct."), Speaker("assistant", "assistant", "You solve.")]
    return Transcript("one", Task("fruit"), speakers, messages, Stop("done", "", "user"))


def written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("format", sorted(set(FORMATS) - {"preferences", "problems"}))
def test_no_format_has_it_unless_asked(format: str, tmp_path: Path):
    ending = FORMATS[format].endings[0]
    out = tmp_path / f"out{ending}"
    FORMATS[format].write([conversation()], out)
    data = out.read_bytes() if out.is_file() else written(out)
    assert b"MARKER" not in data
    if format == "inspect":
        import zipfile

        with zipfile.ZipFile(out) as log:
            assert not any(b"MARKER" in log.read(name) for name in log.namelist())


def test_messages_have_it_where_chat_templates_look(tmp_path: Path):
    out = tmp_path / "rows.jsonl"
    FORMATS["messages"].write([conversation()], out, release=Release(reasoning=True))
    turns = json.loads(out.read_text().splitlines()[0])["messages"]
    assert [turn.get("reasoning_content") for turn in turns] == [
        THOUGHT if turn["role"] == "assistant" else None for turn in turns
    ]
    assert not any(THOUGHT in turn["content"] for turn in turns)


def test_a_dataset_has_it_in_its_own_column(tmp_path: Path):
    pytest.importorskip("pyarrow")
    out = tmp_path / "set"
    FORMATS["dataset"].write([conversation()], out, release=Release(reasoning=True))
    import pyarrow.parquet as parquet

    (file,) = out.rglob("*.parquet")
    rows = parquet.read_table(file).to_pylist()
    assert [message["reasoning"] for message in rows[0]["messages"]] == [THOUGHT] * 3
