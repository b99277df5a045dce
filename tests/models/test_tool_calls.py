"""Tool calls in the three protocols: what is sent, what is read, whole and streamed, and what a hostile endpoint can do."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from itertools import chain, pairwise
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import RolePlaying
from camel.core.acting import action_entries
from camel.core.errors import MalformedReply, ModelError, ReplyTooLarge, RequestRejected
from camel.core.history import Entry, History
from camel.core.message import Action, Sampling, ToolCall
from camel.core.model import Reply, Request, Text, ToolSchema
from camel.core.tools import Toolbox, tool
from camel.models.batch_api import BatchApi, MessageBatches, ProviderBatch
from camel.models.chat import WIRES, ChatModel
from camel.models.dialects import find_dialect
from camel.models.protocol import MAX_CALLS, MAX_CHARACTERS, Wire
from camel.models.scripted import ScriptedModel
from camel.models.simulator import Constant, LogNormal, Simulator, SimulatorSettings
from camel.models.wire import failure
from tests.support.tool_servers import PROTOCOLS, Called, Said, Turn, read_chat, streamed, whole

EACH = pytest.mark.parametrize("protocol", PROTOCOLS)
SEARCH = ToolSchema(
    "search", "Search the catalog.", {"type": "object", "properties": {"q": {"type": "string"}}}
)
NOW = ToolSchema("now")


def wire_of(protocol: str, model: str = "") -> Wire:
    name = {"completions": "openai", "messages": "anthropic", "responses": "responses"}[protocol]
    model = model or {"completions": "m", "messages": "claude-opus-4-5", "responses": "gpt-6"}[protocol]
    return WIRES[protocol](model, find_dialect(model, name=name))


def read_stream(wire: Wire, data: bytes, cuts: list[int]) -> tuple[Reply, str]:
    stream, shown = wire.stream(), list[str]()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        shown += stream.feed(data[start:end])
    return stream.finished(), "".join(shown)


def as_called(calls: tuple[ToolCall, ...]) -> list[Called]:
    return [Called(one.id, one.name, json.loads(one.arguments)) for one in calls]


# ---------------------------------------------------------------- chats and replies at random

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
speech = texts.map(lambda text: f"Said: {text}")
names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(texts, values, max_size=3)
results = texts | texts.map(lambda text: f"Error: {text}")
steps = st.tuples(
    st.just("") | speech, st.lists(st.tuples(names, arguments, texts, texts), min_size=1, max_size=3)
)
rounds = st.tuples(speech, st.lists(steps, max_size=2), speech)


def said_with(text: str, calls: list[tuple[str, dict[str, Any]]]) -> Said:
    return Said(text, [Called(f"call_{n}", *one) for n, one in enumerate(calls)])


replies = st.builds(
    said_with,
    st.just("") | speech,
    st.lists(st.tuples(names, arguments), min_size=1, max_size=4),
)


def chat_of(system: str, parts: list[Any], last: str) -> tuple[History, list[Turn]]:
    """A history of rounds, each with several steps of calls, and what a server must read."""
    history, turns = History(system), list[Turn]([("system", system)] if system else [])
    for heard, several, answer in parts:
        history.add("user", heard)
        turns.append(("user", heard))
        actions: list[Action] = []
        for step, (said, calls) in enumerate(several):
            turns += [("assistant", said)] if said else []
            ids = [f"call-{len(turns)}-{n}" for n in range(len(calls))]
            for n, (name, asked, result, error) in enumerate(calls):
                text = json.dumps(asked)
                actions.append(Action(name, text, result, error, 0.0, ids[n], step, said if n == 0 else ""))
                turns.append(("call", ids[n], name, asked))
            for id, (_, _, result, error) in zip(ids, calls, strict=True):
                turns.append(("result", id, f"Error: {error}" if error else result))
        for entry in action_entries(actions, "native"):
            history.append(entry)
        history.add("assistant", answer)
        turns.append(("assistant", answer))
    history.add("user", last)
    return history, [*turns, ("user", last)]


@EACH
@given(system=st.just("") | speech, parts=st.lists(rounds, max_size=2), last=speech)
def test_a_chat_with_calls_and_results_arrives_as_it_is(
    protocol: str, system: str, parts: list[Any], last: str
) -> None:
    history, expected = chat_of(system, parts, last)
    wire = wire_of(protocol)
    turns, tools = read_chat(protocol, wire.encode(Request(history, tools=(SEARCH, NOW))))
    assert turns == expected
    assert [one.name for one in tools] == ["search", "now"]
    assert tools[0].schema == SEARCH.parameters
    assert tools[1].schema["type"] == "object"
    # A speaker whose tools were removed still has the calls in its history.
    assert read_chat(protocol, wire.encode(Request(history))) == (expected, [])


@EACH
@given(
    said=replies,
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0), max_size=5),
)
def test_whole_and_streamed_replies_have_the_same_calls(
    protocol: str, said: Said, sizes: list[int], cuts: list[int]
) -> None:
    wire = wire_of(protocol)
    one = wire.read(whole(protocol, said)).choices[0]
    reply, shown = read_stream(wire, streamed(protocol, said, sizes), cuts)
    other = reply.choices[0]
    assert as_called(one.calls) == as_called(other.calls) == said.calls
    assert one.content == other.content == shown == said.text
    assert one.finish == other.finish == "stop"
    # The calls go back with the next request.
    history = History()
    history.add("user", "?")
    history.append(Entry("assistant", one.content, one.calls, partial=True))
    for call in one.calls:
        history.append(Entry("tool", "42", answers=call.id, partial=True))
    turns, _ = read_chat(protocol, wire.encode(Request(history)))
    assert [turn[1:] for turn in turns if turn[0] == "call"] == [tuple(call) for call in said.calls]


@EACH
def test_results_of_one_step_are_in_one_message_and_odd_arguments_are_sent(protocol: str) -> None:
    history = History()
    history.add("user", "?")
    deep = '{"a":' * 900 + "1" + "}" * 900
    odd = ("[1]", '{"n": 1e999, "m": 100000000000000000000}', deep)
    if protocol == "messages":  # this protocol has no place for text that is not an object
        odd += ("{", "", "NaN", '{"s": "\\ud800"}')
    calls = tuple(ToolCall(f"functions.f:{n}", "f", text) for n, text in enumerate(odd))
    history.append(Entry("assistant", " \n", calls, partial=True))
    for call in calls:
        history.append(Entry("tool", "Errors" if call is calls[0] else "", answers=call.id, partial=True))
    turns, _ = read_chat(protocol, wire_of(protocol).encode(Request(history)))
    assert [turn[0] for turn in turns].count("result") == len(calls)
    if protocol == "messages":
        sent = [turn[3] for turn in turns if turn[0] == "call"]
        assert sent[0] == sent[3] == sent[4] == sent[5] == {}
        assert sent[1] == {"n": None, "m": 1e20}


# ---------------------------------------------------------------- what is sent without tools


def test_requests_without_tools_are_what_they_were() -> None:
    history = History("Sys ü")
    for role, text in (("user", 'a "b"\n'), ("assistant", "c"), ("user", "d")):
        history.add(cast("Any", role), text)
    chat = '{"role":"user","content":"a \\"b\\"\\n"},{"role":"assistant","content":"c"},{"role":"user","content":"d"}]'
    request = Request(history, Sampling(temperature=0.5, max_tokens=7), "s", "a")
    key = '"prompt_cache_key":"s/a"'
    assert {protocol: wire_of(protocol).encode(request).decode() for protocol in PROTOCOLS} == {
        "completions": '{"model":"m","messages":[{"role":"system","content":"Sys ü"},'
        f'{chat},"temperature":0.5,"max_completion_tokens":7,{key}}}',
        "messages": '{"model":"claude-opus-4-5","system":"Sys ü","cache_control":{"type":"ephemeral"},"messages":['
        f'{chat},"temperature":0.5,"max_tokens":7}}',
        "responses": '{"model":"gpt-6","store":false,"instructions":"Sys ü","input":['
        f'{chat},"reasoning":{{"summary":"auto"}},"max_output_tokens":7,{key}}}',
    }


@EACH
def test_tools_are_part_of_the_cached_tail_and_nothing_else_changes(protocol: str) -> None:
    wire, history, sampling = wire_of(protocol), History("S"), Sampling(max_tokens=9)
    history.add("user", "?")
    plain = Request(history, sampling)
    bodies: list[dict[str, Any]] = []
    for _ in range(2):
        for tools in ((), (SEARCH,), (NOW,), (SEARCH, NOW)):
            kept = (*tools,)  # the same schemas in another tuple
            bodies.append(json.loads(wire.encode(Request(history, sampling, tools=kept))))
            bodies.append(json.loads(wire.encode(plain)))
    assert {json.dumps(body) for body in bodies[1::2]} == {json.dumps(bodies[0])}
    for tools, body in zip([0, 1, 1, 2] * 2, bodies[::2], strict=True):
        assert len(body.pop("tools", ())) == tools
        assert body == bodies[0]


def test_manual_reasoning_is_off_while_a_model_has_tools() -> None:
    history, wire = History(), wire_of("messages")
    history.add("user", "?")
    request = Request(history, Sampling(reasoning="low"))
    assert json.loads(wire.encode(request))["thinking"]["type"] == "enabled"
    assert wire.adjustments == []
    body = json.loads(wire.encode(Request(history, request.sampling, tools=(NOW,))))
    assert "thinking" not in body
    assert any("reasoning" in line for line in wire.adjustments)
    adaptive = wire_of("messages", "claude-opus-5")
    assert json.loads(adaptive.encode(Request(history, tools=(NOW,))))["thinking"]["type"] == "adaptive"


# ---------------------------------------------------------------- lenient reading


def completion(*calls: Any, **more: Any) -> bytes:
    message = {"role": "assistant", "content": None, "tool_calls": list(calls), **more}
    return json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()


def function(name: Any, given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": given}, **more}


LENIENT: list[tuple[Any, list[tuple[str, str, str]] | None]] = [
    ([function("f", "{}", id="a")], [("a", "f", "{}")]),
    ([function("f", '{"x": 1}')], [("", "f", '{"x": 1}')]),  # without an id
    ([function("f", "{}", id=None), function("f", "{}", id=5)], [("", "f", "{}"), ("", "f", "{}")]),
    (
        [function("f", {"x": [1, "ü"]}, id="a")],
        [("a", "f", '{"x": [1, "ü"]}')],
    ),  # an object instead of text
    ([function("f", None, id="a")], [("a", "f", "{}")]),
    ([function("f", "  ", id="a")], [("a", "f", "{}")]),
    ([function("f", "not JSON", id="a")], [("a", "f", "not JSON")]),  # the model reads an error
    ([function(" get weather! ", "{}", id="a")], [("a", "get_weather_", "{}")]),
    ([function("functions.f/é", "{}", id="a")], [("a", "functions_f__", "{}")]),
    ([function("x" * 500, "{}", id="a")], [("a", "x" * 64, "{}")]),
    (
        [function(None, "{}", id="a"), function("", "{}", id="b")],
        [("a", "unknown", "{}"), ("b", "unknown", "{}")],
    ),
    ([{"id": "a", "name": "f", "arguments": "{}"}], [("a", "f", "{}")]),  # without `function`
    ([None, 5, {}, [], function("f", "{}", id="a")], [("a", "f", "{}")]),
    ([function("f", "{}", id="a"), function("f", "{}", id="a")], [("a", "f", "{}"), ("a", "f", "{}")]),
    ([function("f", '{"x":"\ud800"}', id="\ud800")], [("?", "f", '{"x":"?"}')]),
    ([function("f", {"x": float("nan"), "y": "\ud800"}, id="a")], [("a", "f", '{"x": null, "y": "?"}')]),
    ([function("f", {"x": 10**30}, id="a")], None),
    ({"function": {"name": "f"}}, []),
    ("f()", []),
    (None, []),
]


@pytest.mark.parametrize(("calls", "expected"), LENIENT)
def test_calls_are_read_leniently(calls: Any, expected: list[tuple[str, str, str]] | None) -> None:
    for body in (completion(tool_calls=calls), completion(tool_calls=calls, content=[])):  # strict, and not
        reply = wire_of("completions").read(body)
        (choice,) = reply.choices
        assert (choice.content, choice.finish) == ("", "stop")
        if expected is not None:
            assert [(one.id, one.name, one.arguments) for one in choice.calls] == expected
        assert all(isinstance(json.dumps(one.arguments), str) for one in choice.calls)


PIECES: list[tuple[list[Any], list[tuple[str, str, str]]]] = [
    (  # without an index: a piece without a name continues the last call
        [function("f", '{"x"', id="a"), {"function": {"arguments": ":1}"}}, function("g", "{}", id="b")],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    (  # without index and id
        [function("f", '{"x"'), {"function": {"arguments": ":1}"}}, function("f", None), function("g", None)],
        [("", "f", '{"x":1}'), ("", "f", "{}"), ("", "g", "{}")],
    ),
    (  # several whole calls, all with the index 0
        [function("f", "{}", id="a", index=0), function("g", "{}", id="b", index=0)],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    (  # the same, without ids
        [function("f", "{}", id="", index=0), function("f", "{}", id="", index=0)],
        [("", "f", "{}"), ("", "f", "{}")],
    ),
    (  # id and name in every piece
        [function("f", '{"x"', id="a", index=0), function("f", ":1}", id="a", index=0)],
        [("a", "f", '{"x":1}')],
    ),
    (  # the id comes late, and indexes do not begin at 0 or are not in order
        [function("f", "", index=7), {"index": 7, "id": "a"}, function("g", {"y": 2}, index=3, id="b")],
        [("b", "g", '{"y": 2}'), ("a", "f", "{}")],
    ),
    ([{}, None, {"index": 0}, {"index": "x", "function": 5}], []),
]


@pytest.mark.parametrize(("pieces", "expected"), PIECES)
def test_pieces_of_calls_are_assembled_leniently(
    pieces: list[Any], expected: list[tuple[str, str, str]]
) -> None:
    lines: list[Any] = [{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces]
    lines.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = b"".join(b"data: %s\n\n" % json.dumps(line).encode() for line in lines) + b"data: [DONE]\n\n"
    (choice,) = wire_of("completions").read(body).choices
    assert [(one.id, one.name, one.arguments) for one in choice.calls] == expected
    assert choice.finish == "stop"


def test_a_stream_without_a_reason_to_finish_is_a_reply() -> None:
    piece = {"choices": [{"index": 0, "delta": {"tool_calls": [function("f", "{}", id="a")]}}]}
    reply = wire_of("completions").read(b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(piece).encode())
    assert reply.choices[0].calls == (ToolCall("a", "f", "{}"),)


def test_a_stream_with_calls_that_breaks_off_is_no_reply() -> None:
    said = Said("", [Called("a", "f", {"x": "some text"}), Called("b", "g", {})])
    for protocol in PROTOCOLS:
        data = streamed(protocol, said, [3])
        for cut in range(1, data.rindex(b"event:"), 17):
            with pytest.raises(MalformedReply):
                read_stream(wire_of(protocol), data[:cut], [])


# ---------------------------------------------------------------- hostile endpoints

MANY = Said("", [Called(f"c{n}", "f", {}) for n in range(100_000)])
HUGE = Said("", [Called("c", "f", {"x": "y" * (MAX_CHARACTERS + 1)})])
PARTS = Said("", [Called(f"c{n}", "f", {"x": "y" * (MAX_CHARACTERS // 100)}) for n in range(MAX_CALLS)])


@EACH
@pytest.mark.parametrize("said", [MANY, HUGE, PARTS], ids=["many", "huge", "parts"])
def test_too_many_or_too_large_calls_are_no_reply(protocol: str, said: Said) -> None:
    some = Said("", said.calls[:1_000])
    bodies = [whole(protocol, said), streamed(protocol, some, [4096])]
    wire, begun = wire_of(protocol), time.process_time()
    for body in bodies:
        with pytest.raises((MalformedReply, ReplyTooLarge)):
            wire.read(body)
    assert time.process_time() - begun < 10


def test_a_stream_of_endless_empty_pieces_ends() -> None:
    line = b'data: {"choices":[{"delta":{"tool_calls":[%s]}}]}\n' % b",".join(
        [b'{"index":0,"id":"a"}'] * 2_000
    )
    stream = wire_of("completions").stream()
    with pytest.raises(MalformedReply):
        list(chain.from_iterable(stream.feed(line) for _ in range(1_000)))


def test_the_most_calls_are_read() -> None:
    for protocol in PROTOCOLS:
        said = Said("", MANY.calls[:MAX_CALLS])
        assert len(wire_of(protocol).read(whole(protocol, said)).choices[0].calls) == MAX_CALLS


# ---------------------------------------------------------------- rejections


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (400, "Unsupported parameter: 'tools'"),
        (404, 'No endpoints found that support tool use. Try disabling "search".'),
        (
            422,
            '[{"type": "extra_forbidden", "loc": ["body", "tools"], "msg": "Extra inputs are not permitted"}]',
        ),
        (500, "tools param requires --jinja flag"),
        (501, "Function calling is not supported by this model"),
    ],
)
def test_an_endpoint_without_tools_is_an_error_that_names_the_setting(status: int, text: str) -> None:
    error = failure(status, json.dumps({"error": {"message": text}}).encode(), {})
    assert type(error) is RequestRejected
    assert 'form = "text"' in str(error)
    assert wire_of("completions").adjust(str(error), Sampling(temperature=0.5)) == ""


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "Invalid value for temperature"),
        (404, "The model 'tool-7b' does not exist"),
        (500, "tool server down"),
    ],
)
def test_other_errors_do_not_name_it(status: int, text: str) -> None:
    error = failure(status, json.dumps({"error": {"message": text}}).encode(), {})
    assert 'form = "text"' not in str(error)


async def test_a_rejection_of_tools_is_not_hidden() -> None:
    async with Simulator(SimulatorSettings(rejects=("tools",))) as sim, _client(sim) as model:
        with pytest.raises(RequestRejected, match=r'form = "text"'):
            await model.reply(_asked((SEARCH,)))
        assert sim.ledger.counters.requests == 1
        assert (await model.reply(_asked(()))).content


# ---------------------------------------------------------------- the simulator


def _client(sim: Simulator) -> ChatModel:
    return ChatModel("m", base_url=sim.base_url, api_key="")


def _asked(tools: tuple[ToolSchema, ...], **more: Any) -> Request:
    history = History("You answer.")
    history.add("user", "What now?")
    return Request(history, tools=tools, **more)


@tool(read_only=True)
def order(
    dish: str,
    count: int,
    price: float,
    hot: bool,
    size: Literal["small", "large"],
    extras: list[str],
    sides: dict[str, int],
    note: str | None = None,
    tags: tuple[Literal["a", "b"], ...] = (),
) -> str:
    """Order a dish."""
    assert isinstance(price, float | int)
    assert size in ("small", "large")
    return f"ordered {count} {dish}"


@tool
def stock(dish: str) -> int:
    """Count what is left of a dish."""
    return len(dish)


@pytest.mark.parametrize("form", ["native", "text"])
@pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
async def test_the_simulator_calls_tools_before_it_speaks(form: Any, watched: bool) -> None:
    settings = SimulatorSettings(calls_per_message=Constant(3), length=Constant(9), tokens_per_event=3)
    events: list[Any] = []
    found: list[Any] = []
    for _ in range(2):
        async with Simulator(settings) as sim, _client(sim) as model:
            played = await RolePlaying(
                "Cook",
                assistant="Cook",
                user="Guest",
                model=model,
                specify=False,
                assistant_tools=Toolbox([order, stock], form=form),
                user_tools=Toolbox([stock], form=form),
                watch=events.append if watched else None,
            ).finish()
            found.append(played)
            said = [one for one in played.messages if one.speaker == "assistant"]
            assert len(said) == 4
            for message in said:
                assert [(one.error, bool(one.result)) for one in message.actions] == [("", True)] * 3
                assert message.content.startswith("Solution:")
            requests = sum(1 + len({one.step for one in message.actions}) for message in played.messages)
            assert sim.ledger.counters.requests == sim.ledger.counters.served == requests
            assert played.usage.calls == requests
    actions = [[msg.actions for msg in one.messages] for one in found]
    facts = [[(a.tool, a.arguments) for several in one for a in several] for one in actions]
    assert facts[0] == facts[1]
    assert {name for name, _ in facts[0]} == {"order", "stock"}
    assert any(a.step == b.step for several in actions[0] for a, b in pairwise(several))


async def test_the_simulator_never_calls_by_default() -> None:
    async with Simulator() as sim, _client(sim) as model:
        reply = await model.reply(_asked((SEARCH, NOW)))
        assert (reply.choices[0].calls, bool(reply.content)) == ((), True)


@pytest.mark.parametrize("number", [Constant(4), LogNormal(median=2, p99=6)])
async def test_the_simulator_draws_a_number_of_calls_per_message(number: Constant | LogNormal) -> None:
    counts: set[int] = set()
    async with Simulator(SimulatorSettings(calls_per_message=number)) as sim, _client(sim) as model:
        for place in range(12):
            made, history = 0, History(f"You answer. {place}")
            history.add("user", "What now?")
            while calls := (await model.reply(Request(history, tools=(SEARCH, NOW)))).choices[0].calls:
                made += len(calls)
                history.append(Entry("assistant", "", calls, partial=True))
                for call in calls:
                    history.append(
                        Entry("tool", "<tool_result> <tool_result>", answers=call.id, partial=True)
                    )
            counts.add(made)
            assert (await model.reply(Request(history))).choices[0].calls == ()
    assert counts == {4} if isinstance(number, Constant) else 2 < len(counts) <= max(counts) + 1 < 20


async def test_streamed_and_whole_replies_of_the_simulator_are_the_same() -> None:
    async with Simulator(SimulatorSettings(calls_per_message=Constant(2))) as sim, _client(sim) as model:
        shown: list[Any] = []
        one = await model.reply(_asked((SEARCH, NOW)))
        other = await model.reply(_asked((SEARCH, NOW), watch=shown.append))
        assert one.choices == other.choices
        assert one.choices[0].calls
        assert one.usage == other.usage
        assert not any(event.text for event in shown if isinstance(event, Text))


# ---------------------------------------------------------------- scripts and batches


async def test_a_line_of_a_script_may_be_calls() -> None:
    first, second = ToolCall("1", "stock", '{"dish": "soup"}'), ToolCall("2", "stock", '{"dish": "cake"}')
    model = ScriptedModel([first, [first, second], "Done.", "Hello."])
    assert (await model.reply(_asked(()))).choices[0].calls == (first,)
    assert (await model.reply(_asked(()))).choices[0].calls == (first, second)
    assert (await model.reply(_asked(()))).content == "Done."
    assert (await model.reply(_asked(()))).choices[0].calls == ()
    with pytest.raises(ModelError):
        await model.reply(_asked(()))


@EACH
async def test_a_reply_with_calls_in_a_batch_is_read_the_same_way(protocol: str) -> None:
    said = Said("Said: so", [Called("a", "f", {"x": [1, {"y": "ü"}]}), Called("b", "g", {})])
    body = json.loads(whole(protocol, said))
    line: dict[str, Any] = {"custom_id": "one"}
    if protocol == "messages":
        line["result"] = {"type": "succeeded", "message": body}
    else:
        line["response"] = {"status_code": 200, "body": body}

    class Client:
        wire = wire_of(protocol)

        async def exchange(self, method: str, path: str, data: Any = None) -> AsyncGenerator[bytes]:
            yield json.dumps(line).encode()

        def redacted(self, reply: Reply) -> Reply:
            return reply

    api = (MessageBatches if protocol == "messages" else BatchApi)(cast("Any", Client()))
    ((_, reply),) = [one async for one in api.results(ProviderBatch("b", results=("/r",)))]
    assert isinstance(reply, Reply)
    assert reply.choices == Client.wire.read(whole(protocol, said)).choices
    assert as_called(reply.choices[0].calls) == said.calls


# ---------------------------------------------------------------- the real model


@pytest.mark.real_model
async def test_a_real_server_takes_tools_and_a_history_with_calls(small_model: ChatModel) -> None:
    history = History("You use tools.")
    history.add("user", "How many soups are left?")
    calls = (ToolCall("call-0", "stock", '{"dish": "soup"}'), ToolCall("call-1", "stock", "{}"))
    history.append(Entry("assistant", "", calls, partial=True))
    history.append(Entry("tool", "4", answers="call-0", partial=True))
    history.append(Entry("tool", "Error: wrong arguments", answers="call-1", partial=True))
    shown: list[Any] = []
    sampling, tools = Sampling(max_tokens=12, temperature=0.0, seed=1), (SEARCH, NOW)
    short = History("You use tools.")
    short.add("user", "How many soups are left?")
    before = (await small_model.reply(Request(short, sampling, "s", tools=tools))).usage.prompt
    for watch in (None, shown.append):
        reply = await small_model.reply(Request(history, sampling, "s", tools=tools, watch=watch))
        assert reply.choices[0].finish in ("stop", "length")
        assert reply.usage.prompt > before + 10  # the results are in the prompt
        assert 1 <= reply.usage.completion <= 12
