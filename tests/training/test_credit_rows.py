"""trl takes a step on the rows of `credit`. Versions of trl after 1.13 have no PRMTrainer, so that version is in `aside`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from camel.evaluation.credit_report import Rows
from tests.library.test_credit import World, credited, record
from tests.support.aside import ASIDE, with_aside
from tests.support.tiny_model import make_model

STEP = """
import json, sys, warnings
from pathlib import Path

import datasets, torch, transformers, trl

kind, folder = sys.argv[1], Path(sys.argv[2])
rows = datasets.load_dataset("json", data_files=str(folder / f"{kind}.jsonl"), split="train")
tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
if kind == "process_reward":
    from trl.experimental.prm import PRMConfig as Settings, PRMTrainer as Trainer

    model = transformers.AutoModelForTokenClassification.from_pretrained(folder / "model", num_labels=2)
else:
    from trl import DPOConfig as Settings, DPOTrainer as Trainer

    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
before = {name: one.detach().clone() for name, one in model.named_parameters()}
settings = Settings(output_dir=str(folder / "out"), max_steps=1, max_length=512, learning_rate=1e-3, report_to=[], use_cpu=True, bf16=False, save_strategy="no")
trainer = Trainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
loss = trainer.train().training_loss
changed = sum(not torch.equal(one, before[name]) for name, one in trainer.model.named_parameters())
print(json.dumps({"trl": trl.__version__, "rows": len(trainer.train_dataset), "loss": loss, "steps": trainer.state.global_step, "changed": changed}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["step_preferences", "process_reward"])
def test_trl_takes_a_step(tmp_path: Path, kind: Rows):
    pytest.importorskip("trl")
    made = credited([record(n, 4) for n in range(8)], World(), tmp_path / "credit")
    rows = list(made.rows(kind))
    (tmp_path / f"{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make_model(tmp_path / "model")
    if kind == "process_reward" and not ASIDE.exists():
        pytest.skip("needs the folder that tools/environment makes")
    environment = with_aside(tmp_path) if kind == "process_reward" else dict(os.environ)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", STEP, kind, str(tmp_path)], env=environment, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    step = json.loads(done.stdout.splitlines()[-1])
    assert step["steps"] == 1
    assert step["loss"] > 0
    assert step["changed"] > 10
    assert step["rows"] == len(rows) > 0
    assert (step["trl"] == "1.13.0") == (kind == "process_reward")
