"""Runs of schema 1, before the record was read by name, can still be read: tests/data/run-schema-1."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from camel import Run, Transcript
from camel.core.transcript import SCHEMA
from camel.formats.exporters import FORMATS
from camel.index.merge import merge
from camel.jobs.status import read_status
from camel.query.catalogue import Catalogue
from camel.runs.compact import compact
from camel.runs.run import open_folder
from camel.runs.verify import verify

OLD = Path(__file__).parents[1] / "data" / "run-schema-1"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    shutil.copytree(OLD, tmp_path / "old")
    return tmp_path / "old"


def expected() -> list[Transcript]:
    return [Transcript.from_json(line) for line in (OLD / "expected.jsonl").read_bytes().splitlines()]


def test_every_conversation_is_as_it_was(old: Path):
    raw = [json.loads(line) for line in (OLD / "expected.jsonl").read_text().splitlines()]
    found = list(Run(old))
    assert found == expected()
    assert [one.inputs for one in found] == [one["facts"] for one in raw]
    assert {one.schema for one in found} == {SCHEMA}
    assert sum(message.deliberation is not None for one in found for message in one.messages) > 10


def test_it_is_filtered_by_expressions(old: Path):
    name, value = next(iter(expected()[0].inputs.items()))
    text = json.dumps(value, ensure_ascii=False)
    found = Run(old).where(f'input."{name}" = {text} and not finding = "none" and chars > 0')
    assert [one.id for one in found] == [one.id for one in expected() if one.inputs[name] == value]


def test_tables_have_the_layout_of_today(old: Path):
    table = Run(old).to_arrow()
    assert {"inputs", "scores", "item"} <= set(table.column_names)
    assert "facts" not in table.column_names


def test_it_is_listed_exported_compacted_and_verified(old: Path, tmp_path: Path):
    with Catalogue([str(old)]) as catalogue:
        assert catalogue.count() == len(expected())
    assert FORMATS["messages"].write(Run(old), tmp_path / "rows.jsonl").rows == len(expected())
    folder = open_folder(old)
    assert not verify(folder).problems
    assert compact(folder, "conversations").files
    merge(folder, "conversations")
    assert list(Run(old)) == expected()
    assert read_status(old).state == "complete"
