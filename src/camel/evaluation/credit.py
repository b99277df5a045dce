"""The value of every message: how likely a conversation succeeds when it is continued again from there.

The one decision to know: the value after a message is the share of new continuations that succeed, and the value after the last
message is the recorded result. Samples go where the value changes: the conversation is halved again and again on the side with
the larger change, so most messages need no sample. Messages between two measured ones get values on a straight line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import msgspec

from camel.core.branches import Continuation, cut_replies, digest_of, usage_after, usual_rules
from camel.core.conversation import Turns
from camel.core.errors import CamelError, InputError
from camel.core.identity import identity_of
from camel.core.message import Usage
from camel.core.model import Model
from camel.core.stops import StopRule
from camel.core.transcript import Transcript
from camel.core.turns import Policy
from camel.engine.stage import write_lines
from camel.evaluation.credit_report import ConversationCredit, CreditFigures, MessageCredit, report
from camel.evaluation.effects import difference
from camel.jobs.item import Item, id_number, item_seed
from camel.jobs.job import Job, Stage, Step
from camel.jobs.replies import CheckedModel
from camel.jobs.state import name_of
from camel.models.spec import ModelSpec
from camel.record.release import refuse_restricted
from camel.reports.html import write_report
from camel.reports.intervals import wilson
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder

Check = Callable[[Transcript], float | bool | None]
ROUND = 8
"""Number of continuations of one prefix per round."""
ENOUGH = 24
"""Maximum number of continuations of a prefix that separate two halves."""
CERTAIN = 32
"""Number of continuations on each side of the message with the largest change, before it may be called decisive."""
UNCLEAR = 0.2
"""Part of a change by which a value must be off its middle to tell on which side most of the change is."""
FLAT = 0.25
"""Smallest change of the value between two messages that is examined further."""
PER_SHARD = 20


class CreditSample(msgspec.Struct, frozen=True):
    """One continuation from after `at` recorded messages."""

    id: str
    at: int
    success: bool | None
    """None if the check did not decide or the continuation failed."""
    said: str = ""
    """The first new message."""
    usage: Usage = Usage()
    error: str = ""


@dataclass
class Prefixes:
    """What is known of one conversation: the successes of continuations by the number of kept messages."""

    length: int
    success: bool
    """Whether the recorded conversation succeeded."""
    found: dict[int, list[bool]] = field(default_factory=dict[int, list[bool]])

    def value(self, at: int) -> float:
        """Return the value after `at` messages, which is measured."""
        if at == self.length:
            return float(self.success)
        return sum(self.found[at]) / len(self.found[at])

    @property
    def measured(self) -> list[int]:
        """The places with a value, in order."""
        return [*sorted(at for at, found in self.found.items() if found and at < self.length), self.length]

    def next(self) -> int | None:
        """Return the place to continue from in the next round, or None if the decisive message is found."""
        known = self.measured
        if not all(self.found.values()):
            return (
                None  # the check decides about no continuation of a prefix, and more of them would not help
            )
        if known[0] != 0:
            return 0
        # The largest change first: halve it, or make its two values certain if it is one message.
        spans = sorted(pairwise(known), key=lambda one: -abs(self._change(*one)))
        for low, high in spans:
            if abs(self._change(low, high)) < FLAT:
                break
            if doubtful := self._doubtful(low, high, known):
                return doubtful
            if high - low > 1:
                return (low + high) // 2
            return next(
                (at for at in (low, high) if len(self.found.get(at, ())) < CERTAIN and at < self.length),
                None,
            )
        return None

    def _doubtful(self, low: int, high: int, known: Sequence[int]) -> int | None:
        """Return the end of a span that is so near to the middle of its neighbors that the change may be on its other side."""
        for at in (low, high):
            place = known.index(at)
            if 0 < place < len(known) - 1 and len(self.found[at]) < ENOUGH:
                before, after = self.value(known[place - 1]), self.value(known[place + 1])
                if abs(self.value(at) - (before + after) / 2) < UNCLEAR * abs(after - before):
                    return at
        return None

    def _change(self, low: int, high: int) -> float:
        return self.value(high) - self.value(low)

    def values(self) -> list[float]:
        """Return the values after 0, 1, … messages."""
        known, made = self.measured, list[float]()
        for low, high in pairwise(known):
            step = self._change(low, high) / (high - low)
            made += [self.value(low) + step * place for place in range(high - low)]
        return [*made, float(self.success)]


@dataclass(frozen=True)
class Credit(Job):
    """A job that measures the value of the messages of recorded conversations."""

    name = "credit"
    records: Sequence[Transcript]
    check: Check
    success: Any
    """What identifies the check."""
    model: Model | ModelSpec
    place: str
    samples: int = 96
    """Maximum number of continuations per conversation."""
    rules: Sequence[StopRule] = ()
    seed: int | None = 0
    turns: Policy | Turns | None = None
    """Who speaks next. Default: as recorded."""
    uniform: bool = False
    """Whether every message gets the same number of samples, instead of those where the value changes."""
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", {"": self.model})
        refuse_restricted(self.records)
        if not self._recorded:
            raise InputError("the check decides about none of the conversations")

    @cached_property
    def _recorded(self) -> dict[str, tuple[int, bool]]:
        """The number of messages and the result of each conversation about which the check decides."""
        found = {one.id: (len(one.messages), self.check(one)) for one in self.records if one.messages}
        return {id: (length, bool(result)) for id, (length, result) in found.items() if result is not None}

    def known(self) -> dict[str, Prefixes]:
        """Return the conversations about which the check decides, before any sample."""
        return {id: Prefixes(*one) for id, one in self._recorded.items()}

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield rounds. Which prefixes a round continues depends on the rounds before it."""
        known = self.known()
        for number in range(self.samples // ROUND):
            if self.uniform:
                wanted = {id: number % one.length for id, one in known.items()}
            else:
                wanted = {id: at for id, one in known.items() if (at := one.next()) is not None}
            if not wanted:
                return
            stage = self._stage(number, [(id, at) for id, at in wanted.items() for _ in range(ROUND)])
            yield stage
            self._add(run, stage.name, known)

    def _stage(self, number: int, items: list[tuple[str, int]]) -> Stage:
        records = {one.id: one for one in self.records}
        return Stage(
            name=f"round-{number + 1:03d}",
            count=len(items),
            work=partial(self._sample, records, items),
            write=write_lines,
            failed=lambda item, error: _failed(items[item.index], error),
            failure=lambda one: one.error,
            id=lambda index: f"{items[index][0]}-{items[index][1]}-{number}-{index % ROUND}",
            read=self._read,
            identity=self.identity(),
            suffix=".jsonl",
            shard_size=PER_SHARD,
        )

    def identity(self) -> dict[str, Any]:
        """Return what determines the samples."""
        return {
            "records": {one.id: digest_of(one) for one in self.records},
            "success": self.success,
            "model": name_of(self.model),
            "seed": self.seed,
            "uniform": self.uniform,
            "rules": identity_of(self.rules),
            **({"turns": identity_of(self.turns)} if self.turns else {}),
        }

    def expected(self) -> dict[str, Usage]:
        """Return the largest expected usage: all samples of all conversations, each from the middle of its conversation."""
        halves = (
            usage_after(one, len(one.messages) // 2) for one in self.records if one.id in self._recorded
        )
        used = [one for one in halves for _ in range(self.samples // ROUND * ROUND)]
        return {"": sum(used, Usage())}

    async def _sample(
        self, records: Mapping[str, Transcript], items: list[tuple[str, int]], item: Item
    ) -> CreditSample:
        id, at = items[item.index]
        record = records[id]
        model = CheckedModel(item.model(), cut_replies([record]))
        seed = item_seed(self.seed, id_number(item.id))
        own: dict[str, Any] = {"rules": self.rules or usual_rules(record), "turns": self.turns}
        made = await Continuation(record, at + 1, {"": model}, id=item.id, seed=seed, **own).finish()
        said = made.messages[at].content if len(made.messages) > at else ""
        result = self.check(made)
        return CreditSample(id, at, None if result is None else bool(result), said, item.usage)

    def _read(self, marker: Marker) -> list[CreditSample]:
        return msgspec.json.Decoder(CreditSample).decode_lines(open_folder(self.place).read(marker.file))

    def _add(self, run: RunFolder, stage: str, known: Mapping[str, Prefixes]) -> list[CreditSample]:
        made = [
            one for marker in run.markers(stage, sorted(run.committed(stage))) for one in self._read(marker)
        ]
        for one in made:
            known[one.id].found.setdefault(one.at, [])
            if one.success is not None:
                known[one.id].found[one.at].append(one.success)
        return made

    def result(self, run: RunFolder) -> CreditFigures:
        """Compute the values, and write the report into the folder."""
        known, samples = self.known(), list[CreditSample]()
        for stage in sorted(name for name in run.stages() if name.startswith("round-")):
            samples += self._add(run, stage, known)
        tried: dict[tuple[str, int], list[CreditSample]] = {}
        for one in samples:
            tried.setdefault((one.id, one.at), []).append(one)
        # Without a value at the start, there is none for the messages.
        valued = [one for one in self.records if one.id in known and 0 in known[one.id].measured]
        made = CreditFigures(
            [credit_of(one, known[one.id], tried) for one in valued],
            name_of(self.model),
            len(samples),
            sum(bool(one.error) for one in samples),
            sum((one.usage for one in samples), Usage()),
        )
        if run.on_disk:
            write_report(run.root, report(made), made)
        return made


def credit_of(
    record: Transcript, known: Prefixes, tried: Mapping[tuple[str, int], Sequence[CreditSample]]
) -> ConversationCredit:
    """Return the values of a conversation's messages. `tried` are the continuations by conversation and place."""
    values, rows = known.values(), list[MessageCredit]()
    decisive: MessageCredit | None = None
    # Corrected for the number of messages, any of which may seem to change the value by chance.
    level = 1 - 0.025 / max(1, known.length)
    for place, message in enumerate(record.messages):
        before, after = ([float(x) for x in known.found.get(at, ())] for at in (place, place + 1))
        low, high = sure = -1.0, 1.0
        if before and after:
            (low, high), sure = difference(before, after), difference(before, after, level)
        elif before and place + 1 == known.length:
            # The result is known, and only the value before it is uncertain.
            start = wilson(int(sum(before)), len(before))
            low, high = sure = known.success - start.high, known.success - start.low
        own = known.found.get(place + 1, [])
        rate = wilson(sum(own), len(own)) if own else None
        rows.append(
            MessageCredit(
                place + 1,
                message.speaker,
                message.content,
                values[place + 1],
                (rate.low, rate.high) if rate else None,
                values[place + 1] - values[place],
                (low, high),
                bool(before) and bool(after or place + 1 == known.length),
                [
                    (one.said, one.success)
                    for one in tried.get((record.id, place), ())
                    if one.said and one.success is not None
                ],
            )
        )
        size = abs(rows[-1].advantage)
        if not sure[0] <= 0 <= sure[1] and size >= max(FLAT, abs(decisive.advantage) if decisive else 0):
            decisive = rows[-1]
    return ConversationCredit(
        record.id, record.task.text, known.success, values[0], decisive.number if decisive else None, rows
    )


def _failed(item: tuple[str, int], error: CamelError) -> CreditSample:
    return CreditSample(*item, None, error=f"{type(error).__name__}: {error}"[:500])
