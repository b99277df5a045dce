"""Chats, datasets and their metadata: what comes back after an export, what is lost, and what trainers read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

pytest.importorskip("pyarrow")

from camel.core.errors import InputError
from camel.core.message import Action, Message, Usage
from camel.core.model import ToolSchema
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Score, Speaker, Transcript
from camel.formats.dataset import dataset
from camel.formats.documents import IMPORTERS, store
from camel.formats.exporters import FORMATS
from camel.inputs.settings import Inputs, SecondTable
from camel.library.run import Run
from camel.record.release import Release
from camel.runs.run import open_folder
from tests.library.test_credit import World, credited, record
from tests.record.test_table import transcripts
from tests.support.aside import ASIDE
from tests.support.conversations import RELEASE, talk

parquet = pytest.importorskip("pyarrow.parquet")
FUZZ = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def asked(id: str = "a", turns: tuple[str, ...] = ("Hi", "Hello"), **changes: Any) -> Transcript:
    """A chat whose user and assistant have the roles that an import gives them."""
    said = [("User", "user"), ("Assistant", "assistant")]
    fields: dict[str, Any] = {
        "id": id,
        "task": Task(turns[0]),
        "speakers": [Speaker("user", "User"), Speaker("assistant", "Assistant", "Be kind.")],
        "messages": [Message(at, said[at % 2][1], said[at % 2][0], text) for at, text in enumerate(turns)],
        "inputs": {"customer": f"c-{id}"},
        "scores": {"helpful": Score(4.0), "language": Score(None, text="English")},
        "result": {"resolved": True, "reasons": ["a"]},
    }
    return Transcript(**{**fields, **changes})


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def there_and_back(name: str, given: list[Transcript], folder: Path) -> list[Transcript]:
    path = folder / f"out{'' if name == 'dataset' else '.jsonl'}"
    FORMATS[name].write(given, path, release=Release(True, "canary", reasoning=True, run="trial"))
    return list(IMPORTERS[name](path))


# ---------------------------------------------------------------- a dataset comes back as it was


@FUZZ
@given(given=st.lists(transcripts, max_size=3))
def test_a_dataset_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, given: list[Transcript]):
    kept = [one for one in given if not one.failed]
    assert there_and_back("dataset", given, tmp_path_factory.mktemp("set")) == kept


def test_a_dataset_is_read_from_every_place_that_holds_it(tmp_path: Path):
    datasets = pytest.importorskip("datasets")
    given = [talk("a", scores={"helpful": Score(1.0, "why", "judge")}), talk("b", inputs={"x": "y"})]
    dataset({"train": given[:1], "test": given[1:]}, tmp_path / "set", release=Release(run="trial"))
    files = sorted((tmp_path / "set").rglob("*.parquet"), reverse=True)
    assert [one for file in files for one in IMPORTERS["dataset"](file)] == given
    loaded = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    assert set(loaded["train"]["run"]) == {"trial"}
    loaded.save_to_disk(str(tmp_path / "saved"))
    for place in (tmp_path / "saved", Path(f"hf:{tmp_path / 'set'}")):
        assert sorted(IMPORTERS["dataset"](place), key=lambda one: one.id) == given
    assert list(IMPORTERS["dataset"](Path(f"hf:{tmp_path / 'set'}:test"))) == given[1:]
    with pytest.raises(InputError, match="train"):
        list(IMPORTERS["dataset"](Path(f"hf:{tmp_path / 'set'}:other")))
    with pytest.raises(InputError, match="nothing-here"):
        list(IMPORTERS["dataset"](Path(f"hf:{tmp_path}/nothing-here")))


def test_earlier_datasets_are_read(tmp_path: Path):
    from camel.record.arrow import to_table

    parquet.write_table(to_table([talk()]), tmp_path / "old.parquet")
    assert list(IMPORTERS["dataset"](tmp_path / "old.parquet")) == [talk()]


def test_no_field_of_a_dataset_looks_like_a_chat(tmp_path: Path):
    dataset([talk()], tmp_path / "set")
    (file,) = (tmp_path / "set").rglob("*.parquet")
    (row,) = parquet.read_table(file).to_pylist()
    assert "role" not in row["messages"][0]
    assert (row["messages"][0]["speaker"], row["messages"][0]["name"]) == ("user", "Stock Trader")


# ---------------------------------------------------------------- what the other formats keep

FULL = Transcript(
    "a-1",
    Task("Question: 1\n\nA", "Question: 1\n\nA, in detail"),
    [
        Speaker("user", "Trader", "You ask."),
        Speaker(
            "assistant", "Programmer", "You solve.", tools=[ToolSchema("add", "Add.", {"type": "object"})]
        ),
    ],
    [
        Message(0, "user", "Trader", "Question: 1\n\nA", "m-1", usage=Usage(1, 2)),
        Message(
            1,
            "assistant",
            "Programmer",
            "Answer",
            "m-1",
            latency=2.0,
            usage=Usage(1),
            reasoning="because",
            actions=[Action("add", '{"a":1}', "2", call="call-0")],
        ),
    ],
    Stop("done", "<CAMEL_TASK_DONE>"),
    "my_scenario",
    {"instruction": "Question: 1", "input": "A", "customer": "c"},
    ["other"],
    "f",
    item=3,
    scores={"helpful": Score(4.0), "language": Score(None, text="English")},
    result={"resolved": True},
    hear_actions=True,
    unspoken=[Action("add", call="call-1")],
)
DOCS = Path(__file__).parents[2] / "docs" / "formats.md"


def documented(name: str) -> set[str]:
    """The fields that a format keeps, as the table in docs/formats.md says."""
    rows = [line.split("|") for line in DOCS.read_text().partition("## Import")[2].splitlines()]
    said = next(row[3] for row in rows if len(row) == 5 and f"`{name}`" in row[1])
    if "everything" in said:
        every = {*Transcript.__struct_fields__} - {
            "schema",
            "hears",
            "wording",
            "result_call",
            "rejected",
            "turns",
        }
        return every | {
            "content",
            "role",
            "model",
            "usage",
            "latency",
            "reasoning",
            "actions",
            "system",
            "tools",
        }
    kept, _, without = said.partition("without")
    names = {*re.findall("`(.*?)`", kept)}
    names = documented("messages") if names == {"messages"} else names
    return names - {*re.findall("`(.*?)`", without)}


@pytest.mark.parametrize("name", ["dataset", "messages", "sharegpt", "alpaca", "chat"])
def test_a_format_keeps_what_its_table_says(name: str, tmp_path: Path):
    (back,) = there_and_back(name, [FULL], tmp_path)
    kept = {one for one in Transcript.__struct_fields__ if getattr(back, one) == getattr(FULL, one)}
    pairs = list(zip(FULL.messages, back.messages, strict=True))
    for field in ("content", "role", "model", "usage", "latency", "reasoning", "actions"):
        kept |= (
            {field}
            if all(getattr(before, field) == getattr(after, field) for before, after in pairs)
            else set()
        )
    kept |= {"system"} if back.speakers[1].system == "You solve." else set()
    kept |= {"tools"} if back.speakers[1].tools == FULL.speakers[1].tools else set()
    # These have their defaults here.
    kept -= {"schema", "hears", "wording", "result_call", "rejected", "turns"}
    assert kept == documented(name)


plain = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@pytest.mark.parametrize("name", ["messages", "sharegpt"])
@FUZZ
@given(turns=st.lists(plain, min_size=2, max_size=6).filter(lambda turns: len(turns) % 2 == 0), inputs=st.dictionaries(plain, plain, max_size=2))  # fmt: skip
def test_a_chat_survives_the_round_trip(
    name: str, tmp_path_factory: pytest.TempPathFactory, turns: list[str], inputs: dict[str, str]
):
    folder = tmp_path_factory.mktemp("chat")
    given = [asked(str(number), tuple(turns), inputs=inputs) for number in range(2)]
    assert there_and_back(name, given, folder) == given
    again = folder / "again.jsonl"
    FORMATS[name].write(given, again, release=Release(True, "canary", reasoning=True, run="trial"))
    assert again.read_bytes() == (folder / "out.jsonl").read_bytes()


@FUZZ
@given(rows=st.lists(st.tuples(plain, st.just("") | plain, plain), min_size=1, max_size=3))
def test_alpaca_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
):
    folder = tmp_path_factory.mktemp("alpaca")
    given = [dict(zip(("instruction", "input", "output"), row, strict=True)) for row in rows]
    (folder / "in.json").write_text(json.dumps(given))
    FORMATS["alpaca"].write(
        IMPORTERS["alpaca"](folder / "in.json"), folder / "out.jsonl", release=Release(metadata=False)
    )
    assert rows_of(folder / "out.jsonl") == given


# ---------------------------------------------------------------- files of other programs


def read(folder: Path, name: str, *rows: dict[str, Any]) -> list[Transcript]:
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return list(IMPORTERS[name](folder / "in.jsonl"))


def test_openai_fine_tuning_files(tmp_path: Path):
    turns: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Weather "}, {"type": "text", "text": "in Oslo?"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "weather"}}]},
        {"role": "tool", "content": "rain", "tool_call_id": "1"},
        {"role": "assistant", "content": "Rain.", "weight": 1, "reasoning_content": "I looked."},
    ]
    (one,) = read(
        tmp_path, "messages", {"messages": turns, "tools": [{"type": "function"}], "source": "web", "n": 2}
    )
    assert [(said.speaker, said.content) for said in one.messages] == [
        ("user", "Weather in Oslo?"),
        ("assistant", "Rain."),
    ]
    assert (one.speakers[1].system, one.messages[1].reasoning) == ("Be brief.", "I looked.")
    assert one.messages[1].actions == [Action("weather", result="rain", call="call-0")]
    assert (one.id, one.inputs, one.task.text) == ("000001", {"source": "web", "n": "2"}, "Weather in Oslo?")


@pytest.mark.parametrize(("person", "model"), [("human", "gpt"), ("user", "assistant"), ("human", "chatgpt"), ("human", "bing"), ("User", "bard")])  # fmt: skip
def test_sharegpt_has_many_names_for_two_seats(person: str, model: str, tmp_path: Path):
    turns = [("system", "S"), (person, "Q"), (model, "A")]
    row = {"id": "x-1", "conversations": [{"from": role, "value": text} for role, text in turns]}
    (one,) = read(tmp_path, "sharegpt", row)
    assert (one.id, one.speakers[1].system) == ("x-1", "S")
    assert [said.speaker for said in one.messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": [{"role": "Stock Trader", "content": "x"}]}, "message 1.*'Stock Trader'"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]}, "message 2"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "message 1.*image_url"),
        ({"messages": ["x"]}, "message 1.*'x'"),
        ({"messages": [], "metadata": {"run": "", "inputs": "[1]"}}, "metadata"),
        ({"text": "x"}, "no messages"),
        ({"messages": [{"role": "assistant", "tool_calls": "{"}]}, "message 1.*tool"),
        ({"messages": [{"role": "function_call", "content": "none"}]}, "message 1.*tool"),
        ({"messages": [], "tools": 3}, "tools"),
        ({"messages": [], "tools": [{"function": 1}]}, "tools"),
        ({"messages": [], "tools": [{"function": {"name": 1}}]}, "tools"),
    ],
)
def test_a_chat_that_cannot_be_stored_is_refused(row: dict[str, Any], words: str, tmp_path: Path):
    with pytest.raises(InputError, match=rf"in\.jsonl:1\b.*{words}"):
        read(tmp_path, "messages", row)


def test_rows_of_one_conversation_get_numbers(tmp_path: Path):
    FORMATS["alpaca"].write([talk("a"), talk("b")], tmp_path / "out.jsonl")
    assert [one.id for one in IMPORTERS["alpaca"](tmp_path / "out.jsonl")] == ["a", "a-2", "b", "b-2"]


def test_a_folder_of_splits_is_read_as_one(tmp_path: Path):
    for name in ("train", "test"):
        FORMATS["messages"].write([asked(name)], tmp_path / "set" / f"{name}.jsonl")
    assert [one.id for one in IMPORTERS["messages"](tmp_path / "set")] == ["test", "train"]


# ---------------------------------------------------------------- metadata


@pytest.mark.parametrize("name", ["messages", "sharegpt", "alpaca", "preferences"])
def test_rows_say_where_they_come_from(name: str, tmp_path: Path):
    given = talk(
        "a", inputs={"customer": "c"}, scores={"helpful": Score(4.0), "language": Score(None, text="English")}
    )
    FORMATS[name].write([given], tmp_path / "x.jsonl", release=Release(run="trial"))
    about = rows_of(tmp_path / "x.jsonl")[0]["metadata"]
    assert (about["id"], about["run"], json.loads(about["inputs"])) == ("a", "trial", {"customer": "c"})
    assert json.loads(about["scores"]) == {"helpful": 4.0, "language": "English"}
    FORMATS[name].write([given], tmp_path / "x.jsonl", release=Release(metadata=False))
    assert "metadata" not in rows_of(tmp_path / "x.jsonl")[0]


@pytest.mark.parametrize("name", ["chat", "instruction"])
def test_the_papers_formats_have_metadata_on_request(name: str, tmp_path: Path):
    FORMATS[name].write([talk("a")], tmp_path / "x.jsonl")
    assert "metadata" not in rows_of(tmp_path / "x.jsonl")[0]
    FORMATS[name].write([talk("a")], tmp_path / "x.jsonl", release=Release(metadata=True))
    assert rows_of(tmp_path / "x.jsonl")[0]["metadata"]["id"] == "a"


LOAD = """
import sys, json, datasets
for place in sys.argv[1:]:
    data = datasets.load_dataset("json", data_files=place) if place.endswith("jsonl") else datasets.load_dataset(place)
    print(json.dumps({split: len(data[split]) for split in data}))
