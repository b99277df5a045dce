"""All figures of an evaluation of agents, computed from the verdicts and stored in `evaluation.json`.

The one decision to know: with several judges, there are figures for each judge and for the panel, which decides by majority.
The headline and the ratings are the panel's. With one judge, the panel is that judge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

from camel._version import __version__
from camel.core.errors import InputError
from camel.core.message import Usage
from camel.evaluation.agreement import Kappa, cohen, fleiss
from camel.evaluation.contest import Contest, ContestStage
from camel.evaluation.contest_records import AGENTS, KINDS, AgentsConfig, JudgedPair, Kind, Solution
from camel.evaluation.pairs import WINNERS, Pair, PairVerdict, Winner
from camel.evaluation.standing import (
    BothOrders,
    Consistency,
    Length,
    Match,
    Position,
    Rating,
    WinShares,
    bradley_terry,
    consistency,
    length_bias,
    majority,
    position,
    shares,
)
from camel.models.prices import cost
from camel.reports.intervals import Rate, ReportFigures, wilson

PANEL = "all judges"
SHOWN = 12
"""Number of pairs that the report shows, about the same number for each kind of verdict."""


class PaperTable1Row(msgspec.Struct, frozen=True):
    """A row of the paper's Table 1: shares of draws, of losses and of wins of the agents against single-shot answers."""

    evaluation: str
    draws: float
    losses: float
    wins: float
    of: int


PAPER: dict[str, tuple[PaperTable1Row, ...]] = {
    "ai_society": (
        PaperTable1Row("Human evaluation", 0.133, 0.104, 0.763, 453),
        PaperTable1Row("GPT-4 evaluation", 0.040, 0.230, 0.730, 100),
    ),
    "code": (PaperTable1Row("GPT-4 evaluation", 0.0, 0.240, 0.760, 100),),
}
"""The paper's Table 1, in which agents are compared with single-shot answers of gpt-3.5-turbo."""


class Comparison(msgspec.Struct, frozen=True):
    """The verdicts of one judge on two systems in one group. Wins and scores are those of system `a`."""

    group: str
    a: str
    b: str
    judge: str
    shares: WinShares
    length: Length
    position: Position | None = None
    """Position bias of the judge. None for the panel, because each of its judges has its own."""
    consistency: Consistency | None = None
    scores: tuple[float, float] | None = None
    """Mean scores of `a` and `b`, from 0 to 10."""


class Agreement(msgspec.Struct, frozen=True):
    """Agreement of several judges on the pairs that they decided."""

    judges: tuple[str, ...]
    kappa: Kappa
    """Cohen's kappa for two judges, Fleiss' kappa for more."""


class System(msgspec.Struct, frozen=True):
    """A system in one group, with figures about its solutions."""

    group: str
    name: str
    made: str
    """Description of how the system's solutions were made."""
    model: str
    """The model that wrote the solutions: the summarizer, or the model that answered in one reply."""
    solutions: int
    failed: int
    cut_off: int
    """Number of solutions that ended at the token limit."""
    shortened: int
    """Number of conversations that did not fit completely into the summarizer's context window."""
    characters: float
    """Mean length of a solution in characters."""


class Drawing(msgspec.Struct, frozen=True):
    """The source of the tasks of a group."""

    group: str
    scenario: str
    run: str
    """The run from which the tasks were drawn. Empty if they were given and do not come from a run."""
    fingerprint: str
    tasks: int
    of: int
    excluded: int
    empty: int
    specified: bool


class Cost(msgspec.Struct, frozen=True):
    """Usage of one model in one step, over all restarts."""

    step: str
    """The kind of a stage, or the title of another step."""
    model: str
    usage: Usage
    money: float | None


class ShownPair(msgspec.Struct, frozen=True):
    """A pair with the panel's winner and all verdicts on it. The report shows some of them."""

    pair: Pair
    winner: Winner | None
    verdicts: list[PairVerdict]


class Human(msgspec.Struct, frozen=True):
    """Human votes on two systems. Wins are those of system `a`."""

    group: str
    a: str
    b: str
    wins: Rate
    draws: Rate
    losses: Rate
    voters: int


