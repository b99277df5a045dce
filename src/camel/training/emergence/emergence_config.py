"""What an emergence study is made from, read from TOML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import force_setattr, replace

from camel.core.checks import shown, whole
from camel.core.errors import InputError
from camel.core.message import Sampling
from camel.core.toml import convert_table, read_table
from camel.evaluation.contest_records import JUDGE_PROMPT
from camel.evaluation.humaneval.problems import COUNT
from camel.training.recipe import QUESTION_SETS

SHIPPED = {"society": "society-1", "code": "code-1"}
"""Domains whose questions have a prompt of their own; those of others are asked for by their subjects."""
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")


class Domain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What models are asked about: a column of the table."""

    name: str
    """In lower case; names its file of questions."""
    questions: int = 20
    title: str = ""
    """As it stands in the table; the name unless given."""
    file: str = ""
    """Questions as JSON lines with a `question`, or the name of a shipped set, e.g. `table2_math`; else a model writes them."""
    subjects: tuple[str, ...] = ()
    """The questions are spread evenly over these, e.g. physics, chemistry and biology; the title unless given."""

    def __post_init__(self) -> None:
        if not _FILE_NAME.fullmatch(self.name):
            raise InputError(
                f"a domain's name has lower-case letters, digits, - and _, unlike {shown(self.name)}"
            )
        whole(f"the questions of {self.name}", self.questions, 1, 10_000)

    @property
    def label(self) -> str:
        """As it stands in the table."""
        return self.title or self.name

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Its subjects, and how many questions of each."""
        subjects = self.subjects or (self.label,)
        each, more = divmod(self.questions, len(subjects))
        return [(one, each + (place < more)) for place, one in enumerate(subjects) if each + (place < more)]


DOMAINS = (
    Domain("society", 20, "AI Society", "table2_society"),
    Domain("code", 20, "Code", "table2_code"),
    Domain("math", 20, "Math", "table2_math", ("mathematics",)),
    Domain("science", 60, "Science", "table2_science", ("physics", "chemistry", "biology")),
)
"""The paper's: 20 tasks of AI Society, 20 of code, 20 of mathematics, 60 of the sciences (section 5.2)."""


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step of the chain: the data that is added, and the model that comes of it."""

    name: str
    """Of the data that is added, e.g. `Code`."""
    rows: tuple[str, ...] = ()
    """Folders that `camel rows` made: the model is trained here on these and those of the steps before."""
    model: str = ""
    """Or a model that is there already: a GGUF file, the folder of a training, NAME or NAME@URL."""
    adds: str = ""
    """The domain that the data is about; the one of the same name unless given."""

    def __post_init__(self) -> None:
        if bool(self.rows) == bool(self.model):
            raise InputError(f"the step {shown(self.name)} has either rows, to be trained on, or a model")


class EmergenceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that decides the table."""

    base: str
    """The model at the beginning: `local`, a GGUF file, a folder, NAME or NAME@URL."""
    steps: tuple[Link, ...]
    judges: tuple[str, ...] = ()
    writer: str = ""
    """Who writes the questions; the first judge unless given."""
    out: str = "emergence"
    domains: tuple[Domain, ...] = DOMAINS
    lists: Literal["shipped", "asked"] = "shipped"
    """`asked`: the writer writes the questions of domains that would use a shipped set."""
    onward: bool = False
    """Each model is trained on from the one before, on what is added alone. Otherwise, as the paper's data grows: from the base
    model, on all data so far."""
    ends: bool = True
    """The last model is also compared with the base model, as in the paper."""
    train: dict[str, Any] = {}
    """Settings of the trainings: `recipe`, and what `camel train` takes besides rows and out. `model` where the base model
    is served elsewhere and its weights are here."""
    seed: int = 0
    """Of the questions."""
    repeats: int = 5
    """Questions of each domain about which each judge is asked twice."""
    judge_prompt: str = JUDGE_PROMPT
    question_prompt: str = "question-1"
    """How a question is put: the question and nothing else."""
    questions: Sampling = Sampling(temperature=0.7, max_tokens=4_096)
    answers: Sampling = Sampling(temperature=0.2, max_tokens=1_024)
    verdicts: Sampling = Sampling(temperature=0.0, max_tokens=500)
    context: int = 4_096
    """Tokens of the window of a model that is served here."""
    guided: str = ""
    """What holds judges at endpoints to JSON: llama.cpp, vllm or openai, if their server can."""
    humaneval: int = 0
    """Samples of each of HumanEval's problems that every model is asked for; 0: none. The paper's figures need 100 at least."""
    problems: int = COUNT
    """The first so many of HumanEval's."""

    def __post_init__(self) -> None:
        if self.lists == "asked":
            own = (replace(one, file="") if one.file in QUESTION_SETS else one for one in self.domains)
            force_setattr(self, "domains", tuple(own))
        if not self.steps:
            raise InputError("a chain needs steps: name the data that is added, or models, under [[steps]]")
        if not self.domains:
            raise InputError("an emergence study needs domains to ask about")
        whole("repeats", self.repeats, 0, 10_000)
        whole("humaneval", self.humaneval, 0, 10_000)
        whole("problems", self.problems, 1, COUNT)
        whole("context", self.context, 256, 10_000_000)
        _once("domain", [one.name for one in self.domains])
        _once("domain", [one.label for one in self.domains])
        _once("step", [one.name for one in self.steps])
        known = {one.name for one in self.domains}
        for one in self.steps:
            if one.adds and one.adds not in known:
                raise InputError(
                    f"{one.name} adds {shown(one.adds)}, which is no domain: {', '.join(sorted(known))}"
                )

    def added(self, number: int) -> str:
        """The domain that a step's data is about, by its name; empty where that is none of them."""
        step = self.steps[number]
        same = (one.name for one in self.domains if step.name.casefold() in (one.name, one.label.casefold()))
        return step.adds or next(same, "")

    def label(self, number: int) -> str:
        """A step's model by the data that it has seen: `AI Society + Code`."""
        return " + ".join(one.name for one in self.steps[: number + 1])


def _once(what: str, names: list[str]) -> None:
    if twice := [one for one in names if names.count(one) > 1]:
        raise InputError(f"two of the {what}s are called {shown(twice[0])}")


def made_config(table: dict[str, Any]) -> EmergenceConfig:
    """A configuration from its fields."""
    return convert_table(table, EmergenceConfig)


def read_config(path: Path, **given: Any) -> EmergenceConfig:
    """Read a configuration; what is `given` and not empty overrides it."""
    table = read_table(path)
    try:
        return made_config({**table, **{name: one for name, one in given.items() if one}})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
