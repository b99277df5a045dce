"""Small runs against the server of a provider, and everything that must hold of them by that server's ledger."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from camel.core.message import Message, Usage
from camel.core.transcript import Transcript
from camel.library.run import Run
from tests.support.in_process import Done, camel
from tests.support.providers.provider import Provider
from tests.support.providers.server import KEY, Ledger, ProviderServer, Row, Trouble, serving
from tests.support.providers.words import REFUSAL, Said
from tests.support.thinkers import HEARD, MARKER

VARIABLE = "CONFORMANCE_KEY"
COOKS = ("Baker", "Chef")
CONVERSATIONS = 4
COMPLETE = {"done": CONVERSATIONS}
"""How the conversations of a run end in which nothing goes wrong."""
ABSENT = object()
"""As a value of a field: it must not be sent."""
EXPORTS = ("messages", "chat")
COUNTED = ("calls", "prompt", "completion", "cached")
"""Of a usage: what the totals of a run have. Every message has its tokens of thoughts too."""


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    name: str
    provider: Provider
    model: str
    dialect: str | None = None
    """The value in the configuration: by default the provider's; empty: none is given."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further keys of `[model]`."""
    sampling: Mapping[str, Any] | None = None
    """`[sampling]`; None: it is left out, and the paper's default holds."""
    top: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further keys at the top."""
    run: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tables: str = ""
    """Further tables, as text."""
    seeds: bool = False
    """Dishes come from the scenario; otherwise the model is asked for a list of them."""
    society: bool = False
    """A moderated society instead of role plays."""
    streamed: bool = False
    """`camel play`, which streams, instead of `camel generate`."""
    troubles: tuple[Trouble, ...] = ()
    thought_tokens: int = 0
    length: int = 5
    """Messages of a conversation."""
    status: int = 0
    resumes: bool = True
    """Whether a halted run is complete after the same command, once nothing goes wrong any more."""
    endings: Mapping[str, int] | None = field(default_factory=lambda: dict(COMPLETE))
    """How many conversations end how; None: there may be none."""
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Failed conversations by class of error."""
    refused: int = 0
    """Requests that the provider refuses for what they hold."""
    sent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of every request of an agent that is served: a value, a test of it, or ABSENT."""
    prints: tuple[str, ...] = ()
    """What the command must print, in whatever case."""
    thoughts: bool | None = None
    """Whether thoughts come back: with each message, or with none. None: as the provider decides."""
    thinks: bool | None = None
    """Whether the model thinks when agents are asked, by the ledger's own count."""
    refuses: bool = False
    """Whether the model refuses, in a field of its own: such messages are kept and marked."""
    caches: bool = False
    """Whether a part of the prompts must come from the provider's cache."""
    repeats: bool = False
    """Whether equal requests may be served."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def wanted(self) -> str:
        """The dialect that the configuration names."""
        found = self.provider.dialect or self.provider.name if self.dialect is None else self.dialect
        return "" if found == "generic" else found


# ---------------------------------------------------------------- what a user writes


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def _table(name: str, values: Mapping[str, Any]) -> str:
    return f"[{name}]\n" + "".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in values.items())


def write(folder: Path, case: Case, server: ProviderServer) -> None:
    """Write the scenario and the configuration of a case."""
    kitchen = folder / "kitchen"
    kitchen.mkdir()
    dishes = 'items = ["Onion Soup", "Plum Cake"]' if case.seeds else 'count = 2\nprompt = "dishes.txt"'
    (kitchen / "dishes.txt").write_text(
        "List <COUNT> dishes that a <COOK> can teach.\nWrite one on each line.\n"
    )
    end = 'assistant = "<COOK>"\nuser = "Curious Guest"\ntask = "Prepare <DISH> at home"\n'
    scenario = (
        f'[[levels]]\nname = "cook"\nitems = {json.dumps(COOKS)}\n[[levels]]\nname = "dish"\n{dishes}\n'
    )
    if case.society:
        (kitchen / "society.toml").write_text(SOCIETY)
        (kitchen / "scenario.toml").write_text(
            f'title = "Kitchen"\n{scenario}[society]\ntask = "Prepare <DISH>"\n'
        )
    else:
        (kitchen / "scenario.toml").write_text(f'title = "Kitchen"\n{scenario}[role_play]\n{end}')
    model = {"name": case.model, "base_url": server.base_url, "price": server.provider.price}
    if server.provider.key in ("authorization", "x-api-key", "either"):
        model["key_variable"] = VARIABLE
    if case.wanted:
        model["dialect"] = case.wanted
    top = {"scenario": "kitchen", "out": "run", "shard_size": 2, **case.top}
    (folder / "camel.toml").write_text(
        "".join(f"{name} = {_toml(value)}\n" for name, value in top.items())
        + ("" if case.sampling is None else _table("sampling", case.sampling))
        + _table("model", {**model, **case.options})
        + _table("run", {"concurrency": 4, **case.run})
        + case.tables
    )


SOCIETY = """
[turns]
policy = "moderated"
moderator = "Host"

