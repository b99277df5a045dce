"""`camel plan`: what a configuration will take, before any call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from camel.generation.config import GenerateConfig, Guess
    from camel.generation.plan import Plan

MONTH = 30 * 24.0


def plan(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What is to be generated.")],
    rate: Annotated[
        float | None,
        typer.Option(metavar="CALLS_PER_S", help="How fast the endpoint answers, in calls a second."),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(metavar="LEVEL=N", help="Another size for a level of the scenario; repeatable."),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="As camel generate --local would do it.")] = False,
    out: Annotated[str, typer.Option(metavar="DIR", help="A run whose figures to go by.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate calls, tokens, money, storage and time. Where the run exists, from its own figures."""
    from rich.console import Console

    from camel.cli.generate import adjusted
    from camel.core.errors import InputError
    from camel.generation.config import read_config

    if rate is not None and not 0 < rate < 1e9:
        raise InputError(f"--rate must be above zero, not {rate}")
    settings = read_config(config, local=local)
    settings = adjusted(settings, local or settings.is_local, None, out)
    _show(Console(highlight=False), settings, _counts(scale or []), rate, as_json)


def dry_run(console: Console, config: GenerateConfig, as_json: bool) -> None:
    """Show the plan and one prompt of each kind."""
    from camel.cli.panel import say
    from camel.scenarios import sample

    prompts = sample(config.loaded_scenario())
    _show(console, config, {}, None, as_json, prompts)
    if as_json:
        return
    for prompt in prompts:
        say(console, f"\n── {prompt.title}", "bold")
        say(console, prompt.text)


def summary(plan: Plan) -> str:
    """A plan in one line."""
    from camel.cli.panel import money, short

    need, cost = plan.need, plan.money
    tokens = [case.prompt + case.completion for case in need]
    parts = [
        f"{plan.items:,} {plan.stages[-1].name}",
        f"about {short(need.likely.calls)} calls",
        f"{short(tokens[1])} tokens{span(*map(short, (tokens[0], tokens[2], tokens[1])), gap=' ')}",
    ]
    if cost is not None and cost.high:
        parts.append(f"{money(cost.likely)}{span(*map(money, (cost.low, cost.high, cost.likely)), gap=' ')}")
    return ", ".join(parts)


def span(low: str, high: str, likely: str, *, gap: str = "   ") -> str:
    """Between what a figure may be; nothing where that is the figure itself."""
    return "" if low == high == likely else f"{gap}({low} to {high})"


def _show(
    console: Console,
    config: GenerateConfig,
    counts: dict[str, int],
    rate: float | None,
    as_json: bool,
    prompts: Any = (),
) -> None:
    from camel.generation.plan import committed_in, hours, make_plan, workers

    made = make_plan(config, counts=counts, committed=committed_in(config.open_folder(), config))
    assumed = config.plan
    wanted = rate or config.run.concurrency / assumed.seconds_per_call
    if as_json:
        timing = {
            "calls_per_second": wanted,
            "hours": [hours(case, wanted) for case in made.need],
            "workers": workers(wanted, assumed.seconds_per_call),
            "prompts": [{"title": prompt.title, "text": prompt.text} for prompt in prompts],
        }
        _write_json(console, made.to_dict() | timing)
        return
    _stages(console, made)
    _totals(console, made)
    _times(console, made, config, wanted, rate is None)
    _grounds(console, made, config)


def _stages(console: Console, made: Plan) -> None:
    from camel.cli.panel import say, short, table

    say(console, f"{made.scenario}: {made.shape}", "bold")
    rows = [
        (
            stage.name,
            f"{stage.items:,}",
            f"{stage.shards:,}",
            short(round(stage.need.likely.calls)),
            short(stage.need.likely.prompt),
            short(stage.need.likely.completion),
            f"{stage.done:,} done" if stage.done else f"{stage.measured:,} items" if stage.measured else "",
        )
        for stage in made.stages
    ]
    head = ("stage", "items", "shards", "calls", "prompt tokens", "completion tokens", "measured")
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    table(console, head, rows, right=range(1, 6))


