"""Writes the folder of a new scenario: small, sound, and meant to be changed."""

from __future__ import annotations

import json
from pathlib import Path

from camel.core.errors import InputError
from camel.scenarios.reading import FILE, known

_DECLARATION = """\
title = {title}

[[levels]]
name = "expert"            # prompts mention it as <EXPERT>
count = 10
prompt = "experts.txt"

[[levels]]
name = "task"
count = 5                  # for each expert, because tasks.txt mentions <EXPERT>
prompt = "tasks.txt"

[role_play]
assistant = "<EXPERT>"
user = "Curious Beginner"
task = "<TASK>"
"""
_EXPERTS = """\
List <COUNT> experts in different fields whose help many people could use, such as Gardener or Tax Adviser.
Use the singular form. Write one on each line, without explanation.
"""
_TASKS = """\
List <COUNT> diverse tasks that a <EXPERT> can help a curious beginner to complete by talking, step by step.
Be concise. Be creative. Write one on each line.
"""


def scaffold(path: str | Path, title: str = "") -> Path:
    """Write a new scenario's folder and return it. Nothing that exists is overwritten."""
    folder = Path(path)
    if str(path) in known():
        raise InputError(f"{path} is the name of a shipped scenario: choose another")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already: choose another name or take it away")
    title = " ".join(title.split()) or folder.resolve().name.replace("_", " ").replace("-", " ").title()
    if not title.isprintable():
        raise InputError("the title holds characters that cannot be printed")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A JSON string of printable characters is a TOML string too.
        quoted = json.dumps(title, ensure_ascii=False)
        (folder / FILE).write_text(_DECLARATION.format(title=quoted), "utf-8")
        (folder / "experts.txt").write_text(_EXPERTS, "utf-8")
        (folder / "tasks.txt").write_text(_TASKS, "utf-8")
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None
    return folder
