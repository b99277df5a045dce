"""What a run will take, before it starts and while it goes on.

Arithmetic over the scenario's counts: nothing is listed, so 300 million items cost no more than ten. The one decision to
know: an assumption is used only until committed shards say better, the run's own or those of the run that it was forked
from, and the answer is a range either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import ceil, sqrt
from statistics import stdev
from typing import Any, Literal, NamedTuple

import msgspec

from camel.core.errors import CamelError
from camel.core.message import Usage
from camel.core.society import Society
from camel.generation.campaign import ANSWERS, CONVERSATIONS, LISTS_PER_SHARD, MONEY, changes, usage_of
from camel.generation.config import Assumptions, Figure, GenerateConfig, Guess, shard_size_for
from camel.jobs.budget import Budget
from camel.models.catalogue import ModelPrice
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder
from camel.scenarios import Level, Meeting, Question, RolePlay, Scenario, sample
from camel.scenarios.critics import CriticSettings

WORKER = 256
"""Conversations that one worker process keeps open."""
TOKENS_PER_WORD = 1.4
VERDICT_TOKENS = 60
"""Of a critic's answer."""
TOKENS_PER_MESSAGE = 4
"""What a chat template puts around a message."""
FURTHER_CALLS = Figure(0.0, 0.1, 2.0)
"""For a list, beyond the fewest that could do: repeats and bad lines are made up for, which is seldom needed."""
STORED = Figure(0.15, 0.4, 0.5)
"""Bytes on disk for each byte of text, in Parquet with zstd: less where a model repeats itself."""
ONE_SHARD = 0.25
"""How far off a single shard's average is taken to be, and at least that of a run with other settings."""
ONE_START = 0.25
"""How far off the rate of one start is taken to be: endpoints have good and bad days."""
SAMPLE = 2_000
"""Markers that are read for an estimate: a run of any size can be planned, or started, after a few seconds."""
AT_LEAST = 0.01
"""No average is trusted further than this."""


class Need(NamedTuple):
    """What one item takes, or many."""

    calls: float = 0.0
    prompt: float = 0.0
    completion: float = 0.0
    cached: float = 0.0
    """Part of `prompt`."""
    bytes: float = 0.0
    """On disk, once committed."""

    def times(self, factor: float) -> Need:
        """So many of it."""
        return Need(*(value * factor for value in self))

    def plus(self, other: Need) -> Need:
        """Both together."""
        return Need(*(mine + its for mine, its in zip(self, other, strict=True)))

    def usage(self) -> Usage:
        """As tokens."""
        return Usage(round(self.prompt), round(self.completion), round(self.cached), round(self.calls))


class Range(NamedTuple):
    """A need between bounds."""

    low: Need
    likely: Need
    high: Need

    def plus(self, other: Range) -> Range:
        """Both together."""
        return Range(*(mine.plus(its) for mine, its in zip(self, other, strict=True)))


class Committed(NamedTuple):
    """What a finished shard took."""

    rows: int
    need: Need
    shard: int = 0
    """Its number."""
    money: float | None = None
    """Dollars at the price of its day, where its marker says."""
    elsewhere: str = ""
    """The run that it is of, where that is another: it says what the like takes, and not what is done."""


class StagePlan(msgspec.Struct, frozen=True):
    """One stage of a plan."""

    name: str
    items: int
    shards: int
    need: Range
    measured: int
    """Items of a run on whose figures this rests; 0 where it rests on assumptions."""
    done: int
    """Items that are committed already, and counted in `need` as they were."""
    shard_size: int
    """Items that are committed together."""
    spent: Need = Need()
    """What those that are committed took."""
    elsewhere: str = ""
    """The run on whose figures this rests, where that is another."""


