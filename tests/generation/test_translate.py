"""Translation: markers kept, damage found and fixed, nothing paid twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from camel import ChatModel, InputError, Run, ScriptedModel, Transcript
from camel.core.message import Deliberation, Message, Proposal, Sampling, Usage
from camel.core.model import Choice, Model, Reply, Request
from camel.core.stops import Stop
from camel.core.task import Task
from camel.engine.halt import Halt
from camel.generation.translate import Translation, damage, damaged_in
from camel.jobs.budget import Budget
from camel.jobs.ledger import spent_on
from camel.jobs.runner import Outcome, Runner
from camel.jobs.status import read_status
from camel.models.connect import NamedModel
from camel.models.prices import ModelPrice
from camel.models.simulator import SimulatorSettings
from camel.record.arrow import write_shard
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from camel.runs.verify import verify
from camel.scenarios import Translate, load
from tests.support.endpoints import serve

TRANSLATE = load("translation").end
assert isinstance(TRANSLATE, Translate)
ASK = "Instruction: Explain how the bot reads its prices.\nInput: None"


@pytest.mark.parametrize(
    ("translated", "language", "wrong"),
    [
        ("Instruction: Erkläre, wie der Bot seine Preise liest.\nInput: None", "de", ""),
        ("Instruction: Объясни, как бот читает свои цены.\nInput: None", "ru", ""),
        ("Anweisung: Erkläre, wie der Bot seine Preise liest.\nEingabe: Keine", "de", "marker"),
        ("Input: None\nInstruction: Erkläre, wie der Bot seine Preise liest.", "de", "marker"),
        ("Instruction: \nInput: None", "de", "length|empty"),
        (ASK, "de", "not translated"),
        (ASK, "ru", "not in the language"),
        ("Instruction: " + "sehr " * 200 + "\nInput: None", "de", "length"),
    ],
)
def test_damage_is_seen(translated: str, language: str, wrong: str):
    found = damage(ASK, translated, language, TRANSLATE)
    assert bool(found) == bool(wrong)
    assert any(word in found for word in wrong.split("|"))


def a_run(folder: Path, conversations: int) -> Run:
    run = RunFolder(folder)
    run.create(Settings("f", {}, "0"))
    records = [
        Transcript(
            f"{i:03d}",
            Task("t"),
            messages=[
                Message(0, "user", "Trader", ASK),
                Message(
                    1,
                    "assistant",
                    "Programmer",
                    f"Solution: It polls the exchange every {i} seconds.\nNext request.",
                    deliberation=Deliberation(
                        "m", (Proposal("Solution: No."), Proposal("Solution: Yes.")), 1
                    ),
                ),
                Message(2, "user", "Trader", "<CAMEL_TASK_DONE>"),
            ],
            stop=Stop("done", "done"),
            inputs={"number": str(i), "word": ""},
        )
        for i in range(conversations)
    ]
    path = run.data_path("conversations", 0, "a", ".parquet")
    written = write_shard(path, records)
    assert run.commit(
        Marker("conversations", 0, str(path.relative_to(folder)), written.rows, written.sha256, "f")
    )
    return Run(folder)


def translation(run: Run, language: str, model: Model, **more: Any) -> Translation:
    return Translation(run.folder.address, (language,), model, **more)


async def translated(run: Run, language: str, model: Model, **options: Any) -> Outcome:
    return await Runner(translation(run, language, model), **options).run()


async def test_a_damaged_reply_is_asked_for_again(tmp_path: Path):
    good = "Instruction: Erkläre, wie der Bot seine Preise liest.\nInput: None"
    model = ScriptedModel(
        [ASK, "Solution: Er fragt die Börse alle 0 Sekunden ab.\nNext request.", "Nein.", good]
    )
    assert (await translated(a_run(tmp_path, 1), "de", model)).result == {"de": 0}
    assert "not translated" in model.heard[2][-1].content
    assert "marker" in model.heard[3][-1].content
    (record,) = Run(tmp_path, stage="translated-de")
    assert [m.content for m in record.messages] == [
        good,
        "Solution: Er fragt die Börse alle 0 Sekunden ab.\nNext request.",
        "<CAMEL_TASK_DONE>",
    ]
    assert record.inputs == {"number": "0", "word": "", "language": "de"}
    assert record.messages[0].move.instruction
    assert record.messages[0].usage.calls == 3
    assert all(message.deliberation is None for message in record.messages), "that was in another language"


async def test_a_translation_that_cannot_be_fixed_is_kept_and_labeled(tmp_path: Path):
    model = ScriptedModel(lambda request: "Nein.")
    assert (await translated(a_run(tmp_path, 1), "de", model)).result == {"de": 1}
    (record,) = Run(tmp_path, stage="translated-de")
    assert record.labels == ["damaged-translation"]


def test_an_unknown_language_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"xx.*\bde\b"):
        translation(a_run(tmp_path, 1), "xx", ScriptedModel([]))


def test_a_run_into_two_languages_and_nothing_is_done_twice(tmp_path: Path):
    run = a_run(tmp_path, 8)
    with serve(SimulatorSettings()) as endpoint:

        async def both() -> None:
            async with ChatModel("simulated", base_url=endpoint.base_url, api_key="") as model:
                for language in ("ar", "fr"):
                    assert (await translated(run, language, model)).complete
                    assert damaged_in(run.folder, language) == 0

        asyncio.run(both())
        paid = endpoint.ledger().requests
        assert paid == 2 * 2 * 8
        asyncio.run(both())
        assert endpoint.ledger().requests == paid
        ledger = endpoint.ledger()
    stages = {stage.name: stage for stage in read_status(tmp_path).stages}
    assert stages["translated-ar"].committed == stages["translated-ar"].planned == 8
    used = stages["translated-ar"].tokens + stages["translated-fr"].tokens
    assert used == ledger.prompt_tokens + ledger.completion_tokens
    for language in ("ar", "fr"):
        records = list(Run(tmp_path, stage=f"translated-{language}"))
        assert [record.id for record in records] == [f"{i:03d}" for i in range(8)]


async def test_another_model_is_refused_by_name(tmp_path: Path):
    run = a_run(tmp_path, 1)
    first = ScriptedModel(lambda request: "Nein.", name="first")
    assert (await translated(run, "de", first)).complete
    assert verify(run.folder).sound
    with pytest.raises(InputError, match=r"'first'.*'second'.*--model first"):
        await translated(run, "de", ScriptedModel([], name="second"))
    # Where nothing has been paid yet, another may begin.
    for model in (first, ScriptedModel([], name="second")):
        runner = Runner(translation(run, "fr", model))
        with run.folder.locked():
            assert runner.state.outline
    with pytest.raises(InputError, match="sampling was"):
        await Runner(translation(run, "de", first, sampling=Sampling(temperature=1.0))).run()


async def test_another_model_continues_once_the_change_is_accepted(tmp_path: Path):
    run, halt = a_run(tmp_path, 2), Halt()

    def reply(request: Request) -> str:
        halt.set("stopped by you")
        return "Nein."

    stopped = await translated(run, "de", ScriptedModel(reply, name="first"), concurrency=1, halt=halt)
    assert stopped.status == "stopped"
    second = ScriptedModel(lambda request: "Nein.", name="second")
    assert (await translated(run, "de", second, accept=["model.name"])).complete
    assert {message.model for record in Run(tmp_path, stage="translated-de") for message in record.messages}


async def test_a_stop_keeps_what_was_paid_and_says_so(tmp_path: Path):
    run, halt = a_run(tmp_path, 5), Halt()

    def reply(request: Request) -> str:
        halt.set("stopped by you")
        return "Nein."

    model = ScriptedModel(reply)
    assert (await translated(run, "de", model, halt=halt, concurrency=1)).status == "stopped"
    paid = len(model.heard)
    assert paid == 1
    assert (await translated(run, "de", model, concurrency=1)).complete
    assert len(model.heard) == 5 * 2 * 3, "three tries for each of two messages, and none twice"


async def test_a_budget_holds_over_languages_and_starts(tmp_path: Path):
    run = a_run(tmp_path, 5)
    paid = 0

    def reply(request: Request) -> Reply:
        nonlocal paid
        paid += 1
        return Reply((Choice("Nein."),), Usage(40, 2, calls=1))

    async def start(calls: int) -> str:
        both = Translation(run.folder.address, ("de", "fr"), ScriptedModel(reply))
        return (await Runner(both, budget=Budget(calls=calls), concurrency=2).run()).reason

    for most in (7, 20, 45):
        assert "the budget of" in await start(most)
        assert paid == most
    assert not await start(100)
    assert paid == 2 * 5 * 2 * 3
    spent = [spent_on(run.folder, [f"translated-{code}"]) for code in ("de", "fr")]
    assert spent == [Usage(30 * 40, 30 * 2, calls=30)] * 2


async def test_what_was_paid_at_another_price_stays_paid(tmp_path: Path):
    run, dear, cheap = a_run(tmp_path, 5), ModelPrice(2.0, 8.0), ModelPrice(1.0, 4.0)
    reply = Reply((Choice("Nein."),), Usage(1_000, 1_000, calls=1))

    async def priced(price: ModelPrice) -> Runner:
        model = NamedModel(ScriptedModel(lambda request: reply), "m", price)
        runner = Runner(translation(run, "de", model), concurrency=2)
        assert (await runner.run()).complete
        return runner

    first = await priced(dear)
    assert first.meter.money
    assert first.meter.before.usd == 0
    later = await priced(cheap)
    assert later.meter.money == later.meter.before.usd == pytest.approx(first.meter.money)


async def test_the_cost_is_estimated_before_the_translation_and_nothing_is_left_after_it(tmp_path: Path):
    run = a_run(tmp_path, 20)
    done = translation(run, "de", ScriptedModel(lambda request: "Nein."))
    before = done.estimator(done.open()).expected()
    assert before.calls == 2 * 20, "the last message of each is a marker alone"
    words = sum(len(message.content) for record in run for message in record.messages) // 5
    assert words / 2 < before.completion < 2 * words
    assert before.prompt > before.completion
    assert (await Runner(done).run()).complete
    assert list(done.estimator(done.open()).forecast()) == []


def test_a_run_as_tables(tmp_path: Path):
    run = a_run(tmp_path, 5)
    assert len(run) == 5
    assert run.sql("select stop.reason, count(*) from run group by 1").fetchall() == [("done", 5)]
    assert list(run.to_pandas(["id"])["id"]) == [f"{i:03d}" for i in range(5)]
    assert run.to_arrow().num_rows == 5


@pytest.mark.slow
def test_a_run_as_a_hugging_face_dataset(tmp_path: Path):
    # In a process of its own: `datasets` reads where its cache is when it is imported.
    script = """
import shutil, sys
from pathlib import Path
from camel import Run
place = Path(sys.argv[1])
for folder in sys.argv[2:]:  # in the same place: the cache must not answer for the run that was there before
    shutil.rmtree(place, ignore_errors=True)
    shutil.move(folder, place)
    run = Run(place)
    data = run.to_hf()
    assert data["id"][:] == [record.id for record in run], data["id"]
    assert [row["content"] for row in data[3]["messages"]] == [m.content for m in list(run)[3].messages]
    assert data[3]["inputs"] == [{"key": "number", "value": "3"}, {"key": "word", "value": ""}], data[3]["inputs"]
    print(len(data))
"""
    for rows in (5, 6):
        a_run(tmp_path / str(rows), rows)
    done = subprocess.run(
        [sys.executable, "-c", script, *(str(tmp_path / name) for name in ("run", "5", "6"))],
        env={**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5\n6\n"
