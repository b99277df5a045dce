"""`camel translate`: a run's conversations in other languages."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from camel.cli.command import SPREAD, How, long_command
from camel.cli.options import BaseUrl, Batch, Local, ModelName, RunPlace, option

if TYPE_CHECKING:
    from camel.jobs.runner import Outcome


@long_command(SPREAD)
def translate(
    how: How,
    run: RunPlace,
    to: Annotated[list[str], option("A language: ar zh ko ja hi ru es fr de it; repeatable.", "CODE")],
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    batch: Batch = False,
    accept_change: Annotated[
        Literal["model.name"] | None, option("Continue with another model; what is translated already stays.")
    ] = None,
) -> None:
    """Put every message of a run into other languages, keeping the markers. The same command continues after a stop."""
    from camel.cli.command import resume_line
    from camel.generation.translate import Translation
    from camel.models.spec import find_spec

    in_flight = how.concurrency or (2 if local else 64)
    chat = find_spec("local" if local else model, base_url=base_url, batch=batch)
    job = Translation(str(run), tuple(to), chat)

    def done(outcome: Outcome) -> Iterator[str]:
        for language, found in outcome.result.items():
            note = f", {found:,} with a message that is not sound" if found else ""
            yield f"{language}      complete{note}"
        yield f"export  camel export {shlex.quote(str(run))} chat FILE --language {to[0]}"

    accept = (accept_change,) if accept_change else ()
    options = how.options(in_flight, accept=accept, resume=resume_line(how.context, where=str(run)))
    how.run(job, options, done=done)
