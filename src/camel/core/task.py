"""The task of a conversation, and the task specifier: a model makes a vague idea concrete before the talk begins."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.history import History
from camel.core.inception import fill
from camel.core.message import FinishReason, Sampling, Usage, well_formed
from camel.core.model import Model, Request, Watch, checked_model

MAX_ROLE_CHARS = 1_000
MAX_TASK_CHARS = 200_000


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agents are to do, as given and as specified."""

    original: str
    specified: str = ""
    """The specifier's version; empty when there was none."""
    model: str = ""
    usage: Usage = Usage()
    """What specifying it cost."""
    finish: FinishReason = "stop"
    """How the specifier's reply ended. One that was refused or filtered is no task, and the original stays."""
    guided: str = ""

    @property
    def text(self) -> str:
        """The version that the agents work on."""
        return self.specified or self.original


class TaskSpecifier(msgspec.Struct, frozen=True):
    """Asks a model for a more specific task, as the paper's Figure 2 does."""

    word_limit: int = 50
    sampling: Sampling = Sampling(temperature=1.0)
    model: Model | None = None
    """Who is asked; by default the model that plays the assistant."""

    def __post_init__(self) -> None:
        limit, sampling = cast("Any", self.word_limit), cast("Any", self.sampling)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"word_limit must be a whole number of at least 1, not {shown(limit)}")
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
        """Return `task` with its specified version; an empty answer leaves it as it was."""
        values = {**roles, "TASK": as_sentence_part(task.original), "WORD_LIMIT": str(self.word_limit)}
        history = History()
        history.add("user", fill(template, values))
        request = Request(history, self.sampling, session, SPECIFIER, "task", watch)
        reply = await (self.model or model).reply(request)
        finish = reply.choices[0].finish
        specified = "" if finish in ("refusal", "content_filter") else well_formed(reply.content).strip()
        return Task(task.original, specified, reply.model, reply.usage, finish, reply.guided)


SPECIFIER = "specifier"
"""The speaker name under which the specifier's words are reported."""


def as_sentence_part(text: str) -> str:
    """Drop a final full stop: the prompts put the task inside a sentence of their own."""
    text = text.strip()
    return text[:-1] if text.endswith(".") and not text.endswith("..") else text


def checked_text(name: str, value: object, limit: int) -> str:
    """Return `value` stripped if it can be put into a prompt; otherwise raise an `InputError` in one line."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, not {type(value).__name__}")
    text = value.strip()
    if not any(char.isprintable() and not char.isspace() for char in text):
        raise InputError(f"{name} is empty: say in a few words what it is")
    if len(text) > limit:
        raise InputError(f"{name} has {len(text):,} characters; at most {limit:,} are allowed")
    if "\x00" in text:
        raise InputError(f"{name} contains a NUL character")
    if well_formed(text) != text:
        raise InputError(f"{name} is not valid Unicode: it contains half of a surrogate pair")
    return text
