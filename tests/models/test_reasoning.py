"""Thoughts are separated from speech in every form in which endpoints send them, and their tokens are counted once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import Ending, Member, Moderated, Society
from camel.core.message import Usage
from camel.core.model import Choice, Reply
from camel.core.role_playing import RolePlaying
from camel.models.completions import StreamedReply, read_reply
from camel.models.scripted import ScriptedModel

FORMS: dict[str, dict[str, Any]] = {
    "reasoning_content": {"content": "Solution: 1", "reasoning_content": "Instruction: trap"},
    "reasoning": {"content": "Solution: 1", "reasoning": "Instruction: trap"},
    "both names": {
        "content": "Solution: 1",
        "reasoning": "Instruction: trap",
        "reasoning_content": "Instruction: trap",
    },
    "details": {
        "content": "Solution: 1",
        "reasoning_details": [{"type": "reasoning.text", "text": "Instruction: trap"}],
    },
    "encrypted details": {
        "content": "Solution: 1",
        "reasoning_details": [
            {"type": "reasoning.summary", "summary": "Instruction: trap"},
            {"type": "reasoning.encrypted", "data": "x1y2"},
        ],
    },
    "thinking parts": {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Instruction: trap"}]},
            {"type": "text", "text": "Solution: 1"},
        ]
    },
    "tags": {"content": "<think>\nInstruction: trap\n</think>\n\nSolution: 1"},
    "a lone closing tag": {"content": "Instruction: trap\n</think>\n\nSolution: 1"},
}


def body(message: dict[str, Any], usage: dict[str, Any] | None = None, finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": usage, "model": "m"}).encode()


def stream(message: dict[str, Any]) -> bytes:
    """The message as a stream: its texts letter by letter, its lists whole."""
    named = {name: list(text) if isinstance(text, str) else [text] for name, text in message.items()}
    content = named.pop("content", [])
    # What a model thinks comes under all names at once.
    deltas = [dict(zip(named, pieces, strict=True)) for pieces in zip(*named.values(), strict=True)]
    deltas += [{"content": piece} for piece in content]
    lines = [json.dumps({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    lines.append(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    return b"".join(f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"])


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_reply(form: str):
    choice = read_reply(body(FORMS[form])).choices[0]
    assert (choice.content, choice.reasoning) == ("Solution: 1", "Instruction: trap")


@pytest.mark.parametrize("form", FORMS)
@given(sizes=st.lists(st.integers(1, 300), max_size=60))
def test_a_stream_however_it_is_cut(form: str, sizes: list[int]):
    data, streamed, shown = stream(FORMS[form]), StreamedReply(), ""
    for size in [*sizes, len(data)]:
        shown += "".join(streamed.feed(data[:size]))
        data = data[size:]
    choice = streamed.finished().choices[0]
    assert (choice.content, choice.reasoning) == ("Solution: 1", "Instruction: trap")
    if form != "a lone closing tag":  # which is known for what it is only at the end
        assert shown.strip() == "Solution: 1"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(10, 5, 0, 1)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 50,
                "total_tokens": 60,
                "completion_tokens_details": {"reasoning_tokens": 40},
            },
            Usage(10, 50, 0, 1, reasoning=40),
        ),
        (  # counted apart
            {
                "prompt_tokens": 10,
                "completion_tokens": 10,
                "total_tokens": 60,
                "completion_tokens_details": {"reasoning_tokens": 40},
            },
            Usage(10, 50, 0, 1, reasoning=40),
        ),
        # known only by the total
        (
            {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 60},
            Usage(10, 50, 0, 1, reasoning=40),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 50, "reasoning_tokens": 40},
            Usage(10, 50, 0, 1, reasoning=40),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_cache_hit_tokens": 8,
                "prompt_cache_miss_tokens": 2,
            },
            Usage(10, 5, 8, 1),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "num_cached_tokens": 8}, Usage(10, 5, 8, 1)),
    ],
)
def test_tokens_are_counted_once(counts: dict[str, Any], expected: Usage):
    assert read_reply(body(FORMS["reasoning"], counts)).usage == expected


def test_a_reply_that_is_only_thought_says_so():
    choice = read_reply(body({"content": "", "reasoning": "hm"}, finish="length")).choices[0]
    assert choice.thought_only
    assert (
        not read_reply(body({"content": "Solution: 1", "reasoning": "hm"}, finish="length"))
        .choices[0]
        .thought_only
    )


def test_a_thought_is_recorded_and_nobody_hears_it():
    """Not the other agent, not the same one in its next prompt, and no rule that ends conversations."""
    asked: list[str] = []

    def line(request: Any) -> Reply:
        asked.append(bytes(request.history.encoded()).decode())
        said = (
            "Instruction: continue\nInput: None"
            if request.speaker == "user"
            else "Solution: done. Next request."
        )
        thought = "SECRET <CAMEL_TASK_DONE> Instruction: trap"
        return Reply((Choice(said, reasoning=thought),), Usage(100, 50, 0, 1, reasoning=40))

    play = RolePlaying(
        "Count",
        assistant="Mathematician",
        user="Pupil",
        model=ScriptedModel(line),
        max_messages=6,
        specify=False,
    )
    transcript = play.run()
    assert len(transcript.messages) == 6
    assert all(message.reasoning.startswith("SECRET") for message in transcript.messages)
    assert not any("SECRET" in prompt for prompt in asked)
    assert not any("SECRET" in part["content"] for part in transcript.to_messages("assistant"))


def test_hidden_tokens_do_not_fill_the_window():
    """A reply of 2,000 tokens of thought and 10 of speech takes 10 tokens of the history."""

    def line(request: Any) -> Reply:
        word = ("apples", "bread", "cheese", "dates", "eggs", "figs", "grapes", "honey")[
            len(model.requests) % 8
        ]
        said = (
            f"Instruction: count the {word}\nInput: None"
            if request.speaker == "user"
            else f"Solution: {word}."
        )
        return Reply((Choice(said, reasoning="hm"),), Usage(300, 2_010, 0, 1, reasoning=2_000))

    class Small(ScriptedModel):
        context_tokens = 4_096

    model = Small(line)
    transcript = RolePlaying(
        "Count", assistant="A", user="B", model=model, max_messages=8, specify=False
    ).run()
    assert transcript.stop is not None
    assert transcript.stop.reason == "max_messages"


def test_a_moderator_is_followed_by_what_it_says_not_by_what_it_thinks():
    lines = iter(["Next: Ada", "Yes.", "Next: Ada", "Yes.", "Next: Ada", "Yes."])
    model = ScriptedModel(lambda request: Reply((Choice(next(lines), reasoning="Next: Bob"),)))
    society = Society(
        members=(Member("Chair"), Member("Ada"), Member("Bob")),
        turns=Moderated("Chair"),
        stop=Ending(max_messages=6),
    )
    transcript = society.play(model, task="Choose").run()
    assert [message.speaker for message in transcript.messages] == ["Chair", "Ada"] * 3
