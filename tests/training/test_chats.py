"""Only the assistant's messages and their end-of-turn tokens are trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import SandboxedEnvironment

from camel.core.errors import InputError
from camel.training.data import IGNORED, chat_pieces, chat_tokens
from camel.training.weights import check_template, has_template, template_text


class Letters:
    """A tokenizer with one token per letter, and with a chat template."""

    chat_template = "given"

    def __init__(self, *, forgets: bool = False, breaks: str = "\n") -> None:
        self._forgets, self._breaks = forgets, breaks

    def apply_chat_template(
        self, messages: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool = False
    ) -> str:
        assert not tokenize
        if self._forgets:  # like templates that drop earlier reasoning
            messages = [
                {**one, "content": one["content"] if one is messages[-1] else "…"} for one in messages
            ]
        text = "".join(f"<{one['role'][0]}>{one['content']}</>{self._breaks}" for one in messages)
        return text + ("<a>" if add_generation_prompt else "")

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, Any]:
        assert not add_special_tokens
        return {"input_ids": [ord(letter) for letter in text]}


def trained_text(ids: list[int], labels: list[int]) -> str:
    assert all(label in (IGNORED, token) for token, label in zip(ids, labels, strict=True))
    return "".join(chr(label) if label != IGNORED else "·" for label in labels)


texts = st.text("ab\n ", min_size=1, max_size=8)
chats = st.lists(st.tuples(texts, texts), min_size=1, max_size=4)


@given(chats, st.booleans(), st.sampled_from(["", "\n"]))
def test_the_whole_chat_is_tokenized_and_the_answers_have_labels(
    turns: list[tuple[str, str]], system: bool, breaks: str
):
    tokenizer = Letters(breaks=breaks)
    messages = [{"role": "system", "content": "be"}] if system else []
    for asked, answered in turns:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    ids, labels = chat_tokens(tokenizer, messages, 10_000)
    assert "".join(map(chr, ids)) == tokenizer.apply_chat_template(messages, tokenize=False)
    wanted = "".join(f"{answered}</>" for _, answered in turns)
    assert trained_text(ids, labels).replace("·", "") == wanted


def test_a_chat_that_is_too_long_is_cut():
    messages = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "answer"}]
    ids, labels = chat_tokens(Letters(), messages, 15)
    assert len(ids) == 15
    assert trained_text(ids, labels) == "·············an"


def test_a_template_that_changes_earlier_messages_is_rejected():
    messages = [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3"},
        {"role": "assistant", "content": "4"},
    ]
    with pytest.raises(InputError, match="only appends"):
        list(chat_pieces(Letters(forgets=True), messages))


def test_the_shipped_template_is_that_of_vicuna():
    template = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(template_text("vicuna"))

    def rendered(*messages: tuple[str, str], prompt: bool = False) -> str:
        chat = [{"role": role, "content": content} for role, content in messages]
        return template.render(messages=chat, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>")

    asked = ("system", "Be brief."), ("user", "Hi")
    assert rendered(*asked, prompt=True) == "<s>Be brief. USER: Hi ASSISTANT:"
    whole = rendered(*asked, ("assistant", "Hello"), ("user", "Bye"), ("assistant", "Ciao"))
    assert whole == "<s>Be brief. USER: Hi ASSISTANT: Hello</s>USER: Bye ASSISTANT: Ciao</s>"
    assert rendered(("user", "Hi")).startswith("<s>A chat between a curious user and an artificial")


@pytest.mark.parametrize(
    "inside", [{"tokenizer_config.json": '{"chat_template": "x"}'}, {"chat_template.jinja": "x"}, {}]
)
def test_a_base_model_is_found_before_the_training(tmp_path: Path, inside: dict[str, str]):
    for name, text in {"config.json": "{}", "tokenizer_config.json": "{}", **inside}.items():
        (tmp_path / name).write_text(text)
    assert has_template(str(tmp_path)) == bool(inside)
    assert has_template("team/a-model-on-the-hub") is None
    if not inside:
        with pytest.raises(InputError, match="--chat-template"):
            check_template(str(tmp_path), "")
        check_template(str(tmp_path), "vicuna")
    with pytest.raises(InputError, match="cannot be read"):
        check_template(str(tmp_path), "missing.jinja")
