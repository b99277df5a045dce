"""`camel preview`: the first conversations of a run, which are part of it afterwards."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from camel.jobs.status import planned_shards
from camel.library.run import Run
from camel.models.simulator import SimulatorProcess, SimulatorSettings
from camel.runs.run import open_folder
from camel.runs.verify import verify
from tests.support.command import camel
from tests.support.endpoints import serve

SCENARIO = """
title = "Support"
[role_play]
assistant = "Agent"
user = "<PERSONA>"
task = "Help <NAME>"
specify = false
max_messages = 2
"""
LEVELS = """
title = "Trades"
[[levels]]
name = "trade"
count = 3
prompt = "trades.txt"
[[levels]]
name = "task"
count = 4
prompt = "tasks.txt"
[role_play]
assistant = "<TRADE>"
user = "Customer"
task = "<TASK>"
specify = false
max_messages = 2
"""


def prepare(folder: Path, endpoint: SimulatorProcess, rows: int) -> None:
    (folder / "support").mkdir(exist_ok=True)
    if rows:
        (folder / "support" / "scenario.toml").write_text(SCENARIO)
        with (folder / "rows.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("name", "persona"), *((f"n{n}", f"p{n}") for n in range(rows))])
    else:
        (folder / "support" / "scenario.toml").write_text(LEVELS)
        (folder / "support" / "trades.txt").write_text("List <COUNT> trades.")
        (folder / "support" / "tasks.txt").write_text("List <COUNT> tasks for a <TRADE>.")
    inputs = '[inputs]\nfrom = "rows.csv"\n' if rows else ""
    config = f'scenario = "support"\nout = "run"\n{inputs}[model]\nname = "simulated"\nbase_url = "{endpoint.base_url}"\n'
    (folder / "camel.toml").write_text(config)


def is_sound(folder: Path) -> bool:
    run = open_folder(folder / "run")
    report = verify(run, planned_shards(run))
    return report.sound and report.complete


@pytest.mark.parametrize("rows", [12, 0], ids=["table", "levels"])
def test_a_preview_counts(tmp_path: Path, rows: int):
    with serve(SimulatorSettings(length=None)) as endpoint:
        prepare(tmp_path, endpoint, rows)
        shown = camel("preview", "camel.toml", "-n", "3", cwd=tmp_path)
        assert shown.status == 0, shown.stderr
        assert len(Run(tmp_path / "run")) == 3
        assert is_sound(tmp_path)
        first = {one.id: one for one in Run(tmp_path / "run")}
        assert all(one.messages[0].content.split()[0] in shown.stdout for one in first.values())
        paid = endpoint.ledger().billed
        assert paid == (6 if rows else 6 + 2), "only the lists that the preview needs"
        assert camel("preview", "camel.toml", "-n", "3", cwd=tmp_path).status == 0
        assert endpoint.ledger().billed == paid, "a second preview shows the same ones"
        done = camel("generate", "camel.toml", cwd=tmp_path)
        assert done.status == 0, done.stderr
        run = {one.id: one for one in Run(tmp_path / "run")}
        assert len(run) == 12
        assert first.items() <= run.items()
        assert is_sound(tmp_path)
        assert endpoint.ledger().billed_repeats == 0
        assert endpoint.ledger().billed == (24 if rows else 24 + 4)


@pytest.mark.parametrize("rows", [12, 0], ids=["table", "levels"])
def test_prompts_may_change_while_there_is_only_a_preview(tmp_path: Path, rows: int):
    with serve(SimulatorSettings(length=None)) as endpoint:
        prepare(tmp_path, endpoint, rows)
        camel("preview", "camel.toml", "-n", "2", cwd=tmp_path)
        declared = tmp_path / "support" / "scenario.toml"
        declared.write_text(declared.read_text().replace("specify = false", "specify = true"))
        again = camel("preview", "camel.toml", "-n", "2", cwd=tmp_path)
        assert again.status == 0, again.stderr
        assert "again" in again.stdout
        assert {bool(one.task.specified) for one in Run(tmp_path / "run")} == {True}
        assert camel("generate", "camel.toml", cwd=tmp_path).status == 0
        declared.write_text(declared.read_text().replace("specify = true", "specify = false"))
        refused = camel("generate", "camel.toml", cwd=tmp_path)
        assert refused.status == 2
        assert "--reuse-lists" in refused.stderr
        assert len(Run(tmp_path / "run")) == 12


def test_limits_per_row(tmp_path: Path):
    dialogue = """title = "Chat"
[dialogue]
opening = "<NAME>"
[[dialogue.seats]]
name = "a"
[[dialogue.seats]]
name = "b"
role = "<PERSONA>"
"""
    with serve(SimulatorSettings(length=None)) as endpoint:
        for kind, declared in (("role", SCENARIO), ("dialogue", dialogue)):
            prepare(tmp_path, endpoint, 3)
            (tmp_path / "support" / "scenario.toml").write_text(declared)
            (tmp_path / "rows.csv").write_text("name,persona,turns,length\nx,p,4,7\ny,p,6,9\nz,p,,\n")
            config = (tmp_path / "camel.toml").read_text().replace('out = "run"', f'out = "{kind}"')
            limits = 'from = "rows.csv"\nmax_messages = "turns"\nmax_tokens = "length"'
            (tmp_path / "camel.toml").write_text(
                config.replace('from = "rows.csv"', limits) + '\n[run]\ncut_replies = "keep"\n'
            )
            done = camel("generate", "camel.toml", cwd=tmp_path)
            assert done.status == 0, done.stderr
            run = {one.inputs["name"]: one for one in Run(tmp_path / kind)}
            tokens = {name: one.speakers[-1].sampling.max_tokens for name, one in run.items()}
            assert (tokens["x"], tokens["y"], tokens["z"]) == (7, 9, None)
            assert len(run["x"].messages) <= 4 < len(run["y"].messages) <= 6
            assert all(set(one.inputs) == {"name", "persona", "turns", "length"} for one in run.values())


def test_another_process_reads_the_same_settings(tmp_path: Path):
    """The columns of a dialogue are a set, whose order differs between processes."""
    seat = '[[dialogue.seats]]\nname = "{}"\nrole = "<{}>"\n'
    body = "".join(seat.format(name, f"COLUMN_{name.upper()}") for name in ("ada", "bob", "cleo", "dan"))
    (tmp_path / "scenario.toml").write_text(f'title = "Chat"\n[dialogue]\ntask = "<TOPIC> <PLACE>"\n{body}')
    code = "from camel.scenarios.checking import columns_of, load; print(columns_of(load('./')))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(found) == 1


def test_an_export_after_rows_were_removed_is_complete_and_names_the_license(tmp_path: Path):
    with serve(SimulatorSettings(length=None)) as endpoint:
        prepare(tmp_path, endpoint, 6)
        config = tmp_path / "camel.toml"
        config.write_text(
            config.read_text().replace('from = "rows.csv"', 'from = "rows.csv"\nlicense = "cc0-1.0"')
        )
        assert camel("generate", "camel.toml", cwd=tmp_path).status == 0
        rows = (tmp_path / "rows.csv").read_text().splitlines()
        (tmp_path / "rows.csv").write_text("\n".join(rows[:-2]) + "\n")
        assert camel("generate", "camel.toml", cwd=tmp_path).status == 0
    done = camel("export", "run", "dataset", "out", cwd=tmp_path)
    assert done.status == 0
    assert not done.stderr, "nothing is missing"
    card = (tmp_path / "out" / "README.md").read_text()
    assert "License of the inputs: cc0-1.0" in card
    assert "of 6" not in card
