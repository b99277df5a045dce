"""The task of a conversation, and the task specifier: a model makes a vague idea concrete before the conversation starts."""

from __future__ import annotations

from typing import Any

import msgspec

from camel.core.checks import at_least, shown
from camel.core.errors import InputError
from camel.core.history import History
from camel.core.inception import fill
from camel.core.message import FinishReason, Sampling, Usage, well_formed
from camel.core.model import Model, Request, Watch, checked_model

MAX_ROLE_CHARS = 1_000
MAX_TASK_CHARS = 200_000


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """The agents' task, as given and as specified."""

    original: str
    specified: str = ""
    """The specifier's version; empty if there was no specifier."""
    model: str = ""
    usage: Usage = Usage()
    """Usage of the specifier's call."""
    finish: FinishReason = "stop"
    """How the specifier's reply ended. After a refusal or a filtered reply, the agents work on the original task."""
    guided: str = ""
    word_limit: int = 0
    """Maximum number of words that the specifier was asked for. 0: none."""

    @property
    def text(self) -> str:
        """The text of the task that the agents work on: specified if possible, otherwise as given."""
        return self.specified or self.original

    @property
    def inserted(self) -> str:
        """The text that prompts put inside a sentence: exactly as given, or as specified without its final period."""
        if not self.specified:
            return self.original
        text = self.specified.strip()
        return text[:-1] if text.endswith(".") and not text.endswith("..") else text


class TaskSpecifier(msgspec.Struct, frozen=True):
    """Asks a model for a more specific task, as the paper's Figure 2 does."""

    word_limit: int = 50
    sampling: Sampling = Sampling(temperature=1.0)
    model: Model | None = None
    """The model to ask. Default: the assistant's model."""

    def __post_init__(self) -> None:
        at_least(1, word_limit=self.word_limit)
        sampling: Any = self.sampling
        if not isinstance(sampling, Sampling):
            raise InputError(f"sampling must be a Sampling, not {shown(sampling)}")
        if self.model is not None:
            checked_model(self.model)

    async def specify(
        self,
        task: Task,
        template: str,
        roles: dict[str, str],
        model: Model,
        session: str = "",
        watch: Watch | None = None,
    ) -> Task:
        """Return `task` with its specified version. Return it unchanged if the model's answer is empty."""
        values = {**roles, "TASK": task.original, "WORD_LIMIT": str(self.word_limit)}
        history = History()
        history.add("user", fill(template, values))
        request = Request(history, self.sampling, session, SPECIFIER, "task", watch)
        reply = await (self.model or model).reply(request)
        finish = reply.choices[0].finish
        specified = "" if finish in ("refusal", "content_filter") else well_formed(reply.content).strip()
        return Task(task.original, specified, reply.model, reply.usage, finish, reply.guided, self.word_limit)


SPECIFIER = "specifier"
"""The speaker name of the specifier's calls."""


def checked_text(name: str, value: object, limit: int) -> str:
    """Return `value` exactly as given, or raise an `InputError` if it cannot be put into a prompt."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, not {type(value).__name__}")
    text = value
    if not any(char.isprintable() and not char.isspace() for char in text):
        raise InputError(f"{name} is empty: describe it in a few words")
    if len(text) > limit:
        raise InputError(f"{name} has {len(text):,} characters, but at most {limit:,} are allowed")
    if "\x00" in text:
        raise InputError(f"{name} contains a NUL character: remove it")
    if well_formed(text) != text:
        raise InputError(f"{name} is not valid Unicode: it contains half of a surrogate pair")
    return text
