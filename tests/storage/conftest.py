"""Runs on a disk and in an object store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

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


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the client of object stores wait milliseconds, not seconds, before it repeats a request."""
    store = pytest.importorskip("obstore.store")
    from_url = store.from_url
    backoff = {
        "init_backoff": timedelta(milliseconds=2),
        "max_backoff": timedelta(milliseconds=40),
        "base": 2,
    }

    def quick(*args: Any, retry_config: dict[str, Any], **kwargs: Any) -> Any:
        return from_url(*args, retry_config={**retry_config, "backoff": backoff}, **kwargs)

    monkeypatch.setattr(store, "from_url", quick)
