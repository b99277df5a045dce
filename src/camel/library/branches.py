"""`fork`: continue recorded conversations from one of their messages, with and without a change, and compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from msgspec.structs import replace

from camel.core.branches import Change, cut_replies, usage_after
from camel.core.checks import shown, similar
from camel.core.conversation import Turns
from camel.core.errors import InputError
from camel.core.message import Usage, in_one_line
from camel.core.model import Model
from camel.core.stops import StopReason, StopRule
from camel.core.transcript import Transcript
from camel.core.turns import Policy
from camel.detectors import DETECTORS, Finding, detect
from camel.evaluation.branch_report import BranchFigures, Side, outcomes_of, report
from camel.evaluation.effects import Shift, effect_of
from camel.generation.branches import AT, CHANGED, KIND, OF, UNCHANGED, Branching, occurs
from camel.generation.dialogues import Dialogues
from camel.jobs.state import name_of
from camel.library.execution import finish_job
from camel.models.command import COMMAND
from camel.models.local import ALIAS, LOCAL
from camel.models.spec import ModelSpec, find_spec, spec_of
from camel.reports.html import write_report
from camel.reports.notebook import facts_html
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder

Check = str | Callable[[Transcript], float | bool | None]
SHOWN, SHOWN_MESSAGES, SHOWN_CHARS = 5, 2, 1_500
"""Number of examples in the report, of their messages, and of characters per message."""
ENDINGS: tuple[str, ...] = get_args(StopReason)


def fork(
    conversations: RunReader | Sequence[Transcript],
    at: int,
    *,
    n: int = 10,
    message: str | None = None,
    seat: str = "",
    role: str = "",
    without: str = "",
    temperature: float | None = None,
    model: Model | ModelSpec | str | None = None,
    using: Model | ModelSpec | str | None = None,
    rules: Sequence[StopRule] = (),
    turns: Policy | Turns | None = None,
    out: str | Path = "",
    seed: int | None = None,
    **limits: Any,
) -> Branches:
    """Continue conversations from message `at` (its number, from 1), `n` times with a change and `n` times without.

        made = camel.fork(camel.Run("runs/trial"), at=3, without="Never flip roles!", seat="assistant")
        made.effect("role_flipping")

    Everything before the message comes from the record and is not paid for. The change is one of: `message`, a new text of
    this message; `role`, the role of `seat` in all prompts; `without`, a sentence that is removed from system prompts;
    `temperature`; `model`, another model. The last three apply to `seat`, or to all seats. Without a change the conversations
    are only continued. `using` is the model that continues them, by default the recorded one. `rules` are the stop rules, by
    default those of a role play, and `turns` who speaks next, by default as recorded. The branches are a run in the folder `out`, with a report. `limits` are arguments of
    `run_job`.
    """
    if isinstance(conversations, RunReader):
        out = out or f"{conversations.folder.address.rstrip('/')}-branches-{at}"
    job = fork_job(
        list(conversations),
        at,
        n=n,
        message=message,
        seat=seat,
        role=role,
        without=without,
        temperature=temperature,
        model=model,
        using=using,
        rules=rules,
        turns=turns,
        out=out,
        seed=seed,
    )
    finish_job(job, **limits)
    return job.branches()


def fork_job(
    records: Sequence[Transcript],
    at: int,
    *,
    n: int,
    message: str | None,
    seat: str,
    role: str,
    without: str,
    temperature: float | None,
    model: Model | ModelSpec | str | None,
    using: Model | ModelSpec | str | None,
    rules: Sequence[StopRule],
    out: str | Path,
    seed: int | None,
    turns: Policy | Turns | None = None,
) -> BranchJob:
    """Return the job of `fork`. Raise an `InputError` if the change cannot be made."""
    if not records:
        raise InputError("there is no conversation to continue")
    if not out:
        raise InputError("out is missing: pass the folder of the branches, such as out='runs/branches'")
    wanted = [name for name, given in {"message": message is not None, "role": role, "without": without,
              "temperature": temperature is not None, "model": model is not None}.items() if given]  # fmt: skip
    if len(wanted) > 1:
        raise InputError(
            f"give one change, not {' and '.join(wanted)}: otherwise nobody knows which one had the effect"
        )
    own = {one.name: one for one in records[0].speakers}
    if seat and seat not in own:
        raise InputError(f"there is no seat {shown(seat)}{similar(seat, own)}. Use one of {', '.join(own)}")
    sampling = None
    if temperature is not None:
        usual = own[seat].sampling if seat else next(iter(own.values())).sampling
        sampling = replace(usual, temperature=temperature)
    change = Change(
        message=message, seat=seat, role=role, without=without, sampling=sampling, model=model is not None
    )
    if not occurs(change, records[0]):
        raise InputError(f"no system prompt contains the sentence {shown(without)}")
    seats = {CHANGED: spec_of(model)} if model is not None else {}
    return branch_job(
        records, at, {CHANGED: change} if wanted else {}, n, using, rules, out, seed, seats, turns
    )


def branch_job(
    records: Sequence[Transcript],
    at: int,
    changes: Mapping[str, Change],
    n: int,
    using: Model | ModelSpec | str | None,
    rules: Sequence[StopRule],
    out: str | Path,
    seed: int | None,
    seats: Mapping[str, Model | ModelSpec],
    turns: Policy | Turns | None = None,
) -> BranchJob:
    """Return the job that makes `n` branches with each change and `n` without one. `changes` are by name."""
    found = spec_of(using) if using is not None else recorded_spec(records)
    declared = Branching({one.id: one for one in records}, at, changes, tuple(rules), turns)
    cut = cut_replies(records)
    return BranchJob(declared, list(declared.rows(n)), found, str(out), seed=seed, seats=seats, cut=cut)


@dataclass(frozen=True)
class BranchJob(Dialogues):
    """The job of `fork` and `camel ablate`: makes the branches and writes the report."""

    name = "fork"

    def branches(self) -> Branches:
        """Return the finished branches."""
        return Branches(self.place, cast("Branching", self.declaration).records)

    def identity(self) -> dict[str, Any]:
        """Return the identity of the branches, and their number."""
        return {**super().identity(), "branches": len(self.rows)}

    def expected(self) -> dict[str, Usage]:
        """Return the expected usage by seat of `models`: each branch needs what the record needed from its message on."""
        declared, made = cast("Branching", self.declaration), dict[str, Usage]()
        for row in self.rows:
            seat = CHANGED if row[KIND] == CHANGED and CHANGED in self.models else ""
            made[seat] = made.get(seat, Usage()) + usage_after(declared.records[row[OF]], declared.at - 1)
        return made

    def result(self, run: RunFolder) -> BranchFigures:
        """Compute the effects, and write the report into the run's folder."""
        declared, made = cast("Branching", self.declaration), self.branches()
        found = list(made)
        outcomes = outcomes_of(shifts(found))
        best = outcomes[0].change if outcomes else ""
        figures = BranchFigures(
            declared.at,
            {name: _in_words(one, self.seats) for name, one in declared.changes.items()},
            [name_of(one) for one in self.models.values()],
            len({of for of, _, _ in found}),
            len(found),
            len(RunReader(self.place)) - len(found),
            outcomes,
            _examples(declared, [one for one in found if one[1] in (UNCHANGED, best)]),
        )
        if run.on_disk:
            write_report(run.root, report(figures), figures)
        return figures


