"""The configuration of an emergence study, read from TOML."""

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
from camel.evaluation.exam_questions import QUESTION_SETS
from camel.evaluation.humaneval.problems import COUNT

SHIPPED = {"society": "society-1", "code": "code-1"}
"""Domains with their own prompt for writing questions. For other domains, the prompt names the subject."""
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")


class Domain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A field of knowledge that models are tested on, such as mathematics."""

    name: str
    """Name of the domain in lower case, which is also the name of its file of questions."""
    questions: int = 20
    title: str = ""
    """Title of the domain in the report. Default: the name."""
    file: str = ""
    """A file of JSON lines with a `question` each, or a shipped set such as `table2_math`. If empty, a model writes
    questions."""
    subjects: tuple[str, ...] = ()
    """Subjects of the questions, in equal numbers, e.g. physics, chemistry and biology. Default: the title."""

    def __post_init__(self) -> None:
        if not _FILE_NAME.fullmatch(self.name):
            raise InputError(f"a domain's name can have only a-z, 0-9, - and _, not {shown(self.name)}")
        whole(f"questions of the domain '{self.name}'", self.questions, 1, 10_000)

    @property
    def label(self) -> str:
        """The title of the domain in the report."""
        return self.title or self.name

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The subjects of the domain, each with its number of questions."""
        subjects = self.subjects or (self.label,)
        each, more = divmod(self.questions, len(subjects))
        return [(one, each + (place < more)) for place, one in enumerate(subjects) if each + (place < more)]


DOMAINS = (
    Domain("society", 20, "AI Society", "table2_society"),
    Domain("code", 20, "Code", "table2_code"),
    Domain("math", 20, "Math", "table2_math", ("mathematics",)),
    Domain("science", 60, "Science", "table2_science", ("physics", "chemistry", "biology")),
)
"""The domains of the paper: 20 questions on AI Society, 20 on code, 20 on mathematics, 60 on the sciences (section 5.2)."""


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step of the chain: data that is added, and the model trained with it."""

    name: str
    """The name of the added data, e.g. `Code`."""
    rows: tuple[str, ...] = ()
    """Folders made by `camel rows`. The study trains the model on them and, unless `onward` is set, on the rows of earlier
    steps."""
    model: str = ""
    """An existing model to use instead of rows: a GGUF file, the folder of a training, NAME or NAME@URL."""
    adds: str = ""
    """The domain of the added data. Default: the domain with the same name."""

    def __post_init__(self) -> None:
        if bool(self.rows) == bool(self.model):
            found = "both rows and a model: remove one" if self.model else "neither rows nor a model: add one"
            raise InputError(f"the step {shown(self.name)} has {found}")


class EmergenceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All settings of an emergence study."""

    base: str
    """The first model of the chain: `local`, a GGUF file, a folder, NAME or NAME@URL."""
    steps: tuple[Link, ...]
    judges: tuple[str, ...] = ()
    writer: str = ""
    """The model that writes questions. Default: the first judge."""
    out: str = "emergence"
    domains: tuple[Domain, ...] = DOMAINS
    lists: Literal["shipped", "asked"] = "shipped"
    """If `asked`, the writer writes new questions also for domains that use a shipped set."""
    onward: bool = False
    """Whether each model is trained from the model before it, on the added rows only. By default, each is trained from the base
    model on all rows so far, as in the paper."""
    ends: bool = True
    """Whether to compare the last model with the base model too, as in the paper."""
    train: dict[str, Any] = {}
    """Settings of the trainings: `recipe` and the fields of `camel train`, except rows and out. If the base model is at an
    endpoint, `model` is the path of its weights."""
    seed: int = 0
    """The seed for writing questions."""
    repeats: int = 5
    """Number of questions per domain that each judge judges twice."""
    judge_prompt: str = JUDGE_PROMPT
    question_prompt: str = "question-1"
    """The prompt for answering a question. By default it contains only the question."""
    questions: Sampling = Sampling(temperature=0.7, max_tokens=4_096)
    answers: Sampling = Sampling(temperature=0.2, max_tokens=1_024)
    verdicts: Sampling = Sampling(temperature=0.0, max_tokens=500)
    context: int = 4_096
    """Context window, in tokens, of models that the study serves itself."""
    guided: str = ""
    """The server software of the judges' endpoints (llama.cpp, vllm or openai), used to constrain their answers to JSON."""
    humaneval: int = 0
    """Number of HumanEval samples per problem for each model. 0 turns HumanEval off. The paper's figures need at least 100."""
    problems: int = COUNT
    """Number of HumanEval problems to use, starting with the first."""

    def __post_init__(self) -> None:
        if self.lists == "asked":
            own = (replace(one, file="") if one.file in QUESTION_SETS else one for one in self.domains)
            force_setattr(self, "domains", tuple(own))
        if not self.steps:
            raise InputError("the study has no steps. Add rows or models under [[steps]]")
        if not self.domains:
            raise InputError("the study has no domains. Add one under [[domains]]")
        whole("repeats", self.repeats, 0, 10_000)
        whole("humaneval", self.humaneval, 0, 10_000)
        whole("problems", self.problems, 1, COUNT)
        whole("context", self.context, 256, 10_000_000)
        _check_unique("domain", [one.name for one in self.domains])
        _check_unique("domain", [one.label for one in self.domains])
        _check_unique("step", [one.name for one in self.steps])
        known = {one.name for one in self.domains}
        for one in self.steps:
            if one.adds and one.adds not in known:
                raise InputError(
                    f"the step '{one.name}' adds the unknown domain {shown(one.adds)}. Use one of {', '.join(sorted(known))}"
                )

    def added(self, number: int) -> str:
        """Return the name of the domain of the data that step `number` (from 0) adds, or an empty string."""
        step = self.steps[number]
        same = (one.name for one in self.domains if step.name.casefold() in (one.name, one.label.casefold()))
        return step.adds or next(same, "")

    def label(self, number: int) -> str:
        """Return the label of the model of step `number` (from 0), which lists its training data: `AI Society + Code`."""
        return " + ".join(one.name for one in self.steps[: number + 1])


def _check_unique(what: str, names: list[str]) -> None:
    if twice := [one for one in names if names.count(one) > 1]:
        raise InputError(f"two {what}s have the name {shown(twice[0])}. Rename one of them")


def read_config(path: Path, **given: Any) -> EmergenceConfig:
    """Read a configuration from a TOML file. The fields in `given` that are not empty override it."""
    table = read_table(path) | {name: one for name, one in given.items() if one}
    return convert_table(table, EmergenceConfig, path)
