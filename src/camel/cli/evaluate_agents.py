"""`camel evaluate agents`: agents against single-shot answers, the paper's Table 1."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from camel.cli.options import FiguresAsJson, MaxCalls, MaxMoney, MaxTokens

if TYPE_CHECKING:
    from rich.console import Console

    from camel.cli.spending import Purse
    from camel.core.model import Model
    from camel.evaluation.agents import Contest, Group, NamedModel
    from camel.evaluation.results import Evaluation
    from camel.runs.reader import RunReader

KEPT = "kept"
"""The folder, in that of an evaluation, of every answer that was paid for."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(agents)


def agents(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Runs' folders, or s3://bucket/prefix; a row of the table each."),
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SYSTEM",
            help="single-shot (the run's own model), single-shot=MODEL, or another run of the same tasks; repeatable.",
        ),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Who judges: NAME, or NAME@URL for another endpoint; repeatable."),
    ] = None,
    summariser: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Who writes down what a conversation arrived at; the first judge unless given.",
        ),
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The base model of single-shot; the run's own unless given.",
        ),
    ] = "",
    base_url: Annotated[
        str,
        typer.Option(
            envvar="OPENAI_BASE_URL", metavar="URL", help="The endpoint of all models that name none."
        ),
    ] = "",
    local: Annotated[
        bool, typer.Option("--local", help="Use the tiny real model on this machine for everything; no key.")
    ] = False,
    guided: Annotated[
        str,
        typer.Option(
            metavar="ENGINE",
            help="What holds judges to JSON: llama.cpp, vllm or openai, if their server can.",
        ),
    ] = "",
    sample: Annotated[int, typer.Option(metavar="N", help="Tasks of each run.", min=1, max=100_000)] = 100,
    seed: Annotated[int, typer.Option(help="Of the draw of the tasks.")] = 0,
    repeats: Annotated[
        int,
        typer.Option(metavar="N", help="Tasks about which each judge is asked twice.", min=0, max=100_000),
    ] = 20,
    judge_prompt: Annotated[
        str,
        typer.Option(metavar="FILE", help="A judge's prompt of your own, with <TASK>, <FIRST> and <SECOND>."),
    ] = "",
    acknowledge: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Judge conversations with this label too: misalignment."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where it is written; RUN/evaluation unless given.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Calls in flight: 16, with --local 2.", min=1)
    ] = None,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    max_money: MaxMoney = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it will take, and ask nobody.")
    ] = False,
    as_json: FiguresAsJson = False,
) -> None:
    """Compare agents with single-shot answers (the paper's Table 1). The same command goes on after a stop."""
    from rich.console import Console

    from camel.cli.asking import acknowledged
    from camel.cli.panel import say
    from camel.cli.progress import leave
    from camel.cli.spending import Purse
    from camel.cli.stopping import FAILED_ITEMS, failed_lines
    from camel.engine.halt import Halt
    from camel.evaluation.agents import JUDGE_PROMPT, AgentsConfig, Contest
    from camel.evaluation.report import write_report
    from camel.evaluation.results import evaluate as evaluated
    from camel.evaluation.vote_results import with_votes
    from camel.jobs.budget import Budget
    from camel.storage import inside

    # Progress must not get into the figures.
    console, halt = Console(highlight=False, stderr=as_json), Halt()
    config = AgentsConfig(
        tasks=sample,
        seed=seed,
        repeats=repeats,
        judge_prompt=judge_prompt or JUDGE_PROMPT,
        acknowledge=acknowledged(acknowledge),
        **(_brief() if local else {}),
    )
    groups, folder = _groups(runs, against or []), out or _beside(runs[0])
    in_flight = concurrency or (2 if local else 16)
    purse = Purse(Budget(money=max_money, tokens=max_tokens, calls=max_calls), halt)
    asked = _OpenModels(judge or [], summariser, model or _base_model(groups, local), against or [])
    with _models(console, asked, base_url, local, guided, in_flight, purse) as models:
        contest = Contest(
            inside.path(folder, KEPT),
            groups,
            config,
            summariser=models.summariser,
            writers=models.writers,
            judges=models.judges,
            halt=halt,
            rejected=purse.rejected,
        )
        purse.earlier(contest.spent())
        _announce(console, contest, purse)
        if dry_run:
            return
        complete = asyncio.run(_work(console, contest, models.open, purse, in_flight))
    if not complete:
        leave(console, halt.reason)
    made, pairs, verdicts = evaluated(contest)
    made = with_votes(made, folder)
    write_report(contest, made, pairs, verdicts, folder)
    if as_json:
        typer.echo(made.to_json().decode())
    else:
        _show(console, made, folder)
    if failed := contest.failed():
        for line in failed_lines(failed):
            say(console, line)
        raise typer.Exit(FAILED_ITEMS)