[stop]
max_messages = 4

[[members]]
name = "Host"
brief = "You decide who speaks."

[[members]]
name = "Ann"
brief = "You cook."

[[members]]
name = "Bob"
brief = "You count."
"""


# ---------------------------------------------------------------- what happens


def generate(folder: Path, case: Case) -> Done:
    """`camel generate`, with waits between attempts that are as short as the client allows."""
    with mock.patch.object(random, "uniform", lambda low, high: low + (high - low) * 0.01):
        return camel("generate", "camel.toml", folder=folder, environment={VARIABLE: KEY, **case.environment})


def _settings(case: Case) -> dict[str, Any]:
    return {"troubles": case.troubles, "thought_tokens": case.thought_tokens, "messages": case.length}


def run_case(folder: Path, case: Case) -> tuple[ProviderServer, Done]:
    """Run a case and check it; the same command then continues a run that was halted, and leaves alone one that is complete."""
    settings = _settings(case)
    with serving(case.provider, **settings) as server:
        write(folder, case, server)
        done = generate(folder, case)
        check(folder, case, server.ledger, done)
        requests = len(server.ledger.rows)
        if case.status == 3 and case.resumes:
            server.troubles = ()
            again = replace(case, status=0, endings=COMPLETE, prints=(), troubles=())
            check(folder, again, server.ledger, generate(folder, case))
        elif case.status == 4:
            assert generate(folder, case).status == 4
            assert len(server.ledger.rows) == requests, "a complete run asks nobody"
        return server, done


def play_case(folder: Path, case: Case) -> ProviderServer:
    """Let `camel play` stream three conversations, and check them."""
    settings = _settings(case)
    dialect = ["--dialect", case.wanted] if case.wanted else []
    with serving(case.provider, **settings) as server:
        found: list[Transcript] = []
        for number, dish in enumerate(("Onion Soup", "Plum Cake", "Flat Bread")):
            words = [
                "--model",
                case.model,
                "--base-url",
                server.base_url,
                *dialect,
                "--save",
                f"{number}.json",
            ]
            words += ["--assistant", "Chef", "--user", "Curious Guest", "--task", f"Prepare {dish} at home"]
            with mock.patch.object(random, "uniform", lambda low, high: low + (high - low) * 0.01):
                done = camel(
                    "play", *words, folder=folder, environment={"OPENAI_API_KEY": KEY, **case.environment}
                )
            assert done.status == case.status, done.stdout + done.stderr
            # A thought without an opening tag is known for one only at its end, when it is on the screen.
            assert case.provider.name == "lone" or MARKER not in done.stdout + done.stderr
            found.append(Transcript.from_json((folder / f"{number}.json").read_bytes()))
        if case.endings is not None:
            assert Counter(one.stop.reason for one in found if one.stop) == Counter(case.endings)
        assert all(row.body.get("stream") is True for row in server.ledger)
        check_requests(case, server.ledger)
        check_messages(case, found, server.ledger)
        usage = sum((one.usage for one in found), Usage())
        recorded = {
            name: getattr(usage, name) for name in ("calls", "prompt", "completion", "cached", "reasoning")
        }
        assert recorded == dict(server.ledger.total())
        return server


def export(folder: Path, format: str, *options: str) -> str:
    """The text of an export; empty where there is nothing to export."""
    file = folder / f"{format}{''.join(options)}.jsonl"
    done = camel("export", "run", format, file.name, *options, folder=folder)
    return file.read_text() if done.status == 0 else ""


# ---------------------------------------------------------------- what must hold


def check(folder: Path, case: Case, ledger: Ledger, done: Done) -> None:
    """Compare a run with the ledger of its provider."""
    printed = done.stdout + done.stderr
    assert done.status == case.status, f"{printed}\n{Counter((row.status, row.error) for row in ledger)}"
    for words in case.prints:
        assert words.lower() in printed.lower(), printed
    found = _transcripts(folder)
    if case.endings is not None:
        ends = Counter(one.stop.reason for one in found if one.stop)
        assert ends == Counter(case.endings), f"{ends}\n{printed}"
    failed = Counter(one.stop.detail.partition(":")[0] for one in found if one.failed and one.stop)
    assert failed == Counter(case.failures), f"{failed}\n{printed}"
    check_requests(case, ledger)
    check_messages(case, found, ledger)
    check_usage(folder, ledger)
    check_exports(folder, case, found)
    _check_secrets(folder, printed)


def _transcripts(folder: Path) -> list[Transcript]:
    return list(Run(folder / "run")) if (folder / "run" / "run.json").exists() else []


def check_requests(case: Case, ledger: Ledger) -> None:
    """What was sent is what the provider documents, holds no thought, and is asked for once."""
    refused = Counter((row.status, row.error) for row in ledger.refused)
    assert refused.total() <= case.refused, refused
    assert not any(MARKER in row.raw for row in ledger)
    served = [row for row in ledger.served if row.talks]
    for name, value in case.sent.items():
        for row in served:
            found = row.body.get(name, ABSENT)
            assert value(found) if callable(value) else found == value, f"{name} = {found!r}"
    if case.wanted:
        assert not (wrong := {name for row in ledger for name in row.ignored}), wrong
    if not case.repeats:
        good = Counter(row.raw for row in ledger if row.usable)
        assert set(good.values()) <= {1}, [body for body, count in good.items() if count > 1]
    if case.thinks is not None:
        assert {bool(row.counted and row.counted.thought) for row in served} == {case.thinks}
    if case.caches:
        assert ledger.total()["cached"] > 0
    if case.troubles:
        _check_waits(case, ledger)


def _check_waits(case: Case, ledger: Ledger) -> None:
    """A request that was answered with a hint is not repeated before the time that it names."""
    rows = list(ledger)
    for place, row in enumerate(rows):
        failure = case.provider.errors.get(row.kind)
        if failure and failure.wait:
            again = next((one for one in rows[place + 1 :] if one.raw == row.raw), None)
            assert again is None or again.at - row.at >= failure.wait * 0.95, again.at - row.at


def _said(ledger: Ledger) -> dict[str, list[tuple[Row, Said]]]:
    """Replies by what they say: several say that the task is done."""
    said: dict[str, list[tuple[Row, Said]]] = {}
    for row in ledger.served:
        for one in row.said if row.usable else ():
            said.setdefault(one.text.strip(), []).append((row, one))
    return said


def check_messages(case: Case, found: list[Transcript], ledger: Ledger) -> None:
    """Every message is what the provider said, with what was thought before it and what it took."""
    said = _said(ledger)
    for transcript in found:
        assert MARKER not in transcript.task.text
        for message in transcript.messages:
            assert message.content.strip() != HEARD
            replies = said[message.content.strip()]
            thoughts = {one.thought.strip() if row.shown else "" for row, one in replies}
            assert message.reasoning.strip() in thoughts, message.content
            if message.attempts == 1 and not message.deliberation and not case.troubles:
                assert _counts(message) in [_counts(row) for row, _ in replies]
            if message.content == REFUSAL:
                assert message.finish == "refusal"
    if case.refuses:
        assert any(message.content == REFUSAL for transcript in found for message in transcript.messages)
    thought = [bool(message.reasoning) for transcript in found for message in transcript.messages]
    if case.thoughts is not None:
        assert set(thought) == {case.thoughts}


def _counts(what: Message | Row) -> tuple[int, ...]:
    """Tokens of a message, as the record or the ledger has them."""
    if isinstance(what, Message):
        usage = what.usage
        return usage.prompt, usage.completion, usage.cached, usage.reasoning
    assert what.counted is not None
    return what.counted.prompt, what.counted.completion, what.counted.cached, what.reported


def check_usage(folder: Path, ledger: Ledger) -> None:
    """Recorded tokens and dollars are those of the ledger; a micro-dollar is a thousand times what is allowed."""
    status = Run(folder / "run").status()
    recorded = {name: getattr(status.usage, name) for name in COUNTED}
    expected = ledger.total()
    assert recorded == {name: expected[name] for name in COUNTED}
    assert abs((status.money or 0.0) - ledger.dollars) < 1e-9


def check_exports(folder: Path, case: Case, found: list[Transcript]) -> None:
    """Exports hold whole conversations, and thoughts only where they are asked for."""
    good = [one for one in found if not one.failed]
    for format in EXPORTS if good and not case.society else ():
        text = export(folder, format)
        assert len(text.splitlines()) == len(good)
        assert not any(word in text for word in (MARKER, HEARD, "SPOILED", "<think", "</think"))
        for line in text.splitlines() if format == "messages" else ():
            assert all(message["content"].strip() for message in json.loads(line)["messages"])
    if case.thoughts and good and not case.society:
        assert MARKER in export(folder, "messages", "--with-reasoning")


def _check_secrets(folder: Path, printed: str) -> None:
    """The key is in no file and in no output, a thought in records and journals alone."""
    assert KEY not in printed
    for path in (folder / "run").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert KEY.encode() not in data, path
            kept = path.suffix == ".parquet" or "journal" in path.parts
            assert kept or MARKER.encode() not in data, path
