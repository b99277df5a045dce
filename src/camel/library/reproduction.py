"""The results of the CAMEL paper, each as a list of `camel` commands with estimates, which `camel reproduce` shows and runs.

The one decision to know: a reproduction has no state of its own. Every step is a command that resumes, so the same
reproduction continues after a stop. Results in the same folder share their runs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from shlex import split
from typing import Any, NamedTuple

from camel.core.checks import similar
from camel.core.errors import InputError
from camel.core.message import Usage
from camel.core.model import Price
from camel.core.toml import convert_table, read_table
from camel.generation.config import GenerateConfig, read_config
from camel.generation.forecast import summary
from camel.generation.init import counts_for
from camel.generation.plan import Plan, committed_in, make_plan
from camel.jobs.status import read_status
from camel.models.local import LOCAL
from camel.models.spec import find_spec
from camel.reports.numbers import money, short
from camel.runs.run import open_folder
from camel.scenarios import load

SCIENCE = ("physics", "chemistry", "biology")
RESULTS = {
    "table-1": ("Table 1, agents and single answers", ("table1_ai_society", "table1_code")),
    "table-2": ("Table 2, emergence of knowledge", ("ai_society", "code", "math", *SCIENCE)),
    "table-3": ("Table 3, HumanEval and HumanEval+", ()),
    "ai-society": ("the dataset AI Society", ("ai_society",)),
    "code": ("the dataset Code", ("code",)),
    "math": ("the dataset Math", ("math",)),
    "science": ("the datasets Physics, Chemistry and Biology", SCIENCE),
    "misalignment": ("the dataset Misalignment", ("misalignment",)),
}
"""The title of each result, and the scenarios of its runs."""
CHAIN = (("ai_society",), ("code",), ("math",), SCIENCE)
"""The scenarios of each step of Table 2."""
SMALL = 4
"""Conversations or problems of a small run."""
SUMMARY, ANSWER, VERDICT, PROGRAM = map(Usage, (3_400, 350, 1_400, 170), (500, 500, 90, 220))
"""Assumed tokens of a call: of its prompt and of its reply."""
COMPLETE = "complete"
Calls = tuple[Price | None, int, Usage]
"""The price of a model, a number of calls, and the tokens of each."""


class ReproductionStep(NamedTuple):
    """A command of a reproduction, with an estimate."""

    title: str
    arguments: list[str]
    result: str
    """The file or folder that the command writes."""
    estimate: str
    """Calls, tokens and cost. Empty if the command calls no model."""
    cost: float | None
    """The likely remaining cost in dollars. None if a price is unknown."""


@dataclass
class Reproduction:
    """A result of the paper: the commands in order, and the configurations that they need."""

    result: str
    out: Path
    model: str = ""
    base_url: str = ""
    judges: Sequence[str] = ()
    base_model: str = ""
    acknowledge: Sequence[str] = ()
    small: bool = False
    """Whether to make only a few conversations, questions and programs, to try it out."""
    files: dict[Path, str] = field(default_factory=dict[Path, str], init=False)
    steps: list[ReproductionStep] = field(default_factory=list[ReproductionStep], init=False)

    def __post_init__(self) -> None:
        if self.result not in RESULTS:
            near = similar(self.result, RESULTS)
            raise InputError(f"there is no result {self.result!r}{near}. Use one of {', '.join(RESULTS)}")
        self.title, scenarios = RESULTS[self.result]
        if any(load(one).gated and one not in self.acknowledge for one in scenarios):
            raise InputError(f"{self.result} simulates misuse, for research: add --acknowledge {self.result}")
        tables = {"table-1": self._compare, "table-2": self._train, "table-3": self._solve}
        options = {"--judge": (self.judges, [*tables][:2]), "--base-model": (self.base_model, ["table-2"])}
        for option, (given, users) in options.items():
            if given and self.result not in users:
                raise InputError(f"{self.result} does not use {option}: remove it")
            if not given and self.result in users and self.model != LOCAL:
                raise InputError(f"{self.result} needs {option} MODEL: add it, or use --local")
        spec = find_spec(self.model, base_url=self.base_url)
        self.model, self._price = self.model or spec.name, spec.cost()
        self._judges = [find_spec(one, base_url=self.base_url).cost() for one in self.judges] or [self._price]
        plans = [self._generate(one) for one in scenarios]
        for name in () if self.result in tables else scenarios:
            self._export(name)
        if self.result in tables:
            tables[self.result](plans)

    def write(self) -> None:
        """Write the configurations that do not exist yet. Existing ones may have been edited, and are kept."""
        for path, text in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(text, "utf-8")

    def _generate(self, name: str) -> Plan:
        scenario, run, path = load(name), self.out / "runs" / name, self.out / "configs" / f"{name}.toml"
        counts = {level.name: level.count for level in scenario.levels}
        counts = counts_for(counts, SMALL) if self.small else counts
        lines = [f'scenario = "{name}"', f"out = {dumps(str(run))}"]
        lines += [f'acknowledge = ["{name}"]'] if scenario.gated else []
        lines += ["", "[counts]", *(f"{level} = {count}" for level, count in counts.items())]
        self.files[path] = "\n".join([*lines, "", "[model]", f"name = {dumps(self.model)}", ""])
        wanted = convert_table(tomllib.loads(self.files[path]), GenerateConfig)
        config = read_config(path) if path.exists() else wanted
        if (config.counts, config.model.name) != (wanted.counts, wanted.model.name):
            raise InputError(f"'{path}' has another size or model: use another --out, or delete the file")
        config = config.adjusted(base_url=self.base_url)
        plan = make_plan(config, committed=committed_in(open_folder(run), config))
        left = plan.left.likely.usage()
        cost = plan.price.cost(left) if plan.price else None
        estimate = summary(plan) if left.calls else COMPLETE
        self._add(f"Generate {scenario.title}: {plan.shape}", ["generate", path], run, estimate, cost)
        return plan

    def _export(self, name: str) -> None:
        scenario, run = load(name), self.out / "runs" / name
        formats = {"chat": "_chat.tar.gz", "instruction": "_instructions.json"}
        for format, ending in (formats if scenario.has_conversations else {"problems": ".tar.gz"}).items():
            file = self.out / "datasets" / f"{name}{ending}"
            words = ["export", run, format, file, "--force", *_each("--acknowledge", self.acknowledge)]
            self._add(f"Export {scenario.title} in the paper's format {format}", words, file)

    def _compare(self, plans: Sequence[Plan]) -> None:
        tasks = sum(min(100, plan.items) for plan in plans)
        pairs = tasks + sum(min(20, plan.items) for plan in plans)  # some are judged twice
        words = ["evaluate", "agents", *(self.out / "runs" / plan.scenario for plan in plans)]
        words += [*_each("--judge", self.judges), "--model", self.model] if self.judges else ["--local"]
        needs = [(self._judges[0], tasks, SUMMARY), (self._price, tasks, ANSWER), *self._verdicts(pairs)]
        words += ["--out", self.out / "table-1"]
        self._ask("Compare the conversations with single answers", words, "table-1", needs)

    def _train(self, _: object) -> None:
        from camel.training.emergence.emergence_config import DOMAINS
        from camel.training.weights import check_template

        base, path = self.base_model or LOCAL, self.out / "configs" / "table_2.toml"
        if base != LOCAL and not Path(base).exists():
            raise InputError(f"--base-model must be a folder or a GGUF file, and {base!r} does not exist")
        if path.exists() and read_table(path).get("base") != base:
            raise InputError(f"'{path}' has another base model: use another --out, or delete the file")
        template = "" if base == LOCAL else "vicuna"
        check_template(base, template)
        recipe = "cpu" if self.small or base == LOCAL else "paper"
        lines = [f"base = {dumps(base)}", f"out = {dumps(str(self.out / 'table-2'))}", ""]
        lines += ["[train]", f'recipe = "{recipe}"', *([f'chat_template = "{template}"'] if template else [])]
        for one, scenarios in zip(DOMAINS, CHAIN, strict=True):
            rows, runs = self.out / "rows" / one.name, [self.out / "runs" / name for name in scenarios]
            words = ["rows", *runs, "--out", rows, *_each("--questions", [other.file for other in DOMAINS])]
            self._add(f"Make training rows of {one.title}, without the test questions", words, rows)
            lines += ["", "[[steps]]", f'name = "{one.title}"', f"rows = [{dumps(str(rows))}]"]
            lines += ["", "[[domains]]", f'name = "{one.name}"', f'title = "{one.title}"']
            lines += [f'file = "{one.file}"', f"questions = {1 if self.small else one.questions}"]
        self.files[path] = "\n".join([*lines, ""])
        words = ["evaluate", "emergence", path, *_each("--judge", self.judges or [LOCAL])]
        # Each model is compared with the one before it, and the last with the first. Some questions are judged twice.
        questions = sum(2 if self.small else one.questions + 5 for one in DOMAINS)
        needs = self._verdicts((len(CHAIN) + 1) * questions)
        self._ask("Train (which is not estimated) and compare the models", words, "table-2", needs)

    def _solve(self, _: object) -> None:
        n, problems = (2, 3) if self.small else (200, 164)
        words = ["evaluate", "humaneval", "--model", self.model, "--out", self.out / "table-3", "-n", n]
        words += ["--problems", problems, "-k", 1, "-k", 2] if self.small else []
        title = f"Write {n} programs for each of {problems} problems, and run them"
        self._ask(title, words, "table-3", [(self._price, n * problems, PROGRAM)])

    def _verdicts(self, pairs: int) -> list[Calls]:
        return [(price, 2 * pairs, VERDICT) for price in self._judges]  # both orders

    def _ask(self, title: str, words: list[Any], out: str, needs: Sequence[Calls]) -> None:
        """Add a command that calls models."""
        calls, tokens = sum(one[1] for one in needs), sum(count * one.total for _, count, one in needs)
        costs = [count * price.cost(usage) for price, count, usage in needs if price]
        cost = sum(costs) if len(costs) == len(needs) else None
        known = f", {money(cost)}" if cost else ""
        estimate = f"about {short(calls)} calls, {short(tokens)} tokens{known}"
        self._add(title, words, self.out / out, estimate, cost)

    def _add(
        self, title: str, words: list[Any], out: Path, estimate: str = "", cost: float | None = 0
    ) -> None:
        words = [
            *map(str, words),
            *_each("--base-url", [self.base_url] if estimate and self.base_url else []),
        ]
        # A report is written last, so nothing is left to do if the same command wrote one.
        if estimate and any(out.glob("*.html")):
            before = split(read_status(out).resume.partition(" --budget-usd")[0])
            estimate, cost = (COMPLETE, 0) if sorted(before[1:]) == sorted(words) else (estimate, cost)
        self.steps.append(ReproductionStep(title, words, str(out), estimate, cost))


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
