"""`camel evaluate agents`: agents against single-shot answers, the paper's Table 1."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from camel.cli.command import SPREAD, How, long_command

if TYPE_CHECKING:
    from rich.console import Console

    from camel.core.model import Model
    from camel.evaluation.agents import AgentsEvaluation
    from camel.evaluation.contest_records import Group
    from camel.evaluation.results import Evaluation
    from camel.evaluation.windows import AskedModel
    from camel.jobs.launch import Launch
    from camel.models.spec import ModelSpec
    from camel.runs.reader import RunReader


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(agents)


@long_command(SPREAD)
def agents(
    how: How,
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it will take, and ask nobody.")
    ] = False,
) -> None:
    """Compare agents with single-shot answers (the paper's Table 1). The same command continues after a stop."""
    from camel.cli.asking import acknowledged
    from camel.evaluation.agents import AgentsEvaluation
    from camel.evaluation.contest_records import JUDGE_PROMPT, AgentsConfig

    console = how.console
    config = AgentsConfig(
        tasks=sample,
        seed=seed,
        repeats=repeats,
        judge_prompt=judge_prompt or JUDGE_PROMPT,
        acknowledge=acknowledged(acknowledge),
        **(_brief() if local else {}),
    )
    groups, folder = _groups(runs, against or []), out or _beside(runs[0])
    in_flight = how.concurrency or (2 if local else 16)
    asked = _Names(judge or [], summariser, model or _base_model(groups, local), against or [])
    with _models(console, asked, base_url, local, guided, in_flight) as models:
        job = AgentsEvaluation(
            str(folder),
            tuple(groups),
            config,
            models.models,
            models.summariser,
            models.writers,
            tuple(models.judges),
        )

        def announce(launch: Launch | None) -> Iterator[str]:
            if not how.as_json:
                _announce(console, job)
            return iter(())

        if dry_run:
            announce(None)
            return
        how.run(
            job, how.options(in_flight), announce=announce, show=lambda made: _show(console, made, folder)
        )


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
    from camel.core.errors import InputError
    from camel.evaluation.contest_records import AGENTS, SINGLE_SHOT, Group
    from camel.runs.reader import RunReader
    from camel.runs.run import open_folder

    records = [RunReader(run) for run in runs]
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
        other = RunReader(name)
        others[_name(other)] = other
    if AGENTS in others:
        raise InputError(f"a run called {AGENTS} cannot compete: rename its folder")
    scenarios = [_scenario(one) for one in records]
    groups = [
        Group(
            scenario if scenarios.count(scenario) == 1 else _name(one),
            {
                AGENTS: one.folder.address,
                **{
                    name: other.folder.address
                    for name, other in others.items()
                    if _scenario(other) == scenario
                },
            },
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
    from camel.evaluation.contest_records import AGENTS
    from camel.runs.run import open_folder

    runs = [open_folder(group.runs[AGENTS]) for group in groups]
    names = {str(run.settings().config.get("model.name", "")) for run in runs}
    return names.pop() if len(names) == 1 and not local else ""


def _beside(run: str) -> Path:
    from camel.runs.run import open_folder

    folder = open_folder(run)
    if folder.on_disk:
        return folder.path("evaluation")
    return Path("evaluations") / run.rstrip("/").rpartition("/")[2] / "evaluation"


# ---------------------------------------------------------------- who is asked


class _Names(NamedTuple):
    judges: Sequence[str]
    summariser: str
    base: str
    against: Sequence[str]


class _Models(NamedTuple):
    models: dict[str, Model | ModelSpec]
    summariser: AskedModel
    writers: dict[str, AskedModel]
    judges: list[AskedModel]


@contextlib.contextmanager
def _models(
    console: Console, asked: _Names, base_url: str, local: bool, guided: str, concurrency: int
) -> Generator[_Models]:
    """All models that are asked, each once however many parts it has."""
    from camel.cli.panel import say
    from camel.cli.showing import guide
    from camel.core.errors import InputError
    from camel.evaluation.contest_records import SINGLE_SHOT
    from camel.evaluation.windows import AskedModel
    from camel.models.connect import label, named_at
    from camel.models.local import LocalServer, local_model
    from camel.models.spec import find_spec

    single = [name for name in asked.against if name.partition("=")[0] == SINGLE_SHOT]
    if not asked.against:
        single = [SINGLE_SHOT]
    if len(set(single)) != len(single):
        raise InputError("--against names a system twice")
    made: dict[str, AskedModel] = {}
    models: dict[str, Model | ModelSpec] = {}
    with contextlib.ExitStack() as stack:
        if local:
            if asked.judges or asked.summariser or any("=" in name for name in single):
                raise InputError("with --local the tiny model does everything: leave out the names of models")
            server = LocalServer(parallel=concurrency)
            chat = stack.enter_context(local_model(server, say=lambda line: say(console, line)))
            one = AskedModel(chat.name, "", chat.context_tokens)
            yield _Models({"": chat}, one, dict.fromkeys(single, one), [one])
            return
        if not asked.judges:
            raise InputError("name who judges, a strong model, with --judge; or use --local")

        def model(spec: str) -> AskedModel:
            if spec not in made:
                name, url = named_at(spec)
                found = find_spec(name, base_url=url or base_url, guided=guide(guided))
                made[spec] = AskedModel(label(name, url), spec, found.window)
                models[spec] = found
            return made[spec]

        if SINGLE_SHOT in single and not asked.base:
            raise InputError("the runs do not tell one base model: name that of single-shot with --model")
        writers = {label(*named_at(name)): model(name.partition("=")[2] or asked.base) for name in single}
        judges = [model(spec) for spec in dict.fromkeys(asked.judges)]
        yield _Models(models, model(asked.summariser) if asked.summariser else judges[0], writers, judges)


# ---------------------------------------------------------------- showing it


def _announce(console: Console, job: AgentsEvaluation) -> None:
    """Say what is compared, and what it will cost."""
    from camel.cli.command import announce_needs
    from camel.cli.panel import say
    from camel.evaluation.report_table import STEPS
    from camel.jobs.state import price_of
    from camel.reports.numbers import counted

    contest = job.contest
    for group in contest.groups:
        sample = contest.samples[group.name]
        left = f"; {sample.excluded:,} labelled ones are left out (--acknowledge)" if sample.excluded else ""
        say(
            console,
            f"{group.name}: {counted(len(sample.tasks), 'task')} of {sample.of:,} conversations{left}",
        )
        say(console, f"  {' / '.join(contest.systems(group.name))}")
    asked = [job.summariser, *job.writers.values(), *job.judges]
    seats = {one.name: job.models[one.seat] for one in asked}
    steps = [(STEPS[need.kind], need) for need in contest.estimate()]
    announce_needs(console, steps, lambda name: price_of(seats[name]))


def _show(console: Console, made: Evaluation, folder: Path) -> None:
    from camel.cli.panel import say, table
    from camel.evaluation.report import FIGURES, MARKDOWN, PAGE
    from camel.evaluation.report_table import points, share
    from camel.evaluation.report_table import table as lines

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
