"""Model specifications: which model, where it is, and how it is called. Plain data with the name of a key's variable, never the key.

The one decision to know: a name also says where a model is, and means the same in every command. NAME is at the default
endpoint, NAME@URL at that URL; FILE.gguf, `hf:OWNER/REPO[:QUANT]` and `local` run here, `ollama:NAME` in Ollama.
`command:…` is a program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import force_setattr, replace

from camel.core.errors import InputError
from camel.core.model import Model
from camel.models import hub, local
from camel.models.chat import ChatModel
from camel.models.command import COMMAND, CommandModel
from camel.models.connect import look_up_model, plugged_model, split_name
from camel.models.dialects import default_url, find_dialect
from camel.models.discovery import BaseUrl, find_replicas
from camel.models.endpoint import OLLAMA, check_ollama, checked_headers, ollama_url
from camel.models.governor import Rates
from camel.models.guided import Guide
from camel.models.local import LOCAL, LocalServer, Say, ServedModel, to_stderr
from camel.models.prices import FREE, ModelPrice, find
from camel.models.replica import PoolSettings
from camel.models.trust import check_host

START = 32
"""Calls in flight per endpoint at the start of a run; grows by half with each round until the first refusal."""
SLOTS, THREADS = 4, 16
"""Maximum number of concurrent calls and of threads for a model file on this machine."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_SECRET = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The specification of a model."""

    name: str
    base_url: str | tuple[str, ...] = ""
    """Base URL, one or several. Default: OPENAI_BASE_URL."""
    key_variable: str = ""
    """The environment variable with the API key. Default: OPENAI_API_KEY. The key itself is never stored."""
    open_per_replica: int | None = None
    """Maximum number of open conversations per replica. Default: learned from the cached tokens in replies."""
    rpm: float | None = None
    """Requests per minute and endpoint."""
    tpm: float | None = None
    """Tokens per minute and endpoint."""
    deadline: float = 600.0
    """Deadline of a call in seconds, retries included."""
    attempt_timeout: float | None = None
    """Timeout of one attempt in seconds. Default: half the deadline, so that a hanging call is retried once."""
    session_field: str = ""
    """Field of the request body by which a gateway groups calls, e.g. `prompt_cache_key`."""
    guided: Guide | None = None
    dialect: str = ""
    """The endpoint's dialect, such as `anthropic` or `vllm`. Default: by its host."""
    headers: dict[str, str] = {}
    """Headers of every call. A value that begins with $ is the name of an environment variable."""
    query: dict[str, str] = {}
    """Query parameters of every call, e.g. `{ api-version = "2024-10-21" }`."""
    context_tokens: int | None = None
    price: ModelPrice | None = None
    """Dollars per million tokens, if the model is not in the catalog."""
    file: str = ""
    """The model to serve on this machine: a GGUF file's path, `hf:OWNER/REPO[:QUANT]` or `local`. Follows from the name."""
    batch: bool = False
    """Whether to use the provider's batch API: cheaper, with replies within a day."""
    trusted: tuple[str, ...] | None = None
    """For a spec from a file: hosts that may get secrets. Set by the reader. None: the caller chose the endpoint."""

    def __post_init__(self) -> None:
        if self.name and not self.base_url and not self.file:
            for field, value in zip(("name", "base_url", "file"), read_name(self.name), strict=True):
                force_setattr(self, field, value)
        if self.key_variable and not _VARIABLE.fullmatch(self.key_variable):
            # Do not show the value: it may be the key itself.
            raise InputError(
                "model.key_variable must be the name of an environment variable, such as OPENAI_API_KEY, not the key itself"
            )
        find_dialect(self.name, name=self.dialect)
        for name, value in checked_headers(self.headers).items():
            if _SECRET.search(name) and not value.startswith("$"):
                # Do not show the value: it may be the secret.
                raise InputError(f'model.headers.{name} looks like a secret: write "$NAME" and export NAME=…')

    @property
    def window(self) -> int | None:
        """The model's context window in tokens, if known."""
        if self.file and not self.context_tokens:
            return (
                LocalServer.context_tokens if self.file == LOCAL else local.usual_window(self.path or Path())
            )
        entry = find(self.name)
        return self.context_tokens or (entry.context if entry else None)

    @property
    def is_here(self) -> bool:
        """Whether the model runs on this machine only, so that other machines of a cluster cannot call it."""
        return bool(self.file) or (self.name.startswith((OLLAMA, COMMAND)) and not self.base_url)

    @property
    def command(self) -> str:
        """The command of the program that answers, if the model is one."""
        return self.name.removeprefix(COMMAND) if self.is_here and self.name.startswith(COMMAND) else ""

    @property
    def path(self) -> Path | None:
        """The path of the model's file, if the model is a file."""
        named = self.file and self.file != LOCAL and not self.file.startswith(hub.HUB)
        return Path(self.file).expanduser().absolute() if named else None

    @property
    def weights(self) -> str:
        """A fingerprint that distinguishes files of the same name; empty for other kinds of models."""
        return local.weights_digest(self.path) if self.path and self.path.is_file() else ""

    def api_key(self) -> str | None:
        """Return the key in the environment variable `key_variable`, or None if no variable is named. Raises an `InputError` if
        the variable is empty or missing."""
        if not self.key_variable:
            return None
        if not os.environ.get(self.key_variable, "").strip():
            raise InputError(f"no API key: export {self.key_variable}=… first (model.key_variable)")
        return os.environ[self.key_variable]

    def sent_headers(self) -> dict[str, str]:
        """Return the headers with the values of their environment variables."""
        return {name: _from_environment(name, value) for name, value in self.headers.items()}

    def check_hosts(self, urls: Sequence[str] = ()) -> None:
        """Raise an `InputError` if a file names a host that may not get the key. `urls` are the replicas in a list."""
        if (
            self.trusted is None
            or self.is_here
            or not (self.base_url or not os.environ.get("OPENAI_BASE_URL"))
        ):
            return
        source = find_replicas(self.base_url or default_url(self.name, self.dialect))
        urls = urls or source.first or [str(self.base_url)]
        key = self.key_variable or find_dialect(self.name, urls, self.dialect).key_variable()
        named = {key, *(value[1:] for value in self.headers.values() if value.startswith("$"))}
        for url in urls:
            check_host(url, [name for name in named if os.environ.get(name)], self.trusted)

    def variables(self) -> set[str]:
        """Return the names of environment variables that may contain the model's secrets."""
        headers = {value[1:] for value in self.headers.values() if value.startswith("$")}
        urls = [self.base_url] if isinstance(self.base_url, str) else self.base_url
        dialect = find_dialect(self.name, [url for url in urls if "://" in url], self.dialect)
        return {self.key_variable, dialect.key, *headers} - {""}

    def cost(self) -> ModelPrice | None:
        """Return the model's price, or None if it is unknown."""
        own = None if self.command else FREE  # a program may call a model that costs something
        price = self.price or (own if self.is_here else find(self.name))
        return price.batched() if price and self.batch else price

    def pool(self, concurrency: int) -> PoolSettings:
        """Return the pool settings for at most `concurrency` calls in flight."""
        return PoolSettings(rates=self.rates(concurrency), open_per_replica=self.open_per_replica)

    def rates(self, concurrency: int) -> Rates:
        """Return the limits of each of the model's endpoints."""
        return Rates(ceiling=concurrency, start=min(concurrency, START), rpm=self.rpm, tpm=self.tpm)

    def open(self, concurrency: int | None = 64, *, max_attempts: int = 6) -> Model:
        """Return the model, with at most `concurrency` calls in flight. It connects or starts its server at the first call."""
        if self.command:
            return CommandModel(self.command, self.context_tokens, self.deadline)
        most = min(concurrency or 2, SLOTS) if self.file else concurrency
        client: dict[str, Any] = {
            "guided": self.guided,
            "deadline": self.deadline,
            "attempt_timeout": self.attempt_timeout or self.deadline / 2,
            "max_attempts": max_attempts,
            "pool": self.pool(most) if most else None,
        }
        if self.file:
            made = ServedModel(self.name, partial(self.server, most or 1), self.window or 0, **client)
            return _SERVED.setdefault((msgspec.json.encode(self), most, max_attempts), made)
        plugged = None if self.base_url else plugged_model(self.name, self.context_tokens)
        if self.batch and (plugged or not isinstance(self.base_url, str)):
            raise InputError(
                f"'{self.name}' cannot use a batch API: it needs exactly one base_url, and plug-in models have none"
            )
        if plugged:
            return plugged
        self.check_hosts()
        model = ChatModel(
            self.name.removeprefix(OLLAMA) if self.is_here else self.name,
            base_url=ollama_url() if self.is_here else self.base_url or None,
            api_key=(self.api_key() or "") if self.is_here else self.api_key(),
            headers=self.sent_headers(),
            query=self.query,
            dialect=self.dialect,
            context_tokens=self.context_tokens,
            session_field=self.session_field,
            **client,
        )
        model.name = self.name
        model.pool.source.check = self.check_hosts
        return model

    def prepare(self, say: Say = to_stderr) -> None:
        """Check that the first call can be made, and download the model if needed. Raise an `InputError` with advice if not."""
        if self.file:
            local.check_extra()
            local.check_gguf(self.server(say=say).model_path or local.find_model(say))
        elif self.command:
            self.open()
        elif self.is_here:
            check_ollama(self.name.removeprefix(OLLAMA))

    def server(self, slots: int = 2, say: Say = to_stderr) -> LocalServer:
        """Return the settings of the model's server on this machine. Download a model of the hub if it is not cached."""
        if self.file == LOCAL:
            return LocalServer(parallel=slots, context_tokens=self.window or local.WINDOW)
        name, path = (self.name, self.path) if self.path else hub.fetch(self.file, say)
        window, threads = self.context_tokens or local.usual_window(path), local.default_threads(THREADS)
        return LocalServer(
            model_path=path, alias=name, parallel=slots, threads=threads, context_tokens=window
        )


