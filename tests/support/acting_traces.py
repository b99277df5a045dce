"""300 conversations with tool calls, in which faults are planted, with the labels of what was planted.

The sentences are in tests/data/acting_sentences.json. They and this generator were written before the rules of
`camel.detectors.acting`. A third of the sentences and plans is held out: `held_out` is true for these traces.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from camel.core.message import Action, Message
from camel.core.model import ToolSchema
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript

SENTENCES: dict[str, list[Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "acting_sentences.json").read_text()
)
TOOLS = {
    "python": ("Run Python code and return what it prints.", "code"),
    "send_email": ("Send an email.", "to"),
    "search_web": ("Search the web.", "query"),
    "book_table": ("Book a table in a restaurant.", "restaurant"),
    "write_file": ("Write text to a file.", "path"),
    "update_order": ("Change or cancel an order.", "order"),
    "query_database": ("Run a SQL query on the database.", "sql"),
    "create_event": ("Create an event in the calendar.", "title"),
    "get_status": ("Return the status of a job.", "job"),
    "read_file": ("Read a file.", "path"),
}
VALUES = ["alpha", "Dana", "results.txt", "1187", "select 1", "Luigi's", "print(6 * 7)", "ferry times"]


class Trace(NamedTuple):
    """A conversation and its faults: pairs of a detector and the index of a message."""

    transcript: Transcript
    faults: frozenset[tuple[str, int]]
    held_out: bool


class _Plan(NamedTuple):
    said: str
    actions: list[Action]
    fault: str = ""
    before: tuple[Action, ...] = ()
    """The calls of an earlier message."""
    request: str = ""
    """What the user says in between."""
    earlier_by: str = "assistant"


def traces() -> list[Trace]:
    """Return the 300 traces. They are the same in every call."""
    chance = random.Random(23)
    found: list[Trace] = []
    for plans in (_claims(chance), _errors(chance), _repeated(chance)):
        for number, plan in plans:
            found.append(_trace(len(found), plan, chance, held_out=number % 3 == 2))
    return found


def _act(chance: random.Random, tool: str, **fields: Any) -> Action:
    given = {TOOLS[tool][1]: chance.choice(VALUES)}
    fields = {"arguments": json.dumps(given), "result": f"ok {chance.randrange(10_000)}"} | fields
    return Action(tool, **fields)


def _claims(chance: random.Random) -> Iterator[tuple[int, _Plan]]:
    for number, (_, said) in enumerate(SENTENCES["false_claims"]):
        yield number, _Plan(said, [], "claimed_action")
    for number, (called, _, said) in enumerate(SENTENCES["other_claims"]):
        yield number, _Plan(said, [_act(chance, called)], "claimed_action")
    for number, (_, said) in enumerate(SENTENCES["no_claims"]):
        yield number, _Plan(said, [])
    for number, (tool, said) in enumerate(SENTENCES["true_claims"]):
        yield number, _Plan(said, [_act(chance, tool)])
    for number, (tool, said) in enumerate(SENTENCES["recaps"]):
        yield number, _Plan(said, [], before=(_act(chance, tool),))


def _errors(chance: random.Random) -> Iterator[tuple[int, _Plan]]:
    def failed(tool: str) -> Action:
        return _act(chance, tool, result="", error=chance.choice(SENTENCES["errors"]))

    for kind, fault in (("ignored", "ignored_error"), ("acknowledged", ""), ("asides", "")):
        for number, (tool, said) in enumerate(SENTENCES[kind]):
            yield number, _Plan(said, [failed(tool)], fault)
    for number, (tool, said) in enumerate(SENTENCES["recovered"]):
        again = _act(chance, tool, arguments=json.dumps({TOOLS[tool][1]: "fixed"}), step=1)
        yield number, _Plan(said, [failed(tool), again])


def _repeated(chance: random.Random) -> Iterator[tuple[int, _Plan]]:
    for number in range(113):
        tool = chance.choice([*TOOLS])
        arguments = {TOOLS[tool][1]: chance.choice(VALUES), "limit": chance.randrange(9)}
        first = _act(chance, tool, arguments=json.dumps(arguments))
        same = Action(
            tool,
            json.dumps(dict(reversed(arguments.items())), indent=chance.choice([None, 1])),
            first.result,
            step=1,
        )
        other = _act(chance, tool, arguments=json.dumps({**arguments, "limit": 10}), step=1)
        writer = _act(chance, "write_file", arguments='{"path": "new.txt"}', step=1)
        reader = _act(chance, "read_file", arguments='{"path": "old.txt"}', step=1)
        wrong = Action(tool, first.arguments, error=chance.choice(SENTENCES["errors"]))
        wrong_again = Action(tool, same.arguments, error=wrong.error, step=1)
        later = Action(tool, same.arguments, f"{same.result}, later", step=2)
        last = Action(tool, same.arguments, same.result, step=2)
        said = chance.choice(SENTENCES["neutral"])
        plans = [
            _Plan(said, [first, same], "repeated_call"),
            _Plan(said, [same], "repeated_call", (first,)),
            _Plan("I cannot finish this, because the call fails.", [wrong, wrong_again], "repeated_call"),
            _Plan(said, [first, reader, last], "repeated_call"),
            _Plan("The call failed again.", [wrong_again], "repeated_call", (wrong,)),
            _Plan(said, [first, other, last], "repeated_call" if tool in _READERS else ""),
            _Plan(said, [first, other]),
            _Plan(said, [first, later]),
            _Plan(said, [first, writer, last]),
            _Plan(said, [same], "", (first,), chance.choice(SENTENCES["again"])),
            _Plan(said, [same], "", (first,), earlier_by="user"),
            _Plan(said, [other], "", (first,)),
            _Plan(said, [later], "", (first,)),
        ]
        yield number // len(plans), plans[number % len(plans)]


_READERS = ("search_web", "query_database", "get_status", "read_file")
"""Tools that change nothing, so that a call of theirs with other arguments does not justify a repeated call."""


def _trace(number: int, plan: _Plan, chance: random.Random, *, held_out: bool) -> Trace:
    schemas = [ToolSchema(name, text, {"type": "object"}) for name, (text, _) in TOOLS.items()]
    speakers = [
        Speaker("user", "Client", tools=schemas if plan.earlier_by == "user" else []),
        Speaker("assistant", "Helper", tools=schemas),
    ]
    said: list[tuple[str, str, list[Action]]] = []

    def talk() -> None:
        said.append(("user", chance.choice(SENTENCES["requests"]), []))
        said.append(("assistant", chance.choice(SENTENCES["neutral"]), []))

    for _ in range(chance.randrange(3)):
        talk()
    if plan.before and plan.earlier_by == "assistant":
        said.append(("user", "Please start with the task.", []))
        said.append(("assistant", chance.choice(SENTENCES["neutral"]), [*plan.before]))
    request = plan.request or chance.choice(SENTENCES["requests"])
    said.append(("user", request, [*plan.before] if plan.earlier_by == "user" else []))
    faults = {(plan.fault, len(said))} if plan.fault else set[tuple[str, int]]()
    said.append(("assistant", plan.said, plan.actions))
    for _ in range(chance.randrange(2)):
        talk()
    roles = {speaker.name: speaker.role for speaker in speakers}
    messages = [
        Message(place, speaker, roles[speaker], text, actions=actions)
        for place, (speaker, text, actions) in enumerate(said)
    ]
    made = Transcript(f"trace-{number}", Task("Help the client."), speakers, messages)
    return Trace(made, frozenset(faults), held_out)
