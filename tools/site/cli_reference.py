"""The CLI reference, made from the commands themselves: the pages say what `--help` says."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any

import typer.main

from camel.cli import GROUPS, app, name_of
from camel.cli.help import first_sentence, row, texts


def pages() -> dict[str, str]:
    """The pages by file name: an index, and one for each group of commands."""
    commands: dict[str, Any] = typer.main.get_command(app).commands
    written = {"index.md": _index(commands)}
    for group, members in GROUPS.items():
        lines = [
            line for one in members for line in _command(("camel", name_of(one)), commands[name_of(one)])
        ]
        written[_file(group)] = "\n".join([f"# {group}", "", *lines])
    return written


def _file(group: str) -> str:
    return f"{group.lower()}.md"


def _index(commands: dict[str, Any]) -> str:
    lines = [
        "# The `camel` command",
        "",
        "`camel COMMAND --help` shows the same text. Errors are one line on stderr.",
        "",
        "| exit status | meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | a model, a file or a check failed |",
        "| 2 | wrong input |",
        "| 3 | stopped by a budget, or by an endpoint that fails; run the same command to continue |",
        "| 130 | stopped by Ctrl-C; run the same command to continue |",
        "",
    ]
    for group, members in GROUPS.items():
        lines += [f"## {group}", "", "| command | what it does |", "|---|---|"]
        lines += [
            f"| [`camel {name}`]({_file(group)}#camel-{name}) | {_cell(first_sentence(commands[name]))} |"
            for name in map(name_of, members)
        ]
        lines.append("")
    return "\n".join(lines)


def _command(path: tuple[str, ...], command: Any) -> list[str]:
    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    usage = " ".join(command.get_usage(context).split()).removeprefix("Usage: ")
    lines = [f"{'#' * len(path)} `{' '.join(path)}` {{ #{'-'.join(path)} }}", ""]
    lines += [
        "```text",
        usage,
        "```",
        "",
        command.help.strip(),
        "",
        texts(" ".join(path)).get("text", ""),
        "",
    ]
    if inside := getattr(command, "commands", None):
        for name, one in inside.items():
            lines += _command((*path, name), one)
        return lines
    if rows := [row(one, " ".join(path)) for one in command.params]:
        lines += ["| argument or option | what it does |", "|---|---|"]
        lines += [f"| `{left}` | {_cell(right)} |" for left, right in rows]
        lines.append("")
    return [*lines, "```text", texts(" ".join(path))["example"], "```", ""]


def _cell(text: str) -> str:
    """Text for a cell of a table: one line, with nothing that Markdown or HTML would interpret."""
    pieces = " ".join(text.split()).split("`")
    plain = [re.sub(r"([|*_<\[\]\\])", r"\\\1", piece) for piece in pieces[0::2]]
    code = [f"`{piece}`" for piece in pieces[1::2]]
    return "".join(part for pair in zip_longest(plain, code, fillvalue="") for part in pair)
