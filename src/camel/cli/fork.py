"""`camel fork`: continue recorded conversations from one of their messages, with a change and without one."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.options import argument, option, typed_model
from camel.cli.output import echo
from camel.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from camel.core.stops import StopRule
    from camel.evaluation.branch_report import BranchFigures
    from camel.library.branches import BranchJob
    from camel.models.spec import ModelSpec

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
    from camel.library.branches import fork_job
    from camel.library.run import Run
    from camel.models.spec import find_spec

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
    job = fork_job(
        chosen,
        at,
        n=n,
        message=message,
        seat=seat,
        role=role,
        without=without,
        temperature=None if temperature is None else read_temperature(temperature),
        model=find_spec(to_model, base_url=typed_model(call.context, "", base_url)[1]) if to_model else None,
        using=using_of(call, model, base_url, local),
        rules=rules_of(max_messages),
        out=out or f"{run.rstrip('/')}-branches-{f'{id}-' if id else ''}{at}",
        seed=seed,
    )
    run_branches(call, job, local, dry_run)


def using_of(call: Invocation, model: str, base_url: str, local: bool) -> ModelSpec | None:
    """Return the model that was typed, or None for the recorded one, which the environment must not replace."""
    from camel.models.spec import find_spec

    named, url = typed_model(call.context, model, base_url)
    named = "local" if local else named
    return find_spec(named, base_url=url) if named or url else None


def rules_of(max_messages: int | None) -> Sequence[StopRule]:
    """Return the stop rules of a role play with another limit, or none, which stands for the usual ones."""
    from camel.core.stops import play_rules

    return play_rules(max_messages=max_messages) if max_messages else ()


def run_branches(call: Invocation, job: BranchJob, local: bool, dry_run: bool) -> None:
    """Make branches and print their effects, or only what they are expected to need."""
    from camel.reports.numbers import counted

    if dry_run:
        of = len({row["branch_of"] for row in job.rows})
        call.expect(job, f"{len(job.rows):,} branches of {counted(of, 'conversation')}")
        return
    options = call.options(call.concurrency or (2 if local else 64))
    call.run(job, options, show=lambda made: _show(made, job.place))


def _show(made: BranchFigures, place: str) -> None:
    from camel.evaluation.branch_report import summary

    for line in summary(made):
        echo(line)
    echo(f"next    camel explore {shlex.quote(place)}")
