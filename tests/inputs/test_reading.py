"""Readers of input tables: formats, objects in memory, settings."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.core.toml import convert_table
from camel.inputs.reading import TableProblems, open_table
from camel.inputs.settings import Inputs, SecondTable


def rows(source: Any, *wanted: str) -> list[tuple[Any, ...]]:
    """Number and cells of each row."""
    problems = TableProblems()
    table = open_table(source, "utf-8", problems)
    found: list[tuple[Any, ...]] = []
    for batch in table.read(wanted or table.columns):
        found += zip(batch.lines, *(column.to_pylist() for column in batch.columns), strict=True)
    problems.check()
    return found


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=8),
    st.sampled_from(["\r\n", "\n", "\r"]),
    st.sampled_from([",", "\t"]),
)
def test_any_texts_written_as_csv_come_back_unchanged(texts: list[tuple[str, ...]], end: str, delimiter: str):
    text = io.StringIO()
    # Before Python 3.13, the writer quotes only those line breaks that also end lines.
    quoting = csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL
    csv.writer(text, lineterminator=end, delimiter=delimiter, quoting=quoting).writerows(
        [("a", "b", "c"), *texts]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.csv" if delimiter == "," else "t.tsv")
        path.write_bytes(text.getvalue().encode())
        assert [row[1:] for row in rows(str(path))] == texts


def test_numbers_of_rows_are_first_lines(tmp_path: Path):
    (tmp_path / "t.csv").write_bytes(b'a,b\n"1\n2\n3",x\n\ny,z\n')
    assert rows(str(tmp_path / "t.csv"), "b") == [(2, "x"), (6, "z")]


def test_only_wanted_columns_are_read_in_the_order_of_the_caller(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n")
    assert rows(str(tmp_path / "t.csv"), "c", "a") == [(2, "3", "1")]


def test_parquet(tmp_path: Path):
    table = pa.table(
        {
            "text": ["007", "é"],
            "large": pa.array([" a ", ""], pa.large_string()),
            "view": pa.array(["v", "w"], pa.string_view()),
            "word": pa.array(["x", "x"]).dictionary_encode(),
            "int": pa.array([2**63, 1], pa.uint64()),
            "float": [1.0, float("nan")],
            "single": pa.array([0.1, None], pa.float32()),
            "decimal": [Decimal("1.50"), None],
            "bool": [True, False],
            "date": [date(2024, 2, 29), None],
            "time": pa.array([datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), None], pa.timestamp("ns", "UTC")),
            "nested": [[{"a": 1, "b": "é"}], []],
            "a.b": ["dot", "dot"],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = rows(str(tmp_path / "t.parquet"))
    assert found[0] == (
        1, "007", " a ", "v", "x", "9223372036854775808", "1.0", "0.1", "1.50", "true", "2024-02-29",
        "2024-02-29T01:02:03+00:00", '[{"a":1,"b":"é"}]', "dot",
    )  # fmt: skip
    assert found[1] == (2, "é", "", "w", "x", "1", None, None, None, "false", None, None, "[]", "dot")
    assert rows(table) == found, "an Arrow table in memory has the same texts"
    assert rows(table.to_reader(1), "int", "text")[1] == (2, "1", "é")


def generate() -> Iterator[dict[str, Any]]:
    yield {"a": "x", "b": 1, "c": True}
    yield {"a": " y ", "b": None}


class LikeAnOldPolars:
    def to_arrow(self) -> pa.Table:
        return pa.table({"a": ["x"]})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (generate(), [(1, "x", "1", "true"), (2, " y ", None, None)]),
        ([{"a": float("nan"), "b": np.float32(0.1)}], [(1, None, "0.1")]),
        ([{"a": np.int64(3), "b": np.bool_(True)}], [(1, "3", "true")]),
        ([{"a": [1, "é"], "b": {"x": date(2024, 1, 2)}}], [(1, '[1,"é"]', '{"x":"2024-01-02"}')]),
        ([{"a": pd.NA, "b": pd.NaT, "c": np.array([1, 2])}], [(1, None, None, "[1,2]")]),
        (pd.DataFrame({"a": ["007", None], "b": [1, 2]}), [(1, "007", "1"), (2, None, "2")]),
        (pd.DataFrame({"a": ["x", 1, None]}), [(1, "x"), (2, "1"), (3, None)]),
        (LikeAnOldPolars(), [(1, "x")]),
    ],
    ids=["generator", "nan", "numpy", "nested", "missing", "frame", "objects", "arrow"],
)
def test_objects_in_memory(source: Any, expected: list[tuple[Any, ...]]):
    assert rows(source) == expected


@pytest.mark.parametrize("source", [5, {"a": [1]}, b"a,b", ["text"], [["list"]], None], ids=str)
def test_other_objects_are_errors(source: Any):
    with pytest.raises(InputError):
        rows(source)


def test_bad_text_in_memory_is_reported_with_its_row():
    with pytest.raises(InputError, match=r"row 2.*'a'"):
        rows([{"a": "x"}, {"a": "\ud800"}])


def test_a_dataset_is_streamed(tmp_path: Path):
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(pa.table({"a": ["007", "x"], "n": [1, 2]}), folder / "train.parquet")
    assert rows(f"hf:{folder}") == [(1, "007", "1"), (2, "x", "2")]
    assert rows(f"hf:{folder}:train", "n") == [(1, "1"), (2, "2")]
    with pytest.raises(InputError, match="cannot load 'hf:"):
        rows(f"hf:{folder}:test")


def test_settings_of_a_configuration():
    table = {"from": "t.csv", "id": "n", "sample": 0.5, "keep": ["x"], "duplicates": "keep"}
    assert convert_table(table, Inputs) == Inputs(
        source="t.csv", id="n", sample=0.5, keep=("x",), duplicates="keep"
    )
    several = {"tables": [{"from": "a.csv"}, {"from": "b.csv", "on": "id"}]}
    assert convert_table(several, Inputs).tables[1] == SecondTable(source="b.csv", on="id")


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"source": "t.csv"},
        {"from": 5},
        {"from": ""},
        {"from": "t.csv", "tables": [{"from": "b.csv"}]},
        {"tables": [{"from": "a.csv", "on": "id"}]},
        {"from": "t.csv", "limit": 0},
        {"from": "t.csv", "sample": 1.5},
        {"from": "t.csv", "sample": 0},
        {"from": "t.csv", "sample": -1},
        {"from": "t.csv", "encoding": "utf-99"},
        {"from": "t.csv", "encoding": "base64"},
        {"from": "t.csv", "duplicates": "drop"},
    ],
    ids=str,
)
def test_wrong_settings(table: dict[str, Any]):
    with pytest.raises(InputError):
        convert_table(table, Inputs)


def test_paths_are_next_to_the_configuration(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a\nx\n")
    assert Inputs(source="t.csv").located(tmp_path).source == str(tmp_path / "t.csv")
    assert Inputs(source="other.csv").located(tmp_path).source == "other.csv"
    assert Inputs(source="hf:a/b").located(tmp_path).source == "hf:a/b"
    located = Inputs(tables=(SecondTable(source="t.csv"), SecondTable(source="hf:a/b"))).located(tmp_path)
    assert [one.source for one in located.tables] == [str(tmp_path / "t.csv"), "hf:a/b"]