def _in_words(change: Change, seats: Mapping[str, Model | ModelSpec]) -> str:
    whose = f" of {change.seat}" if change.seat else ""
    if change.message is not None:
        return f"the message is now “{in_one_line(change.message)[:200]}”"
    if change.role:
        return f"the role{whose} is {change.role}"
    if change.without:
        return f"without “{in_one_line(change.without)}”{whose}"
    if change.sampling:
        return f"the temperature{whose} is {change.sampling.temperature:g}"
    return f"the model{whose} is {name_of(seats[CHANGED])}" if change.model else ""


def _examples(declared: Branching, found: Sequence[tuple[str, str, Transcript]]) -> list[list[Side]]:
    """Return the first branch of each kind for some conversations."""
    shown: dict[str, dict[str, Side]] = {}
    for of, kind, one in found:
        new = one.messages[declared.at - 1 :][:SHOWN_MESSAGES]
        said = [(message.role, message.content[:SHOWN_CHARS]) for message in new]
        ended = one.stop.detail if one.stop else "not ended"
        shown.setdefault(of, {}).setdefault(kind, Side(kind, one.id, said, ended))
    return [list(sides.values()) for sides in list(shown.values())[:SHOWN]]


@dataclass(frozen=True)
class Branches:
    """Branches of conversations, and the effect of the change between them."""

    place: str
    """The run of all branches. `camel.Run(place)` can be explored, studied and exported like any other run."""
    of: Mapping[str, Transcript]
    """The conversations that were continued, by id."""

    def __iter__(self) -> Iterator[tuple[str, str, Transcript]]:
        """Yield each branch that did not fail, with the id of its conversation and its kind."""
        for one in RunReader(self.place):
            if not one.excluded:
                yield one.inputs[OF], one.inputs[KIND], one

    def effect(self, check: Check, change: str = CHANGED) -> Shift | None:
        """Return the effect of the change on an outcome. None if there are no branches of both kinds.

        `check` is a function that returns a number or a bool for a transcript (None leaves it out), the name of an ending such
        as `done`, of a detector such as `refusal`, `messages`, `tokens`, or `score.NAME`. `change` is the name of one of
        several changes.
        """
        rate = outcome(check)
        return shift([(of, kind, rate(one)) for of, kind, one in self], change)

    def effects(self, change: str = CHANGED) -> dict[str, Shift]:
        """Return the effects on all endings, findings and scores that occur, and on the number of messages."""
        return shifts(self).get(change, {})

    def __repr__(self) -> str:
        return f"<Branches of {len(self.of):,} conversations in {self.place!r}>"

    def _repr_html_(self) -> str:
        """Return the effects as HTML for a notebook."""
        facts = [(name, str(one)) for name, one in self.effects().items()]
        return facts_html(repr(self), facts, "effect(check) returns the effect on an outcome of your own")


