"""The one configuration object of a generation, read from TOML and saved with the run.

The one decision to know: what decides the data (scenario, model, sampling, seed) is fingerprinted, and a run goes on only
under the same; where the calls are sent, how many at once and how much may be spent can change from one start to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from camel.core.checks import similar
from camel.core.errors import InputError
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling
from camel.core.toml import convert_table, read_table
from camel.generation.seats import MEMBERS, SEATS, Seat, models_at, read_candidate, read_seats
from camel.jobs.budget import Budget
from camel.models.local import LOCAL, LOCAL_SAMPLING
from camel.models.prices import ModelPrice
from camel.models.spec import ModelSpec
from camel.runs.run import RunFolder
from camel.scenarios import Meeting, RolePlay, Scenario, known, load, shipped
from camel.scenarios.critics import CriticSettings
from camel.storage.store import is_remote

LOCAL_CONCURRENCY = 2
"""Conversations at once with the tiny model: more would only wait for each other."""
SPECIFIED = "specified"
"""The stage of the tasks, where they are specified before the conversations begin."""
CONVERSATIONS, ANSWERS = "conversations", "answers"
"""The stage whose records are the run's."""
LISTS_PER_SHARD = 256


class RunSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the work is done; can change between starts."""

    concurrency: int = 64
    """Conversations in flight."""
    outage_patience: float = 30.0
    """Minutes for which the run waits for an endpoint that answers nobody; then it stops."""
    cut_replies: Literal["fail", "keep"] = "fail"
    """What becomes of a reply that ends at the limit of tokens: the conversation fails, or it is kept and marked."""


class Figure(NamedTuple):
    """What is guessed, and between what it may well be."""

    low: float
    likely: float
    high: float


Guess = float | Figure
"""A number where you know it, three (low, likely, high) where you do not."""


class Assumptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an estimate takes for granted until the run's own figures replace it. Decides nothing else.

    The defaults are what chat models of the paper's kind did in its role plays, with a wide range: how much a model
    writes differs by a factor of five between models.
    """

    messages: Guess = Figure(10, 20, 40)
    """Of a conversation, on average; never more than the scenario's limit. What is sent grows with its square."""
    spread: float = 0.5
    """Standard deviation of the number of messages, as a share of their average."""
    message_tokens: Guess = Figure(50, 150, 350)
    """Of a message, on average over instructions and solutions."""
    answer_tokens: Guess = Figure(60, 300, 900)
    """Of the answer to a question."""
    item_tokens: Guess = Figure(5, 12, 30)
    """Of one entry of a list."""
    cached: Guess = Figure(0.9, 0.5, 0.0)
    """Share of a conversation's prompt tokens that the endpoint answers from its cache: high where it costs little."""
    characters_per_token: float = 4.0
    seconds_per_call: Guess = Figure(2, 5, 15)
    """Until the run has been going for a while and its log says how fast it is."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Guess = getattr(self, name)
            least = 0 if name in ("cached", "spread") else 1e-9
            numbers: tuple[float, ...] = tuple(value) if isinstance(value, Figure) else (value,)
            if any(not least <= number < 1e9 for number in numbers):
                raise InputError(f"plan.{name} must be above zero, not {value!r}")


class GenerateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything a generation is made from: plain data."""

    scenario: str
    """A shipped scenario's name, or the path of a folder."""
    model: ModelSpec
    out: str = ""
    """The run's folder; left out: `runs/<scenario>`."""
    counts: dict[str, int] = {}
    """Other sizes for the scenario's levels."""
    lists: Literal["shipped", "asked"] = "shipped"
    """Whether lists that come with the scenario are used, or the model is asked for all of them, as in the paper."""
    sampling: Sampling | None = None
    critic: CriticSettings | None = None
    """Who chooses what is said in role plays; left out: as the scenario declares."""
    models: dict[str, Seat] = {}
    """By seat, who sits there; a seat that is not named has `model`."""
    history: HistoryPolicy | None = None
    """What becomes of a speaker's older turns where its prompt no longer fits; left out: as the scenario declares."""
    seed: int | None = None
    """Makes each call's seed a function of its item, for endpoints that can repeat themselves."""
    shard_size: int | None = None
    """Items that are committed together; left out: a twentieth of them, at most 512. Decided when a run is made."""
    acknowledge: tuple[str, ...] = ()
    """Names of gated scenarios that you know the nature of."""
    run: RunSection = RunSection()
    budget: Budget = Budget()
    plan: Assumptions = Assumptions()
    """For estimates only."""

    def __post_init__(self) -> None:
        if (self.shard_size is not None and self.shard_size < 1) or self.run.concurrency < 1:
            raise InputError("shard_size and run.concurrency must be at least 1")
        prices: dict[str, ModelPrice | None] = {}
        for spec in (self.model, *models_at(self.models).values()):
            if prices.setdefault(spec.name, spec.cost()) != spec.cost():
                raise InputError(
                    f"{spec.name} has two prices in this configuration: what it costs is counted by its name"
                )

    @property
    def where(self) -> str:
        """Where the run lives: a folder, or an address such as `s3://bucket/prefix`."""
        return self.out or f"runs/{Path(self.scenario).name}"

    def loaded_scenario(self) -> Scenario:
        """The scenario at its configured size, if it may be run."""
        scenario = load(self.scenario, self.lists).resized(self.counts)
        scenario.gate(self.acknowledge)
        if self.critic and not isinstance(scenario.end, RolePlay):
            raise InputError(f"{scenario.name} is no role play, and a [critic] needs one: take it out")
        self.check_seats(scenario)
        if self.history and not scenario.talks:
            raise InputError(f"{scenario.name} has no conversations, and history is for those: take it out")
        return scenario

    @property
    def is_local(self) -> bool:
        """Whether the tiny model on this machine is meant."""
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
        """The configuration with the options of a command line; `local` is the small model on this machine, `seats` names models.

        Another model or endpoint keeps only the settings of `[model]` that apply to it.
        """
        config = self
        if own := {name: value for name, value in (("name", model), ("base_url", base_url)) if value}:
            table = read_candidate(own, msgspec.to_builtins(config.model))["model"]
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
                # Not into the folder of the model that the configuration names.
                out=out or (config.out if config.is_local and config.out else f"{config.where}-local"),
            )
        if concurrency is not None:
            config = replace(config, run=replace(config.run, concurrency=concurrency))
        if batch:
            config = replace(config, model=replace(config.model, batch=True))
        return replace(config, out=out) if out else config

    def check_seats(self, scenario: Scenario) -> None:
        """Raise where a seat is named that the scenario does not have."""
        end = scenario.end
        if isinstance(end, Meeting):
            there = {"lists", *(f"{MEMBERS}.{name}" for name in end.society.names)}
        elif isinstance(end, RolePlay):
            there = {*SEATS} - (set() if self.critic_of(scenario) else {"critic"})
            there -= set() if end.specify else {"specifier"}
        else:
            there = {"assistant", "lists"}
        for name in self.models.keys() - there:
            raise InputError(f"{scenario.name} has no seat models.{name}; it has {', '.join(sorted(there))}")
        for name in ("critic", "lists"):
            if name in self.models and any(one.prompt for one in self.models[name].candidates):
                raise InputError(f"models.{name} takes no prompt: the scenario has it")

    def specifies_first(self, scenario: Scenario) -> bool:
        """Whether all tasks are specified before the conversations begin: what is asked in batches cannot wait in between."""
        return self.model.batch and isinstance(scenario.end, RolePlay) and scenario.end.specify

    def critic_of(self, scenario: Scenario) -> CriticSettings | None:
        """Who chooses what is said, if anybody does."""
        end = scenario.end
        return self.critic or (end.critic or None if isinstance(end, RolePlay) else None)

    def decisive(self, scenario: Scenario) -> dict[str, Any]:
        """What decides the data: a run goes on only if this is unchanged."""
        # Only where there is one: runs from before there were critics, histories and seats have no such fields.
        optional: dict[str, Any] = {"critic": msgspec.to_builtins(self.critic)} if self.critic else {}
        optional |= {"model.weights": self.model.weights} if self.model.weights else {}
        # Absent where all lists are asked for.
        optional |= {"lists": "shipped"} if any(one.given and one.prompt for one in scenario.levels) else {}
        if self.history:  # when something is forgotten depends on the window
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
            "shard_size": self.shard_size or shard_size_for(scenario.count),
        }


