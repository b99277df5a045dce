"""Runs on a disk and in an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from camel.storage.run import RunFolder, open_folder

Place = Callable[[str], RunFolder]


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Gives a place for a run, of either kind."""
    if request.param == "disk":
        return lambda name: open_folder(tmp_path / name)
    addresses = request.getfixturevalue("bucket")
    return lambda name: open_folder(addresses(name))
