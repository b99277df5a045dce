"""`camel plan`: what a configuration will take, before any call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli.options import AsJson, Batch, flag, option

if TYPE_CHECKING:
    from rich.console import Console

    from camel.generation.config import Figure, GenerateConfig
    from camel.generation.guesses import Need
    from camel.generation.plan import Plan
    from camel.generation.rate import CallRate

MONTH = 30 * 24.0


def plan(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What is to be generated.")],
    rate: Annotated[
        float | None, option("How fast the endpoint answers, in calls a second.", "CALLS_PER_S")
    ] = None,
    scale: Annotated[
        list[str] | None, option("Another size for a level of the scenario; repeatable.", "LEVEL=N")
    ] = None,
    local: Annotated[bool, flag("--local", "As camel generate --local would do it.")] = False,
    batch: Batch = False,
    out: Annotated[str, option("A run whose figures to go by.", "DIR")] = "",
    as_json: AsJson = False,
) -> None:
    """Estimate calls, tokens, money, storage and time. Where the run exists, from its own figures."""
    from rich.console import Console

    from camel.core.errors import InputError
    from camel.generation.config import check_place, read_config

    if rate is not None and not 0 < rate < 1e9:
        raise InputError(f"--rate must be above zero, not {rate}")
    settings = read_config(config, local=local)
    settings = settings.adjusted(local=local, batch=batch, out=out)
    if not out:
        check_place(config, settings)
    _show(Console(highlight=False), settings, _counts(scale or []), rate, as_json)


def dry_run(console: Console, config: GenerateConfig, as_json: bool, fork: str = "") -> None:
    """Show the plan, of a fork where one is meant, and one prompt of each kind."""
    from msgspec.structs import replace

    from camel.cli.panel import say
    from camel.scenarios import sample

    prompts = sample(config.loaded_scenario())
    if fork:
        _show(console, replace(config, out=fork), {}, None, as_json, prompts, config.where)
    else:
        _show(console, config, {}, None, as_json, prompts)
    if as_json:
        return
    for prompt in prompts:
        say(console, f"\n── {prompt.title}", "bold")
        say(console, prompt.text)


def _show(
    console: Console,
    config: GenerateConfig,
    counts: dict[str, int],
    given: float | None,
    as_json: bool,
    prompts: Any = (),
    source: str = "",
) -> None:
    """Print a plan; with a `source`, that of the fork of it."""
    from camel.generation.forecast import fork_lines, rate_of, warnings
    from camel.generation.fork import committed_by_fork, look
    from camel.generation.opening import changes
    from camel.generation.plan import committed_in, limits, make_plan
    from camel.runs.run import open_folder

    folder = open_folder(config.where)
    forked = look(config, source) if source else None
    known = committed_by_fork(config, source, forked) if forked else committed_in(folder, config)
    changed = changes(folder, config, config.loaded_scenario()) if folder.exists else []
    made = make_plan(config, counts=counts, committed=known)
    rate = rate_of(config, given, source)
    left = rate.hours(made.left)
    if as_json:
        timing = {
            "calls_per_second": rate.calls_per_second.likely,
            "rate": rate.source,
            "hours": list(rate.hours(made.need)),
            "hours_left": list(left),
            "workers": _workers(config, rate),
            "budget": {
                one.name: {"limit": one.limit, "expected": one.expected._asdict(), "enough": one.enough}
                for one in limits(made, config.budget, left)
            },
            "changed": changed,
            "fork": forked and {"of": source, **forked._asdict()},
            "prompts": [{"title": prompt.title, "text": prompt.text} for prompt in prompts],
        }
        _write_json(console, made.to_dict() | timing)
        return
    from camel.cli.panel import say

    if changed:
        say(console, f"{folder.address} was made from another configuration:", "yellow")
        for line in changed:
            say(console, f"  {line}", "yellow")
        say(
            console,
            "generate will not go on with it. What follows is a whole new run (--out DIR); for one that keeps the lists it\n"
            "can, camel generate CONFIG.toml --fork NEWDIR --dry-run\n",
            "yellow",
        )
    for line in fork_lines(source, forked, made) if forked else ():
        say(console, line)
    _stages(console, made)
    _totals(console, made)
    for line in warnings(made, config, left):
        say(console, f"budget      {line}", "yellow")
    _times(console, made, config, rate)
    _shard(console, made, config, rate)
    _grounds(console, made, config)


def _stages(console: Console, made: Plan) -> None:
    from camel.cli.panel import say, table
    from camel.reports.numbers import counted, short

    say(console, f"{made.scenario}: {made.shape}", "bold")
    rows = [
        (
            stage.name,
            f"{stage.items:,}",
            f"{stage.shards:,}",
            short(round(stage.need.likely.calls)),
            short(stage.need.likely.prompt),
            short(stage.need.likely.completion),
            f"{stage.done:,} done"
            if stage.done
            else counted(stage.measured, "item")
            if stage.measured
            else "",
        )
        for stage in made.stages
    ]
    head = ("stage", "items", "shards", "calls", "prompt tokens", "completion tokens", "measured")
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    table(console, head, rows, right=range(1, 6))


def _totals(console: Console, made: Plan) -> None:
    from camel.cli.panel import say
    from camel.generation.forecast import span
    from camel.reports.numbers import counted, money, short

    need = made.need

    def between(name: str, unit: str = "") -> str:
        low, likely, high = (short(getattr(case, name)) for case in need)
        return f"{likely}{unit}{span(low, high, likely)}"

    say(console, f"calls       {between('calls')}")
    say(console, f"prompt      {between('prompt', ' tokens')}")
    share = need.likely.cached / need.likely.prompt if need.likely.prompt else 0
    say(console, f"  cached    {short(need.likely.cached)} tokens, {share:.0%} of the prompt")
    say(console, f"completion  {between('completion', ' tokens')}")
    cost, direct = made.money, made.direct
    if cost is None:
        say(
            console,
            "money       unknown: the model has no price in the catalogue; give it one as model.price",
        )
    else:
        say(
            console,
            f"money       {money(cost.likely)}{span(money(cost.low), money(cost.high), money(cost.likely))}"
            + (f"; {money(direct.likely)} without --batch" if direct and made.batched else ""),
        )
    say(console, f"storage     {between('bytes', ' bytes')} in {counted(made.shards, 'shard')}")


def _times(console: Console, made: Plan, config: GenerateConfig, rate: CallRate) -> None:
    from camel.cli.panel import say
    from camel.generation.forecast import span
    from camel.generation.plan import WORKER, workers
    from camel.reports.numbers import duration, short

    def words(hours: Figure) -> str:
        low, likely, high = (duration(3600 * value) for value in hours)
        return f"{likely}{span(low, high, likely)}"

    whole = rate.hours(made.need)
    left = f"; to go: {words(rate.hours(made.left))}" if any(stage.done for stage in made.stages) else ""
    count = _workers(config, rate)
    many = f"; on a cluster, {count:,} workers with {WORKER} conversations open in each" if count > 1 else ""
    say(console, f"time        {words(whole)}{left}: {rate.words}{many}")
    if whole.likely > MONTH:
        needed, seconds = made.need.likely.calls / (MONTH * 3600), _seconds(config)
        say(
            console,
            f"in 30 days  {needed:,.0f} calls/s, {short(needed * seconds)} conversations open at {seconds:g} s a call, "
            f"{workers(needed, seconds):,} workers",
        )


def _shard(console: Console, made: Plan, config: GenerateConfig, rate: CallRate) -> None:
    """Say what is committed together, and what a kill could cost."""
    from camel.cli.panel import say
    from camel.reports.numbers import counted, money, short

    stage, need, price = made.stages[-1], made.need.likely, made.price
    each = stage.need.likely.times(min(stage.shard_size, stage.items) / stage.items)
    given = rate.calls_per_second.likely * _seconds(config) if rate.source == "given" else 0.0
    in_flight = min(given or config.run.concurrency, stage.items, need.calls)
    flying = need.times(in_flight / need.calls) if need.calls else need
    what = stage.name if stage.shard_size > 1 else stage.name.removesuffix("s")

    def cost(of: Need) -> str:
        return f", {money(price.cost(of.usage()))}" if price and price.cost(of.usage()) else ""

    say(
        console,
        f"shard       {stage.shard_size:,} {what}: about {short(each.calls)} calls, "
        f"{short(each.prompt + each.completion)} tokens{cost(each)}, committed together",
    )
    say(
        console,
        f"a kill      repeats at most the {counted(round(flying.calls), 'call')} in flight"
        f"{cost(flying)}: every other reply is on disk before it is used",
    )


def _seconds(config: GenerateConfig) -> float:
    """A call, likely."""
    seconds = config.plan.seconds_per_call
    return seconds if isinstance(seconds, float | int) else seconds.likely


def _workers(config: GenerateConfig, rate: CallRate) -> int:
    """Processes that keep the rate up."""
    from camel.generation.plan import WORKER, workers

    if rate.source == "given":
        return workers(rate.calls_per_second.likely, _seconds(config))
    return -(-config.run.concurrency // WORKER)


def _grounds(console: Console, made: Plan, config: GenerateConfig) -> None:
    """Say what the figures rest on."""
    from camel.cli.panel import say
    from camel.generation.config import CONVERSATIONS
    from camel.generation.guesses import FURTHER_CALLS, messages_assumed
    from camel.generation.plan import in_words

    measured = [stage for stage in made.stages if stage.measured]
    if measured:
        for where in dict.fromkeys(stage.elsewhere for stage in measured):
            names = ", ".join(
                f"{stage.measured:,} of {stage.name}" for stage in measured if stage.elsewhere == where
            )
            other = f"{where}, which has other settings" if where else config.where
            say(console, f"measured    on {names} in {other}", "dim")
    if any(not stage.measured and stage.done < stage.items for stage in made.stages):
        assumed = config.plan
        messages = messages_assumed(config.loaded_scenario(), assumed)
        talk = (
            f"{in_words(messages)} messages a conversation, {in_words(assumed.message_tokens)} tokens each, "
            f"{in_words(assumed.cached)} of their prompts cached"
        )
        each = (
            talk
            if made.stages[-1].name == CONVERSATIONS
            else f"{in_words(assumed.answer_tokens)} tokens an answer"
        )
        say(
            console,
            f"assumed     {each}, {in_words(assumed.item_tokens)} tokens a list entry: [plan] in the configuration says otherwise",
            "dim",
        )
    if any(not stage.measured and stage.done < stage.items for stage in made.stages[:-1]):
        say(
            console,
            f"            and {in_words(FURTHER_CALLS)} further calls a list, for entries that repeat others",
            "dim",
        )


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