def _brief() -> dict[str, Any]:
    """The tiny model seldom comes to an end by itself, and writes a few dozen tokens a second."""
    from camel.core.message import Sampling

    return {
        "summary_sampling": Sampling(temperature=0.2, max_tokens=256),
        "single_shot_sampling": Sampling(temperature=0.2, max_tokens=256),
        "cut_replies": "keep",
    }


# ---------------------------------------------------------------- who competes


def _groups(runs: Sequence[str], against: Sequence[str]) -> list[Group]:
    """A row for each run, with those of `against` that are runs of the same scenario."""
    from camel.cli.asking import check_finished
    from camel.core.errors import InputError
    from camel.evaluation.agents import AGENTS, SINGLE_SHOT, Group
    from camel.runs.reader import RunReader
    from camel.runs.run import open_folder

    def opened(name: str) -> RunReader:
        run = RunReader(name)
        if "imported" not in run.settings.config:  # those are as they are
            check_finished(name, "evaluated")
        return run

    records = [opened(run) for run in runs]
    for one in records:
        if not len(one):
            raise InputError(
                f"{one.folder.address} has no finished conversations: camel status says how far it is"
            )
    others: dict[str, RunReader] = {}
    for name in against:
        if name.partition("=")[0] == SINGLE_SHOT:
            continue
        if not open_folder(name).exists:
            raise InputError(
                f"--against takes {SINGLE_SHOT}, {SINGLE_SHOT}=MODEL or a run's folder, not {name!r}"
            )
        other = opened(name)
        others[_name(other)] = other
    if AGENTS in others:
        raise InputError(f"a run called {AGENTS} cannot compete: rename its folder")
    scenarios = [_scenario(one) for one in records]
    groups = [
        Group(
            scenario if scenarios.count(scenario) == 1 else _name(one),
            {AGENTS: one, **{name: other for name, other in others.items() if _scenario(other) == scenario}},
            scenario,
        )
        for one, scenario in zip(records, scenarios, strict=True)
    ]
    for name, other in others.items():
        if not any(name in group.runs for group in groups):
            raise InputError(f"{other.folder.address} is of the scenario {_scenario(other)}, and no RUN is")
    return groups


def _name(run: RunReader) -> str:
    return run.folder.address.rstrip("/").rpartition("/")[2]


def _scenario(run: RunReader) -> str:
    return Path(str(run.settings.config.get("scenario", ""))).name or _name(run)


def _base_model(groups: Sequence[Group], local: bool) -> str:
    """The model that all runs were made with."""
    from camel.evaluation.agents import AGENTS

    names = {str(group.runs[AGENTS].settings.config.get("model.name", "")) for group in groups}
    return names.pop() if len(names) == 1 and not local else ""


def _beside(run: str) -> Path:
    from camel.runs.run import open_folder

    folder = open_folder(run)
    if folder.on_disk:
        return folder.path("evaluation")
    return Path("evaluations") / run.rstrip("/").rpartition("/")[2] / "evaluation"


# ---------------------------------------------------------------- who is asked


class _OpenModels(NamedTuple):
    judges: Sequence[str]
    summariser: str
    base: str
    against: Sequence[str]


class _Models(NamedTuple):
    summariser: NamedModel
    writers: dict[str, NamedModel]
    judges: list[NamedModel]
    open: list[Model]


