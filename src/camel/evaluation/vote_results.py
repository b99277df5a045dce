"""Figures of human votes: wins, draws and losses with intervals, and the agreement of voters and judges.

The one decision to know: votes on one pair are not independent. So intervals are computed over pairs, each with all its
votes. The majority of each pair is reported as well; it counts every pair once, no matter how many people voted on it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import msgspec

from camel.evaluation.agreement import Kappa, cohen, fleiss
from camel.evaluation.pairs import VERDICTS, Pair, PairVerdict, Winner, read_pairs, read_verdicts
from camel.evaluation.results import Evaluation, Human
from camel.evaluation.standing import (
    RESAMPLES,
    UNSEEN,
    Interval,
    Length,
    WinShares,
    interval,
    length_bias,
    majority,
    np,
    shares,
)
from camel.evaluation.votes import CastVote, Record, key_of, latest, read_records, votes_folder
from camel.reports.intervals import Clusters, Rate, ReportFigures, wilson
from camel.reports.plots import as_csv

WINNERS: tuple[Winner, ...] = ("a", "draw", "b")
LEAST_SHARED = 5
"""Minimum number of pairs on which two voters must both have voted before their agreement is reported."""
COLUMNS = ("pair", "group", "system_a", "system_b", "voter", "vote", "winner", "shown_first", "at")


class ComparedSystems(msgspec.Struct, frozen=True):
    """Human votes on two systems. Wins are those of `system_a`."""

    group: str
    system_a: str
    system_b: str
    pairs: int
    """Number of pairs. `voted` of them have at least one vote other than a skip."""
    voted: int
    votes: int
    skipped: int
    wins: Rate
    draws: Rate
    losses: Rate
    score: Interval
    """Share of wins plus half the share of draws, over all votes."""
    majority: WinShares
    """Shares by majority, with each pair counted once. A pair without a majority is a draw."""
    length: Length
    """Length bias of the majority verdicts."""


class Voter(msgspec.Struct, frozen=True):
    """The votes of one person."""

    voter: str
    votes: int
    skipped: int
    draws: int
    first: int
    """Number of votes for the solution that was shown first."""
    with_majority: Rate
    """Share of votes that equal the majority of the other voters, on pairs with votes of others."""


class Between(msgspec.Struct, frozen=True):
    """Agreement of two voters, or of a judge and the majority of voters."""

    one: str
    other: str
    kappa: Kappa


class Results(ReportFigures, frozen=True):
    """All figures of the human votes on an evaluation's pairs."""

    pairs: int
    votes: int
    """Number of votes that count: each voter's last vote on each pair, without skips."""
    skipped: int
    records: int
    """Number of all recorded votes, including replaced ones."""
    elsewhere: int
    """Number of votes that are ignored because their pair no longer exists or its texts have changed."""
    compared: list[ComparedSystems]
    first: Rate
    """Share of votes for the solution shown first, without draws. It is about 0.5 if the order does not matter."""
    agreement: Kappa
    """Agreement of all voters (Fleiss' kappa)."""
    voters: list[Voter]
    between: list[Between]
    """Agreement of each two voters who share at least `LEAST_SHARED` pairs (Cohen's kappa)."""
    judges: list[Between]
    """Agreement of each judge with the majority of voters (Cohen's kappa)."""
    schema: int = 1


def read_results(path: Path) -> Results:
    """Compute the results of an evaluation's folder or of a file of pairs. This is safe while people vote."""
    verdicts: list[PairVerdict] = []
    if path.is_dir() and (path / VERDICTS).exists():
        verdicts = read_verdicts(path)
    return results_of(read_pairs(path), read_records(votes_folder(path)), verdicts)


def with_votes(made: Evaluation, path: Path) -> Evaluation:
    """Return a copy of an evaluation that includes the human votes in its folder, if there are any."""
    if not votes_folder(path).is_dir():
        return made
    found = read_results(path)
    human = [
        Human(one.group, one.system_a, one.system_b, one.wins, one.draws, one.losses, len(found.voters))
        for one in found.compared
        if one.votes
    ]
    return msgspec.structs.replace(made, human=human)


def results_of(
    pairs: Sequence[Pair], records: Iterable[Record], verdicts: Sequence[PairVerdict] = ()
) -> Results:
    """Compute the results from the pairs, the recorded votes, and the judges' verdicts on the same pairs."""
    recorded = list(records)
    counting = latest(recorded)
    known = {key_of(pair): pair for pair in pairs}
    here = [vote for mine in counting.values() for vote in mine.values() if vote.key in known]
    decided: dict[str, dict[str, Winner]] = defaultdict(dict)
    for vote in here:
        if vote.choice != "skip":
            decided[vote.key][vote.voter] = vote.choice
    outcomes: dict[str, Winner | None] = {
        key: majority(list(votes.values())) for key, votes in decided.items()
    }
    voters = [
        _voter(name, [v for v in mine.values() if v.key in known], decided) for name, mine in counting.items()
    ]
    sided = [vote for vote in here if vote.choice in ("a", "b")]
    return Results(
        pairs=len(pairs),
        votes=sum(map(len, decided.values())),
        skipped=sum(vote.choice == "skip" for vote in here),
        records=sum(isinstance(one, CastVote) for one in recorded),
        elsewhere=sum(map(len, counting.values())) - len(here),
        compared=_compared(known, here, decided, outcomes),
        first=wilson(sum(vote.choice == vote.first for vote in sided), len(sided)),
        agreement=fleiss(votes.values() for votes in decided.values()),
        voters=sorted(voters, key=lambda one: (-one.votes, one.voter)),
        between=_between(decided),
        judges=_judges(known, outcomes, verdicts),
    )