class Evaluation(ReportFigures, frozen=True):
    """All figures of an evaluation, as stored in `evaluation.json`."""

    file = "evaluation"
    config: AgentsConfig
    prompts: dict[str, str]
    """Hash of each prompt. The texts are in the folder `prompts`."""
    judges: list[str]
    drawn: list[Drawing]
    systems: list[System]
    comparisons: list[Comparison]
    headline: list[Comparison]
    """The main comparison of each group and pair of systems: by the panel, or by the only judge."""
    agreement: list[Agreement]
    ratings: list[Rating]
    """Ratings of the systems. Empty if only two systems are compared."""
    undecided: Rate
    """Share of questions to judges without a readable answer."""
    shortened: int
    """Number of questions in which a solution was shortened to fit into the judge's context window."""
    own: list[str]
    """Names of judges that judged their own solutions. Models tend to prefer their own texts."""
    costs: list[Cost]
    money: float | None
    """Total cost in US dollars. None if the price of a model is unknown."""
    examples: list[ShownPair]
    human: list[Human] = msgspec.field(default_factory=list[Human])
    """Human votes on the same pairs, if there are any."""
    paper: dict[str, tuple[PaperTable1Row, ...]] = msgspec.field(default_factory=lambda: dict(PAPER))
    version: str = __version__
    schema: int = 1


def evaluate(contest: Contest) -> tuple[Evaluation, list[Pair], list[PairVerdict]]:
    """Return the figures of a finished contest, its pairs, and each judge's verdict on each pair."""
    if left := contest.left():
        raise InputError(f"the evaluation is unfinished: {left:,} questions remain; run it to the end first")
    pairs, judges = contest.pairs(), [judge.name for judge in contest.judges]
    verdicts, comparisons = _compared(contest, pairs)
    by_pair: dict[str, list[PairVerdict]] = {pair.id: [] for pair in pairs}
    for one in verdicts:
        by_pair[one.pair].append(one)
    # All pairs with the panel's winner and the verdicts of its judges.
    panel = [
        ShownPair(pair, majority([one.winner for one in by_pair[pair.id]]), by_pair[pair.id])
        for pair in pairs
    ]
    costs = _costs(contest)
    asked = [
        one for kind in ("verdict", "repeat") for _, said in contest.judged(kind) for one in said.values()
    ]
    asked = [one for one in asked if one.asks or one.winner is None]
    writers = {one.name for one in contest.writers.values()}
    evaluation = Evaluation(
        config=contest.config,
        prompts={
            name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in contest.prompts.items()
        },
        judges=judges,
        drawn=_drawn(contest),
        systems=_systems(contest),
        comparisons=comparisons,
        headline=comparisons if len(judges) == 1 else _headline(contest, panel, comparisons),
        agreement=_agreement(judges, panel),
        ratings=_ratings(contest, panel),
        undecided=wilson(sum(one.winner is None for one in asked), len(asked)),
        shortened=sum(one.cut > 0 for one in asked),
        own=[name for name in judges if name in writers],
        costs=costs,
        money=None if any(one.money is None for one in costs) else sum(one.money or 0.0 for one in costs),
        examples=_examples(panel),
    )
    return evaluation, pairs, verdicts


def _compared(contest: Contest, pairs: Sequence[Pair]) -> tuple[list[PairVerdict], list[Comparison]]:
    again = {(job.group, job.systems, job.model): said for job, said in contest.judged("repeat")}
    verdicts: list[PairVerdict] = []
    made: list[Comparison] = []
    by_place = {(pair.group, pair.system_a, pair.system_b, pair.source): pair for pair in pairs}
    for job, said in contest.judged():
        a, b = job.systems
        mine: list[PairVerdict] = []
        sizes: list[tuple[int, int]] = []
        for index, task in enumerate(contest.samples[job.group].tasks):
            pair = by_place.get((job.group, a, b, task.id))
            if pair is None:  # one of the two has no solution
                continue
            mine.append(_verdict(pair, job.model, said[2 * index], said[2 * index + 1]))
            sizes.append((len(pair.text_a), len(pair.text_b)))
        verdicts += mine
        winners: list[Winner | None] = [one.winner for one in mine]
        given = [(one.score_a, one.score_b) for one in mine]
        scores = [(one, two) for one, two in given if one is not None and two is not None]
        repeated = again.get((job.group, job.systems, job.model), {})
        made.append(
            Comparison(
                job.group,
                a,
                b,
                job.model,
                shares(winners),
                length_bias(winners, sizes),
                position([BothOrders(one.first, one.second) for one in mine]),
                consistency([said[i].winner for i in repeated], [one.winner for one in repeated.values()])
                if repeated
                else None,
                _mean(scores),
            )
        )
    return verdicts, made


