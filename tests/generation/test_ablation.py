"""Ablation: sentences are found and taken out whole, variants share their items, and what a sentence does is found out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import InputError, Run
from camel.core import inception
from camel.evaluation.comparison import AblationFigures
from camel.generation.ablation import WHOLE, sentences, smaller, variants, without
from camel.generation.config import GenerateConfig
from camel.jobs.budget import Budget
from camel.library.ablation import Ablation
from camel.models.simulator import Constant, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.scenarios import load, scaffold
from tests.support.endpoints import serve
from tests.support.jobs import run

COUNTS = {"assistant_role": 3, "user_role": 2, "task": 3}


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def test_the_paper_s_prompts_fall_into_their_sentences():
    found = pieces(inception.paper().assistant)
    assert found[:3] == [
        "Never forget you are a <ASSISTANT_ROLE> and I am a <USER_ROLE>.",
        "Never flip roles!",
        "Never instruct me!",
    ]
    assert "Here is the task: <TASK>." in found
    assert (
        "Unless I say the task is completed, you should always start with:\n\nSolution: <YOUR_SOLUTION>"
        in found
    )
    assert found[-1] == "Always end <YOUR_SOLUTION> with: Next request."
    assert "2. Instruct without any input:\nInstruction: <YOUR_INSTRUCTION>\nInput: None" in pieces(
        inception.paper().user
    )


def test_lines_without_a_full_stop_are_sentences_too():
    lines = [
        "Never flip roles",
        "You always instruct me",
        "- be brief",
        "- be kind",
        "  * and patient",
        "Continue",
    ]
    assert pieces("\n".join(lines)) == [line.strip() for line in lines]
    wrapped = "You must write a solution that\nappropriately completes it, and\n<TASK> with it"
    assert pieces(wrapped) == [wrapped]
    form = "Answer so:\nSolution: <YOUR_SOLUTION>\nReason: <YOUR_REASON>"
    assert pieces(f"{form}\n\nBe kind") == [form, "Be kind"]


@given(st.text(st.sampled_from('aB.!?: \n1<"-')))
def test_nothing_is_lost_between_sentences(text: str):
    spans = sentences(text)
    rest = list(text)
    last = 0
    for start, end in spans:
        assert last <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        rest[start:end] = " " * (end - start)
        last = end
    assert not "".join(rest).strip()


@given(st.data())
def test_taking_a_sentence_out_leaves_the_others(data: st.DataObject):
    text = data.draw(st.sampled_from([inception.paper().assistant, inception.paper().user]))
    spans = sentences(text)
    number = data.draw(st.integers(0, len(spans) - 1))
    left = without(text, *spans[number])
    kept = [text[a:b] for place, (a, b) in enumerate(spans) if place != number]
    assert re.sub(r"\s+", "", left) == re.sub(r"\s+", "", "".join(kept))
    assert "\n\n\n" not in left
    assert left == left.strip()


def test_a_scenario_is_made_small():
    society = load("ai_society")
    for wanted in (1, 7, 20, 1000):
        made = society.resized(smaller(society, wanted))
        assert wanted / 2 <= made.count <= wanted


def config(url: str, **more: object) -> GenerateConfig:
    return GenerateConfig("ai_society", ModelSpec("simulated", base_url=url), counts=COUNTS, **more)  # pyright: ignore


def ablated(given: GenerateConfig, out: Path, names: Sequence[str]) -> Ablation:
    return Ablation(given, str(out), tuple(names))


@pytest.mark.slow
def test_it_finds_out_what_a_sentence_does_and_pays_once(tmp_path: Path):
    """The simulated endpoint plays a seat by one sentence of its prompt: the truth about each sentence is known."""
    with serve(SimulatorSettings(length=Constant(7), words=20)) as endpoint:
        names = ["user-02", "assistant-02", "assistant-03"]
        ablation = ablated(config(endpoint.base_url), tmp_path, names)
        assert [variant.name for variant in ablation.variants] == [WHOLE, *names]
        assert ablation.plan().items == 4 * 18
        outcome = run(ablation)
        assert outcome.complete
        paid = endpoint.ledger().served
        assert run(ablated(config(endpoint.base_url), tmp_path, names)).complete
        assert endpoint.ledger().served == paid
    runs = {variant.name: list(Run(ablation.run_of(variant))) for variant in ablation.variants}
    for records in runs.values():
        assert [record.inputs for record in records] == [record.inputs for record in runs[WHOLE]]
        assert {record.scenario for record in records} == {"ai_society"}
    system = runs["assistant-03"][0].speakers[1].system
    assert "Never instruct me!" not in system
    made = outcome.result
    assert isinstance(made, AblationFigures)
    assert {(removal.name, effect.measure) for removal, effect in made.sure()} >= {
        ("assistant-03", "format_violation")
    }
    assert {removal.name for removal, _ in made.sure()} == {"assistant-03"}
    for removal in made.removals:
        if removal.name != "assistant-03":
            assert all(effect.difference.difference == 0 for effect in removal.effects)


@pytest.mark.slow
def test_a_budget_is_for_all_variants_together(tmp_path: Path):
    with serve(SimulatorSettings(length=Constant(3), words=20)) as endpoint:
        limited = config(endpoint.base_url, budget=Budget(calls=120))
        names = ["user-01", "user-02"]
        outcome = run(ablated(limited, tmp_path, names), budget=limited.budget)
        assert not outcome.complete
        assert "budget" in outcome.reason
        assert endpoint.ledger().served <= 121
        assert run(ablated(config(endpoint.base_url), tmp_path, names)).complete


def test_what_cannot_be_ablated_says_why(tmp_path: Path):
    with pytest.raises(InputError, match="math"):
        variants(load("math"))
    with pytest.raises(InputError, match="--list"):
        assert ablated(config("http://127.0.0.1:9"), tmp_path, ["user-99"]).variants


def test_a_scenario_of_one_s_own_is_copied_whole(tmp_path: Path):
    own = scaffold(tmp_path / "gardens")
    (own / "mine.txt").write_text("You are <EXPERT>. Help me. <TASK> Solution: Next request.")
    declaration = (own / "scenario.toml").read_text() + 'assistant_prompt = "mine.txt"\n'
    (own / "scenario.toml").write_text(declaration)
    given = GenerateConfig(str(own), ModelSpec("m"))
    ablation = ablated(given, tmp_path / "out", ["assistant-02", "user-02"])
    whole, user, assistant = (ablation.config_of(variant).loaded_scenario() for variant in ablation.variants)
    assert whole.fingerprint() == load(own).resized(ablation.config.counts).fingerprint()
    assert "Help me." not in assistant.end.inception.assistant  # pyright: ignore
    assert "Never flip roles!" not in user.end.inception.user  # pyright: ignore
    assert user.end.inception.assistant == whole.end.inception.assistant  # pyright: ignore
