"""The emergence study without an endpoint: its settings, its figures, and the safety of its report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tomllib
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import InputError, ScriptedModel
from camel.core.errors import ContextOverflow, ModelError
from camel.core.history import History
from camel.core.model import Model, Request
from camel.core.toml import convert_table
from camel.engine.halt import Halt
from camel.evaluation.contest_records import AskedModel
from camel.evaluation.exam_questions import read_questions
from camel.jobs.runner import Runner
from camel.models import local
from camel.models.local import LocalServer
from camel.reports.blocks import plain_table
from camel.reports.html import render_html
from camel.reports.markdown import render_markdown
from camel.reports.plots import drawn
from camel.training.config import TrainConfig
from camel.training.emergence import experiment as study_module
from camel.training.emergence.emergence_config import (
    DOMAINS,
    Domain,
    EmergenceConfig,
    read_config,
)
from camel.training.emergence.emergence_report import report, table
from camel.training.emergence.experiment import Emergence, find_place, lend, version_of
from camel.training.emergence.questions import Questions
from camel.training.emergence.results import PAPER, Figures, figures
from camel.training.recipe import Recipe, Source
from camel.training.rows import RowsJob
from camel.training.train import Trained
from tests.support.closed_pages import browse
from tests.support.emergences import CHAIN, EVIL, answer, config, outcome
from tests.support.jobs import run
from tests.support.training_runs import conversation, make_run

SMALL = {"society": 2, "math": 3}
TRAINED: dict[str, str] = dict(zip(("base", "AI Society", "AI Society + Code"), CHAIN, strict=False))
"""The labels of models trained in a study, and the models of the simulated chain whose answers they give."""


def small(folder: Path, **more: Any) -> EmergenceConfig:
    """Return a study with two steps of the paper's chain and five questions."""
    whole = tomllib.loads(config(repeats=1))
    whole["steps"] = whole["steps"][:2]
    whole["domains"] = [
        {"name": one.name, "title": one.label, "questions": SMALL[one.name], "subjects": one.subjects}
        for one in DOMAINS
        if one.name in SMALL
    ]
    return convert_table({**whole, "out": str(folder / "out"), **more}, EmergenceConfig)


class Society:
    """All models of a study, in this process; `asked` counts the calls by model."""

    def __init__(self, most: int = 10**9, halt: Halt | None = None) -> None:
        self.asked: dict[str, int] = {}
        self._most, self._halt = most, halt

    def __call__(self, name: str, **rest: object) -> Model:
        """Return the model with a name."""

        def say(request: Request) -> str | ModelError:
            self.asked[name] = self.asked.get(name, 0) + 1
            if self._halt and sum(self.asked.values()) >= self._most:
                self._halt.set("enough")
            return self.say(name, request.history.entries[0].content)

        return ScriptedModel(say)

    def find(self, name: str, **rest: object) -> Any:
        """Return the spec of a model."""
        return SimpleNamespace(open=lambda: self(name))

    def say(self, name: str, asked: str) -> str | ModelError:
        """Return the answer of a model."""
        return answer(asked, TRAINED.get(name, name))


