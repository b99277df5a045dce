"""The configuration of a generation, read from TOML and saved with the run.

The one decision to know: settings that determine the data (scenario, model, sampling, seed) are fingerprinted, and a run can
be resumed only with the same ones. Endpoints, concurrency and budgets can change each time.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from camel.core.checks import similar
from camel.core.dialogue import GOAL, Dialogue
from camel.core.errors import InputError
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling
from camel.core.results import ResultSettings
from camel.core.toml import convert_table, read_table
from camel.generation.seats import JUDGE, MEMBERS, SEATS, Seat, models_at, read_candidate, read_seats
from camel.generation.toolboxes import RunTools
from camel.generation.validation import Validation
from camel.inputs.settings import Inputs
from camel.jobs.budget import Budget
from camel.models.local import LOCAL, LOCAL_SAMPLING
from camel.models.prices import ModelPrice
from camel.models.spec import ModelSpec
from camel.models.trust import trusted_hosts
from camel.runs.copies import CopyLimits
from camel.runs.run import RunFolder
from camel.scenarios import Meeting, RolePlay, Scenario, known, load, shipped
from camel.scenarios.checking import columns_of
from camel.scenarios.critics import CriticSettings
from camel.storage.store import is_remote
from camel.tools.settings import ToolSettings

LOCAL_CONCURRENCY = 2
"""Number of concurrent conversations with the local model. With more, calls would only wait for each other."""
SPECIFIED = "specified"
"""The name of the stage that specifies tasks, if that is done before the conversations start."""
CONVERSATIONS, ANSWERS = "conversations", "answers"
"""The names of the stage with the run's records: conversations, or answers to questions."""
LISTS_PER_SHARD = 256
MOST_SHARDS = 100_000
"""Maximum number of shards at the default shard size. Each has a marker, and a resume lists all markers."""


class RunSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the work is done; can change when a run is resumed."""

    concurrency: int = 64
    """Maximum number of concurrent conversations."""
    outage_patience: float = 30.0
    """Minutes to wait for an endpoint that does not answer; then the run stops."""
    cut_replies: Literal["fail", "keep"] = "fail"
    """What to do with a reply that was cut off at the token limit: `fail` the conversation, or `keep` the reply and mark it."""
    copy_every: float = CopyLimits().seconds
    """On a cluster without a shared disk: seconds of replies that the loss of a node may cost, apart from calls in flight."""
    copy_bytes: int = CopyLimits().bytes
    """The same in bytes of replies, per shard."""


class Figure(NamedTuple):
    """An estimated number: low, likely and high."""

    low: float
    likely: float
    high: float


Guess = float | Figure
"""A known number, or an estimate with low, likely and high values."""


class Assumptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Assumptions of an estimate until the run's own measurements replace them. They have no other effect.

    The defaults are typical of chat models in the paper's role plays, with a wide range: the length of messages differs by a
    factor of five between models.
    """

    messages: Guess = Figure(10, 20, 40)
    """Average number of messages in a conversation, up to the scenario's limit. Prompt tokens grow with the square of it."""
    spread: float = 0.5
    """Standard deviation of the number of messages, as a share of the average."""
    message_tokens: Guess = Figure(50, 150, 350)
    """Average tokens of a message, over instructions and solutions."""
    answer_tokens: Guess = Figure(60, 300, 900)
    """Tokens of the answer to a question."""
    item_tokens: Guess = Figure(5, 12, 30)
    """Tokens of one entry of a list."""
    cached: Guess = Figure(0.9, 0.5, 0.0)
    """Share of prompt tokens that the endpoint reads from its cache. The highest share belongs to the low estimate."""
    characters_per_token: float = 4.0
    seconds_per_call: Guess = Figure(2, 5, 15)
    """Seconds per call, used until the run's log has a measured rate."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Guess = getattr(self, name)
            least = 0 if name in ("cached", "spread") else 1e-9
            numbers: tuple[float, ...] = tuple(value) if isinstance(value, Figure) else (value,)
            if any(not least <= number < 1e9 for number in numbers):
                raise InputError(f"plan.{name} must be above zero, not {value!r}")


class GenerateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The complete configuration of a generation, as plain data."""

    scenario: str
    """A shipped scenario's name, or the path of a folder."""
    model: ModelSpec
    out: str = ""
    """The run's folder. Default: `runs/<scenario>`."""
    counts: dict[str, int] = {}
    """Sizes of the scenario's levels that replace the declared ones."""
    lists: Literal["shipped", "asked"] = "shipped"
    """`shipped` uses the lists that come with the scenario; `asked` asks the model for all of them, as in the paper."""
    sampling: Sampling | None = None
    critic: CriticSettings | None = None
    """The critic in role plays. Default: the scenario's."""
    models: dict[str, Seat] = {}
    """Models of seats, by the seat's name. Other seats use `model`."""
    judge: Seat | None = None
    """The models that judge finished conversations, which a file declares as `[models.judge]`. Default: `model`."""
    inputs: Inputs | None = None
    """The table whose rows are the items of a scenario without levels."""
    result: ResultSettings | None = None
    """The structured result of each conversation. Default: the scenario's."""
    history: HistoryPolicy | None = None
    """What happens to a speaker's older turns when its prompt no longer fits. Default: the scenario's setting."""
    seed: int | None = None
    """Random seed. Each item gets its own seed derived from it, so that endpoints with seeds give reproducible replies."""
    shard_size: int | None = None
    """Items per shard, which are committed together. Default: 5 % of all items, at most 512, and more in runs that would have
    more than 100,000 shards. Fixed when a run is created."""
    validate: Validation | None = None
    """The condition that conversations must meet. Others are tried again, a limited number of times."""
    tools: ToolSettings | None = None
    """Tools that the scenario may use, servers, and limits."""
    acknowledge: tuple[str, ...] = ()
    """Names or labels of gated scenarios that you acknowledge."""
    run: RunSection = RunSection()
    budget: Budget = Budget()
    plan: Assumptions = Assumptions()
    """Assumptions for estimates only."""

    def __post_init__(self) -> None:
        if (self.shard_size is not None and self.shard_size < 1) or self.run.concurrency < 1:
            raise InputError("shard_size and run.concurrency must be at least 1")
        if min(self.run.copy_every, self.run.copy_bytes) <= 0:
            raise InputError("run.copy_every and run.copy_bytes must be above zero")
        prices: dict[str, ModelPrice | None] = {}
        for spec in (self.model, *models_at(self.models).values()):
            if prices.setdefault(spec.name, spec.cost()) != spec.cost():
                raise InputError(
                    f"the model '{spec.name}' has two prices in this configuration: use the same price for both"
                )

    @property
    def where(self) -> str:
        """The run's folder, or an address such as `s3://bucket/prefix`."""
        return self.out or f"runs/{Path(self.scenario).name}"

    def loaded_scenario(self) -> Scenario:
        """Return the scenario at its configured size. Raise an `InputError` if it may not be run."""
        scenario = load(self.scenario, self.lists).resized(self.counts)
        if self.inputs is not None:  # its rows replace the scenario's lists
            scenario = replace(scenario, levels=())
        scenario.gate(self.acknowledge)
        if self.critic and not isinstance(scenario.end, RolePlay):
            raise InputError(f"'{scenario.name}' is not a role play, so it has no critic: remove [critic]")
        self.check_seats(scenario)
        self.check_inputs(scenario)
        RunTools(self, scenario)  # refuses tools that the user does not allow
        for name, given in (("history", self.history), ("[validate]", self.validate)):
            if given and not scenario.has_conversations:
                raise InputError(f"'{scenario.name}' has no conversations: remove {name}")
        return scenario

    @property
    def judges(self) -> tuple[ModelSpec, ...]:
        """The models that judge finished conversations."""
        return tuple(one.model for one in self.judge.candidates) if self.judge else (self.model,)

    @property
    def is_local(self) -> bool:
        """Whether the model is the small local one that comes with CAMEL."""
        return self.model.file == LOCAL

    def adjusted(
        self,
        *,
        local: bool = False,
        model: str = "",
        base_url: str = "",
        concurrency: int | None = None,
        batch: bool = False,
        out: str = "",
        budget: Mapping[str, float | None] | None = None,
        seats: Mapping[str, str] | None = None,
    ) -> GenerateConfig:
        """Return the configuration changed by options of a command line. If `local` is true, use the small local model. `seats`
        maps seats to names of models. Another model or endpoint keeps only the settings of `[model]` that apply to it."""
        config = self
        if own := {name: value for name, value in (("name", model), ("base_url", base_url)) if value}:
            table = read_candidate(own, msgspec.to_builtins(config.model))["model"]
            if base_url:
                table.pop("trusted", None)  # the caller names the endpoint
            config = replace(config, model=msgspec.convert(table, ModelSpec))
        if named := {name: {"model": model} for name, model in (seats or {}).items() if model}:
            read = read_seats(named, msgspec.to_builtins(config.model))
            config = replace(config, models={**config.models, **msgspec.convert(read, dict[str, Seat])})
        if given := {name: value for name, value in (budget or {}).items() if value is not None}:
            config = replace(config, budget=replace(config.budget, **given))
        if local or config.is_local:
            sampling = config.sampling or LOCAL_SAMPLING
            if sampling.max_tokens is None:
                sampling = replace(sampling, max_tokens=LOCAL_SAMPLING.max_tokens)
            config = replace(
                config,
                model=ModelSpec(LOCAL, guided="llama.cpp"),
                models={},
                sampling=sampling,
                run=replace(config.run, concurrency=LOCAL_CONCURRENCY, cut_replies="keep"),
                # Do not use the folder of the configured model's run.
                out=out or (config.out if config.is_local and config.out else f"{config.where}-local"),
            )
        if concurrency is not None:
            config = replace(config, run=replace(config.run, concurrency=concurrency))
        if batch:
            config = replace(config, model=replace(config.model, batch=True))
        return replace(config, out=out) if out else config

    def check_seats(self, scenario: Scenario) -> None:
        """Raise an `InputError` for a seat that the scenario does not have."""
        end = scenario.end
        if isinstance(end, Meeting):
            there = {"lists", *(f"{MEMBERS}.{name}" for name in end.society.names)}
        elif isinstance(end, Dialogue):
            there = {"lists", *end.names, *([GOAL] if end.stops.goal else [])}
        elif isinstance(end, RolePlay):
            there = {*SEATS} - (set() if self.critic_of(scenario) else {"critic"})
            there -= set() if end.specify else {"specifier"}
        else:
            there = {"assistant", "lists"}
        for name in self.models.keys() - there:
            raise InputError(
                f"[models.{name}] is not in '{scenario.name}'{similar(name, there)}. Use one of {', '.join(sorted(there))}"
            )
        for name in {*SEATS[2:], GOAL} & self.models.keys():
            for one in self.models[name].candidates:
                if one.tools or (one.prompt and name != "specifier"):
                    raise InputError(f"[models.{name}] must not have a prompt or tools: remove them")

    def check_inputs(self, scenario: Scenario) -> None:
        """Raise an `InputError` if the scenario needs a table and has none, or has one that it cannot use."""
        columns = columns_of(scenario)
        if columns and self.inputs is None:
            raise InputError(
                f"'{scenario.name}' takes {', '.join(columns)} from a table: add [inputs] with from = \"table.csv\""
            )
        if self.inputs is not None and self.counts:
            raise InputError("counts are sizes of lists, and [inputs] replaces the lists: remove counts")

    def specifies_first(self, scenario: Scenario) -> bool:
        """Return whether all tasks are specified before the conversations start, which batches need."""
        return self.model.batch and isinstance(scenario.end, RolePlay) and scenario.end.specify

    def critic_of(self, scenario: Scenario) -> CriticSettings | None:
        """Return the critic's settings, or None if there is no critic."""
        end = scenario.end
        return self.critic or (end.critic or None if isinstance(end, RolePlay) else None)

    def result_of(self, scenario: Scenario) -> ResultSettings | None:
        """Return the settings of the structured result, or None if there is none."""
        return self.result or scenario.result or None

    def decisive(self, scenario: Scenario) -> dict[str, Any]:
        """Return the settings that determine the data. A run can be resumed only if they are unchanged."""
        # Only if set: runs from before critics, histories and seats do not have these fields.
        optional: dict[str, Any] = {"critic": msgspec.to_builtins(self.critic)} if self.critic else {}
        optional |= {"model.weights": self.model.weights} if self.model.weights else {}
        optional |= {"result": msgspec.to_builtins(self.result)} if self.result else {}
        # Absent if the model is asked for all lists.
        optional |= {"lists": "shipped"} if any(one.given and one.prompt for one in scenario.levels) else {}
        optional |= {"validate": self.validate.validator().identity()} if self.validate else {}
        optional |= {"tools": tools.identity()} if (tools := RunTools(self, scenario)) else {}
        if self.history:  # the window decides when turns are dropped
            optional |= {"history": self.history, "model.context_tokens": self.model.window}
        for name, seat in self.models.items():
            optional[f"models.{name}"] = [one.identity() for one in seat.candidates]
            optional[f"models.{name}.name"] = [one.model.name for one in seat.candidates]
        return optional | {
            "scenario": self.scenario,
            "scenario_fingerprint": scenario.fingerprint(),
            "counts": {level.name: level.count for level in scenario.levels},
            "model.name": self.model.name,
            "model.guided": self.model.guided,
            "sampling": msgspec.to_builtins(self.sampling),
            "seed": self.seed,
            **(
                {"inputs": {"columns": columns_of(scenario), "limits": self.inputs.limits}}
                if self.inputs
                else {"shard_size": self.shard_size or shard_size_for(scenario.count)}
            ),
        }


