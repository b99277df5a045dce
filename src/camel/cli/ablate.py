"""`camel ablate`: which sentence of the inception prompts prevents what."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from camel.core.model import Model
    from camel.evaluation.comparison import AblationFigures
    from camel.generation.ablation import Ablation
    from camel.generation.config import GenerateConfig

PAGE = "ablation.html"


def ablate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="As for camel generate.")],
    local: Annotated[
        bool, typer.Option("--local", help="Use the tiny real model on this machine; no key.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the runs go; runs/SCENARIO-ablation unless given, with --local runs/SCENARIO-ablation-local.",
        ),
    ] = None,
    sentence: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A sentence to take out, e.g. user-02; repeatable; all unless given."
        ),
    ] = None,
    conversations: Annotated[
        int,
        typer.Option(
            metavar="N", help="Of each variant at most, where the configuration sets no counts.", min=1
        ),
    ] = 20,
    list_: Annotated[bool, typer.Option("--list", help="Show the sentences, and do nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; call nothing.")] = False,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Conversations in flight, instead of the configuration's.")
    ] = None,
) -> None:
    """Run a scenario with each sentence of its prompts taken out, and compare behaviours. The same command goes on."""
    from rich.console import Console

    from camel.cli.panel import say
    from camel.cli.plan import summary
    from camel.cli.progress import leave
    from camel.generation.ablation import Ablation, described
    from camel.generation.config import read_config

    console = Console(highlight=False)
    settings = read_config(config, local=local)
    local = local or settings.is_local
    settings = settings.adjusted(local=local, concurrency=concurrency)
    folder = out or Path("runs") / f"{Path(settings.scenario).name}-ablation{'-local' if local else ''}"
    ablation = Ablation(settings, folder, names=sentence or [], conversations=conversations)
    if list_:
        for line in described(ablation.variants):
            say(console, line)
        return
    count = len(ablation.variants)
    say(
        console,
        f"runs    {folder}: the whole prompts and {count - 1:,} with a sentence less, {ablation.scenario.shape} each",
    )
    say(console, f"expect  {summary(ablation.plan())}")
    if dry_run:
        return
    with _model(console, ablation.config, local) as model:
        made = asyncio.run(_work(console, ablation, model))
    if made is None:
        leave(console, ablation.halt.reason)
    _finish(console, made, folder)


@contextlib.contextmanager
def _model(console: Console, config: GenerateConfig, local: bool) -> Generator[Model]:
    from camel.cli.panel import say
    from camel.models.local import LocalServer, local_model

    if not local:
        yield config.open_model()
        return
    server = LocalServer(parallel=max(1, config.run.concurrency))
    with local_model(server, guided=config.model.guided, say=lambda text: say(console, text)) as model:
        yield model


async def _work(console: Console, ablation: Ablation, model: Model) -> AblationFigures | None:
    """Generate what is missing, look through it all and compare; None when something stopped it."""
    from camel.cli.panel import duration, money
    from camel.cli.progress import CALLS_END, worked

    def line(seconds: float) -> str:
        campaign = ablation.campaign
        if campaign is None:
            return "beginning"
        tally = campaign.tallies[campaign.last.name]
        cost = f" · {money(campaign.meter.money)}" if campaign.meter.money else ""
        return (
            f"variant {min(ablation.done + 1, len(ablation.variants)):,} of {len(ablation.variants):,} · {tally.finished:,} / {tally.planned:,} "
            f"conversations · {campaign.meter.usage.calls:,} calls{cost} · {duration(seconds)} gone"
        )

    async def generated() -> bool:
        outcome = await ablation.run(model)
        if not outcome.complete:
            ablation.halt.set(outcome.halted)
        return outcome.complete

    if not await worked(console, ablation.halt, CALLS_END, line, generated(), model):
        return None
    return await _compared(console, ablation)


async def _compared(console: Console, ablation: Ablation) -> AblationFigures | None:
    from camel.cli.study import KEPT, look
    from camel.evaluation.comparison import Outcomes, compare
    from camel.evaluation.findings import Looker
    from camel.runs.reader import RunReader

    seen: dict[str, Outcomes] = {}
    for variant in ablation.variants:
        kept = ablation.out / variant.name / KEPT
        looker = Looker(
            RunReader(ablation.run_of(variant)), kept, processes=os.cpu_count() or 1, halt=ablation.halt
        )
        if not await look(console, looker):
            return None
        seen[variant.name] = Outcomes.of(looker.tables())
    whole, *others = ablation.variants
    return compare(
        seen[whole.name],
        {variant.name: seen[variant.name] for variant in others},
        {variant.name: (variant.prompt, variant.sentence) for variant in others},
        scenario=ablation.scenario.name,
        model=ablation.config.model.name,
    )


def _finish(console: Console, made: AblationFigures, folder: Path) -> None:
    """Write the figures, the plot and the page, and say what came out."""
    from camel.cli.panel import say
    from camel.evaluation.comparison import page, plot, summary
    from camel.reports.plots import png, svg

    if made.removals and made.whole:
        drawn = plot(made)
        (folder / "ablation.svg").write_text(svg(drawn), "utf-8")
        (folder / "ablation.png").write_bytes(png(drawn))
    (folder / "ablation.json").write_bytes(made.to_json())
    (folder / PAGE).write_text(page(made), "utf-8")
    lines = summary(made) or ["no difference is sure after correction for the number of comparisons"]
    say(console, f"{made.comparisons:,} comparisons, corrected together ({made.correction})")
    for line in lines:
        say(console, f"  {line}")
    say(console, f"page    {folder / PAGE}")
    say(console, f"figures {folder / 'ablation.json'}")
