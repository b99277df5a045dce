"""A rubric: a model rates a whole conversation on a scale, with a reason.

The one decision to know: an answer without a clear rating on the scale does not count. The model is asked again a limited
number of times, and after that there is no rating.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from camel.core.checks import shown, whole
from camel.core.errors import InputError
from camel.core.history import History
from camel.core.inception import fill, texts
from camel.core.judge import RatedAnswer, quoted, quoted_talk, read_rating, shortened
from camel.core.message import Sampling, Usage, well_formed
from camel.core.model import Model, Request
from camel.core.transcript import Transcript

YES_NO = "yes/no"
RATER = "judge"
"""The speaker name under which the calls are made."""
MOST_CHARS = 24_000
"""Maximum characters of a conversation in a prompt. A longer one is cut in the middle, and most of its end is kept."""
_MOST_TASK = 3_000
_MOST_QUOTED = 1_000
_SCALE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:-|–|to|\.\.)\s*(-?\d+(?:\.\d+)?)")


class RubricAnswer(NamedTuple):
    """What a model answered: a rating or None, the last answer, and the usage of all calls."""

    rating: RatedAnswer | None
    text: str
    usage: Usage


@dataclass(frozen=True)
class Rubric:
    """What a model rates in a conversation: `Rubric("Is the advice correct and complete?", scale=(1, 5))`."""

    text: str
    scale: tuple[float, float] | str = (1, 5)
    """The lowest and the highest rating, or `yes/no`, which is stored as 1 and 0."""
    model: Any = None
    """The model that rates: a `Model`, a `ModelSpec` or a name. Default: the one of the job."""
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.0, max_tokens=300))
    asks: int = 3
    """Maximum number of times the model is asked about a conversation."""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise InputError("the rubric is empty: describe in a sentence or more what to rate")
        object.__setattr__(self, "scale", read_scale(self.scale))
        whole("asks", self.asks, 1, 20)

    def identity(self) -> dict[str, Any]:
        """Return what determines the ratings, except the model."""
        sampling = msgspec.to_builtins(self.sampling)
        scale = self.scale if isinstance(self.scale, str) else list(self.scale)
        return {"rubric": self.text, "scale": scale, "prompt": texts()["rubric"], "sampling": sampling}

    def question(self, transcript: Transcript, window: int | None = None) -> str:
        """Return the prompt about a conversation, shortened so that it fits into a context window of `window` tokens."""
        task, most = transcript.task.text[:_MOST_TASK], MOST_CHARS
        if window is not None:
            # Three bytes per token. The question itself takes less than 300 tokens.
            answers = self.asks * ((self.sampling.max_tokens or 300) + 30)
            most = min(most, max(300, 3 * (window - 300 - answers) - len(task) - len(self.text)))
        talk = shortened(quoted_talk(transcript), most, "> ")
        values = {
            "TASK": quoted(task),
            "CONVERSATION": talk,
            "RUBRIC": self.text.strip(),
            "ANSWER": self._form(),
        }
        return fill(texts()["rubric"], values)

    async def rate(self, model: Model, transcript: Transcript, session: str) -> RubricAnswer:
        """Ask the model about a conversation, again if its answer has no rating on the scale."""
        history, used, text = History(), Usage(), ""
        history.add("user", self.question(transcript, model.context_tokens))
        for _ in range(self.asks):
            reply = await model.reply(Request(history, self.sampling, session, RATER))
            used, text = used + reply.usage, well_formed(reply.content).strip()
            if rating := read_rating(text, None if isinstance(self.scale, str) else self.scale):
                return RubricAnswer(rating, text, used)
            history.add("assistant", text[:_MOST_QUOTED] or "…")
            history.add("user", f"Please answer again. {self._form()}")
        return RubricAnswer(None, text, used)

    def _form(self) -> str:
        if isinstance(self.scale, str):
            return "Answer with one word first, yes or no. Then give the reason in one sentence."
        low, high = self.scale
        return f"Answer with a number from {low:g} (worst) to {high:g} (best) first. Then give the reason in one sentence."


def read_scale(given: Any) -> tuple[float, float] | str:
    """Return a scale from a pair of numbers, from text such as `1-5`, or `yes/no`. Raises an `InputError` otherwise."""
    if isinstance(given, str):
        if re.fullmatch(r"\s*yes\W?no\s*", given, re.IGNORECASE):
            return YES_NO
        found = _SCALE.fullmatch(given.strip())
        numbers: Any = found.groups() if found else ()
    else:
        numbers = given
    try:
        low, high = map(float, numbers)
    except (TypeError, ValueError):
        raise InputError(
            f"the scale must be two numbers such as 1-5, or yes/no, not {shown(given)}"
        ) from None
    if not -1e9 < low < high < 1e9:
        raise InputError(f"the scale must go from a lower to a higher number, not from {low:g} to {high:g}")
    return low, high
