"""The study of a run: how often each behavior occurs, where, in whose messages, and how long messages get.

The one decision to know: figures are computed from sums and bounded samples, one shard at a time, so that memory does not
depend on the size of the run. All random choices have fixed seeds, so that the same run gives the same study.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from camel.core.errors import MissingExtra
from camel.core.message import Usage
from camel.detectors import DETECTORS
from camel.evaluation.findings import EXAMPLES, Looked, draw
from camel.reports.intervals import Clusters, Rate, ReportFigures, wilson

try:
    import numpy as np
except ImportError:
    raise MissingExtra("Studying a run", "study") from None

TURNS = 200
"""Maximum number of messages per conversation in the curves."""
SEATS = 4
"""Maximum number of seats with separate curves. With more seats, one curve covers all messages."""
SAMPLE = 2_048
"""Size of the sample from which quartiles are computed if there are more than twice as many values. A rank is off by about
1%."""
ROLES = 500
"""Maximum number of roles that are counted; roles that appear later are skipped."""
DONE = 5_000
"""Maximum number of conversations that ended as done from which the judge's sample is drawn."""
SHOWN_ROLES = 20
"""Number of roles to show per behavior, ordered by the lower end of the interval."""
MEASURES = ("chars", "prompt", "completion", "cached")
OPEN = "open"
"""The stop reason of a conversation that has none."""
EVERYBODY = "all"
SEEN = (
    "Detectors are rules about form. They find swapped roles, repetition, loops, replies that add nothing, refusals, "
    "unfinished code, format violations and changes of language."
)
UNSEEN = "They cannot judge whether a text makes sense or is true: fluent nonsense shows no behavior."
"""Caveat shown with all findings, so that readers do not take their absence for good quality."""


class Example(msgspec.Struct, frozen=True):
    """A finding with the message in which it was found."""

    id: str
    index: int
    speaker: str
    role: str
    excerpt: str
    evidence: str
    reason: str
    before: str = ""
    """The text of the preceding message."""


class RoleRate(msgspec.Struct, frozen=True):
    """Share of a role's conversations in which its own messages show a behavior."""

    seat: str
    role: str
    rate: Rate


class Behavior(msgspec.Struct, frozen=True):
    """All figures of one detector."""

    name: str
    title: str
    version: int
    conversations: Rate
    """Share of conversations with at least one finding."""
    messages: Rate
    """Share of messages with a finding. The interval accounts for similar messages within a conversation."""
    by_stop: dict[str, Rate]
    """Share of conversations with a finding, by stop reason."""
    by_seat: dict[str, Rate]
    """Share of messages with a finding, by the speaker's seat."""
    by_turn: list[Rate]
    """Share of messages with a finding, by position in the conversation: the first message, the second, …"""
    by_role: list[RoleRate]
    examples: list[Example]


class SpreadPoint(msgspec.Struct, frozen=True):
    """The distribution of a measure at one position in the conversation."""

    turn: int
    """Position of the message, from 1."""
    count: int
    low: float
    """The first quartile; `high` is the third."""
    median: float
    high: float


class Curve(msgspec.Struct, frozen=True):
    """The distribution of a measure at each position in the conversation."""

    seat: str
    measure: str
    """`chars`, or one of the token counts `prompt`, `completion` and `cached`."""
    points: list[SpreadPoint]


class Deserved(msgspec.Struct, frozen=True):
    """How often a judge found that a conversation that declared its task done had done it."""

    rate: Rate
    """Share of the decided conversations in which the task was done."""
    asked: int
    undecided: int
    ended_done: int
    """Number of all conversations of the run that ended as done. The judge saw `asked` of them."""
    model: str
    usage: Usage
    money: float | None
    examples: list[JudgedExample]


class JudgedExample(msgspec.Struct, frozen=True):
    """A verdict with the judge's reason."""

    id: str
    task: str
    deserved: bool | None
    reason: str


