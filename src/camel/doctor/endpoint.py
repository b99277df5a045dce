"""Checks an endpoint's features with a few small calls, through the same client that runs use.

The one decision to know: features are tested, not looked up. A grammar works if it forces an answer that the model would not
give otherwise, a cache if a repeated prompt is counted as cached, a stream if it arrives in pieces. Servers ignore unknown
fields, and gateways buffer streams.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from camel.core.checks import similar
from camel.core.errors import (
    InputError,
    ModelError,
    NotAuthorized,
    QuotaExhausted,
    RequestRejected,
    Unreachable,
)
from camel.core.history import History
from camel.core.message import Sampling, Usage
from camel.core.model import Event, Expects, Model, Reply, Request, Text
from camel.core.toml import read_table
from camel.doctor.target import CALLS, LONG, MAX_TOKENS, CheckResult, State, Target
from camel.models.chat import ChatModel
from camel.models.connect import DEFAULT_MODEL, chat_of, plugged_model
from camel.models.dialects import OPENAI_URL, default_url
from camel.models.discovery import BaseUrl, find_replicas
from camel.models.endpoint import proxy_for
from camel.models.guided import Guide
from camel.models.prices import find

MOST_REPLICAS = 16
SKEW = 60.0
"""Maximum difference of the clocks in seconds. Object stores reject signatures after a few minutes."""
ROOM = 4096
"""Context window in tokens, below which the paper's role plays end after a few messages."""
_SESSION = "camel-doctor"

_ADVICE = read_table(Path(__file__).with_name("advice.toml"))
_FIXES: dict[str, str] = _ADVICE["errors"]
ADVICE: dict[str, str] = _ADVICE["checks"]
"""What to do if a check fails, by the name of the check."""

Tell = Callable[[CheckResult], None]


class _Seen(NamedTuple):
    """The outcome of one check."""

    state: State
    says: str
    fix: str = ""
    """What to do. If empty, the usual advice for the check."""


async def examine(target: Target, tell: Tell = lambda finding: None) -> list[CheckResult]:
    """Run all checks of an endpoint, and call `tell` with each result as it arrives. Costs at most what `calls_of` returns."""
    examination = _Examination(target, tell)
    await examination.run()
    return examination.findings


