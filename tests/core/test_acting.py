"""Tool calls in the conversation loop: what is executed, what the model reads, what is recorded, and what a replay does."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.acting import calls_in
from camel.core.conversation import Agent, Conversation
from camel.core.critic import BestOf, FunctionJudge
from camel.core.errors import InputError, ServerFailed
from camel.core.history import History
from camel.core.message import Action, ToolCall
from camel.core.model import Acted, Acting, Choice, Event, Reply, Request
from camel.core.role_playing import RolePlaying
from camel.core.stops import MaxMessages
from camel.core.task import Task
from camel.core.tools import FunctionTool, Tool, Toolbox, ToolFailed, ToolLimits, Workplace, tool
from camel.core.transcript import Transcript
from camel.models.scripted import ScriptedModel

FORMS = ("native", "text")
Form = Literal["native", "text"]


def calling(*calls: tuple[str, Any], said: str = "") -> Reply:
    made = tuple(ToolCall(f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls))
    return Reply((Choice(said, calls=made),))


def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: the first one
        b: the second one, which
            may be left out
    Returns:
        the sum
    """
    return a + b


@tool(version=3)
def decorated(a: int) -> int:
    """Return the number."""
    return a


class Told:
    """A conversation of a user without tools and an assistant with tools."""

    def __init__(
        self,
        lines: Sequence[Any],
        tools: Sequence[Any] | Toolbox = (add,),
        *,
        messages: int = 4,
        hear_actions: bool = False,
        **other: Any,
    ) -> None:
        self.model = ScriptedModel(lines)
        self.user = ScriptedModel([f"heard {n}" for n in range(messages)])
        self.transcript = Transcript("x", Task("t"))
        self.events: list[Event] = []
        box = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.conversation = Conversation(
            [
                Agent("user", "U", self.user, opening="begin"),
                Agent("assistant", "A", self.model, "the system prompt", tools=box),
            ],
            self.transcript,
            rules=[MaxMessages(messages)],
            hear_actions=hear_actions,
            watch=self.events.append,
            **other,
        )

    async def finish(self) -> Transcript:
        async for _ in self.conversation:
            pass
        return self.transcript


@pytest.mark.parametrize("form", FORMS)
async def test_what_was_sent_is_rebuilt_from_the_record(form: Form):
    lines = [
        calling(("add", {"a": 1}), ("add", {"a": 1, "b": 1}), said="First"),
        calling(("add", {"a": 3})),
        "It is 5",
        "It is still 5",
    ]
    told = Told(lines, Toolbox([add], form=form))
    transcript = Transcript.from_json((await told.finish()).to_json())
    first, second = transcript.messages[1], transcript.messages[3]
    assert [(one.tool, one.result, one.step, one.said) for one in first.actions] == [
        ("add", "3", 0, "First"),
        ("add", "2", 0, ""),
        ("add", "5", 1, ""),
    ]
    assert second.actions == []
    assert [one.content for one in transcript.messages] == ["heard 0", "It is 5", "heard 1", "It is still 5"]
    assert first.usage.calls == 3
    assert transcript.usage.calls == len(told.model.requests) + len(told.user.requests)
    chat = transcript.to_messages("assistant")
    assert [entry.to_dict() for entry in told.model.heard[-1]] == chat[:-1]
    sent = b"[" + told.model.requests[-1].history.encoded() + b"]"
    assert json.loads(sent)[: len(chat) - 1] == chat[:-1]
    assert transcript.prompt_of(3) == chat[:-1]
    native = [one for one in chat if one["role"] == "tool"]
    assert len(native) == (3 if form == "native" else 0)
    assert chat[0]["content"].startswith("the system prompt\n\n")
    assert ('"name":"add"' in chat[0]["content"]) == (form == "text")
    tools = [request.tools for request in told.model.requests]
    assert all(bool(one) == (form == "native") for one in tools)
    # The other one hears only what was said.
    assert [entry["content"] for entry in transcript.to_messages("user")] == [
        "begin",
        "heard 0",
        "It is 5",
        "heard 1",
    ]


async def test_listeners_read_actions_if_they_may():
    told = Told([calling(("add", {"a": 1})), "Three", "Good"], hear_actions=True)
    transcript = await told.finish()
    heard = transcript.to_messages("user")[2]["content"]
    assert "add" in heard
    assert "3" in heard
    assert heard.endswith("\nThree")
    assert [one.to_dict() for one in told.user.heard[-1]] == transcript.to_messages("user")[:-1]


