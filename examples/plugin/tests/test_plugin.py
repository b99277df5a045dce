"""The plug-in as its users meet it: by name, through CAMEL. Needs the package installed."""

from pathlib import Path

from camel import BestOf, Message, NextCall, RolePlaying, ScriptedModel, Task, Transcript, connect
from camel.core.stops import STOP_RULES
from camel.detectors import detect
from camel.formats.exporters import FORMATS
from camel.scenarios import check, load
from camel.scenarios.critics import CriticSettings


def talk(*said: str) -> Transcript:
    speakers = ["user", "assistant"]
    messages = [Message(index, speakers[index % 2], "Role", text) for index, text in enumerate(said)]
    return Transcript("1", Task("A task"), messages=messages)


def test_scenario():
    assert check("interviews") == []
    scenario = load("interviews")
    assert (scenario.count, scenario.id(0)) == (6, "001_001")


def test_detector():
    quiet = "Instruction: Speak up\nInput: None"
    (found,) = detect(talk(quiet, "Solution: I AM NOT SHOUTING AT YOU"), ["shouting"])
    assert (found.index, found.version) == (1, 1)
    assert detect(talk(quiet), ["shouting"]) == []


def test_exporter(tmp_path: Path):
    written = FORMATS["questions"].write(
        [talk("Instruction: Tell me\nInput: None", "Solution: No")], tmp_path / "q.jsonl"
    )
    assert written.rows == 1
    assert "Tell me" in (tmp_path / "q.jsonl").read_text()


def test_stop_rule():
    rule = STOP_RULES["word_budget"]()
    stop = rule.check(talk("word " * 2001).messages, NextCall("assistant"))
    assert stop is not None
    assert stop.reason == "word_budget"
    assert rule.check(talk("word " * 2000).messages, NextCall("assistant")) is None


async def test_critic():
    critic = CriticSettings(use="shortest", options={"proposals": 3}).critic(ScriptedModel([]))
    assert isinstance(critic, BestOf)
    assert critic.proposals == 3


def test_model():
    model = connect("parrot:Polly")
    transcript = RolePlaying(
        assistant="Parrot", user="Pirate", task="Converse", model=model, specifier=None
    ).run()
    assert transcript.messages[1].content == "Solution: Polly.\nNext request."
    assert transcript.stop is not None
    assert transcript.stop.reason == "message_loop"
