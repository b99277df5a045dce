"""The data of a training: rows as tokens and labels, of which only the assistant's messages are trained on, or preferences.

The one decision to know: the chat template decides where an answer begins. The text up to an answer, with the generation
prompt, must be the beginning of the text that includes the answer. The rest is trained on, with the end-of-turn token. This
works with any template that only appends text; other templates are an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from camel.core.errors import InputError
from camel.formats.preferences import preferences
from camel.runs.reader import RunReader
from camel.runs.run import open_folder
from camel.training.weights import need

IGNORED = -100
"""Label of a token that is not trained on."""


def chat_tokens(
    tokenizer: Any, messages: Sequence[dict[str, str]], length: int
) -> tuple[list[int], list[int]]:
    """Return the first `length` tokens of a chat, and a label for each token."""
    ids: list[int] = []
    labels: list[int] = []
    for text, trained in chat_pieces(tokenizer, messages):
        found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += found
        labels += found if trained else [IGNORED] * len(found)
        if len(ids) >= length:
            break
    return ids[:length], labels[:length]


def chat_pieces(tokenizer: Any, messages: Sequence[dict[str, str]]) -> Iterator[tuple[str, bool]]:
    """Yield the text of a chat in pieces. Each piece comes with a flag that is true if it is trained on."""
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
                "the model's chat template changes earlier messages, so the text to train on cannot be found. "
                "Use a model folder whose tokenizer has a template that only appends"
            )
        yield before[len(written) :], False
        # Some templates end a turn with a line break that models do not generate.
        answer = whole[len(before) :]
        yield answer.rstrip("\n"), True
        if answer.endswith("\n"):
            yield answer[len(answer.rstrip("\n")) :], False
        written = whole


def tokenized(tokenizer: Any, files: Sequence[str], length: int, scratch: str) -> Any:
    """Return a `datasets.Dataset` on disk with the tokens and labels of all rows that contain tokens to train on."""
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


FOLDER = "preferences"


def digest_of(name: str) -> str:
    """Return a hash of the content of a run or file."""
    path = Path(name)
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if not open_folder(name).exists:
        raise InputError(
            f"there are no preferences in {name}. Give a run, or a file written by camel export RUN preferences"
        )
    return " ".join(marker.sha256 for marker in RunReader(name).markers)


def pairs(names: tuple[str, ...], scratch: Path) -> Any:
    """Return a `datasets.Dataset` of prompts, each with a chosen and a rejected answer.

    They are read from files of `camel export RUN preferences`. A run is exported to such a file in `scratch` first, so that
    only one piece of code interprets a critic's choices.
    """
    datasets = need("datasets")
    files: list[str] = []
    for number, name in enumerate(names):
        path = Path(name)
        if not path.is_file():
            path = scratch / FOLDER / f"{number}.jsonl"
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                preferences(RunReader(name), path)
        files.append(str(path))
    try:
        found: Any = datasets.Dataset.from_json(files, cache_dir=str(scratch))
    except (ValueError, datasets.exceptions.DatasetGenerationError):
        found = ()
    if not len(found) or not {"prompt", "chosen", "rejected"} <= set(found.column_names):
        raise InputError(
            f"there are no preferences in {', '.join(names)}. Use a run in which a critic chose between proposals"
        )
    return found.select_columns(["prompt", "chosen", "rejected"])
