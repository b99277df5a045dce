"""Long commands: each declares a job. This runs it, shows its progress and exits with its status."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import typer

from camel.cli import options as shared
from camel.cli.output import echo, table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from camel.core.model import Price
    from camel.evaluation.contest_records import StepNeed
    from camel.generation.config import GenerateConfig
    from camel.jobs.budget import Budget
    from camel.jobs.job import Job
    from camel.jobs.launch import JobOptions
    from camel.jobs.runner import Outcome

ONCE = ("--json", "--retry-failed", "--accept-change", "--force", "--reuse-lists")
"""Options that the resume command does not repeat."""

_CALLS: dict[str, Any] = {
    "trust_host": shared.TrustHost,
    "concurrency": shared.Concurrency,
    "budget_usd": shared.BudgetUsd,
    "budget_tokens": shared.BudgetTokens,
    "budget_calls": shared.BudgetCalls,
    "budget_hours": shared.BudgetHours,
}
_REPORT: dict[str, Any] = {"retry_failed": shared.RetryFailed, "as_json": shared.AsJson}
LOCAL_OPTIONS: dict[str, Any] = {"budget_hours": shared.BudgetHours, "as_json": shared.AsJson}
"""Options of long commands that call no model."""
MODEL_OPTIONS: dict[str, Any] = {**_CALLS, **_REPORT}
"""Options of long commands that call models."""
CLUSTER_OPTIONS: dict[str, Any] = {**_CALLS, "address": shared.Address, "workers": shared.Workers, **_REPORT}
"""Options of long commands that call models and can also run on a cluster."""


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A long command as it was called: its context and the options that all long commands share."""

    context: typer.Context
    trust_host: list[str] | None = None
    concurrency: int | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_calls: int | None = None
    budget_tool_calls: int | None = None
    budget_hours: float | None = None
    address: str = ""
    workers: int | None = None
    retry_failed: bool = False
    as_json: bool = False

    @cached_property
    def console(self) -> Console:
        """The console that the command prints to."""
        from rich.console import Console

        return Console(highlight=False)

    @property
    def budget(self) -> Budget:
        """The budget of the job."""
        from camel.jobs.budget import Budget

        return Budget(**self.limits)  # pyright: ignore[reportArgumentType]

    @property
    def limits(self) -> dict[str, float | None]:
        """The limits of the budget by name."""
        names = ("usd", "tokens", "calls", "tool_calls", "hours")
        return {name: getattr(self, f"budget_{name}") for name in names}

    def print(self, text: str) -> None:
        """Print a line, unless JSON is requested."""
        if not self.as_json:
            echo(text, console=self.console)

    def options(self, concurrency: int = 1, **more: Any) -> JobOptions:
        """Return the options of a job that this command runs. Keyword arguments override them."""
        from camel.jobs.launch import JobOptions

        if self.workers is not None and not self.address:
            raise typer.BadParameter("--workers needs --address")
        given: dict[str, Any] = {
            "budget": self.budget,
            "concurrency": concurrency,
            "retry_failed": self.retry_failed,
            "address": self.address,
            "workers": self.workers,
        }
        given["resume"] = more.pop("resume", "") or resume_line(self.context)
        return JobOptions(**{**given, **more})

    def configured(self, config: GenerateConfig, **more: Any) -> JobOptions:
        """Return the options of a job that takes its concurrency and budget from `config`."""
        run = config.run
        return self.options(run.concurrency, budget=config.budget, patience=60 * run.outage_patience, **more)

    def expect(self, job: Any, plan: str) -> None:
        """Print the plan of a job, and what it is expected to need of each model."""
        from camel.jobs.state import name_of, price_of
        from camel.reports.numbers import money, short

        for seat, need in job.expected().items():
            price = price_of(job.models[seat])
            calls = f"{short(need.calls)} calls, " if need.calls else ""
            cost = money(price.cost(need)) if price and need.total else "price unknown"
            tokens = f"{short(need.total)} tokens" if need.total else "tokens unknown"
            echo(f"expect  about {calls}{tokens} of {name_of(job.models[seat])}, {cost}")
        echo(f"        {plan}")

    def run(
        self,
        job: Job,
        options: JobOptions,
        *,
        announce: Callable[[], Iterable[str]] = lambda: (),
        done: Callable[[Outcome], Iterable[str]] = lambda outcome: (),
        show: Callable[[Any], None] = lambda result: None,
    ) -> None:
        """Run a job and exit with its status.

        `announce` returns lines to print before the first call. `show` prints the result unless `--json` is given, and
        `done` returns the lines to print after it.
        """
        import msgspec

        from camel.cli.panel import choose_view, stopped
        from camel.jobs.launch import Launch, report_folder
        from camel.reports.intervals import ReportFigures
        from camel.runs.run import JOURNALS

        view = choose_view(self.console, self.as_json)
        launch = Launch(job, options, view)
        folder = launch.folder
        view.note(f"run     {folder.address}")
        view.note(f"log     {launch.log.path}")
        if not folder.on_disk:
            view.note(f"journal {folder.root}: set {JOURNALS} to the same folder whenever you resume")
        view.note(f"resume  {options.resume}")
        for line in announce():
            view.note(line)
        outcome = launch.run()
        entry = launch.end
        if outcome.complete:
            result = outcome.result
            view.event(
                entry
                if result is None
                else {**entry, "result": msgspec.to_builtins(result, str_keys=True, enc_hook=str)}
            )
            if not self.as_json:
                show(result)
                if isinstance(result, ReportFigures):
                    place = report_folder(folder) / result.file
                    for name, ending in (("page", "html"), ("report", "md"), ("figures", "json")):
                        echo(f"{name:<7} {place}.{ending}")
            for line in (*done(outcome), *(f"failed  {one}" for one in outcome.failed)):
                view.note(line)
            if outcome.failed:
                view.note(f"retry   {options.resume} --retry-failed")
        else:
            view.event(entry)
            view.note(stopped(outcome.reason))
            for line in _resume_notes(
                outcome, options.resume, bool(launch.watcher.now("stopped").usage.calls)
            ):
                view.note(line)
        if outcome.exit_status:
            raise typer.Exit(outcome.exit_status)


