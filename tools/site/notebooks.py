"""Notebooks as pages: their words and their code, as they are in the repository."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / "examples" / "notebooks"


def pages() -> dict[str, str]:
    """The pages by their file names."""
    return {f"{path.stem}.md": _page(json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.ipynb"))}


def _page(notebook: dict) -> str:
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).strip()
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"