class Plan(msgspec.Struct, frozen=True):
    """What a whole run takes."""

    scenario: str
    shape: str
    stages: tuple[StagePlan, ...]
    price: ModelPrice | None
    dearer: float = 0.0
    """Dollars that what is committed has cost beyond what it would at the price."""

    @property
    def need(self) -> Range:
        """All stages together."""
        total = Range(Need(), Need(), Need())
        for stage in self.stages:
            total = total.plus(stage.need)
        return total

    @property
    def left(self) -> Range:
        """What is still to come."""
        spent = Need()
        for stage in self.stages:
            spent = spent.plus(stage.spent)
        return Range(*(case.plus(spent.times(-1)) for case in self.need))

    @property
    def items(self) -> int:
        """Conversations, or answers."""
        return self.stages[-1].items

    @property
    def shards(self) -> int:
        """Of all stages."""
        return sum(stage.shards for stage in self.stages)

    @property
    def money(self) -> Figure | None:
        """Dollars, where the price is known."""
        price = self.price
        if price is None:
            return None
        return Figure(*(price.cost(need.usage()) + self.dearer for need in self.need))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        whole: dict[str, Any] = {
            "scenario": self.scenario,
            "shape": self.shape,
            "items": self.items,
            "shards": self.shards,
            "money": self.money and self.money._asdict(),
        }
        return whole | _figures(self.need) | {"stages": [_stage_dict(stage) for stage in self.stages]}


class CallRate(NamedTuple):
    """How fast calls are answered, and how that is known."""

    calls_per_second: Figure
    source: Literal["given", "measured", "assumed"]
    words: str

    def hours(self, need: Range) -> Figure:
        """How long the calls take: few at the highest rate, and many at the lowest."""
        slow, likely, fast = self.calls_per_second
        cases = zip(need, (fast, likely, slow), strict=True)
        return Figure(*(max(0.0, case.calls) / rate / 3600 for case, rate in cases))


def assumed_rate(config: GenerateConfig) -> CallRate:
    """What the assumptions say of a run that has not shown how fast it is."""
    # A conversation has one call in flight at a time.
    seconds, most = config.plan.seconds_per_call, min(config.run.concurrency, config.loaded_scenario().count)
    rates = Figure(*(most / _case(seconds, case) for case in (2, 1, 0)))
    return CallRate(rates, "assumed", f"{most:,} in flight, {in_words(seconds)} s a call, assumed")


class Limit(NamedTuple):
    """One limit of a budget beside what is expected."""

    name: str
    limit: float
    expected: Figure

    @property
    def enough(self) -> Literal["yes", "perhaps", "no"]:
        """Whether the run will be complete before it is reached."""
        if self.expected.likely > self.limit:
            return "no"
        return "perhaps" if self.expected.high > self.limit else "yes"


def limits(plan: Plan, budget: Budget, hours: Figure) -> list[Limit]:
    """The limits of a budget; `hours` is what the next start would take."""
    need = plan.need
    expected = {
        "money": plan.money,
        "tokens": Figure(*(case.prompt + case.completion for case in need)),
        "calls": Figure(*(case.calls for case in need)),
        "hours": hours,
    }
    return [
        Limit(name, float(limit), figure)
        for name, figure in expected.items()
        if figure is not None and (limit := getattr(budget, name)) is not None
    ]


def in_words(value: Guess) -> str:
    """An assumption: one number, or the likely one and between what it may be."""
    if not isinstance(value, Figure) or min(value) == max(value):
        return f"{value.likely if isinstance(value, Figure) else value:g}"
    return f"{value.likely:g} ({min(value):g}–{max(value):g})"


def messages_assumed(scenario: Scenario, assumed: Assumptions) -> Figure:
    """How many messages a conversation is taken to have: never more than the scenario lets it."""
    end = scenario.end
    if isinstance(end, Meeting):
        # As long as its limit where nothing else ends it.
        ends_early = bool(end.society.stop.done or end.society.stop.vote)
        return Figure(*(end.society.limit * part for part in ((0.3, 0.7, 1.0) if ends_early else (1, 1, 1))))
    most = end.max_messages if isinstance(end, RolePlay) else 1
    return Figure(*(min(_case(assumed.messages, case), most) for case in range(3)))


def workers(calls_per_second: float, seconds_per_call: float) -> int:
    """Worker processes that keep up a rate."""
    return max(1, ceil(calls_per_second * seconds_per_call / WORKER))


