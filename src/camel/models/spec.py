"""Which model, where, and how its endpoints are called: plain data that names the variable of a key, never the key."""

from __future__ import annotations

import os
import re

import msgspec

from camel.core.errors import InputError
from camel.core.model import Model
from camel.models.chat import ChatModel
from camel.models.connect import looked_up, plugged_model
from camel.models.governor import Rates
from camel.models.guided import Guide
from camel.models.prices import ModelPrice, find
from camel.models.replica import PoolSettings

START = 32
"""Calls in flight at each endpoint when a run begins; half as many more with each round until it refuses one."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


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
    context_tokens: int | None = None
    price: ModelPrice | None = None
    """Dollars per million tokens, where the catalogue does not know the model."""
    batch: bool = False
    """Whether it is asked through the provider's batch API: cheaper, and answered within a day."""

    def __post_init__(self) -> None:
        if self.key_variable and not _VARIABLE.fullmatch(self.key_variable):
            # Without the value: it may be the key itself.
            raise InputError(
                "model.key_variable is the name of an environment variable, such as OPENAI_API_KEY; a key goes into no file"
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

    def cost(self) -> ModelPrice | None:
        """What it costs, where that is known."""
        price = self.price or find(self.name)
        return price.batched() if price and self.batch else price

    def pool(self, concurrency: int) -> PoolSettings:
        """How calls are spread over its replicas, with so many in flight at most."""
        return PoolSettings(rates=self.rates(concurrency), open_per_replica=self.open_per_replica)

    def rates(self, concurrency: int) -> Rates:
        """What each of its endpoints may be asked."""
        return Rates(ceiling=concurrency, start=min(concurrency, START), rpm=self.rpm, tpm=self.tpm)

    def open(self, concurrency: int = 64) -> Model:
        """The model behind its endpoints. Nothing is connected before the first call."""
        plugged = None if self.base_url else plugged_model(self.name, self.context_tokens)
        if self.batch and (plugged or not isinstance(self.base_url, str)):
            raise InputError(f"{self.name} cannot be asked in batches: they need one base_url and no plug-in")
        if plugged:
            return plugged
        return ChatModel(
            self.name,
            base_url=self.base_url or None,
            api_key=self.api_key(),
            context_tokens=self.context_tokens,
            guided=self.guided,
            deadline=self.deadline,
            attempt_timeout=self.attempt_timeout or self.deadline / 2,
            pool=self.pool(concurrency),
            session_field=self.session_field,
        )


def find_spec(
    name: str = "", *, base_url: str = "", guided: Guide | None = None, batch: bool = False
) -> ModelSpec:
    """A model by name, or the one that the endpoint serves; its window is looked up where the endpoint tells it."""
    if not base_url and plugged_model(name):
        return ModelSpec(name, batch=batch)
    found = looked_up(name, base_url)
    url = found.base_url if isinstance(found.base_url, str) else tuple(found.base_url)
    return ModelSpec(found.name, url, guided=guided, context_tokens=found.context_tokens, batch=batch)
