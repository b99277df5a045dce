"""Cells of notebooks, run as Jupyter runs them. A kernel would need forty more packages.

`execute` returns the outputs of each cell as the notebook's file stores them: what was printed, and the value of the last line.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ID = re.compile(r"\b[0-9a-f]{32}\b")
"""The id of a conversation that has none of its own: another one each time."""


def read(path: Path) -> dict[str, Any]:
    """A notebook as it is stored."""
    return json.loads(path.read_text())


def code_cells(path: Path) -> list[str]:
    """The code of a notebook."""
    return ["".join(cell["source"]) for cell in read(path)["cells"] if cell["cell_type"] == "code"]


async def execute(notebook: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """Run all cells in one namespace, inside the running event loop, and return the notebook with their outputs."""
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"] = number
            cell["outputs"] = await _outputs("".join(cell["source"]), number, names)
    return notebook


def write(path: Path, notebook: dict[str, Any]) -> None:
    """Store a notebook as Jupyter does."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def stable(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook without what differs from one run to the next."""
    return json.loads(ID.sub("ID", json.dumps(notebook)))


async def _outputs(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        value = await _value(source, names)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
    if value is not None and not source.rstrip().endswith(";"):
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": _lines(value._repr_html_()), **data}
        outputs.append(
            {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


async def _value(cell: str, names: dict[str, Any]) -> Any:
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
