"""Runs on a disk and on an S3 server of their own process, over real HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.s3_faults import Faults, Server, spawn
from camel.storage.run import RunFolder, open_folder

Place = Callable[[str], RunFolder]


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    with spawn() as server:
        yield server


@pytest.fixture
def s3(
    _server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """The server, with nothing wrong with it; in the environment."""
    for name, value in _server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "journals"))
    _server.set(Faults())
    yield _server
    _server.set(Faults())


@pytest.fixture
def bucket(s3: Server, tmp_path: Path) -> Callable[[str], str]:
    """Addresses in it that no other test uses."""
    return lambda name: s3.address(f"{tmp_path.parent.name}-{tmp_path.name}/{name}")


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Gives a place for a run, of either kind."""
    if request.param == "disk":
        return lambda name: open_folder(tmp_path / name)
    addresses = request.getfixturevalue("bucket")
    return lambda name: open_folder(addresses(name))
