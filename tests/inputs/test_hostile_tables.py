"""Hostile tables: each gives a clear `InputError` or exactly the right text, never another error."""

from __future__ import annotations

import codecs
import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from camel.core.errors import InputError
from camel.inputs.scan import scan
from camel.inputs.settings import Inputs


def texts(folder: Path, source: Path, used: str = "a", **settings: Any) -> list[str]:
    """The texts of one column, as they are stored."""
    out = folder / "scanned.out"
    scan(Inputs(source=str(source), duplicates="keep", **settings), [used], out)
    found = pq.read_table(out)
    assert not [path for path in folder.iterdir() if path.name.startswith(".scan-")]
    return found[f"value.{used}"].to_pylist()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


WIDE = ",".join(f"c{n}" for n in range(9_999))
RIGHT: dict[str, tuple[str, bytes, list[str]]] = {
    "utf-8 with BOM": ("t.csv", codecs.BOM_UTF8 + b"a,b\nx,y\n", ["x"]),
    "BOM in a cell": ("t.csv", "a,b\n\ufeffx,y\n".encode(), ["\ufeffx"]),
    "quotes": ("t.csv", b'a,b\n"say ""hi"", now",y\n', ['say "hi", now']),
    "quote in the middle of a cell": ("t.csv", b'a,b\n5" pipe,y\n', ['5" pipe']),
    "line break in a cell": ("t.csv", b'a,b\r\n"one\r\ntwo",y\r\nx,y\r\n', ["one\r\ntwo", "x"]),
    "CRLF": ("t.csv", b"a,b\r\nx,y\r\n", ["x"]),
    "lone CR": ("t.csv", b"a,b\rx,y\rz,y\r", ["x", "z"]),
    "blank lines": ("t.csv", b"\n\na,b\n\nx,y\n\n\nz,y\n\n", ["x", "z"]),
    "no line end at the end": ("t.csv", b"a,b\nx,y", ["x"]),
    "leading zeros": ("t.csv", b"a,b\n007,y\n1.0,y\n1e5,y\nNA,y\nnull,y\n", ["007", "1.0", "1e5", "NA", "null"]),
    "spaces": ("t.csv", b"a,b\n  x ,y\n\t,y\n ,y\n", ["  x ", "\t", " "]),
    "empty cell": ("t.csv", b"a,b\n,y\n", [""]),
    "braces and angle brackets": ("t.csv", b"a,b\n{a} <B> %s $x \\n,y\n", ["{a} <B> %s $x \\n"]),
    "emoji": ("t.csv", "a,b\n👩🏽‍🚀 é é,y\n".encode(), ["👩🏽‍🚀 é é"]),
    "line separators of Unicode": ("t.csv", "a,b\nx\u2028y\x85z\x0bq,y\n".encode(), ["x\u2028y\x85z\x0bq"]),
    "formula": ("t.csv", b'a,b\n"=cmd|\' /C calc\'!A0",y\n', ["=cmd|' /C calc'!A0"]),
    "10,000 columns": ("t.csv", f"a,{WIDE}\nx,{',' * 9_998}\n".encode(), ["x"]),
    "NUL in another column": ("t.csv", b"a,b\nx,\0\n", ["x"]),
    "invalid UTF-8 in another column": ("t.csv", b"a,b\nx,\xff\n", ["x"]),
    "huge cell in another column": ("t.csv", b"a,b\nx," + b"y" * 300_000 + b"\n", ["x"]),
    "200,000 characters": ("t.csv", ("a,b\n" + "é" * 200_000 + ",y\n").encode(), ["é" * 200_000]),
    "gz": ("t.csv.gz", gzip.compress(b"a,b\nx,y\n"), ["x"]),
    "gz of two parts": ("t.csv.gz", gzip.compress(b"a,b\nx,y\n") + gzip.compress(b"z,y\n"), ["x", "z"]),
    "zst": ("t.jsonl.zst", zstd(b'{"a": "x"}\n'), ["x"]),
    "upper-case ending": ("T.CSV", b"a,b\nx,y\n", ["x"]),
    "tsv": ("t.tsv", b"a\tb\nx, y\tz\n", ["x, y"]),
    "JSON numbers": ("t.jsonl", b'{"a": 1.0}\n{"a": 1e400}\n{"a": 12345678901234567890123}\n{"a": true}', ["1.0", "1e400", "12345678901234567890123", "true"]),
    "JSON nested": ("t.jsonl", b'{"a": {"z": [1.0, "\\u00e9 x", null]}}\n', ['{"z":[1.0,"\\u00e9 x",null]}']),
    "JSON escapes": ("t.jsonl", b'{"a": "\\ud83d\\ude00 \\" \\n"}\n', ['😀 " \n']),
    "JSONL with BOM": ("t.jsonl", codecs.BOM_UTF8 + b'\n{"a": "x"}\r\n\r\n', ["x"]),
    "JSONL with a column that begins late": ("t.jsonl", b'{"b": 1, "a": "x"}\n{"a": "y"}\n', ["x", "y"]),
    "JSON keys with quotes": ("t.jsonl", b'{"\\u0022": 1, "\\"": "\\"", "a": "x"}'.replace(b'"\\u0022": 1, ', b""), ["x"]),
    "JSON list": ("t.json", codecs.BOM_UTF8 + b'[\n {"a": "x"},\n {"a": null, "a2": 1, "b": 2, "a": "y"}\n]'.replace(b'"a": null, ', b""), ["x", "y"]),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_the_text_is_exactly_the_text_of_the_table(tmp_path: Path, name: str):
    file, data, expected = RIGHT[name]
    (tmp_path / file).write_bytes(data)
    assert texts(tmp_path, tmp_path / file) == expected


WRONG: dict[str, tuple[str, bytes, list[str]]] = {
    "latin-1": ("t.csv", b"a,b\nx,y\ncaf\xe9,y\n", ["line 3", "'a'"]),
    "latin-1 header": ("t.csv", b"caf\xe9,a\nx,y\n", ["line 1", "encoding"]),
    "utf-16": ("t.csv", "a,b\nx,y\n".encode("utf-16"), ["UTF-16", "encoding"]),
    "utf-16 JSON": ("t.jsonl", '{"a": 1}'.encode("utf-16"), ["UTF-16"]),
    "open quote": ("t.csv", b'a,b\nx,y\n"x,y\nz,y\n', ["line 3", "quote"]),
    "text after a quote": ("t.csv", b'a,b\n"x"y,z\n', ["line 2", "quote"]),
    "short row": ("t.csv", b"a,b\nx,y\nx\n", ["line 3", "1 ", "2"]),
    "long row after a line break in a cell": ("t.csv", b'a,b\n"x\nx",y\nx,y,z\n', ["line 4", "3 ", "2"]),
    "NUL": ("t.csv", b"a,b\nx\0,y\n", ["line 2", "'a'", "NUL"]),
    "NUL in JSON": ("t.jsonl", b'{"a": "\\u0000"}', ["line 1", "'a'", "NUL"]),
    "huge cell": ("t.csv", b"a,b\n" + b"x" * 200_001 + b",y\n", ["line 2", "'a'", "200,000"]),
    "huge line": ("t.csv", b"a,b\n" + b"x" * 10_000_001 + b",y\n", ["line 2", "10,000,000"]),
    "huge line of JSON": ("t.jsonl", b'{"a": "' + b"x" * 10_000_001 + b'"}', ["line 1", "10,000,000"]),
    "cell without an end": ("t.csv", b'a,b\n"' + b"x\n" * 5_500_000, ["line 2", "quote"]),
    "missing column": ("t.csv", b"A1,b,ab\nx,y,z\n", ["'a'", "A1, b, ab"]),
    "two columns for one placeholder": ("t.csv", b"A,a,b\nx,y,z\n", ["'a'", "A, a"]),
    "semicolons": ("t.csv", b"a;b\nx;y\n", ["'a'", "semicolons"]),
    "empty file": ("t.csv", b"", ["empty"]),
    "only a BOM": ("t.csv", codecs.BOM_UTF8, ["empty"]),
    "only blank lines": ("t.csv", b"\r\n\n", ["empty"]),
    "header only": ("t.csv", b"a,b\n", ["no rows"]),
    "empty JSONL": ("t.jsonl", b"\n", ["no rows"]),
    "empty JSON list": ("t.json", b"[]", ["no rows"]),
    "objects without keys": ("t.jsonl", b"{}\n{}\n", ["no rows"]),
    "repeated header": ("t.csv", b"a,b,a\nx,y,z\n", ["2 columns", "'a'"]),
    "header without a name": ("t.csv", b"a,b,\nx,y,z\n", ["no name"]),
    "Parquet in .csv": ("t.csv", b"PAR1\x00\x00", [".parquet"]),
    "gzip in .csv": ("t.csv", gzip.compress(b"a,b\nx,y\n"), [".gz"]),
    "zstd in .jsonl": ("t.jsonl", zstd(b'{"a": 1}'), [".zst"]),
    "Excel in .csv": ("t.csv", b"PK\x03\x04abc", ["Excel"]),
    "JSON in .csv": ("t.csv", b'{"a": 1}\n', [".jsonl"]),
    "CSV in .jsonl": ("t.jsonl", b"a,b\nx,y\n", ["line 1", "JSON"]),
    "CSV in .parquet": ("t.parquet", b"a,b\nx,y\n", ["t.parquet"]),
    "CSV in .gz": ("t.csv.gz", b"a,b\nx,y\n", ["t.csv.gz"]),
    "JSON list in .jsonl": ("t.jsonl", b'[{"a": 1}]', [".json"]),
    "JSONL in .json": ("t.json", b'{"a": 1}\n{"a": 2}\n', [".jsonl"]),
    "unknown ending": ("t.xlsx", b"PK\x03\x04abc", [".csv", ".parquet"]),
    "truncated gz": ("t.csv.gz", gzip.compress(b"a,b\n" + os.urandom(9000).hex().encode() + b",y\n")[:-900], ["t.csv.gz", "complete"]),
    "truncated zst": ("t.csv.zst", zstd(b"a,b\n" + os.urandom(9000).hex().encode() + b",y\n")[:-900], ["t.csv.zst", "complete"]),
    "repeated JSON key": ("t.jsonl", b'{"a": "x"}\n{"a": "x", "b": 1, "a": "y"}\n', ["line 2", "'a'"]),
    "trailing comma in JSON": ("t.jsonl", b'{"a": "x"}\n{"a": "x",}\n', ["line 2", "comma"]),
    "NaN in JSON": ("t.jsonl", b'{"a": NaN}\n', ["line 1"]),
    "lone surrogate in JSON": ("t.jsonl", b'{"a": "\\ud800"}\n', ["line 1"]),
    "invalid UTF-8 in JSON": ("t.jsonl", b'{"a": "x"}\n{"a": "\xff"}\n', ["line 2"]),
    "deep JSON": ("t.jsonl", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", ["line 1"]),
    "null": ("t.jsonl", b'{"a": "x"}\n{"a": null}\n', ["line 2", "'a'", "no value"]),
    "missing key": ("t.jsonl", b'{"a": "x"}\n{"b": 1}\n', ["line 2", "'a'", "no value"]),
    "JSON texts instead of objects": ("t.jsonl", b'"a"\n', ["line 1"]),
    "JSON list of texts": ("t.json", b'["a"]', ["row 1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_error_names_the_file_and_the_place(tmp_path: Path, name: str):
    file, data, parts = WRONG[name]
    (tmp_path / file).write_bytes(data)
    with pytest.raises(InputError) as error:
        texts(tmp_path, tmp_path / file)
    for part in [file, *parts]:
        assert part in str(error.value)
    assert len(str(error.value)) < 1000
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_other_encodings(tmp_path: Path):
    for encoding in ("latin-1", "utf-16", "utf-16-le", "cp1252"):
        (tmp_path / "t.csv").write_bytes("a,b\ncafé,y\n".encode(encoding))
        assert texts(tmp_path, tmp_path / "t.csv", encoding=encoding) == ["café"]
    (tmp_path / "t.csv").write_bytes("a,b\ncafé,y\n".encode("utf-16")[:-1])
    with pytest.raises(InputError, match=r"t\.csv"):
        texts(tmp_path, tmp_path / "t.csv", encoding="utf-16")


@pytest.mark.parametrize("id", ["", "  ", "\t", "x" * 1001])
def test_an_id_must_be_usable(tmp_path: Path, id: str):
    (tmp_path / "t.csv").write_text(f"id,a\n1,x\n{id},y\n")
    with pytest.raises(InputError, match=r"line 3.*'id'"):
        texts(tmp_path, tmp_path / "t.csv", id="id")


def test_hostile_parquet(tmp_path: Path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [{"x": [1, None], "y": "é"}], "a.b": ["dot"], "n": pa.nulls(1)}), path)
    assert texts(tmp_path, path) == ['{"x":[1,null],"y":"é"}']
    with pytest.raises(InputError, match=r"row 1.*'n'"):
        texts(tmp_path, path, "n")
    pq.write_table(pa.table({"a": pa.array([b"\xff"], pa.binary())}), path)
    with pytest.raises(InputError, match="'a' contains bytes"):
        texts(tmp_path, path)
    invalid = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"a": invalid}), path)
    with pytest.raises(InputError, match=r"t\.parquet"):
        texts(tmp_path, path)
    pq.write_table(pa.table([pa.array(["x"]), pa.array(["y"])], ["a", "a"]), path)
    with pytest.raises(InputError, match=r"2 columns.*'a'"):
        texts(tmp_path, path)
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), path)
    with pytest.raises(InputError, match="no rows"):
        texts(tmp_path, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"t\.parquet"):
        texts(tmp_path, path)


