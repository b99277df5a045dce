"""What HumanEval is asked with, and what came of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from camel.core.errors import InputError
from camel.core.message import Sampling, Usage
from camel.evaluation.humaneval.judging import ProgramVerdict
from camel.evaluation.humaneval.problems import COUNT, HASHES

SAMPLES, VERDICTS = "samples", "verdicts"
RULES = 2
"""Of extraction and judging: another number, other verdicts; those of an older one are made anew."""
SAMPLING = Sampling(temperature=0.8, top_p=0.95, max_tokens=1024)
"""As the authors of HumanEval sampled for large k."""
LIKELY_TOKENS = 220
"""Of an answer, for the estimate of what it costs: a function of ten lines and a sentence or two."""


class HumanEvalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides the samples; kept with them, and continuing with anything else is refused."""

    model: str
    prompt: str
    sampling: Sampling = SAMPLING
    seed: int | None = None
    """Makes each sample's seed, for endpoints that can repeat themselves."""
    problems: int = COUNT
    """The first so many."""
    data: dict[str, str] = msgspec.field(default_factory=HASHES.copy)

    def __post_init__(self) -> None:
        if not 0 < self.problems <= COUNT:
            raise InputError(f"there are {COUNT} problems: ask for 1 to {COUNT} of them, not {self.problems}")

    @property
    def fingerprint(self) -> str:
        """Identifies it."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer."""

    problem: str
    number: int
    content: str
    finish: str = "stop"
    model: str = ""
    usage: Usage = Usage()
    error: str = ""
    """Why there is none, where the endpoint will never give one."""


class JudgedProblem(msgspec.Struct, frozen=True):
    """The programs of one problem and what became of them."""

    problem: str
    programs: list[str]
    """Those that differ, in order of their first sample; "" is an answer without one."""
    verdicts: list[ProgramVerdict]
    samples: list[int]
    """For each sample, which of the programs it is."""
    rules: int = RULES
    of: str = ""
    """A hash of the samples."""


def prompt_text() -> str:
    """The words with which a model is asked."""
    return (Path(__file__).parent / "prompt.txt").read_text("utf-8").strip()
