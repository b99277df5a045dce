"""The values of the record: their sums, their limits, their bytes, and how a conversation reads."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from camel.core.errors import InputError
from camel.core.message import Deliberation, Message, Proposal, Sampling, Usage, in_one_line, well_formed
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import SCHEMA, Speaker, Transcript


def test_usage_adds_up_field_by_field():
    total = Usage(1, 20, 300, 4000, 50000) + Usage(2, 40, 600, 8000, 10000)
    assert total == Usage(3, 60, 900, 12000, 60000)
    assert total.total == 63


@pytest.mark.parametrize(
    ("used", "filled"),
    [
        (Usage(30, 10, 5, calls=4), Usage(30, 10, 5, calls=4)),
        (Usage(30, 10, 5, calls=4, unknown=2), Usage(60, 20, 10, calls=4)),
        (Usage(10, 10, 0, calls=4, unknown=1), Usage(13, 13, 0, calls=4)),
        (Usage(calls=4, unknown=4), Usage(calls=4, unknown=4)),
        (Usage(3, calls=4, unknown=5), Usage(3, calls=4, unknown=5)),
        (Usage(10, 10, 10, calls=2, unknown=1), Usage(20, 20, 20, calls=2)),
    ],
)
def test_calls_without_a_count_are_taken_for_average_ones(used: Usage, filled: Usage):
    assert used.filled() == filled


LIMITS: dict[str, tuple[Any, Any, Any, Any]] = {
    # below, lowest, highest, above
    "temperature": (-0.01, 0, 10, 10.01),
    "top_p": (-0.01, 0, 1, 1.01),
    "presence_penalty": (-2.01, -2, 2, 2.01),
    "frequency_penalty": (-2.01, -2, 2, 2.01),
    "max_tokens": (0, 1, 10_000_000, 10_000_001),
    "n": (0, 1, 1_000, 1_001),
    "seed": (-(2**63) - 1, -(2**63), 2**63 - 1, 2**63),
    "logprobs": (-1, 0, 100, 101),
}


@pytest.mark.parametrize("name", LIMITS)
def test_settings_are_checked_at_their_limits(name: str):
    below, lowest, highest, above = LIMITS[name]
    for value in (lowest, highest):
        assert getattr(Sampling(**{name: value}), name) == value
    for value in (below, above, True, "1", math.nan):
        with pytest.raises(InputError, match=name):
            Sampling(**{name: value})


def test_one_candidate_is_the_least():
    assert Sampling().n == 1
    with pytest.raises(InputError, match="n must"):
        Sampling(n=None)  # type: ignore[arg-type]
    assert Sampling(max_tokens=None, seed=None, logprobs=None, temperature=None) == Sampling()


@pytest.mark.parametrize("stop", ["\n", ["a", ""], ["a", 1], 3, {"a"}])
def test_stop_is_a_list_of_texts(stop: Any):
    with pytest.raises(InputError, match="stop"):
        Sampling(stop=stop)


def test_stop_and_extra_are_kept():
    sampling = Sampling(stop=["a", "b"], extra={"effort": "low"})  # type: ignore[arg-type]
    assert (sampling.stop, sampling.extra) == (("a", "b"), {"effort": "low"})


@pytest.mark.parametrize(
    "extra",
    [
        [("a", 1)],
        {1: "a"},
        {"model": "other"},
        {"messages": []},
        {"stream": True},
        {"stream_options": {}},
        {"a": object()},
        {"a": "\ud800"},
    ],
)
def test_extra_is_what_can_be_sent_and_is_not_the_clients(extra: Any):
    with pytest.raises(InputError, match="extra"):
        Sampling(extra=extra)


def test_a_stop_that_cannot_be_sent_is_refused():
    with pytest.raises(InputError, match="JSON"):
        Sampling(stop=("\ud800",))


@pytest.mark.parametrize(
    "value",
    [
        Usage(1),
        Sampling(),
        Proposal("a"),
        Deliberation("critic", (), 0),
        Message(0, "user", "User", "a"),
        Speaker("user", "User"),
    ],
)
def test_what_was_recorded_cannot_be_changed(value: msgspec.Struct):
    with pytest.raises(AttributeError):
        setattr(value, value.__struct_fields__[0], "other")


def test_the_bytes_of_a_record_name_only_what_is_not_usual():
    """Records are stored by the million, and read back with defaults for what is missing."""
    values = [
        (Usage(calls=1), {"calls": 1}),
        (Sampling(), {}),
        (Proposal("a"), {"content": "a"}),
        (Deliberation("c", (), 0), {"critic": "c", "proposals": [], "choice": 0}),
        (Message(3, "user", "U", "a"), {"index": 3, "speaker": "user", "role": "U", "content": "a"}),
        (Speaker("user", "U"), {"name": "user", "role": "U"}),
    ]
    for value, expected in values:
        assert msgspec.json.decode(msgspec.json.encode(value)) == expected
        assert msgspec.convert(expected, type(value)) == value


def test_a_message_without_more_is_one_attempt_that_ended_by_itself():
    message = Message(0, "user", "U", "a")
    assert (message.finish, message.attempts, message.latency, message.usage) == ("stop", 1, 0.0, Usage())
    assert (message.model, message.guided, message.deliberation) == ("", "", None)
    proposal = Proposal("a")
    assert (proposal.speaker, proposal.parent, proposal.revises, proposal.score) == ("", -1, False, None)


def test_settings_with_a_wrong_name_are_refused():
    with pytest.raises(msgspec.ValidationError, match="temprature"):
        msgspec.convert({"temprature": 1}, Sampling)


@pytest.mark.parametrize(("text", "line"), [("a\n b\t c ", "a b c"), ("", ""), ("a\u2028b", "a b")])
def test_a_name_is_one_line(text: str, line: str):
    assert in_one_line(text) == line


@pytest.mark.parametrize(("text", "fixed"), [("ü😀", "ü😀"), ("a\ud800ü", "a?ü"), ("plain", "plain")])
def test_half_a_surrogate_pair_is_replaced(text: str, fixed: str):
    assert well_formed(text) == fixed


# --- transcripts -----------------------------------------------------------------------------------------------------


def conversation(**changes: Any) -> Transcript:
    values: dict[str, Any] = {
        "id": "t1",
        "task": Task("Do it.", "Do it\n\nwell.", usage=Usage(5, 1, 0, 1)),
        "speakers": [Speaker("user", "Trader\n"), Speaker("assistant", "Coder")],
        "messages": [
            Message(0, "user", "Trader\n", "First line\n\nThird line  ", usage=Usage(1000, 20, 0, 1)),
            Message(1, "assistant", "Coder", "# Done", usage=Usage(2000, 30, 0, 1)),
        ],
        "stop": Stop("done", "it is\ndone"),
        "labels": ["misalignment", "b\nc"],
    }
    return Transcript(**{**values, **changes})


READ = """\
# Trader and Coder