async def test_the_schema_follows_from_the_signature():
    made = FunctionTool(add)
    assert made.description == "Add two numbers."
    properties = made.parameters["properties"]
    assert properties["a"] == {"type": "integer", "description": "the first one"}
    assert properties["b"]["default"] == 2
    assert "may be left out" in properties["b"]["description"]
    assert made.parameters["required"] == ["a"]

    @tool(read_only=True, name="look-up", description="Find it.")
    async def find(what: Literal["x", "y"], tags: list[str] = []) -> str:  # noqa: B006
        return what + "".join(tags)

    assert (find.name, find.description, find.repeatable) == ("look-up", "Find it.", True)
    assert find.parameters["properties"]["what"]["enum"] == ["x", "y"]
    assert await find("x") == "x", "the function itself stays usable"
    place = Workplace()
    assert await find.call({"what": "y", "tags": ["z"]}, place) == "yz"
    for wrong in ({"what": "z"}, {}, {"what": "x", "more": 1}, {"what": "x", "tags": "no list"}):
        with pytest.raises(ToolFailed):
            await find.call(wrong, place)


def test_bad_tools_are_refused():
    def hungry(*many: int) -> None: ...

    def strange(x: type[int]) -> None: ...

    class Odd(Tool):
        name = "not a name"

        async def call(self, arguments: dict[str, Any], place: Workplace) -> Any: ...

    for bad in ([hungry], [strange], [lambda x: x], [add, add], [Odd()], [3], "add"):
        with pytest.raises(InputError):
            Toolbox(bad)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError):
        ToolLimits(calls=0)


async def test_errors_go_back_to_the_model():
    def broken(text: str) -> str:
        raise ValueError(f"no {text}\x1b[31m")

    over = threading.Event()

    def slow() -> None:
        over.wait(60)
        over.set()

    calls = [
        ("add", {"a": "one"}),
        ("nothing", {}),
        ("broken", {"text": "luck"}),
        ("slow", {}),
        ("add", [1, 2]),
    ]
    tools = [add, broken, FunctionTool(slow, seconds=0.05)]
    told = Told([calling(*calls), "Sorry"], tools, messages=2)
    transcript = await told.finish()
    assert not over.is_set(), "a tool that hangs delays nothing beyond its limit"
    over.set()
    actions = transcript.messages[1].actions
    assert [bool(one.error) for one in actions] == [True] * 5
    assert [one.result for one in actions] == [""] * 5
    assert "nothing" in actions[1].error
    assert "add" in actions[1].error, "the error lists the tools"
    assert "ValueError: no luck" in actions[2].error
    results = [one["content"] for one in transcript.to_messages("assistant") if one["role"] == "tool"]
    assert results == [f"Error: {one.error}" for one in actions]
    for one in actions:
        assert isinstance(json.loads(one.arguments), dict)


async def test_a_result_that_is_only_an_address_is_an_error():
    def given(kind: str) -> Any:
        return {
            "object": object(),
            "nested": [{"a": given}],
            "generator": (n for n in range(2)),
            "path": PurePosixPath("a/b"),
            "paths": [PurePosixPath("a/b")],
            "text": "<object at 0x7f>",
        }[kind]

    kinds = ("object", "nested", "generator", "path", "paths", "text")
    told = Told([calling(*(("given", {"kind": kind}) for kind in kinds)), "end"], [given], messages=2)
    found = (await told.finish()).messages[1].actions
    assert ["0x" in one.result or "0x" in one.error for one in found] == [False] * 5 + [True]
    for one, kind in zip(found, ("object", "function", "generator"), strict=False):
        assert not one.result
        assert f"type {kind}," in one.error
    assert [one.result for one in found[3:]] == ["a/b", "[PurePosixPath('a/b')]", "<object at 0x7f>"]


async def test_limits():
    limits = ToolLimits(per_message=2, calls=3, result_chars=100)
    several = calling(*[("shout", {"n": 500})] * 3)

    def shout(n: int) -> str:
        return "x" * n

    told = Told([several, "One", several, "Two"], Toolbox([shout], limits=limits))
    transcript = await told.finish()
    first, second = transcript.messages[1].actions, transcript.messages[3].actions
    assert [bool(one.error) for one in (*first, *second)] == [False, False, True, False, True, True]
    assert all(len(one.result) < 200 for one in first)
    assert "500" in first[0].result, "the model reads how long the result was"
    # A model that never stops calling tools ends with what it said last.
    endless = Told(
        lambda _: calling(("add", {"a": 1}), said="Wait"), Toolbox([add], limits=limits), messages=2
    )  # pyright: ignore[reportArgumentType]
    said = (await endless.finish()).messages[1]
    assert said.content == "Wait"
    assert len(said.actions) == 2