def _from_environment(header: str, value: str) -> str:
    if not value.startswith("$"):
        return value
    if not os.environ.get(value[1:], "").strip():
        raise InputError(f"model.headers.{header} needs a variable: export {value[1:]}=… first")
    return os.environ[value[1:]].strip()


_SERVED: WeakValueDictionary[Any, ServedModel] = WeakValueDictionary()
"""Equal specs share a model, and so a server."""


def read_name(name: str) -> tuple[str, str, str]:
    """Parse a model's name: return the recorded name, the base URL, and the file to serve here. Makes no requests."""
    if name == LOCAL:
        return local.ALIAS, "", LOCAL
    if name.startswith(hub.HUB):
        name = hub.HUB + ":".join(filter(None, hub.read_hub_name(name)))
        return name, "", name
    if name.startswith(COMMAND):
        return name, "", ""
    if name.lower().endswith(".gguf") and "@http" not in name:
        return Path(name).name, "", name
    return *split_name(name), ""


def read_spec(name: str, base_url: BaseUrl = "", **more: Any) -> ModelSpec:
    """Return the spec of a name. `base_url` applies to names without a location. Makes no requests."""
    spec = ModelSpec(name, **more)
    # A llama.cpp server may use a path on its own disk as the model's name.
    if base_url and not spec.base_url and (not spec.is_here or (spec.path and not spec.path.is_file())):
        return ModelSpec(name, base_url if isinstance(base_url, str) else tuple(base_url), **more)
    return spec