def make_plan(
    config: GenerateConfig,
    *,
    counts: Mapping[str, int] | None = None,
    committed: Mapping[str, Sequence[Committed]] | None = None,
) -> Plan:
    """Estimate a run; with what the stages of an earlier start, or of a smaller run, have committed, from that.

    `counts` replaces sizes of levels; what was committed at other sizes then serves as a sample only.
    """
    actual = config.loaded_scenario()
    scenario = actual.resized(counts or {})
    committed = committed or {}
    guess = _Guesses(scenario, config.plan, config.critic_of(scenario))
    stages: list[StagePlan] = []
    for level in scenario.asked:
        same = level.count == actual.level(level.name).count
        shards = committed.get(level.name, ()) if same else ()
        lists = scenario.lists(level.name)
        kept = same and lists == actual.lists(level.name)
        stages.append(
            _stage(level.name, lists, LISTS_PER_SHARD, guess.of_list(level), shards if same else (), kept)
        )
    talk = scenario.talks
    name = CONVERSATIONS if talk else ANSWERS
    each = guess.of_conversation if talk else guess.of_answer
    kept = scenario.count == actual.count
    size = config.shard_size or shard_size_for(scenario.count)
    stages.append(_stage(name, scenario.count, size, each, committed.get(name, ()), kept))
    own = (committed.get(stage.name, ()) for stage in stages if stage.done)
    return Plan(scenario.name, scenario.shape, tuple(stages), config.price(), _dearer(own, config.price()))


def _dearer(stages: Iterable[Sequence[Committed]], price: ModelPrice | None) -> float:
    """What shards have cost beyond what they would at `price`, those whose markers say."""
    if price is None:
        return 0.0
    paid = [shard for shards in stages for shard in shards if shard.money is not None and not shard.elsewhere]
    # Summed by column: a run may have a hundred thousand shards, and is estimated every few seconds.
    columns = [sum(column) for column in zip(*(shard.need for shard in paid), strict=True)]
    return sum(shard.money or 0.0 for shard in paid) - price.cost(Need(*columns).usage())


def committed_in(folder: RunFolder, config: GenerateConfig) -> dict[str, list[Committed]]:
    """What a run has committed, by stage, if it is one of the same scenario and model; else nothing.

    A run that was made with other settings, and the one that it was forked from, serve as samples.
    """
    if not is_alike(folder, config):
        return {}
    if changes(folder, config, config.loaded_scenario()):
        return sample_of(folder, config)
    found = _read_stages(folder)
    if parent := folder.settings().forked_from:
        # It may be gone, or not be at hand here.
        with suppress(CamelError, OSError):
            for stage, shards in sample_of(open_folder(parent), config).items():
                found.setdefault(stage, []).extend(shards)
    return found


def sample_of(folder: RunFolder, config: GenerateConfig) -> dict[str, list[Committed]]:
    """What another run has committed, as a sample for this one; nothing if it is of another scenario or model."""
    if not is_alike(folder, config):
        return {}
    saved: dict[str, int] = folder.settings().config.get("counts") or {}
    levels = {level.name: level.count for level in config.loaded_scenario().levels}
    return {
        stage: [shard._replace(elsewhere=folder.address) for shard in shards]
        for stage, shards in _read_stages(folder).items()
        if levels.get(stage) == saved.get(stage)  # a list of another length says nothing
    }


