"""`camel evaluate`: the experiments behind the paper's tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, MODEL_OPTIONS, Invocation, announce_needs, long_command
from camel.cli.cooperation import cooperation
from camel.cli.cross_play import cross_play
from camel.cli.help import HelpCommand, HelpGroup
from camel.cli.options import acknowledged, argument, complete_runs, flag, option, typed_model
from camel.cli.output import echo, table
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.core.message import Sampling
    from camel.evaluation.agents import AgentsEvaluation
    from camel.evaluation.humaneval.report import HumanEvalReport
    from camel.evaluation.results import Evaluation
    from camel.training.emergence.experiment import Emergence
    from camel.training.emergence.results import Figures

UNCONTAINED = "--run-programs-of-the-model-without-a-sandbox"

RunsArgument = Annotated[list[str], argument("RUN", "Runs to evaluate. Each has its own rows in the table of results.", autocompletion=complete_runs)]  # fmt: skip
AgainstOption = Annotated[list[str] | None, option("System to compare the agents with: single-shot (answers of --model), single-shot=MODEL (of another model), or a run with the same tasks.", "SYSTEM")]  # fmt: skip
SummarizerOption = Annotated[str, option("Model that extracts the solution from each conversation.", "MODEL")]  # fmt: skip
SummaryTokensOption = Annotated[int | None, option("Maximum length of a summary. Default: a quarter of the summarizer's context window.", "TOKENS", min=1)]  # fmt: skip
RepeatsOption = Annotated[int, option("Number of tasks to judge twice, to measure how often a judge agrees with itself.", "N", min=0, max=100_000)]  # fmt: skip
JudgePromptOption = Annotated[str, option("File with your own prompt for the judge. It contains <TASK>, <FIRST> and <SECOND>.", "FILE")]  # fmt: skip
ConfigArgument = Annotated[Path, argument("STUDY.toml", "File that lists the base model, the datasets to add one by one, the subjects of the test questions, and the judges.")]  # fmt: skip
HumanevalOption = Annotated[int | None, option("Also let each model solve HumanEval, with N samples per problem.", "N", min=0, max=10_000)]  # fmt: skip

app = typer.Typer(name="evaluate", cls=HelpGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def evaluate() -> None:
    """Run the evaluations of the CAMEL paper on your data."""


@long_command(CLUSTER_OPTIONS)
def agents(
    call: Invocation,
    runs: RunsArgument,
    against: AgainstOption = None,
    judge: shared.Judge = None,
    summarizer: SummarizerOption = "",
    summary_tokens: SummaryTokensOption = None,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    batch: shared.Batch = False,
    guided: shared.Guided = "",
    sample: shared.Sample = 100,
    seed: shared.Seed = 0,
    repeats: RepeatsOption = 20,
    judge_prompt: JudgePromptOption = "",
    acknowledge: shared.Acknowledge = None,
    where: shared.Where = "",
    out: shared.Out = "",
    dry_run: shared.DryRun = False,
) -> None:
    """Compare agents with single-shot answers (Table 1)."""
    from msgspec.structs import replace

    from camel.cli.session import read_guide
    from camel.evaluation.agents import (
        AgentsEvaluation,
        evaluation_folder,
        find_groups,
        find_models,
        single_shots,
    )
    from camel.evaluation.contest_records import JUDGE_PROMPT, AgentsConfig
    from camel.library.studies import read_judges

    against, usual = against or [], AgentsConfig()
    lengths: dict[str, Any] = _short_replies() if local else {"summary_sampling": usual.summary_sampling}
    if summary_tokens:
        lengths["summary_sampling"] = replace(lengths["summary_sampling"], max_tokens=summary_tokens)
    config = AgentsConfig(
        tasks=sample,
        seed=seed or 0,
        repeats=repeats,
        judge_prompt=judge_prompt or JUDGE_PROMPT,
        acknowledge=acknowledged(acknowledge),
        where=where,
        **lengths,
    )
    groups, folder = find_groups(runs, against), Path(out) if out else evaluation_folder(runs[0])
    in_flight = call.concurrency or (2 if local else 16)
    if local:
        if judge or summarizer or batch or any("=" in name for name in single_shots(against)):
            raise InputError("--local uses the small model for everything: remove model names and --batch")
        judge, model = ["local"], "local"
    model = model if local else typed_model(call.context, model, "")[0]
    judges, budget = read_judges(judge or (), batch=batch)
    asked = find_models(
        groups,
        judges,
        summarizer=summarizer,
        base=model,
        against=against,
        base_url=base_url,
        guided=read_guide(guided),
        batch=batch,
    )
    job = AgentsEvaluation(str(folder), groups, config, *asked)

    def announce() -> Iterator[str]:
        if not call.as_json:
            _announce_agents(job)
        return iter(())

    if dry_run:
        announce()
        return
    call.run(
        job,
        call.options(in_flight, budget=call.budget if call.budget.counts else budget),
        announce=announce,
        show=_show_agents,
    )


def _short_replies() -> dict[str, Any]:
    """Return reply limits for the small local model, which rarely stops by itself and writes a few dozen tokens per second."""
    from camel.core.message import Sampling

    brief = Sampling(temperature=0.2, max_tokens=256)
    return {"summary_sampling": brief, "single_shot_sampling": brief, "cut_replies": "keep"}


def _announce_agents(job: AgentsEvaluation) -> None:
    """Print what is compared and the expected cost."""
    from camel.evaluation.report_table import STEPS
    from camel.jobs.state import price_of
    from camel.reports.numbers import counted

    contest = job.contest
    for group in contest.groups:
        sample = contest.samples[group.name]
        excluded = f"; {sample.excluded:,} labeled ones excluded (--acknowledge)" if sample.excluded else ""
        tasks = counted(len(sample.tasks), "task")
        echo(f"{group.name}: {tasks} of {sample.of:,} conversations{excluded}")
        echo(f"  {' / '.join(contest.systems(group.name))}")
    asked = [job.summarizer, *job.writers.values(), *job.judges]
    seats = {one.name: job.models[one.seat] for one in asked}
    steps = [(STEPS[need.kind], need) for need in contest.estimate()]
    announce_needs(steps, lambda name: price_of(seats[name]))


def _show_agents(made: Evaluation) -> None:
    from camel.evaluation.report_table import points, share
    from camel.evaluation.report_table import table as lines

    rows: list[tuple[str, ...]] = []
    for row in lines(made):
        shares = [share(value) for value in (row.draws, row.losses, row.wins)]
        rows.append((row.dataset, row.evaluation, f"{row.a} / {row.b}", *shares, f"{row.of:,}"))
    head = ("dataset", "evaluation", "first / second", "draw", "second wins", "first wins", "verdicts")
    table(head, rows, range(3, 7))
    for one in points(made):
        echo(f"· {one}")
    for one in made.ratings:
        span = f"{one.rating.low:+.0f} – {one.rating.high:+.0f}"
        echo(f"{one.rank}. {one.system}  {one.rating.value:+.0f} ({span})")


@long_command(CLUSTER_OPTIONS)
def humaneval(
    call: Invocation,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    n: shared.Number = 200,
    k: Annotated[list[int] | None, option("Report pass@k for this value of k.", "K", "-k")] = None,
    problems: Annotated[int, option("Solve only the first N problems.", "N", min=1, max=164)] = 164,
    temperature: shared.Temperature = None,
    top_p: Annotated[float | None, option("Cumulative probability for top-p sampling.", "NUMBER")] = None,
    max_tokens: shared.MaxTokens = None,
    seed: shared.Seed = None,
    out: shared.Out = "",
    processes: shared.Processes = None,
    dry_run: shared.DryRun = False,
    uncontained: Annotated[bool, flag(UNCONTAINED, "The programs then have all your permissions.")] = False,
) -> None:
    """Let a model solve HumanEval and HumanEval+ (Table 3)."""
    from camel.evaluation.humaneval.records import HumanEvalConfig, prompt_text
    from camel.evaluation.humaneval.report import check_extra
    from camel.evaluation.humaneval.solving import HumanEval
    from camel.jobs.progress import expect_line
    from camel.jobs.state import price_of
    from camel.models.spec import find_spec

    ks = tuple(sorted(set(k or ())))
    if wrong := [one for one in ks if not 1 <= one <= n]:
        raise InputError(f"-k must be between 1 and the samples per problem (-n {n}), not {wrong[0]}")
    check_extra()
    in_flight, local = call.concurrency or (2 if local else 64), local or model == "local"
    sampling = _sampling(temperature, top_p, max_tokens or (300 if local else None))
    chat = find_spec("local" if local else model, base_url=base_url)
    file_name = re.sub(r"[^\w.-]+", "-", chat.name).strip("-.")[:80] or "model"
    folder = Path(out) if out else Path("runs") / f"humaneval-{file_name}"
    config = HumanEvalConfig(chat.name, prompt_text(), sampling, seed, problems)
    job = HumanEval(str(folder), config, n, chat, contained=not uncontained, processes=processes, ks=ks)

    def announce() -> Iterator[str]:
        if remaining := job.left():
            yield expect_line("expect", config.model, job.estimate(remaining), price_of(chat))

    if dry_run:
        for line in announce():
            echo(line)
        echo(f"\n── {job.problems[0].name}", "bold")
        echo(job.question(job.problems[0]))
        return
    call.run(job, call.options(in_flight), announce=announce, show=_show_humaneval)


def _sampling(temperature: str | None, top_p: float | None, max_tokens: int | None) -> Sampling:
    from msgspec.structs import replace

    from camel.cli.session import read_temperature
    from camel.evaluation.humaneval.records import SAMPLING

    given = {"top_p": top_p, "max_tokens": max_tokens}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if temperature is not None:
        changes["temperature"] = read_temperature(temperature)
    return replace(SAMPLING, **changes)


def _show_humaneval(made: HumanEvalReport) -> None:
    from camel.evaluation.humaneval import report
    from camel.reports.blocks import plain_table

    head, rows = plain_table(report.table({made.model: (made.humaneval, made.plus)}))
    table(head, rows, range(1, len(head)))
    for note in report.notes(made):
        echo(note)


@long_command(MODEL_OPTIONS)
def emergence(
    call: Invocation,
    config: ConfigArgument,
    judge: shared.Judge = None,
    writer: Annotated[str, option("Model that writes test questions where the file has none.", "MODEL")] = "",
    base_url: shared.BaseUrl = "",
    out: shared.Out = "",
    humaneval: HumanevalOption = None,
    dry_run: shared.DryRun = False,
) -> None:
    """Measure what each added dataset teaches a model (Table 2)."""
    from camel.models.connect import split_name
    from camel.models.trust import choose_urls
    from camel.training.emergence.emergence_config import read_config
    from camel.training.emergence.experiment import Emergence

    given: dict[str, Any] = {"judges": judge, "writer": writer, "out": out, "humaneval": humaneval}
    settings, in_flight = read_config(config, **given), call.concurrency or 16
    choose_urls(split_name(one)[1] for one in (*(judge or ()), writer) if "@http" in one)
    job = Emergence(settings, base_url=base_url, say=call.print, concurrency=in_flight)

    def announce() -> Iterator[str]:
        if not call.as_json:
            _announce_emergence(job)
            announce_needs(job.estimate(), job.price)
        return iter(())

    if dry_run:
        announce()
        return
    call.run(job, call.options(in_flight), announce=announce, show=_show_emergence)


def _announce_emergence(study: Emergence) -> None:
    """Print the models, the questions, the judges and what is trained."""
    from camel.reports.numbers import counted
    from camel.training.stored_rows import Rows

    config = study.config
    echo(f"chain      {' → '.join(one.label for one in study.members())}")
    echo(f"questions  {' · '.join(f'{one.label} {one.questions:,}' for one in config.domains)}")
    echo(f"judged by  {', '.join(one.label for one in study.judges)}, in both orders")
    for one in study.untrained():
        rows = sum(len(Rows(path)) for path in one.rows)
        much = counted(one.steps, "step") if one.steps else f"{one.epochs:g} epochs"
        echo(f"train      {Path(one.out).name}: {much} of {one.batch:,} on {counted(rows, 'row')}")
    if config.humaneval:
        echo(f"HumanEval  {config.humaneval:,} samples of {config.problems:,} problems of each model")


def _show_emergence(made: Figures) -> None:
    from camel.reports.blocks import plain_table
    from camel.training.emergence import emergence_report

    head, rows = plain_table(emergence_report.table(made))
    table(head, rows, range(1, len(head)))
    for one in emergence_report.points(made):
        echo(f"· {one}")


for command in (agents, humaneval, cooperation, cross_play, emergence):
    app.command(cls=HelpCommand)(command)