class Study(ReportFigures, frozen=True):
    """All figures of a study, as stored in `study.json`."""

    file = "study"
    run: str
    scenario: str
    models: list[str]
    fingerprint: str
    conversations: int
    messages: int
    usage: Usage
    """Total tokens of the messages, without those used to specify tasks."""
    length: SpreadPoint
    """Distribution of the number of messages per conversation."""
    any: Rate
    """Share of conversations with at least one behavior."""
    stops: dict[str, Rate]
    speakers: list[str]
    """The seats that most often speak first, second, …"""
    behaviors: list[Behavior]
    growth: list[Curve]
    deserved: Deserved | None = None
    labels: list[str] = msgspec.field(default_factory=list[str])
    """Restricted labels of the run's conversations."""
    canary: str = ""
    """The GUID that every text with restricted conversations must contain."""
    schema: int = 1


class Candidate(msgspec.Struct, frozen=True, order=True):
    """A conversation that the judge may see. Candidates sort in the order in which they are drawn."""

    drawn: bytes
    shard: int
    row: int
    id: str


class _Quartiles:
    """A bounded sample of values: those with the smallest random keys."""

    def __init__(self) -> None:
        self.count = 0
        # Single precision saves memory, as there are hundreds of samples. It is exact for integers up to 16 million.
        self._keys, self._values = np.empty(0, np.float32), np.empty(0, np.float32)

    def add(self, keys: Any, values: Any) -> None:
        self.count += len(values)
        self._keys = np.append(self._keys, keys.astype(np.float32))
        self._values = np.append(self._values, values.astype(np.float32))
        if len(self._keys) > 2 * SAMPLE:
            least = np.argpartition(self._keys, SAMPLE)[:SAMPLE]
            self._keys, self._values = self._keys[least], self._values[least]

    def point(self, turn: int) -> SpreadPoint:
        if not self.count:
            return SpreadPoint(turn, 0, 0.0, 0.0, 0.0)
        low, median, high = (float(value) for value in np.quantile(self._values, [0.25, 0.5, 0.75]))
        return SpreadPoint(turn, self.count, low, median, high)


