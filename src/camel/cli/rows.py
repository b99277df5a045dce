"""`camel rows`: rows for training from runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

from camel.cli.command import COMPUTING, How, long_command
from camel.cli.options import Force, argument, flag, leave_to, option, typed
from camel.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from camel.training.recipe import Recipe
    from camel.training.rows import RowsReport

BESIDE = ("--force", "--json", "--budget-hours")
"""Options that hold beside a file too."""


@long_command(COMPUTING)
def rows(
    how: How,
    given: Annotated[list[str], argument("RUN… | RECIPE.toml", "Runs, or a file that says all of this.")],
    out: Annotated[str, option("Where the rows are written.", "FOLDER")] = "rows",
    seat: Annotated[str, option("Whose words are learnt: assistant, user or both.", "SEAT")] = "assistant",
    length: Annotated[int, option("Longest row; longer talks are split.", "TOKENS")] = 2048,
    markers: Annotated[bool, flag("--markers", "Keep Instruction:, Solution: and the others.")] = False,
    system: Annotated[bool, flag("--system", "Begin rows with the system prompt.")] = False,
    inception: Annotated[
        bool, flag("--inception", "With --system: the paper's prompts for talks that came without.")
    ] = False,
    stop: Annotated[list[str] | None, option("Use only talks that ended so, e.g. done.", "REASON")] = None,
    without: Annotated[
        list[str] | None, option("Leave out talks with it, e.g. role_flipping.", "FINDING")
    ] = None,
    language: Annotated[str, option("Use only talks in it, e.g. English.", "NAME")] = "",
    near: Annotated[float, option("Leave out rows this similar to an earlier one, e.g. 0.8.", "SHARE")] = 0.0,
    questions: Annotated[
        list[str] | None,
        option(
            "Leave out rows that hold one of these questions: JSON lines, or humaneval+ or humaneval; repeatable.",
            "FILE",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Make rows for training: shaped, filtered, without duplicates. The same command continues where it stopped.

    `camel export RUN messages` writes every conversation as it was said instead, whole and with its prompts, for other people's
    programs. `camel train` reads what this command makes.
    """
    from camel.training.recipe import Filters, Recipe, Source, read_recipe
    from camel.training.rows_job import RowsJob
    from camel.training.shaping import Seat, Shape

    if len(given) == 1 and given[0].endswith(".toml"):
        leave_to(given[0], [option for option in typed(how.context) if option not in BESIDE])
        recipe = read_recipe(Path(given[0]))
    else:
        if seat not in get_args(Seat):
            raise InputError(f"--seat is assistant, user or both, not {seat}")
        shape = Shape(cast("Seat", seat), length=length, markers=markers, system=system, inception=inception)
        filters = Filters(
            tuple(stop or ()), tuple(without or ()), language, near=near, questions=tuple(questions or ())
        )
        recipe = Recipe(tuple(map(Source, given)), out, shape, filters)
    job = RowsJob(recipe, replace=force)
    how.run(job, how.options(), show=lambda report: _show(how.console, recipe, report))


def _show(console: Console, recipe: Recipe, report: RowsReport) -> None:
    from rich.table import Table

    from camel.cli.screen import visible

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("removed", justify="right")
    table.add_column("left", justify="right")
    left = report.conversations
    table.add_row("conversations", "", f"{left:,}")
    for name, count in report.removed.items():
        left -= count
        table.add_row(f"  {name}", f"{count:,}", f"{left:,}")
    left = report.rows
    table.add_row("rows", "", f"{left:,}")
    if turns := report.removed_rows.get("too long"):
        table.add_row("  turns longer than a row", f"{turns:,}", "")
    filters = recipe.filters
    asked = {
        "question": bool(filters.questions),
        "exact duplicate": filters.exact,
        "near duplicate": bool(filters.near),
    }
    # Also what found nothing: whoever asked wants to know that it was looked for.
    removed = {name: 0 for name, wanted in asked.items() if wanted} | report.removed_rows
    for name, count in removed.items():
        if name != "too long":
            left -= count
            of = f", of {report.looked_for:,} looked for" if name == "question" else ""
            table.add_row(f"  {name}{of}", f"{count:,}", f"{left:,}")
    console.print(table)
    for name, count in sorted(report.questions.items(), key=lambda one: -one[1])[:10]:
        console.print(f"  question {visible(name)}: {count:,} rows", markup=False)
    if report.conversations and not report.rows:
        most = max(report.removed, key=lambda name: report.removed[name], default="")
        console.print(
            f"Nothing is left, most by {most!r}: camel study RUN shows how conversations end and in which languages they "
            "are. Another choice with --force.",
            markup=False,
        )
    console.print(
        f"{report.repeated:,} rows, about {report.tokens:,} tokens, in {visible(recipe.out)} (Parquet: data/mixed)",
        markup=False,
    )
