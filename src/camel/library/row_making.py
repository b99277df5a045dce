"""Makes training rows from runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.toml import plain_message
from camel.library.execution import finish_job
from camel.training.recipe import Recipe
from camel.training.rows import RowsJob
from camel.training.stored_rows import Rows


def make_rows(
    runs: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    shape: dict[str, Any] | None = None,
    filters: dict[str, Any] | None = None,
    replace: bool = False,
    progress: bool = True,
) -> Rows:
    """Make training rows from one or several runs, and open them. The same call resumes after a stop.

        for row in camel.make_rows("runs/trial", out="rows/trial", filters={"where": 'stop = "done"'}):
            print(row["messages"])

    `shape` and `filters` are the tables of a recipe (docs/train.md). `replace` replaces rows of another recipe in `out`.
    """
    given = [runs] if isinstance(runs, str | Path) else runs
    table = {"sources": [{"run": str(run)} for run in given], "out": str(out)}
    try:
        recipe = msgspec.convert({**table, "shape": shape or {}, "filters": filters or {}}, Recipe)
    except msgspec.ValidationError as error:
        raise InputError(f"cannot make the rows: {plain_message(error)}") from None
    finish_job(RowsJob(recipe, replace=replace), progress=progress)
    return Rows(out)
