"""`camel ablate`: measure what each sentence of the inception prompts does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.options import flag, option, typed_model
from camel.cli.output import echo

if TYPE_CHECKING:
    from camel.evaluation.comparison import AblationFigures


SentenceOption = Annotated[list[str] | None, option("Sentence to remove, such as user-02 (--list shows all).", "NAME")]  # fmt: skip
ConversationsOption = Annotated[int, option("Maximum number of conversations per run. Ignored if the configuration sets counts.", "N", min=1)]  # fmt: skip


@long_command(CLUSTER_OPTIONS)
def ablate(
    call: Invocation,
    config: shared.ConfigFile,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    out: shared.Out = "",
    sentence: SentenceOption = None,
    conversations: ConversationsOption = 20,
    list_: Annotated[bool, flag("--list", "List the sentences and their names, then exit.")] = False,
    dry_run: shared.DryRun = False,
) -> None:
    """Measure the effect of each sentence of the prompts."""
    from camel.generation.ablation import described
    from camel.generation.config import read_config
    from camel.generation.forecast import summary
    from camel.library.ablation import Ablation
    from camel.storage.processes import cores

    settings = read_config(config, local=local)
    model, base_url = typed_model(call.context, model, base_url)
    settings = settings.adjusted(
        local=local, model=model, base_url=base_url, concurrency=call.concurrency, budget=call.limits
    )
    suffix = "-local" if settings.is_local else ""
    folder = Path(out) if out else Path("runs") / f"{Path(settings.scenario).name}-ablation{suffix}"
    processes = 1 if call.address else cores()
    job = Ablation(settings, str(folder), tuple(sentence or ()), conversations, processes)
    if list_:
        for line in described(job.variants):
            echo(line)
        return

    def announce() -> Iterator[str]:
        rest = len(job.variants) - 1
        yield f"runs    {folder}: the full prompts and {rest:,} variants without one sentence, {job.scenario.shape} each"
        yield f"expect  {summary(job.plan())}"

    if dry_run:
        for line in announce():
            echo(line)
        return
    call.run(job, call.configured(settings), announce=announce, show=lambda made: _show(made, folder))


def _show(made: AblationFigures, folder: Path) -> None:
    """Print the results."""
    from camel.evaluation.comparison import summary
    from camel.library.ablation import PAGE

    lines = summary(made) or ["no difference is significant after correction for the number of comparisons"]
    echo(f"{made.comparisons:,} comparisons, corrected together ({made.correction})")
    for line in lines:
        echo(f"  {line}")
    echo(f"page    {folder / PAGE}")
    echo(f"figures {folder / 'ablation.json'}")