def test_links(tmp_path: Path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "one.txt").write_text("first")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "link").symlink_to(folder)
    assert texts(tmp_path, tmp_path / "link", "text") == ["first"], "a link that the user gave is followed"
    (folder / "two.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InputError, match=r"two\.txt'.*link"):
        texts(tmp_path, folder, "text")
    (folder / "two.txt").unlink()
    (folder / "sub").symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"sub'.*link"):
        texts(tmp_path, folder, "text")
    for dangling in (tmp_path / "nothing.csv", tmp_path / "nowhere.csv"):
        if dangling.name == "nowhere.csv":
            dangling.symlink_to(tmp_path / "gone.csv")
        with pytest.raises(InputError, match="does not exist"):
            texts(tmp_path, dangling)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="neither a file"):
        texts(tmp_path, tmp_path / "pipe.csv")


def test_hostile_folders(tmp_path: Path):
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    with pytest.raises(InputError, match="no files"):
        texts(tmp_path, folder, "text")
    (folder / ".hidden").write_bytes(b"\xff")
    (folder / "b.txt").write_bytes(codecs.BOM_UTF8 + b" two\r\n")
    (folder / "sub" / "a.tar.md").write_bytes(b"")
    assert texts(tmp_path, folder, "text") == [" two\r\n", ""]
    assert texts(tmp_path, folder, "file") == ["b.txt", "sub/a.tar.md"]
    assert texts(tmp_path, folder, "name") == ["b", "a.tar"]
    (folder / "c.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"c\.txt"):
        texts(tmp_path, folder, "text")
    assert texts(tmp_path, folder, "text", encoding="latin-1")[1] == "café"
    (folder / "c.txt").write_bytes(b"x" * 1_000_000)
    with pytest.raises(InputError, match=r"c\.txt'.*200,000"):
        texts(tmp_path, folder, "text")
    (folder / "c.txt").unlink()
    Path(os.fsdecode(bytes(folder) + b"/\xff.txt")).write_text("x")
    with pytest.raises(InputError, match="'name'"):
        texts(tmp_path, folder, "name")


def test_the_first_five_problems_are_reported_together(tmp_path: Path):
    (tmp_path / "t.csv").write_bytes(b"a,b\nx,y,z\nx\ncaf\xe9,y\nx,y\nx\nx\nx\n")
    with pytest.raises(InputError) as error:
        texts(tmp_path, tmp_path / "t.csv")
    found = str(error.value)
    assert [f"line {number} " in found for number in (2, 3, 6, 7, 8)] == [True] * 5
    (tmp_path / "t.csv").write_bytes(b"a,b\nx,y,z\ncaf\xe9,y\nx\0,y\n")
    with pytest.raises(InputError) as error:
        texts(tmp_path, tmp_path / "t.csv")
    found = str(error.value)
    assert "line 2 " in found
    assert "line 3," in found
    assert "line 4," in found