def _headline(contest: Contest, panel: Sequence[ShownPair], made: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons by the panel."""
    rows: list[Comparison] = []
    for group in contest.groups:
        for a, b in contest.matches(group.name):
            match = (group.name, a, b)
            these = [one for one in panel if (one.pair.group, one.pair.system_a, one.pair.system_b) == match]
            winners: list[Winner | None] = [one.winner for one in these]
            sizes = [(len(one.pair.text_a), len(one.pair.text_b)) for one in these]
            scores = [one.scores for one in made if (one.group, one.a, one.b) == match and one.scores]
            length = length_bias(winners, sizes)
            rows.append(Comparison(*match, PANEL, shares(winners), length, scores=_mean(scores)))
    return rows


def _mean(scores: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    if not scores:
        return None
    return sum(a for a, _ in scores) / len(scores), sum(b for _, b in scores) / len(scores)


def _verdict(pair: Pair, judge: str, a_first: JudgedPair, b_first: JudgedPair) -> PairVerdict:
    orders = BothOrders(a_first.winner, b_first.winner)
    given = [one.scores for one in (a_first, b_first) if one.scores]
    a, b = _mean(given) or (None, None)
    reason = a_first.reason
    if a_first.winner != b_first.winner:
        reason = f"With A first: {a_first.reason} With B first: {b_first.reason}"
    return PairVerdict(pair.id, judge, orders.winner, reason, a, b, a_first.winner, b_first.winner)


def _agreement(judges: Sequence[str], panel: Sequence[ShownPair]) -> list[Agreement]:
    said = [{one.judge: one.winner for one in shown.verdicts} for shown in panel]
    made: list[Agreement] = []
    for two in combinations(judges, 2):
        both = ([winners.get(judge) for judge in two] for winners in said)
        made.append(Agreement(two, cohen((x, y) for x, y in both if x and y)))
    if len(judges) > 2:
        items = ([winners.get(judge) for judge in judges] for winners in said)
        made.append(Agreement(tuple(judges), fleiss([one for one in item if one] for item in items)))
    return made


def _ratings(contest: Contest, panel: Sequence[ShownPair]) -> list[Rating]:
    if all(len(contest.systems(group.name)) < 3 for group in contest.groups):
        return []
    points: Mapping[Winner, float] = {"a": 1.0, "draw": 0.5, "b": 0.0}
    meetings = [
        Match(f"{pair.group} {pair.source}", pair.system_a, pair.system_b, points[one.winner])
        for one in panel
        for pair in [one.pair]
        if one.winner
    ]
    return bradley_terry(meetings) if meetings else []


def _drawn(contest: Contest) -> list[Drawing]:
    return [
        Drawing(
            group.name,
            group.scenario or group.name,
            # Only the last part of the path: reports are shared, and a path may contain private names.
            run.folder.address.rstrip("/").rpartition("/")[2] if run else "",
            run.settings.fingerprint if run else "",
            len(sample.tasks),
            sample.of,
            sample.excluded,
            sample.empty,
            sample.specified,
        )
        for group in contest.groups
        for run in [next(iter(contest.runs[group.name].values()), None)]
        for sample in [contest.samples[group.name]]
    ]


def _systems(contest: Contest) -> list[System]:
    runs = {(group, system): run for group, its in contest.runs.items() for system, run in its.items()}
    made: list[System] = []
    for job, solutions in contest.solutions():
        (system,) = job.systems
        there = [one for one in solutions.values() if not one.failed]
        run = runs.get((job.group, system))
        by = str(run.settings.config.get("model.name", "")) if run else ""
        how = f"conversations{f' of {by}' if by else ''}, summarized" if run else "one answer"
        made.append(
            System(
                job.group,
                system,
                how,
                job.model,
                len(there),
                len(solutions) - len(there),
                sum(one.finish == "length" for one in there),
                sum(one.cut > 0 for one in there),
                sum(len(one.text) for one in there) / max(1, len(there)),
            )
        )
    return made


def _costs(contest: Contest) -> list[Cost]:
    used: dict[tuple[Kind, str], Usage] = {}

    seen: set[str] = set()
    records: list[tuple[ContestStage, Mapping[int, Solution] | Mapping[int, JudgedPair]]] = [
        *contest.solutions(),
        *contest.judged(),
        *contest.judged("repeat"),
    ]
    for job, said in records:
        if job.stage.name not in seen:  # two systems may share a stage, which is paid for once
            seen.add(job.stage.name)
            before = used.get((job.kind, job.model), Usage())
            used[job.kind, job.model] = sum((one.usage for one in said.values()), before)
    return [
        Cost(kind, model, used[kind, model], cost(model.partition("@")[0], used[kind, model]))
        for kind, model in sorted(used, key=lambda key: (KINDS.index(key[0]), key[1]))
    ]


def _examples(panel: Sequence[ShownPair]) -> list[ShownPair]:
    """Choose pairs of each kind of verdict for the report, in the order of the tasks. Pairs with the agents come first."""
    groups = dict.fromkeys(one.pair.group for one in panel)
    each = max(1, SHOWN // (4 * max(1, len(groups))))
    chosen: list[ShownPair] = []
    for group in groups:
        mine = [one for one in panel if one.pair.group == group]
        mine.sort(key=lambda one: one.pair.system_a != AGENTS)
        for kind in (*WINNERS, None):
            chosen += [one for one in mine if one.winner == kind][:each]
    return chosen