class _Examination:
    """The checks of one endpoint, and their results so far."""

    def __init__(self, target: Target, tell: Tell) -> None:
        self.target = target
        self.findings: list[CheckResult] = []
        self._tell = tell
        self._name = target.name
        self._url = ""
        self._window = target.context_tokens
        self._limit = MAX_TOKENS
        self._spent = Usage()

    def note(self, check: str, state: State, says: str, fix: str = "") -> None:
        """Add the result of a check, with the usage since the previous one."""
        finding = CheckResult(check, state, " ".join(says.split()), fix, self._spent, self.target.place)
        self._spent = Usage()
        self.findings.append(finding)
        self._tell(finding)

    async def run(self) -> None:
        """Run all checks that are possible for this endpoint."""
        plugged = self._of_plugin()
        model = plugged or (None if self.findings else await self._found())
        if model is None:
            self._skip("there is no endpoint to ask")
            return
        async with model:
            if not await self._answers(model):
                self._skip("no answer came")
                return
            await self._check("several answers", self._several(model))
            if plugged is None:
                await self._check("JSON schema", self._schema())
                await self._check("grammar", self._grammar())
            await self._check("cache", self._caches(model))
            # Last, because some servers close the connection after a stream, and the next call on it would fail.
            await self._check("streaming", self._streams(model))
        self._skip("this model has no endpoint")

    def _skip(self, why: str) -> None:
        for check in CALLS:
            if not any(finding.check == check for finding in self.findings):
                self.note(check, "skipped", f"not checked: {why}")

    # --- before any call -----------------------------------------------------------------------------------------

    def _of_plugin(self) -> Model | None:
        """Return a program or the model of a plug-in, which have no endpoint to check. Return None for other models."""
        if self.target.base_url:
            return None
        try:
            return plugged_model(self._name, self._window)
        except InputError as error:
            self.note("model", "error", str(error), "fix the command or the plug-in, or choose another model")
            return None

    async def _found(self) -> Model | None:
        """Check the endpoint, its list of models, the key and the context window. Return a client, or None if the
        model cannot be called."""
        usual = default_url(self._name or DEFAULT_MODEL, self.target.dialect)
        given = self.target.base_url or os.environ.get("OPENAI_BASE_URL") or usual
        try:
            source = find_replicas(given)
            urls: tuple[str, ...] = source.first or await asyncio.to_thread(source.look)
            # Raises for a missing key or an invalid URL.
            self._client(base_url=list(urls) or given)
        except InputError as error:
            check = "key" if "API key" in str(error) else "endpoint"
            self.note(check, "error", str(error), ADVICE[check])
            return None
        if not urls:
            self.note("endpoint", "error", f"no replica found behind {given}", "check the name after dns+")
            return None
        listing = await self._listings(urls)
        if listing is None:
            return None
        self._clock(await asyncio.to_thread(_date_of, self._url))
        self._checked_model(listing)
        self._checked_window(listing)
        if any(one.check == "model" and one.state == "error" for one in self.findings):
            return None
        return self._client()

    def _client(self, base_url: BaseUrl = "", guided: Guide | None = None) -> ChatModel:
        return ChatModel(
            self._name or DEFAULT_MODEL,
            base_url=base_url or self._url,
            api_key=self.target.api_key,
            headers=self.target.headers,
            query=self.target.query,
            dialect=self.target.dialect,
            context_tokens=self._window,
            guided=guided,
            deadline=self.target.seconds,
            max_attempts=1,
        )

    async def _listings(self, urls: tuple[str, ...]) -> dict[str, int | None] | None:
        """Return the models listed by the first URL that answers. Return None if the key is rejected or the URL lacks `/v1`."""
        listing: dict[str, int | None] = {}
        silent: list[str] = []
        for url in urls[:MOST_REPLICAS]:
            try:
                served = await asyncio.to_thread(self._client(url).served_models, url)
            except NotAuthorized as error:
                self.note("key", "error", str(error), _FIXES["NotAuthorized"])
                return None
            except ModelError as error:
                if await self._is_above(url):
                    says = f"the API is not at {url}, but at {url}/v1"
                    self.note("endpoint", "error", says, f"use {url}/v1 as the base URL")
                    return None
                silent.append(f"{url}: {error}")
                continue
            self._url = self._url or url
            listing = listing or served
        if self._url:
            rest = f" ({len(urls):,} replicas)" if len(urls) > 1 else ""
            self.note("endpoint", "ok", f"{self._url} answers{rest}")
        for text in silent if self._url else ():
            self.note("endpoint", "warning", f"a replica does not answer: {text}", _FIXES["Unreachable"])
        # An endpoint without a list may still answer; the first call will show it.
        self._url = self._url or next(iter(urls))
        return listing

    async def _is_above(self, url: str) -> bool:
        """Return whether the API is at URL/v1, the most common mistake in a base URL."""
        if url.endswith("/v1"):
            return False
        try:
            return bool(await asyncio.to_thread(self._client(url).served_models, f"{url}/v1"))
        except ModelError:
            return False

    def _checked_model(self, listing: dict[str, int | None]) -> None:
        if not self._name and len(listing) == 1:
            self._name = next(iter(listing))
        if not self._name and self._url != OPENAI_URL:
            names = ", ".join(list(listing)[:10]) or "it lists none"
            self.note(
                "model", "error", f"no model is chosen, and it serves {names}", "choose one with --model"
            )
            return
        name = self._name or DEFAULT_MODEL
        if not listing:
            says = f"{self._url} does not list its models, so {name} is not verified"
            self.note("model", "note", says)
        elif name in listing:
            self.note("model", "ok", f"{name} is served")
        else:
            # Only a warning: gateways may serve names that they do not list. The first call decides.
            says = f"{name} is not in its list{similar(name, listing)}: {', '.join(list(listing)[:10])}"
            fix = "choose one of them with --model, or as model.name in the configuration"
            self.note("model", "warning", says, fix)

    def _checked_window(self, listing: dict[str, int | None]) -> None:
        name = self._name or DEFAULT_MODEL
        entry = find(name)
        told = listing.get(name) or (entry.context if entry else None)
        counted_on = self.target.context_tokens
        self._window = counted_on or told
        if self._window is None:
            says = "unknown to the endpoint and to the catalog"
            self.note("context length", "warning", says, ADVICE["context length"])
        elif counted_on and told and counted_on > told:
            says = f"{counted_on:,} tokens are configured, but it has {told:,}"
            fix = f"lower context_tokens to {told}, or serve the model with a larger window"
            self.note("context length", "error", says, fix)
        elif self._window < ROOM:
            fix = "serve it with a larger window: a role play of 40 messages takes about 9,000 tokens"
            self.note("context length", "warning", f"only {self._window:,} tokens", fix)
        else:
            self.note("context length", "ok", f"{self._window:,} tokens")

    def _clock(self, there: float | None) -> None:
        if there is None:
            self.note("clock", "skipped", "the endpoint sends no date")
            return
        wrong = time.time() - there
        if abs(wrong) > SKEW:
            says = f"this machine is {abs(wrong):,.0f} s {'ahead of' if wrong > 0 else 'behind'} the endpoint's clock"
            self.note("clock", "warning", says, ADVICE["clock"])
        else:
            self.note("clock", "ok", f"within {max(1.0, abs(wrong)):.0f} s of the endpoint's")

    # --- by calls ------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        model: Model,
        text: str | History,
        *,
        n: int = 1,
        expects: Expects | None = None,
        watch: Callable[[Event], None] | None = None,
        sampling: Sampling | None = None,
    ) -> Reply:
        history = text if isinstance(text, History) else History()
        if isinstance(text, str):
            history.add("user", text)
        sampling = sampling or Sampling(max_tokens=self._limit, n=n)
        request = Request(history, sampling, _SESSION, "user", expects, watch, options=3)
        self._spent += Usage(calls=1)  # count it even if it fails
        reply = await model.reply(request)
        used = reply.usage
        self._spent += Usage(used.prompt, used.completion, used.cached, 0, used.unknown)
        return reply

    async def _check(self, check: str, look: Awaitable[_Seen]) -> None:
        """Run a check and record its result. A failed call becomes a warning."""
        advice = ADVICE[check]
        if check == "cache" and (self.target.price or find(self._name or DEFAULT_MODEL)):
            advice = ADVICE["cache of a provider"]
        try:
            state, says, fix = await look
        except RequestRejected as error:
            self.note(check, "warning", f"rejected: {error}", advice)
        except ModelError as error:
            self.note(check, "warning", f"{type(error).__name__}: {error}", _fix_of(error))
        else:
            self.note(check, state, says, fix or ("" if state in ("ok", "skipped") else advice))

    async def _answers(self, model: Model) -> bool:
        try:
            reply = await self._ask(model, "Answer with one word: hello.", sampling=self.target.sampling)
        except (NotAuthorized, QuotaExhausted) as error:
            self.note("key", "error", str(error), _fix_of(error))
            return False
        except ModelError as error:
            check = "endpoint" if isinstance(error, Unreachable) else "answer"
            self.note(check, "error", f"{type(error).__name__}: {error}", _fix_of(error))
            return False
        if not any(finding.check == "key" for finding in self.findings):
            given = os.environ.get("OPENAI_API_KEY") if self.target.api_key is None else self.target.api_key
            given = given or self.target.headers
            self.note("key", "ok", "accepted" if given else "none is set or needed")
        says, state, fix = f"in {reply.latency:.1f} s, by {reply.model or self._name}", "ok", ""
        if reply.usage.unknown:
            says, state = f"{says}, without token counts", "warning"
            fix = "without token counts there are no costs and budgets: let the server report usage"
        elif not reply.content.strip():
            says, state = f"{says}, but it is empty", "warning"
            fix = f"a reasoning model needs more than {MAX_TOKENS} tokens: omit max_tokens, or raise it"
        self.note("answer", state, says, fix)
        self._checked_settings(model, reply)
        return True

    def _checked_settings(self, model: Model, reply: Reply) -> None:
        """Check the run's own sampling settings, whether the model uses reasoning, and whether its price is known."""
        if reply.usage.reasoning or reply.choices[0].reasoning:
            self._limit = 16 * MAX_TOKENS
            shown = "visible" if reply.choices[0].reasoning else "hidden"
            says = f"the model uses {shown} reasoning: {reply.usage.reasoning or 'uncounted'} tokens"
            self.note("thinking", "note", says)
        else:
            self.note("thinking", "ok", "no reasoning seen")
        chat = chat_of(model)
        if self.target.sampling is not None and chat is not None:
            sent = msgspec.to_builtins(self.target.sampling)
            if adjusted := chat.wire.adjustments:
                self.note("settings", "note", f"adjusted: {'; '.join(adjusted)}")
            else:
                self.note("settings", "ok", f"accepted: {', '.join(sent) or 'only the model is set'}")
        price = self.target.price or find(self._name or DEFAULT_MODEL)
        if price is None:
            says = "unknown, so a budget in dollars is not possible"
            self.note("price", "warning", says, ADVICE["price"])
        else:
            self.note(
                "price", "ok", f"{price.input:g} and {price.output:g} dollars per million tokens in and out"
            )

    async def _streams(self, model: Model) -> _Seen:
        pieces: list[str] = []

        def watch(event: Event) -> None:
            if isinstance(event, Text) and event.text:
                pieces.append(event.text)

        question = "Count from one to twelve in words, separated by spaces."
        reply = await self._ask(model, question, watch=watch)
        if len(pieces) < 2 and len(reply.content) > 16:
            return _Seen("warning", "a stream was requested, but the reply came as one piece")
        if reply.usage.unknown:
            fix = "the server must support stream_options.include_usage; otherwise the cost of camel play is unknown"
            return _Seen("warning", f"{len(pieces)} pieces, without token counts at the end", fix)
        return _Seen("ok", f"{len(pieces)} pieces")

    async def _several(self, model: Model) -> _Seen:
        reply = await self._ask(model, "Name an animal in one word.", n=2)
        if len(reply.choices) < 2:
            return _Seen("warning", "n = 2 returned one answer")
        return _Seen("ok", "n = 2 returns two answers in one call")

    async def _schema(self) -> _Seen:
        async with self._client(guided="openai") as model:
            reply = await self._ask(model, "Answer with one word: the name of a color.", expects="choice")
        try:
            msgspec.json.decode(reply.content, type=_Chosen)
        except msgspec.MsgspecError:
            says = "response_format was accepted, but the answer does not follow it"
            return _Seen("error" if self.target.guided == "openai" else "warning", says)
        return _Seen("ok", "the answer follows response_format")

    async def _grammar(self) -> _Seen:
        wanted = self.target.guided if self.target.guided in ("llama.cpp", "vllm") else None
        if urlsplit(self._url).hostname == "api.openai.com":
            return _Seen("skipped", "OpenAI supports no grammars, and its models need none")
        guides: tuple[Guide, ...] = (wanted,) if wanted else ("llama.cpp", "vllm")
        for guide in guides:
            async with self._client(guided=guide) as model:
                try:
                    reply = await self._ask(model, "Answer with one word: yes or no.", expects="instruction")
                except RequestRejected:
                    continue
            if reply.content.lstrip().startswith(("Instruction: ", "<CAMEL_TASK_DONE>")):
                how = "" if wanted else f': guided = "{guide}" can be used'
                return _Seen("ok", f"{guide}'s grammar constrains replies{how}")
        if wanted:
            fix = f'remove guided = "{wanted}" from the configuration, or serve the model with {wanted}'
            return _Seen("error", f'guided = "{wanted}" is configured, but replies are not constrained', fix)
        return _Seen("note", "no grammar constrains replies")

    async def _caches(self, model: Model) -> _Seen:
        if self._window is not None and self._window < len(LONG) // 3 + 2 * MAX_TOKENS:
            return _Seen("skipped", "the context window is too small for a test of the cache")
        history = History(LONG)
        history.add("user", "What is the number of item 7? Answer with the number.")
        first = await self._ask(model, history)
        history.add("assistant", first.content)
        history.add("user", "And of item 9?")
        used = (await self._ask(model, history)).usage
        if used.unknown or not used.cached:
            return _Seen("warning", "a repeated prompt is not counted as cached")
        return _Seen("ok", f"{used.cached:,} of {used.prompt:,} prompt tokens came from the cache")


def _fix_of(error: ModelError) -> str:
    return next(_FIXES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _FIXES)


class _Chosen(msgspec.Struct):
    choice: int


def _date_of(url: str, timeout: float = 10.0) -> float | None:
    """Return the endpoint's time from the header of any response. No key is sent."""
    proxy = proxy_for(url)
    proxies = urllib.request.ProxyHandler({urlsplit(url).scheme: proxy} if proxy else {})
    try:
        with urllib.request.build_opener(proxies).open(f"{url}/models", timeout=timeout) as response:
            date = response.headers.get("Date")
    except urllib.error.HTTPError as error:
        date = error.headers.get("Date")
        error.close()
    except (OSError, ValueError):
        return None
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, TypeError, OverflowError):
        return None
