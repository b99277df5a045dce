"""A model that replies from a script, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from camel.core.errors import ModelError, ServerFailed
from camel.core.history import Entry, estimate_tokens
from camel.core.message import ToolCall, Usage
from camel.core.model import Choice, Model, Reply, Request, Text

Line = str | ToolCall | Sequence[ToolCall] | Reply | ModelError


class ScriptedModel(Model):
    """Returns lines in order, or the results of a function. An exception among the lines is raised when it is reached. A
    `ToolCall`, or a list of them, is a reply that calls tools.

    `ScriptedModel(["Instruction: …", "Solution: …"])` or `ScriptedModel(lambda request: "…")`. `requests` has every request,
    and `heard` the history at that time. A call after the last line fails, so that a test notices.
    """

    def __init__(self, script: Iterable[Line] | Callable[[Request], Line], *, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[Request] = []
        self.heard: list[tuple[Entry, ...]] = []
        self._script = script if callable(script) else iter(script)

    async def reply(self, request: Request) -> Reply:
        """Return the next line."""
        self.requests.append(request)
        self.heard.append(tuple(request.history.entries))  # the history itself keeps growing
        if callable(self._script):
            line = self._script(request)
        else:
            line = next(self._script, ServerFailed(f"the script has only {len(self.requests) - 1} lines"))
        if isinstance(line, ModelError):
            raise line
        if not isinstance(line, Reply):
            calls = (line,) if isinstance(line, ToolCall) else line
            choice = Choice(calls) if isinstance(calls, str) else Choice("", calls=tuple(calls))
            usage = Usage(request.history.tokens, estimate_tokens(choice.content), 0, 1)
            line = Reply((choice,), usage, self.name)
        if request.watch:
            request.watch(Text(request.speaker, line.content))
        return line
