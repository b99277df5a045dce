"""The notebooks of examples/notebooks run, and their files have the outputs that a reader would get.

After a change, `pytest --update-snapshots tests/test_notebooks.py` stores the outputs again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.notebook import FOLDER, NOTEBOOKS, code_cells, execute, read, stable, write


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} >= {
        "critic",
        "dataset",
        "short_programs",
        "society",
        "trading_bot",
    }


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_its_outputs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        made = asyncio.run(execute(read(path), names))
    finally:
        if "here" in names:
            names["here"].close()
    if request.config.getoption("--update-snapshots") and stable(made) != stable(read(path)):
        write(path, made)
    assert stable(made) == stable(read(path))


def test_the_guide_and_the_notebook_show_the_same_programs():
    page = (FOLDER.parents[1] / "docs" / "guide.md").read_text()
    cells = code_cells(FOLDER / "short_programs.ipynb")
    for line in {line.strip() for cell in cells for line in cell.splitlines() if "camel" in line}:
        assert line in page
