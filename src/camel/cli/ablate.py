"""`camel ablate`: measure what each sentence of the system prompts does."""

from __future__ import annotations

from typing import Annotated

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.fork import rules_of, run_branches, using_of
from camel.cli.options import flag, option
from camel.cli.output import echo

SentenceOption = Annotated[list[str] | None, option("Sentence to remove, such as user-02 (--list shows all).", "NAME")]  # fmt: skip
ConversationsOption = Annotated[int, option("Maximum number of conversations of the run to use.", "N", min=1)]


@long_command(CLUSTER_OPTIONS)
def ablate(
    call: Invocation,
    run: shared.RunPlace,
    sentence: SentenceOption = None,
    conversations: ConversationsOption = 20,
    n: shared.Number = 1,
    list_: Annotated[bool, flag("--list", "List the sentences and their names, then exit.")] = False,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    where: shared.Where = "",
    max_messages: shared.MaxMessages = None,
    seed: shared.Seed = None,
    out: shared.Out = "",
    dry_run: shared.DryRun = False,
) -> None:
    """Measure the effect of each sentence of the prompts."""
    from itertools import islice

    from camel.core.errors import InputError
    from camel.generation.ablation import removals
    from camel.library.branches import branch_job
    from camel.library.run import Run

    source = Run(run)
    chosen = list(islice(source.where(where) if where else source, conversations))
    if not chosen:
        raise InputError("there is no conversation to continue")
    changes = removals(chosen[0], sentence or ())
    if list_:
        for name, one in changes.items():
            echo(f"{name}  {' '.join(one.without.split())}")
        return
    using, place = using_of(call, model, base_url, local), out or f"{run.rstrip('/')}-ablation"
    run_branches(
        call,
        branch_job(chosen, 1, changes, n, using, rules_of(max_messages), place, seed, {}),
        local,
        dry_run,
    )