**Labels:** misalignment, b c

**Task:**

> Do it.

**Specified task:**

> Do it
>
> well.

### 1. Trader (user)

> First line
>
> Third line

### 2. Coder (assistant)

> # Done

---

Ended because it is done.
3 calls, 3,005 + 51 tokens.
"""


def test_how_a_conversation_reads():
    assert conversation().to_markdown() == READ


def test_how_a_conversation_reads_without_what_it_need_not_have():
    text = conversation(task=Task("Do it."), labels=[], stop=None, messages=[]).to_markdown()
    assert text == "# Trader and Coder\n\n**Task:**\n\n> Do it.\n\n0 calls, 0 + 0 tokens.\n"


def test_the_usage_of_a_conversation_includes_its_task():
    assert conversation().usage == Usage(3005, 51, 0, 3)


def test_a_record_of_a_later_version_is_refused_and_of_this_one_is_read():
    assert conversation().schema == SCHEMA == 2
    assert Transcript.from_json(conversation().to_json()) == conversation()
    newer = conversation(schema=SCHEMA + 1).to_json()
    with pytest.raises(InputError, match=f"schema {SCHEMA + 1}"):
        Transcript.from_json(newer)


def test_a_record_is_indented_for_people():
    lines = Transcript("x", Task("t")).to_json().decode().splitlines()
    assert lines[:3] == ["{", '  "id": "x",', '  "task": {']


@pytest.mark.parametrize("data", [b"\xff", '{"id": 1}', b'{"id": "\xff"}'])
def test_what_is_no_record_is_an_input_error(data: bytes | str):
    with pytest.raises(InputError):
        Transcript.from_json(data)


def test_records_do_not_share_their_lists():
    one, other = Transcript("a", Task("t")), Transcript("b", Task("t"))
    one.labels.append("x")
    one.inputs["a"] = "b"
    assert (other.labels, other.inputs, other.messages, other.speakers) == ([], {}, [], [])