"""


@pytest.mark.slow
def test_datasets_loads_every_format_of_uneven_rows(tmp_path: Path):
    pytest.importorskip("datasets")
    # More than the 10 MB that the package reads at a time, so that the types of a part must fit the whole.
    long = "Solution: " + "x" * 20_000
    said = ["Instruction: A\nInput: None", long]

    def made(number: int) -> Transcript:
        late = number > 600
        scores = {"helpful": Score(4.5)} if late else {"other": Score(None)} if number % 2 else {}
        inputs = {f"column {number % 7}": "7"} if late else {}
        return talk(f"{number:04d}", [*said, *said], scores=scores, inputs=inputs, task=Task(said[0]))

    given = [made(number) for number in range(1200)]
    places = [
        tmp_path / f"{name}.jsonl" for name in FORMATS if name not in ("dataset", "inspect", "problems")
    ]
    for path in places:
        FORMATS[path.stem].write(given, path, release=RELEASE)
    dataset({"train": given[:700], "test": given[700:]}, tmp_path / "set")
    own = {"HF_HOME": str(tmp_path / "home"), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", **own}
    command = [sys.executable, "-c", LOAD, *map(str, [*places, tmp_path / "set"])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, last = map(json.loads, done.stdout.splitlines())
    assert all(found["train"] >= 1200 for found in lines), lines
    assert last == {"train": 700, "test": 500}


# ---------------------------------------------------------------- splits


def imported(folder: Path, given: list[Transcript]) -> Run:
    store(open_folder(folder), given, "dataset")
    return Run(folder)


SHARES = {"train": 0.8, "test": 0.2}


def split_ids(run: Run, path: Path, **options: Any) -> dict[str, set[str]]:
    run.export("messages", path, split=SHARES, **options)
    return {name: {row["metadata"]["id"] for row in rows_of(path / f"{name}.jsonl")} for name in SHARES}


def test_splits_go_by_id_and_nothing_moves(tmp_path: Path):
    given = [asked(str(number)) for number in range(400)]
    first = split_ids(imported(tmp_path / "first", given[:300]), tmp_path / "a")
    more = split_ids(imported(tmp_path / "more", given[::-1]), tmp_path / "b")
    assert first["train"] | first["test"] == {str(number) for number in range(300)}
    assert not first["train"] & first["test"]
    assert 0.7 < len(first["train"]) / 300 < 0.9
    assert first["train"] <= more["train"]
    assert first["test"] <= more["test"]


def test_a_group_is_in_one_split(tmp_path: Path):
    given = [asked(str(number), inputs={"customer": str(number % 40)}) for number in range(400)]
    found = split_ids(imported(tmp_path / "run", given), tmp_path / "out", split_by="input.customer")
    customers = {name: {int(id) % 40 for id in ids} for name, ids in found.items()}
    assert customers["train"] | customers["test"] == {*range(40)}
    assert not customers["train"] & customers["test"]


def test_a_dataset_has_its_splits(tmp_path: Path):
    run = imported(tmp_path / "run", [asked(str(number)) for number in range(50)])
    run.export("dataset", tmp_path / "set", split=SHARES, license="mit")
    names = {file.name.partition("-")[0] for file in (tmp_path / "set" / "data").iterdir()}
    assert names == {"train", "test"}
    assert len(list(IMPORTERS["dataset"](tmp_path / "set"))) == 50


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": {"train": 0.5}}, "add up to 1"),
        ({"split": {"../x": 1.0}}, r"\.\./x"),
        ({"split": {"a": 1.5, "b": -0.5}}, "above 0"),
        ({"split": SHARES, "split_by": "input.nothing"}, "input.customer"),
        ({"split": SHARES, "split_by": "color"}, "'color'.*input.NAME"),
        ({"by": "score.helpful"}, "by"),
        ({"title": "x"}, "title"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], words: str, tmp_path: Path):
    run = imported(tmp_path / "run", [asked()])
    with pytest.raises(InputError, match=words):
        run.export("messages", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- preferences from scores


def scored(id: str, score: float | None, *turns: str) -> Transcript:
    return asked(id, turns, scores={} if score is None else {"helpful": Score(score)})


def test_the_higher_score_is_chosen(tmp_path: Path):
    given = [
        scored("low", 1.0, "Q", "bad", "why?", "no idea"),
        scored("high", 5.0, "Q", "good", "thanks", "welcome"),
        scored("same", 5.0, "Q", "other", "thanks", "welcome"),
        scored("near", 4.5, "Q", "good", "really?", "yes"),
        scored("none", None, "Q", "unscored"),
        scored("alone", 1.0, "Another", "bad"),
    ]
    run = imported(tmp_path / "run", given)
    assert run.export("preferences", tmp_path / "p.jsonl", by="score.helpful").rows == 2
    near, low = rows_of(tmp_path / "p.jsonl")
    assert [turn["content"] for turn in low["prompt"]] == ["Be kind.", "Q"]
    assert [turn["content"] for turn in low["chosen"]] == ["good", "thanks", "welcome"]
    assert [turn["content"] for turn in low["rejected"]] == ["bad", "why?", "no idea"]
    assert (low["metadata"]["id"], low["metadata"]["rejected_id"]) == ("high", "low")
    assert {row[part][0]["role"] for row in (near, low) for part in ("chosen", "rejected")} == {"assistant"}
    assert near["chosen"][0] == near["rejected"][0], "they differ after the first reply"
    assert run.export("preferences", tmp_path / "q.jsonl", by="score.helpful", margin=1).rows == 1


@pytest.mark.parametrize(("by", "words"), [("score.helpful", "score.helpful differs"), ("score.other", "score.helpful"), ("input.customer", "number")])  # fmt: skip
def test_no_pair_is_an_error_with_the_reason(by: str, words: str, tmp_path: Path):
    run = imported(tmp_path / "run", [scored("a", 1.0, "Q", "x"), scored("b", 1.0, "Q", "y")])
    with pytest.raises(InputError, match=words):
        run.export("preferences", tmp_path / "p.jsonl", by=by)
    assert not (tmp_path / "p.jsonl").exists()


@given(
    st.lists(
        st.tuples(st.sampled_from("AB"), st.sampled_from("xyz"), st.integers(0, 3)), min_size=1, max_size=8
    )
)
@FUZZ
def test_pairs_are_of_one_prompt_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, given: list[tuple[str, str, int]]
):
    path = tmp_path_factory.mktemp("pairs") / "p.jsonl"
    talks = [scored(f"{at}", score, question, answer) for at, (question, answer, score) in enumerate(given)]
    score_of = {f"{at}": score for at, (_, _, score) in enumerate(given)}
    try:
        from camel.formats.preferences import preferences

        preferences(talks, path, by="score.helpful")
    except InputError:
        return
    for row in rows_of(path):
        about = row["metadata"]
        assert score_of[about["id"]] > score_of[about["rejected_id"]]
        assert (
            given[int(about["id"])][0] == given[int(about["rejected_id"])][0] == row["prompt"][-1]["content"]
        )
        assert row["chosen"] != row["rejected"]


TRAIN = """
import sys
from pathlib import Path
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer
from tests.training.test_launch import make_model

