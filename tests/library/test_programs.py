"""Short programs, as a person would write them in a notebook, against a simulated endpoint."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import camel
from camel import MaxMessages, RolePlaying, Run, Stop, Transcript
from camel.core.stops import NextCall, TokenLimit, checked_rules
from camel.models.simulator import SimulatorProcess, SimulatorSettings, spawn

OLD = Path(__file__).parents[1] / "data" / "run-schema-1"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with spawn(SimulatorSettings(length=None)) as process:
        yield process


@pytest.fixture(autouse=True)
def _environment(endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint.reset()
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")


def test_a_conversation_in_three_lines(tmp_path: Path, endpoint: SimulatorProcess):
    t = RolePlaying(
        "Develop a trading bot", assistant="Programmer", user="Trader", model="gpt-4.1-mini", max_messages=4
    ).run()
    assert len(t.messages) == 4
    assert t.stop is not None
    assert t.stop.reason == "max_messages"
    assert {speaker.model for speaker in t.speakers} == {"gpt-4.1-mini"}
    assert endpoint.ledger().served == 5
    shown = str(t)
    assert "Programmer" in shown
    assert len(shown.splitlines()) == 6
    assert max(map(len, shown.splitlines())) < 260
    chat = t.to_messages("assistant")
    assert [one["role"] for one in chat] == ["system", "user", "assistant", "user", "assistant"]
    assert [one["content"] for one in chat if one["role"] == "assistant"] == [
        message.content for message in t.messages if message.speaker == "assistant"
    ]
    assert isinstance(t.findings(), list)
    assert Transcript.load(t.save(tmp_path / "bot.json")) == t


def test_keywords(endpoint: SimulatorProcess):
    t = RolePlaying(
        "Develop a trading bot", assistant="Programmer", user="Trader", max_messages=2, specify=False,
        temperature=0.7, critic=3, model="gpt-4.1-mini",
    ).run()  # fmt: skip
    assert t.task.specified == ""
    assert {speaker.sampling.temperature for speaker in t.speakers} == {0.7}
    weighed = [message.deliberation for message in t.messages]
    assert weighed[0] is None
    assert weighed[1] is not None
    assert len(weighed[1].proposals) == 3


def test_the_environment_names_the_model(endpoint: SimulatorProcess):
    """An endpoint that serves one model needs no name."""
    t = RolePlaying("A haiku", assistant="Poet", user="Editor", max_messages=2, specify=False).run()
    assert t.speakers[0].model
    assert endpoint.ledger().served == 2


def test_a_model_is_asked_one_question():
    async def ask() -> str:
        async with camel.connect("gpt-4.1-mini") as model:
            return await model.ask("Name an animal.", system="Be brief.")

    assert asyncio.run(ask())


class NeverTwice(msgspec.Struct, frozen=True):
    """A rule of a program's own."""

    def check(self, messages: list[camel.Message], call: NextCall) -> Stop | None:
        return Stop("said_twice", "twice") if len(messages) >= 3 else None


def test_a_rule_of_ones_own_replaces_the_papers_rules_and_the_limits_stay():
    t = RolePlaying(
        "A haiku", assistant="Poet", user="Editor", rules=[NeverTwice()], model="gpt-4.1-mini", specify=False
    ).run()
    assert t.stop is not None
    assert t.stop.reason == "said_twice"
    rules = checked_rules([NeverTwice()])
    assert [type(rule) for rule in rules] == [NeverTwice, MaxMessages, TokenLimit]
    assert checked_rules([NeverTwice()], 7)[1] == MaxMessages(7)
    own = (MaxMessages(3), TokenLimit(reserve=5))
    assert checked_rules(own) == own


def test_a_run_by_place_by_id_and_in_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("pyarrow")
    shutil.copytree(OLD, tmp_path / "old")
    run = Run(tmp_path / "old")
    whole = list(run)
    assert [run[place].transcript for place in range(len(run))] == whole
    assert run[-1].transcript == whole[-1]
    assert run[whole[2].id].transcript == whole[2]
    run[0].show()
    assert whole[0].speakers[0].role in capsys.readouterr().out
    assert run[0]._repr_html_() == whole[0]._repr_html_()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(KeyError, match="nobody"):
        run["nobody"]
    with pytest.raises(IndexError):
        run[len(run)]
    assert run.status().state == "complete"


def test_what_a_terminal_would_obey_is_not_printed():
    t = Transcript("t", camel.Task("a\x1b[2Jtask\nof two lines"))
    t.messages.append(camel.Message(0, "user", "User\x07", "\x1b]0;title\x07" + "long " * 100))
    assert "\x1b" not in str(t)
    assert "\x07" not in str(t)
    assert len(str(t).splitlines()) == 3