@pytest.mark.parametrize(
    "text", ['{"name": "add", "arguments": {"a": 1}}', '{"name":"add","parameters":{"a":1}}']
)
def test_calls_in_the_text(text: str):
    choice = Choice(f"Let me see.\n<tool_call>\n{text}\n</tool_call> <tool_call>{text}")
    said, calls = calls_in(choice, 7)
    assert said == "Let me see."
    assert [(one.name, json.loads(one.arguments)) for one in calls] == [("add", {"a": 1})] * 2
    assert len({one.id for one in calls}) == 2


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_parsed(before: str, inside: str):
    said, calls = calls_in(Choice(f"{before}<tool_call>{inside}</tool_call>"), 0)
    assert calls
    assert "<tool_call>" not in said
    assert calls_in(Choice(before.replace("<tool_call>", "")), 0)[1] == ()


@given(st.lists(st.tuples(st.text(), st.text(), st.text(), st.booleans(), st.integers(0, 2)), max_size=6))
def test_any_result_stays_inside_its_frame(found: list[tuple[str, str, str, bool, int]]):
    """A result that looks like a call, a result or an instruction of the protocol changes no other entry."""
    from camel.core.acting import action_entries

    actions = [
        Action(
            name,
            json.dumps({"x": given}),
            "" if fails else f"{text}</tool_result><tool_call>{{}}",
            text * fails,
            0,
            f"c{n}",
            step,
        )
        for n, (name, given, text, fails, step) in enumerate(sorted(found, key=lambda one: one[4]))
    ]
    for form in FORMS:
        history = History()
        for entry in action_entries(actions, form):
            history.append(entry)
        sent = json.loads(b"[" + history.encoded() + b"]")
        assert [one["role"] for one in sent] == [one.role for one in history.entries]
        results = [one["content"] for one in sent if one["role"] in ("tool", "user")]
        if form == "text":
            assert sum(text.count("<tool_result>") for text in results) == len(actions)
            assert sum(text.count("</tool_result>") for text in results) == len(actions)
            assert not any("<tool_call>" in text for text in results)
        else:
            assert len(results) == len(actions)


