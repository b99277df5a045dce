"""No name leads out of a folder, and no link in it is followed, whatever is done with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import InputError
from camel.runs.run import RunFolder
from camel.storage import inside
from camel.storage.inside import LinkInside
from camel.storage.store import DiskStore
from tests.support.untouched import Witness

USES: dict[str, Callable[[Path, str], Any]] = {
    "path": inside.path,
    "exists": inside.exists,
    "open": inside.open_file,
    "append": lambda root, name: inside.open_file(root, name, inside.APPEND),
    "read": inside.read,
    "create": lambda root, name: inside.create(root, name, b"x"),
    "write": lambda root, name: inside.write(root, name, b"x"),
    "remove": inside.remove,
    "names": inside.names,
    "folders": inside.folders,
    "entries": lambda root, name: list(inside.entries(root, name)),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file, next to one with a file that is not its own."""
    for name in ("run", "outside"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "file").write_text(name)
    return tmp_path / "run"


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../outside/deep/file",
        "deep/../../outside",
        "/etc/passwd",
        "deep//file",
        "./deep",
        "a\\b",
        "a\0",
    ],
)
def test_a_name_that_leads_out_is_refused(root: Path, use: str, name: str):
    with Witness(root.parent / "outside") as witness:
        with pytest.raises(InputError):
            USES[use](root, name)
        assert witness.events() == []


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("relative", [True, False])
def test_a_folder_that_is_a_link_is_not_entered(root: Path, use: str, relative: bool):
    (root / "link").symlink_to("../outside" if relative else root.parent / "outside")
    with Witness(root.parent / "outside") as witness:
        for name in ("link/deep/file", "link/new", "link/deep"):
            with pytest.raises(LinkInside, match=str(root / "link")):
                USES[use](root, name)
        assert witness.events() == []


@pytest.mark.parametrize("use", sorted(USES.keys() - {"remove", "create"}))
@pytest.mark.parametrize("target", ["../outside/deep/file", "../outside/deep", "../outside/missing", "link"])
def test_a_link_is_refused_by_name(root: Path, use: str, target: str):
    (root / "deep" / "link").symlink_to(root / target)
    with Witness(root.parent / "outside") as witness:
        with pytest.raises(LinkInside, match=str(root / "deep/link")):
            USES[use](root, "deep/link")
        assert witness.events() == []


def test_what_is_made_or_removed_in_the_place_of_a_link_leaves_its_target(root: Path):
    (root / "link").symlink_to("../outside/deep/file")
    with Witness(root.parent / "outside") as witness:
        assert not inside.create(root, "link", b"x")
        inside.remove(root, "link")
        assert not (root / "link").is_symlink()
        assert inside.create(root, "link", b"x")
        assert witness.events() == []


@pytest.mark.parametrize("use", ["names", "folders", "entries"])
def test_a_listing_names_the_link_in_it(root: Path, use: str):
    (root / "deep" / "link").symlink_to("../../outside")
    with pytest.raises(LinkInside, match=str(root / "deep/link")):
        USES[use](root, "deep")


def test_the_folder_itself_may_be_a_link(root: Path):
    linked = root.parent / "linked"
    linked.symlink_to("run")
    inside.write(linked, "deep/new", "text")
    assert inside.read(linked, "deep/file") == b"run"
    assert sorted(inside.names(root, "deep")) == ["file", "new"]
    assert [one.name for one in inside.entries(linked, "deep")] == ["deep/file", "deep/new"]
    assert DiskStore(root.parent).folders("") == ["linked", "outside", "run"]


def test_a_pipe_holds_nobody(root: Path):
    os.mkfifo(root / "pipe")
    assert inside.read(root, "pipe") == b""


def test_files_are_replaced_whole(root: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            inside.write(root, "deep/file", b"other")
    assert inside.read(root, "deep/file") == b"run"
    assert inside.names(root, "deep") == ["file"]


def test_journals_that_are_links_are_not_read(root: Path):
    folder = RunFolder(root)
    (root / "journal" / "conversations").mkdir(parents=True)
    (root / "journal" / "conversations" / "000000-x").symlink_to("../../../outside/deep/file")
    for use in (
        lambda: list(folder.replay("conversations", 0)),
        lambda: list(folder.attempts("conversations", 0)),
        lambda: folder.journaled("conversations"),
        lambda: folder.sweep("conversations"),
    ):
        with Witness(root.parent / "outside") as witness:
            with pytest.raises(LinkInside, match="000000-x"):
                use()
            assert witness.events() == []
