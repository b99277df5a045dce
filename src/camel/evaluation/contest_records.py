"""The settings of an evaluation of agents, its records, its prompts, and the context windows of its models."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from camel.core.checks import shown, whole
from camel.core.errors import InputError
from camel.core.history import estimate_tokens
from camel.core.message import Sampling, Usage
from camel.evaluation.pairs import Winner
from camel.evaluation.tasks import Drawn
from camel.jobs.replies import Cut

PROMPTS = Path(__file__).parent / "prompts"
LARGE = 32_768
"""Context window in tokens that holds two conversations of the paper's length. Prompts do not depend on larger windows."""


class AskedModel(NamedTuple):
    """A model that an evaluation uses."""

    name: str
    """Name of the model in reports."""
    seat: str
    """Key of the model in the models of the job."""
    window: int | None = None
    """Size of the model's context window in tokens. None if unknown."""
    version: str = ""
    """Distinguishes models with the same name, such as weights that were trained again."""

    @property
    def small_window(self) -> int | None:
        """The size of the context window if it is below `LARGE`, otherwise None. Prompts depend only on small windows, so it
        does not matter whether an endpoint reports a large one."""
        return self.window if self.window is not None and self.window < LARGE else None

    def fitting(self, sampling: Sampling) -> Sampling:
        """Limit the length of the answer to a quarter of the context window, and return the changed sampling settings."""
        window = self.small_window
        most = LARGE // 4 if window is None else max(64, window // 4)
        wanted = sampling.max_tokens
        if wanted is not None and (wanted <= most or window is None):
            return sampling
        return msgspec.structs.replace(sampling, max_tokens=most)

    def room(self, others: str, reserved: int) -> int:
        """Return how many characters fit into the context window in addition to the text `others` and `reserved` tokens."""
        if self.window is None:
            return 10**9
        # Three bytes per token, minus a margin for quote signs and other scripts.
        return max(300, int(2.5 * (self.window - reserved - 64 - estimate_tokens(others))))


def read_prompt(name: str, needed: Collection[str] = ()) -> str:
    """Read a shipped prompt by name, or a text file. Raises an `InputError` if a `needed` placeholder is missing."""
    shipped = {path.stem: path for path in PROMPTS.glob("*.txt")}
    path = shipped.get(name, Path(name))
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(shipped))
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read the prompt {shown(name)}: {why}. Shipped prompts: {known}") from None
    if missing := [f"<{one}>" for one in needed if f"<{one}>" not in text]:
        raise InputError(f"the prompt {shown(name)} does not contain {missing[0]}: add it to the file")
    return text


AGENTS, SINGLE_SHOT = "agents", "single-shot"
"""Names of systems: the evaluated run, and the answer of the base model in one reply."""
ASKS = 3
"""Maximum number of times that a judge is asked until its answer can be parsed."""
JUDGE_PROMPT = "judge-1"
"""Version of the judge's prompt. A prompt file never changes after use. A better prompt is a new file."""
NEEDED = ("TASK", "FIRST", "SECOND")
MOST_QUOTED = 2_000
"""Maximum number of characters of an unreadable answer that are quoted when the judge is asked again."""
GUESSED = (150, 500, 1_200)
"""Estimated tokens of a solution that does not exist yet: low, likely, high."""
GUESSED_REASON = (40, 90, 200)
NO_SOLUTION = "there is no solution to judge: "
"""Prefix of the reason of a comparison that was impossible. The reason why the solution failed follows."""

Kind = Literal["summary", "answer", "verdict", "repeat"]
KINDS: tuple[Kind, ...] = ("summary", "answer", "verdict", "repeat")


class AgentsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that determines the figures, except the runs and the models. It is part of the report."""

    tasks: int = 100
    """Number of tasks per run (paper, section 5.1: 100)."""
    seed: int = 0
    """Seed of the random choice of tasks."""
    repeats: int = 20
    """Number of tasks that each judge judges twice, to measure how often it agrees with itself."""
    judge_prompt: str = JUDGE_PROMPT
    """Name of a shipped version of the judge's prompt, or path of a text file with <TASK>, <FIRST> and <SECOND>."""
    summary_prompt: str = "summary-1"
    single_shot_prompt: str = "single-shot-1"
    summary_sampling: Sampling = Sampling(temperature=0.0)
    """Without `max_tokens`, a summary may use a quarter of the summarizer's context window."""
    single_shot_sampling: Sampling = Sampling(temperature=0.2, max_tokens=2_048)
    """Sampling settings of single-shot answers. The temperature is that of the agents in the original CAMEL code."""
    judge_sampling: Sampling = Sampling(temperature=0.0, max_tokens=500)
    acknowledge: tuple[str, ...] = ()
    """Restricted labels, such as `misalignment`, whose conversations may be used."""
    where: str = ""
    """A filter expression that selects the conversations from which tasks are drawn."""
    cut_replies: Cut = "fail"
    """Whether a solution that reaches the token limit fails, or is used and marked as cut off."""

    def __post_init__(self) -> None:
        whole("tasks", self.tasks, 1, 100_000)
        whole("repeats", self.repeats, 0, 100_000)


class Group(NamedTuple):
    """A row of the results: a run, and the other runs that it is compared with."""

    name: str
    runs: Mapping[str, str]
    """Folders or addresses of the runs, by the names of their systems."""
    scenario: str = ""
    """The scenario that selects the rows of the paper's table. Default: the name of the group."""
    tasks: Sequence[Drawn] = ()
    """The tasks to solve if the group has no run."""


class Solution(msgspec.Struct, frozen=True, omit_defaults=True):
    """A system's solution of a task."""

    id: str
    text: str
    model: str = ""
    usage: Usage = Usage()
    finish: str = "stop"
    cut: int = 0
    """Number of characters of the conversation that did not fit into the summarizer's context window."""
    failed: str = ""
    """Why there is no solution. Empty if there is one."""


class JudgedPair(msgspec.Struct, frozen=True, omit_defaults=True):
    """A judge's verdict on a pair in one order."""

    id: str
    winner: Winner | None
    """The winner. None if the judge did not decide."""
    scores: tuple[float, float] | None = None
    """Scores of `a` and `b`, in this order even if `b` was shown first."""
    reason: str = ""
    usage: Usage = Usage()
    asks: int = 0
    cut: int = 0
    """Number of characters of the solutions that did not fit into the judge's context window."""
    failed: str = ""
    """Why the call to the judge failed. Empty if it did not fail."""


class StepNeed(NamedTuple):
    """Estimated calls and tokens of one step and model."""

    kind: Kind
    model: str
    calls: int = 0
    prompt: tuple[int, int, int] = (0, 0, 0)
    """Estimated prompt tokens: low, likely, high."""
    completion: tuple[int, int, int] = (0, 0, 0)
