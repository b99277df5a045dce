"""Writes the folder of a new scenario: small, valid, and meant to be edited."""

from __future__ import annotations

import json
from pathlib import Path

from camel.core.errors import InputError
from camel.scenarios.reading import FILE, known

_NEW = Path(__file__).parent / "new"


def scaffold(path: str | Path, title: str = "") -> Path:
    """Write a new scenario's folder and return it. Never overwrites anything."""
    folder = Path(path)
    if str(path) in known():
        raise InputError(f"'{path}' is the name of a shipped scenario: choose another name")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"'{folder}' already exists: choose another name, or remove the folder")
    title = " ".join(title.split()) or folder.resolve().name.replace("_", " ").replace("-", " ").title()
    if not title.isprintable():
        raise InputError("the title contains characters that cannot be printed")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A JSON string of printable characters is also a TOML string.
        quoted = json.dumps(title, ensure_ascii=False)
        for source, name in (("declaration.txt", FILE), ("experts.txt",) * 2, ("tasks.txt",) * 2):
            text = (_NEW / source).read_text("utf-8").replace("{title}", quoted)
            (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"cannot write '{folder}': {error.strerror}") from None
    return folder
