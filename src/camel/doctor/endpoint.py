"""What an endpoint can do, found out by asking it: a few small calls through the client that runs use.

The one decision to know: what an endpoint claims is not asked. A grammar counts as held when an answer that nobody would
give freely comes back in it, a cache when a prompt that was just sent is counted as cached, a stream when it comes in
pieces: servers ignore fields that they do not know, and gateways gather streams.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from camel.core.checks import similar
from camel.core.errors import (
    ContextOverflow,
    DeadlineExceeded,
    InputError,
    MalformedReply,
    ModelError,
    NotAuthorised,
    QuotaExhausted,
    RateLimited,
    ReplyTooLarge,
    RequestRejected,
    ServerFailed,
    Unreachable,
)
from camel.core.history import History
from camel.core.message import Sampling, Usage
from camel.core.model import Event, Expects, Model, Reply, Request, Text
from camel.doctor.finding import CheckResult, State
from camel.doctor.target import CALLS, LONG, MAX_TOKENS, Target
from camel.models.catalogue import find
from camel.models.chat import OPENAI_URL, ChatModel
from camel.models.connect import DEFAULT_MODEL, plugged_model
from camel.models.discovery import BaseUrl, find_replicas
from camel.models.endpoint import proxy_for, served_models
from camel.models.guided import Guide

MOST_REPLICAS = 16
SKEW = 60.0
"""Seconds that a clock may be wrong: signatures of object stores and tokens are refused from some minutes on."""
ROOM = 4096
"""A window below this ends the paper's role plays after a few messages."""
_SESSION = "camel-doctor"

MEND: dict[type[ModelError], str] = {
    Unreachable: "check the base URL (it ends where /chat/completions begins, mostly in /v1), that the server runs and that "
    "nothing between it and you (a proxy, a firewall) is in the way",
    NotAuthorised: "check the key: its variable must hold it whole, and it must be allowed to use this model",
    QuotaExhausted: "add credit to the account, or use another key",
    RateLimited: "wait a minute; if it stays so, give model.rpm and model.tpm in the configuration what the account allows",
    ServerFailed: "look at the server's log; it failed on its own side",
    MalformedReply: "something between you and the model does not speak the OpenAI protocol: is this the URL of its API?",
    ReplyTooLarge: "no chat model writes as much at once: is this the URL of its API, and does it keep to max_tokens?",
    DeadlineExceeded: "the server is too slow or stuck: look at its log and its queue; a model that loads answers later",
    ContextOverflow: "the model's window is too small for a prompt of 1,200 tokens: serve it with a larger one",
    RequestRejected: "the message says what is refused: mostly the model's name, or a base URL that ends elsewhere than /v1",
}


Tell = Callable[[CheckResult], None]


async def examine(target: Target, tell: Tell = lambda finding: None) -> list[CheckResult]:
    """Ask an endpoint what it can do; `tell` hears of each finding as it is made. Costs what `calls_of` says at most."""
    examination = _Examination(target, tell)
    await examination.run()
    return examination.findings


