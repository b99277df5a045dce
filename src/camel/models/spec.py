"""Which model, where, and how its endpoints are called: plain data that names the variable of a key, never the key.

The one decision to know: a name says where a model is, and means the same wherever a name is taken. NAME is at the usual
endpoint, NAME@URL at that one; FILE.gguf, `hf:OWNER/REPO[:QUANT]` and `local` are served here, `ollama:NAME` by Ollama.
"""

from __future__ import annotations

import os
import re
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
from camel.models.connect import looked_up, named_at, plugged_model
from camel.models.dialects import find_dialect
from camel.models.discovery import BaseUrl
from camel.models.endpoint import OLLAMA, check_ollama, checked_headers, ollama_url
from camel.models.governor import Rates
from camel.models.guided import Guide
from camel.models.local import LOCAL, LocalServer, Say, ServedModel, to_stderr
from camel.models.prices import FREE, ModelPrice, find
from camel.models.replica import PoolSettings

START = 32
"""Calls in flight at each endpoint when a run begins; half as many more with each round until it refuses one."""
SLOTS, THREADS = 4, 16
"""Of a file that is served here, at most: calls at once, and threads."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_SECRET = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model that is yet to be opened."""

    name: str
    base_url: str | tuple[str, ...] = ""
    """Where it is reached, one address or several; default: OPENAI_BASE_URL."""
    key_variable: str = ""
    """The environment variable that holds the key; default: OPENAI_API_KEY. The key itself is in no file."""
    open_per_replica: int | None = None
    """Conversations open on one replica at a time; by default learned from the cached tokens in replies."""
    rpm: float | None = None
    """Requests per minute to one endpoint."""
    tpm: float | None = None
    """Tokens per minute."""
    deadline: float = 600.0
    """Seconds for one call, its retries included."""
    attempt_timeout: float | None = None
    """Seconds for one attempt; by default half the deadline, so that a call that hangs is tried once more."""
    session_field: str = ""
    """Field of the body that tells a gateway which calls belong together, e.g. `prompt_cache_key`."""
    guided: Guide | None = None
    dialect: str = ""
    """What the endpoint accepts, such as `anthropic` or `vllm`; by default what its host is known for."""
    headers: dict[str, str] = {}
    """Sent with every call; a value that begins with $ is the name of a variable of the environment that holds it."""
    query: dict[str, str] = {}
    """Added to the address of every call, e.g. `{ api-version = "2024-10-21" }`."""
    context_tokens: int | None = None
    price: ModelPrice | None = None
    """Dollars per million tokens, where the catalogue does not know the model."""
    file: str = ""
    """What is served on this machine: a GGUF file's path, `hf:OWNER/REPO[:QUANT]` or `local`. Follows from the name."""
    batch: bool = False
    """Whether it is asked through the provider's batch API: cheaper, and answered within a day."""

    def __post_init__(self) -> None:
        if self.name and not self.base_url and not self.file:
            for field, value in zip(("name", "base_url", "file"), read_name(self.name), strict=True):
                force_setattr(self, field, value)
        if self.key_variable and not _VARIABLE.fullmatch(self.key_variable):
            # Without the value: it may be the key itself.
            raise InputError(
                "model.key_variable is the name of an environment variable, such as OPENAI_API_KEY; a key goes into no file"
            )
        find_dialect(self.name, name=self.dialect)
        for name, value in checked_headers(self.headers).items():
            if _SECRET.search(name) and not value.startswith("$"):
                # Without the value: it may be the secret.
                raise InputError(
                    f'model.headers.{name} looks like a secret, which goes into no file: write "$NAME", and export NAME=…'
                )

    @property
    def window(self) -> int | None:
        """Tokens of its context, where that is known."""
        if self.file and not self.context_tokens:
            return (
                LocalServer.context_tokens if self.file == LOCAL else local.usual_window(self.path or Path())
            )
        entry = find(self.name)
        return self.context_tokens or (entry.context if entry else None)

    @property
    def is_here(self) -> bool:
        """Whether it is this machine's own: other machines of a cluster cannot ask it."""
        return bool(self.file) or (self.name.startswith(OLLAMA) and not self.base_url)

    @property
    def path(self) -> Path | None:
        """The file that is served, where one is named."""
        named = self.file and self.file != LOCAL and not self.file.startswith(hub.HUB)
        return Path(self.file).expanduser().absolute() if named else None

    @property
    def weights(self) -> str:
        """Distinguishes files of the same name; empty for a model of another kind, whose name says which it is."""
        return local.weights_digest(self.path) if self.path and self.path.is_file() else ""

    def api_key(self) -> str | None:
        """The key, from the variable that is named; None where none is."""
        if not self.key_variable:
            return None
        if not os.environ.get(self.key_variable, "").strip():
            raise InputError(f"no API key: export {self.key_variable}=… first; model.key_variable names it")
        return os.environ[self.key_variable]

    def sent_headers(self) -> dict[str, str]:
        """The headers with their secrets, from the variables that are named."""
        return {name: _from_environment(name, value) for name, value in self.headers.items()}

    def variables(self) -> set[str]:
        """The variables of the environment that may hold its secrets."""
        headers = {value[1:] for value in self.headers.values() if value.startswith("$")}
        urls = [self.base_url] if isinstance(self.base_url, str) else self.base_url
        dialect = find_dialect(self.name, [url for url in urls if "://" in url], self.dialect)
        return {self.key_variable, dialect.key, *headers} - {""}

    def cost(self) -> ModelPrice | None:
        """What it costs, where that is known."""
        price = self.price or (FREE if self.is_here else find(self.name))
        return price.batched() if price and self.batch else price

    def pool(self, concurrency: int) -> PoolSettings:
        """How calls are spread over its replicas, with so many in flight at most."""
        return PoolSettings(rates=self.rates(concurrency), open_per_replica=self.open_per_replica)

    def rates(self, concurrency: int) -> Rates:
        """What each of its endpoints may be asked."""
        return Rates(ceiling=concurrency, start=min(concurrency, START), rpm=self.rpm, tpm=self.tpm)

    def open(self, concurrency: int | None = 64, *, max_attempts: int = 6) -> Model:
        """The model, with at most so many calls in flight. Nothing is connected or started before the first call."""
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
            raise InputError(f"{self.name} cannot be asked in batches: they need one base_url and no plug-in")
        if plugged:
            return plugged
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
        return model

    def prepare(self, say: Say = to_stderr) -> None:
        """Have ready what the first call needs, or raise an `InputError` that says what to do. `say` reports a download."""
        if self.file:
            local.check_extra()
            local.check_gguf(self.server(say=say).model_path or local.find_model(say))
        elif self.is_here:
            check_ollama(self.name.removeprefix(OLLAMA))

    def server(self, slots: int = 2, say: Say = to_stderr) -> LocalServer:
        """How its file is served on this machine. One of the hub is downloaded where it is not cached."""
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
        raise InputError(f"export {value[1:]}=… first: model.headers.{header} names it")
    return os.environ[value[1:]].strip()