def find_spec(name: str = "", *, base_url: BaseUrl = "", **more: Any) -> ModelSpec:
    """Return the spec of a name, or of the endpoint's only model if `name` is empty. Asks the endpoint for the context
    window. `trusted` is for a name and URL from a file."""
    spec = read_spec(name, base_url, **more)
    if spec.file == LOCAL and spec.guided is None:
        return replace(spec, guided="llama.cpp")  # without a grammar, this model does not keep the format
    if spec.is_here or (not spec.base_url and plugged_model(name)):
        return spec
    spec.check_hosts()
    name, url, window = look_up_model(spec.name, spec.base_url, spec.context_tokens)
    return replace(spec, name=name, base_url=url, context_tokens=window)


def spec_of(model: Model | ModelSpec | str) -> Model | ModelSpec:
    """Return a model or a spec as it is, and the spec of a name."""
    return find_spec(model) if isinstance(model, str) else model


def connect(
    name: str = "",
    *,
    base_url: BaseUrl = "",
    context_tokens: int | None = None,
    guided: Guide | None = None,
    max_attempts: int = 6,
) -> Model:
    """Return a model by name: NAME[@URL], FILE.gguf, hf:OWNER/REPO[:QUANT], ollama:NAME, local, command:PROGRAM; else the only one."""
    spec = find_spec(name, base_url=base_url, context_tokens=context_tokens, guided=guided)
    spec.prepare()
    return spec.open(None, max_attempts=max_attempts)