@contextlib.contextmanager
def _models(
    console: Console,
    asked: _OpenModels,
    base_url: str,
    local: bool,
    guided: str,
    concurrency: int,
    purse: Purse,
) -> Generator[_Models]:
    """All models that are asked, each once however many parts it has, and metered."""
    from camel.cli.panel import say
    from camel.cli.showing import guide
    from camel.core.errors import InputError
    from camel.evaluation.agents import SINGLE_SHOT, NamedModel
    from camel.jobs.budget import MeteredModel
    from camel.models.catalogue import find
    from camel.models.connect import connect, label, named_at
    from camel.models.local import LocalServer, local_model

    single = [name for name in asked.against if name.partition("=")[0] == SINGLE_SHOT]
    if not asked.against:
        single = [SINGLE_SHOT]
    if len(set(single)) != len(single):
        raise InputError("--against names a system twice")
    made: dict[str, NamedModel] = {}
    opened: list[Model] = []

    def named(chat: Model, name: str) -> NamedModel:
        opened.append(chat)
        return NamedModel(name, MeteredModel(chat, purse.share(name, find(chat.name))))

    with contextlib.ExitStack() as stack:
        if local:
            if asked.judges or asked.summariser or any("=" in name for name in single):
                raise InputError("with --local the tiny model does everything: leave out the names of models")
            server = LocalServer(parallel=concurrency)
            chat = stack.enter_context(local_model(server, say=lambda line: say(console, line)))
            one = named(chat, chat.name)
            yield _Models(one, dict.fromkeys(single, one), [one], opened)
            return
        if not asked.judges:
            raise InputError("name who judges, a strong model, with --judge; or use --local")

        def model(spec: str) -> NamedModel:
            if spec not in made:
                name, url = named_at(spec)
                made[spec] = named(
                    connect(name, base_url=url or base_url, guided=guide(guided)), label(name, url)
                )
            return made[spec]

        if SINGLE_SHOT in single and not asked.base:
            raise InputError("the runs do not tell one base model: name that of single-shot with --model")
        writers = {label(*named_at(name)): model(name.partition("=")[2] or asked.base) for name in single}
        judges = [model(spec) for spec in dict.fromkeys(asked.judges)]
        yield _Models(model(asked.summariser) if asked.summariser else judges[0], writers, judges, opened)


# ---------------------------------------------------------------- doing it, and showing it


def _announce(console: Console, contest: Contest, purse: Purse) -> None:
    """Say what is compared, and what it will cost."""
    from camel.cli.panel import counted, say
    from camel.cli.spending import announce_needs
    from camel.evaluation.report import STEPS

    for group in contest.groups:
        sample = contest.samples[group.name]
        left = f"; {sample.excluded:,} labelled ones are left out (--acknowledge)" if sample.excluded else ""
        say(
            console,
            f"{group.name}: {counted(len(sample.tasks), 'task')} of {sample.of:,} conversations{left}",
        )
        say(console, f"  {' / '.join(contest.systems(group.name))}")
    announce_needs(console, [(STEPS[need.kind], need) for need in contest.estimate()], purse)


async def _work(
    console: Console, contest: Contest, opened: Sequence[Model], purse: Purse, concurrency: int
) -> bool:
    from camel.cli.panel import duration
    from camel.cli.progress import CALLS_END, worked

    words = {"summary": "summaries", "answer": "answers", "verdict": "verdicts", "repeat": "repeats"}

    def line(seconds: float) -> str:
        parts = [
            f"{words[kind]} {done:,} of {contest.total(kind):,}"
            for kind, done in contest.finished.items()
            if contest.total(kind)
        ]
        return " · ".join([*parts, *purse.parts, f"{duration(seconds)} gone"])

    work = contest.run(concurrency=concurrency)
    return await worked(console, contest.halt, CALLS_END, line, work, *opened)


def _show(console: Console, made: Evaluation, folder: Path) -> None:
    from camel.cli.panel import say, table
    from camel.evaluation.report import FIGURES, MARKDOWN, PAGE, points, share
    from camel.evaluation.report import table as lines

    rows: list[tuple[str, ...]] = []
    for row in lines(made):
        shares = [share(value) for value in (row.draws, row.losses, row.wins)]
        rows.append((row.dataset, row.evaluation, f"{row.a} / {row.b}", *shares, f"{row.of:,}"))
    head = ("dataset", "evaluation", "first / second", "draw", "second wins", "first wins", "verdicts")
    table(console, head, rows, right=range(3, 7))
    for one in points(made):
        say(console, f"· {one}")
    for one in made.ratings:
        say(
            console,
            f"{one.rank}. {one.system}  {one.rating.value:+.0f} ({one.rating.low:+.0f} – {one.rating.high:+.0f})",
        )
    say(console, f"page    {folder / PAGE}")
    say(console, f"report  {folder / MARKDOWN}")
    say(console, f"figures {folder / FIGURES}")
