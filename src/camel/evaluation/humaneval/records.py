"""The settings of an evaluation with HumanEval, and its records."""

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
"""Version of extraction and judging. A new version judges all programs again."""
SAMPLING = Sampling(temperature=0.8, top_p=0.95, max_tokens=1024)
"""Sampling settings of HumanEval's authors for large k."""
LIKELY_TOKENS = 220
"""Assumed tokens of an answer in cost estimates: a function of ten lines and one or two sentences."""


class HumanEvalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that determines the samples. It is stored with them, and resuming with other settings is an error."""

    model: str
    prompt: str
    sampling: Sampling = SAMPLING
    seed: int | None = None
    """Seed from which each sample's seed is derived, for endpoints that support seeds."""
    problems: int = COUNT
    """Number of problems to solve, starting with the first."""
    data: dict[str, str] = msgspec.field(default_factory=HASHES.copy)

    def __post_init__(self) -> None:
        if not 0 < self.problems <= COUNT:
            raise InputError(f"the number of problems must be from 1 to {COUNT}, not {self.problems}")

    @property
    def fingerprint(self) -> str:
        """Hash of the settings."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of the model."""

    problem: str
    number: int
    content: str
    finish: str = "stop"
    model: str = ""
    usage: Usage = Usage()
    error: str = ""
    """Why there is no answer, if the endpoint refused to give one. Otherwise empty."""


class JudgedProblem(msgspec.Struct, frozen=True):
    """The programs of one problem and their verdicts."""

    problem: str
    programs: list[str]
    """The distinct programs, in order of their first sample. Answers without a program share one empty string."""
    verdicts: list[ProgramVerdict]
    samples: list[int]
    """For each sample, the index of its program."""
    rules: int = RULES
    of: str = ""
    """Hash of the samples that were judged."""


def prompt_text() -> str:
    """Return the shipped prompt."""
    return (Path(__file__).parent / "prompt.txt").read_text("utf-8").strip()
