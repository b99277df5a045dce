"""Every notebook that uses the real small model, cell by cell; tests/library/test_programs.py runs the other one."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import camel
from camel import ChatModel
from camel.models.local import Running
from tests.support.notebook import NOTEBOOKS, run_cells
from tests.support.small_model import connect

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'"),
]


@pytest.mark.parametrize(
    "path", [one for one in NOTEBOOKS if "local_model" in one.read_text()], ids=lambda path: path.stem
)
def test_notebook_runs(
    path: Path, small_server: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    @contextmanager
    def shared_model() -> Generator[ChatModel]:
        yield connect(small_server)

    monkeypatch.setattr(camel, "local_model", shared_model)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        shown = asyncio.run(run_cells(path, names))
    finally:
        if "here" in names:
            names["here"].close()
    assert shown
    for value in shown:
        assert value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)
    said = names.get("transcript") or names.get("talk")
    assert said is not None or names["run"].status().state == "complete"