def shard_size_for(count: int) -> int:
    """Items to commit together where nobody says: few of a small stage, so that it has something to show early."""
    return min(512, max(1, count // 20))


def last_stage(scenario: Scenario) -> str:
    """The stage whose records are the run's."""
    return CONVERSATIONS if scenario.talks else ANSWERS


def read_config(path: Path, *, local: bool = False) -> GenerateConfig:
    """Read a configuration file; an error names the file and the field. `local` says that another model will speak.

    A scenario's folder is looked for beside the file first, then from the current folder.
    """
    table = read_table(path, missing=f"there is none; camel init {path} makes one")
    if local and isinstance(model := table.setdefault("model", {}), dict):
        cast("dict[str, Any]", model).setdefault("name", LOCAL)
    if isinstance(seats := table.get("models"), dict) and isinstance(default := table.get("model"), dict):
        try:
            table["models"] = read_seats(cast("dict[str, Any]", seats), cast("dict[str, Any]", default))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    config = convert_table(table, GenerateConfig, path)
    return msgspec.structs.replace(config, scenario=_scenario(path, config.scenario))


def check_place(path: Path, config: GenerateConfig) -> None:
    """Refuse a start that would pay again, elsewhere, for a run that lies beside its configuration.

    `out` is meant from the current folder, so that somebody who comes back to another one would begin anew.
    """
    here = Path(config.where)
    beside = path.parent / here
    if is_remote(config.where) or beside.absolute() == here.absolute():
        return
    if RunFolder(beside).exists and not RunFolder(here).exists:
        raise InputError(
            f"there is no run {here} here, but one beside {path}: --out {beside} goes on with it, --out {here} makes another"
        )


def _scenario(path: Path, name: str) -> str:
    """Where a configuration's scenario is: a shipped one's name stays, a folder is found."""
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
        f"{path}: there is no scenario {name!r}{similar(name, known())}; known: {', '.join(known())}; or the path "
        f"of a folder of your own: looked for {looked}"
    )