def _read_stages(folder: RunFolder) -> dict[str, list[Committed]]:
    found: dict[str, list[Committed]] = {}
    for stage in folder.stages():
        shards = sorted(folder.committed(stage))
        step = -(-len(shards) // SAMPLE)
        known = [read_committed(folder, marker) for marker in folder.markers(stage, shards[:: step or 1])]
        # Of very many each stands for its neighbours.
        found[stage] = [known[number // step] for number in range(len(shards))]
    return found


def is_alike(folder: RunFolder, config: GenerateConfig) -> bool:
    """Whether a run is there whose figures say something about this one: of the same scenario and model."""
    if not folder.exists:
        return False
    saved = folder.settings().config
    return (saved.get("scenario"), saved.get("model.name")) == (config.scenario, config.model.name)


def read_committed(folder: RunFolder, marker: Marker) -> Committed:
    """What a committed shard took."""
    used, size = usage_of(marker.totals), marker.size
    if not size and folder.on_disk and (data := folder.root / marker.file).exists():
        size = data.stat().st_size
    return Committed(
        marker.rows,
        Need(used.calls, used.prompt, used.completion, used.cached, size),
        marker.shard,
        marker.totals.get(MONEY),
    )


def _stage(
    name: str,
    items: int,
    shard_size: int,
    guess: Callable[[int], Need],
    shards: Sequence[Committed],
    kept: bool,
) -> StagePlan:
    """A stage from a guess at one item, or from the shards there are; `kept` if those are its own."""
    own = [shard for shard in shards if not shard.elsewhere]
    done = min(sum(shard.rows for shard in own), items) if kept else 0
    # What was taken over from another run was paid there, and tells nothing about the rest.
    known = [shard for shard in own if shard.need.calls]
    elsewhere = ""
    if not known and done < items and (known := [s for s in shards if s.elsewhere and s.need.calls]):
        elsewhere = known[0].elsewhere
    rows = sum(shard.rows for shard in known)
    if not rows:
        need = Range(*(guess(case).times(items - done) for case in range(3)))
        return StagePlan(name, items, -(-items // shard_size), need, 0, done, shard_size)
    total = Need()
    for shard in known:
        total = total.plus(shard.need)
    holes = 0 if elsewhere else _holes(own, items - done)
    # What began before others that have ended is still going on because it is long.
    longer = max(total.times(1 / rows), guess(1), key=lambda need: need.prompt + need.completion)
    mean = total.plus(longer.times(holes)).times(1 / (rows + holes))
    off = _uncertainty(known, (items - done) * len(known) / rows)
    if elsewhere:
        off = max(off, ONE_SHARD)
    base = total if kept and not elsewhere else Need()
    rest = longer.times(holes).plus(mean.times(items - done - holes)) if kept else mean.times(items)
    need = Range(*(base.plus(rest.times(factor)) for factor in (1 - off, 1.0, 1 + off)))
    return StagePlan(name, items, -(-items // shard_size), need, rows, done, shard_size, base, elsewhere)


def _holes(shards: Sequence[Committed], left: int) -> int:
    """Items of shards that are not committed although later ones are; none as a rule where shards are large."""
    missing = max(shard.shard for shard in shards) + 1 - len(shards)
    return max(0, min(left, missing * max(shard.rows for shard in shards)))


def _uncertainty(shards: Sequence[Committed], left: float) -> float:
    """How far the mean of `left` more such shards may be from the mean so far, as a share: two standard errors."""
    means = [(s.need.prompt + s.need.completion) / s.rows for s in shards if s.rows]
    if len(means) < 2 or not sum(means):
        return ONE_SHARD
    share = stdev(means) / (sum(means) / len(means))
    # Both means are of a sample; and few shards say little about their own spread.
    error = share * sqrt(1 / len(means) + 1 / max(1.0, left)) * (1 + 3 / len(means))
    return min(0.9, max(AT_LEAST, 2 * error))


class _Guesses:
    """One item of each kind from assumptions, in three cases: low, likely, high."""

    def __init__(
        self, scenario: Scenario, assumed: Assumptions, critic: CriticSettings | None = None
    ) -> None:
        self._scenario, self._assumed, self._critic = scenario, assumed, critic
        rendered = [len(part.text) / assumed.characters_per_token for part in sample(scenario)]
        asked = len(scenario.asked)
        self._list_prompts = dict(zip((level.name for level in scenario.asked), rendered, strict=False))
        self._end_prompts = rendered[asked:]

    def of_list(self, level: Level) -> Callable[[int], Need]:
        """One list of a level; what is on it already is named in each further call."""

        def need(case: int) -> Need:
            item = _case(self._assumed.item_tokens, case)
            full, rest = divmod(level.count, level.ask)
            least = full + (rest > 0)
            extra = FURTHER_CALLS[case]
            named = level.ask * least * (least - 1) / 2 + extra * level.count
            prompt = (least + extra) * (self._list_prompts[level.name] + TOKENS_PER_MESSAGE) + named * item
            completion = level.count * item * (1 + extra / 4)
            return Need(least + extra, prompt, completion, 0, level.count * item * 4)

        return need

    def of_conversation(self, case: int) -> Need:
        """One role play: each call sends all that was said before it."""
        end, assumed = self._scenario.end, self._assumed
        if isinstance(end, Meeting):
            return self._of_meeting(end.society, case)
        assert isinstance(end, RolePlay)
        messages = messages_assumed(self._scenario, assumed)[case]
        message = _case(assumed.message_tokens, case)
        word_limit = end.word_limit * TOKENS_PER_WORD
        prompts = list(self._end_prompts)
        specified = (prompts.pop(0) if end.specify else 0.0), (word_limit if end.specify else 0.0)
        assistant, user, opening = prompts[:3]
        system = (assistant + user + opening) / 2 + specified[1] + 2 * TOKENS_PER_MESSAGE
        # A limit close by leaves the number of messages little room to vary.
        spread = assumed.spread * min(1.0, (end.max_messages - messages) / messages)
        before = messages * (messages * (1 + spread**2) - 1) / 2
        talk = messages * system + before * (message + TOKENS_PER_MESSAGE)
        completion = messages * message + specified[1]
        calls, stored = messages, completion
        if self._critic:
            # Each call for a criticised message sends what was said before it: the speaker's, or the critic's, which
            # has the proposals as well. A call for proposals brings several, a judgement a few words for each.
            share = len(self._critic.seats) / 2 * messages
            extra = share * (self._critic.calls_per_message()[case] - 1)
            proposed = self._critic.proposals * message
            talk += extra * (talk / messages + proposed / 2)
            completion += share * (proposed - message) + extra * (proposed + VERDICT_TOKENS) / 2
            calls, stored = messages + extra, completion
        return Need(
            calls + bool(end.specify),
            talk + specified[0],
            completion,
            talk * min(1.0, _case(assumed.cached, case)),
            (stored + 2 * system) * assumed.characters_per_token * STORED[case],
        )

    def _of_meeting(self, society: Society, case: int) -> Need:
        """One society: as long as its limit where nothing else ends it; each call sends what its speaker heard and said."""
        assumed, prompts = self._assumed, list(self._end_prompts)
        messages = messages_assumed(self._scenario, assumed)[case]
        message = _case(assumed.message_tokens, case)
        first = [prompts.pop(0) for step in (society.planner, society.roles) if step]
        asked = sum(first) + TOKENS_PER_MESSAGE * len(first)
        listed = sum(
            count * _case(assumed.item_tokens, case)
            for count in (society.planner and society.planner.steps, society.roles and society.roles.count)
            if count
        )
        members = len(society.members) + (society.roles.count if society.roles else 0)
        system = (sum(prompts) / len(prompts) if prompts else 200.0) + listed + 2 * TOKENS_PER_MESSAGE
        edges = sum(map(len, society.hears.listeners(society.names).values()))
        fixed = len(society.names) or 1
        share = (edges / fixed + 1) / fixed  # of what is said, how much a member hears or says
        talk = messages * system + messages * (messages - 1) / 2 * share * (message + TOKENS_PER_MESSAGE)
        completion = messages * message + listed
        return Need(
            messages + len(first),
            talk + asked,
            completion,
            talk * min(1.0, _case(assumed.cached, case)),
            (completion + members * system) * assumed.characters_per_token * STORED[case],
        )

    def of_answer(self, case: int) -> Need:
        """One question and its answer."""
        end, assumed = self._scenario.end, self._assumed
        assert isinstance(end, Question)
        prompt = self._end_prompts[0] + TOKENS_PER_MESSAGE + _case(assumed.item_tokens, case) * 2
        answer = _case(assumed.answer_tokens, case)
        return Need(1, prompt, answer, 0, (prompt + answer) * assumed.characters_per_token * STORED[case])


def _case(guess: Guess, case: int) -> float:
    return guess[case] if isinstance(guess, Figure) else guess


def _figures(need: Range) -> dict[str, Any]:
    return {
        name: Figure(*(getattr(case, name) for case in need))._asdict()
        for name in ("calls", "prompt", "completion", "cached", "bytes")
    }


def _stage_dict(stage: StagePlan) -> dict[str, Any]:
    named = ("name", "items", "shards", "shard_size", "measured", "elsewhere", "done")
    known = {name: getattr(stage, name) for name in named}
    return known | _figures(stage.need)
