"""What all long commands have in common: they declare a job, and this runs it, shows it and ends with its exit status."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from camel.cli.options import flag, option

if TYPE_CHECKING:
    from rich.console import Console

    from camel.core.model import Price
    from camel.evaluation.contest_records import StepNeed
    from camel.generation.config import GenerateConfig
    from camel.jobs.budget import Budget
    from camel.jobs.job import Job
    from camel.jobs.launch import JobOptions
    from camel.jobs.runner import Outcome

NOT_AGAIN = ("--json", "--retry-failed", "--accept-change", "--force", "--fork")
"""Options that the line to continue with leaves out."""

_USD = option("Most US dollars that all starts together may cost.", "DOLLARS")
_TOKENS = option("Most tokens that all starts together may use.", "N")
_CALLS = option("Most calls that all starts together may make.", "N")
_START = option("Most hours that this start may take.", "HOURS")
_ITEMS = option("Items in flight; with --local 2 unless given.", "N", min=1)
_RAY = option("Work on a Ray cluster: local (one started here), auto, or host:port of its head.", "ADDRESS")
_WORKERS = option("Workers on the cluster; one for each CPU unless given.", "N")
_AGAIN = flag("--retry-failed", "Retry items that have failed.")
_LINES = flag("--json", "Print one JSON object a line; the last has the result.")
_BUDGET: dict[str, Any] = {
    "budget_usd": Annotated[float | None, _USD],
    "budget_tokens": Annotated[int | None, _TOKENS],
    "budget_calls": Annotated[int | None, _CALLS],
}
_HOURS: dict[str, Any] = {"budget_hours": Annotated[float | None, _START]}
_IN_FLIGHT: dict[str, Any] = {"concurrency": Annotated[int | None, _ITEMS]}
_CLUSTER: dict[str, Any] = {
    "address": Annotated[str | None, _RAY],
    "workers": Annotated[int | None, _WORKERS],
}
_RETRY: dict[str, Any] = {"retry_failed": Annotated[bool, _AGAIN]}
_JSON: dict[str, Any] = {"as_json": Annotated[bool, _LINES]}
ASKING = {**_IN_FLIGHT, **_BUDGET, **_HOURS, **_RETRY, **_JSON}
"""Options of commands that ask models."""
SPREAD = {**_IN_FLIGHT, **_BUDGET, **_HOURS, **_CLUSTER, **_RETRY, **_JSON}
"""Options of those that can be done on a cluster, too."""
COMPUTING = {**_HOURS, **_JSON}
"""Options of those that ask nobody."""


@dataclass(frozen=True, kw_only=True)
class How:
    """How a long command was asked to work: the options that all of them have."""

    context: typer.Context
    concurrency: int | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_calls: int | None = None
    budget_hours: float | None = None
    address: str | None = None
    workers: int | None = None
    retry_failed: bool = False
    as_json: bool = False

    @cached_property
    def console(self) -> Console:
        """Where it writes."""
        from rich.console import Console

        return Console(highlight=False)

    @property
    def budget(self) -> Budget:
        """What it may use."""
        from camel.jobs.budget import Budget

        return Budget(**self.limits)  # pyright: ignore[reportArgumentType]

    @property
    def limits(self) -> dict[str, float | None]:
        """What it may use, by name."""
        names = ("usd", "tokens", "calls", "hours")
        return {name: getattr(self, f"budget_{name}") for name in names}

    def say(self, text: str) -> None:
        """Print a line, unless JSON is wanted."""
        from camel.cli.panel import say

        if not self.as_json:
            say(self.console, text)

    def options(self, in_flight: int = 1, **more: Any) -> JobOptions:
        """How the job is run."""
        from camel.jobs.launch import JobOptions

        if self.workers is not None and not self.address:
            raise typer.BadParameter("--workers are those of a cluster: give its --address too")
        given: dict[str, Any] = {
            "budget": self.budget,
            "concurrency": in_flight,
            "retry_failed": self.retry_failed,
            "address": self.address or "",
            "workers": self.workers,
        }
        given["resume"] = more.pop("resume", "") or resume_line(self.context)
        return JobOptions(**{**given, **more})

    def configured(self, config: GenerateConfig, **more: Any) -> JobOptions:
        """How the job of a configuration is run."""
        run = config.run
        return self.options(run.concurrency, budget=config.budget, patience=60 * run.outage_patience, **more)

    def run(
        self,
        job: Job,
        options: JobOptions,
        *,
        announce: Callable[[], Iterable[str]] = lambda: (),
        done: Callable[[Outcome], Iterable[str]] = lambda outcome: (),
        show: Callable[[Any], None] = lambda result: None,
    ) -> None:
        """Run a job and leave with its exit status.

        `announce` gives lines to print before the first call; `show` prints the result unless `--json` is given, and `done`
        gives the lines after it.
        """
        import msgspec

        from camel.cli.panel import choose_view, stopped
        from camel.jobs.launch import Launch
        from camel.runs.run import JOURNALS

        view = choose_view(self.console, self.as_json)
        launch = Launch(job, options, view)
        folder = launch.folder
        view.note(f"run     {folder.address}")
        view.note(f"log     {launch.log.path}")
        if not folder.on_disk:
            view.note(f"journal {folder.root}: every start needs the same ({JOURNALS})")
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
            for line in (*done(outcome), *(f"failed  {one}" for one in outcome.failed)):
                view.note(line)
            if outcome.failed:
                view.note(f"retry   {options.resume} --retry-failed")
        else:
            view.event(entry)
            view.note(stopped(outcome.reason))
            for line in _how_to_continue(
                outcome, options.resume, bool(launch.watcher.now("stopped").usage.calls)
            ):
                view.note(line)
        if outcome.exit_status:
            raise typer.Exit(outcome.exit_status)


def long_command(options: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that long commands have; it gets them as `how`."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True)
        kinds = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter(
                name, kinds, default=False if kind.__origin__ is bool else None, annotation=kind
            )
            for name, kind in options.items()
        ]
        context = inspect.Parameter("context", kinds, annotation=typer.Context)
        mine = [one.replace(kind=kinds) for one in own.parameters.values() if one.name != "how"]

        @functools.wraps(function)
        def wrapper(**given: Any) -> None:
            how = How(context=given.pop("context"), **{name: given.pop(name) for name in options})
            function(how=how, **given)

        wrapper.__signature__ = own.replace(parameters=[context, *mine, *shared])  # pyright: ignore
        wrapper.__annotations__ = {
            **{name: kind for name, kind in function.__annotations__.items() if name != "how"},
            **options,
            "context": typer.Context,
        }
        return wrapper

    return decorated


def _how_to_continue(outcome: Outcome, resume: str, paid: bool) -> list[str]:
    lines: list[str] = []
    if paid:
        lines.append(
            "kept    all replies so far, including those of unfinished items; none is paid for again"
        )
    lines.append(f"resume  {resume}")
    if "HTTP 404" in outcome.reason:  # perhaps a model that was retired
        lines.append(f"        with another model.name: {resume} --accept-change model.name")
    if outcome.reason.startswith("the budget of"):
        lines.append("raise the budget first, or it stops again at once")
    return lines


def resume_line(
    context: typer.Context, *, without: Collection[str] = (), more: Sequence[str] = (), where: str = ""
) -> str:
    """The command line that continues what this one does, for a shell; `where` is the run that it makes."""
    from camel.runs.run import JOURNALS
    from camel.storage.store import is_remote

    words, place = list[str](), context
    while place.parent is not None:  # the outermost is the program, whatever it was called
        words.insert(0, place.info_name or "")
        place = place.parent
    words.insert(0, "camel")
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        # Its class has moved between typer's releases, its name has not.
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params.get(parameter.name or "")
        option = parameter.opts[0]
        if option in (*NOT_AGAIN, *without):
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


def announce_needs(
    console: Console, steps: Sequence[tuple[str, StepNeed]], prices: Callable[[str], Price | None]
) -> None:
    """Say what each step, by its name, will take and cost."""
    from camel.cli.panel import say, table
    from camel.core.message import Usage
    from camel.reports.numbers import money, short

    if not steps:
        say(console, "everything has been asked before")
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
    table(console, head, rows, right=range(2, 6))
    needs = [need for _, need in steps]
    calls = sum(need.calls for need in needs)
    tokens = [sum(need.prompt[at] + need.completion[at] for need in needs) for at in range(3)]
    cost = f", {money(total[1])} ({money(total[0])} to {money(total[2])})" if known else ""
    say(
        console,
        f"about {calls:,} calls, {short(tokens[1])} tokens ({short(tokens[0])} to {short(tokens[2])}){cost}",
    )
