"""`camel fork`: continue recorded conversations from one of their messages, with a change and without one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.options import argument, option, typed_model
from camel.cli.output import echo
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.evaluation.branch_report import BranchFigures

IdArgument = Annotated[str, argument("[ID]", "Id of a conversation. Default: all conversations of the run.")]
AtOption = Annotated[int, option("Number of the message at which the branches begin.", "N", min=1)]
MessageOption = Annotated[str | None, option("Change: the text of this message.", "TEXT")]
RoleOption = Annotated[str, option("Change: the role of --seat in all prompts.", "ROLE")]
WithoutOption = Annotated[str, option("Change: remove this sentence from the system prompts.", "SENTENCE")]
ToModelOption = Annotated[str, option("Change: another model.", "MODEL")]


@long_command(CLUSTER_OPTIONS)
def fork(
    call: Invocation,
    run: shared.RunPlace,
    id: IdArgument = "",
    at: AtOption = 1,
    n: shared.Number = 10,
    message: MessageOption = None,
    role: RoleOption = "",
    without: WithoutOption = "",
    temperature: shared.Temperature = None,
    to_model: ToModelOption = "",
    seat: shared.SeatName = "",
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    where: shared.Where = "",
    max_messages: shared.MaxMessages = None,
    seed: shared.Seed = None,
    out: shared.Out = "",
    dry_run: shared.DryRun = False,
) -> None:
    """Continue conversations from one message, with a change."""
    from camel.cli.session import read_temperature
    from camel.core.stops import play_rules
    from camel.library.branches import fork_job
    from camel.library.run import Run
    from camel.models.spec import find_spec
    from camel.reports.numbers import counted

    source = Run(run)
    if id and where:
        raise InputError("give either the id of a conversation or --where")
    if id:
        try:
            chosen = [source[id].transcript]
        except KeyError as error:
            raise InputError(str(error.args[0])) from None
    else:
        chosen = list(source.where(where) if where else source)
    # The environment must not replace the recorded model.
    named, url = typed_model(call.context, model, base_url)
    using = "local" if local else named
    job = fork_job(
        chosen,
        at,
        n=n,
        message=message,
        seat=seat,
        role=role,
        without=without,
        temperature=None if temperature is None else read_temperature(temperature),
        model=find_spec(to_model, base_url=url) if to_model else None,
        using=find_spec(using, base_url=url) if using or url else None,
        rules=play_rules(max_messages=max_messages) if max_messages else (),
        out=out or f"{run.rstrip('/')}-branches-{f'{id}-' if id else ''}{at}",
        seed=seed,
    )
    if dry_run:
        of = len({row["branch_of"] for row in job.rows})
        call.expect(job, f"{len(job.rows):,} branches of {counted(of, 'conversation')}")
        return
    call.run(
        job, call.options(call.concurrency or (2 if local else 64)), show=lambda made: _show(made, job.place)
    )


def _show(made: BranchFigures, place: str) -> None:
    from camel.evaluation.branch_report import NAME, summary

    for line in summary(made):
        echo(line)
    echo(f"page    {Path(place) / NAME}.html")
    echo(f"next    camel explore {shlex.quote(place)}")