def long_command(options: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds `options` to a command. The command receives them as an `Invocation` named `call`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True)
        kinds = inspect.Parameter.KEYWORD_ONLY
        added = [
            inspect.Parameter(name, kinds, default=_UNSET.get(kind.__origin__), annotation=kind)
            for name, kind in options.items()
        ]
        context = inspect.Parameter("context", kinds, annotation=typer.Context)
        mine = [one.replace(kind=kinds) for one in own.parameters.values() if one.name != "call"]

        @functools.wraps(function)
        def wrapper(**given: Any) -> None:
            call = Invocation(context=given.pop("context"), **{name: given.pop(name) for name in options})
            function(call=call, **given)

        wrapper.__signature__ = own.replace(parameters=[context, *mine, *added])  # pyright: ignore
        wrapper.__annotations__ = {
            **{name: kind for name, kind in function.__annotations__.items() if name != "call"},
            **options,
            "context": typer.Context,
        }
        return wrapper

    return decorate


_UNSET: dict[Any, Any] = {bool: False, str: ""}
"""Defaults of shared options by type. Options of any other type default to None."""


def _resume_notes(outcome: Outcome, resume: str, paid: bool) -> list[str]:
    lines: list[str] = []
    if paid:
        lines.append(
            "kept    all replies so far, also those of unfinished items; you do not pay for them again"
        )
    lines.append(f"resume  {resume}")
    if "HTTP 404" in outcome.reason:  # perhaps a model that was retired
        lines.append(f"        with another model.name: {resume} --accept-change model.name")
    if outcome.reason.startswith("the budget of"):
        lines.append("        raise the budget first, or it stops again at once")
    return lines


def read_settings(
    context: typer.Context, config: Path, model: str, base_url: str, *, local: bool, out: str, **more: Any
) -> GenerateConfig:
    """Read a configuration, overridden by the options that were typed, and check its folder."""
    from camel.generation.config import check_place, read_config

    model, base_url = shared.typed_model(context, model, base_url)
    settings = read_config(config, local=local)
    settings = settings.adjusted(local=local, model=model, base_url=base_url, out=out, **more)
    if not out:
        check_place(config, settings)
    return settings


def resume_line(
    context: typer.Context, *, without: Collection[str] = (), more: Sequence[str] = (), where: str = ""
) -> str:
    """Return the shell command that resumes the current command. `where` is the run that the current command writes."""
    from camel.runs.run import JOURNALS
    from camel.storage.store import is_remote

    words, place = list[str](), context
    while place.parent is not None:  # the outermost is the program, under any name
        words.insert(0, place.info_name or "")
        place = place.parent
    words.insert(0, "camel")
    for parameter in shared.typed_parameters(context):
        value = context.params.get(parameter.name or "")
        option = parameter.opts[0]
        if option in (*ONCE, *without):
            continue
        values = list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]
        if not option.startswith("-"):
            words += map(str, values)
        elif value is True or value is False:
            words.append(option if value else parameter.secondary_opts[0])
        else:
            words += (word for one in values for word in (option, str(one)))
    journals = os.environ.get(JOURNALS, "") if where and is_remote(where) else ""
    line = shlex.join([*words, *more])
    return f"{JOURNALS}={shlex.quote(journals)} {line}" if journals else line


def announce_needs(steps: Sequence[tuple[str, StepNeed]], prices: Callable[[str], Price | None]) -> None:
    """Print the calls, tokens and cost that each named step is expected to need."""
    from camel.core.message import Usage
    from camel.reports.numbers import money, short

    if not steps:
        echo("all replies are cached: no calls needed")
        return
    rows: list[tuple[str, ...]] = []
    total = [0.0, 0.0, 0.0]
    known = True
    for name, need in steps:
        price = prices(need.model)
        cost = [
            price.cost(Usage(prompt, completion)) if price else 0.0
            for prompt, completion in zip(need.prompt, need.completion, strict=True)
        ]
        known = known and price is not None
        total = [one + more for one, more in zip(total, cost, strict=True)]
        shown = money(cost[1]) if price else "price unknown"
        tokens = short(need.prompt[1]), short(need.completion[1])
        rows.append((name, need.model, f"{need.calls:,}", *tokens, shown))
    head = ("step", "model", "calls", "prompt tokens", "completion tokens", "money")
    table(head, rows, range(2, 6))
    needs = [need for _, need in steps]
    calls = sum(need.calls for need in needs)
    tokens = [sum(need.prompt[at] + need.completion[at] for need in needs) for at in range(3)]
    cost = f", {money(total[1])} ({money(total[0])} to {money(total[2])})" if known else ""
    span = f"{short(tokens[1])} tokens ({short(tokens[0])} to {short(tokens[2])})"
    echo(f"about {calls:,} calls, {span}{cost}")
