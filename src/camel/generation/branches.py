"""Branches of recorded conversations as a declaration, so that the job of `camel.generate` makes them.

The one decision to know: each conversation has branches without the change, too. They are made in the same way at the same
time, so that the difference between the two kinds is the effect of the change, and not of chance or of a newer model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from camel.core.branches import Change, Continuation, digest_of, filled, usual_rules
from camel.core.conversation import Turns
from camel.core.errors import InputError
from camel.core.identity import identity_of
from camel.core.model import Model
from camel.core.play import Declaration
from camel.core.stops import StopRule
from camel.core.tools import Workplace
from camel.core.transcript import Transcript
from camel.core.turns import Policy
from camel.record.release import refuse_restricted

UNCHANGED, CHANGED = "unchanged", "changed"
"""The kinds of branches of one change. `CHANGED` is also the seat of the other model in the job's models."""
OF, AT, KIND = "branch_of", "branch_at", "branch_kind"
"""Inputs of a branch: the id of its conversation, the number of its first new message, and its kind."""


@dataclass(frozen=True)
class Branching(Declaration):
    """Changes at one message of recorded conversations."""

    records: Mapping[str, Transcript]
    """The conversations by id. Those with fewer messages are left out."""
    at: int
    """Number of the message at which the branches begin, from 1."""
    changes: Mapping[str, Change] = field(default_factory=dict[str, Change])
    """Changes by name. Each is compared with the same branches without a change."""
    rules: Sequence[StopRule] = ()
    turns: Policy | Turns | None = None
    """Who speaks next. Default: as recorded."""
    row: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if not self.kept:
            raise InputError(f"no conversation has a message {self.at}")
        refuse_restricted(self.kept.values())

    @property
    def kept(self) -> dict[str, Transcript]:
        """The conversations that have the message."""
        return {id: one for id, one in self.records.items() if len(one.messages) >= self.at}

    def rows(self, count: int) -> Iterator[dict[str, str]]:
        """Yield a row for each branch: `count` of each kind for each conversation. A sentence is removed where it occurs."""
        for id, record in self.kept.items():
            kinds = [UNCHANGED, *(name for name, one in self.changes.items() if occurs(one, record))]
            for number in range(count):
                for kind in kinds:
                    own = {
                        "id": f"{id}-{self.at}-{kind}-{number + 1:03d}",
                        OF: id,
                        AT: str(self.at),
                        KIND: kind,
                    }
                    yield {**record.inputs, **own}

    @property
    def title(self) -> str:
        """A short title."""
        return f"branches at message {self.at}"

    @property
    def placeholders(self) -> frozenset[str]:
        """The names of the inputs of a branch."""
        return frozenset({OF, AT, KIND, *(name for one in self.kept.values() for name in one.inputs)})

    def fill(self, row: Mapping[str, Any]) -> Branching:
        """Return the declaration of one branch."""
        return replace(self, row={name: str(value) for name, value in row.items()})

    def identity(self) -> dict[str, Any]:
        """Return what identifies the branches, except the models."""
        return {
            "kind": "branches",
            "at": self.at,
            "changes": msgspec.to_builtins(self.changes),
            "records": {id: digest_of(one) for id, one in self.kept.items()},
            "rules": identity_of(self.rules),
            **({"turns": identity_of(self.turns)} if self.turns else {}),
        }

    def with_rules(self, rules: Sequence[StopRule]) -> Branching:
        """Return a copy with other stop rules."""
        return replace(self, rules=tuple(rules))

    def own_model(self) -> Model:
        """Raise an `InputError`: records contain only the names of their models."""
        raise InputError("the model that continues the conversations is missing")

    def play(
        self,
        model: Model | Mapping[str, Model],
        *,
        id: str = "",
        seed: int | None = None,
        workplace: Workplace | None = None,
    ) -> Continuation:
        """Return one branch, ready to start."""
        record, change = self.records[self.row[OF]], self.changes.get(self.row[KIND])
        models = dict(model) if isinstance(model, Mapping) else {"": model}
        other = models.pop(CHANGED, None)
        at = self.at
        if change is None:
            # A changed message is compared with the recorded one, anything else with a new message.
            at += any(one.message is not None for one in self.changes.values())
        elif other is not None:
            models |= dict.fromkeys([change.seat] if change.seat else [*models, ""], other)
        own: dict[str, Any] = {"rules": self.rules or usual_rules(record), "turns": self.turns}
        return Continuation(record, at, models, change, id=id, seed=seed, workplace=workplace, **own)


def occurs(change: Change, record: Transcript) -> bool:
    """Return whether a record has the sentence that a change removes. True for other changes."""
    sentence = filled(change.without, record)
    return not sentence or any(
        sentence in one.system for one in record.speakers if change.seat in ("", one.name)
    )
