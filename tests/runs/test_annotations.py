"""Annotations: stored next to the run, by several processes at once, and never lost with a cut-off line."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from camel.core.errors import CamelError, InputError
from camel.runs.annotations import FILE, MOST_TAGS, NOTE_CHARS, TAG_CHARS, Annotations, files_for
from camel.runs.run import open_folder
from camel.runs.verify import verify
from tests.support.societies import society


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "camel" / "annotations"


def of(run: Path) -> Annotations:
    return Annotations(files_for(run, run))


def test_what_is_not_given_stays(tmp_path: Path):
    annotations = of(tmp_path)
    annotations.change("a", star=True)
    annotations.change("a", tags=["odd", " odd ", "two  words"])
    made = annotations.change("a", note="read again")
    assert (made.star, made.tags, made.note) == (True, ("odd", "two words"), "read again")
    assert of(tmp_path).read() == {"a": made}
    annotations.change("a", star=False, tags=[], note="")
    assert of(tmp_path).read() == {}


def test_a_run_with_annotations_is_verified_as_before(tmp_path: Path):
    society(tmp_path / "run", rows=5)
    of(tmp_path / "run").change("000_000", star=True)
    report = verify(open_folder(tmp_path / "run"))
    assert not report.problems
    assert not report.notes


def test_a_line_that_was_cut_off_costs_only_itself(tmp_path: Path):
    of(tmp_path).change("a", star=True)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"id":"b","sta')
    of(tmp_path).change("c", note="after")
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes() + b"\xff\n[]\nnull\n")
    assert set(of(tmp_path).read()) == {"a", "c"}


def _star_many(run: Path, start: int) -> None:
    annotations = of(run)
    for n in range(start, start + 20):
        annotations.change(str(n), star=True)
        annotations.change(
            "shared", tags=[*annotations.read().get("shared", annotations.change("shared")).tags, str(n)][-3:]
        )


def test_several_processes_write_at_once(tmp_path: Path):
    spawn = multiprocessing.get_context("fork")
    writers = [spawn.Process(target=_star_many, args=(tmp_path, 100 * n)) for n in range(3)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
        assert one.exitcode == 0
    found = of(tmp_path).read()
    assert {id for id, one in found.items() if one.star} == {
        str(100 * n + k) for n in range(3) for k in range(20)
    }


def test_where_the_run_cannot_be_written_to_the_users_folder_is_used(tmp_path: Path, home: Path):
    (tmp_path / "run" / FILE).mkdir(parents=True)  # no user can open a file there
    of(tmp_path / "run").change("a", note="mine")
    assert [path.name.startswith("run-") for path in home.iterdir()] == [True]
    assert of(tmp_path / "run").read()["a"].note == "mine"


def test_a_run_elsewhere_has_its_annotations_in_the_users_folder(home: Path):
    annotations = Annotations(files_for("s3://bucket/runs/code", None))
    annotations.change("a", tags=["odd"])
    assert Annotations(files_for("s3://bucket/runs/code", None)).read()["a"].tags == ("odd",)
    assert Annotations(files_for("s3://bucket/other/code", None)).read() == {}
    assert len(list(home.iterdir())) == 1


def test_the_newer_of_two_files_counts(tmp_path: Path):
    mine = Annotations(files_for(tmp_path, None))
    mine.change("a", note="old")
    of(tmp_path).change("a", note="new")
    assert of(tmp_path).read()["a"].note == "new"


@pytest.mark.parametrize(
    "change",
    [
        {"tags": ["x" * (TAG_CHARS + 1)]},
        {"tags": ["a,b"]},
        {"tags": ["a\x00b"]},
        {"tags": [str(n) for n in range(MOST_TAGS + 1)]},
        {"note": "x" * (NOTE_CHARS + 1)},
    ],
)
def test_limits(tmp_path: Path, change: dict[str, object]):
    with pytest.raises(InputError):
        of(tmp_path).change("a", **change)  # type: ignore[arg-type]
    assert not (tmp_path / FILE).exists()


def test_a_link_is_not_followed(tmp_path: Path):
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CamelError):
        of(tmp_path / "run").change("a", star=True)
    assert (tmp_path / "elsewhere").read_text() == ""


def test_where_none_are_wanted_none_are_stored():
    with pytest.raises(InputError):
        Annotations([]).change("a", star=True)