def planned(config: EmergenceConfig, society: Society, **options: Any) -> Emergence:
    """Return a study that uses these models and writes no report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_module, "find_spec", society.find)
        return Emergence(config, **options)


def studied(config: EmergenceConfig, society: Society | None = None) -> tuple[Emergence, Figures]:
    study = planned(config, society or Society())
    assert run(study).status == "complete"
    return study, figures(study)[0]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return studied(small(tmp_path_factory.mktemp("whole")))[1].to_json()


# ---------------------------------------------------------------- the questions


def test_the_papers_domains_have_shipped_questions(tmp_path: Path):
    table = {"base": "a", "steps": [{"name": "Code", "model": "b"}]}
    shipped = convert_table(table, EmergenceConfig)

    def no_writer() -> AskedModel:
        raise LookupError("a writer is needed")

    questions = Questions(tmp_path / "kept", shipped, no_writer)
    assert questions.stages() == ()
    texts = {one.name: [task.text for task in questions.tasks(one)] for one in shipped.domains}
    assert {name: len(found) for name, found in texts.items()} == {
        "society": 20, "code": 20, "math": 20, "science": 60,
    }  # fmt: skip
    assert texts["math"] == [one.texts[0] for one in read_questions("table2_math")]
    fewer = convert_table(
        {**table, "domains": [{"name": "x", "questions": 3, "file": "table2_science"}]}, EmergenceConfig
    )
    assert [task.text for task in Questions(tmp_path / "kept", fewer, no_writer).tasks(fewer.domains[0])] == (
        texts["science"][:3]
    )
    asked = convert_table({**table, "lists": "asked"}, EmergenceConfig)
    assert not any(one.file for one in asked.domains)
    with pytest.raises(LookupError):
        Questions(tmp_path / "kept", asked, no_writer)
    own = convert_table(
        {**table, "lists": "asked", "domains": [{"name": "x", "file": "mine.jsonl"}]}, EmergenceConfig
    )
    assert own.domains[0].file == "mine.jsonl"


# ---------------------------------------------------------------- the table


def test_the_outcomes_of_the_simulated_chain_are_found_and_no_call_is_repeated(tmp_path: Path):
    society = Society()
    study, made = studied(small(tmp_path), society)
    # One list per domain; 3 models x 5 questions; 3 comparisons x 5 questions x 2 orders, and one per domain is repeated.
    assert society.asked == {"judge": 2 + 30 + 12, **dict.fromkeys(CHAIN[:3], 5)}
    assert [one.seen for one in made.totals] == [(0, 1), (1, 2), (0, 2)]
    for one in made.table:
        domain = next(domain.name for domain in DOMAINS if domain.label == one.domain)
        if one.seen == (0, 2):  # the paper has no such comparison
            assert one.paper is None
            continue
        kinds = [outcome(one.seen, domain, number) for number in range(SMALL[domain])]
        won, lost = kinds.count("after"), kinds.count("before")
        assert (one.after_wins.count, one.before_wins.count) == (won, lost)
        assert one.draws.count == len(kinds) - won - lost
        assert one.effect.value == pytest.approx((won - lost) / len(kinds))
        assert one.effect.low <= one.effect.value <= one.effect.high
        assert one.paper == PAPER[one.seen][domain]
        assert one.added == (domain == "society" and one.seen == (0, 1))
    before = sum(society.asked.values())
    assert studied(small(tmp_path), society)[1].to_json() == made.to_json()
    assert sum(society.asked.values()) == before
    assert study.contest().left() == 0
    assert study.estimate() == []


@pytest.mark.parametrize("most", [1, 9, 30])
def test_a_stopped_study_resumes_without_repeating_calls(tmp_path: Path, most: int, uninterrupted: bytes):
    halt = Halt()
    first, second = Society(most, halt), Society()
    study = planned(small(tmp_path), first, concurrency=1)
    assert run(study, halt=halt, concurrency=1).status == "halted"
    made = studied(small(tmp_path), second)[1]
    assert sum(first.asked.values()) + sum(second.asked.values()) == 2 + 15 + 30 + 12
    assert made.to_json() == uninterrupted


def test_retry_failed_repeats_a_failed_answer_and_the_verdicts_that_depend_on_it(
    tmp_path: Path, uninterrupted: bytes
):
    class Refusing(Society):
        def say(self, name: str, asked: str) -> str | ModelError:
            refused = name == CHAIN[1] and "Case 1 of society" in asked
            return ContextOverflow("too long") if refused else super().say(name, asked)

    ended = run(planned(small(tmp_path), Refusing()))
    answer, verdicts = ("ContextOverflow", 1), ("ContextOverflow", 2)
    assert [(one.name, one.count) for one in ended.failed] == [answer, verdicts, verdicts]
    society = Society()
    study = planned(small(tmp_path), society)
    assert run(study, retry_failed=True).status == "complete"
    assert society.asked == {CHAIN[1]: 1, "judge": 2 * 2}
    assert figures(study)[0].table == msgspec.json.decode(uninterrupted, type=Figures).table


def test_another_step_makes_only_the_new_calls(tmp_path: Path):
    studied(small(tmp_path))
    more, society = small(tmp_path), Society()
    third = tomllib.loads(config())["steps"][2]
    more = msgspec.structs.replace(
        more, steps=(*more.steps, msgspec.convert(third, type(more.steps[0]))), ends=False
    )
    studied(more, society)
    assert society.asked == {"judge": 2 * 5 + 2 * 2, CHAIN[3]: 5}


def test_questions_from_a_file_need_no_writer(tmp_path: Path):
    lines = [json.dumps({"question": f"Case {number} of society {EVIL}"}) for number in range(5)]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    own = {"name": "society", "title": "AI Society", "questions": 4, "file": str(tmp_path / "mine.jsonl")}
    study, made = studied(small(tmp_path, domains=[own], repeats=0))
    assert [one.written_by for one in made.domains] == [""]
    written = study.out / "questions" / "society.jsonl"
    # The file can be used to exclude the questions from training rows.
    assert [one.texts[0] for one in read_questions(str(written))] == [
        json.loads(line)["question"] for line in lines[:4]
    ]
    with pytest.raises(InputError, match="5"):
        planned(small(tmp_path, domains=[{**own, "questions": 6}]), Society())


def test_the_report_contains_no_markup_of_a_model_and_no_path(tmp_path: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_module, "find_spec", Society().find)
        study = Emergence(small(tmp_path, steps=[{"name": EVIL, "model": CHAIN[1], "adds": "math"}]))
    ended = run(study)
    assert ended.status == "complete"
    made: Figures = ended.result
    page, text = (study.out / "emergence.html").read_text(), (study.out / "emergence.md").read_text()
    assert page.count("<script") == 1, "the report's own script"
    assert "&lt;script&gt;alert(1)" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    outside = "\n".join(part for number, part in enumerate(text.split("```")) if number % 2 == 0)
    assert "<script" not in outside.replace("\\<script", "")
    for name in ("emergence.html", "emergence.md", "emergence.json"):
        assert str(tmp_path) not in (study.out / name).read_text()
    assert msgspec.json.decode((study.out / "emergence.json").read_bytes(), type=Figures) == made
    assert (study.out / "plots" / "emergence.svg").read_text().startswith("<svg")
    head, rows = plain_table(table(made))
    assert all(len(row) == len(head) for row in rows)


@pytest.mark.slow
def test_a_browser_shows_the_report_without_errors(tmp_path: Path):
    blocks = report(studied(small(tmp_path))[1])
    (tmp_path / "emergence.html").write_text(
        render_html(blocks, {plot.name: drawn(plot) for plot in blocks.plots}), "utf-8"
    )
    browse(tmp_path / "emergence.html")


# ---------------------------------------------------------------- settings


@given(st.integers(1, 500), st.integers(1, 7))
def test_questions_are_distributed_evenly_over_subjects(count: int, subjects: int):
    parts = Domain("x", count, subjects=tuple(map(str, range(subjects)))).parts
    assert sum(each for _, each in parts) == count
    assert max(each for _, each in parts) - min(each for _, each in parts) <= 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"judges": []}, id="no judge"),
        pytest.param({"steps": []}, id="no step"),
        pytest.param({"steps": [{"name": "x"}]}, id="a step without rows and model"),
        pytest.param({"steps": [{"name": "x", "rows": ["r"], "model": "m"}]}, id="a step with both"),
        pytest.param({"steps": [{"name": "x", "model": "m"}] * 2}, id="two steps with one name"),
        pytest.param({"steps": [{"name": "x", "model": "m", "adds": "y"}]}, id="an unknown domain"),
        pytest.param({"steps": [{"name": "x", "rows": ["r"]}]}, id="no model to train"),
        pytest.param({"steps": [{"name": "x", "rows": ["r"]}], "train": {"out": "y"}}, id="train.out"),
        pytest.param(
            {"steps": [{"name": "a", "model": "m"}, {"name": "b", "rows": ["r"]}], "train": {"model": "m"}},
            id="a trained step after a served one",
        ),
        pytest.param({"steps": [{"name": CHAIN[0], "model": "m"}]}, id="a step with the name of the base"),
        pytest.param({"domains": [{"name": "../x"}]}, id="a domain's name that is a path"),
        pytest.param({"domains": [{"name": "x", "questions": 0}]}, id="no question"),
        pytest.param({"base": ""}, id="no base"),
        pytest.param({"guided": "mine"}, id="an unknown value"),
    ],
)
def test_mistakes_are_reported_before_any_request(
    tmp_path: Path, change: dict[str, Any], snapshot: Callable[..., None]
):
    society = Society()
    with pytest.raises(InputError) as raised:
        planned(small(tmp_path, **change), society).contest()
    assert not society.asked
    assert "\n" not in str(raised.value)
    snapshot("errors", raised.value)


def test_errors_in_a_file_name_the_file(tmp_path: Path):
    path = tmp_path / "study.toml"
    path.write_text(config(more="typo = 1\n"))
    with pytest.raises(InputError, match=r"study.toml: .*typo"):
        read_config(path)
    path.write_text(config())
    assert read_config(path, judges=["other"], writer="").judges == ("other",)
    with pytest.raises(InputError, match="cannot read"):
        read_config(tmp_path / "none.toml")


# ---------------------------------------------------------------- models


def test_models_are_found_and_identified_by_their_weights(tmp_path: Path):
    def place(spec: str) -> Any:
        return find_place(spec, lambda line: None)

    assert (place("gpt-4").label, place("gpt-4").path, version_of(place("gpt-4"))) == ("gpt-4", None, "")
    assert place("gpt-4@http://me:secret@host:1/v1").label == "gpt-4@host:1"
    file = tmp_path / "tuned.gguf"
    file.write_bytes(b"GGUF one")
    first = version_of(place(str(file)))
    file.write_bytes(b"GGUF another")
    assert version_of(place(str(file))) != first
    training = tmp_path / "models" / "mine"
    training.mkdir(parents=True)
    for name in ("config.json", "result.json", "model.gguf"):
        (training / name).write_text(name)
    found = place(str(training))
    assert (found.name, found.path) == ("mine", training / "model.gguf")
    first = version_of(found)
    (training / "result.json").write_text("trained again")
    assert version_of(found) != first
    with pytest.raises(InputError, match="no model"):
        version_of(place(str(tmp_path)))


async def test_a_model_on_this_disk_is_served_from_its_first_call_until_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    served: list[str] = []

    @contextlib.contextmanager
    def serve(server: LocalServer, **rest: object) -> Generator[Model]:
        served.append("up")
        yield ScriptedModel(lambda request: server.alias)
        served.append("down")

    monkeypatch.setattr(local, "local_model", serve)
    (tmp_path / "tuned.gguf").write_bytes(b"GGUF")
    lent = lend(find_place(str(tmp_path / "tuned.gguf"), lambda line: None), scratch=tmp_path)
    assert not served
    for _ in range(2):
        served.clear()
        replies = await asyncio.gather(*(lent.reply(Request(History())) for _ in range(3)))
        assert [reply.content for reply in replies] == ["tuned"] * 3
        assert served == ["up"]
        await lent.rest()
        assert served == ["up", "down"]
    await lent.aclose()
    assert served == ["up", "down"]


# ---------------------------------------------------------------- trained chains


class Trainings:
    """Replaces trainings and servers; records the trainings, and the number of models served at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, society: Society) -> None:
        self._society = society
        self.done: list[TrainConfig] = []
        self.open: list[str] = []
        self.most = 0
        monkeypatch.setattr(study_module, "train", self.train)
        monkeypatch.setattr(study_module, "converter", lambda: None)
        monkeypatch.setattr(local, "local_model", self.served)

    def train(self, config: TrainConfig, **rest: Any) -> Trained:
        self.done.append(config)
        out, result = Path(config.out), Trained(config.out, 3, 7, 2.0, 1.0 / len(self.done), 0.1)
        out.mkdir(parents=True)
        for name in ("config.json", "model.gguf"):
            (out / name).write_text(config.model)
        (out / "result.json").write_bytes(msgspec.json.encode(result))
        return result

    @contextlib.contextmanager
    def served(self, server: LocalServer, **rest: Any) -> Generator[Model]:
        self.open.append(server.alias)
        self.most = max(self.most, len(self.open))
        yield self._society(server.alias)
        self.open.remove(server.alias)


