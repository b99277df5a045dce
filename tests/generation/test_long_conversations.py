"""Conversations far longer than their model's window: generated, stopped, killed and resumed, with the ledger as witness."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from camel import ChatModel, InputError, Run, Transcript
from camel.core.message import Sampling
from camel.core.model import Model, Reply, Request, WrappedModel
from camel.engine.halt import Halt
from camel.generation.config import GenerateConfig, RunSection
from camel.models.simulator import LogNormal, SimulatorSettings, read_rows
from camel.models.spec import ModelSpec
from camel.scenarios import load
from tests.support.endpoints import serve
from tests.support.jobs import generation
from tests.support.killed import run_until_killed

Policy = Literal["window", "summarize"]
POLICIES: list[Policy] = ["window", "summarize"]
SCENARIO = """title = "Letters"
[[levels]]
name = "task"
items = ["Plan a harvest", "Plan a festival"]
[role_play]
assistant = "Gardener"
user = "Mayor"
task = "<TASK>"
specify = false
max_messages = {messages}
"""


def scenario(folder: Path, messages: int, more: str = "") -> Path:
    letters = folder / "letters"
    letters.mkdir()
    (letters / "scenario.toml").write_text(SCENARIO.format(messages=messages) + more)
    return letters


def config(
    letters: Path, base_url: str, *, window: int, run: str = "run", tokens: int = 150, **more: Any
) -> GenerateConfig:
    return GenerateConfig(
        scenario=str(letters),
        model=ModelSpec("simulated", base_url=base_url, context_tokens=window),
        out=str(letters.parent / run),
        counts={"task": 1},
        sampling=Sampling(temperature=0.2, max_tokens=tokens),
        run=RunSection(concurrency=1),
        **more,
    )


class Halting(WrappedModel):
    """Stops the run as it is about to make the given request."""

    def __init__(self, model: Model, halt: Halt, at: int) -> None:
        super().__init__(model)
        self._halt, self._left = halt, at

    async def reply(self, request: Request) -> Reply:
        self._left -= 1
        if not self._left:
            self._halt.set("enough")
        return await self.inner.reply(request)


async def generate(settings: GenerateConfig, halt_at: int = 0) -> list[Transcript]:
    spec = settings.model
    async with ChatModel(
        spec.name, base_url=spec.base_url, api_key="", context_tokens=spec.context_tokens
    ) as chat:
        halt = Halt()
        model = Halting(chat, halt, halt_at) if halt_at else chat
        outcome = await generation(settings, model, halt=halt).run()
    assert outcome.complete != bool(halt_at)
    return [] if halt_at else list(Run(Path(settings.out)))


def call_of_first_summary(transcript: Transcript) -> int:
    """Which of the conversation's calls asked for its first summary; of its first shortened prompt where there is none."""
    calls = 0
    for message in transcript.messages:
        if message.forgot:
            return calls + 1
        calls += message.usage.calls
    raise AssertionError("nothing was forgotten")


def check(transcript: Transcript, messages: int, policy: Policy) -> None:
    assert transcript.stop
    assert (transcript.stop.reason, len(transcript.messages)) == ("max_messages", messages)
    assert {speaker.history for speaker in transcript.speakers} == {policy}
    assert transcript.messages[-1].forgot
    summaries = [message for message in transcript.messages if message.summary]
    assert bool(summaries) == (policy == "summarize")
    assert all(message.usage.calls == 1 + bool(message.summary) for message in transcript.messages)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_long_conversation_stopped_at_a_summary_pays_nothing_twice(tmp_path: Path, policy: Policy):
    ledger_path = tmp_path / "ledger.jsonl"
    letters = scenario(tmp_path, 60)
    with serve(SimulatorSettings(words=30, length=None)) as endpoint:
        whole = config(letters, endpoint.base_url, window=1_500, run="whole", history=policy)
        (undisturbed,) = await generate(whole)
    first = call_of_first_summary(undisturbed)
    with serve(SimulatorSettings(words=30, length=None, ledger_path=str(ledger_path))) as endpoint:
        settings = config(letters, endpoint.base_url, window=1_500, history=policy)
        await generate(settings, halt_at=first)
        await generate(settings, halt_at=1)
        (transcript,) = await generate(settings)
        ledger = endpoint.ledger()
    check(transcript, 60, policy)
    assert [m.content for m in transcript.messages] == [m.content for m in undisturbed.messages]
    assert ledger.billed == transcript.usage.calls == undisturbed.usage.calls
    assert ledger.billed_repeats == 0
    assert ledger.prompt_tokens == transcript.usage.prompt
    assert max(row.prompt_tokens for row in read_rows(ledger_path)) + 150 <= 1_500


async def test_full_ends_at_the_limit(tmp_path: Path):
    with serve(SimulatorSettings(words=30, length=None)) as endpoint:
        settings = config(scenario(tmp_path, 60), endpoint.base_url, window=1_500)
        (transcript,) = await generate(settings)
    assert transcript.stop
    assert transcript.stop.reason == "token_limit"


