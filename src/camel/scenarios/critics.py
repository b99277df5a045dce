"""`[critic]`: the declaration of a critic in a scenario or a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from camel.core.conversation import Critic
from camel.core.critic import PROPOSALS, TEMPERATURE, BestOf, Fallback
from camel.core.errors import CamelError, InputError
from camel.core.judge import Mode, ModelJudge
from camel.core.message import Sampling
from camel.core.model import Model, Reply, Request
from camel.core.plugins import Plugin, Registry
from camel.core.role_playing import ASSISTANT, USER
from camel.core.search import Beam, BestFirst, TreeSearch

Seat = Literal["assistant", "user"]
SEARCHES = {"beam": Beam, "best_first": BestFirst}


def _plugged(plugin: Plugin, part: Any) -> Callable[..., Critic]:
    """Return a factory of a plug-in's critics. It takes the model, the sampling and the options of `[critic]`."""

    def make(model: Model, sampling: Sampling, **options: Any) -> Critic:
        with plugin.guard("returned no critic", CamelError):
            critic = part(model, sampling, **options)
        if not callable(getattr(critic, "reply", None)):
            raise plugin.failed("must return an object with an async reply(conversation, agent, request)")
        return critic

    return make


CRITICS: Registry[Callable[..., Critic]] = Registry("critics", {}, _plugged, kind="critic")
"""Factories of plug-ins' critics, by their names in `use` of `[critic]`."""


class Critics(NamedTuple):
    """The critics of both seats, as arguments of `RolePlaying`."""

    critic: Critic | None
    user_critic: Critic | None


class CriticSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Settings of a critic; the run's model is the judge."""

    seats: tuple[Seat, ...] = (ASSISTANT, USER)
    """Seats whose messages the critic chooses; the paper's code uses both."""
    mode: Mode | None = None
    """How the judge answers: choose, score or feedback. Default: score for a search, otherwise choose."""
    search: Literal["beam", "best_first"] | None = None
    """Search that looks ahead. Default: none, only the next message is judged."""
    proposals: int = PROPOSALS
    temperature: float | None = TEMPERATURE
    criteria: tuple[str, ...] = ()
    """The criteria, one sentence each."""
    retries: int = 2
    """How often the judge is asked again if its answer cannot be parsed."""
    revisions: int = 1
    """Maximum number of revisions per message."""
    fallback: Fallback = "first"
    depth: int | None = None
    """Rounds that a search looks ahead."""
    width: int | None = None
    """Number of branches that a beam search expands."""
    calls: int | None = None
    """Maximum number of calls of a search for one message."""
    use: str = ""
    """Name of a plug-in's critic; then only `seats` of the other fields is used."""
    options: dict[str, Any] = {}
    """Further arguments for the plug-in's critic."""

    def __post_init__(self) -> None:
        if not self.seats:
            raise InputError('critic.seats is empty: set it to ["assistant"], ["user"] or both')
        if self.options and not self.use:
            raise InputError("critic.options is only for critics of plug-ins: set critic.use to its name")
        if self.search != "beam" and self.width is not None:
            raise InputError('critic.width works only with search = "beam": set it, or remove width')
        if self.search is None and (self.depth is not None or self.calls is not None):
            raise InputError('critic.depth and critic.calls need search = "beam" or "best_first"')
        if self.search is not None and self.mode == "feedback":
            raise InputError('critic.mode must be "score" or "choose" if critic.search is set')
        self.critic(_NOBODY)

    @property
    def judging(self) -> Mode:
        """The mode in which the judge answers."""
        return self.mode or ("score" if self.search else "choose")

    def critic(self, model: Model, sampling: Sampling | None = None) -> Critic:
        """Return the critic with `model` as its judge and the run's sampling."""
        if self.use:
            return CRITICS.find(self.use)(model, sampling or Sampling(), **self.options)
        judge = ModelJudge(model, self.judging, self.criteria, sampling or Sampling(), self.retries)
        common: dict[str, Any] = {
            "judge": judge,
            "proposals": self.proposals,
            "temperature": self.temperature,
            "fallback": self.fallback,
        }
        if self.search is None:
            return BestOf(**common, revisions=self.revisions if self.judging == "feedback" else 0)
        given = {name: getattr(self, name) for name in ("depth", "width", "calls")}
        return SEARCHES[self.search](
            **common, **{name: value for name, value in given.items() if value is not None}
        )

    def cast(self, model: Model, sampling: Sampling | None = None) -> Critics:
        """Return the critics of both seats. A seat that is not in `seats` has none."""
        critic = self.critic(model, sampling)
        return Critics(*(critic if seat in self.seats else None for seat in (ASSISTANT, USER)))

    def calls_per_message(self) -> tuple[float, float, float]:
        """Return the calls per criticized message: minimum, likely, maximum."""
        critic = self.critic(_NOBODY)
        if self.use:
            # Unknown; assume the calls of a critic that chooses among proposals.
            return 1.0, 2.0, float(self.proposals + 1)
        if isinstance(critic, TreeSearch):
            # A beam search proposes and judges, and each round has `width` answers, `width` proposals and one judgment.
            whole = 2 + critic.depth * (2 * critic.width + 1) if isinstance(critic, Beam) else critic.calls
            return 2.0, float(min(whole, critic.calls)), float(critic.calls)
        rounds = self.revisions if self.judging == "feedback" else 0
        most = self.proposals + rounds + (rounds + 1) * (self.retries + 1)
        return 2.0, 2.0 + rounds, float(most)


class _Nobody(Model):
    """A placeholder for the model, used while settings are checked. It answers no call."""

    async def reply(self, request: Request) -> Reply:
        raise NotImplementedError


_NOBODY = _Nobody()
