"""The gallery: finished conversations that come with CAMEL."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from importlib.resources import as_file, files
from pathlib import Path

from camel.library.run import Run

MADE = datetime(2026, 11, 18, tzinfo=UTC).timestamp()
"""Time at which the conversations were made. The explorer shows it for the imported run, which has no log."""


def open_gallery(folder: str | Path = "camel-demo/gallery") -> dict[str, Run]:
    """Copy the gallery to a folder, unless it is there already, and open its runs by name.

        runs = camel.open_gallery()
        runs["ai-society"][0].show()

    Everything that works on a run works on these, without a model or a network. `README.md` in the folder describes the
    runs: a large language model composed them through CAMEL's own loop, and nine of them fail on purpose.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with as_file(files("camel") / "gallery") as gallery:
        for source in sorted(gallery.iterdir()):
            if not (folder / source.name).exists():
                _copy(source, folder)
        names = [one.name for one in sorted(gallery.iterdir()) if one.is_dir()]
    return {name: Run(folder / name) for name in names}


def _copy(source: Path, folder: Path) -> None:
    """Copy a file or a folder. If the copy is interrupted, nothing exists under the target's name."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".copy-") as scratch:
        copy = Path(scratch) / source.name
        if source.is_dir():
            shutil.copytree(source, copy, copy_function=shutil.copyfile)
            os.utime(copy / "run.json", (MADE, MADE))
        else:
            shutil.copyfile(source, copy)
        copy.replace(folder / source.name)
