"""Every notebook, cell by cell, with the real small model.

The cells run as in Jupyter: in one namespace, inside a running event loop, with `await` allowed, and the value of a
cell is shown. A kernel would need forty packages and add nothing to that.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import camel
from camel import ChatModel
from camel.models.local import Running
from tests.support.small_model import connect

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'"),
]
NOTEBOOKS = sorted((Path(__file__).parent.parent.parent / "examples" / "notebooks").glob("*.ipynb"))


async def execute(cell: str, names: dict[str, Any]) -> Any:
    """Run one cell and return the value of its last line, if that is an expression."""
    tree = ast.parse(cell)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(tree, "cell", "exec", flags=flags)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), "cell", "eval", flags=flags), names)
    return await value if inspect.iscoroutine(value) else value


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(
    path: Path, small_server: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    @contextmanager
    def shared_model() -> Generator[ChatModel]:
        yield connect(small_server)

    monkeypatch.setattr(camel, "local_model", shared_model)
    notebook = json.loads(path.read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in notebook["cells"]), "kept without outputs"
    names: dict[str, Any] = {"__name__": "__main__"}

    async def run() -> list[Any]:
        return [await execute(cell, names) for cell in cells]

    try:
        values = asyncio.run(run())
    finally:
        if "here" in names:
            names["here"].close()
    shown = [value for value in values if value is not None]
    assert shown
    for value in shown:
        assert value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)
    said = names.get("transcript") or names.get("talk")
    assert said is not None or names["run"].status().state == "complete"
