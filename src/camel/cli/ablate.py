"""`camel ablate`: what each sentence of the inception prompts does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli.command import SPREAD, How, long_command
from camel.cli.options import ConfigFile, DryRun, flag, option

if TYPE_CHECKING:
    from rich.console import Console

    from camel.evaluation.comparison import AblationFigures


@long_command(SPREAD)
def ablate(
    how: How,
    config: ConfigFile,
    local: Annotated[bool, flag("--local", "Use the tiny real model on this machine; no key.")] = False,
    out: Annotated[
        Path | None,
        option(
            "Where the runs go; runs/SCENARIO-ablation unless given, with --local runs/SCENARIO-ablation-local.",
            "FOLDER",
        ),
    ] = None,
    sentence: Annotated[
        list[str] | None,
        option("A sentence to take out, e.g. user-02; repeatable; all unless given.", "NAME"),
    ] = None,
    conversations: Annotated[
        int, option("Of each variant at most, where the configuration sets no counts.", "N", min=1)
    ] = 20,
    list_: Annotated[bool, flag("--list", "Show the sentences, and do nothing.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Run a scenario with each sentence of its prompts taken out, and compare behaviours. The same command continues."""
    from camel.cli.panel import say
    from camel.generation.ablation import described
    from camel.generation.config import read_config
    from camel.generation.forecast import summary
    from camel.library.ablation import Ablation

    console = how.console
    settings = read_config(config, local=local)
    settings = settings.adjusted(local=local, concurrency=how.concurrency, budget=how.limits)
    suffix = "-local" if settings.is_local else ""
    folder = out or Path("runs") / f"{Path(settings.scenario).name}-ablation{suffix}"
    processes = 1 if how.address else os.cpu_count() or 1
    job = Ablation(settings, str(folder), tuple(sentence or ()), conversations, processes)
    if list_:
        for line in described(job.variants):
            say(console, line)
        return

    def announce() -> Iterator[str]:
        rest = len(job.variants) - 1
        yield f"runs    {folder}: the whole prompts and {rest:,} with a sentence less, {job.scenario.shape} each"
        yield f"expect  {summary(job.plan())}"

    if dry_run:
        for line in announce():
            say(console, line)
        return
    how.run(job, how.configured(settings), announce=announce, show=lambda made: _show(console, made, folder))


def _show(console: Console, made: AblationFigures, folder: Path) -> None:
    """Say what came out."""
    from camel.cli.panel import say
    from camel.evaluation.comparison import summary
    from camel.library.ablation import PAGE

    lines = summary(made) or ["no difference is sure after correction for the number of comparisons"]
    say(console, f"{made.comparisons:,} comparisons, corrected together ({made.correction})")
    for line in lines:
        say(console, f"  {line}")
    say(console, f"page    {folder / PAGE}")
    say(console, f"figures {folder / 'ablation.json'}")