class Gatherer:
    """Computes a study from the findings of a run, one shard at a time."""

    def __init__(self, looked: Iterable[Looked]) -> None:
        self.names = list(DETECTORS)
        self._place = {name: place for place, name in enumerate(self.names)}
        self._stops: Counter[str] = Counter()
        self._by_stop: Counter[tuple[str, int]] = Counter()
        self._clusters: dict[tuple[str, int], Clusters] = {}
        self._turns = np.zeros(TURNS, np.int64)
        self._by_turn = np.zeros((TURNS, len(self.names)), np.int64)
        self._speakers = [Counter[str]() for _ in range(TURNS)]
        self._roles: Counter[tuple[str, str]] = Counter()
        self._by_role: Counter[tuple[str, str, int]] = Counter()
        self._curves: dict[tuple[str, str, int], _Quartiles] = {}
        self._lengths = _Quartiles()
        self._seats: list[str] = []
        self._usage = Usage()
        self._messages = self._any = 0
        self._models: set[str] = set()
        self._examples: dict[str, list[tuple[bytes, Example]]] = {name: [] for name in self.names}
        self.done: list[Candidate] = []
        """Conversations that ended as done, in the order in which they are drawn for the judge."""
        self.ended_done = 0
        for one in looked:
            self._add(one)

    def _add(self, looked: Looked) -> None:
        table = looked.table
        if not table.num_rows:
            return
        ids: list[str] = table["id"].to_pylist()
        stops: list[str] = [stop or OPEN for stop in table["stop"].to_pylist()]
        messages = _Flat(table["messages"])
        findings = _Flat(table["findings"])
        self._models |= set(messages.values.field("model").unique().to_pylist()) - {""}
        detectors = np.array([self._place[name] for name in findings.texts("detector")], np.int64)
        index = findings.numbers("index")
        flagged = np.zeros((table.num_rows, len(self.names)), bool)
        flagged[findings.rows, detectors] = True
        self._any += int(flagged.any(axis=1).sum())
        self._count_stops(stops, flagged)
        # A message counts once per detector, even if it has several findings.
        inside = (index >= 0) & (index < messages.lengths[findings.rows])
        marked = np.unique(
            np.stack([messages.starts[findings.rows] + index, detectors], 1)[inside], axis=0
        ).reshape(-1, 2)
        self._count_seats(messages, marked)
        self._count_turns(messages, marked)
        self._count_roles(messages, marked)
        self._measure(looked.shard, messages)
        self._keep_examples(ids, messages, findings)
        self._note_done(looked, ids, stops)

    def _count_stops(self, stops: list[str], flagged: Any) -> None:
        named = np.array(stops)
        for stop in sorted(set(stops)):
            chosen = flagged[named == stop]
            self._stops[stop] += len(chosen)
            for place, count in enumerate(chosen.sum(axis=0)):
                self._by_stop[stop, place] += int(count)

    def _count_seats(self, messages: _Flat, marked: Any) -> None:
        speakers = np.array(messages.texts("speaker"), object)
        conversations = len(messages.lengths)
        for seat in [EVERYBODY, *sorted(set(speakers))]:
            own = np.ones(len(speakers), bool) if seat == EVERYBODY else speakers == seat
            sizes = np.bincount(messages.rows[own], minlength=conversations)
            if seat not in self._seats and seat != EVERYBODY:
                self._seats.append(seat)
            for place in range(len(self.names)):
                of = marked[(marked[:, 1] == place), 0]
                counts = np.bincount(messages.rows[of[own[of]]], minlength=conversations)
                self._clusters.setdefault((seat, place), Clusters()).add(counts, sizes)

    def _count_turns(self, messages: _Flat, marked: Any) -> None:
        turns = messages.places
        self._turns += np.bincount(turns[turns < TURNS], minlength=TURNS)
        at = turns[marked[:, 0]]
        near = at < TURNS
        np.add.at(self._by_turn, (at[near], marked[near, 1]), 1)

        for turn, speaker in zip(turns.tolist(), messages.texts("speaker"), strict=True):
            if turn < TURNS:
                self._speakers[turn][speaker] += 1

    def _count_roles(self, messages: _Flat, marked: Any) -> None:
        speakers, roles = messages.texts("speaker"), messages.texts("role")
        seen: set[tuple[int, str, str]] = set()
        for row, speaker, role in zip(messages.rows.tolist(), speakers, roles, strict=True):
            seen.add((row, speaker, role))
        # Sorted, so that the same roles are counted each time.
        for _, speaker, role in sorted(seen):
            if (speaker, role) in self._roles or len(self._roles) < ROLES:
                self._roles[speaker, role] += 1
        shown = {(int(messages.rows[at]), speakers[at], roles[at], place) for at, place in marked.tolist()}
        for _, speaker, role, place in shown:
            if (speaker, role) in self._roles:
                self._by_role[speaker, role, place] += 1

    def _measure(self, shard: int, messages: _Flat) -> None:
        chance = np.random.default_rng([0xCA3E1, shard])
        keys = chance.random(len(messages.rows))
        self._lengths.add(chance.random(len(messages.lengths)), messages.lengths)
        self._messages += len(messages.rows)
        values = {measure: messages.numbers(measure) for measure in MEASURES}
        self._usage += Usage(
            *(int(values[measure].sum()) for measure in ("prompt", "completion", "cached")),
            calls=int((values["prompt"] + values["completion"] > 0).sum()),
        )
        speakers = np.array(messages.texts("speaker"), object)
        for seat in [EVERYBODY, *self._seats[:SEATS]]:
            own = np.ones(len(speakers), bool) if seat == EVERYBODY else speakers == seat
            turns = messages.places
            for turn in np.unique(turns[own & (turns < TURNS)]).tolist():
                at = np.flatnonzero(own & (turns == turn))
                for measure in MEASURES:
                    self._curves.setdefault((seat, measure, turn), _Quartiles()).add(
                        keys[at], values[measure][at]
                    )

    def _keep_examples(self, ids: list[str], messages: _Flat, findings: _Flat) -> None:
        excerpts = findings.texts("excerpt")
        columns = {name: findings.texts(name) for name in ("detector", "evidence", "reason", "before")}
        speakers, roles = messages.texts("speaker"), messages.texts("role")
        index = findings.numbers("index").tolist()
        for at, excerpt in enumerate(excerpts):
            if excerpt is None:
                continue
            row = int(findings.rows[at])
            message = int(messages.starts[row]) + index[at]
            example = Example(
                ids[row],
                index[at],
                speakers[message],
                roles[message],
                excerpt,
                columns["evidence"][at],
                columns["reason"][at],
                columns["before"][at] or "",
            )
            kept = self._examples[columns["detector"][at]]
            kept.append((draw(ids[row]), example))
            kept.sort(key=lambda one: one[0])
            del kept[EXAMPLES:]

    def _note_done(self, looked: Looked, ids: list[str], stops: list[str]) -> None:
        rows = [row for row, stop in enumerate(stops) if stop == "done"]
        self.ended_done += len(rows)
        place = range(len(ids)) if looked.rows is None else looked.rows
        self.done += [Candidate(draw(ids[row]), looked.shard, place[row], ids[row]) for row in rows]
        self.done.sort()
        del self.done[DONE:]

    def study(self, *, run: str, scenario: str, fingerprint: str) -> Study:
        """Return the study of all shards."""
        stops = dict(self._stops.most_common())
        total = sum(stops.values())
        seats = [EVERYBODY] if len(self._seats) > SEATS else self._seats
        return Study(
            run,
            scenario,
            sorted(self._models),
            fingerprint,
            total,
            self._messages,
            self._usage,
            self._lengths.point(0),
            wilson(self._any, total),
            {stop: wilson(count, total) for stop, count in stops.items()},
            [self._speakers[turn].most_common(1)[0][0] for turn in range(_last(self._turns))],
            [self._figures(place, stops, total) for place in range(len(self.names))],
            [
                Curve(seat, measure, self._points(seat, measure))
                for measure in MEASURES
                if measure == "chars" or self._usage.total
                for seat in seats
            ],
        )

    def _figures(self, place: int, stops: dict[str, int], total: int) -> Behavior:
        name = self.names[place]
        detector = DETECTORS[name]
        roles = [
            RoleRate(seat, role, wilson(self._by_role[seat, role, place], count))
            for (seat, role), count in self._roles.items()
            if self._by_role[seat, role, place]
        ]
        return Behavior(
            name,
            detector.title,
            detector.version,
            wilson(sum(self._by_stop[stop, place] for stop in stops), total),
            self._clusters.get((EVERYBODY, place), Clusters()).rate(),
            {stop: wilson(self._by_stop[stop, place], count) for stop, count in stops.items()},
            {seat: self._clusters[seat, place].rate() for seat in self._seats},
            [
                wilson(int(self._by_turn[turn, place]), int(self._turns[turn]))
                for turn in range(_last(self._turns))
            ],
            sorted(roles, key=lambda one: (-one.rate.low, one.seat, one.role))[:SHOWN_ROLES],
            [example for _, example in self._examples[name]],
        )

    def _points(self, seat: str, measure: str) -> list[SpreadPoint]:
        turns = sorted(turn for of, what, turn in self._curves if (of, what) == (seat, measure))
        return [self._curves[seat, measure, turn].point(turn + 1) for turn in turns]


class _Flat:
    """A column of lists, flattened into one column, with the row index of each element."""

    def __init__(self, lists: Any) -> None:
        array = lists.combine_chunks()
        offsets = array.offsets.to_numpy()
        self.values = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        self.lengths = np.diff(offsets).astype(np.int64)
        self.starts = (offsets[:-1] - offsets[0]).astype(np.int64)
        self.rows = np.repeat(np.arange(len(self.lengths)), self.lengths)
        self.places = np.arange(len(self.rows)) - np.repeat(self.starts, self.lengths)

    def texts(self, name: str) -> list[Any]:
        return self.values.field(name).to_pylist()

    def numbers(self, name: str) -> Any:
        return self.values.field(name).to_numpy(zero_copy_only=False).astype(np.int64)


def _last(counts: Any) -> int:
    """Return the position of the last message that occurs, from 1. Return 0 if there is none."""
    there = np.flatnonzero(counts)
    return int(there[-1]) + 1 if len(there) else 0


def shown(behaviors: Sequence[Behavior]) -> list[Behavior]:
    """Return the behaviors that occur, the most frequent first."""
    found = [one for one in behaviors if one.conversations.count]
    return sorted(found, key=lambda one: (-one.conversations.rate, one.name))