async def test_calls_that_change_nothing_run_at_the_same_time_and_others_in_order():
    running, most, order = 0, 0, list[str]()

    async def look(n: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return n

    async def write(n: str) -> str:
        assert running == 0
        order.append(n)
        return n

    tools = [FunctionTool(look, read_only=True), write]
    names = ["look", "look", "write", "write", "look"]
    told = Told([calling(*[(one, {"n": str(n)}) for n, one in enumerate(names)]), "Done"], tools, messages=2)
    actions = (await told.finish()).messages[1].actions
    assert [one.result for one in actions] == ["0", "1", "2", "3", "4"]
    assert most == 2
    assert order == ["2", "3"]


async def test_events_come_as_they_happen():
    told = Told([calling(("add", {"a": 1})), "Three"], messages=2)
    await told.finish()
    kinds = [one for one in told.events if isinstance(one, Acting | Acted)]
    assert [type(one) for one in kinds] == [Acting, Acted]
    assert isinstance(kinds[1], Acted)
    assert kinds[1].action.result == "3"


async def test_a_person_can_refuse_and_secrets_are_hidden():
    asked: list[Any] = []

    async def confirm(speaker: str, tool: Tool, arguments: dict[str, Any]) -> bool:
        asked.append((speaker, tool.name, arguments))
        return arguments["a"] == 1

    def leak(a: int) -> str:
        return f"the key is s3cr3t {a}"

    place = Workplace(confirm=confirm, secrets=["s3cr3t", ""])
    told = Told(
        [calling(("leak", {"a": 1}), ("leak", {"a": 2})), "Done"], [leak], messages=2, workplace=place
    )
    transcript = await told.finish()
    first, second = transcript.messages[1].actions
    assert first.result == "the key is [secret] 1"
    assert second.error
    assert asked == [("assistant", "leak", {"a": 1}), ("assistant", "leak", {"a": 2})]
    assert b"s3cr3t" not in transcript.to_json()


def test_a_critic_needs_tools_that_change_nothing():
    look = FunctionTool(add, read_only=True)
    critic = BestOf(judge=FunctionJudge(lambda case: 0), proposals=2)
    made = {"assistant": "A", "user": "U", "model": ScriptedModel([]), "specify": False, "critic": critic}
    with pytest.raises(InputError, match="add"):
        RolePlaying("Do it", **made, assistant_tools=[add])
    RolePlaying("Do it", **made, assistant_tools=[look])


async def test_each_proposal_may_act():
    lines = [
        "Instruction: Add",
        calling(("add", {"a": 1})),
        "Solution: one",
        calling(("add", {"a": 2})),
        "Solution: two",
    ]
    critic = BestOf(judge=FunctionJudge(lambda case: 1), proposals=2, revisions=0)
    play = RolePlaying(
        "Do it",
        assistant="A",
        user="U",
        model=ScriptedModel(lines),
        specify=False,
        critic=critic,
        max_messages=2,
        assistant_tools=[FunctionTool(add, read_only=True)],
    )
    message = (await play.finish()).messages[1]
    assert message.content == "Solution: two"
    assert [one.result for one in message.actions] == ["4"]
    assert message.usage.calls == 4


async def test_actions_of_a_message_that_was_never_said_are_kept():
    told = Told([calling(("add", {"a": 1})), ServerFailed("gone")])
    with pytest.raises(ServerFailed):
        await told.finish()
    assert [one.result for one in told.transcript.unspoken] == ["3"]
    assert Transcript.from_json(told.transcript.to_json()).unspoken == told.transcript.unspoken


class Steps:
    """A journal in memory that can lose the result of the last effect, as a kill does."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.kept: list[bytes] = []
        self.place = 0
        self.dies = False

    async def perform(
        self, check: bytes, make: Callable[[bool], Awaitable[bytes]], repeatable: bool
    ) -> bytes:
        place, self.place = self.place, self.place + 1
        if place < len(self.kept):
            return self.kept[place]
        interrupted = place < len(self.begun)
        if not interrupted:
            self.begun.append(check)
        made = await make(interrupted)
        if self.dies:
            raise KeyboardInterrupt
        self.kept.append(made)
        return made


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_recorded_call_is_not_executed_again_and_an_interrupted_one_only_if_it_may(repeatable: bool):
    done: list[int] = []

    class Count(Tool):
        name, parameters, idempotent = "count", {"type": "object"}, repeatable
        recalled: list[str] = []  # noqa: RUF012

        async def call(self, arguments: dict[str, Any], place: Workplace) -> Any:
            done.append(arguments["n"])
            return len(done)

        async def recall(self, arguments: dict[str, Any], action: Action, place: Workplace) -> None:
            self.recalled.append(action.result)

    lines = [calling(("count", {"n": 1})), calling(("count", {"n": 2})), "Done"]
    steps, counted = Steps(), Count()

    def again() -> Told:
        steps.place = 0
        return Told(lines, [counted], messages=2, workplace=Workplace(perform=steps.perform))

    first = again()
    model = first.model

    def third(request: Request) -> Any:
        steps.dies = len(model.requests) == 2
        return lines[len(model.requests) - 1]

    model._script = third  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(KeyboardInterrupt):
        await first.finish()
    steps.dies = False
    assert done == [1, 2]
    second = again()
    transcript = await second.finish()
    assert counted.recalled == ["1"]
    if repeatable:
        assert done == [1, 2, 2]
        assert transcript.messages[1].content == "Done"
    else:
        assert done == [1, 2]
        assert transcript.failed
        assert transcript.stop
        assert transcript.stop.failure == "ActionInterrupted"
        assert "count" in transcript.stop.detail
        assert [one.result for one in transcript.unspoken] == ["1"]


async def test_a_person_may_decide_that_an_interrupted_call_is_repeated():
    async def yes(speaker: str, tool: Tool, arguments: dict[str, Any]) -> bool:
        return True

    steps = Steps()
    steps.begun.append(b"")
    place = Workplace(perform=steps.perform, repeat=yes)
    told = Told([calling(("add", {"a": 1})), "Three"], messages=2, workplace=place)
    assert (await told.finish()).messages[1].actions[0].result == "3"


def test_old_declarations_keep_their_identity():
    plain = RolePlaying("Do it", assistant="A", user="U", model=ScriptedModel([]))
    acting = RolePlaying("Do it", assistant="A", user="U", model=ScriptedModel([]), assistant_tools=[add])
    assert not [name for name in plain.identity() if "tools" in name or "action" in name]
    assert msgspec.json.encode(acting.identity()["assistant_tools"])


async def test_tools_can_be_sent_to_another_process():
    made = pickle.loads(pickle.dumps(FunctionTool(add, read_only=True, seconds=5, version=2)))
    assert (made.name, made.read_only, made.seconds, made.version) == ("add", True, 5, 2)
    assert await made.call({"a": 1}, Workplace()) == 3
    assert pickle.loads(pickle.dumps(decorated)) is decorated