root = Path(sys.argv[1])
make_model(root / "model")
template = (
    "{% if tools %}{{ 'tools:' + tools | tojson + eos_token }}{% endif %}{% for m in messages %}"
    "{{ m['role'] + ':' + m['content'] }}{% for c in m.get('tool_calls') or [] %}{{ c['function']['name'] }}"
    "{% for key, value in c['function']['arguments'].items() %}{{ ' ' + key + '=' + value | string }}{% endfor %}"
    "{% endfor %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
more = {"max_steps": 1, "report_to": [], "use_cpu": True, "save_strategy": "no", "bf16": False, "max_length": 512}
tokenizer = AutoTokenizer.from_pretrained(root / "model")
tokenizer.chat_template = template
for kind, settings, trainer, file in (
    ("sft", SFTConfig, SFTTrainer, "messages.jsonl"),
    ("dpo", DPOConfig, DPOTrainer, "preferences.jsonl"),
    ("reward", RewardConfig, RewardTrainer, "preferences.jsonl"),
    ("steps", DPOConfig, DPOTrainer, "step_preferences.jsonl"),
):
    rows = load_dataset("json", data_files=str(root / file), split="train")
    model = str(root / "model")
    if kind == "reward":
        model = AutoModelForSequenceClassification.from_pretrained(model, num_labels=1)
        model.config.pad_token_id = tokenizer.pad_token_id
    given = settings(output_dir=str(root / kind), **more)
    made = trainer(model=model, args=given, train_dataset=rows, processing_class=tokenizer)
    print(kind, made.train().training_loss)
    if kind == "sft":
        for row in made.train_dataset:
            print("row", tokenizer.decode(row["input_ids"]).replace(chr(10), " "))

if len(sys.argv) > 2:  # the last version with a PRMTrainer; the other packages are imported already
    for name in [one for one in sys.modules if one.partition(".")[0] == "trl"]:
        del sys.modules[name]
    sys.path.insert(0, sys.argv[2])
    import trl
    from trl.experimental.prm import PRMConfig, PRMTrainer

    model = AutoModelForTokenClassification.from_pretrained(root / "model", num_labels=2)
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    rows = load_dataset("json", data_files=str(root / "process_reward.jsonl"), split="train")
    given = PRMConfig(output_dir=str(root / "prm"), learning_rate=1e-3, **more)
    made = PRMTrainer(model=model, args=given, train_dataset=rows, processing_class=tokenizer)
    print("prm", made.train().training_loss)
    assert trl.__version__ == "1.13.0"
    assert sum(not one.equal(before[name]) for name, one in made.model.named_parameters()) > 10
    print("labels", [[one for one in row["labels"] if one >= 0] for row in made.train_dataset])
"""


@pytest.mark.slow
def test_trl_trains_on_the_exports_for_one_step(tmp_path: Path):
    pytest.importorskip("trl")
    given = [scored(f"{n}", float(n % 3), f"Question {n // 3}", f"Answer {n}") for n in range(12)]
    for place, one in enumerate(given[::2]):
        action = Action("add", f'{{"a": {place}, "b{place}": [1]}}', f"sum {place}", call=f"call-{place}")
        one.messages[-1] = replace(one.messages[-1], actions=[action])
        one.speakers[1] = replace(one.speakers[1], tools=[ToolSchema("add", "Add.", {"type": "object"})])
    run = imported(tmp_path / "run", given)
    run.export("messages", tmp_path / "messages.jsonl")
    run.export("preferences", tmp_path / "preferences.jsonl", by="score.helpful")
    credits = credited([record(n, 4) for n in range(8)], World(), tmp_path / "credit")
    for kind in ("step_preferences", "process_reward"):
        (tmp_path / f"{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in credits.rows(kind)))
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "home"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    prm = [str(ASIDE)] if ASIDE.exists() else []
    command = [sys.executable, "-c", TRAIN, str(tmp_path), *prm]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [
        line.split()[0]
        for line in done.stdout.splitlines()
        if line.startswith(("sft ", "dpo ", "reward ", "steps "))
    ] == [*("sft", "dpo", "reward", "steps")]
    labels = [[int(one) for one in row["labels"]] for row in credits.rows("process_reward")]
    assert [line for line in done.stdout.splitlines() if line.startswith("labels ")] == [
        f"labels {labels}"
    ] * len(prm)
    rows = [line for line in done.stdout.splitlines() if line.startswith("row ")]
    assert sum("add a=3 b3=[1]" in row and "tool:sum 3" in row and "tools:[" in row for row in rows) == 1
    assert sum("tools:[" not in row for row in rows) == 6


# ---------------------------------------------------------------- cards


def test_a_card_has_prompts_sampling_cost_and_languages(tmp_path: Path):
    yaml = pytest.importorskip("yaml")
    german = "Der Hund ist nicht in dem Haus, und die Katze ist auch nicht da, weil es regnet."
    prompt = "You are kind.\n# Not a heading\n```"
    speakers = [Speaker("user", "U"), Speaker("assistant", "A", prompt)]
    dataset([talk("a", [german, german], speakers=speakers)], tmp_path / "set", input_licenses=["cc-by-4.0"])
    card = (tmp_path / "set" / "README.md").read_text()
    assert yaml.safe_load(card[4:].partition("\n---\n")[0])["language"] == ["de"]
    assert "      # Not a heading" in card
    for words in (
        "## Prompts",
        "- Sampling",
        "- Cost: not recorded",
        "`German` (1)",
        "License of the inputs: cc-by-4.0",
    ):
        assert words in card
    dataset([talk("a", labels=["misalignment"])], tmp_path / "gated", release=RELEASE, language="pl")
    gated = (tmp_path / "gated" / "README.md").read_text()
    assert "## Prompts" not in gated
    assert 'language:\n- "pl"' in gated


def test_licenses_of_several_tables():
    tables = tuple(SecondTable(source="a.csv", license=one) for one in ("mit", "mit", "cc0-1.0"))
    assert Inputs(tables=tables).licenses == ["mit", "cc0-1.0"]
    assert Inputs(source="a.csv", license="mit").licenses == ["mit"]
    assert Inputs(source="a.csv").licenses == []