class _Examination:
    """One visit."""

    def __init__(self, target: Target, tell: Tell) -> None:
        self.target = target
        self.findings: list[CheckResult] = []
        self._tell = tell
        self._name = target.name
        self._url = ""
        self._window = target.context_tokens
        self._spent = Usage()

    def note(self, check: str, state: State, says: str, mend: str = "") -> None:
        """Add a finding, with what was used since the last one."""
        finding = CheckResult(check, state, " ".join(says.split()), mend, self._spent)
        self._spent = Usage()
        self.findings.append(finding)
        self._tell(finding)

    async def run(self) -> None:
        """Everything, as far as it can be had."""
        plugged = self._of_plugin()
        model = plugged or (None if self.findings else await self._found())
        if model is None:
            self._skip("there is no endpoint to ask")
            return
        async with model:
            if not await self._answers(model):
                self._skip("no answer came")
                return
            await self._several(model)
            if plugged is None:
                await self._schema()
                await self._grammar()
            await self._caches(model)
            # Last: some servers close the connection after a stream, and a call on it would fail for no fault of theirs.
            await self._streams(model)
        self._skip("a plug-in's model has its own ways")

    def _skip(self, why: str) -> None:
        for check in CALLS:
            if not any(finding.check == check for finding in self.findings):
                self.note(check, "skipped", f"not looked at: {why}")

    # --- before any call -----------------------------------------------------------------------------------------

    def _of_plugin(self) -> Model | None:
        """A plug-in's model, which has no endpoint of its own to be looked at."""
        if self.target.base_url:
            return None
        try:
            return plugged_model(self._name, self._window)
        except InputError as error:
            self.note("model", "error", str(error), "mend or remove the plug-in, or name another model")
            return None

    async def _found(self) -> Model | None:
        """The endpoint, its listing, the key and the window, and a client for it."""
        given = self.target.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        try:
            source = find_replicas(given)
            urls: tuple[str, ...] = source.first or await asyncio.to_thread(source.look)
            self._client(
                base_url=list(urls) or given
            )  # refuses what cannot work: no key for OpenAI, a URL that is none
        except InputError as error:
            if "API key" in str(error):
                mend = "export OPENAI_API_KEY=…, or give --base-url, or --local"
                self.note("key", "error", str(error), mend)
            else:
                self.note("endpoint", "error", str(error), "write it whole, such as http://127.0.0.1:8000/v1")
            return None
        if not urls:
            self.note("endpoint", "error", f"nobody is known behind {given}", "check the name after dns+")
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
            context_tokens=self._window,
            guided=guided,
            deadline=self.target.seconds,
            max_attempts=1,
        )

    async def _listings(self, urls: tuple[str, ...]) -> dict[str, int | None] | None:
        """What is served; None where no endpoint lets itself be asked at all. Chooses the first that does."""
        listing: dict[str, int | None] = {}
        silent: list[str] = []
        for url in urls[:MOST_REPLICAS]:
            try:
                served = await asyncio.to_thread(served_models, url, self.target.api_key)
            except NotAuthorised as error:
                self.note("key", "error", str(error), MEND[NotAuthorised])
                return None
            except ModelError as error:
                if await self._is_above(url):
                    says = f"nothing is served at {url}, but at {url}/v1"
                    self.note("endpoint", "error", says, f"make {url}/v1 the base URL")
                    return None
                silent.append(f"{url}: {error}")
                continue
            self._url = self._url or url
            listing = listing or served
        if self._url:
            rest = f" ({len(urls):,} replicas)" if len(urls) > 1 else ""
            self.note("endpoint", "ok", f"{self._url} answers{rest}")
        for text in silent if self._url else ():
            self.note("endpoint", "warning", f"a replica does not answer: {text}", MEND[Unreachable])
        # One that lists nothing may still answer: the first call will tell.
        self._url = self._url or next(iter(urls))
        return listing

    async def _is_above(self, url: str) -> bool:
        """Whether the API is one step further down: the commonest slip in a base URL."""
        try:
            return not url.endswith("/v1") and bool(
                await asyncio.to_thread(served_models, f"{url}/v1", self.target.api_key)
            )
        except ModelError:
            return False

    def _checked_model(self, listing: dict[str, int | None]) -> None:
        if not self._name and len(listing) == 1:
            self._name = next(iter(listing))
        if not self._name and self._url != OPENAI_URL:
            names = ", ".join(list(listing)[:10]) or "it lists none"
            self.note("model", "error", f"no model is named, and it serves {names}", "name one with --model")
            return
        name = self._name or DEFAULT_MODEL
        if not listing:
            self.note(
                "model", "note", f"{self._url} does not list its models, so {name} is taken on its word"
            )
        elif name in listing:
            self.note("model", "ok", f"{name} is served")
        else:
            # No more than a warning: gateways serve names that they do not list. The first call decides.
            some = ", ".join(list(listing)[:10])
            self.note(
                "model", "warning", f"{name} is not among what it lists{similar(name, listing)}: {some}",
                "name one of them with --model, or as model.name in the configuration",
            )  # fmt: skip

    def _checked_window(self, listing: dict[str, int | None]) -> None:
        name = self._name or DEFAULT_MODEL
        entry = find(name)
        told = listing.get(name) or (entry.context if entry else None)
        counted_on = self.target.context_tokens
        self._window = counted_on or told
        if self._window is None:
            mend = "give it as model.context_tokens in the configuration or --context, or conversations end in errors where they should end as token_limit"
            self.note("context length", "warning", "neither the endpoint nor the catalogue tells it", mend)
        elif counted_on and told and counted_on > told:
            mend = f"lower context_tokens to {told}, or serve the model with a larger window"
            self.note(
                "context length", "error", f"{counted_on:,} tokens are counted on, and it has {told:,}", mend
            )
        elif self._window < ROOM:
            mend = "serve it with a larger window: a role play of 40 messages takes about 9,000 tokens"
            self.note("context length", "warning", f"{self._window:,} tokens are few", mend)
        else:
            self.note("context length", "ok", f"{self._window:,} tokens")

    def _clock(self, there: float | None) -> None:
        if there is None:
            self.note("clock", "skipped", "the endpoint does not say what time it is")
            return
        wrong = time.time() - there
        if abs(wrong) > SKEW:
            way = "ahead of" if wrong > 0 else "behind"
            mend = "set this machine's clock (timedatectl set-ntp true), or the server's: object stores refuse signatures of another time"
            self.note(
                "clock", "warning", f"this machine is {abs(wrong):,.0f} s {way} the endpoint's clock", mend
            )
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
    ) -> Reply:
        history = text if isinstance(text, History) else History()
        if isinstance(text, str):
            history.add("user", text)
        sampling = Sampling(max_tokens=MAX_TOKENS, n=n)
        request = Request(history, sampling, _SESSION, "user", expects, watch, options=3)
        self._spent += Usage(calls=1)  # paid or not, it was sent
        reply = await model.reply(request)
        used = reply.usage
        self._spent += Usage(used.prompt, used.completion, used.cached, 0, used.unknown)
        return reply

    async def _answers(self, model: Model) -> bool:
        try:
            reply = await self._ask(model, "Answer with one word: hello.")
        except ModelError as error:
            self._failed(error)
            return False
        if not any(finding.check == "key" for finding in self.findings):
            self.note("key", "ok", "accepted" if self._has_key() else "none is set, and none is needed")
        says = f"in {reply.latency:.1f} s, by {reply.model or self._name}"
        if reply.usage.unknown:
            mend = (
                "without a count of tokens neither cost nor budgets can be kept: have the server report usage"
            )
            self.note("answer", "warning", f"{says}, without saying how many tokens it took", mend)
        elif not reply.content.strip():
            mend = f"a model that thinks first needs more than {MAX_TOKENS} tokens: leave max_tokens out, or make it large"
            self.note("answer", "warning", f"{says}, and it is empty", mend)
        else:
            self.note("answer", "ok", says)
        return True

    def _has_key(self) -> bool:
        key = os.environ.get("OPENAI_API_KEY", "") if self.target.api_key is None else self.target.api_key
        return bool(key.strip())

    def _failed(self, error: ModelError) -> None:
        mend = next(text for kind, text in MEND.items() if isinstance(error, kind))
        if isinstance(error, NotAuthorised | QuotaExhausted):
            self.note("key", "error", str(error), mend)
            return
        check = "endpoint" if isinstance(error, Unreachable) else "answer"
        self.note(check, "error", f"{type(error).__name__}: {error}", mend)

    async def _tried(self, check: str, call: Any, mend: str) -> Reply | None:
        """The reply to a call; where it fails, a finding."""
        try:
            return await call
        except RequestRejected as error:
            self.note(check, "warning", f"refused: {error}", mend)
        except ModelError as error:
            own = next(text for kind, text in MEND.items() if isinstance(error, kind))
            self.note(check, "warning", f"{type(error).__name__}: {error}", own)
        return None

    async def _streams(self, model: Model) -> None:
        mend = (
            "words appear only when a message is whole; put no gateway that gathers streams before the server"
        )
        pieces: list[str] = []

        def watch(event: Event) -> None:
            if isinstance(event, Text) and event.text:
                pieces.append(event.text)

        call = self._ask(model, "Count from one to twelve in words, separated by spaces.", watch=watch)
        reply = await self._tried("streaming", call, mend)
        if reply is None:
            return
        if len(pieces) < 2 and len(reply.content) > 16:
            self.note("streaming", "warning", "a stream was asked for, and all came at once", mend)
        elif reply.usage.unknown:
            self.note(
                "streaming", "warning", f"{len(pieces)} pieces, without a count of tokens at the end",
                "the server must know stream_options.include_usage, or what camel play costs is not known",
            )  # fmt: skip
        else:
            self.note("streaming", "ok", f"{len(pieces)} pieces")

    async def _several(self, model: Model) -> None:
        mend = "critics will ask for each proposal in a call of its own, and pay for the prompt each time"
        call = self._ask(model, "Name an animal in one word.", n=2)
        reply = await self._tried("several answers", call, mend)
        if reply is None:
            return
        if len(reply.choices) < 2:
            self.note("several answers", "warning", "n = 2 brought one answer", mend)
        else:
            self.note("several answers", "ok", "n = 2 brings two answers in one call")

    async def _schema(self) -> None:
        mend = 'do without guided = "openai": critics are asked in words, and again where they cannot be read'
        needed: State = "error" if self.target.guided == "openai" else "warning"
        async with self._client(guided="openai") as model:
            call = self._ask(model, "Answer with one word: the name of a colour.", expects="choice")
            reply = await self._tried("JSON schema", call, mend)
        if reply is None:
            return
        try:
            msgspec.json.decode(reply.content, type=_Chosen)
        except msgspec.MsgspecError:
            self.note(
                "JSON schema", needed, "response_format was taken, and the answer does not keep to it", mend
            )
        else:
            self.note("JSON schema", "ok", "the answer keeps to response_format")

    async def _grammar(self) -> None:
        wanted = self.target.guided if self.target.guided in ("llama.cpp", "vllm") else None
        if urlsplit(self._url).hostname == "api.openai.com":
            self.note("grammar", "skipped", "OpenAI takes no grammar of ours, and its models need none")
            return
        guides: tuple[Guide, ...] = (wanted,) if wanted else ("llama.cpp", "vllm")
        for guide in guides:
            async with self._client(guided=guide) as model:
                try:
                    reply = await self._ask(model, "Answer with one word: yes or no.", expects="instruction")
                except RequestRejected:
                    continue
                except ModelError as error:
                    mend = next(text for kind, text in MEND.items() if isinstance(error, kind))
                    self.note("grammar", "warning", f"{type(error).__name__}: {error}", mend)
                    return
            if reply.content.lstrip().startswith(("Instruction: ", "<CAMEL_TASK_DONE>")):
                how = "" if wanted else f': guided = "{guide}" can be used'
                self.note("grammar", "ok", f"replies are held to {guide}'s{how}")
                return
        if wanted:
            mend = f'take guided = "{wanted}" out of the configuration, or serve the model with {wanted}'
            self.note("grammar", "error", f'guided = "{wanted}" is counted on, and nothing is held', mend)
            return
        mend = "capable models need none; for a small one use llama.cpp's server or vLLM, and guided"
        self.note("grammar", "note", "replies are not held to a grammar", mend)

    async def _caches(self, model: Model) -> None:
        mend = (
            "the provider decides what it caches: its price list says for which models, its documents from what length; "
            "without it every message pays the full price for all that was said before it, which for 40 messages is about "
            "twenty times the prompt tokens"
            if self.target.price or find(self._name or DEFAULT_MODEL)
            else "on a server of yours switch prefix caching and its report on (vLLM: --enable-prefix-caching "
            "--enable-prompt-tokens-details; SGLang: --enable-cache-report): without it each message computes the whole "
            "conversation again"
        )
        if self._window is not None and self._window < len(LONG) // 3 + 2 * MAX_TOKENS:
            self.note("cache", "skipped", "the window is too small for a prompt worth caching")
            return
        history = History(LONG)
        history.add("user", "What is the number of item 7? Answer with the number.")
        first = await self._tried("cache", self._ask(model, history), mend)
        if first is None:
            return
        history.add("assistant", first.content)
        history.add("user", "And of item 9?")
        again = await self._tried("cache", self._ask(model, history), mend)
        if again is None:
            return
        cached, prompt = again.usage.cached, again.usage.prompt
        if again.usage.unknown or not cached:
            self.note(
                "cache",
                "warning",
                "a prompt that was just sent is not counted as cached when it returns",
                mend,
            )
        else:
            self.note("cache", "ok", f"{cached:,} of {prompt:,} prompt tokens came from the cache")


class _Chosen(msgspec.Struct):
    choice: int


def _date_of(url: str, timeout: float = 10.0) -> float | None:
    """What time an endpoint says it is, by the header of whatever it answers. No key is sent."""
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
