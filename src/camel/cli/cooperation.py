"""`camel evaluate cooperation`: methods of one and of several agents at equal numbers of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.options import argument, option
from camel.cli.output import echo

if TYPE_CHECKING:
    from camel.evaluation.cooperation.report import CooperationFigures

ProblemsArgument = Annotated[str, argument("PROBLEMS", "gsm8k, humaneval+, or a JSONL file with question and answer; gsm8k[:200] is the first 200 of them.")]  # fmt: skip
MethodsArgument = Annotated[list[str], argument("METHOD...", "best_of_n, self_consistency, self_refine, role_play, role_play_critic, society, or the file of a society.")]  # fmt: skip
TokensOption = Annotated[int, option("Tokens per problem and method, input and output together.", "N", min=1)]


@long_command(CLUSTER_OPTIONS)
def cooperation(
    call: Invocation,
    problems: ProblemsArgument,
    methods: MethodsArgument,
    tokens: TokensOption = 4000,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    temperature: shared.Temperature = None,
    max_tokens: shared.MaxTokens = None,
    seed: shared.Seed = None,
    out: shared.Out = "runs/cooperation",
    dry_run: shared.DryRun = False,
) -> None:
    """Compare methods that cooperate with one model."""
    from msgspec.structs import replace

    from camel.cli.session import read_temperature
    from camel.evaluation.cooperation.methods import METHODS
    from camel.evaluation.cooperation.solving import SAMPLING
    from camel.generation.toolboxes import allow_tools
    from camel.library.cooperation import cooperation_job
    from camel.models.spec import find_spec
    from camel.reports.numbers import counted
    from camel.scenarios import load_society

    local = local or model == "local"
    chat = find_spec("local" if local else model, base_url=base_url)
    sampling = replace(SAMPLING, max_tokens=max_tokens or (256 if local else SAMPLING.max_tokens))
    if temperature is not None:
        sampling = replace(sampling, temperature=read_temperature(temperature))
    own = [one if one in METHODS or not Path(one).exists() else allow_tools(load_society(Path(one)), ()) for one in methods]  # fmt: skip
    job = cooperation_job(
        own, problems, tokens=tokens, model=chat, sampling=sampling, seed=seed or 0, out=out
    )
    if dry_run:
        names = ", ".join(one.name for one in job.methods)
        call.expect(job, f"{counted(len(job.exercises), 'problem')}, {counted(len(job.methods), 'method')}: {names}")  # fmt: skip
        return
    call.run(job, call.options(call.concurrency or (2 if local else 64)), show=_show)


def _show(made: CooperationFigures) -> None:
    from camel.evaluation.cooperation.report import summary

    for line in summary(made):
        echo(line)
    echo(f"tokens  the totals of the methods differ by {made.spread:.1%}")
