"""The CLI reference, made from the commands themselves: what `--help` says is what the pages say."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any

import typer.main

from camel.cli import app

GROUPS = {
    "first": ("First steps", ("init", "doctor", "demo", "completion")),
    "talk": ("Talk", ("play", "society", "agents", "serve")),
    "datasets": (
        "Make datasets",
        ("scenarios", "plan", "generate", "pause", "resume", "stop", "status", "runs", "translate"),
    ),
    "look": ("Look and share", ("explore", "index", "map", "export", "import")),
    "measure": ("Measure", ("study", "ablate", "evaluate", "vote", "emergence")),
    "train": ("Train", ("rows", "train")),
    "keep": ("Keep house", ("verify", "compact", "gc")),
    "more": ("More", ()),
}
"""File name, title and verbs of each page, in order. A verb that nobody has put anywhere stands on the last."""


_KIND = re.compile(r" <(str|path|list\[\w+\])>$")
"""What typer adds to a name that says no more than the name itself."""


def pages() -> dict[str, str]:
    """The pages by their file names."""
    verbs = typer.main.get_command(app).commands
    placed = {verb for _, members in GROUPS.values() for verb in members}
    found = {
        f"{name}.md": (title, [verb for verb in members if verb in verbs])
        for name, (title, members) in GROUPS.items()
    }
    found["more.md"] = (GROUPS["more"][0], [verb for verb in verbs if verb not in placed])
    filled = {name: (title, members) for name, (title, members) in found.items() if members}
    written = {
        name: "\n".join(
            [f"# {title}", "", *(line for verb in members for line in _command(("camel", verb), verbs[verb]))]
        )
        for name, (title, members) in filled.items()
    }
    return {"index.md": _index(filled, verbs), **written}


def _index(filled: dict[str, tuple[str, list[str]]], verbs: dict[str, Any]) -> str:
    lines = [
        "# The `camel` command",
        "",
        "Made from the commands themselves: `camel VERB --help` says the same. Errors of ours are one line on stderr.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | a model, a file or a check failed |",
        "| 2 | wrong input |",
        "| 3 | stopped by a budget, or by an endpoint that fails; the same command goes on |",
        "| 130 | stopped by Ctrl-C; the same command goes on |",
        "",
    ]
    for name, (title, members) in filled.items():
        lines += [f"## {title}", "", "| command | what it does |", "|---|---|"]
        lines += [
            f"| [`camel {verb}`]({name}#camel-{verb}) | {_cell(_summary(verbs[verb]))} |" for verb in members
        ]
        lines.append("")
    return "\n".join(lines)


def _command(path: tuple[str, ...], command: Any) -> list[str]:
    depth = "#" * len(path)
    lines = [f"{depth} `{' '.join(path)}` {{ #{'-'.join(path)} }}", ""]
    help_text = (command.help or "").split("\f")[0].strip()
    if inside := getattr(command, "commands", None):
        lines += [help_text, ""]
        for name, verb in inside.items():
            lines += _command((*path, name), verb)
        return lines
    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    usage = " ".join(command.get_usage(context).split()).removeprefix("Usage: ")
    lines += ["```text", usage, "```", "", help_text, ""]
    # What `--help` prints, from the parser itself: its parameters' own classes change between typer's releases.
    records = [parameter.get_help_record(context) for parameter in command.params]
    if rows := [record for record in records if record and not record[0].startswith("--help")]:
        lines += ["| argument or option | what it does |", "|---|---|"]
        lines += [f"| `{_KIND.sub('', left.strip())}` | {_cell(right)} |" for left, right in rows]
        lines.append("")
    return lines


def _summary(command: Any) -> str:
    return (command.help or "").split("\f")[0].strip().split("\n\n")[0]


def _cell(text: str) -> str:
    """Text for a cell of a table: one line, with nothing that Markdown or HTML would take for its own."""
    pieces = " ".join(text.split()).split("`")
    plain = [re.sub(r"([|*_<\[\]\\])", r"\\\1", piece) for piece in pieces[0::2]]
    code = [f"`{piece}`" for piece in pieces[1::2]]
    return "".join(part for pair in zip_longest(plain, code, fillvalue="") for part in pair)
