"""Scores: columns of a run, made by models, functions and rules, and nothing is paid twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import camel
from camel import InputError, RolePlaying, Run, ScriptedModel, Transcript
from camel.core.errors import ServerFailed
from camel.core.message import Message, Usage
from camel.core.model import Request
from camel.core.rubric import Rubric
from camel.core.stops import Stop
from camel.core.task import Task
from camel.evaluation.scorers import (
    Scorer,
    classifier_scorer,
    detector_scorer,
    function_scorer,
    language_scorer,
    overlap_scorer,
    rubric_scorer,
)
from camel.evaluation.scoring import ScoreColumn, ScoreJob, column_of
from camel.jobs.budget import Budget
from camel.jobs.ledger import spent_on
from camel.jobs.runner import Outcome, Runner
from camel.jobs.status import read_status
from camel.library.scores import find_scorers, import_function
from camel.models.simulator import SimulatorSettings
from camel.record.arrow import write_shard
from camel.runs.again import add_retry
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.runs.scores import read_scores, score_names, with_scores
from camel.runs.settings import Settings
from camel.runs.verify import verify
from tests.support import rated
from tests.support.endpoints import serve

TEXT = "You should water the tomatoes of the garden in the evening, and then you can rest for a while."


def a_transcript(number: int, *said: str, stop: str = "done") -> Transcript:
    messages = [
        Message(index, ("user", "assistant")[index % 2], "r", text) for index, text in enumerate(said)
    ]
    return Transcript(f"{number:03d}", Task("t"), messages=messages, stop=Stop(stop, "x"), item=number)


def add_shard(folder: RunFolder, shard: int, records: list[Transcript], retry: int = 0) -> None:
    stage = f"conversations~{retry}" if retry else "conversations"
    path = folder.data_path(stage, shard, "a", ".parquet")
    written = write_shard(path, records)
    file = path.relative_to(folder.root).as_posix()
    assert folder.commit(Marker("conversations", shard, file, written.rows, written.sha256, "f", retry=retry))


def a_run(place: Path, shards: int = 3, per: int = 4) -> RunFolder:
    """A run with different conversations. The first of each shard has failed."""
    folder = RunFolder(place)
    folder.create(Settings("f", {}, "0"))
    for shard in range(shards):
        numbers = range(shard * per, shard * per + per)
        records = [
            a_transcript(n, f"Tell me about {n}.", f"{TEXT} {n}", stop="done" if n % per else "error")
            for n in numbers
        ]
        add_shard(folder, shard, records)
    return folder


async def scored(
    folder: RunFolder, scorers: dict[str, Scorer], replace: bool = False, **options: Any
) -> Outcome:
    return await Runner(ScoreJob(folder.address, scorers, replace), **options).run()


def values(folder: RunFolder, name: str) -> dict[str, float | None]:
    run = Run(folder.root)
    found: dict[str, float | None] = {}
    for marker, place in zip(run.markers, range(len(run.markers)), strict=True):
        its = read_scores(run, marker.shard)[name]
        found |= {one.id: score.value for one, score in zip(run.shard(place), its, strict=True)}
    return found


async def test_a_judge_is_asked_about_each_conversation_once(tmp_path: Path):
    folder = a_run(tmp_path)
    model = ScriptedModel(lambda request: "4\nIt is clear.")
    scorers: dict[str, Scorer] = {"clear": rubric_scorer(Rubric("Is it clear?"), model)}
    outcome = await scored(folder, scorers)
    assert outcome.result == [ScoreColumn("clear", 9, 3, 4.0)]
    assert len(model.requests) == 9, "none about failed conversations"
    prompt = model.heard[0][0].content
    assert "Is it clear?" in prompt
    assert f"> {TEXT} 1" in prompt
    assert score_names(folder) == ["clear"]
    assert values(folder, "clear") == {f"{n:03d}": 4.0 if n % 4 else None for n in range(12)}
    first = read_scores(Run(tmp_path), 0)["clear"]
    assert (first[1].reason, "error" in first[0].reason) == ("It is clear", True)
    assert (await scored(folder, scorers)).complete
    assert len(model.requests) == 9
    assert verify(folder).sound
    (stage,) = [one for one in read_status(tmp_path).stages if one.name == "score-clear"]
    assert (stage.planned, stage.committed) == (12, 12)


async def test_an_answer_without_a_rating_is_asked_for_again_and_then_fails(tmp_path: Path):
    folder = a_run(tmp_path, 1, 2)
    lines = iter(["It depends.", "7", "Good.", "Score: 9 of 10"])
    model = ScriptedModel(lambda request: next(lines))
    scorers: dict[str, Scorer] = {"clear": rubric_scorer(Rubric("Is it clear?", scale="1-5"), model)}
    outcome = await scored(folder, scorers)
    assert outcome.status == "failures"
    assert outcome.result == [ScoreColumn("clear", 0, 2, None)]
    assert "ItemFailed" in read_scores(Run(tmp_path), 0)["clear"][1].reason
    lines = iter(["4/5"])
    assert (await scored(folder, scorers, retry_failed=True)).status == "complete"
    assert values(folder, "clear") == {"000": None, "001": 4.0}
    assert column_of(folder, "clear") == ScoreColumn("clear", 1, 1, 4.0)
    assert spent_on(folder, ["score-clear"]).calls == 4


async def test_failures_of_the_endpoint_follow_the_policy(tmp_path: Path):
    folder = a_run(tmp_path, 1, 3)
    failing = True

    def reply(request: Request) -> str | ServerFailed:
        return ServerFailed("it is down") if failing and "002" in request.session else "yes, it is"

    model = ScriptedModel(reply)
    scorers: dict[str, Scorer] = {"ok": rubric_scorer(Rubric("Is it fine?", scale="yes/no"), model)}
    outcome = await scored(folder, scorers)
    assert [one.count for one in outcome.failed] == [1]
    assert values(folder, "ok") == {"000": None, "001": 1.0, "002": None}
    failing = False
    assert (await scored(folder, scorers, retry_failed=True)).status == "complete"
    assert values(folder, "ok") == {"000": None, "001": 1.0, "002": 1.0}


async def test_a_budget_stops_and_the_rest_is_scored_later(tmp_path: Path):
    folder = a_run(tmp_path)
    model = ScriptedModel(lambda request: "4")
    scorers: dict[str, Scorer] = {"clear": rubric_scorer(Rubric("Is it clear?"), model)}
    for most in (3, 7):
        outcome = await scored(folder, scorers, budget=Budget(calls=most), concurrency=1)
        assert "the budget of" in outcome.reason
        assert len(model.requests) == most
    assert (await scored(folder, scorers, budget=Budget(calls=100))).complete
    assert len(model.requests) == 9
    assert spent_on(folder, ["score-clear"]).calls == 9


async def test_only_new_and_rewritten_shards_are_scored(tmp_path: Path):
    folder = a_run(tmp_path)
    model = ScriptedModel(lambda request: "4")
    seen: list[str] = []

    def length(transcript: Transcript) -> int:
        seen.append(transcript.id)
        return len(transcript.messages)

    scorers: dict[str, Scorer] = {
        "clear": rubric_scorer(Rubric("Is it clear?"), model),
        "length": function_scorer(length),
    }
    assert (await scored(folder, scorers)).complete
    # A later shard, larger than the others, and with a gap before it.
    add_shard(folder, 5, [a_transcript(n, "Hello.", f"{TEXT} {n}") for n in range(20, 29)])
    seen.clear()
    assert (await scored(RunFolder(tmp_path), scorers)).complete
    assert (sorted(seen), len(model.requests)) == ([f"{n:03d}" for n in range(20, 29)], 18)
    # A retry has repaired the failed conversation of shard 1.
    add_retry(folder.store, {"conversations": {1: [4]}})
    add_shard(folder, 1, [a_transcript(n, "Hello.", TEXT) for n in range(4, 8)], retry=1)
    seen.clear()
    assert (await scored(RunFolder(tmp_path), scorers)).complete
    assert seen == ["004", "005", "006", "007"]
    assert values(RunFolder(tmp_path), "length") == {
        f"{n:03d}": None if n in (0, 8) else 2.0 for n in (*range(12), *range(20, 29))
    }
    with_all = {one.id: one.scores for one in with_scores(Run(tmp_path))}
    assert with_all["020"]["clear"].value == 4.0
    assert verify(RunFolder(tmp_path)).sound


async def test_functions_of_every_kind(tmp_path: Path):
    folder = a_run(tmp_path, 1, 4)

    async def awaited(transcript: Transcript) -> tuple[bool, str]:
        return transcript.id == "001", "first"

    def word(transcript: Transcript) -> str:
        return "odd" if int(transcript.id) % 2 else "even"

    def picky(transcript: Transcript) -> Any:
        if transcript.id == "001":
            raise ValueError("no")
        return "nan" if transcript.id == "002" else float("nan")

    outcome = await scored(folder, find_scorers({"awaited": awaited, "word": word, "picky": picky}))
    one, two, three = outcome.result
    assert (one.scored, one.missing, one.mean) == (3, 1, pytest.approx(1 / 3))
    assert two == ScoreColumn("word", 3, 1, None, {"odd": 2, "even": 1})
    assert (three.scored, sum(failed.count for failed in outcome.failed)) == (1, 2)
    assert read_scores(Run(tmp_path), 0)["awaited"][1].reason == "first"


async def test_a_new_version_of_a_function_replaces_its_scores(tmp_path: Path):
    folder = a_run(tmp_path, 2)

    def length(transcript: Transcript) -> int:
        return bonus + len(transcript.messages)

    bonus = 0
    assert (await scored(folder, {"length": function_scorer(length)})).result[0].mean == 2
    bonus = 5
    assert (await scored(folder, {"length": function_scorer(length)})).result[0].mean == 2
    length.version = 2  # pyright: ignore[reportFunctionMemberAccess]
    assert (await scored(folder, {"length": function_scorer(length)})).result[0].mean == 7
    assert verify(folder).sound


async def test_paid_scores_of_another_rubric_are_replaced_only_on_request(tmp_path: Path):
    folder = a_run(tmp_path, 1)
    model = ScriptedModel(lambda request: "4")
    first, second = (rubric_scorer(Rubric(text), model) for text in ("Clear?", "Short?"))
    assert (await scored(folder, {"it": first})).complete
    with pytest.raises(InputError, match=r"score\.it.*rubric.*--force"):
        await scored(folder, {"it": second})
    assert (await scored(folder, {"it": second}, replace=True)).complete
    assert len(model.requests) == 6
    assert (await scored(folder, {"it": second}, replace=True)).complete
    assert len(model.requests) == 6, "unchanged scores stay"


async def test_of_equal_conversations_the_first_one_is_kept(tmp_path: Path):
    folder = RunFolder(tmp_path)
    folder.create(Settings("f", {}, "0"))
    long = " ".join(f"word{n}" for n in range(200))
    texts = ["failed", "a", "b", "a", long, f"{long} more", "c", "b", "failed"]
    for shard in range(3):
        numbers = range(3 * shard, 3 * shard + 3)
        add_shard(
            folder, shard, [a_transcript(n, "q", texts[n], stop="done" if n else "error") for n in numbers]
        )
    scorers = find_scorers({"duplicates": True})
    assert (await scored(folder, scorers)).complete
    assert {id for id, value in values(folder, "duplicate").items() if value} == {"003", "007"}
    assert {id for id, value in values(folder, "near_duplicate").items() if value} == {"003", "005", "007"}
    # What has a score keeps it, also if an earlier shard comes later.
    add_shard(folder, 4, [a_transcript(20, "q", "late"), a_transcript(21, "q", "c")])
    assert (await scored(RunFolder(tmp_path), find_scorers({"duplicates": True}))).complete
    add_shard(folder, 3, [a_transcript(15, "q", "late")])
    assert (await scored(RunFolder(tmp_path), find_scorers({"duplicates": True}))).complete
    found = values(RunFolder(tmp_path), "duplicate")
    assert (found["021"], found["020"], found["015"]) == (1, 0, 1)


async def test_languages_detectors_and_test_questions(tmp_path: Path):
    folder = a_run(tmp_path, 1, 4)
    german = "Bitte gieße die Tomaten im Garten am Abend, und dann kannst du dich eine Weile ausruhen, wenn du willst."
    question = "What is the sum of all the prime numbers that are smaller than one hundred and twenty three, and why is that so?"
    (tmp_path / "questions.jsonl").write_text(f'{{"id": "primes", "question": "{question}"}}\n')
    add_shard(
        folder,
        1,
        [
            a_transcript(8, german, german),
            a_transcript(9, question, "I am sorry, but I cannot help with that."),
        ],
    )
    scorers: dict[str, Scorer] = {
        "language": language_scorer(),
        "refusal": detector_scorer("refusal"),
        "overlap": overlap_scorer((str(tmp_path / "questions.jsonl"),)),
    }
    language, refusal, overlap = (await scored(folder, scorers)).result
    assert language.words == {"English": 4, "German": 1}
    assert values(folder, "refusal")["009"] == 1.0
    assert values(folder, "refusal")["008"] == 0.0
    assert overlap.mean == pytest.approx(1 / 5)
    assert read_scores(Run(tmp_path), 1)["overlap"][1].reason == "primes"
    assert refusal.scored == 5


@pytest.mark.parametrize("name", ["", "a b", "../x", "x~1", "1st", "a" * 61])
def test_a_column_needs_a_plain_name(name: str):
    with pytest.raises(InputError, match="name"):
        ScoreJob("runs/x", {name: language_scorer()})


def test_what_cannot_score_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for columns in ({"a": 3}, {"a": "text"}, {"language": "x"}):
        with pytest.raises(InputError, match="function"):
            find_scorers(columns)
    assert find_scorers({"language": False, "duplicates": False}) == {}
    with pytest.raises(InputError, match="nothing to score"):
        ScoreJob("runs/x", {})
    monkeypatch.chdir(tmp_path)
    Path("my_quality.py").write_text("def good(transcript): return True\nnumber = 3\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert import_function("my_quality:good")(None) is True
    for wrong in ("my_quality:number", "my_quality:none", "my_quality", "no_such_module:x", ":x"):
        with pytest.raises(InputError, match="module:name"):
            import_function(wrong)


def test_planted_quality(tmp_path: Path):
    """Rules select exactly the bad conversations, and a judge with noise exactly those of its verdicts."""
    count = 400
    play = RolePlaying("Say what row <number> is", assistant="Clerk", user="Reader of row <number>")
    with camel.simulated_endpoint(author="tests.support.rated:author", length=3, words=30) as endpoint:
        rows = [{"id": f"r{n:03d}", "number": n} for n in range(count)]
        run = camel.generate(play, inputs=rows, model="m", out=tmp_path / "run", progress=False)
        before = endpoint.ledger().requests

        def honest(transcript: Transcript) -> bool:
            return not any(rated.BAD in message.content for message in transcript.messages)

        run = run.score(honest=honest, helpful=Rubric("Does it help?"), model="m", limits={"progress": False})
        assert endpoint.ledger().requests - before == count
        run.score(honest=honest, helpful=Rubric("Does it help?"), model="m", limits={"progress": False})
        assert endpoint.ledger().requests - before == count
    bad = {f"r{n:03d}" for n in range(count) if rated.is_bad(n)}
    told = {f"r{n:03d}" for n in range(count) if rated.is_bad(n) != rated.is_wrong(n)}
    assert 50 < len(bad) < 150
    assert bad != told
    scores = {one.id: one.scores for one in with_scores(run)}
    assert {id for id, its in scores.items() if its["honest"].value == 0} == bad
    assert {id for id, its in scores.items() if (its["helpful"].value or 0) < 4} == told
    good, chosen = scores.keys() - bad, scores.keys() - told
    assert len(good & chosen) / len(chosen) >= 0.92
    assert len(good & chosen) / len(good) >= 0.92


_KILLED = """
import asyncio, os, signal, sys
from camel import ChatModel
from camel.core.model import WrappedModel
from camel.core.rubric import Rubric
from camel.evaluation.scorers import rubric_scorer
from camel.evaluation.scoring import ScoreJob
from camel.jobs.runner import Runner

