"""`camel translate`: a run's conversations in other languages."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from camel.cli.command import SPREAD, How, long_command
from camel.cli.options import Batch, RunPlace

if TYPE_CHECKING:
    from camel.jobs.runner import Outcome


@long_command(SPREAD)
def translate(
    how: How,
    run: RunPlace,
    to: Annotated[
        list[str], typer.Option(metavar="CODE", help="A language: ar zh ko ja hi ru es fr de it; repeatable.")
    ],
    model: Annotated[
        str, typer.Option(envvar="CAMEL_MODEL", metavar="NAME", help="The model that translates.")
    ] = "",
    base_url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", metavar="URL", help="Its endpoint.")
    ] = "",
    local: Annotated[
        bool, typer.Option("--local", help="Use the tiny real model on this machine; no key.")
    ] = False,
    batch: Batch = False,
    accept_change: Annotated[
        Literal["model.name"] | None,
        typer.Option(help="Continue with another model; what is translated already stays."),
    ] = None,
) -> None:
    """Put every message of a run into other languages, keeping the markers. The same command continues after a stop."""
    from camel.cli.asking import chosen_model
    from camel.cli.command import resume_line
    from camel.generation.translate import Translation

    in_flight = how.concurrency or (2 if local else 64)
    with chosen_model(how, model, base_url, local, in_flight, batch) as chat:
        job = Translation(str(run), tuple(to), chat)

        def done(outcome: Outcome) -> Iterator[str]:
            for language, found in outcome.result.items():
                note = f", {found:,} with a message that is not sound" if found else ""
                yield f"{language}      complete{note}"
            yield f"export  camel export {shlex.quote(str(run))} chat FILE --language {to[0]}"

        accept = (accept_change,) if accept_change else ()
        options = how.options(in_flight, accept=accept, resume=resume_line(how.context, where=str(run)))
        how.run(job, options, done=done)
