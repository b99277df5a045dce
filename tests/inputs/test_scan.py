"""The scan of a table: identity of rows, duplicates, filters, samples, limits, joins."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from camel.core.errors import InputError
from camel.inputs import scan as scanning
from camel.inputs.scan import TableScan, fingerprint_of, scan
from camel.inputs.settings import Inputs, SecondTable

PEOPLE = "Number,First Name,age,note\n1,Ada,36,a\n2,Bob,007,b\n3,Čapek,48,c\n"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    return path


def scanned(inputs: Any, *used: str, out: Path) -> tuple[TableScan, list[dict[str, Any]]]:
    found = scan(inputs, used, out)
    rows = pq.read_table(out).to_pylist()
    assert found.rows == len(rows)
    assert len({row["id"] for row in rows}) == len(rows)
    return found, rows


def test_the_file(people: Path, tmp_path: Path):
    out = tmp_path / "out.parquet"
    found, rows = scanned(
        Inputs(source=str(people), id="number", keep=("Note",)), "FIRST_NAME", "Age", out=out
    )
    assert found.columns == ("age", "first_name", "note")
    assert (found.rows, found.read, found.duplicates, found.excluded) == (3, 3, 0, 0)
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert [row["line"] for row in rows] == [2, 3, 4]
    assert [row["value.age"] for row in rows] == ["36", "007", "48"]
    schema = pq.read_schema(out)
    assert schema.names == ["id", "hash", "line", "value.age", "value.first_name", "value.note"]
    assert [str(kind) for kind in schema.types] == ["string", "string", "int64", "string", "string", "string"]
    assert all(len(row["hash"]) == 16 and int(row["hash"], 16) >= 0 for row in rows)


def test_row_groups_have_4096_rows(tmp_path: Path):
    out = tmp_path / "out.parquet"
    rows = [{"a": str(n), "keep": n % 3 > 0} for n in range(20_000)]
    found, stored = scanned(Inputs(source=rows, where="keep = 'true'"), "a", out=out)  # type: ignore[arg-type]
    sizes = [pq.ParquetFile(out).metadata.row_group(n).num_rows for n in range(4)]
    assert sizes == [4096, 4096, 4096, found.rows - 3 * 4096]
    assert [row["value.a"] for row in stored] == [row["a"] for row in rows if row["keep"]]


def test_the_identity_of_a_row_is_what_is_used_of_it(people: Path, tmp_path: Path):
    def hashes(text: str, *used: str, **settings: Any) -> list[str]:
        people.write_text(text)
        _, rows = scanned(Inputs(source=str(people), **settings), *used, out=tmp_path / "o")
        return [row["hash"] for row in rows]

    first = hashes(PEOPLE, "first_name", "age")
    assert hashes(PEOPLE, "AGE", "FIRST_NAME") == first, "not the order or the case of placeholders"
    assert hashes(PEOPLE, "age", "first_name", keep=("note",)) == first, "not kept columns"
    assert hashes(PEOPLE, "age", "first_name", id="number") == first, "not the id"
    assert hashes("age,first-name,x\n36,Ada,\n007,Bob,\n48,Čapek,\n", "age", "first_name") == first, (
        "not other columns"
    )
    assert hashes(PEOPLE.replace("007", "7"), "first_name", "age")[1] != first[1]
    assert hashes(PEOPLE, "first_name") != first
    assert len({*hashes("a,b\nx,yz\nxy,z\n,xyz\n", "a", "b")}) == 3, "cells are separated"
    moved = hashes("first name,age\nČapek,48\nNew,1\nAda,36\nBob,007\n", "first_name", "age")
    assert (moved[2], moved[3], moved[0]) == tuple(first)


def test_limits_of_rows_count_for_identity_and_must_be_numbers(tmp_path: Path):
    rows = [{"a": "x", "turns": "5"}, {"a": "x", "turns": ""}, {"a": "x", "turns": 12}]
    found, stored = scanned(Inputs(source=rows, max_messages="Turns"), "a", out=tmp_path / "o")  # type: ignore[arg-type]
    assert found.columns == ("a", "turns")
    assert [row["value.turns"] for row in stored] == ["5", "", "12"]
    for wrong in ("0", "-1", "1.5", "many", "5\n", "9999999999"):
        with pytest.raises(InputError, match=r"row 1.*'turns'"):
            scan(Inputs(source=[{"a": "x", "turns": wrong}], max_tokens="turns"), ["a"], tmp_path / "o")  # type: ignore[arg-type]


@pytest.mark.parametrize("id", ["", "n"])
def test_duplicates(tmp_path: Path, id: str):
    rows = [{"n": n % 5000, "a": f"text {n % 5000}"} for n in range(12_000)]
    skip = Inputs(source=rows, id=id)  # type: ignore[arg-type]
    found, stored = scanned(skip, "a", out=tmp_path / "o")
    assert (found.rows, found.duplicates, found.read) == (5000, 7000, 12_000)
    assert [row["line"] for row in stored] == [*range(1, 5001)]
    keep = Inputs(source=rows, id=id, duplicates="keep")  # type: ignore[arg-type]
    found, kept = scanned(keep, "a", out=tmp_path / "o")
    assert (found.rows, found.duplicates) == (12_000, 7000)
    ids = [row["id"] for row in stored]
    assert [row["id"] for row in kept] == [
        *ids,
        *(f"{one}#2" for one in ids),
        *(f"{one}#3" for one in ids[:2000]),
    ]
    assert [row["value.a"] for row in kept] == [row["a"] for row in rows]


def test_one_id_with_different_values_names_both_lines(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("id,a,b\n1,x,p\n2,y,p\n1,x,q\n2,z,p\n3,x,p\n")
    with pytest.raises(InputError, match=r"lines 3 and.*5.*'2'"):
        scan(Inputs(source=str(path), id="id"), ["a"], tmp_path / "o")
    assert not (tmp_path / "o").exists()
    assert scan(Inputs(source=str(path), id="id", where='a != "z"'), ["a"], tmp_path / "o").duplicates == 1


def test_the_id_of_a_kept_duplicate_may_not_be_taken(tmp_path: Path):
    rows = [{"id": one, "a": "x"} for one in ("1", "1", "1#2")]
    with pytest.raises(InputError, match="'1#2'"):
        scan(Inputs(source=rows, id="id", duplicates="keep"), ["a"], tmp_path / "o")  # type: ignore[arg-type]


def test_where(people: Path, tmp_path: Path):
    def names(where: str) -> list[str]:
        found, rows = scanned(Inputs(source=str(people), where=where), "first_name", out=tmp_path / "o")
        assert found.excluded == 3 - found.rows
        return [row["value.first_name"] for row in rows]

    assert names("age > 30") == ["Ada", "Čapek"]
    assert names('age = "007"') == ["Bob"]
    assert names('first_name in ("Ada", "Bob") and not note = "a"') == ["Bob"]
    assert names('"First Name" contains "a"') == ["Ada", "Čapek"]
    for wrong in ("agee > 3", "age >", "age > 100"):
        with pytest.raises(InputError):
            names(wrong)


def test_where_prefers_the_exact_name_of_a_column(tmp_path: Path):
    rows = [{"Name": "x", "name": "y", "a": "1"}, {"Name": "y", "name": "x", "a": "2"}]
    for name in ("Name", "name"):
        _, stored = scanned(Inputs(source=rows, where=f'{name} = "x"'), "a", out=tmp_path / "o")  # type: ignore[arg-type]
        assert [row["value.a"] for row in stored] == ["1" if name == "Name" else "2"]
    with pytest.raises(InputError, match=r"2 columns.*'NAME'"):
        scan(Inputs(source=rows, where='NAME = "x"'), ["a"], tmp_path / "o")  # type: ignore[arg-type]


def test_rows_excluded_by_where_may_have_missing_values(tmp_path: Path):
    rows = [{"a": "x", "b": 1}, {"a": None, "b": 2}]
    found = scan(Inputs(source=rows, where="not a is missing"), ["a"], tmp_path / "o")  # type: ignore[arg-type]
    assert (found.rows, found.excluded) == (1, 1)
    with pytest.raises(InputError, match=r"row 2.*'a'.*no value"):
        scan(rows, ["a"], tmp_path / "o")
    scan(Inputs(source=rows, keep=("a",)), ["b"], tmp_path / "o")  # type: ignore[arg-type]
    assert pq.read_table(tmp_path / "o")["value.a"].to_pylist() == ["x", None]


@pytest.mark.parametrize("sample", [0.3, 300])
def test_a_sample_stays_when_rows_are_added_or_moved(tmp_path: Path, sample: float):
    rows = [{"a": f"row {n}"} for n in range(1000)]

    def chosen(rows: list[dict[str, str]], seed: int = 0) -> list[str]:
        settings = Inputs(source=rows, sample=sample, seed=seed)  # type: ignore[arg-type]
        return [row["value.a"] for row in scanned(settings, "a", out=tmp_path / "o")[1]]

    first = chosen(rows)
    assert first == sorted(first, key=lambda text: int(text[4:])), "in the order of the table"
    assert 240 <= len(first) <= 360
    assert chosen(rows, seed=1) != first
    assert {*chosen(random.Random(1).sample(rows, 1000))} == {*first}
    more = {*chosen([*rows, *({"a": f"row {n}"} for n in range(1000, 1100))])}
    lost = {*first} - more
    assert not lost if sample < 1 else len(lost) <= 60
    if sample > 1:
        assert len(first) == len(more) == 300
        assert {*chosen([*rows, *rows])} == {*first}, "duplicates are not drawn twice"


def test_a_limit_stops_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [{"a": str(n // 2)} for n in range(50_000)]
    found, stored = scanned(Inputs(source=rows, limit=5000), "a", out=tmp_path / "o")  # type: ignore[arg-type]
    assert [row["value.a"] for row in stored] == [str(n) for n in range(5000)]
    assert found.read < 15_000
    monkeypatch.setattr(scanning, "_MOST_SEEN", 10)
    every, again = scanned(Inputs(source=rows, limit=5000), "a", out=tmp_path / "o")  # type: ignore[arg-type]
    assert (every.read, again) == (50_000, stored)
    both, _ = scanned(Inputs(source=rows, limit=5, sample=100), "a", out=tmp_path / "o")  # type: ignore[arg-type]
    assert (both.rows, both.read) == (5, 50_000)
    kept, _ = scanned(Inputs(source=rows, limit=5, duplicates="keep"), "a", out=tmp_path / "o")  # type: ignore[arg-type]
    assert (kept.rows, kept.read) == (5, 4096)
    assert scan(Inputs(source=rows, limit=10**9), ["a"], tmp_path / "o").rows == 25_000  # type: ignore[arg-type]


def test_tables_are_joined_and_crossed(people: Path, tmp_path: Path):
    (tmp_path / "orders.jsonl").write_text(
        '{"number": 2, "item": "pen"}\n{"number": 1, "item": "ink"}\n{"number": 2, "item": "cup"}\n{"number": 3, "item": "hat"}\n'
    )
    (tmp_path / "tones.csv").write_text("tone,note\nkind,k\nterse,t\n")
    orders = SecondTable(source=str(tmp_path / "orders.jsonl"), on="number")
    tones = SecondTable(source=str(tmp_path / "tones.csv"))
    joined = Inputs(tables=(SecondTable(source=str(people)), orders))
    found, rows = scanned(joined, "first_name", "item", out=tmp_path / "o")
    assert [(row["value.first_name"], row["value.item"], row["line"]) for row in rows] == [
        ("Ada", "ink", 2), ("Bob", "pen", 3), ("Bob", "cup", 3), ("Čapek", "hat", 4),
    ]  # fmt: skip
    assert "people.csv" in found.source
    assert "orders.jsonl" in found.source
    crossed = Inputs(
        tables=(SecondTable(source=str(people)), orders, tones), where='tone = "terse" or item = "ink"'
    )
    _, rows = scanned(crossed, "tone", "item", out=tmp_path / "o")
    assert [(row["value.item"], row["value.tone"]) for row in rows] == [
        ("ink", "kind"), ("ink", "terse"), ("pen", "terse"), ("cup", "terse"), ("hat", "terse"),
    ]  # fmt: skip
    assert scan(crossed, ["first_name", "tone"], tmp_path / "o").rows == 4, "Bob's orders give equal rows"
    with pytest.raises(InputError, match=r"2 columns.*'note'"):
        scan(crossed, ["note"], tmp_path / "o")
    people.write_text(PEOPLE + "9,Eve,1,e\n")
    with pytest.raises(InputError, match=r"line 5.*'Number'.*'9'"):
        scan(joined, ["item"], tmp_path / "o")
    with pytest.raises(InputError, match="no column 'nr'"):
        scan(
            Inputs(tables=(joined.tables[0], SecondTable(source=orders.source, on="nr"))),
            ["item"],
            tmp_path / "o",
        )


def test_crossing_large_tables_stops_at_the_limit(tmp_path: Path):
    pq.write_table(pa.table({"a": [str(n) for n in range(9000)]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"b": [str(n) for n in range(9000)]}), tmp_path / "b.parquet")
    tables = (
        SecondTable(source=str(tmp_path / "a.parquet")),
        SecondTable(source=str(tmp_path / "b.parquet")),
    )
    _, rows = scanned(Inputs(tables=tables, limit=10_000), "a", "b", out=tmp_path / "o")
    assert [(row["value.a"], row["value.b"]) for row in rows] == [
        (str(n // 9000), str(n % 9000)) for n in range(10_000)
    ]


def test_a_table_that_no_prompt_uses_is_an_error(people: Path, tmp_path: Path):
    with pytest.raises(InputError, match="no placeholder"):
        scan(Inputs(source=str(people)), [], tmp_path / "o")
    assert scan(Inputs(source=str(people), id="number"), [], tmp_path / "o").rows == 3


def test_an_error_keeps_the_earlier_file(people: Path, tmp_path: Path):
    out = tmp_path / "out.parquet"
    scan(Inputs(source=str(people)), ["age"], out)
    before = out.read_bytes()
    people.write_text("age\n1\n2,3\n")
    with pytest.raises(InputError):
        scan(Inputs(source=str(people)), ["age"], out)
    assert out.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"people.csv", "out.parquet"}


def test_the_fingerprint_changes_with_files_and_settings(people: Path, tmp_path: Path):
    settings = Inputs(source=str(people))
    first = fingerprint_of(settings)
    assert first == fingerprint_of(settings) == scan(settings, ["age"], tmp_path / "o").fingerprint != ""
    assert fingerprint_of(Inputs(source=str(people), limit=1)) != first
    os.utime(people, ns=(1, 1))
    touched = fingerprint_of(settings)
    assert touched != first
    people.write_text(PEOPLE + "4,Eve,1,e\n")
    os.utime(people, ns=(1, 1))
    assert fingerprint_of(settings) != touched
    (tmp_path / "texts").mkdir()
    empty = fingerprint_of(Inputs(source=str(tmp_path / "texts")))
    (tmp_path / "texts" / "a.txt").write_text("x")
    assert fingerprint_of(Inputs(source=str(tmp_path / "texts"))) != empty
    assert fingerprint_of(Inputs(source="hf:a/b")) == fingerprint_of([{"a": 1}]) == ""
    assert fingerprint_of(Inputs(source=[{"a": 1}])) == ""  # type: ignore[arg-type]


def test_rows_are_repeated(people: Path, tmp_path: Path):
    once, rows = scanned(Inputs(source=str(people), limit=2), "first_name", out=tmp_path / "once")
    thrice, repeated = scanned(
        Inputs(source=str(people), limit=2, repeat=3), "first_name", out=tmp_path / "thrice"
    )
    assert (once.rows, thrice.rows) == (2, 6)
    assert [row["id"] for row in repeated[:3]] == [rows[0]["id"], f"{rows[0]['id']}~2", f"{rows[0]['id']}~3"]
    assert {row["hash"] for row in repeated[:3]} == {rows[0]["hash"]}
