"""From nothing to a run with a model that thinks and refuses a temperature: three commands, nothing edited."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from camel.library.run import Run
from tests.support.in_process import camel
from tests.support.providers import catalogue as p
from tests.support.providers.server import KEY, serving

MODEL = "gpt-5-mini"


def test_init_doctor_generate(tmp_path: Path):
    with serving(p.OPENAI, messages=5) as server:
        environment = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        assert camel("init", "--model", MODEL, folder=tmp_path, environment=environment).status == 0
        doctor = camel("doctor", "--json", folder=tmp_path, environment=environment)
        assert doctor.status == 0, doctor.stdout
        found = {one["check"]: one for one in json.loads(doctor.stdout)["findings"]}
        assert "temperature" in found["settings"]["says"]
        assert found["settings"]["state"] == "note"
        assert found["thinking"]["state"] == "note"
        assert found["price"]["state"] == "ok"
        done = camel("generate", folder=tmp_path, environment=environment)
        assert done.status == 0, done.stdout + done.stderr
        refused = Counter(row.error for row in server.ledger.refused)
    run = Run(tmp_path / "runs" / "camel")
    assert len(run) == 8
    assert not any(one.failed for one in run)
    assert max(refused.values()) <= 8, "the doctor is refused once a check, the run once"


def test_the_doctor_asks_every_model_of_the_configuration(tmp_path: Path):
    with serving(p.OPENAI, messages=5) as one, serving(p.plain("reasoning"), messages=5) as other:
        (tmp_path / "camel.toml").write_text(
            f'scenario = "ai_society"\n[model]\nname = "gpt-4.1-mini"\nbase_url = "{one.base_url}"\n'
            f'dialect = "openai"\n[models.user]\nmodel = "thinker@{other.base_url}"\n'
            "sampling = { temperature = 0.5 }\n"
        )
        doctor = camel("doctor", "--json", folder=tmp_path, environment={"OPENAI_API_KEY": KEY})
        found = {
            (one["of"], one["check"]): one for one in json.loads(doctor.stdout)["findings"] if one.get("of")
        }
        assert "temperature" in found["model", "settings"]["says"]
        assert found["models.user", "price"]["state"] == "warning"
        assert found["models.user", "thinking"]["state"] == "note"
        assert other.ledger.rows[0].body["temperature"] == 0.5, "what the run would send"
        assert one.ledger.rows[0].body["temperature"] == 0.2
