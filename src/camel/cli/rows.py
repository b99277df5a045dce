"""`camel rows`: make training rows from runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

from camel.cli import options as shared
from camel.cli.command import LOCAL_OPTIONS, Invocation, long_command
from camel.cli.options import argument, complete_runs, flag, leave_to, option, typed
from camel.cli.output import visible
from camel.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from camel.training.recipe import Recipe
    from camel.training.rows import RowsReport

WITH_FILE = ("--force", "--json", "--budget-hours")
"""Options that can be combined with a recipe file."""
LENGTH = 2048

GivenArgument = Annotated[list[str], argument("RUN... | RECIPE.toml", "Runs to use, or a recipe file that lists the runs and all settings.", autocompletion=complete_runs)]  # fmt: skip
MarkersOption = Annotated[bool, flag("--markers", "Keep the words of the format, such as Instruction: and Solution:.")]  # fmt: skip
InceptionOption = Annotated[bool, flag("--inception", "With --system: use the CAMEL paper's prompts for conversations that have none.")]  # fmt: skip
NearOption = Annotated[float, option("Exclude rows with at least this similarity to an earlier row, from 0.5 to 1; 0 turns this off.", "SHARE")]  # fmt: skip


@long_command(LOCAL_OPTIONS)
def rows(
    call: Invocation,
    given: GivenArgument,
    out: shared.Out = "rows",
    seat: shared.SeatName = "assistant",
    length: shared.RowLength = LENGTH,
    markers: MarkersOption = False,
    system: Annotated[bool, flag("--system", "Start each row with the system prompt.")] = False,
    inception: InceptionOption = False,
    where: shared.Where = "",
    near: NearOption = 0.0,
    questions: shared.Questions = None,
    force: shared.Force = False,
) -> None:
    """Turn conversations into rows for training."""
    from camel.training.recipe import Filters, Recipe, Source, read_recipe
    from camel.training.rows import RowsJob
    from camel.training.shaping import Seat, Shape

    if len(given) == 1 and given[0].endswith(".toml"):
        leave_to(given[0], [option for option in typed(call.context) if option not in WITH_FILE])
        recipe = read_recipe(Path(given[0]))
    else:
        if seat not in get_args(Seat):
            raise InputError(f"--seat must be assistant, user or both, not {seat!r}")
        shape = Shape(
            cast("Seat", seat), length=length or LENGTH, markers=markers, system=system, inception=inception
        )
        filters = Filters(where, near=near, questions=tuple(questions or ()))
        recipe = Recipe(tuple(map(Source, given)), out, shape, filters)
    job = RowsJob(recipe, replace=force)
    call.run(job, call.options(), show=lambda report: _show(call.console, recipe, report))


def _show(console: Console, recipe: Recipe, report: RowsReport) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("removed", justify="right")
    table.add_column("remaining", justify="right")
    remaining = report.conversations
    table.add_row("conversations", "", f"{remaining:,}")
    for name, count in report.removed.items():
        remaining -= count
        table.add_row(f"  {name}", f"{count:,}", f"{remaining:,}")
    remaining = report.rows
    table.add_row("rows", "", f"{remaining:,}")
    if turns := report.removed_rows.get("too long"):
        table.add_row("  turns longer than a row", f"{turns:,}", "")
    filters = recipe.filters
    asked = {
        "question": bool(filters.questions),
        "exact duplicate": filters.exact,
        "near duplicate": bool(filters.near),
    }
    # Filters that removed nothing are shown too, so that the reader knows that they ran.
    removed = {name: 0 for name, wanted in asked.items() if wanted} | report.removed_rows
    for name, count in removed.items():
        if name != "too long":
            remaining -= count
            of = f", of {report.looked_for:,} searched" if name == "question" else ""
            table.add_row(f"  {name}{of}", f"{count:,}", f"{remaining:,}")
    console.print(table)
    for name, count in sorted(report.questions.items(), key=lambda one: -one[1])[:10]:
        console.print(f"  question {visible(name)}: {count:,} rows", markup=False)
    if report.conversations and not report.rows:
        most = max(report.removed, key=lambda name: report.removed[name], default="")
        console.print(
            f"No conversations remain; most were removed by {most!r}. camel study RUN shows endings and languages. "
            "Change the filters and add --force.",
            markup=False,
        )
    console.print(
        f"{report.repeated:,} rows, about {report.tokens:,} tokens, in {visible(recipe.out)} (Parquet: data/mixed)",
        markup=False,
    )
