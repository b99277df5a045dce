"""Tool calls inside the conversation loop: a speaker's model calls tools until it speaks.

`ActingModel` wraps a speaker's model. Its reply is the message that ends the calls, with all calls in `actions`. The one
decision to know: the chat of a speaker is built from the recorded actions, here and when a transcript is read, so what
the model was sent can always be rebuilt.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from camel.core.errors import RequestRejected
from camel.core.history import Entry
from camel.core.inception import fill, texts
from camel.core.message import Action, ToolCall, Usage, well_formed
from camel.core.model import Acted, Acting, Choice, Model, Reply, Request, WrappedModel
from camel.core.tools import ActionInterrupted, Tool, Toolbox, ToolFailed, ToolResult, Workplace, as_text

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_TAG = re.compile(r"<(?=/?tool_(?:call|result)\b)")
_MOST_ERROR = 1_000
_decode = msgspec.msgpack.Decoder(Action).decode


class ActingModel(WrappedModel):
    """A speaker's model that may call tools before it replies."""

    def __init__(self, model: Model, speaker: str, toolbox: Toolbox, place: Workplace) -> None:
        super().__init__(model)
        self._speaker, self._box, self._place = speaker, toolbox, place

    async def reply(self, request: Request) -> Reply:
        """Call tools until the model replies without a call, and return that reply."""
        if request.speaker != self._speaker:  # a summary, for example
            return await self.inner.reply(request)
        if request.sampling.n > 1:
            raise RequestRejected("a model that calls tools gives one choice at a time")
        # A journal numbers calls in order, so exchanges of several calls take turns.
        async with self._place.turn:
            return await self._act(request)

    async def release_tools(self) -> None:
        """Free what the tools keep for the conversation."""
        for one in self._box.tools.values():
            await one.release(self._place)

    async def _act(self, request: Request) -> Reply:
        box, place, actions = self._box, self._place, list[Action]()
        place.unspoken = actions
        tools = box.schemas if box.form == "native" else ()
        request = replace(request, tools=tools, expects=None)
        usage, latency, attempts, limited = Usage(), 0.0, 1, 0
        for step in range(box.limits.per_message + 1):
            reply = await self.inner.reply(request)
            usage, latency = usage + reply.usage, latency + reply.latency
            attempts, limited = max(attempts, reply.attempts), limited + reply.limited
            said, calls = calls_in(reply.choices[0], place.issued)
            place.issued += len(calls)
            if not calls or step == box.limits.per_message:
                break
            made = await self._perform(request, calls, len(actions))
            made[0] = replace(made[0], said=said)
            actions += [replace(one, step=step) for one in made]
            if not step:
                request = replace(request, history=request.history.copy())
            for entry in action_entries(actions[-len(made) :], box.form):
                request.history.append(entry)
        place.unspoken = []
        choice = replace(reply.choices[0], content=said, calls=())  # pyright: ignore[reportPossiblyUnboundVariable]
        return replace(
            reply,  # pyright: ignore[reportPossiblyUnboundVariable]
            choices=(choice,),
            usage=usage,
            latency=latency,
            attempts=attempts,
            limited=limited,
            actions=tuple(actions),
        )

    async def _perform(self, request: Request, calls: Sequence[ToolCall], before: int) -> list[Action]:
        """Execute calls in order. Calls in a row that change nothing are executed at the same time."""
        done: list[Action] = []
        tools = self._box.tools
        for parallel, group in groupby(calls, lambda call: call.name in tools and tools[call.name].read_only):
            several = list(group)
            if parallel and len(several) > 1:
                numbers = range(before + len(done), before + len(done) + len(several))
                made = map(self._one, [request] * len(several), several, numbers)
                # All end before one is raised.
                for one in await asyncio.gather(*made, return_exceptions=True):
                    if isinstance(one, BaseException):
                        raise one
                    done.append(one)
            else:
                for call in several:
                    done.append(await self._one(request, call, before + len(done)))
        return done

    async def _one(self, request: Request, call: ToolCall, number: int) -> Action:
        """Execute a call, or take its result from the journal."""
        place, tool = self._place, self._box.tools.get(call.name)
        watch = request.watch
        if watch:
            watch(Acting(self._speaker, call))
        limit, arguments = self._refusal(call, number), _arguments(call)
        if limit or tool is None or isinstance(arguments, str):
            error = limit or (arguments if isinstance(arguments, str) else self._unknown(call))
            given = call.arguments if isinstance(arguments, dict) else json.dumps({"invalid": call.arguments})
            action = Action(call.name, well_formed(given), error=error, call=call.id)
        else:
            place.calls += 1
            made = False

            async def make(interrupted: bool) -> bytes:
                nonlocal made
                made = True
                if interrupted and not tool.repeatable:
                    await self._decide(tool, arguments)
                return msgspec.msgpack.encode(await self._execute(tool, arguments, call))

            asked = msgspec.msgpack.encode((self._speaker, call.name, well_formed(call.arguments)))
            check = hashlib.blake2b(asked, digest_size=16).digest()
            action = _decode(await place.perform(check, make, tool.repeatable))
            place.seconds += action.seconds
            if not made:
                await tool.recall(arguments, action, place)
        if watch:
            watch(Acted(self._speaker, action))
        return action

    async def _decide(self, tool: Tool, arguments: dict[str, Any]) -> None:
        repeat = self._place.repeat
        if repeat is not None and await repeat(self._speaker, tool, arguments):
            return
        given = as_text(arguments, 200)
        raise ActionInterrupted(
            f"the process ended during the call {tool.name}({given}): it may have been executed, and its result is lost. "
            "Check its effect; if a second call does no harm, declare the tool idempotent"
        )

    async def _execute(self, tool: Tool, arguments: dict[str, Any], call: ToolCall) -> Action:
        place, limits = self._place, self._box.limits
        begun, result, change, error = time.monotonic(), "", "", ""
        try:
            if place.confirm is not None and not await place.confirm(self._speaker, tool, arguments):
                raise ToolFailed("a person did not allow this call")
            begun = time.monotonic()  # without the time that a person thinks
            seconds = min(tool.seconds, max(0.1, limits.seconds - place.seconds))
            async with asyncio.timeout(seconds):
                outcome = await tool.call(arguments, place)
            found = outcome if isinstance(outcome, ToolResult) else ToolResult(outcome)
            change = found.change  # made, even if the result is not readable
            result = as_text(found.result, limits.result_chars)
        except TimeoutError:
            error = f"the call took longer than {tool.seconds:g} seconds"
        except ToolFailed as failed:
            error = str(failed)
        except Exception as failed:
            if isinstance(failed, tool.raises):
                raise
            error = f"{type(failed).__name__}: {failed}"
        error = well_formed(place.hidden(error))[:_MOST_ERROR]
        return Action(
            tool.name,
            place.hidden(well_formed(call.arguments)),
            place.hidden(result),
            error,
            round(time.monotonic() - begun, 6),
            call.id,
            change=change,
        )

    def _refusal(self, call: ToolCall, number: int) -> str:
        """Return why a call is not executed. Empty if no limit is reached."""
        limits, place = self._box.limits, self._place
        if number >= limits.per_message:
            return f"the limit of {limits.per_message} calls before a message is reached: answer now"
        if place.calls >= limits.calls:
            return f"the limit of {limits.calls} tool calls in this conversation is reached: answer without tools"
        if place.seconds >= limits.seconds:
            return f"the limit of {limits.seconds:g} seconds for tools in this conversation is reached: answer without tools"
        return ""

    def _unknown(self, call: ToolCall) -> str:
        if not call.name:
            return 'the call is not valid: write <tool_call>{"name": "…", "arguments": {…}}</tool_call>'
        return f"there is no tool {call.name[:64]!r}. The tools are {', '.join(self._box.tools)}"