def made_rows(folder: Path, said: str = "") -> list[str]:
    """Make two folders of rows; one row of the first contains `said`."""
    for name, first in (("one", 0), ("two", 5)):
        source = make_run(
            folder / "runs" / name,
            [conversation(first + n, said=said if not first + n else "") for n in range(5)],
        )
        run(RowsJob(Recipe((Source(source),), out=str(folder / name))))
    return [str(folder / "one"), str(folder / "two")]


@pytest.mark.parametrize("onward", [False, True])
def test_models_are_trained_on_growing_data_and_served_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, onward: bool
):
    one, two = made_rows(tmp_path)
    (tmp_path / "base.gguf").write_bytes(b"GGUF")
    trainings = Trainings(monkeypatch, society := Society())
    given = {
        "base": str(tmp_path / "base.gguf"), "onward": onward, "train": {"recipe": "cpu", "steps": 3}, "repeats": 0,
        "steps": [{"name": "AI Society", "rows": [one]}, {"name": "Code", "rows": [two]}],
    }  # fmt: skip
    plan = planned(small(tmp_path, **given), society)
    assert [config.steps for config in plan.untrained()] == [3, 3]
    assert {need.model for _, need in plan.estimate()} == {"judge", "base", "AI Society", "AI Society + Code"}
    study, made = studied(small(tmp_path, **given), society)
    assert [config.rows for config in trainings.done] == [(one,), (two,) if onward else (one, two)]
    first = str(tmp_path / "base.gguf")
    assert [config.model for config in trainings.done] == [first, trainings.done[0].out if onward else first]
    assert (trainings.most, trainings.open) == (1, [])
    assert [model.trained for model in made.models] == [False, True, True]
    assert made.models[2].last_loss == 0.5
    assert made.judging.money is None  # the judge's price is unknown
    assert {cost.model for cost in made.judging.costs if cost.money == 0} == {
        "base",
        "AI Society",
        "AI Society + Code",
    }
    assert not made.leaks
    # A removed training is repeated. Its model has other weights then, so only its answers and their verdicts are repeated.
    shutil.rmtree(study.members()[2].training.out)  # type: ignore[union-attr]
    society.asked.clear()
    studied(small(tmp_path, **given), society)
    assert len(trainings.done) == 3
    assert society.asked == {"AI Society + Code": 5, "judge": 2 * 2 * 5}