def _totals(console: Console, made: Plan) -> None:
    from camel.cli.panel import counted, money, say, short

    need = made.need

    def between(name: str, unit: str = "") -> str:
        low, likely, high = (short(getattr(case, name)) for case in need)
        return f"{likely}{unit}{span(low, high, likely)}"

    say(console, f"calls       {between('calls')}")
    say(console, f"prompt      {between('prompt', ' tokens')}")
    share = need.likely.cached / need.likely.prompt if need.likely.prompt else 0
    say(console, f"  cached    {short(need.likely.cached)} tokens, {share:.0%} of the prompt")
    say(console, f"completion  {between('completion', ' tokens')}")
    cost = made.money
    if cost is None:
        say(
            console,
            "money       unknown: the model has no price in the catalogue; give it one as model.price",
        )
    else:
        say(
            console,
            f"money       {money(cost.likely)}{span(money(cost.low), money(cost.high), money(cost.likely))}",
        )
    say(console, f"storage     {between('bytes', ' bytes')} in {counted(made.shards, 'shard')}")


def _times(console: Console, made: Plan, config: GenerateConfig, rate: float, own: bool) -> None:
    from camel.cli.panel import duration, say, short
    from camel.generation.plan import WORKER, hours, workers

    low, likely, high = (duration(3600 * hours(case, rate)) for case in made.need)
    seconds = config.plan.seconds_per_call
    count = workers(rate, seconds)
    why = f" ({config.run.concurrency} in flight)" if own else ""
    say(
        console,
        f"time        {likely} at {rate:,.4g} calls/s{why}{span(low, high, likely)}; "
        f"{count:,} worker{'s' if count > 1 else ''} of {WORKER} at {seconds:g} s a call",
    )
    if hours(made.need.likely, rate) > MONTH:
        needed = made.need.likely.calls / (MONTH * 3600)
        say(
            console,
            f"in 30 days  {needed:,.0f} calls/s, {short(needed * seconds)} conversations open, "
            f"{workers(needed, seconds):,} workers of {WORKER}",
        )


def _grounds(console: Console, made: Plan, config: GenerateConfig) -> None:
    """Say what the figures rest on."""
    from camel.cli.panel import say
    from camel.generation.campaign import CONVERSATIONS

    measured = [stage for stage in made.stages if stage.measured]
    if measured:
        names = ", ".join(f"{stage.measured:,} of {stage.name}" for stage in measured)
        say(console, f"measured    on {names} in {config.where}", "dim")
    if len(measured) < len(made.stages):
        assumed = config.plan
        talk = (
            f"{_guess(assumed.messages)} messages a conversation, {_guess(assumed.message_tokens)} tokens each, "
            f"{_guess(assumed.cached)} of their prompts cached"
        )
        each = (
            talk
            if made.stages[-1].name == CONVERSATIONS
            else f"{_guess(assumed.answer_tokens)} tokens an answer"
        )
        say(
            console,
            f"assumed     {each}, {_guess(assumed.item_tokens)} tokens a list entry: [plan] in the configuration says otherwise",
            "dim",
        )


def _guess(value: Guess) -> str:
    from camel.generation.config import Figure

    if isinstance(value, Figure):
        return f"{value.likely:g} ({min(value):g}–{max(value):g})"
    return f"{value:g}"


def _counts(scale: list[str]) -> dict[str, int]:
    from camel.core.errors import InputError

    counts: dict[str, int] = {}
    for text in scale:
        name, _, number = text.partition("=")
        try:
            counts[name.strip()] = int(number.replace("_", "").replace(",", ""))
        except ValueError:
            raise InputError(f"--scale takes LEVEL=N, such as task=100, not {text!r}") from None
    return counts


def _write_json(console: Console, value: dict[str, Any]) -> None:
    import msgspec

    console.file.write(msgspec.json.encode(value).decode() + "\n")
