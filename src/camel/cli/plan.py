"""`camel plan`: estimate what a configuration costs before any call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli import options as shared
from camel.cli.command import read_settings
from camel.cli.options import option
from camel.cli.output import echo, print_json, table

if TYPE_CHECKING:
    from camel.generation.capacity import ClusterPlan
    from camel.generation.config import Figure, GenerateConfig
    from camel.generation.forecast import CallRate
    from camel.generation.guesses import Need
    from camel.generation.plan import Plan

MONTH = 30 * 24.0
OTHER = (
    "camel generate does not continue it. The plan below is for a new run (--out PATH). To reuse what the changes\n"
    "allow: camel generate CONFIG.toml --reuse-lists FOLDER --dry-run\n"
)

ScaleOption = Annotated[list[str] | None, option("Estimate for another length of a level, which is one of the scenario's lists, such as task=100.", "LEVEL=N")]  # fmt: skip
# fmt: off
CLUSTER = ("hours", "replicas", "token_rate", "pilot", "gpu_price", "gpus", "workers_per_node")  # need --cluster
RateOption = Annotated[float | None, option("Speed of the endpoint, in calls per second; with --cluster, of one replica.", "N")]
ClusterFlag = Annotated[bool, shared.flag("--cluster", "Also estimate replicas, workers, disks, requests to the object store and memory.")]
HoursOption = Annotated[float | None, option("With --cluster: how long the run may take.", "HOURS")]
ReplicasOption = Annotated[int | None, option("With --cluster: number of replicas (servers of the model).", "N")]
TokenRate = Annotated[float | None, option("With --cluster: tokens per second of one replica: completion tokens, and prompt tokens that are not cached.", "N")]
PilotOption = Annotated[str, option("With --cluster: run in which to measure the speed of a replica.", "RUN", "--from")]
GpuPrice = Annotated[float | None, option("With --cluster: price of a GPU hour, in US dollars.", "USD")]
GpusOption = Annotated[int, option("With --cluster: GPUs per replica.", "N")]
PerNode = Annotated[int, option("With --cluster: workers per node, usually one per CPU.", "N")]
# fmt: on


def plan(
    context: typer.Context,
    config: shared.ConfigFile,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    rate: RateOption = None,
    scale: ScaleOption = None,
    local: shared.Local = False,
    batch: shared.Batch = False,
    cluster: ClusterFlag = False,
    hours: HoursOption = None,
    replicas: ReplicasOption = None,
    token_rate: TokenRate = None,
    pilot: PilotOption = "",
    gpu_price: GpuPrice = None,
    gpus: GpusOption = 1,
    workers_per_node: PerNode = 4,
    out: shared.Out = "",
    as_json: shared.AsJson = False,
) -> None:
    """Estimate calls, tokens, cost, storage and time."""
    from camel.core.errors import InputError

    if rate is not None and not 0 < rate < 1e9:
        raise InputError(f"--rate must be above 0, not {rate}")
    settings = read_settings(context, config, model, base_url, local=local, out=out, batch=batch)
    if cluster:
        from camel.generation.capacity import plan_cluster

        given = {name: context.params[name] for name in ("rate", *CLUSTER)}
        _show_cluster(plan_cluster(settings, counts=_counts(scale or []), **given), settings, as_json)
        return
    if alone := [one.opts[0] for one in shared.typed_parameters(context) if one.name in CLUSTER]:
        raise InputError(f"{alone[0]} needs --cluster")
    _show(settings, _counts(scale or []), rate, as_json)


def dry_run(config: GenerateConfig, as_json: bool, reuse: str = "") -> None:
    """Print the plan and one prompt of each kind. If `reuse` is given, plan a run in that folder that reuses lists of the configured one."""
    from msgspec.structs import replace

    from camel.scenarios import sample

    prompts = sample(config.loaded_scenario())
    if reuse:
        _show(replace(config, out=reuse), {}, None, as_json, prompts, config.where)
    else:
        _show(config, {}, None, as_json, prompts)
    if as_json:
        return
    for prompt in prompts:
        echo(f"\n── {prompt.title}", "bold")
        echo(prompt.text)


def _show(
    config: GenerateConfig,
    counts: dict[str, int],
    given: float | None,
    as_json: bool,
    prompts: Any = (),
    source: str = "",
) -> None:
    """Print a plan. If `source` is given, the plan is that of a run that reuses lists of the run at `source`."""
    from camel.generation.forecast import rate_of, reuse_lines, warnings
    from camel.generation.opening import changes
    from camel.generation.plan import committed_in, limits, make_plan
    from camel.generation.reuse import committed_with_lists, look
    from camel.runs.run import open_folder

    folder = open_folder(config.where)
    forked = look(config, source) if source else None
    known = committed_with_lists(config, source, forked) if forked else committed_in(folder, config)
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
            "reuse": forked and {"of": source, **forked._asdict()},
            "prompts": [{"title": prompt.title, "text": prompt.text} for prompt in prompts],
        }
        print_json(made.to_dict() | timing)
        return

    def show(lines: Iterable[str], style: str = "") -> None:
        for line in lines:
            echo(line, style)

    if changed:
        show(
            [
                f"{folder.address} was made from another configuration:",
                *(f"  {one}" for one in changed),
                OTHER,
            ],
            "yellow",
        )
    show(reuse_lines(source, forked, made) if forked else ())
    show([f"{made.scenario}: {made.shape}"], "bold")
    head, rows = _stages(made)
    table(head, rows, right=range(1, 6))
    show(_totals(made))
    show((f"budget      {line}" for line in warnings(made, config, left)), "yellow")
    show([*_times(made, config, rate), *_shard(made, config, rate)])
    show(_grounds(made, config), "dim")


def _show_cluster(cluster: ClusterPlan, config: GenerateConfig, as_json: bool) -> None:
    """Print the plan of a run with the cluster that it needs."""
    if as_json:
        print_json(cluster.to_dict())
        return
    made = cluster.plan
    echo(f"{made.scenario}: {made.shape}", "bold")
    table(*_stages(made), right=range(1, 6))
    for line in _totals(made):
        echo(line)
    table(("cluster", "amount", "from"), list(_cluster_rows(cluster)), right=(1,))
    if config.run.concurrency < cluster.concurrency:
        echo(f"run.concurrency is {config.run.concurrency:,}: set it to {cluster.concurrency:,}", "yellow")
    for line in _grounds(made, config):
        echo(line, "dim")


def _cluster_rows(cluster: ClusterPlan) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a cluster's table: quantity, amount, and what it is calculated from."""
    from camel.generation.config import Figure
    from camel.generation.forecast import span
    from camel.generation.plan import WORKER
    from camel.reports.numbers import duration, money, short

    def between(value: Figure, show: Any) -> str:
        low, likely, high = map(show, value)
        return f"{likely}{span(low, high, likely, gap=' ')}"

    yield "replicas", between(cluster.replicas, "{:,.0f}".format), f"{cluster.speed} each"
    yield "time", between(Figure(*(3600 * one for one in cluster.hours)), duration), ""
    yield "calls per second", f"{cluster.calls_per_second:,.0f}", ""
    yield "open conversations", f"{cluster.concurrency:,}", f"{cluster.seconds_per_call:.3g} s per call"
    yield "workers", f"{cluster.workers:,}", f"{WORKER} open conversations each"
    yield "nodes", f"{cluster.nodes:,}", ""
    journal = f"journals: {cluster.shards_per_worker:.2g} shards per worker, {short(cluster.journal_per_item)} bytes per item"
    yield "disk per node", f"{short(cluster.disk_per_node)} bytes", journal
    puts = f"{short(cluster.shard_puts)} for shards, {short(cluster.copy_puts)} for journals"
    yield "put requests", short(cluster.shard_puts + cluster.copy_puts), f"in an object store: {puts}"
    yield "driver's memory", f"{short(cluster.driver_memory)} bytes", f"{cluster.plan.shards:,} shards"
    yield "coordinator's memory", f"{short(cluster.coordinator_memory)} bytes", ""
    cost = between(cluster.gpu_money, money) if cluster.gpu_money else "unknown: pass --gpu-price"
    yield "cost of GPUs", cost, f"{between(cluster.gpu_hours, short)} GPU hours"


