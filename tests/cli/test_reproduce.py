"""`camel reproduce` as a user sees it: plans, the gate, small runs, stops, with the endpoint's ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from camel import InputError, Run
from camel.library.reproduction import RESULTS, Reproduction
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from camel.training.emergence.emergence_config import read_config
from tests.support import command
from tests.support.endpoints import serve
from tests.support.in_process import Done

NEEDS = {
    "table-1": {"judges": ["gpt-4.1"]},
    "table-2": {"judges": ["gpt-4.1"], "base_model": "base"},
    "misalignment": {"acknowledge": ["misalignment"]},
}
SIZES = {
    "table-1": ["50 × 2 × 1 = 100", "20 × 5 × 1 = 100"],
    "table-2": ["= 25,000", "= 50,000", "= 50,000", "= 20,000", "= 20,000", "= 20,000"],
    "table-3": ["200 programs for each of 164 problems"],
    "ai-society": ["50 × 50 × 10 = 25,000 conversations"],
    "code": ["20 × 50 × 50 = 50,000 conversations"],
    "math": ["25 × 25 × 80 = 50,000 problems"],
    "science": 3 * ["25 × 25 × 32 = 20,000 problems"],
    "misalignment": ["50 × 50 × 10 = 25,000 conversations"],
}
STEPS = {
    "table-1": ["generate", "generate", "evaluate agents"],
    "table-2": [*6 * ["generate"], *4 * ["rows"], "evaluate emergence"],
    "table-3": ["evaluate humaneval"],
    "science": [*3 * ["generate"], *3 * ["export"]],
    "math": ["generate", "export"],
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=Constant(5))) as process:
        yield process


@pytest.fixture
def camel(endpoint: SimulatorProcess, tmp_path: Path) -> Callable[..., Done]:
    def run(*args: str) -> Done:
        environment = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": endpoint.base_url}
        return command.camel("reproduce", *args, cwd=tmp_path, **environment)

    return run


def planned(name: str, small: bool = False, model: str = "gpt-4.1-mini") -> Reproduction:
    return Reproduction(name, Path("out"), model, small=small, **NEEDS.get(name, {}))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "base").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", RESULTS)
def test_the_plan_has_the_sizes_of_the_paper(name: str):
    made = planned(name)
    titles = [step.title for step in made.steps if step.arguments[0] == "generate" or name == "table-3"]
    assert len(titles) == len(SIZES[name])
    for title, size in zip(titles, SIZES[name], strict=True):
        assert size in title
    found = [" ".join(step.arguments[: 1 + (step.arguments[0] == "evaluate")]) for step in made.steps]
    assert found == STEPS.get(name, ["generate", "export", "export"])
    for step in made.steps:
        assert bool(step.estimate) == (step.arguments[0] in ("generate", "evaluate"))
        assert bool(step.cost) == bool(step.estimate)
    small = planned(name, small=True)
    assert sum(step.cost or 0 for step in small.steps) < 2
    assert [step.title.partition(":")[0] for step in small.steps if name != "table-3"] == [
        step.title.partition(":")[0] for step in made.steps if name != "table-3"
    ]
    assert not Path("out").exists()


def test_the_study_of_table_2_is_the_paper_s(folder: Path):
    made = planned("table-2")
    made.write()
    assert len(made.files) == 7
    study = read_config(folder / "out/configs/table_2.toml")
    assert [one.name for one in study.steps] == ["AI Society", "Code", "Math", "Science"]
    assert [one.questions for one in study.domains] == [20, 20, 20, 60]
    assert study.train == {"recipe": "paper", "chat_template": "vicuna"}
    rows = [step.result for step in made.steps if step.arguments[0] == "rows"]
    assert [one.rows[0] for one in study.steps] == rows
    # 120 questions, 20 of them twice, in both orders, of five pairs of models.
    assert "about 1.40k calls" in made.steps[-1].estimate
    with pytest.raises(InputError, match="--out"):
        Reproduction("table-2", Path("out"), "gpt-4.1-mini", judges=["x"], base_model=".")


def test_files_may_be_edited_but_not_resized(folder: Path):
    made = planned("ai-society", small=True, model="mine")
    assert made.steps[0].cost is None
    made.write()
    path = folder / "out/configs/ai_society.toml"
    path.write_text(path.read_text() + "price = { input = 1.0, output = 2.0 }\n")
    assert planned("ai-society", small=True, model="mine").steps[0].cost
    for small, model in ((False, "mine"), (True, "other")):
        with pytest.raises(InputError, match="--out"):
            planned("ai-society", small=small, model=model)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["tabel-1"], "table-1"),
        (["table-1"], "--judge"),
        (["table-2", "--judge", "x"], "--base-model"),
        (["table-2", "--judge", "x", "--base-model", "nowhere"], "nowhere"),
        (["code", "--judge", "x"], "--judge"),
        (["code", "--local", "--model", "x"], "--local"),
        (["table-1", "--judge", "camel.toml"], "--judge"),
        (["code", "--out", "s3://bucket/paper"], "--out"),
        (["misalignment"], "--acknowledge misalignment"),
        (["misalignment", "--acknowledge", "all"], "--acknowledge"),
        (["code"], "--yes"),
        (["code", "--yes", "--model", "unpriced", "--budget-usd", "1"], "--budget-usd"),
    ],
)
def test_mistakes_cost_nothing(
    endpoint: SimulatorProcess, camel: Callable[..., Done], tmp_path: Path, args: list[str], says: str
):
    asked = endpoint.ledger().requests
    refused = camel(*args)
    assert refused.status == 2
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert endpoint.ledger().requests == asked
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_dataset(endpoint: SimulatorProcess, camel: Callable[..., Done], tmp_path: Path):
    command = ("ai-society", "--model", "gpt-4.1-mini", "--small")
    asked = endpoint.ledger().requests
    plan = camel(*command, "--dry-run")
    assert plan.status == 0
    assert "1 × 2 × 2 = 4 conversations" in plan.stdout
    assert "Likely remaining cost: $0." in plan.stdout
    assert endpoint.ledger().requests == asked
    assert not [*tmp_path.iterdir()]

    stopped = camel(*command, "--yes", "--budget-usd", "0.005")
    assert stopped.status == 3
    assert "stopped at step 1 of 3. To continue: camel reproduce ai-society" in stopped.stdout
    done = camel(*command, "--yes")
    assert done.status == 0, done.stdout + done.stderr
    out = tmp_path / "reproduction-small"
    assert len(Run(out / "runs/ai_society")) == 4
    assert len(json.loads((out / "datasets/ai_society_instructions.json").read_text())) == 8
    assert (out / "datasets/ai_society_chat.tar.gz").is_file()
    assert endpoint.ledger().billed_repeats == 0

    paid = endpoint.ledger().requests
    again = camel(*command, "--yes", "--budget-usd", "5")
    assert again.status == 0, again.stdout + again.stderr
    assert "Likely remaining cost: $0.00" in again.stdout
    assert endpoint.ledger().requests == paid


@pytest.mark.slow
def test_table_1(camel: Callable[..., Done], endpoint: SimulatorProcess, tmp_path: Path):
    command = ("table-1", "--model", "gpt-4.1-mini", "--judge", "gpt-4.1", "--small", "--yes")
    stopped = camel(*command, "--budget-usd", "0.05")
    assert stopped.status == 3, stopped.stdout
    spent = sum(Run(one).status().money or 0 for one in (tmp_path / "reproduction-small/runs").iterdir())
    assert 0 < spent < 0.06, "the budget is that of all commands together"
    done = camel(*command)
    assert done.status == 0, done.stdout + done.stderr
    assert "AI Society, fixed tasks" in done.stdout
    assert (tmp_path / "reproduction-small/table-1/evaluation.html").is_file()
    paid = endpoint.ledger().requests
    again = camel(*command)
    assert "Likely remaining cost: $0.00" in again.stdout
    assert endpoint.ledger().requests == paid
    other = camel(*command, "--judge", "gpt-4o", "--dry-run")
    assert "Likely remaining cost: $0.00" not in other.stdout


@pytest.mark.slow
def test_misalignment_is_labeled(camel: Callable[..., Done], tmp_path: Path):
    command = ("misalignment", "--small", "--yes", "--model", "gpt-4.1-mini")
    done = camel(*command, "--acknowledge", "misalignment")
    assert done.status == 0, done.stdout + done.stderr
    assert all("misalignment" in one.labels for one in Run(tmp_path / "reproduction-small/runs/misalignment"))
    # The file that is there now has the acknowledgment, but the user has to give it each time.
    refused = camel(*command)
    assert refused.status == 2
    assert "--acknowledge misalignment" in refused.stderr


@pytest.mark.slow
def test_a_failing_step_is_named(camel: Callable[..., Done], tmp_path: Path):
    command = ("math", "--small", "--yes", "--model", "gpt-4.1-mini")
    assert camel(*command).status == 0
    path = tmp_path / "reproduction-small/configs/math.toml"
    text = path.read_text()
    path.write_text(f"seed = 5\n{text}")
    failed = camel(*command)
    assert failed.status == 2
    assert "step 1 of 2 failed. To continue after a fix: camel reproduce math" in failed.stderr
    assert "seed" in failed.stderr
    path.write_text(text)
    assert camel(*command).status == 0