def tools_prompt(toolbox: Toolbox) -> str:
    """Return what a speaker's system prompt says about its tools."""
    prompt = texts("tools")[toolbox.form]
    if toolbox.form == "native":
        return prompt
    return fill(prompt, {"TOOLS": "\n".join(msgspec.json.encode(one).decode() for one in toolbox.schemas)})


def action_entries(actions: Sequence[Action], form: str) -> Iterator[Entry]:
    """Yield the entries of a speaker's chat for the calls before a message: each reply with calls, then their results."""
    for _, group in groupby(actions, lambda action: action.step):
        several = list(group)
        said = several[0].said
        if form == "native":
            calls = tuple(ToolCall(one.call, one.tool, one.arguments) for one in several)
            yield Entry("assistant", said, calls, partial=True)
            yield from (Entry("tool", read_by_model(one), answers=one.call, partial=True) for one in several)
        else:
            yield Entry("assistant", "\n".join(filter(None, (said, *map(_written, several)))), partial=True)
            results = [
                f"<tool_result>\n{_TAG.sub('‹', read_by_model(one))}\n</tool_result>" for one in several
            ]
            yield Entry("user", "\n".join(results), partial=True)


def read_by_model(action: Action) -> str:
    """Return what the model reads as the result of a call."""
    return f"Error: {action.error}" if action.error else action.result


def calls_in(choice: Choice, number: int) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the text and the calls of a reply. Calls may also be in the text, as `<tool_call>{…}</tool_call>`."""
    if choice.calls:
        return choice.content, _with_ids(choice.calls, number)
    if "<tool_call>" not in choice.content:
        return choice.content, ()
    calls: list[ToolCall] = []
    for found in _CALL.finditer(choice.content):
        try:
            data: Any = json.loads(found[1])
            name, arguments = data["name"], data.get("arguments", data.get("parameters", {}))
            given = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(ToolCall("", name if isinstance(name, str) else "", given))
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            calls.append(ToolCall("", "", found[1]))
    return choice.content[: choice.content.index("<tool_call>")].strip(), _with_ids(calls, number)


def _with_ids(calls: Sequence[ToolCall], number: int) -> tuple[ToolCall, ...]:
    """Give each call an id of its own. Some models give none, or the same one to all."""
    seen: set[str] = set()
    found: list[ToolCall] = []
    for place, call in enumerate(calls, number):
        id = call.id if call.id and call.id not in seen else f"call-{place}"
        seen.add(id)
        found.append(replace(call, id=id))
    return tuple(found)


def _arguments(call: ToolCall) -> dict[str, Any] | str:
    """Return the arguments of a call, or what is wrong with them."""
    try:
        given: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return f"the arguments are not valid JSON: {error}"
    if isinstance(given, dict):
        return cast("dict[str, Any]", given)
    return f"the arguments must be a JSON object, not {type(given).__name__}"


def _written(action: Action) -> str:
    return f'<tool_call>{{"name": {json.dumps(action.tool)}, "arguments": {action.arguments}}}</tool_call>'
