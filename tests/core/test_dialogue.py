"""Natural dialogue: prompts, turns, stop rules, and what the record counts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import camel
from camel import (
    Addressed,
    Dialogue,
    DialogueStops,
    Goal,
    InputError,
    Message,
    ModelError,
    Moderated,
    NextCall,
    Participant,
    Reply,
    Request,
    Rounds,
    ScriptedModel,
    Transcript,
)
from camel.core.dialogue import Goodbye
from camel.core.message import Sampling, Usage
from camel.core.model import Choice, Model
from camel.formats.exporters import FORMATS

ONLY_LIMITS = DialogueStops(goodbye=False, message_loop=False)


def guests(**more: object) -> Dialogue:
    seats = (
        Participant("guest", "hotel guest", goal="A quiet room.", private="You snore."),
        Participant("clerk", private="Only room 7 is free."),
    )
    return Dialogue("A late arrival", **{"seats": seats, "stops": ONLY_LIMITS, **more})  # type: ignore[arg-type]


class Seen(Model):
    """Answers by speaker, and keeps the requests."""

    name = "seen"

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {name: list(texts) for name, texts in answers.items()}
        self.requests: list[Request] = []
        self.chats: list[list[tuple[str, str]]] = []

    async def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        self.chats.append([(entry.role, entry.content) for entry in request.history.entries])
        texts = self.answers.get(request.speaker) or [f"word {len(self.requests)}"]
        text = texts.pop(0) if len(texts) > 1 else texts[0]
        return Reply((Choice(text),), Usage(10, 2, calls=1), "seen")

    def chat(self, at: int) -> list[tuple[str, str]]:
        return self.chats[at]


async def test_each_seat_has_its_own_goal_and_private_information_and_hears_plain_text():
    model = Seen(guest=["Good evening."], clerk=["Welcome."])
    transcript = await guests(max_messages=3).play(model).finish()
    assert [one.speaker for one in transcript.messages] == ["guest", "clerk", "guest"]
    guest, clerk = (speaker.system for speaker in transcript.speakers)
    assert "A late arrival" in guest
    assert "A late arrival" in clerk
    assert "hotel guest" in clerk
    assert "You snore." in guest
    assert "You snore." not in clerk
    assert "A quiet room." not in clerk
    assert "Only room 7 is free." not in guest
    assert [role for role, _ in model.chat(0)] == ["system", "user"]
    assert model.chat(1)[1:] == [("user", "Good evening.")]
    assert model.chat(2)[2:] == [("assistant", "Good evening."), ("user", "Welcome.")]
    for word in ("Instruction:", "Solution:", "CAMEL_TASK_DONE", "<"):
        assert word not in guest + clerk
    assert transcript.stop
    assert transcript.stop.reason == "max_messages"


async def test_an_opening_is_said_by_the_seat_that_begins_without_a_call():
    model = Seen()
    transcript = await guests(begins="clerk", opening="Hello?", max_messages=3).play(model).finish()
    assert [(one.speaker, one.usage.calls) for one in transcript.messages] == [
        ("clerk", 0),
        ("guest", 1),
        ("clerk", 1),
    ]
    assert model.chat(0)[1:] == [("user", "Hello?")]
    assert transcript.usage.calls == 2


def test_values_reach_the_model_exactly_as_given():
    value = "  <GOAL> {x} <task>\n\nSolution: <other> "
    dialogue = Dialogue(
        "<text>",
        seats=(Participant("a", private="<TEXT>", goal="<Other>"), Participant("b", prompt="Read <text>.")),
    )
    assert dialogue.placeholders == {"text", "other"}
    one, two = (system for _, system in dialogue.fill({"text": value, "other": "O"}).prompts())
    assert one.count(value) == 2
    assert two == f"Read {value}."


def test_paragraphs_without_a_value_are_left_out():
    seats = (Participant("a"), Participant("b"))
    short = Dialogue(seats=seats, length="", stops=ONLY_LIMITS)
    long = Dialogue("T", seats=seats, style="S")
    (_, least), _ = short.prompts()
    (_, most), _ = long.prompts()
    assert len(least.split("\n\n")) == 2
    assert len(most.split("\n\n")) == 6


async def test_the_paper_grammar_is_not_applied():
    model = Seen(
        guest=["Instruction: sing.\nInput: None", "Hello", "Well", "So <CAMEL_TASK_DONE>", "Fine"],
        clerk=["Instruction: no", "One", "Two", "Three", "Four"],
    )
    transcript = await guests(stops=DialogueStops(), max_messages=10).play(model).finish()
    assert transcript.stop
    assert transcript.stop.reason == "max_messages"
    assert len(transcript.messages) == 10
    seats = Dialogue("T", seats=("user", "assistant"), stops=ONLY_LIMITS, max_messages=6)
    texts = [
        "Solution: Thank you. Next request.",
        "Thanks! Instruction: write the code.",
        "Please restart it, thank you.",
    ]
    transcript = await seats.play(Seen(user=texts, assistant=texts)).finish()
    assert {one.detector for one in transcript.findings()}.isdisjoint(
        {"format_violation", "role_flipping", "message_loop"}
    )


THANKS = [
    "Thank you, which floor is it on?",
    "Thanks! And when is breakfast, please?",
    "Thank you, how do I get there?",
]


async def test_polite_messages_do_not_end_it():
    model = Seen(
        guest=THANKS * 4,
        clerk=["You're welcome, the third.", "Glad to help, at seven.", "Thanks for asking, left."] * 4,
    )
    transcript = (
        await guests(stops=DialogueStops(goodbye=True, message_loop=False), max_messages=12)
        .play(model)
        .finish()
    )
    assert len(transcript.messages) == 12


@pytest.mark.parametrize(
    ("texts", "stops"),
    [
        (["Bye!", "Goodbye, have a good night."], True),
        (["Thank you, take care!", "See you."], True),
        (["Bye!", "Wait."], False),
        (["How do you say goodbye in French?", "Bye."], False),
        (["Goodbye", "Before you say goodbye, where is my key?"], False),
        (["Bye"], False),
    ],
)
def test_goodbye(texts: list[str], stops: bool):
    messages = [Message(n, "ab"[n % 2], "", text) for n, text in enumerate(texts)]
    assert (Goodbye().check(messages, NextCall("a")) is not None) is stops
    three = [*messages, Message(2, "c", "", "Hm.")]
    assert Goodbye(3).check(three, NextCall("a")) is None


@pytest.mark.parametrize("on", [True, False])
async def test_goodbye_and_loops_can_be_switched_off(on: bool):
    stops = DialogueStops(goodbye=on, message_loop=False)
    bye = await guests(stops=stops, max_messages=6).play(Seen(guest=["Bye"], clerk=["Goodbye."])).finish()
    stops = DialogueStops(goodbye=False, message_loop=on)
    text = "The same words again and again"
    loop = await guests(stops=stops, max_messages=30).play(Seen(guest=[text], clerk=[text])).finish()
    assert bye.stop
    assert loop.stop
    assert (bye.stop.reason, loop.stop.reason) == (
        ("goodbye", "message_loop") if on else ("max_messages",) * 2
    )


async def test_the_end_marker_ends_it_and_is_not_in_the_record():
    stops = msgspec.structs.replace(ONLY_LIMITS, done=("guest",))
    model = Seen(guest=["Hi [END] not yet", "Fine then.\n[END]"], clerk=["No [END]"])
    play = guests(stops=stops).play(model)
    seen = [message.content async for message in play]
    assert (
        seen
        == [one.content for one in play.transcript.messages]
        == ["Hi [END] not yet", "No [END]", "Fine then."]
    )
    assert play.transcript.stop
    assert (play.transcript.stop.reason, play.transcript.stop.speaker) == ("done", "guest")
    systems = [speaker.system for speaker in play.transcript.speakers]
    assert ["[END]" in system for system in systems] == [True, False]


async def test_a_message_that_is_only_the_marker_is_dropped_but_paid():
    stops = msgspec.structs.replace(ONLY_LIMITS, done=("guest", "clerk"))
    transcript = await guests(stops=stops).play(Seen(guest=["Hi"], clerk=["[END]"])).finish()
    assert [one.content for one in transcript.messages] == ["Hi"]
    assert transcript.usage.calls == 2


def goal_stops(**more: object) -> DialogueStops:
    return msgspec.structs.replace(ONLY_LIMITS, goal=Goal("The guest has a room.", **more))  # type: ignore[arg-type]


async def test_the_goal_rule_asks_a_model_and_its_usage_is_in_the_record():
    model, judge = (
        Seen(guest=["A room?\nHotel guest (guest):\n> YES"]),
        Seen(goal=["No.", "maybe", "**Yes**, room 7."]),
    )
    play = guests(stops=goal_stops()).play({"": model, "goal": judge}, seed=5)
    transcript = await play.finish()
    assert transcript.stop
    assert transcript.stop.reason == "goal"
    assert "room 7." in transcript.stop.detail
    assert [one.usage.calls for one in transcript.messages] == [2, 2, 2]
    assert transcript.usage.calls == len(model.requests) + len(judge.requests) == 6
    assert transcript.usage.prompt == 60
    assert {request.speaker for request in judge.requests} == {"goal"}
    assert {request.sampling.seed for request in judge.requests} == {5}
    assert "\n> A room?\n> Hotel guest (guest):\n> > YES\n" in judge.chat(0)[0][1]
    assert judge.chat(2)[0][1].startswith(judge.chat(1)[0][1].split("\n\nThis is")[0]), "the prefix is cached"


@pytest.mark.parametrize(
    ("more", "asked_after"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"every": 3}, [3, 6]),
        ({"after": "clerk"}, [2, 4, 6]),
        ({"after": "guest", "every": 2}, [3]),
    ],
)
async def test_when_the_goal_rule_asks(more: dict[str, object], asked_after: list[int]):
    model = Seen(goal=["NO"])
    await guests(stops=goal_stops(**more), max_messages=6).play(model).finish()
    spoken, found = 0, list[int]()
    for request in model.requests:
        spoken += request.speaker != "goal"
        found += [spoken] if request.speaker == "goal" else []
    assert found == asked_after


async def test_a_goal_call_that_fails_fails_the_conversation():
    class Broken(Model):
        async def reply(self, request: Request) -> Reply:
            raise ModelError("down")

    play = guests(stops=goal_stops()).play({"": Seen(), "goal": Broken()})
    with pytest.raises(ModelError):
        await play.finish()
    assert play.transcript.failed
    assert len(play.transcript.messages) == 1


async def test_three_seats_with_the_policies_of_societies():
    seats = ("Ada", "Bob", "Cy")
    model = Seen(Ada=["Cy, what now?"])
    transcript = (
        await Dialogue("T", seats=seats, begins="Bob", turns=Addressed(), max_messages=4).play(model).finish()
    )
    assert [one.speaker for one in transcript.messages] == ["Bob", "Cy", "Ada", "Cy"]
    assert model.chat(1)[1] == ("user", "Bob: word 1")
    transcript = await Dialogue("T", seats=seats, turns=Moderated("Cy"), max_messages=3).play(Seen()).finish()
    assert transcript.messages[0].speaker == "Cy"
    both = (
        await Dialogue("T", seats=seats, turns=Rounds(), stops=goal_stops(every=3), max_messages=6)
        .play(Seen())
        .finish()
    )
    assert both.usage.calls == 8


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Dialogue("T"),
        lambda: Dialogue("T", seats=("a",)),  # type: ignore[arg-type]
        lambda: Dialogue("T", seats=("a", "A")),  # type: ignore[arg-type]
        lambda: Dialogue("T", seats=("a", "goal")),  # type: ignore[arg-type]
        lambda: guests(begins="nobody"),
        lambda: guests(stops=DialogueStops(done=("nobody",))),
        lambda: guests(stops=goal_stops(after="nobody")),
        lambda: goal_stops(every=0),
        lambda: guests(max_messages=0),
        lambda: guests(begins="guest", turns=Moderated("clerk")),
        lambda: guests().with_rules([]),
        lambda: guests().play({"": Seen(), "nobody": Seen()}),
        lambda: guests(stops=DialogueStops(rules=("nobodys",))).rules(Seen()),
    ],
)
def test_mistakes_are_reported(wrong: object):
    with pytest.raises(InputError):
        wrong()  # type: ignore[operator]


def test_generate_from_rows_and_export(tmp_path: Path):
    dialogue = Dialogue(
        "About <item>",
        seats=(Participant("buyer", private="<secret>"), Participant("seller")),
        max_messages=5,
    )
    rows = [
        {"id": "x", "item": "a chair", "secret": "<item>"},
        {"id": "y", "item": "a lamp", "secret": "none"},
    ]
    run = camel.generate(
        dialogue,
        inputs=rows,
        model=ScriptedModel([f"Words {n}" for n in range(99)]),
        out=tmp_path / "run",
        progress=False,
    )
    one, two = sorted(run, key=lambda transcript: transcript.id)
    assert one.inputs["item"] == "a chair"
    assert "<item>" in one.speakers[0].system
    FORMATS["messages"].write(run, tmp_path / "m.jsonl")
    lines = (tmp_path / "m.jsonl").read_bytes().splitlines()
    for line in lines:
        chat = msgspec.json.decode(line)["messages"]
        assert [entry["role"] for entry in chat] == ["system", "user", "assistant", "user", "assistant"]
        assert "none" not in chat[0]["content"], "the seller does not know the buyer's secret"
    assert two.stop
    assert two.stop.reason == "max_messages"
    with pytest.raises(InputError):
        camel.generate(
            dialogue, inputs=[{"item": "a chair"}], model=Seen(), out=tmp_path / "other", progress=False
        )
    assert Transcript.from_json(one.to_json()) == one


def test_a_declaration_has_an_identity_without_its_model():
    assert guests(model="m").identity() == guests().identity()
    assert guests(style="S").identity() != guests().identity()
    assert guests(sampling=Sampling(temperature=1)).identity() != guests().identity()
    assert guests().title == "hotel guest and clerk"
