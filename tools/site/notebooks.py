"""Notebooks as pages: their text, their code and the outputs that are stored with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent.parent / "examples" / "notebooks"


def pages() -> dict[str, str]:
    """The pages by their file names."""
    return {f"{path.stem}.md": _page(json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.ipynb"))}


def _page(notebook: dict[str, Any]) -> str:
    parts: list[str] = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).strip()
        parts.append(text if cell["cell_type"] == "markdown" else _fence("python", text))
        parts += [_output(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        # One line: Markdown would take an empty line for the end of the HTML.
        return "".join(data["text/html"]).replace("\n", "&#10;")
    return _fence("text", "".join(output.get("text") or data["text/plain"]).rstrip())


def _fence(language: str, text: str) -> str:
    """A code block, also around text that has code blocks of its own."""
    marks = "````" if "```" in text else "```"
    return f"{marks}{language}\n{text}\n{marks}"