def kill_and_resume(folder: Path, policy: Policy, *, messages: int, window: int, words: int, tokens: int):
    """Killed before a summary, after it, and later; then resumed."""
    letters, ledger_path = scenario(folder, messages), folder / "ledger.jsonl"
    sizes: dict[str, Any] = {"window": window, "tokens": tokens, "history": policy}
    with serve(SimulatorSettings(words=words, length=None)) as endpoint:
        (undisturbed,) = asyncio.run(generate(config(letters, endpoint.base_url, run="whole", **sizes)))
    first = call_of_first_summary(undisturbed)
    with serve(SimulatorSettings(words=words, length=None, ledger_path=str(ledger_path))) as endpoint:
        settings = config(letters, endpoint.base_url, **sizes)
        for at in (first, 2, messages // 4):
            run_until_killed(settings, at)
        (transcript,) = asyncio.run(generate(settings))
        ledger = endpoint.ledger()
    check(transcript, messages, policy)
    assert [m.content for m in transcript.messages] == [m.content for m in undisturbed.messages]
    assert [m.summary for m in transcript.messages] == [m.summary for m in undisturbed.messages]
    assert (ledger.billed, ledger.billed_repeats) == (transcript.usage.calls, 0)
    rows = read_rows(ledger_path)
    assert len({row.hash for row in rows}) == len(rows)
    assert max(row.prompt_tokens for row in rows) + tokens <= window


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_killed_and_resumed(tmp_path: Path, policy: Policy):
    kill_and_resume(tmp_path, policy, messages=60, window=1_500, words=30, tokens=150)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", POLICIES)
def test_400_messages_in_a_window_of_8k_killed_and_resumed(tmp_path: Path, policy: Policy):
    kill_and_resume(tmp_path, policy, messages=400, window=8_000, words=160, tokens=512)


SOCIETY = """history = "summarize"
[turns]
policy = "rounds"
[stop]
max_messages = 60
[[members]]
name = "Ada"
[[members]]
name = "Bob"
[[members]]
name = "Cleo"
"""


@pytest.mark.slow
def test_several_who_summarize_at_the_same_time_are_killed_and_resumed(tmp_path: Path):
    """Replies come in an order of their own: only the order in which calls begin is the same each time."""
    council = tmp_path / "council"
    council.mkdir()
    (council / "society.toml").write_text(SOCIETY)
    (council / "scenario.toml").write_text(
        'title = "Council"\n[[levels]]\nname = "x"\nitems = ["Plan a fair", "Plan a feast"]\n[society]\ntask = "<X>"\n'
    )

    def settings(base_url: str, run: str) -> GenerateConfig:
        made = config(council, base_url, window=1_500, run=run)
        return msgspec.structs.replace(made, counts={"x": 1})

    with serve(SimulatorSettings(words=30)) as endpoint:
        (undisturbed,) = asyncio.run(generate(settings(endpoint.base_url, "whole")))
    assert undisturbed.stop
    assert (undisturbed.stop.reason, len(undisturbed.messages)) == ("max_messages", 60)
    assert sum(bool(message.summary) for message in undisturbed.messages) > 5
    with serve(SimulatorSettings(words=30, latency=LogNormal(median=0.01, p99=0.1))) as endpoint:
        killed = settings(endpoint.base_url, "run")
        for at in (20, 9, 14):
            run_until_killed(killed, at)
        (transcript,) = asyncio.run(generate(killed))
        ledger = endpoint.ledger()
    said = [[(m.content, m.summary, m.forgot) for m in one.messages] for one in (transcript, undisturbed)]
    assert said[0] == said[1]
    assert ledger.billed - ledger.billed_repeats == transcript.usage.calls
    assert ledger.billed_repeats <= 3 * 2, "at most what was in flight when it was killed"


# --- where it is set -------------------------------------------------------------------------------------------------


async def test_a_scenario_may_say_it_and_a_configuration_has_the_last_word(tmp_path: Path):
    letters = scenario(tmp_path, 60, 'history = "window"\n')
    with serve(SimulatorSettings(words=30, length=None)) as endpoint:
        (one,) = await generate(config(letters, endpoint.base_url, window=1_500))
        (two,) = await generate(
            config(letters, endpoint.base_url, window=1_500, run="2", history="summarize")
        )
    check(one, 60, "window")
    check(two, 60, "summarize")


def test_it_decides_the_data_only_where_it_is_set(tmp_path: Path):
    letters = scenario(tmp_path, 60)
    plain = config(letters, "http://127.0.0.1:9/v1", window=1_500)
    assert not {"history", "model.context_tokens"} & plain.decisive(plain.loaded_scenario()).keys()
    settings = config(letters, "http://127.0.0.1:9/v1", window=1_500, history="window")
    decisive = settings.decisive(settings.loaded_scenario())
    assert (decisive["history"], decisive["model.context_tokens"]) == ("window", 1_500)
    known = msgspec.structs.replace(settings, model=ModelSpec("gpt-4.1-mini"))
    assert known.decisive(known.loaded_scenario())["model.context_tokens"] > 100_000
    assert b"history" not in msgspec.json.encode(load(letters))


def test_societies_have_it_in_either_file(tmp_path: Path):
    council = tmp_path / "council"
    council.mkdir()
    (council / "society.toml").write_text(
        'task = "Plan"\nhistory = "summarize"\n[[members]]\nname = "Ada"\n[[members]]\nname = "Bob"\nhistory = "full"\n'
    )
    for own, expected in (("", "summarize"), ('history = "window"\n', "window")):
        (council / "scenario.toml").write_text(
            f'title = "C"\n[[levels]]\nname = "x"\nitems = ["a", "b"]\n[society]\n{own}'
        )
        end: Any = load(council).end
        assert (end.society.history, end.society.members[1].history) == (expected, "full")


@pytest.mark.parametrize("name", ["history", "sampling"])
def test_a_policy_that_is_none_is_refused_where_it_is_read(tmp_path: Path, name: str):
    with pytest.raises(InputError, match=name):
        load(scenario(tmp_path, 60, f'{name} = "some"\n'))


def test_it_is_for_conversations(tmp_path: Path):
    settings = GenerateConfig(scenario="math", model=ModelSpec("simulated"), history="window")
    with pytest.raises(InputError, match="history"):
        settings.loaded_scenario()