_SERVED: WeakValueDictionary[Any, ServedModel] = WeakValueDictionary()
"""Equal specs share a model, and so a server."""


def read_name(name: str) -> tuple[str, str, str]:
    """What a model's name says: the name that is recorded, the base URL, and what is served here. Looks nothing up."""
    if name == LOCAL:
        return local.ALIAS, "", LOCAL
    if name.startswith(hub.HUB):
        name = hub.HUB + ":".join(filter(None, hub.read_hub_name(name)))
        return name, "", name
    if name.lower().endswith(".gguf") and "@http" not in name:
        return Path(name).name, "", name
    return *named_at(name), ""


def read_spec(name: str, base_url: BaseUrl = "", **more: Any) -> ModelSpec:
    """The spec of a name. `base_url` is for names that do not say where they are. Looks nothing up."""
    spec = ModelSpec(name, **more)
    # A server of llama.cpp calls its model by a file that it alone has.
    if base_url and not spec.base_url and (not spec.is_here or (spec.path and not spec.path.is_file())):
        return ModelSpec(name, base_url if isinstance(base_url, str) else tuple(base_url), **more)
    return spec


def find_spec(name: str = "", *, base_url: BaseUrl = "", **more: Any) -> ModelSpec:
    """The spec of a name; without one, of what the endpoint serves. The window is looked up where the endpoint tells it."""
    spec = read_spec(name, base_url, **more)
    if spec.file == LOCAL and spec.guided is None:
        return replace(spec, guided="llama.cpp")  # without it, this one keeps no format
    if spec.is_here or (not spec.base_url and plugged_model(name)):
        return spec
    name, url, window = looked_up(spec.name, spec.base_url, spec.context_tokens)
    return replace(spec, name=name, base_url=url, context_tokens=window)


def connect(
    name: str = "",
    *,
    base_url: BaseUrl = "",
    context_tokens: int | None = None,
    guided: Guide | None = None,
    max_attempts: int = 6,
) -> Model:
    """A model by its name: NAME[@URL], FILE.gguf, hf:OWNER/REPO[:QUANT], ollama:NAME or local; else what the endpoint serves."""
    spec = find_spec(name, base_url=base_url, context_tokens=context_tokens, guided=guided)
    spec.prepare()
    return spec.open(None, max_attempts=max_attempts)
