"""Cells of notebooks, run as Jupyter runs them.

A kernel would need forty packages and add nothing to that.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(path: Path) -> list[str]:
    """The code of a notebook, which is kept without outputs."""
    cells = json.loads(path.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "kept without outputs"
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


async def run_cells(path: Path, names: dict[str, Any]) -> list[Any]:
    """Run all cells in one namespace, inside the running event loop, and return their values that would be shown."""
    values = [await _execute(cell, names) for cell in code_cells(path)]
    return [value for value in values if value is not None]


async def _execute(cell: str, names: dict[str, Any]) -> Any:
    """Run one cell and return the value of its last line, if that is an expression."""
    tree = ast.parse(cell)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    result = eval(compile(tree, "cell", "exec", flags=flags), names)
    if inspect.iscoroutine(result):
        await result
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), "cell", "eval", flags=flags), names)
    return await value if inspect.iscoroutine(value) else value