def shard_size_for(count: int) -> int:
    """Return the default shard size: small for a small stage, so that results appear early, and large for a very large one."""
    return max(min(512, count // 20), -(-count // MOST_SHARDS), 1)


def last_stage(scenario: Scenario) -> str:
    """Return the name of the stage with the run's records."""
    return CONVERSATIONS if scenario.has_conversations else ANSWERS


def read_config(path: Path, *, local: bool = False) -> GenerateConfig:
    """Read a configuration file. Errors name the file and the field. If `local` is true, another model will be used. A
    scenario's folder is searched next to the file first, then in the current folder."""
    table = read_table(
        path, missing=f"there is no such file. Create one with `camel init {shlex.quote(str(path))}`"
    )
    if local and isinstance(model := table.setdefault("model", {}), dict):
        cast("dict[str, Any]", model).setdefault("name", LOCAL)
    if isinstance(seats := table.get("models"), dict) and isinstance(default := table.get("model"), dict):
        try:
            read = read_seats(cast("dict[str, Any]", seats), cast("dict[str, Any]", default))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        judge = read.pop(JUDGE, None)
        table |= {"models": read} | ({"judge": judge} if judge else {})
    config = _as_named(convert_table(table, GenerateConfig, path), trusted_hosts())
    inputs = config.inputs and config.inputs.located(path.parent)
    result = config.result and config.result.load(lambda name: (path.parent / name).read_text("utf-8-sig"))
    return replace(config, scenario=_scenario(path, config.scenario), inputs=inputs, result=result)


def _as_named(config: GenerateConfig, trusted: tuple[str, ...]) -> GenerateConfig:
    """Return the configuration with models that send secrets only to hosts that the user trusts, because a file names them."""

    def seat(one: Seat) -> Seat:
        models = (replace(each, model=replace(each.model, trusted=trusted)) for each in one.candidates)
        return replace(one, candidates=tuple(models))

    seats = {name: seat(one) for name, one in config.models.items()}
    judge = config.judge and seat(config.judge)
    return replace(config, model=replace(config.model, trusted=trusted), models=seats, judge=judge)


def check_place(path: Path, config: GenerateConfig) -> None:
    """Raise an `InputError` if the command would start a new run although there is one next to the configuration file. `out` is
    relative to the current folder, so a user in another folder would start and pay for a second run."""
    here = Path(config.where)
    beside = path.parent / here
    if is_remote(config.where) or beside.absolute() == here.absolute():
        return
    if RunFolder(beside).exists and not RunFolder(here).exists:
        raise InputError(
            f"there is no run '{here}' here, but one next to '{path}': --out {shlex.quote(str(beside))} resumes it, --out {shlex.quote(str(here))} starts another"
        )


def _scenario(path: Path, name: str) -> str:
    """Return a configuration's scenario: the name of a shipped one, or the path of a folder."""
    places = [path.parent / name, Path(name).expanduser()]
    if name in shipped():
        return name
    for place in places:
        if place.exists():
            return f"./{place}" if str(place) in shipped() else str(place)
    if name in known():
        return name
    looked = " and ".join(dict.fromkeys(str(place) for place in places))
    raise InputError(
        f"{path}: there is no scenario {name!r}{similar(name, known())}. Use one of {', '.join(known())}, "
        f"or the path of your own scenario's folder (searched: {looked})"
    )
