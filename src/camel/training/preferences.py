"""Preferences of a critic as training data.

The one decision to know: pairs are always read from a file of `camel export RUN preferences`. A run is exported to such a
file first, so that only one piece of code interprets a critic's choices.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from camel.core.errors import InputError
from camel.formats.preferences import preferences
from camel.runs.reader import RunReader
from camel.runs.run import open_folder
from camel.training.weights import need

FOLDER = "preferences"


def digest_of(name: str) -> str:
    """Return a hash of the content of a run or file."""
    path = Path(name)
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if not open_folder(name).exists:
        raise InputError(
            f"there are no preferences in {name}. Give a run, or a file written by camel export RUN preferences"
        )
    return " ".join(marker.sha256 for marker in RunReader(name).markers)


def pairs(names: tuple[str, ...], scratch: Path) -> Any:
    """Return a `datasets.Dataset` of prompts, each with a chosen and a rejected answer. `scratch` is a folder for temporary
    files."""
    datasets = need("datasets")
    files: list[str] = []
    for number, name in enumerate(names):
        path = Path(name)
        if not path.is_file():
            path = scratch / FOLDER / f"{number}.jsonl"
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                preferences(RunReader(name), path)
        files.append(str(path))
    try:
        found: Any = datasets.Dataset.from_json(files, cache_dir=str(scratch))
    except (ValueError, datasets.exceptions.DatasetGenerationError):
        found = ()
    if not len(found) or not {"prompt", "chosen", "rejected"} <= set(found.column_names):
        raise InputError(
            f"there are no preferences in {', '.join(names)}. Use a run in which a critic chose between proposals"
        )
    return found.select_columns(["prompt", "chosen", "rejected"])
