"""`camel export` with splits and scores, `camel import` of chats, and `camel push`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from camel.core.errors import InputError
from camel.core.transcript import Score
from camel.formats.dataset import dataset
from camel.formats.documents import store
from camel.formats.push import plan_upload
from camel.library.run import Run
from camel.runs.run import open_folder
from tests.support import in_process
from tests.support.conversations import RELEASE, talk


def camel(*words: object) -> str:
    done = in_process.invoke(list(map(str, words)), catch_exceptions=False, standalone_mode=False)
    return done.output


@pytest.fixture
def run(tmp_path: Path) -> Path:
    given = [talk(str(n), inputs={"n": str(n % 5)}, scores={"helpful": Score(n)}) for n in range(20)]
    store(open_folder(tmp_path / "run"), given, "dataset")
    return tmp_path / "run"


@pytest.mark.parametrize("format", ["messages", "dataset"])
def test_splits_can_be_exported_again(run: Path, tmp_path: Path, format: str):
    words = (
        "export",
        run,
        format,
        tmp_path / "out",
        "--split",
        "train=0.7, test=0.3",
        "--split-by",
        "input.n",
    )
    assert "20 conversations" in camel(*words)
    assert {
        path.stem.partition("-")[0]
        for path in (tmp_path / "out").rglob("*-*.parquet" if format == "dataset" else "*.jsonl")
    } == {"train", "test"}
    with pytest.raises(InputError, match="--force"):
        camel(*words)
    camel(*words, "--force")


def test_preferences_by_score(run: Path, tmp_path: Path):
    with pytest.raises(InputError, match="30 or more"):
        camel("export", run, "preferences", tmp_path / "p.jsonl", "--by", "score.helpful", "--margin", 30)
    store(open_folder(tmp_path / "two"), [talk("a"), talk("b", ["Instruction: Set up the project.\nInput: None", "No."])], "x")  # fmt: skip
    with pytest.raises(InputError, match=r"score\.helpful"):
        camel("export", tmp_path / "two", "preferences", tmp_path / "p.jsonl", "--by", "score.helpful")


@pytest.mark.parametrize(
    "words",
    [
        ["messages", "x.jsonl", "--by", "score.helpful"],
        ["preferences", "x.jsonl", "--margin", "1"],
        ["messages", "x.jsonl", "--split-by", "id"],
        ["messages", "x", "--split", "train"],
        ["site", "x", "--split", "train=1"],
    ],
)
def test_options_that_do_not_fit(run: Path, words: list[str], snapshot: Callable[..., None]):
    with pytest.raises(InputError) as refused:
        camel("export", run, *words)
    snapshot("errors", str(refused.value), " ".join(words))


@pytest.mark.parametrize("format", ["messages", "sharegpt", "dataset"])
def test_an_export_can_be_imported(run: Path, tmp_path: Path, format: str):
    out = tmp_path / ("out" if format == "dataset" else "out.jsonl")
    camel("export", run, format, out, "--metadata")
    camel("import", out, tmp_path / "back", "--format", format)
    before, after = list(Run(run)), list(Run(tmp_path / "back"))
    assert [(one.id, one.inputs, one.scores) for one in after] == [
        (one.id, one.inputs, one.scores) for one in before
    ]


def test_a_dry_run_of_a_push_needs_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> Any:
        raise AssertionError(f"{name} was imported")

    monkeypatch.setattr("camel.formats.push.import_module", missing)
    dataset([talk(labels=["misalignment"])], tmp_path / "set", release=RELEASE, license="cc-by-4.0")
    said = camel("push", tmp_path / "set", "me/set", "--private", "--dry-run")
    upload = plan_upload(tmp_path / "set")
    assert upload.gated
    assert upload.card["license"] == "cc-by-4.0"
    for name, size in upload.files.items():
        assert f"{size:,}  {name}" in said
    for words in (["set", "me"], ["elsewhere", "me/set", "--dry-run"]):
        with pytest.raises(InputError, match=r"OWNER/NAME|elsewhere"):
            camel("push", *words)


def test_of_training_rows_only_the_card_and_the_data_are_pushed(tmp_path: Path):
    for name in ("run.json", "README.md", "data/mixed/0.parquet", "data/rows/0.parquet", "journal/0.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("---\nconfigs:\n  - split: train\n    path: data/mixed/*.parquet\n---\n")
    assert [*plan_upload(tmp_path).files] == ["README.md", "data/mixed/0.parquet"]
