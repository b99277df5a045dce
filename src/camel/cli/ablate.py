"""`camel ablate`: measure what each sentence of the inception prompts does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.help import defaults
from camel.cli.options import BaseUrl, ConfigFile, DryRun, Local, ModelName, Out, flag, option, typed_model

if TYPE_CHECKING:
    from rich.console import Console

    from camel.evaluation.comparison import AblationFigures


@defaults(
    model="as configured",
    base_url="as configured",
    concurrency="as configured, or 2 with --local",
    out="runs/SCENARIO-ablation, with --local runs/SCENARIO-ablation-local",
    sentence="all",
)
@long_command(CLUSTER_OPTIONS)
def ablate(
    call: Invocation,
    config: ConfigFile,
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    out: Out = "",
    sentence: Annotated[
        list[str] | None, option("Sentence to remove, such as user-02; repeatable.", "NAME")
    ] = None,
    conversations: Annotated[
        int,
        option("Most conversations per variant, where the configuration sets no counts.", "N", min=1),
    ] = 20,
    list_: Annotated[bool, flag("--list", "List the sentences; do nothing.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Remove each sentence of the prompts and compare behaviors.

    Each variant is a run of its own. Run the same command again to continue after a stop.

    Example: camel ablate camel.toml --local --sentence user-02 --dry-run
    """
    from camel.cli.panel import print_line
    from camel.generation.ablation import described
    from camel.generation.config import read_config
    from camel.generation.forecast import summary
    from camel.library.ablation import Ablation

    console = call.console
    settings = read_config(config, local=local)
    model, base_url = typed_model(call.context, model, base_url)
    settings = settings.adjusted(
        local=local, model=model, base_url=base_url, concurrency=call.concurrency, budget=call.limits
    )
    suffix = "-local" if settings.is_local else ""
    folder = Path(out) if out else Path("runs") / f"{Path(settings.scenario).name}-ablation{suffix}"
    processes = 1 if call.address else os.cpu_count() or 1
    job = Ablation(settings, str(folder), tuple(sentence or ()), conversations, processes)
    if list_:
        for line in described(job.variants):
            print_line(console, line)
        return

    def announce() -> Iterator[str]:
        rest = len(job.variants) - 1
        yield f"runs    {folder}: the full prompts and {rest:,} variants without one sentence, {job.scenario.shape} each"
        yield f"expect  {summary(job.plan())}"

    if dry_run:
        for line in announce():
            print_line(console, line)
        return
    call.run(
        job, call.configured(settings), announce=announce, show=lambda made: _show(console, made, folder)
    )


def _show(console: Console, made: AblationFigures, folder: Path) -> None:
    """Print the results."""
    from camel.cli.panel import print_line
    from camel.evaluation.comparison import summary
    from camel.library.ablation import PAGE

    lines = summary(made) or ["no difference is significant after correction for the number of comparisons"]
    print_line(console, f"{made.comparisons:,} comparisons, corrected together ({made.correction})")
    for line in lines:
        print_line(console, f"  {line}")
    print_line(console, f"page    {folder / PAGE}")
    print_line(console, f"figures {folder / 'ablation.json'}")