def shift(values: Iterable[tuple[str, str, float | None]], change: str) -> Shift | None:
    """Return the effect of a change, given the conversation, the kind and the outcome of each branch."""
    found: dict[str, dict[str, list[float]]] = {}
    for of, kind, value in values:
        if value is not None and kind in (UNCHANGED, change):
            found.setdefault(of, {UNCHANGED: [], change: []})[kind].append(float(value))
    return effect_of([(one[UNCHANGED], one[change]) for one in found.values()])


def shifts(branches: Iterable[tuple[str, str, Transcript]]) -> dict[str, dict[str, Shift]]:
    """Return the effects of each change on all endings, findings and scores that occur, and on the number of messages."""
    found = [(of, kind, _outcomes(one)) for of, kind, one in branches]
    seen = {name for _, _, values in found for name in values}
    names = [
        *(name for name in (*ENDINGS, *DETECTORS) if name in seen),
        *sorted(seen - {*ENDINGS, *DETECTORS}),
    ]
    made: dict[str, dict[str, Shift]] = {}
    for change in dict.fromkeys(kind for _, kind, _ in found if kind != UNCHANGED):
        for name in names:
            usual = 0.0 if name in ENDINGS or name in DETECTORS else None
            one = shift(((of, kind, values.get(name, usual)) for of, kind, values in found), change)
            if one is not None:
                made.setdefault(change, {})[name] = one
    return made


def _outcomes(one: Transcript) -> dict[str, float | None]:
    """Return the outcomes of a branch: its ending, its findings (1 each), its scores and its number of messages."""
    made: dict[str, float | None] = {
        finding.detector: 1.0 for finding in detect(one) if _is_new(finding, one)
    }
    made |= {one.stop.reason: 1.0} if one.stop else {}
    made |= {f"score.{name}": score.value for name, score in one.scores.items()}
    return made | {"messages": float(len(one.messages))}


def _is_new(finding: Finding, branch: Transcript) -> bool:
    """Return whether a finding is not in the messages that all branches share."""
    return finding.index < 0 or finding.index + 1 >= int(branch.inputs.get(AT, 1))


def outcome(check: Check) -> Callable[[Transcript], float | bool | None]:
    """Return the function behind the name of an outcome."""
    if callable(check):
        return check
    if check in ENDINGS:
        return lambda one: one.stop is not None and one.stop.reason == check
    if check == "messages":
        return lambda one: len(one.messages)
    if check == "tokens":
        return lambda one: one.usage.total
    if check.startswith("score."):
        name = check.removeprefix("score.")
        return lambda one: one.scores[name].value if name in one.scores else None
    if check in DETECTORS:
        return lambda one: any(_is_new(finding, one) for finding in detect(one, [check]))
    known = [*ENDINGS, *DETECTORS, "messages", "tokens"]
    raise InputError(
        f"there is no outcome {shown(check)}{similar(check, known)}. Use an ending, a detector or a function"
    )


def recorded_spec(records: Sequence[Transcript]) -> ModelSpec:
    """Return the model that the records name. They may come from a stranger, so the name starts no program and is no address."""
    names = list(dict.fromkeys(one.model for record in records for one in record.speakers if one.model))
    if len(names) != 1:
        raise InputError(
            f"the conversations were made by {len(names) or 'unknown'} models ({', '.join(names)}): pass using=MODEL"
        )
    if names[0].startswith(COMMAND) or "@http" in names[0]:
        raise InputError(f"the recorded model {shown(names[0])} is a program or an address: pass using=MODEL")
    return find_spec(LOCAL if names[0] == ALIAS else names[0])