def test_rows_that_contain_a_question_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    leak = "Plan how a town of nine thousand people can share one single ferry between its two islands all winter"
    rows = made_rows(tmp_path, said=f"Certainly, you asked: {leak}.")
    (tmp_path / "mine.jsonl").write_text(json.dumps({"question": leak}))
    society = Society(1, halt := Halt())
    Trainings(monkeypatch, society)
    own = {"name": "society", "title": "AI Society", "questions": 1, "file": str(tmp_path / "mine.jsonl")}
    (tmp_path / "base.gguf").write_bytes(b"GGUF")
    lines: list[str] = []
    steps = [{"name": "Code", "rows": [rows[1]]}, {"name": "Chat", "rows": [rows[0]]}]
    given = small(
        tmp_path, base=str(tmp_path / "base.gguf"), domains=[own], steps=steps, train={"recipe": "cpu"}
    )
    study = planned(given, society)
    runner = Runner(study, halt=halt)
    runner.tell = lambda event, text, **fields: lines.append(text)
    assert not asyncio.run(runner.run()).complete
    assert ["1 of AI Society" in line for line in lines if line.startswith("Chat: ")] == [True]
    assert study.leaks() == {"Chat": {"AI Society": 1}}


@pytest.mark.slow
def test_humaneval_of_each_model(tmp_path: Path):
    class Programmers(Society):
        def say(self, name: str, asked: str) -> str | ModelError:
            if "def has_close_elements" not in asked:
                return super().say(name, asked)
            right = "any(abs(a - b) < threshold for i, a in enumerate(numbers) for b in numbers[:i])"
            body = right if name == CHAIN[1] else "None"
            return f"```python\ndef has_close_elements(numbers, threshold):\n    return {body}\n```"

    society = Programmers()

    given = small(
        tmp_path,
        humaneval=2,
        problems=1,
        repeats=0,
        ends=False,
        steps=[{"name": "AI Society", "model": CHAIN[1]}],
    )
    study = planned(given, society)
    assert ("HumanEval", 2) in [(name, need.calls) for name, need in study.estimate()]
    runner = Runner(study)
    assert asyncio.run(runner.run()).status == "complete"
    made = figures(study)[0]
    assert [(one.label, one.humaneval[0].rate, one.plus[0].rate) for one in made.humaneval] == [
        (CHAIN[0], 0.0, 0.0),
        ("AI Society", 1.0, 1.0),
    ]
    assert study.estimate() == []
    spent = {name: one.usage.calls for name, one in runner.meter.models.items()}
    assert spent == society.asked
    assert spent[CHAIN[1]] == 5 + 2
    assert "CAMEL-7B (paper)" in render_markdown(report(made))
    assert [(one.step, one.usage.calls) for one in made.besides] == [
        ("Questions", 2),
        ("HumanEval", 2),
        ("HumanEval", 2),
    ]