def _stages(made: Plan) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table of the stages: its head and its rows."""
    from camel.reports.numbers import counted, short

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
        return head[:-1], [row[:-1] for row in rows]
    return head, rows


def _totals(made: Plan) -> Iterator[str]:
    from camel.generation.forecast import span
    from camel.reports.numbers import counted, money, short

    need = made.need

    def between(name: str, unit: str = "") -> str:
        low, likely, high = (short(getattr(case, name)) for case in need)
        return f"{likely}{unit}{span(low, high, likely)}"

    yield f"calls       {between('calls')}"
    yield f"prompt      {between('prompt', ' tokens')}"
    share = need.likely.cached / need.likely.prompt if need.likely.prompt else 0
    yield f"  cached    {short(need.likely.cached)} tokens, {share:.0%} of the prompt"
    yield f"completion  {between('completion', ' tokens')}"
    cost = "unknown: the model has no known price; set model.price"
    if made.money is not None:
        low, likely, high = map(money, made.money)
        cost = f"{likely}{span(low, high, likely)}"
        cost += f"; {money(made.direct.likely)} without --batch" if made.direct and made.batched else ""
    yield f"money       {cost}"
    yield f"storage     {between('bytes', ' bytes')} in {counted(made.shards, 'shard')}"


def _times(made: Plan, config: GenerateConfig, rate: CallRate) -> Iterator[str]:
    from camel.generation.forecast import span
    from camel.generation.plan import WORKER, workers
    from camel.reports.numbers import duration, short

    def words(hours: Figure) -> str:
        low, likely, high = (duration(3600 * value) for value in hours)
        return f"{likely}{span(low, high, likely)}"

    whole = rate.hours(made.need)
    remaining = (
        f"; remaining: {words(rate.hours(made.left))}" if any(stage.done for stage in made.stages) else ""
    )
    count = _workers(config, rate)
    many = f"; on a cluster, {count:,} workers with {WORKER} conversations open in each" if count > 1 else ""
    yield f"time        {words(whole)}{remaining}: {rate.words}{many}"
    if whole.likely > MONTH:
        needed, seconds = made.need.likely.calls / (MONTH * 3600), _seconds(config)
        yield (
            f"in 30 days  {needed:,.0f} calls/s, {short(needed * seconds)} conversations open at {seconds:g} s per call, "
            f"{workers(needed, seconds):,} workers"
        )


def _shard(made: Plan, config: GenerateConfig, rate: CallRate) -> Iterator[str]:
    """Yield the size and cost of a shard, and the calls that are repeated if the process is killed."""
    from camel.reports.numbers import counted, money, short

    stage, need, price = made.stages[-1], made.need.likely, made.price
    each = stage.need.likely.times(min(stage.shard_size, stage.items) / stage.items)
    given = rate.calls_per_second.likely * _seconds(config) if rate.source == "given" else 0.0
    in_flight = min(given or config.run.concurrency, stage.items, need.calls)
    flying = need.times(in_flight / need.calls) if need.calls else need
    what = stage.name if stage.shard_size > 1 else stage.name.removesuffix("s")

    def cost(of: Need) -> str:
        return f", {money(price.cost(of.usage()))}" if price and price.cost(of.usage()) else ""

    yield (
        f"shard       {stage.shard_size:,} {what}: about {short(each.calls)} calls, "
        f"{short(each.prompt + each.completion)} tokens{cost(each)}, committed together"
    )
    repeated = f"{counted(round(flying.calls), 'call')} in flight{cost(flying)}"
    yield f"a kill      repeats at most the {repeated}: every other reply is stored before it is used"


def _seconds(config: GenerateConfig) -> float:
    """Return the likely number of seconds per call."""
    seconds = config.plan.seconds_per_call
    return seconds if isinstance(seconds, float | int) else seconds.likely


def _workers(config: GenerateConfig, rate: CallRate) -> int:
    """Return the number of worker processes needed for the rate."""
    from camel.generation.plan import WORKER, workers

    if rate.source == "given":
        return workers(rate.calls_per_second.likely, _seconds(config))
    return -(-config.run.concurrency // WORKER)


def _grounds(made: Plan, config: GenerateConfig) -> Iterator[str]:
    """Yield what the estimate is based on: measured shards or assumptions."""
    from camel.generation.config import CONVERSATIONS
    from camel.generation.guesses import FURTHER_CALLS, messages_assumed
    from camel.generation.plan import in_words

    measured = [stage for stage in made.stages if stage.measured]
    for where in dict.fromkeys(stage.elsewhere for stage in measured):
        own = (stage for stage in measured if stage.elsewhere == where)
        names = ", ".join(f"{stage.measured:,} of {stage.name}" for stage in own)
        yield f"measured    on {names} in {f'{where}, which has other settings' if where else config.where}"
    guessed = [not stage.measured and stage.done < stage.items for stage in made.stages]
    lists = any(guessed[:-1])
    if any(guessed):
        assumed = config.plan
        messages = messages_assumed(config.loaded_scenario(), assumed)
        each = f"{in_words(assumed.answer_tokens)} tokens per answer"
        if made.stages[-1].name == CONVERSATIONS:
            each = (
                f"{in_words(messages)} messages per conversation, {in_words(assumed.message_tokens)} tokens each, "
                f"{in_words(assumed.cached)} of their prompts cached"
            )
        entry = f", {in_words(assumed.item_tokens)} tokens per list entry" if lists else ""
        yield f"assumed     {each}{entry}; change it in [plan] of the configuration"
    if lists:
        further = f"{in_words(FURTHER_CALLS)} further calls per list"
        yield f"            and {further}, for entries that repeat others"


def _counts(scale: list[str]) -> dict[str, int]:
    from camel.core.errors import InputError

    counts: dict[str, int] = {}
    for text in scale:
        name, _, number = text.partition("=")
        try:
            counts[name.strip()] = int(number.replace("_", "").replace(",", ""))
        except ValueError:
            raise InputError(f"--scale must be LEVEL=N, such as task=100, not {text!r}") from None
    return counts
