"""Which model, where, and how its endpoints are called: plain data that names the variable of a key, never the key."""

from __future__ import annotations

import os
import re

import msgspec

from camel.core.errors import InputError
from camel.core.model import Model
from camel.models.chat import ChatModel
from camel.models.connect import looked_up, plugged_model
from camel.models.dialects import find_dialect
from camel.models.endpoint import checked_headers
from camel.models.governor import Rates
from camel.models.guided import Guide
from camel.models.prices import ModelPrice, find
from camel.models.replica import PoolSettings

START = 32
"""Calls in flight at each endpoint when a run begins; half as many more with each round until it refuses one."""
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

    def __post_init__(self) -> None:
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
        entry = find(self.name)
        return self.context_tokens or (entry.context if entry else None)

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
        return self.price or find(self.name)

    def pool(self, concurrency: int) -> PoolSettings:
        """How calls are spread over its replicas, with so many in flight at most."""
        return PoolSettings(rates=self.rates(concurrency), open_per_replica=self.open_per_replica)

    def rates(self, concurrency: int) -> Rates:
        """What each of its endpoints may be asked."""
        return Rates(ceiling=concurrency, start=min(concurrency, START), rpm=self.rpm, tpm=self.tpm)

    def open(self, concurrency: int = 64) -> Model:
        """The model behind its endpoints. Nothing is connected before the first call."""
        if not self.base_url and (plugged := plugged_model(self.name, self.context_tokens)):
            return plugged
        return ChatModel(
            self.name,
            base_url=self.base_url or None,
            api_key=self.api_key(),
            headers=self.sent_headers(),
            query=self.query,
            dialect=self.dialect,
            context_tokens=self.context_tokens,
            guided=self.guided,
            deadline=self.deadline,
            attempt_timeout=self.attempt_timeout or self.deadline / 2,
            pool=self.pool(concurrency),
            session_field=self.session_field,
        )


def _from_environment(header: str, value: str) -> str:
    if not value.startswith("$"):
        return value
    if not os.environ.get(value[1:], "").strip():
        raise InputError(f"export {value[1:]}=… first: model.headers.{header} names it")
    return os.environ[value[1:]].strip()


def find_spec(name: str = "", *, base_url: str = "", guided: Guide | None = None) -> ModelSpec:
    """A model by name, or the one that the endpoint serves; its window is looked up where the endpoint tells it."""
    if not base_url and plugged_model(name):
        return ModelSpec(name)
    found = looked_up(name, base_url)
    url = found.base_url if isinstance(found.base_url, str) else tuple(found.base_url)
    return ModelSpec(found.name, url, guided=guided, context_tokens=found.context_tokens)
