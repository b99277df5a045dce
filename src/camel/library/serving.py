"""Serves a society, a role play or a scenario as an endpoint, in the format of OpenAI chat completions."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from aiohttp import hdrs, web
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.model import Model
from camel.core.play import Declaration
from camel.core.results import read_settings
from camel.core.role_playing import RolePlaying
from camel.core.stops import Stop
from camel.core.task import MAX_TASK_CHARS, checked_text
from camel.core.toml import plain_message, read_table
from camel.engine.halt import Unfinished
from camel.generation.config import GenerateConfig, read_config
from camel.generation.dialogues import Dialogues
from camel.generation.generate import Generation
from camel.generation.served import SOURCE, KeyReused, Requests, Served, reply_text
from camel.generation.toolboxes import RunTools, allow_tools
from camel.inputs.settings import Inputs
from camel.jobs.budget import Budget
from camel.jobs.launch import JobOptions, Launch
from camel.jobs.ledger import MONEY, usage_of
from camel.jobs.progress import Printed
from camel.jobs.runner import Outcome
from camel.models.simulator import SimulatorProcess, SimulatorSettings, spawn
from camel.models.spec import ModelSpec, find_spec, spec_of
from camel.scenarios import load, load_society
from camel.scenarios.checking import columns_of
from camel.scenarios.societies import SOCIETY_FILE
from camel.tools.settings import ToolSettings

_DISTRIBUTIONS = ("length", "latency")


@contextmanager
def simulated_endpoint(**settings: Any) -> Generator[SimulatorProcess]:
    """Run a simulated endpoint for the duration of the block. Models without a `base_url` send their calls there.

        with camel.simulated_endpoint(length=5, seed=6) as endpoint:
            RolePlaying("A menu", assistant="Chef", user="Beekeeper", model="gpt-4.1-mini").run()
            print(endpoint.ledger().billed)

    It needs no key and costs nothing. docs/simulator.md lists the settings; a plain number for `length` or `latency`
    applies to every conversation or call.
    """
    given = {
        name: {"kind": "constant", "value": value}
        if name in _DISTRIBUTIONS and isinstance(value, int | float)
        else value
        for name, value in settings.items()
    }
    try:
        checked = msgspec.convert(given, SimulatorSettings)
    except msgspec.ValidationError as error:
        raise InputError(f"invalid setting of the simulated endpoint: {plain_message(error)}") from None
    with spawn(checked) as endpoint:
        # Replace the key, too: a real key must not be sent there.
        ours = {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "none"}
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield endpoint
        finally:
            for name, value in before.items():
                if os.environ.get(name) != ours[name]:
                    continue  # the program has set it meanwhile
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


MAX_BYTES, READ_SECONDS = 4_000_000, 30.0
"""Maximum size of a request, and maximum time to send it."""
PING, GRACE = 10.0, 2.0
"""Seconds between comments in a stream that waits, and seconds for clients to read replies when the server stops."""
# fmt: off
_IGNORED = {
    "messages", "model", "stream", "stream_options", "stop", "temperature", "top_p", "max_tokens", "max_completion_tokens",
    "presence_penalty", "frequency_penalty", "seed", "user", "metadata", "store", "service_tier", "parallel_tool_calls",
    "prompt_cache_key", "safety_identifier", "reasoning_effort", "verbosity",
}
_NEUTRAL: dict[str, Any] = {
    "n": 1, "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "modalities": ["text"], "logprobs": False,
}
"""Other fields of a request, with the values that have no effect. All other values are refused."""
# fmt: on


class _Entry(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[Literal["type", "text"], str]] | None = None

    @property
    def text(self) -> str:
        parts = [{"text": self.content}] if isinstance(self.content, str) else self.content or ()
        return "".join(part["text"] for part in parts)


class _Body(msgspec.Struct):
    messages: Annotated[list[_Entry], msgspec.Meta(min_length=1)]
    model: str | None = None
    stream: bool | None = None
    stream_options: dict[str, bool] | None = None
    stop: str | list[str] | None = None

    def task(self) -> str:
        *before, last = self.messages
        if last.role != "user":
            raise InputError("the last message must have the role user")
        rules = "\n\n".join(one.text for one in before if one.role in ("system", "developer"))
        said = [f"{one.role.capitalize()}: {one.text}" for one in before if one.role in ("user", "assistant")]
        parts = {"Instructions": rules, "Earlier messages": "\n\n".join(said), "Task": last.text}
        whole = "\n\n".join(f"{title}:\n{part}" for title, part in parts.items() if part)
        _ = checked_text("the last message", last.text, MAX_TASK_CHARS)
        return checked_text("the task", whole if before else last.text, MAX_TASK_CHARS)


class _Refused(Exception):
    def __init__(self, status: int, text: str, code: str | None = None, **headers: str) -> None:
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": text, "type": kind, "param": None, "code": code}}

    def response(self) -> web.Response:
        return web.json_response(self.body, status=self.status, headers=self.headers)


class Endpoint:
    """Answers requests while the run is in progress."""

    requests: Requests

    def __init__(
        self, name: str, column: str, values: Mapping[str, str], door: socket.socket, key: str
    ) -> None:
        """`name` is the model's name in requests, and `column` the placeholder that the request fills."""
        self._name, self._column, self._values, self._door, self._key = name, column, values, door, key

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Answer requests while the context is active."""
        app = web.Application(client_max_size=MAX_BYTES, middlewares=[self._refuse])
        app.router.add_post("/v1/chat/completions", self._complete)
        app.add_routes([web.get(path, self._models) for path in ("/v1", "/v1/models")])
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=GRACE)
        await runner.setup()
        try:
            await web.SockSite(runner, self._door, backlog=1024).start()
            yield
        finally:
            await runner.cleanup()

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Check the key, and return errors in OpenAI's format."""
        given = request.headers.get(hdrs.AUTHORIZATION, "").removeprefix("Bearer ").strip()
        try:
            if self._key and not hmac.compare_digest(given.encode(errors="replace"), self._key.encode()):
                raise _Refused(401, "the API key is missing or wrong", "invalid_api_key")
            # Both stop web pages of other sites, which a browser on this machine may show.
            if not self._key and request.url.host not in (self._door.getsockname()[0], "localhost"):
                raise _Refused(403, f"the host {request.url.host} needs a key: start with --client-key")
            if request.method == "POST" and request.content_type != "application/json":
                raise _Refused(415, "the content type must be application/json")
            return await handler(request)
        except _Refused as error:
            return error.response()
        except web.HTTPException as error:
            return _Refused(error.status, f"{request.method} {request.path}: {error.reason}").response()

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": self._name, "object": "model", "created": 0, "owned_by": "camel"}
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            data = await asyncio.wait_for(request.read(), READ_SECONDS)
            fields = msgspec.json.decode(data, type=dict[str, Any])
            body = msgspec.convert(fields, _Body)
            for name, value in fields.items():
                if name not in _IGNORED and value is not None and value != _NEUTRAL.get(name):
                    raise InputError(f"{name} has no effect here: remove it")
            task = body.task()
        except TimeoutError:
            raise _Refused(408, f"the request took more than {READ_SECONDS:.0f} s to arrive") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, InputError) as error:
            raise _Refused(400, f"this request cannot be answered: {error}") from None
        if body.model not in (None, "", self._name):
            raise _Refused(404, f"there is no model {body.model!r}: use {self._name}", "model_not_found")
        values = {**self._values, self._column: task}
        decisive = {name: value for name, value in fields.items() if not name.startswith("stream")}
        encoded = msgspec.json.encode(decisive, order="sorted")
        try:
            item = await self.requests.accept(values, encoded, request.headers.get("Idempotency-Key", ""))
        except KeyReused as error:
            raise _Refused(422, str(error), "idempotency_key_reused") from None
        try:
            sent, again = await self._answer(request, body, item)
        except BaseException:
            self.requests.release(item)
            raise
        if again:
            self.requests.release(item)
        else:
            self.requests.note_delivered(item)
        return sent

    async def _answer(self, request: web.Request, body: _Body, item: int) -> tuple[web.StreamResponse, bool]:
        """Send the reply or the error of a conversation. Also return whether the same request can continue it."""
        sent: web.StreamResponse = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        replying, again = asyncio.ensure_future(self._reply(body, item)), False
        try:
            # Until the conversation ends, a stream has comments, so that the connection stays open.
            while body.stream and not (await asyncio.wait({replying}, timeout=PING))[0]:
                await sent.prepare(request)
                await sent.write(b": in progress\n\n")
            whole = await replying
            if body.stream:
                await sent.prepare(request)
                await _write_events(sent, whole, body)
            else:
                sent = web.json_response(whole)
        except _Refused as error:
            again = error.status == 503
            if sent.prepared:
                await _write_event(sent, error.body)
            else:
                sent = error.response()
        finally:
            replying.cancel()
        await sent.prepare(request)
        await sent.write_eof()
        return sent, again

    async def _reply(self, body: _Body, item: int) -> dict[str, Any]:
        """Return the reply in OpenAI's format."""
        try:
            transcript, totals = await self.requests.reply(item)
        except Unfinished as error:
            text = f"{error}. The same request continues the conversation"
            raise _Refused(503, text, Retry_After="5") from None
        text, stop, usage = reply_text(transcript), transcript.stop or Stop("", ""), usage_of(totals)
        limited = stop.reason == "token_limit"
        if limited and not transcript.messages:
            raise _Refused(400, f"the task is too long: {stop.detail}", "context_length_exceeded")
        if transcript.excluded:
            text = f"the conversation failed: {stop.detail}"
            raise _Refused(500, text, stop.failure or stop.reason, x_should_retry="false")
        for end in [body.stop] if isinstance(body.stop, str) else body.stop or ():
            text = text.partition(end)[0] if end else text
        message = {"role": "assistant", "content": text, "refusal": None}
        ended = "length" if limited else "stop"
        return {
            "id": f"chatcmpl-{transcript.id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._name,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": ended}],
            "usage": {
                "prompt_tokens": usage.prompt,
                "completion_tokens": usage.completion,
                "total_tokens": usage.total,
                "prompt_tokens_details": {"cached_tokens": usage.cached},
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
                **({"cost": totals[MONEY]} if MONEY in totals else {}),
            },
        }


