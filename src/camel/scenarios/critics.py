"""A critic as declared: `[critic]` of a scenario or of a generation, before there is a model to judge with."""

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
    """What makes a plug-in's critic, which is called with the model, the sampling and the options of `[critic]`."""

    def make(model: Model, sampling: Sampling, **options: Any) -> Critic:
        try:
            critic = part(model, sampling, **options)
        except CamelError:
            raise
        except Exception as error:
            raise plugin.failed(f"gave no critic: {type(error).__name__}: {error}") from error
        if not callable(getattr(critic, "reply", None)):
            raise plugin.failed(
                "must give an object with an async method reply(conversation, agent, request)"
            )
        return critic

    return make


CRITICS: Registry[Callable[..., Critic]] = Registry("critics", {}, _plugged, kind="critic")
"""Critics of plug-ins, which `[critic]` names in `use`, each as what makes it."""


class Critics(NamedTuple):
    """The critics of both seats, as `RolePlaying` takes them."""

    critic: Critic | None
    user_critic: Critic | None


class CriticSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What of a critic can be declared; the model of the run judges."""

    seats: tuple[Seat, ...] = (ASSISTANT, USER)
    """Whose words are chosen; the original has both."""
    mode: Mode | None = None
    """How the judge answers: choose, score or feedback. Left out: a search scores, otherwise one is chosen."""
    search: Literal["beam", "best_first"] | None = None
    """Look ahead over what would follow; left out: only what might be said now is judged."""
    proposals: int = PROPOSALS
    temperature: float | None = TEMPERATURE
    criteria: tuple[str, ...] = ()
    """What is judged by, in a sentence each."""
    retries: int = 2
    """How often the judge is asked again when its answer cannot be read."""
    revisions: int = 1
    """How often feedback is followed for one message."""
    fallback: Fallback = "first"
    depth: int | None = None
    """Rounds that a search looks ahead."""
    width: int | None = None
    """Branches that a beam follows."""
    calls: int | None = None
    """The most calls that a search may make for one message."""
    use: str = ""
    """A plug-in's critic by name instead of ours; of the other fields only `seats` is then used."""
    options: dict[str, Any] = {}
    """Further arguments for the plug-in's critic."""

    def __post_init__(self) -> None:
        if not self.seats:
            raise InputError('critic.seats is empty: name "assistant", "user" or both')
        if self.options and not self.use:
            raise InputError("critic.options are those of a plug-in's critic: name it with use")
        if self.search != "beam" and self.width is not None:
            raise InputError('critic.width is for search = "beam"')
        if self.search is None and (self.depth is not None or self.calls is not None):
            raise InputError(
                'critic.depth and critic.calls are for a search: add search = "beam" or "best_first"'
            )
        if self.search is not None and self.mode == "feedback":
            raise InputError('a search does not revise: critic.mode must be "score" or "choose"')
        self.critic(_NOBODY)

    @property
    def judging(self) -> Mode:
        """How the judge answers."""
        return self.mode or ("score" if self.search else "choose")

    def critic(self, model: Model, sampling: Sampling | None = None) -> Critic:
        """The critic, with `model` as its judge, asked with the settings of the run."""
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
        """The critic for each seat that has one."""
        critic = self.critic(model, sampling)
        return Critics(*(critic if seat in self.seats else None for seat in (ASSISTANT, USER)))

    def calls_per_message(self) -> tuple[float, float, float]:
        """Calls for a criticised message: at least, likely, at most."""
        critic = self.critic(_NOBODY)
        if self.use:
            # Unknown; assumed to be like one of ours that chooses among proposals.
            return 1.0, 2.0, float(self.proposals + 1)
        if isinstance(critic, TreeSearch):
            # A beam proposes, judges, and in each round has as many answers and proposals as it is wide, and a judgement.
            whole = 2 + critic.depth * (2 * critic.width + 1) if isinstance(critic, Beam) else critic.calls
            return 2.0, float(min(whole, critic.calls)), float(critic.calls)
        rounds = self.revisions if self.judging == "feedback" else 0
        most = self.proposals + rounds + (rounds + 1) * (self.retries + 1)
        return 2.0, 2.0 + rounds, float(most)


class _Nobody(Model):
    """Stands in for a model while settings are checked."""

    async def reply(self, request: Request) -> Reply:
        raise NotImplementedError


_NOBODY = _Nobody()
