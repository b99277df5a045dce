"""What an evaluation of agents is asked with, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from camel.core.checks import whole
from camel.core.message import Sampling, Usage
from camel.evaluation.pairs import Winner
from camel.evaluation.tasks import Drawn
from camel.jobs.replies import Cut

AGENTS, SINGLE_SHOT = "agents", "single-shot"
"""Names of systems: the run that is evaluated, and the base model's answer in one go."""
ASKS = 3
"""Times a judge is asked until its answer can be read."""
JUDGE_PROMPT = "judge-1"
"""Versions: a file is never changed once it was used; a better one is a new file."""
NEEDED = ("TASK", "FIRST", "SECOND")
MOST_QUOTED = 2_000
"""Characters of an answer that could not be read, when it is shown to whoever gave it."""
GUESSED = (150, 500, 1_200)
"""Tokens of a solution that is not written yet: low, likely, high."""
GUESSED_REASON = (40, 90, 200)
NO_SOLUTION = "there is no solution to judge: "
"""Begins the reason of a comparison that could not be made, before that of the solution."""

Kind = Literal["summary", "answer", "verdict", "repeat"]
KINDS: tuple[Kind, ...] = ("summary", "answer", "verdict", "repeat")


class AgentsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that decides the figures besides the runs and the models; kept in the report."""

    tasks: int = 100
    """Of each run (paper, section 5.1: 100)."""
    seed: int = 0
    """Of the draw."""
    repeats: int = 20
    """Tasks about which each judge is asked twice, to see how far it agrees with itself."""
    judge_prompt: str = JUDGE_PROMPT
    """A shipped version's name, or the path of a text file with <TASK>, <FIRST> and <SECOND>."""
    summary_prompt: str = "summary-1"
    single_shot_prompt: str = "single-shot-1"
    summary_sampling: Sampling = Sampling(temperature=0.0, max_tokens=2_048)
    single_shot_sampling: Sampling = Sampling(temperature=0.2, max_tokens=2_048)
    """The temperature is that of the original's agents."""
    judge_sampling: Sampling = Sampling(temperature=0.0, max_tokens=500)
    acknowledge: tuple[str, ...] = ()
    """Labels, such as `misalignment`, whose conversations may be drawn."""
    cut_replies: Cut = "fail"
    """Whether a solution that ends at the limit of tokens fails its task, or is kept and marked."""

    def __post_init__(self) -> None:
        whole("tasks", self.tasks, 1, 100_000)
        whole("repeats", self.repeats, 0, 100_000)


class Group(NamedTuple):
    """A row of the table: a run and the other runs that it is compared with, by the names of their systems."""

    name: str
    runs: Mapping[str, str]
    """Their folders or addresses."""
    scenario: str = ""
    """By which the paper's lines are found; the name unless given."""
    tasks: Sequence[Drawn] = ()
    """Where there is no run: what is to be solved, all of it."""


class Solution(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a system says on a task."""

    id: str
    text: str
    model: str = ""
    usage: Usage = Usage()
    finish: str = "stop"
    cut: int = 0
    """Characters of the conversation that did not fit the summariser's window."""
    failed: str = ""
    """Why there is none."""


class JudgedPair(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a judge said of a pair in one order."""

    id: str
    winner: Winner | None
    """None: it did not decide."""
    scores: tuple[float, float] | None = None
    """Of `a` and `b`, whatever the order was."""
    reason: str = ""
    usage: Usage = Usage()
    asks: int = 0
    cut: int = 0
    """Characters of the solutions that did not fit the judge's window."""
    failed: str = ""
    """Why the judge could not be asked."""


class StepNeed(NamedTuple):
    """What one step will take, of one model."""

    kind: Kind
    model: str
    calls: int
    prompt: tuple[int, int, int]
    """Tokens: low, likely, high."""
    completion: tuple[int, int, int]
