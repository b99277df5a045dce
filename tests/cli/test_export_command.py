"""`camel export` and `camel rows`: what they say of a run that is not finished, and what `--force` replaces."""

from __future__ import annotations

import errno
import io
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel import Transcript
from camel.cli import main
from camel.core.errors import InputError
from camel.core.message import Message
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Score, Speaker
from camel.record.arrow import write_shard
from camel.runs.layout import Segment
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from tests.support import in_process
from tests.support.scored import scored_run

COUNTS = {"assistant_role": 1, "user_role": 1, "task": 4}


def conversation(number: int) -> Transcript:
    said = [
        Message(0, "user", "Trader", "Instruction: Name one.\nInput: None"),
        Message(1, "assistant", "Programmer", "Solution: One. Next request."),
    ]
    speakers = [Speaker("user", "Trader"), Speaker("assistant", "Programmer")]
    return Transcript(f"001_001_{number:03d}", Task("Trade"), speakers, said, Stop("done", "done"))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Half of what was planned."""
    folder = RunFolder(tmp_path / "run")
    planned = {"conversations": Segment(4, 2)}
    config = {"scenario": "ai_society", "counts": COUNTS, "shard_size": 2}
    folder.create(Settings("f", config, "0", planned=planned))
    commit(folder, 0)
    return folder


def commit(folder: RunFolder, shard: int) -> None:
    path = folder.data_path("conversations", shard, new_attempt(), ".parquet")
    written = write_shard(path, map(conversation, range(2 * shard, 2 * shard + 2)))
    file, size = folder.persist(path)
    assert folder.commit(Marker("conversations", shard, file, 2, written.sha256, "f", {}, size))


def export(run: RunFolder, *words: str) -> Any:
    done = in_process.invoke(["export", run.address, *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize("format", ["messages", "dataset", pytest.param("site", marks=pytest.mark.slow)])
def test_a_run_that_is_not_finished_is_called_so(
    run: RunFolder, tmp_path: Path, format: str, snapshot: Callable[..., None]
):
    ending = "half.jsonl" if format == "messages" else "half"
    done = export(run, format, str(tmp_path / ending))
    assert "2 of 4" in done.stderr
    assert "2 of 4" not in done.stdout
    snapshot("errors", done.stderr)
    if format == "dataset":
        assert "**Unfinished**: 2 of 4" in (tmp_path / "half" / "README.md").read_text()
    commit(run, 1)
    whole = export(run, format, str(tmp_path / f"whole-{ending}"))
    assert whole.stderr == ""
    if format == "dataset":
        assert "**Unfinished**" not in (tmp_path / "whole-half" / "README.md").read_text()


def refused(*words: str) -> str:
    done = in_process.invoke(list(words), standalone_mode=False)
    assert isinstance(done.exception, InputError)
    return str(done.exception)


@pytest.mark.parametrize("format", ["dataset", pytest.param("site", marks=pytest.mark.slow), "chat"])
def test_force_replaces_a_folder_that_holds_nothing_else(run: RunFolder, tmp_path: Path, format: str):
    out = tmp_path / "out"
    export(run, format, str(out))
    before = {path.name for path in out.iterdir()}
    assert "--force" in refused("export", run.address, format, str(out))
    commit(run, 1)
    export(run, format, str(out), "--force")
    assert before <= {path.name for path in out.iterdir()}
    (out / "notes.txt").write_text("mine")
    assert "notes.txt" in refused("export", run.address, format, str(out), "--force")
    assert (out / "notes.txt").read_text() == "mine"
    (out / "notes.txt").unlink()
    # Nor anything deeper next to the output.
    deeper = next((one for one in sorted(out.iterdir()) if one.is_dir()), out / "more")
    deeper.mkdir(exist_ok=True)
    (deeper / "mine.csv").write_text("mine")
    assert "mine.csv" in refused("export", run.address, format, str(out), "--force")
    (deeper / "mine.csv").unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    assert ".jsonl" in refused("export", run.address, "messages", str(out))
    assert ".jsonl" in refused("export", run.address, "messages", str(out), "--force")


@pytest.mark.parametrize("format", ["dataset", pytest.param("site", marks=pytest.mark.slow)])
def test_here_is_a_name_and_a_file_is_no_folder(
    run: RunFolder, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    export(run, format, ".")
    monkeypatch.chdir(here)
    assert "--force" in refused("export", run.address, format, ".")
    export(run, format, ".", "--force")
    assert any(here.iterdir())
    (tmp_path / "file").write_text("mine")
    for words in ([], ["--force"]):
        assert str(tmp_path / "file") in refused(
            "export", run.address, format, str(tmp_path / "file"), *words
        )
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(("where", "name"), [("nothing = 1", "unknown"), ("stop = done", "unquoted")])
def test_a_malformed_filter_has_the_same_message_in_every_command(
    run: RunFolder, tmp_path: Path, snapshot: Callable[..., None], where: str, name: str
):
    out = str(tmp_path / "out")
    commands = (
        ("export", run.address, "site", out),
        ("export", run.address, "messages", out),
        ("rows", run.address, "--out", out),
        ("study", run.address, "--out", out),
        ("show", run.address),
    )
    said = {refused(*command, "--where", where) for command in commands}
    assert len(said) == 1
    snapshot("errors", said.pop(), name)
    assert not Path(out).exists()


def test_commands_use_the_conversations_that_match(tmp_path: Path):
    made = scored_run(tmp_path / "run", 30)
    where = "messages > 1 and score.helpful >= 2 and stop != 'error'"
    wanted = [
        one.id
        for one in made
        if len(one.messages) > 1
        and (one.scores.get("helpful", Score(None)).value or 0) >= 2
        and not (one.stop and one.stop.reason == "error")
    ]
    assert 2 < len(wanted) < 15

    def run_command(*words: str) -> str:
        done = in_process.invoke([*words, "--where", where], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    place, out = str(tmp_path / "run"), tmp_path / "out"
    run_command("export", place, "messages", f"{out}.jsonl")
    assert len(Path(f"{out}.jsonl").read_text().splitlines()) == len(wanted)
    run_command("export", place, "site", f"{out}-site")
    assert len(list(Path(f"{out}-site/conversations").glob("*.html"))) == len(wanted)
    rows = msgspec.json.decode(run_command("rows", place, "--out", f"{out}-rows", "--json").splitlines()[-1])
    assert rows["result"]["removed"]["where"] == 30 - len(wanted)
    studied = msgspec.json.decode(
        run_command("study", place, "--out", f"{out}-study", "--json").splitlines()[-1]
    )
    assert studied["result"]["conversations"] == len(wanted)
    listed = msgspec.json.decode(run_command("show", place, "--json"))["conversations"]
    assert [one["id"] for one in listed] == wanted[:10]
    assert f"{len(wanted)} of 30" in run_command("show", place)


def test_force_makes_other_rows_and_never_removes_a_run(run: RunFolder, tmp_path: Path):
    out = str(tmp_path / "rows")

    def rows(*words: str) -> Any:
        done = in_process.invoke(["rows", run.address, *words, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return msgspec.json.decode(done.stdout.splitlines()[-1])["result"]

    first = rows("--out", out)
    assert "--force" in refused("rows", run.address, "--out", out, "--seat", "user")
    other = rows("--out", out, "--seat", "user", "--force")
    assert other["tokens"] != first["tokens"]
    assert rows("--out", out, "--seat", "user", "--force") == other
    assert rows("--out", out, "--force") == first
    assert run.address in refused("rows", run.address, "--out", run.address, "--force")
    assert run.committed("conversations") == {0}


def test_options_that_would_do_nothing_are_refused(
    run: RunFolder, tmp_path: Path, snapshot: Callable[..., None]
):
    for option in ("--first", "--seed"):
        said = refused("export", run.address, "messages", str(tmp_path / "all.jsonl"), option, "1")
        assert option in said
        snapshot("errors", said, option)
    said = refused("export", run.address, "site", str(tmp_path / "site"), "--seed", "1")
    assert "--random" in said
    file, out = tmp_path / "recipe.toml", tmp_path / "rows"
    file.write_text(f'out = "{out}"\n[[sources]]\nrun = "{run.address}"\n')
    said = refused("rows", str(file), "--out", "elsewhere", "--markers", "--json")
    assert "--out, --markers" in said
    assert not out.exists()
    done = in_process.invoke(["rows", str(file), "--json", "--force"])
    assert done.exit_code == 0, done.output


def test_rows_of_which_nothing_is_left_say_by_what(run: RunFolder, tmp_path: Path):
    done = in_process.invoke(
        ["rows", run.address, "--out", str(tmp_path / "rows"), "--where", "stop = 'don'"]
    )
    assert done.exit_code == 0
    assert "'where'" in done.output
    assert "test_export_command.py" in refused("train", __file__, "--recipe", "cpu", "--dry-run")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_what_the_file_system_refuses_is_one_line(
    run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
    number: int,
    snapshot: Callable[..., None],
):
    def refuse(*_: Any) -> Any:
        raise OSError(number, os.strerror(number), str(tmp_path / "x.jsonl"))

    monkeypatch.setattr("os.fsync", refuse)
    monkeypatch.setattr("os.fdatasync", refuse)
    monkeypatch.setattr(sys, "argv", ["camel", "export", run.address, "chat", str(tmp_path / "x.jsonl")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    [line] = capfd.readouterr().err.strip().splitlines()
    assert str(tmp_path / "x.jsonl") in line
    assert os.strerror(number) in line
    snapshot("errors", line)


def test_names_of_an_archive_do_not_act_on_the_terminal(run: RunFolder, tmp_path: Path):
    export(run, "chat", str(tmp_path / "said.jsonl"))
    sound = (tmp_path / "said.jsonl").read_bytes().splitlines()[0]
    archive = tmp_path / "said.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in (("bad\x1b[2J.json", b"{"), ("001_001_001.json", sound)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    done = in_process.invoke(["import", str(archive), str(tmp_path / "imported"), "--skip"])
    assert done.exit_code == 0, done.output
    assert "camel: skipped: " in done.stderr
    assert "bad␚[2J.json" in done.stderr
    assert "\x1b" not in done.output


def test_runs_lists_damaged_ones_for_programs_too(run: RunFolder, tmp_path: Path):
    broken = tmp_path / "broken" / "run.json"
    broken.parent.mkdir()
    broken.write_text("{")
    done = in_process.invoke(["run", "list", str(tmp_path), "--json"], catch_exceptions=False)
    listed = {one["run"]: one for one in map(msgspec.json.decode, done.stdout.splitlines())}
    assert set(listed) == {run.address, str(broken.parent)}
    assert listed[str(broken.parent)]["state"] == "damaged"
    assert "run.json" in listed[str(broken.parent)]["error"]
