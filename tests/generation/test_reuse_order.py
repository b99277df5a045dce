"""What a fork takes over lasts, as everything does that has a marker."""

from __future__ import annotations

from pathlib import Path

from camel.generation.reuse import take_over
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.runs.settings import Settings


def test_lists_are_durable_before_their_markers(tmp_path: Path, synced: list[str]):
    old, new = RunFolder(tmp_path / "old"), RunFolder(tmp_path / "new")
    for folder in (old, new):
        folder.create(Settings(folder.root.name, {}, "0"))
    path = old.data_path("task", 0, "a", ".txt")
    path.write_text("1. One\n")
    old.commit(Marker("task", 0, old.persist(path)[0], 1, "", "old"))

    synced.clear()
    take_over(tmp_path / "old", new, ["task"])
    marker = new.marker("task", 0)
    assert (new.root / marker.file).read_text() == "1. One\n"
    assert marker.fingerprint == "new"
    copied = synced.index(Path(marker.file).name)
    assert copied < next(place for place, name in enumerate(synced) if name.startswith(".000000.json"))
