"""An agent: a seat in a conversation and the model that fills it."""

from __future__ import annotations

from dataclasses import dataclass, field

from camel.core.message import Sampling
from camel.core.model import Expects, Model
from camel.core.transcript import Speaker


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

    @property
    def context_tokens(self) -> int | None:
        """The window of its model, where the model knows it."""
        window = getattr(self.model, "context_tokens", None)
        return window if isinstance(window, int) else None

    def described(self) -> Speaker:
        """This seat as the transcript records it."""
        return Speaker(self.name, self.role, self.system, self.opening, self.sampling)
