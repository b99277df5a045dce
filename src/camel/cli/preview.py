"""`camel preview`: generate and print the first conversations of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from camel.cli import options as shared
from camel.cli.command import MODEL_OPTIONS, Invocation, long_command, read_settings

if TYPE_CHECKING:
    from camel.jobs.runner import Outcome


@long_command(MODEL_OPTIONS)
def preview(
    call: Invocation,
    config: shared.ConfigFile = Path("camel.toml"),
    n: shared.Number = 5,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    out: shared.Out = "",
    show_prompts: shared.ShowPrompts = False,
) -> None:
    """Generate and print a run's first conversations."""
    from camel.generation.generate import Generation

    more = {"concurrency": call.concurrency, "budget": call.limits}
    settings = read_settings(call.context, config, model, base_url, local=local, out=out, **more)
    job = Generation(settings, preview=n)

    def done(outcome: Outcome) -> Iterator[str]:
        from camel.cli.show import show_conversation
        from camel.runs.reader import RunReader

        for transcript in () if call.as_json else islice(RunReader(job.place), n):
            show_conversation(call.console, transcript, show_prompts, False)
        yield f"next    camel generate {shlex.quote(str(config))}, which keeps these conversations"

    call.run(job, call.configured(settings), done=done)
