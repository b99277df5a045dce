"""The reference of the record: every field of the structs, with the Parquet column that holds it."""

from __future__ import annotations

import ast

import api_reference

STRUCTS = {
    "Transcript": "core.transcript",
    "Task": "core.task",
    "Speaker": "core.transcript",
    "Sampling": "core.message",
    "Message": "core.message",
    "Usage": "core.message",
    "Deliberation": "core.message",
    "Proposal": "core.message",
    "Stop": "core.stops",
}


def page() -> str:
    """The page."""
    from camel.core.transcript import SCHEMA
    from camel.record.arrow import schema

    lines = [
        "# The record, field by field",
        "",
        f"Made from the code. This is schema {SCHEMA}: the number is raised when a field changes its meaning, and a record of a newer schema is refused with the",
        "advice to upgrade. [Formats](../formats.md) says what the record is for and what is derived from it.",
        "",
    ]
    for name, module in STRUCTS.items():
        tree = ast.parse(api_reference.file_of(module).read_text())
        node = next(item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == name)
        lines += [f"## `{name}`", "", api_reference.text(ast.get_docstring(node)), ""]
        lines += ["| field | type | default | |", "|---|---|---|---|", *api_reference.fields(node), ""]
    lines += [
        "## In Parquet",
        "",
        "One row a conversation. A column has the name of the field that it holds; the totals at the end are for queries, and reading ignores them.",
        "",
        "| column | type |",
        "|---|---|",
        *(f"| `{field.name}` | `{field.type}` |" for field in schema()),
        "",
    ]
    return "\n".join(lines)