def _compared(
    known: Mapping[str, Pair],
    here: Sequence[CastVote],
    decided: Mapping[str, Mapping[str, Winner]],
    outcomes: Mapping[str, Winner | None],
) -> list[ComparedSystems]:
    skipped = Counter(vote.key for vote in here if vote.choice == "skip")
    contests: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key, pair in known.items():
        contests[pair.group, pair.system_a, pair.system_b].append(key)
    made: list[ComparedSystems] = []
    for contest, keys in contests.items():
        voted = [key for key in keys if key in decided]
        counts = [Counter(decided[key].values()) for key in voted]
        said: list[Winner | None] = [outcomes[key] for key in voted]
        (wins, draws, losses), score = clustered([tuple(one[w] for w in WINNERS) for one in counts])
        made.append(
            ComparedSystems(
                *contest,
                pairs=len(keys),
                voted=len(voted),
                votes=wins.of,
                skipped=sum(skipped[key] for key in keys),
                wins=wins,
                draws=draws,
                losses=losses,
                score=score,
                majority=shares(said),
                length=length_bias(said, [(len(known[key].text_a), len(known[key].text_b)) for key in voted]),
            )
        )
    return made


def clustered(counts: Sequence[tuple[int, ...]]) -> tuple[list[Rate], Interval]:
    """Return the shares of wins, draws and losses, and the score. `counts` gives the three numbers for each pair.

    Shares have intervals for clustered observations (`Clusters`). These contained the true value in 95 to 97% of trials, and
    bootstrap intervals in 80 to 97% (benchmarks/vote_intervals.py). The score has a Bayesian bootstrap interval.
    """
    table = np.array([one for one in counts if any(one)], dtype=float).reshape(-1, len(WINNERS))
    rates: list[Rate] = []
    for column in table.T:
        clusters = Clusters()
        clusters.add(column, table.sum(1))
        rates.append(clusters.rate())
    if not len(table):
        return rates, Interval(0.0, 0.0, 1.0)
    worth = np.array([1.0, 0.5, 0.0])
    kinds, often = np.unique(table, axis=0, return_counts=True)  # pairs with equal counts are drawn together
    # A prior weight for each kind of vote, so that equal pairs do not give an interval of width zero.
    kinds = np.vstack([kinds, np.eye(len(WINNERS)) * table.sum() / len(table)])
    weights = [*often, *[UNSEEN] * len(WINNERS)]
    drawn = np.random.default_rng(0xCA3E1).dirichlet(weights, RESAMPLES) @ kinds
    score = float(table.sum(0) @ worth / table.sum())
    return rates, interval(score, drawn @ worth / drawn.sum(1))


def _voter(name: str, votes: Sequence[CastVote], decided: Mapping[str, Mapping[str, Winner]]) -> Voter:
    agreed = compared = 0
    for vote in votes:
        others: list[Winner] = [one for voter, one in decided.get(vote.key, {}).items() if voter != name]
        if vote.choice != "skip" and others:
            compared += 1
            agreed += majority(others) == vote.choice
    return Voter(
        name,
        votes=sum(vote.choice != "skip" for vote in votes),
        skipped=sum(vote.choice == "skip" for vote in votes),
        draws=sum(vote.choice == "draw" for vote in votes),
        first=sum(vote.choice == vote.first for vote in votes),
        with_majority=wilson(agreed, compared),
    )


def _between(decided: Mapping[str, Mapping[str, Winner]]) -> list[Between]:
    """Return the agreement of each two voters who share at least `LEAST_SHARED` pairs."""
    shared: dict[tuple[str, str], list[tuple[Winner, Winner]]] = defaultdict(list)
    for votes in decided.values():
        for one, other in combinations(sorted(votes), 2):
            shared[one, other].append((votes[one], votes[other]))
    return [Between(*two, cohen(said)) for two, said in sorted(shared.items()) if len(said) >= LEAST_SHARED]


def _judges(
    known: Mapping[str, Pair], outcomes: Mapping[str, Winner | None], verdicts: Sequence[PairVerdict]
) -> list[Between]:
    people: dict[str, Winner | None] = {known[key].id: winner for key, winner in outcomes.items()}
    by_judge: dict[str, list[tuple[Winner, Winner]]] = defaultdict(list)
    for verdict in verdicts:
        mine = people.get(verdict.pair)
        if verdict.kind == "judge" and verdict.winner and mine:
            by_judge[verdict.judge].append((verdict.winner, mine))
    return [Between(judge, "most voters", cohen(said)) for judge, said in by_judge.items()]


def votes_csv(path: Path) -> str:
    """Return each voter's last votes as CSV, including skips. `vote` is a, b, draw or skip, and `winner` names the system."""
    known = {key_of(pair): pair for pair in read_pairs(path)}
    rows: list[dict[str, str]] = []
    for mine in latest(read_records(votes_folder(path))).values():
        for vote in mine.values():
            if pair := known.get(vote.key):
                systems = {"a": pair.system_a, "b": pair.system_b}
                at = datetime.fromtimestamp(vote.at, UTC).isoformat(timespec="seconds")
                about = (pair.id, pair.group, pair.system_a, pair.system_b, vote.voter, vote.choice)
                cells = (*about, systems.get(vote.choice, ""), systems[vote.first], at)
                rows.append(dict(zip(COLUMNS, cells, strict=True)))
    return as_csv(rows, COLUMNS)
