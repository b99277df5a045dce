"""Tools: what a speaker may call before it speaks.

    @tool(read_only=True)
    def search(query: str, limit: int = 5) -> list[str]:
        "Search the catalog."

A tool is a Python function, whose schema follows from its signature and docstring, or an object of a subclass of `Tool`.
The one decision to know: a tool that is neither `read_only` nor `idempotent` is never executed twice. If a process dies
during such a call, its conversation fails, because nobody can tell whether the call had its effect. A plain function runs
on one of a few threads of its tool, an async function on one event loop that all tools share, so a tool that blocks delays
only the conversation that waits for it. The threads are daemons: a function that never returns does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cache, cached_property, partial
from typing import Annotated, Any, Literal, NamedTuple, cast, get_type_hints, overload

import msgspec

from camel.core.checks import shown, similar, whole
from camel.core.errors import CamelError, InputError
from camel.core.message import Action, well_formed
from camel.core.model import ToolSchema
from camel.core.resolve import resolvers

_Job = tuple[asyncio.Future[Any], Callable[[], Any]]


class Threads:
    """A few threads that run functions. They are started when they are needed."""

    def __init__(self, most: int) -> None:
        self._most, self._started, self._idle = most, 0, 0
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function on a thread and return its result. If the caller is cancelled first, the function is not started."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            start = self._idle <= self._jobs.qsize() and self._started < self._most
            self._started += start
        self._jobs.put((future, function))
        if start:
            threading.Thread(target=self._work, name="camel-tool", daemon=True).start()
        return await future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            future, function = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if future.cancelled():
                continue
            found, error = None, None
            try:
                found = function()
            except BaseException as raised:  # a tool must not end the thread; a future refuses StopIteration
                is_plain = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
                error = raised if is_plain else RuntimeError(repr(raised))
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(_deliver, future, found, error)


def _deliver(future: asyncio.Future[Any], found: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="camel-tools", daemon=True).start()
    return loop


async def run_on_tool_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on the event loop that async tools share, and return its result."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


def wait_on_tool_loop(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """Run a coroutine on the event loop that async tools share, and wait for its result. Raise `TimeoutError` if it is late."""
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), _loop()).result(seconds + 10)


ToolForm = Literal["native", "text"]
"""How calls are written: in the tool fields of the protocol, or as `<tool_call>{…}</tool_call>` in the text."""
Make = Callable[[bool], Awaitable[bytes]]
"""Executes a call and returns its record. The argument is whether an earlier process may have executed it already."""
Perform = Callable[[bytes, Make, bool], Awaitable[bytes]]
"""Takes an identifier, a function and whether the call may be repeated. Returns the record of the call, made now or before."""
Confirm = Callable[[str, "Tool", dict[str, Any]], Awaitable[bool]]
"""Takes a speaker, a tool and its arguments. Returns whether the call is allowed."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARGUMENT = re.compile(r"\s*:?(?:param\s+)?\**(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_ARGUMENTS = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$|^\s*:param ", re.MULTILINE)
_END = re.compile(
    r"^\s*(?:Returns|Raises|Yields|Examples?|Notes?):|^\s*:(?:returns?|raises?)\b", re.MULTILINE
)


class ActionInterrupted(CamelError):
    """A process ended during a tool call that must not be repeated, so it is unknown whether the call had its effect."""


class ToolFailed(Exception):
    """Raised by a tool. Its text is the error that the model reads, as it is."""


class ToolResult(NamedTuple):
    """What a tool returns that changes the shared state of its conversation."""

    result: Any
    change: str = ""
    """The change, as it is stored in `Action.change`."""


class ToolLimits(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits on the tool calls of a conversation. A call beyond a limit is not executed, and the model reads why."""

    per_message: int = 8
    """Maximum number of calls before a message."""
    calls: int = 64
    """Maximum number of calls in a conversation."""
    seconds: float = 600.0
    """Maximum duration of all calls of a conversation."""
    result_chars: int = 20_000
    """Maximum length of a result. Longer ones are cut off."""

    def __post_init__(self) -> None:
        for name, most in (("per_message", 1_000), ("calls", 100_000), ("result_chars", 10_000_000)):
            whole(f"tools.{name}", getattr(self, name), 1, most)
        if not 0 < self.seconds < 1e9:
            raise InputError(f"tools.seconds must be above 0, not {shown(self.seconds)}")


async def _perform(check: bytes, make: Make, repeatable: bool) -> bytes:
    return await make(False)


class Workplace:
    """What the tools of one conversation share: their state, the journal, and the permission to act."""

    def __init__(
        self,
        *,
        perform: Perform = _perform,
        confirm: Confirm | None = None,
        repeat: Confirm | None = None,
        secrets: Sequence[str] = (),
        again: bool = False,
    ) -> None:
        self.perform, self.confirm = perform, confirm
        self.again = again
        """Whether the conversation may be made again, so that only tools whose calls may be repeated are allowed."""
        self.repeat = repeat
        """Asked whether to execute a call again that may have been executed before a crash. None: the conversation fails."""
        self.secrets = tuple(filter(None, secrets))
        """Values that are replaced in results."""
        self.kept: dict[Any, Any] = {}
        """What tools keep for the conversation, by key."""
        self.calls, self.seconds = 0, 0.0
        """Number and duration of the calls so far."""
        self.issued = 0
        """Number of calls that the models wrote, executed or not."""
        self.unspoken: list[Action] = []
        """Calls for a message that was not said yet."""
        self.turn = asyncio.Lock()

    def hidden(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return text


class Tool(ABC):
    """Something that a speaker can call. Subclasses set the fields and implement `call`."""

    name: str
    description: str = ""
    parameters: dict[str, Any]
    """The JSON schema of the arguments."""
    read_only: bool = False
    """Whether a call changes nothing, so that it may be repeated, and made for proposals that are never said."""
    idempotent: bool = False
    """Whether a second call with the same arguments changes nothing more, so that it may be repeated after a crash."""
    seconds: float = 60.0
    """Maximum duration of a call."""
    version: int = 1
    """Raise it when the tool does something else, so that a run does not mix old and new results."""
    raises: type[Exception] | tuple[()] = ()
    """Exceptions that are mistakes in the tool's code. They end the run; the model does not read them."""

    @abstractmethod
    async def call(self, arguments: dict[str, Any], place: Workplace) -> Any:
        """Execute the tool and return text, a JSON value or an `ToolResult`. `place` is the conversation's `Workplace`. Raise
        `ToolFailed` for an error that the model should read."""

    async def recall(self, arguments: dict[str, Any], action: Action, place: Workplace) -> None:  # noqa: B027 - most tools have no state
        """Called instead of `call` for a call that was executed before a restart, so that a tool can restore its state."""

    async def release(self, place: Workplace) -> None:  # noqa: B027 - most tools keep nothing
        """Free what the tool keeps for a conversation. The conversation may still continue later."""

    @property
    def repeatable(self) -> bool:
        """Whether a call may be executed again if a crash lost its result."""
        return self.read_only or self.idempotent

    @cached_property
    def schema(self) -> ToolSchema:
        """The tool as its model sees it."""
        return ToolSchema(self.name, self.description, self.parameters)


class FunctionTool(Tool):
    """A Python function as a tool. Its arguments are checked and converted by the annotations of the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        read_only: bool = False,
        idempotent: bool = False,
        seconds: float = 60.0,
        concurrency: int = 16,
        version: int = 1,
    ) -> None:
        self._settings: dict[str, Any] = {**locals()}  # all arguments except the function, for pickling
        del self._settings["self"], self._settings["function"]
        if not callable(function):
            raise InputError(f"a tool must be a function or a Tool, not {shown(function)}")
        self.function = function
        self.name = checked_name(name or getattr(function, "__name__", ""))
        about, arguments = _described(inspect.getdoc(function) or "")
        self.description = description or about
        self.read_only, self.idempotent, self.seconds = read_only, idempotent, seconds
        self.version = version
        self._type = _arguments_type(self.name, function, arguments)
        self.parameters = _schema_of(self._type)
        self._threads = Threads(concurrency)

    def __reduce__(self) -> Any:
        """Pickle the function and the settings, for workers of a cluster. The name of a decorated function means the tool."""
        self.__module__, name = self.function.__module__, self.function.__qualname__
        if self.__module__ != "__main__" and getattr(sys.modules.get(self.__module__), name, None) is self:
            return name
        return partial(FunctionTool, **self._settings), (self.function,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Return the method itself if the tool is a method of an object."""
        return self if instance is None else partial(self.function, instance)

    async def call(self, arguments: dict[str, Any], place: Workplace) -> Any:
        """Call the function with checked arguments."""
        return await self.run(**self.converted(arguments))

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, on a thread or on the event loop of async tools."""
        if inspect.iscoroutinefunction(self.function):
            return await run_on_tool_loop(self.function(*args, **kwargs))
        return await self._threads.run(lambda: self.function(*args, **kwargs))

    def converted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function's types. Raise `ToolFailed` if they do not fit."""
        try:
            found = msgspec.convert(arguments, self._type)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"wrong arguments: {error}") from None
        return {name: getattr(found, name) for name in self._type.__struct_fields__}


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    idempotent: bool = False,
    seconds: float = 60.0,
    concurrency: int = 16,
    version: int = 1,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make a tool of a function; also used as a decorator. Without settings, a plain function in a list of tools does the same."""
    if function is not None:
        return FunctionTool(function)
    known: Any = FunctionTool.__init__.__kwdefaults__
    for name in settings.keys() - known:
        raise InputError(f"a tool has no setting {name}{similar(name, known)}. It has {', '.join(known)}")
    return partial(FunctionTool, **settings)


class Toolbox:
    """The tools of one speaker."""

    def __init__(
        self, tools: Sequence[Any], *, form: ToolForm = "native", limits: ToolLimits | None = None
    ) -> None:
        """`tools` are functions, `Tool`s, and names of tools such as `python`."""
        listed: Any = tools
        if isinstance(listed, str) or not isinstance(listed, Sequence):
            raise InputError(f"tools must be a list, not {shown(tools)}")
        if form not in ("native", "text"):
            raise InputError(f'the form of tool calls must be "native" or "text", not {shown(form)}')
        self.form: ToolForm = form
        self.limits = limits or ToolLimits()
        self.tools: dict[str, Tool] = {}
        for given in tools:
            for one in _found(given):
                if one.name in self.tools:
                    raise InputError(f"there are two tools called {shown(one.name)}: rename or remove one")
                self.tools[one.name] = one

    @cached_property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools as their model sees them."""
        return tuple(one.schema for one in self.tools.values())

    def identity(self) -> dict[str, Any]:
        """Return what identifies the tools in the settings of a run."""
        kinds = {one.name: f"{type(one).__module__}.{type(one).__qualname__}" for one in self.tools.values()}
        return {
            "form": self.form,
            "limits": msgspec.to_builtins(self.limits),
            "tools": {name: [kinds[name], one.version] for name, one in self.tools.items()},
        }


def checked_toolbox(tools: Any) -> Toolbox | None:
    """Return tools as a `Toolbox`, or None if there are none."""
    if tools is None or isinstance(tools, Toolbox):
        return tools if tools and tools.tools else None
    return Toolbox(tools) if tools else None


def checked_name(name: Any) -> str:
    """Return the name of a tool. Raise an `InputError` if endpoints would reject it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"the name of a tool must be up to 64 letters, digits, hyphens and underscores, not {shown(name)}"
        )
    return name


def as_text(result: Any, most: int) -> str:
    """Return the result of a tool as the text that the model reads, of at most `most` characters."""
    if not isinstance(result, str):
        try:
            result = msgspec.json.encode(result, enc_hook=_without_json).decode()
        except (TypeError, ValueError, RecursionError):
            result = str(result)
    if len(result) > most:
        result = f"{result[:most]}\n(cut off: the result has {len(result):,} characters)"
    return well_formed(result)


def _without_json(value: Any) -> Any:
    """Raise `ToolFailed` if the text of a value that is not JSON is only an address in memory."""
    if " at 0x" not in str(value):
        raise TypeError
    problem = f"the tool returned a value of type {type(value).__name__}, which is not JSON"
    raise ToolFailed(f"{problem}: return text, numbers, lists or dicts")


def _found(given: Any) -> Sequence[Tool]:
    if isinstance(given, Tool):
        checked_name(given.name)
        return (given,)
    if isinstance(given, str):
        return resolvers.tools(given)
    return (FunctionTool(given),)


def _described(text: str) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and what it says about each argument."""
    begin = _ARGUMENTS.search(text)
    about = text[: begin.start()] if begin else text
    if end := _END.search(about):
        about = about[: end.start()]
    arguments: dict[str, str] = {}
    for line in text[begin.start() :].splitlines() if begin else ():
        if _END.match(line):
            break
        if found := _ARGUMENT.fullmatch(line):
            if found[2]:
                arguments[found[1]] = found[2].strip()
        elif arguments and line.strip():
            last = next(reversed(arguments))
            arguments[last] = f"{arguments[last]} {line.strip()}"
    return about.strip(), arguments


def _arguments_type(name: str, function: Callable[..., Any], about: dict[str, str]) -> type[msgspec.Struct]:
    """Return a struct with the arguments of a function, for checking and for the schema."""
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise InputError(f"the signature of the tool {name} cannot be read: {error}") from None
    fields: list[Any] = []
    for one in signature.parameters.values():
        if one.name == "self":  # of a method
            continue
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise InputError(f"the tool {name} must not have the argument {one}: give it a name and a type")
        kind: Any = hints.get(one.name, Any)
        if described := about.get(one.name):
            kind = Annotated[kind, msgspec.Meta(description=described)]
        default = one.default
        if default is one.empty:
            fields.append((one.name, kind))
        elif isinstance(default, list | dict | set):
            made = cast("Any", default)
            fields.append((one.name, kind, msgspec.field(default_factory=lambda made=made: made.copy())))
        else:
            fields.append((one.name, kind, default))
    try:
        return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"the tool {name} cannot have these arguments: {error}") from None


def _schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise InputError(f"an argument of the tool {kind.__name__} has no JSON schema: {error}") from None
    schema = parts.pop(kind.__name__)
    schema.pop("title", None)
    return {**schema, **({"$defs": parts} if parts else {})}
