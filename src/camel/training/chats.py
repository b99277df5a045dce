"""Rows as tokens: the whole chat is read, and only what the assistant says is learnt.

The one decision to know: a chat is cut where its template puts what a speaker says. The text up to an answer, as the
template writes it when an answer is asked for, must begin the text that has the answer; what comes after it is learnt,
its end-of-turn token included. So it works with any template that only appends, and says so where one does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from camel.core.errors import InputError
from camel.training.weights import need

IGNORED = -100
"""The label of a token that is read and not learnt."""


def chat_tokens(
    tokenizer: Any, messages: Sequence[dict[str, str]], length: int
) -> tuple[list[int], list[int]]:
    """The tokens of a chat, and the same with all but the assistant's ignored; cut at `length`."""
    ids: list[int] = []
    labels: list[int] = []
    for text, learnt in chat_pieces(tokenizer, messages):
        found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += found
        labels += found if learnt else [IGNORED] * len(found)
        if len(ids) >= length:
            break
    return ids[:length], labels[:length]


def chat_pieces(tokenizer: Any, messages: Sequence[dict[str, str]]) -> Iterator[tuple[str, bool]]:
    """The text of a chat in pieces: read, learnt, read, learnt…"""
    written = ""
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = tokenizer.apply_chat_template(
            list(messages[:place]), tokenize=False, add_generation_prompt=True
        )
        whole = tokenizer.apply_chat_template(list(messages[: place + 1]), tokenize=False)
        if not (before.startswith(written) and whole.startswith(before)):
            raise InputError(
                "the model's chat template rewrites what was said before, so that it cannot be told what to learn: "
                "give a folder whose tokenizer has a template that only appends"
            )
        yield before[len(written) :], False
        # Some templates end a turn with a line break that no model ever writes.
        said = whole[len(before) :]
        yield said.rstrip("\n"), True
        if said.endswith("\n"):
            yield said[len(said.rstrip("\n")) :], False
        written = whole


def tokenized(tokenizer: Any, files: Sequence[str], length: int, scratch: str) -> Any:
    """A `datasets.Dataset` of tokens and labels, on disk; rows without anything to learn are left out."""
    datasets = need("datasets")

    def convert(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        made: dict[str, list[Any]] = {"input_ids": [], "labels": []}
        for messages in batch["messages"]:
            ids, labels = chat_tokens(tokenizer, messages, length)
            if any(label != IGNORED for label in labels):
                made["input_ids"].append(ids)
                made["labels"].append(labels)
        return made

    rows: Any = datasets.Dataset.from_parquet(list(files), columns=["messages"], cache_dir=scratch)
    return rows.map(convert, batched=True, batch_size=200, remove_columns=["messages"], desc="tokens")
