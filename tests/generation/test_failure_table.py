"""The failure policy through the whole program, against a real HTTP server, by the server's account."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel.generation.config import read_config
from camel.library.run import Run
from camel.models.simulator import Constant, SimulatorSettings
from tests.support.failing import (
    CONVERSATIONS,
    COUNTS,
    MODERATED,
    NO_CREDIT,
    NO_MODEL,
    NO_TEMPERATURE,
    ODD,
    REVOKED,
    exported,
    failures,
    generate,
    is_agent,
    refusing_conversations,
    refusing_one_list,
    spoil,
    written,
)
from tests.support.in_process import Done, camel
from tests.support.jobs import generation
from tests.support.moody import Answer, Moody, moody, moody_here
from tests.support.virtual_time import now, virtual_time

pytest.importorskip("pyarrow")


@pytest.fixture
def endpoint() -> Iterator[Moody]:
    with moody(SimulatorSettings(length=Constant(5), words=12)) as made:
        yield made


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (NO_MODEL, "does not exist"),
        (NO_TEMPERATURE, "temperature"),
        (REVOKED, "Incorrect"),
        (NO_CREDIT, "balance"),
    ],
    ids=["model", "parameter", "key", "credit"],
)
def test_rejected_from_the_start(endpoint: Moody, tmp_path: Path, answer: Answer, words: str):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = lambda body, count: answer
    done = generate(tmp_path)
    assert done.status == 3, done.stdout + done.stderr
    assert words in done.stdout + done.stderr
    assert not endpoint.served
    assert not list((tmp_path / "run" / "committed").rglob("*.json"))
    endpoint.mood = lambda body, count: None
    assert generate(tmp_path).status == 0
    assert len(Run(tmp_path / "run")) == CONVERSATIONS


@pytest.mark.parametrize("answer", [NO_MODEL, NO_TEMPERATURE, REVOKED], ids=["model", "parameter", "key"])
def test_rejected_after_a_third_of_the_calls(endpoint: Moody, tmp_path: Path, answer: Answer):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = lambda body, count: answer if count > 40 else None
    done = generate(tmp_path)
    assert done.status == 3, done.stdout + done.stderr
    before = len(endpoint.served)
    assert before == 41
    endpoint.mood = lambda body, count: None
    done = generate(tmp_path)
    assert done.status == 0, done.stdout + done.stderr
    assert not failures(tmp_path)
    # Plain questions of the policy aside, nothing is paid for twice.
    calls = Counter(body for body in endpoint.served if is_agent(json.loads(body)))
    assert set(calls.values()) == {1}


@pytest.mark.parametrize(
    ("answer", "name"),
    [(MODERATED, "ContentRejected"), (ODD, "ContentRejected")],
    ids=["moderation", "unknown 400"],
)
def test_some_items_are_refused(endpoint: Moody, tmp_path: Path, answer: Answer, name: str):
    """The conversations of one role of five fail, and the others are complete."""
    written(tmp_path, endpoint.base_url)
    endpoint.mood = refusing_conversations(3, answer)
    done = generate(tmp_path)
    assert done.status == 4, done.stdout + done.stderr
    found = failures(tmp_path)
    assert set(found) == {name}
    assert name in done.stdout + done.stderr
    assert len(exported(tmp_path)) == CONVERSATIONS - found.total()
    asked = len(endpoint.requests)
    assert generate(tmp_path).status == 4
    assert len(endpoint.requests) == asked, "a finished run asks nobody"


@pytest.mark.parametrize("bad", ["garbage", "404", "401", "refused", "500"])
def test_one_of_three_replicas_is_bad(tmp_path: Path, bad: str):
    answers: dict[str, Any] = {
        "garbage": Answer(200, "<html>hello</html>"),
        "404": NO_MODEL,
        "401": REVOKED,
        "refused": "hang up",
        "500": Answer(500, "oops"),
    }
    settings = SimulatorSettings(length=Constant(5), words=12)
    with moody(settings) as one, moody(settings) as two, moody(settings) as three:
        two.mood = lambda body, count: answers[bad]
        written(tmp_path, [one.base_url, two.base_url, three.base_url])
        done = generate(tmp_path)
        assert done.status == 0, done.stdout + done.stderr
        assert len(exported(tmp_path)) == CONVERSATIONS
        total = len(one.requests) + len(three.requests)
        assert len(two.requests) < total / 4, "it is left alone"


@pytest.mark.parametrize("kind", ["empty", "cut", "filtered"])
def test_replies_that_cannot_be_used_are_in_no_export(endpoint: Moody, tmp_path: Path, kind: str):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = lambda body, count: spoil(kind) if is_agent(body) and count % 20 == 0 else None
    assert generate(tmp_path).status == 0, "each was asked for again"
    rows = exported(tmp_path)
    assert len(rows) == CONVERSATIONS
    texts = [message["content"] for row in rows for message in row["messages"]]
    assert all(texts)
    assert not any("SPOILED" in text for text in texts)


def test_a_reply_that_never_can_be_used_is_a_failure_of_its_item(endpoint: Moody, tmp_path: Path):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = lambda body, count: spoil("cut") if is_agent(body) and len(body["messages"]) > 3 else None
    done = generate(tmp_path)
    assert done.status == 4, done.stdout + done.stderr
    assert failures(tmp_path) == {"CutReply": CONVERSATIONS}
    assert "CutReply" in done.stdout + done.stderr
    done = camel("export", "run", "messages", "out.jsonl", folder=tmp_path)
    assert done.status != 0 or not (tmp_path / "out.jsonl").read_text()
    kept = tmp_path / "kept"
    kept.mkdir()
    written(kept, endpoint.base_url, 'cut_replies = "keep"')
    assert generate(kept).status == 0
    assert len(exported(kept)) == CONVERSATIONS


def test_what_bad_replies_took_is_counted(endpoint: Moody, tmp_path: Path):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = lambda body, count: (
        spoil("empty") if is_agent(body) and len(body["messages"]) > 3 else None
    )
    assert generate(tmp_path).status == 4
    run = Run(tmp_path / "run")
    stages = ("assistant_role", "user_role", "task", "conversations")
    markers = [
        marker for stage in stages for marker in run.folder.markers(stage, run.folder.committed(stage))
    ]
    assert sum(int(marker.totals["calls"]) for marker in markers) == len(endpoint.served)


def test_a_list_that_cannot_be_had_fails_what_needs_it(endpoint: Moody, tmp_path: Path):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = refusing_one_list()
    done = generate(tmp_path)
    assert done.status == 4, done.stdout + done.stderr
    assert failures(tmp_path) == {"ListFailed": COUNTS["task"]}
    assert len(exported(tmp_path)) == CONVERSATIONS - COUNTS["task"]


def test_an_endpoint_that_nobody_is_at(tmp_path: Path):
    written(tmp_path, "http://127.0.0.1:9/v1", "outage_patience = 0.02", calls="deadline = 1")
    done = generate(tmp_path)
    assert done.status == 3, done.stdout + done.stderr
    assert "OPENAI_BASE_URL" in done.stdout + done.stderr


def test_a_setting_may_change_until_something_was_paid_for(endpoint: Moody, tmp_path: Path):
    """What the endpoint rejects from the start can be put right in the same run."""
    written(tmp_path, endpoint.base_url)
    too_low = Answer(400, {"error": {"message": "temperature must be at least 1"}})
    endpoint.mood = lambda body, count: too_low if body.get("temperature") == 0.2 else None
    assert generate(tmp_path).status == 3
    config = (tmp_path / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(f"sampling = {{ temperature = 1.0 }}\n{config}")
    done = generate(tmp_path)
    assert done.status == 0, done.stdout + done.stderr
    (tmp_path / "config.toml").write_text(config)
    assert generate(tmp_path).status == 2, "not any more"


def test_a_model_that_takes_only_its_own_temperature_is_asked_without(endpoint: Moody, tmp_path: Path):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = lambda body, count: NO_TEMPERATURE if "temperature" in body else None
    done = generate(tmp_path)
    assert done.status == 0, done.stdout + done.stderr
    assert "temperature" in done.stdout


def test_a_run_that_is_created_again_forgets_accepted_changes(endpoint: Moody, tmp_path: Path):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = lambda body, count: NO_MODEL
    assert generate(tmp_path).status == 3
    written(tmp_path, endpoint.base_url, model="second")
    assert generate(tmp_path, "--accept-change", "model.name").status == 3
    endpoint.mood = lambda body, count: None
    written(tmp_path, endpoint.base_url, model="third")
    assert generate(tmp_path).status == 0
    assert generate(tmp_path).status == 0, "the same command finds the run as it was made"


def test_a_retired_model_is_replaced(endpoint: Moody, tmp_path: Path):
    """Finished items keep their model, open ones continue with the new one, and nothing is paid for twice."""
    written(tmp_path, endpoint.base_url)
    endpoint.mood = lambda body, count: NO_MODEL if body["model"] == "simulated" and count > 75 else None
    assert generate(tmp_path).status == 3
    written(tmp_path, endpoint.base_url, model="successor")
    refused = generate(tmp_path)
    assert refused.status == 2
    assert "--accept-change model.name" in refused.stderr
    done = generate(tmp_path, "--accept-change", "model.name")
    assert done.status == 0, done.stdout + done.stderr
    assert generate(tmp_path).status == 0, "accepted once and for all"
    assert camel("run", "verify", "run", folder=tmp_path).status == 0
    models = Counter(message.model for one in Run(tmp_path / "run") for message in one.messages)
    assert set(models) == {"simulated", "successor"}
    asked = Counter(json.dumps(json.loads(body)["messages"]) for body in endpoint.served)
    assert set(asked.values()) == {1}
    written(tmp_path, endpoint.base_url, model="simulated")
    assert generate(tmp_path).status == 2


def test_an_outage_of_three_minutes_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")

    @virtual_time
    async def waited() -> None:
        async with moody_here(SimulatorSettings(length=Constant(5), words=12)) as endpoint:
            written(tmp_path, endpoint.base_url)
            begun: list[float] = []

            def mood(body: dict[str, Any], count: int) -> Answer | None:
                if count < 40:
                    return None
                begun.append(now())
                return Answer(503, "busy") if now() - begun[0] < 180 else None

            endpoint.mood = mood
            monkeypatch.chdir(tmp_path)
            config = read_config(Path("config.toml"))
            async with config.model.open() as model:
                campaign = generation(config, model)
                told: list[str] = []
                campaign.tell = lambda event, text, **fields: told.append(text)
                outcome = await campaign.run()
            assert outcome.complete, outcome.reason
            assert any("answers again" in line for line in told)
            assert not failures(tmp_path)
            assert begun[-1] - begun[0] >= 180
            calls = Counter(body for body in endpoint.served if is_agent(json.loads(body)))
            assert set(calls.values()) == {1}

    waited()


# ---------------------------------------------------------------- translation


def translated(folder: Path, endpoint: Moody, *options: str, model: str = "simulated") -> Done:
    words = ("translate", "run", "--to", "de", "--model", model, "--base-url", endpoint.base_url, *options)
    return camel(*words, folder=folder, environment={"OPENAI_API_KEY": "sk-x"})


def in_german(folder: Path) -> Run:
    return Run(folder / "run", stage="translated-de")


def markers_of(folder: Path) -> list[Path]:
    return list((folder / "run" / "committed" / "translated-de").glob("*.json"))


def german(reply: Any) -> Any:
    """A reply that can pass for a translation of any message without markers."""
    reply["choices"][0]["message"]["content"] = "Das ist eine brauchbare Antwort auf Deutsch."
    return reply


@pytest.fixture
def made(endpoint: Moody, tmp_path: Path) -> Path:
    written(tmp_path, endpoint.base_url)
    assert generate(tmp_path).status == 0
    endpoint.mood = lambda body, count: german
    return tmp_path


@pytest.mark.parametrize("answer", [NO_MODEL, NO_TEMPERATURE, REVOKED], ids=["model", "parameter", "key"])
def test_a_translation_that_is_rejected_from_the_start(endpoint: Moody, made: Path, answer: Answer):
    endpoint.mood = lambda body, count: answer
    before = len(endpoint.served)
    done = translated(made, endpoint)
    assert done.status == 3, done.stdout + done.stderr
    assert len(endpoint.served) == before
    assert not markers_of(made)
    endpoint.mood = lambda body, count: german
    assert translated(made, endpoint).status == 0
    assert len(in_german(made)) == CONVERSATIONS


def test_a_translation_of_which_some_are_moderated(endpoint: Moody, made: Path):
    first = next(iter(Run(made / "run"))).messages[0].content
    endpoint.mood = lambda body, count: MODERATED if first in body["messages"][0]["content"] else german
    done = translated(made, endpoint)
    assert done.status == 4, done.stdout + done.stderr
    failed = [one for one in in_german(made) if one.failed]
    assert failed
    assert all(one.stop and one.stop.detail.startswith("ContentRejected: ") for one in failed)
    done = camel("export", "run", "messages", "de.jsonl", "--language", "de", folder=made)
    assert done.status == 0, done.stderr
    assert len((made / "de.jsonl").read_text().splitlines()) == CONVERSATIONS - len(failed)


def test_a_translation_continues_with_another_model(endpoint: Moody, made: Path):
    begin = len(endpoint.requests)
    endpoint.mood = lambda body, count: NO_MODEL if count > begin + 30 else german
    assert translated(made, endpoint).status == 3
    endpoint.mood = lambda body, count: german
    assert translated(made, endpoint, model="successor").status == 2
    done = translated(made, endpoint, "--accept-change", "model.name", model="successor")
    assert done.status == 0, done.stdout + done.stderr
    assert camel("run", "verify", "run", folder=made).status == 0
    asked = Counter(json.dumps(json.loads(body)["messages"]) for body in endpoint.served[begin:])
    assert len(in_german(made)) == CONVERSATIONS
    assert asked
