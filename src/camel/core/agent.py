"""An agent: a seat in a conversation and the model that fills it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from camel.core.errors import InputError, shown
from camel.core.history import History
from camel.core.message import Sampling
from camel.core.model import Expects, Model, Reply, Request, checked_model
from camel.core.transcript import Speaker

if TYPE_CHECKING:
    from camel.core.conversation import Conversation


class Critic(Protocol):
    """Stands between a speaker and the others, and decides what the speaker says.

    Calls that are open at the same time must be begun in an order that does not depend on timing, and all be awaited
    before others are begun: that is how a journal knows them again.
    """

    async def reply(self, conversation: Conversation, agent: Agent, request: Request) -> Reply:
        """What `agent` says next, with how that was found; the usage is that of every call made for it."""
        ...


@dataclass(frozen=True, slots=True)
class Agent:
    """Who sits where, and how they are prompted. Holds no state: what was heard lives in the conversation."""

    name: str
    """Unique in its conversation; rules and transcripts refer to it."""
    role: str
    model: Model
    system: str = ""
    opening: str = ""
    """What the agent hears before anybody has spoken; only the first speaker needs it."""
    sampling: Sampling = field(default_factory=Sampling)
    expects: Expects | None = None
    """The shape its replies should have, for endpoints that can hold it to one."""
    critic: Critic | None = None
    """Who chooses what it says; None leaves it to the model."""

    def __post_init__(self) -> None:
        name: Any = self.name
        sampling: Any = self.sampling
        if not isinstance(name, str) or not name:
            raise InputError(f"an agent's name must be text, not {shown(name)}")
        if not isinstance(sampling, Sampling):
            raise InputError(f"sampling must be a Sampling, not {shown(sampling)}")
        for field_name in ("role", "system", "opening"):
            if not isinstance(getattr(self, field_name), str):
                raise InputError(
                    f"an agent's {field_name} must be text, not {shown(getattr(self, field_name))}"
                )
        checked_model(self.model)
        if self.critic is not None and (
            isinstance(self.critic, type) or not callable(getattr(self.critic, "reply", None))
        ):
            raise InputError(
                f"critic must be an object with an async method reply(conversation, agent, request), not "
                f"{shown(self.critic)}"
            )

    @property
    def context_tokens(self) -> int | None:
        """The window of its model, where the model knows it."""
        window = getattr(self.model, "context_tokens", None)
        return window if isinstance(window, int) else None

    def without_critic(self) -> Agent:
        """The same agent, saying what first comes to its mind; in a person's place the model beside them, if there is one."""
        stand_in: Model | None = getattr(self.model, "stand_in", None)
        if self.critic is None and stand_in is None:
            return self
        return replace(self, critic=None, model=stand_in or self.model)

    def opened(self) -> History:
        """What it has heard before anybody has spoken."""
        history = History(self.system)
        if self.opening:
            history.add("user", self.opening)
        return history

    def described(self) -> Speaker:
        """This seat as the transcript records it."""
        return Speaker(self.name, self.role, self.system, self.opening, self.sampling)
