"""A dataset builder's whole job: a table, two models, validation, scores, a filter, splits, exports and one step of training.

The pages of docs/tables.md, with more rows. `thorough` runs it with 5,000 rows.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import warnings
from pathlib import Path

import pytest

from camel.models.simulator import Constant, SimulatorSettings
from tests.support.command import camel
from tests.support.endpoints import serve
from tests.support.tiny_model import make_model

PAGE = Path(__file__).parent.parent.parent / "docs" / "tables.md"
MOST_LINES = 60


def files_and_commands() -> tuple[dict[str, str], list[list[str]]]:
    """The files of the page, except the table, and its commands."""
    text = PAGE.read_text()
    files = dict(re.findall(r'```toml title="([^"]+)"\n(.*?)```', text, re.DOTALL))
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for body in (*files.values(), commands) for line in body.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    return files, [shlex.split(line) for line in commands.splitlines()]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_model(folder)
    return folder


def one_step(kind: str, data: str, model: Path, out: Path) -> None:
    """Train for one step with trl."""
    import datasets
    import transformers
    import trl

    rows = datasets.load_dataset("json", data_files=data, split="train").select(range(2))
    common = {
        "output_dir": str(out),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "use_cpu": True,
    }
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    if kind == "reward":
        scorer = transformers.AutoModelForSequenceClassification.from_pretrained(model, num_labels=1)
        scorer.config.pad_token_id = tokenizer.pad_token_id
        trainer = trl.RewardTrainer(
            model=scorer,
            args=trl.RewardConfig(max_length=8192, **common),
            train_dataset=rows,
            processing_class=tokenizer,
        )
    else:
        make, settings = {"sft": (trl.SFTTrainer, trl.SFTConfig), "dpo": (trl.DPOTrainer, trl.DPOConfig)}[
            kind
        ]
        trainer = make(
            model=transformers.AutoModelForCausalLM.from_pretrained(model),
            args=settings(max_length=8192, **common),
            train_dataset=rows,
            processing_class=tokenizer,
        )
    trainer.train()
    assert trainer.state.global_step == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows",
    [40, pytest.param(5_000, marks=[pytest.mark.thorough, pytest.mark.timeout(3600)])],
    ids=["small", "whole"],
)
def test_the_whole_job(tmp_path: Path, tiny_model: Path, rows: int):
    import datasets

    files, commands = files_and_commands()
    for name, body in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(body)
    with (tmp_path / "customers.csv").open("w", newline="") as file:
        table = [(f"c{n}", f"customer {n % 17}", f"My order {n} is late.", f"Rule {n}.") for n in range(rows)]
        csv.writer(file).writerows([("id", "customer", "issue", "policy"), *table])
    with serve(SimulatorSettings(length=Constant(5))) as endpoint:
        for command in commands:
            done = camel(*command[1:], cwd=tmp_path, OPENAI_BASE_URL=endpoint.base_url, OPENAI_API_KEY="none")
            assert done.status == 0, (command, done.stdout, done.stderr)
        ledger = endpoint.ledger()
    assert ledger.billed_repeats == 0
    splits = {
        name: datasets.load_dataset("json", data_files=str(tmp_path / "sft" / f"{name}.jsonl"), split="train")
        for name in ("train", "test")
    }
    customers = [
        {json.loads(row["metadata"]["inputs"])["customer"] for row in one} for one in splits.values()
    ]
    assert customers[0].isdisjoint(customers[1])
    assert all({"user", "assistant"} <= {m["role"] for m in row["messages"]} for row in splits["train"])
    whole = datasets.load_dataset(str(tmp_path / "support-dataset"), split="train")
    assert len(whole) == 2 * rows
    for kind, data in (("sft", "sft/train.jsonl"), ("dpo", "pairs.jsonl"), ("reward", "pairs.jsonl")):
        one_step(kind, str(tmp_path / data), tiny_model, tmp_path / kind)