async def _write_events(sent: web.StreamResponse, whole: dict[str, Any], body: _Body) -> None:
    """Write a reply as the events of a stream."""
    usage, choice = whole.pop("usage"), whole.pop("choices")[0]
    whole["object"] = "chat.completion.chunk"
    texts = choice["message"]["content"].splitlines(keepends=True)
    for delta in [{"role": "assistant", "content": ""}, *({"content": text} for text in texts), {}]:
        ended = None if delta else choice["finish_reason"]
        part = {"index": 0, "delta": delta, "finish_reason": ended}
        await _write_event(sent, {**whole, "choices": [part]})
    if (body.stream_options or {}).get("include_usage"):
        await _write_event(sent, {**whole, "choices": [], "usage": usage})
    await sent.write(b"data: [DONE]\n\n")


async def _write_event(sent: web.StreamResponse, data: Mapping[str, Any]) -> None:
    await sent.write(b"data: " + msgspec.json.encode(data) + b"\n\n")


def serve(
    what: Declaration | GenerateConfig | str | Path,
    *,
    model: Model | ModelSpec | str | None = None,
    values: Mapping[str, str] | None = None,
    allow: Sequence[str] = (),
    result: Any = None,
    out: str | Path = "",
    host: str = "127.0.0.1",
    port: int = 0,
    key_variable: str = "",
    concurrency: int = 64,
    budget: Budget = Budget(),  # noqa: B008 - frozen
    ready: Callable[[str, str], None] = lambda url, name: None,
) -> Outcome:
    """Serve a society as an endpoint with the API of OpenAI chat completions, until Ctrl-C.

    `what` is a declaration, a configuration, the path of a TOML file of either, or the name or folder of a scenario. Each
    request is a conversation in the run's folder `out`. Its text is the task, or fills the only placeholder that is not in
    `values`. `allow` lists the tools and the world that a file or scenario may use, like `allow` in `[tools]` of a
    configuration. `key_variable` names the variable with the key that clients must send. `ready` is called with the base URL and
    the model's name in requests. `result` and the other arguments are those of `generate`.
    """
    name = Path(what).stem if isinstance(what, str | Path) else "society"
    place = str(out) or f"runs/served-{name}"
    spec = None if model is None else spec_of(model)
    if isinstance(what, str | Path):
        what = _read(str(what), spec, tuple(allow))
    elif allow:
        raise InputError("allow is for files and scenarios, and this is an object: remove allow")
    wanted = None if result is None else read_settings(result)
    if isinstance(what, GenerateConfig):
        changes: dict[str, Any] = {"inputs": Inputs(source=SOURCE), "counts": {}, "out": place}
        changes |= {"model": spec} if isinstance(spec, ModelSpec) else {}
        config = replace(what, **changes, result=wanted or what.result)
        columns = columns_of(config.loaded_scenario())
        job = Served(Generation(config, spec if isinstance(spec, Model) else None))
    else:
        if not what.placeholders:
            new: Any = what.again if isinstance(what, RolePlaying) else partial(replace, what)  # pyright: ignore
            what = cast("Declaration", new(task="<task>"))
        columns, used = what.placeholders, what.own_model() if spec is None else spec
        job = Served(Dialogues(what, None, used, place, result_settings=wanted))
    left = sorted({*columns} - {*(values or ())})
    if len(left) != 1:
        raise InputError(f"a request fills one placeholder: give values for all but one of {', '.join(left)}")
    key = os.environ.get(key_variable, "") if key_variable else ""
    if key_variable and not key:
        raise InputError(f"no key for clients: export {key_variable}=… first")
    with contextlib.closing(_listen(host, port)) as door:
        address, used_port = door.getsockname()[:2]
        if not key and not ip_address(address).is_loopback:
            raise InputError(f"everyone who can reach {host} could use it: set a key with --client-key")
        options = JobOptions(budget=budget, concurrency=concurrency, resume="the same call")
        launch = Launch(job, options, view := Printed())
        view.every = inf  # only events, and one line at the end
        endpoint = Endpoint(name, left[0], values or {}, door, key)
        endpoint.requests = Requests(job, launch.runner, endpoint.listening)
        url = f"http://{f'[{address}]' if ':' in address else address}:{used_port}/v1"
        ready(url, name)
        return launch.run()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(f"cannot listen on {host} port {port} ({error.strerror}): choose another") from None


def _read(what: str, spec: Model | ModelSpec | None, allow: tuple[str, ...]) -> Declaration | GenerateConfig:
    """Return what a path or the name of a scenario declares."""
    path = Path(what).expanduser()
    if path.suffix == ".toml" and "scenario" in read_table(path):
        config = read_config(path, local=spec is not None)
        own = config.tools or ToolSettings()
        return replace(config, tools=replace(own, allow=(*own.allow, *allow))) if allow else config
    if path.suffix == ".toml" or ((path / SOCIETY_FILE).is_file() and not (path / "scenario.toml").is_file()):
        return allow_tools(load_society(path), allow)
    tools = ToolSettings(allow=allow) if allow else None
    config = GenerateConfig(what, spec if isinstance(spec, ModelSpec) else find_spec(), tools=tools)
    RunTools(config, load(what), option=True)
    return config
