"""trl takes a step on process-reward rows. Versions after 1.13 have no PRMTrainer, so that version is in `aside`.

tests/formats/test_in_and_out.py does the same with step preferences and the current version.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.library.test_credit import World, credited, record
from tests.support.aside import ASIDE, with_aside

STEP = """
import json, sys
from pathlib import Path

import datasets, torch, transformers, trl
from trl.experimental.prm import PRMConfig, PRMTrainer
from tests.support.tiny_model import make_model

folder = Path(sys.argv[1])
make_model(folder / "model")
rows = datasets.load_dataset("json", data_files=str(folder / "rows.jsonl"), split="train")
tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
model = transformers.AutoModelForTokenClassification.from_pretrained(folder / "model", num_labels=2)
before = {name: one.detach().clone() for name, one in model.named_parameters()}
given = {"max_steps": 1, "max_length": 512, "learning_rate": 1e-3, "report_to": [], "use_cpu": True, "bf16": False}
settings = PRMConfig(output_dir=str(folder / "out"), save_strategy="no", **given)
trainer = PRMTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
loss = trainer.train().training_loss
changed = sum(not torch.equal(one, before[name]) for name, one in trainer.model.named_parameters())
labels = [[one for one in row["labels"] if one >= 0] for row in trainer.train_dataset]
print(json.dumps({"trl": trl.__version__, "labels": labels, "loss": loss, "changed": changed}))
"""


@pytest.mark.slow
def test_trl_takes_a_step_on_process_rewards(tmp_path: Path):
    if not ASIDE.exists():
        pytest.skip("needs the folder that tools/environment makes")
    rows = list(
        credited([record(n, 4) for n in range(8)], World(), tmp_path / "credit").rows("process_reward")
    )
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-W", "ignore", "-c", STEP, str(tmp_path)]
    done = subprocess.run(command, env=with_aside(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    step = json.loads(done.stdout.splitlines()[-1])
    assert step["trl"] == "1.13.0"
    assert step["labels"] == [[int(one) for one in row["labels"]] for row in rows]
    assert step["loss"] > 0
    assert step["changed"] > 10
