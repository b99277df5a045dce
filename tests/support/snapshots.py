"""Full texts that the program shows, each checked against one file per surface: `tests/snapshots/SURFACE.txt`.

A test checks the type of an error and the value that the user needs. The whole sentence is here, so that a change of
wording is one command (`make snapshots`) and one diff to read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "snapshots"
ROOT = Path(__file__).parents[2]
_NEW = FOLDER / ".new"
_HEAD = "=== "
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text: str, folders: Iterable[Path] = ()) -> str:
    """The text without what differs between two machines: colors, folders, ports, trailing blanks."""
    text = _ANSI.sub("", text)
    for folder in folders:
        text = text.replace(str(folder), "<tmp>")
    text = text.replace(str(ROOT), "<root>")
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", r"\1:<port>", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def read(surface: str) -> dict[str, str]:
    """The stored texts of a surface by key."""
    path = FOLDER / f"{surface}.txt"
    if not path.exists():
        return {}
    texts: dict[str, str] = {}
    for part in path.read_text("utf-8").split(f"\n{_HEAD}"):
        key, _, text = part.removeprefix(_HEAD).partition("\n")
        texts[key] = text.rstrip("\n")
    return texts


def write(surface: str, texts: dict[str, str]) -> None:
    """Replace a surface's file."""
    FOLDER.mkdir(exist_ok=True)
    parts = [f"{_HEAD}{key}\n{texts[key]}\n" for key in sorted(texts)]
    (FOLDER / f"{surface}.txt").write_text("\n".join(parts), "utf-8")


def remember(surface: str, key: str, text: str) -> None:
    """Keep a text until `merge`; several test processes may do so at once."""
    _NEW.mkdir(parents=True, exist_ok=True)
    with (_NEW / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps([surface, key, text]) + "\n")


def exists(key: str) -> bool:
    """Whether the test of a key still exists."""
    file, _, name = key.partition(" ")[0].partition("::")
    path = ROOT / "tests" / file
    return path.exists() and f"def {name.rpartition('::')[2]}(" in path.read_text("utf-8")


def merge() -> None:
    """Bring what was remembered into the files, and drop the texts of tests that no longer exist."""
    new: dict[str, dict[str, str]] = {}
    for path in sorted(_NEW.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            surface, key, text = json.loads(line)
            new.setdefault(surface, {})[key] = text
        path.unlink()
    if _NEW.exists():
        _NEW.rmdir()
    for surface in {*new, *(path.stem for path in FOLDER.glob("*.txt"))}:
        texts = read(surface) | new.get(surface, {})
        write(surface, {key: text for key, text in texts.items() if exists(key)})