left = int(sys.argv[3])

class Killing(WrappedModel):
    async def reply(self, request):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return await self.inner.reply(request)

async def main():
    async with ChatModel("simulated", base_url=sys.argv[2], api_key="") as model:
        scorers = {"clear": rubric_scorer(Rubric("Is it clear?"), Killing(model))}
        await Runner(ScoreJob(sys.argv[1], scorers), concurrency=1).run()

asyncio.run(main())
"""


def test_a_killed_scoring_pays_for_nothing_twice(tmp_path: Path):
    folder = a_run(tmp_path)
    with serve(SimulatorSettings()) as endpoint:
        for _ in range(2):
            command = [sys.executable, "-c", _KILLED, str(tmp_path), endpoint.base_url, "4"]
            assert subprocess.run(command, timeout=300, check=False).returncode == -signal.SIGKILL
        assert endpoint.ledger().requests == 6
        command = [sys.executable, "-c", _KILLED, str(tmp_path), endpoint.base_url, "100"]
        assert subprocess.run(command, timeout=300, check=False).returncode == 0
        ledger = endpoint.ledger()
    assert ledger.requests == ledger.billed == 9
    spent = spent_on(folder, ["score-clear"])
    assert (spent.prompt, spent.completion, spent.calls) == (
        ledger.prompt_tokens,
        ledger.completion_tokens,
        9,
    )
    assert all((value is None) == (int(id) % 4 == 0) for id, value in values(folder, "clear").items())


@pytest.mark.slow
def test_a_local_classifier(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[PAD]": 0, "[UNK]": 1, **{word: n for n, word in enumerate(sorted(set(TEXT.split())), 2)}}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]"
    )
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    for name, labels in (("reward", 1), ("classes", 3)):
        config = transformers.BertConfig(
            vocab_size=len(words), max_position_embeddings=32, pad_token_id=0, num_labels=labels, **small
        )
        transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    folder = a_run(tmp_path / "run", 2)
    scorers: dict[str, Scorer] = {
        "reward": classifier_scorer(str(tmp_path / "reward")),
        "label": classifier_scorer(str(tmp_path / "classes")),
        "share": classifier_scorer(str(tmp_path / "classes"), "LABEL_1"),
    }
    reward, label, share = asyncio.run(scored(folder, scorers)).result
    assert reward.scored == label.scored == share.scored == 6
    assert set(label.words) <= {"LABEL_0", "LABEL_1", "LABEL_2"}
    assert 0 < share.mean < 1
    with pytest.raises(InputError, match="LABEL_0"):
        asyncio.run(scored(folder, {"x": classifier_scorer(str(tmp_path / "classes"), "nice")}))
    with pytest.raises(InputError, match="no-such-model"):
        asyncio.run(scored(folder, {"y": classifier_scorer(str(tmp_path / "no-such-model"))}))


def test_usage_of_rejected_attempts_counts():
    from camel.core.transcript import RejectedAttempt

    one = a_transcript(1, "a", "b")
    one.rejected = [RejectedAttempt("done", "too short", [], Usage(5, 6, calls=2))]
    assert one.usage == Usage(5, 6, calls=2)
