"""`camel translate`: translate the conversations of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.options import option
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.jobs.runner import Outcome

CHANGES = ["model.name"]
"""Settings that may change between attempts."""


@long_command(CLUSTER_OPTIONS)
def translate(
    call: Invocation,
    run: shared.RunPlace,
    to: Annotated[
        list[str], option("Language to translate into: ar, zh, ko, ja, hi, ru, es, fr, de or it.", "CODE")
    ],
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    batch: shared.Batch = False,
    accept_change: shared.AcceptChange = None,
) -> None:
    """Translate a run's conversations into other languages."""
    from camel.cli.command import resume_line
    from camel.generation.translate import Translation
    from camel.models.spec import find_spec

    for name in accept_change or ():
        if name not in CHANGES:
            raise InputError(f"--accept-change must be {CHANGES[0]}, not {name!r}")
    in_flight = call.concurrency or (2 if local else 64)
    chat = find_spec("local" if local else model, base_url=base_url, batch=batch)
    job = Translation(str(run), tuple(to), chat)

    def done(outcome: Outcome) -> Iterator[str]:
        for language, found in outcome.result.items():
            note = f", {found:,} with a damaged message" if found else ""
            yield f"{language}      complete{note}"
        yield f"next    camel export {shlex.quote(str(run))} chat FILE --language {to[0]}"

    options = call.options(
        in_flight, accept=accept_change or (), resume=resume_line(call.context, where=str(run))
    )
    call.run(job, options, done=done)
