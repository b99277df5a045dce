"""What all Markdown reports share: text that cannot act, tables, and fences that what is in them cannot end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from camel.core.message import in_one_line


def md(value: str) -> str:
    """Text in a line of Markdown, with nothing in it that Markdown would act on."""
    return re.sub(r"([\\`*_{}\[\]<>|#!~&])", r"\\\1", in_one_line(value))


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> list[str]:
    """A table; all columns but the first `left`, where that is given, hold numbers."""
    kinds = ["---" if left is None or place < left else "---:" for place in range(len(head))]
    lines = [f"| {' | '.join(map(md, head))} |", f"|{'|'.join(kinds)}|"]
    return lines + [f"| {' | '.join(map(md, row))} |" for row in rows]


def fenced(value: str, kind: str = "text") -> list[str]:
    """A text as it is."""
    longest = max((len(run) for run in re.findall(r"`+", value)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{kind}", *value.splitlines(), fence]
