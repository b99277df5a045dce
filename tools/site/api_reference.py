"""The API reference, made from the sources: signatures, docstrings, and the texts below fields.

The one decision to know: sources are parsed, never imported, because the text of a field follows it in the source and is nowhere
else, and because the site can then be built without the packages of every extra.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "src"
PARTS = {
    "conversations": (
        "Conversations",
        "Role plays: agents, prompts, messages and transcripts.",
        (
            "core.role_playing",
            "core.conversation",
            "core.task",
            "core.inception",
            "core.message",
            "core.transcript",
            "core.history",
            "core.grammar",
        ),
    ),
    "tools": ("Tools", "What agents can call before they speak.", ("core.tools", "core.world")),
    "stop-rules": ("Stop rules", "When a conversation ends.", ("core.stops",)),
    "critics": (
        "Critics and search",
        "Choose between proposed messages.",
        ("core.critic", "core.judge", "core.rubric", "core.search"),
    ),
    "societies": (
        "Societies",
        "Conversations with more than two speakers.",
        (
            "core.society",
            "core.dialogue",
            "core.member",
            "core.turns",
            "core.graphs",
            "core.planner",
            "scenarios.societies",
        ),
    ),
    "models": (
        "Models",
        "Models and endpoints that reply.",
        (
            "core.model",
            "models.chat",
            "models.command",
            "models.spec",
            "models.pool",
            "models.local",
            "models.person",
            "models.scripted",
            "models.simulator.settings",
            "models.simulator.server",
        ),
    ),
    "errors": ("Errors", "All that is raised on purpose.", ("core.errors",)),
    "datasets": (
        "Datasets",
        "Scenarios, configurations and jobs.",
        (
            "scenarios.scenario",
            "scenarios.reading",
            "scenarios.choosing",
            "scenarios.checking",
            "generation.config",
            "inputs.settings",
            "generation.plan",
            "generation.capacity",
            "generation.generate",
            "generation.dialogues",
            "library.execution",
            "library.jobs",
            "library.serving",
            "jobs.job",
            "engine.stage",
            "jobs.item",
            "jobs.runner",
            "jobs.progress",
            "jobs.status",
            "models.spec",
        ),
    ),
    "storage": (
        "Runs and formats",
        "Read, export, import and maintain runs.",
        (
            "library.run",
            "runs.reader",
            "runs.run",
            "formats.exporters",
            "formats.documents",
            "formats.push",
            "record.release",
            "record.arrow",
            "record.parquet",
            "runs.verify",
            "runs.compact",
            "runs.garbage",
        ),
    ),
    "explorer": ("Explorer", "Questions about runs.", ("query.catalogue", "query.where")),
    "detectors": (
        "Detectors",
        "Find failures in conversations.",
        ("detectors", "detectors.finding", "detectors.catalogue"),
    ),
    "evaluation": (
        "Evaluation",
        "Studies, comparisons, votes and HumanEval.",
        (
            "library.studies",
            "library.branches",
            "library.cooperation",
            "library.credit",
            "library.environment",
            "library.cross_play",
            "evaluation.credit_report",
            "evaluation.cross_play_report",
            "evaluation.cooperation.report",
            "evaluation.cooperation.exercises",
            "evaluation.effects",
            "evaluation.agents",
            "evaluation.contest",
            "evaluation.contest_records",
            "evaluation.study_job",
            "evaluation.results",
            "evaluation.pairs",
            "evaluation.agreement",
            "evaluation.standing",
            "reports.intervals",
            "evaluation.votes",
            "evaluation.study",
            "evaluation.humaneval.solving",
            "sandbox.process",
        ),
    ),
    "training": (
        "Training",
        "Training rows and fine-tuning.",
        (
            "library.row_making",
            "training.recipe",
            "training.rows",
            "training.stored_rows",
            "training.shaping",
            "training.config",
            "training.train",
        ),
    ),
}
"""File name, title, summary and modules of each page, in order."""


def pages() -> dict[str, str]:
    """The pages by their file names."""
    exported = _exported()
    written = {
        f"{name}.md": "\n".join(
            [
                f"# {title}",
                "",
                summary,
                "",
                *(line for module in modules for line in _module(module, exported)),
            ]
        )
        for name, (title, summary, modules) in PARTS.items()
    }
    anchors = {anchor for text in written.values() for anchor in re.findall(r"\{ #([\w.]+) \}", text)}
    return {"index.md": _index(exported, anchors), **written}


def place(path: str) -> str:
    """The page that shows a source file, or nothing."""
    module = path.removeprefix("src/camel/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for name, (_, _, modules) in PARTS.items():
        if path.startswith("src/camel/") and module in modules:
            return f"{name}.md"
    return ""


def file_of(module: str) -> Path:
    """The source file of a module below `camel`."""
    path = SOURCE / "camel" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _exported() -> dict[str, str]:
    """The names of `camel.__all__` and the modules they come from, as `camel/__init__.py` says."""
    tree = ast.parse((SOURCE / "camel" / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOME":
            home: dict[str, str] = ast.literal_eval(node.value)
            return {name: module for module, names in home.items() for name in names.split()}
    raise LookupError("camel/__init__.py no longer defines _HOME; update tools/site/api_reference.py")


def _index(exported: dict[str, str], anchors: set[str]) -> str:
    page_of = {module: name for name, (_, _, modules) in PARTS.items() for module in modules}
    lines = [
        "# The library",
        "",
        "Made from the sources. What is imported from `camel`, `camel.detectors` and `camel.scenarios` is the public interface. Other modules are shown",
        "for readers of the code, and may change in any release.",
        "",
        "| page | what is there |",
        "|---|---|",
        *(f"| [{title}]({name}.md) | {summary} |" for name, (title, summary, _) in PARTS.items()),
        "",
        "## Names of `camel`",
        "",
    ]
    names = [
        f"[`{name}`]({page_of[module]}.md#{module}.{name})" if f"{module}.{name}" in anchors else f"`{name}`"
        for name, module in sorted(exported.items(), key=lambda pair: pair[0].lower())
    ]
    return "\n".join([*lines, " · ".join(names), ""])


def _module(module: str, exported: dict[str, str]) -> list[str]:
    tree = ast.parse(file_of(module).read_text())
    lines = [f"## `camel.{module}` {{ #{module} }}", "", text(ast.get_docstring(tree)), ""]
    names = _listed(tree)
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef) and _public(node.name, names):
            lines += _class(module, node, exported)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _public(node.name, names):
            lines += _function(module, node, exported)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            told = _behind(tree.body, number)
            if isinstance(target, ast.Name) and (told or exported.get(target.id) == module):
                lines += (
                    _constant(module, target.id, node, told or "", exported)
                    if _public(target.id, names)
                    else []
                )
    return lines


def _constant(module: str, name: str, node: ast.stmt, told: str, exported: dict[str, str]) -> list[str]:
    source = ast.unparse(node)
    code = ["```python", source, "```", ""] if len(source) < 200 else []
    return [f"### `{name}` {{ #{module}.{name} }}", "", *_from(name, module, exported), *code, text(told), ""]


def _listed(tree: ast.Module) -> set[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            try:
                return set(ast.literal_eval(node.value))
            except ValueError:
                return None
    return None


def _public(name: str, listed: set[str] | None) -> bool:
    return not name.startswith("_") and (listed is None or name in listed)


def _class(module: str, node: ast.ClassDef, exported: dict[str, str]) -> list[str]:
    made = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    head = f"class {node.name}({bases})" if bases else f"class {node.name}"
    if made:
        head += "\n\n" + _signature(made[0], node.name)
    lines = [
        f"### `{node.name}` {{ #{module}.{node.name} }}",
        "",
        *_from(node.name, module, exported),
        "```python",
        head,
        "```",
        "",
    ]
    lines += [text(ast.get_docstring(node)), ""]
    if table := fields(node):
        lines += ["| field | type | default | |", "|---|---|---|---|", *table, ""]
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_"):
            lines += _method(module, node.name, item)
    return lines


def fields(node: ast.ClassDef) -> list[str]:
    """The fields of a class as rows of a table."""
    rows: list[str] = []
    for number, item in enumerate(node.body):
        if (
            isinstance(item, ast.AnnAssign)
            and isinstance(item.target, ast.Name)
            and not item.target.id.startswith("_")
        ):
            default = f"`{ast.unparse(item.value)}`" if item.value is not None else ""
            kind = ast.unparse(item.annotation)
            told = text(" ".join((_behind(node.body, number) or "").split()))
            rows.append(f"| `{item.target.id}` | `{kind}` | {default} | {told} |")
    return rows


def _method(module: str, owner: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    marks = {ast.unparse(mark) for mark in node.decorator_list}
    if "overload" in marks:
        return []
    head = (
        node.name if "property" in marks else _signature(node, node.name, method="staticmethod" not in marks)
    )
    return ["```python", head, "```", "", text(ast.get_docstring(node)), ""]


def _function(
    module: str, node: ast.FunctionDef | ast.AsyncFunctionDef, exported: dict[str, str]
) -> list[str]:
    return [
        f"### `{node.name}` {{ #{module}.{node.name} }}",
        "",
        *_from(node.name, module, exported),
        "```python",
        _signature(node, node.name, method=False),
        "```",
        "",
        text(ast.get_docstring(node)),
        "",
    ]


def _from(name: str, module: str, exported: dict[str, str]) -> list[str]:
    return [f"`from camel import {name}`", ""] if exported.get(name) == module else []


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, method: bool = True) -> str:
    arguments = node.args
    if method and arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments = ast.arguments(
            posonlyargs=arguments.posonlyargs,
            args=arguments.args[1:],
            vararg=arguments.vararg,
            kwonlyargs=arguments.kwonlyargs,
            kw_defaults=arguments.kw_defaults,
            kwarg=arguments.kwarg,
            defaults=arguments.defaults,
        )
    inside = ast.unparse(arguments)
    result = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    line = f"{start}{name}({inside}){result}"
    if len(line) <= 100:
        return line
    return f"{start}{name}(\n    " + ",\n    ".join(_split(inside)) + f",\n){result}"


def _split(inside: str) -> list[str]:
    """The parameters of a signature, cut at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for place_, letter in enumerate(inside):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(inside[start:place_].strip())
            start = place_ + 1
    return [*parts, inside[start:].strip()]


def _behind(body: list[ast.stmt], number: int) -> str | None:
    """The text that follows a field or a constant."""
    if number + 1 < len(body):
        node = body[number + 1]
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            return inspect.cleandoc(node.value.value)
    return None


def text(docstring: str | None) -> str:
    """A docstring as Markdown: its angle brackets are words, not HTML; its indented lines are code."""
    if not docstring:
        return ""
    pieces = re.split(r"(`[^`]*`|^ {4}.*$)", docstring, flags=re.MULTILINE)
    return "".join(
        piece if number % 2 else piece.replace("<", "&lt;").replace("*", "\\*")
        for number, piece in enumerate(pieces)
    )
