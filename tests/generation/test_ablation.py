"""Ablation: sentences are found and taken out whole, in all conversations of a run, and what a sentence does is found out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import camel
from camel import InputError, Run
from camel.core import inception
from camel.core.branches import Continuation, filled, template_of, without
from camel.core.transcript import Transcript
from camel.evaluation.branch_report import BranchFigures
from camel.generation.ablation import removals, sentences
from camel.generation.branches import KIND, OF, Branching
from camel.generation.config import GenerateConfig
from camel.generation.generate import Generation
from camel.jobs.budget import Budget
from camel.library.branches import BranchJob, branch_job
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
    left = without(text, text[slice(*spans[number])])
    kept = [text[a:b] for place, (a, b) in enumerate(spans) if place != number]
    assert re.sub(r"\s+", "", left) == re.sub(r"\s+", "", "".join(kept))
    assert "\n\n\n" not in left
    assert left == left.strip()


def config(url: str) -> GenerateConfig:
    return GenerateConfig("ai_society", ModelSpec("simulated", base_url=url), counts=COUNTS, out="")


def made_run(url: str, out: Path) -> list[Transcript]:
    assert run(Generation(msgspec.structs.replace(config(url), out=str(out)))).complete
    return list(Run(out))


def ablated(records: Sequence[Transcript], url: str, out: Path, names: Sequence[str]) -> BranchJob:
    model = ModelSpec("simulated", base_url=url)
    return branch_job(records, 1, removals(records[0], names), 1, model, (), out, 1, {})


def test_sentences_are_found_in_all_conversations_though_their_roles_and_tasks_differ(tmp_path: Path):
    records = [
        camel.RolePlaying(task, assistant=one, user=other, model=camel.ScriptedModel(["Hi"]), specify=False, max_messages=1).run()
        for task, one, other in (("Bake. Slowly!", "Baker", "Guest"), ("Dig", "Miner", "Baker of Miner bread"))
    ]  # fmt: skip
    for record in records:
        for seat, speaker in zip(("user", "assistant"), record.speakers, strict=True):
            assert template_of(speaker.system, record) == getattr(inception.paper(), seat)
    changes = removals(records[0])
    assert len(changes) == 35
    declared = Branching({str(at): one for at, one in enumerate(records)}, 1, changes)
    assert len(list(declared.rows(2))) == 2 * 2 * 36
    chosen = removals(records[0], ["assistant-01", "user-04"])
    for name, speaker in (("assistant-01", 1), ("user-04", 0)):
        for place, record in enumerate(records):
            made = declared.fill({OF: str(place), KIND: name}).play(camel.ScriptedModel(["Hi"] * 40))
            system = made.run().speakers[speaker].system
            assert filled(chosen[name].without, record) not in system
            assert 0.8 < len(system) / len(record.speakers[speaker].system) < 1


@pytest.mark.slow
def test_it_finds_out_what_a_sentence_does_and_pays_once(tmp_path: Path):
    """The simulated endpoint plays a seat by one sentence of its prompt: the truth about each sentence is known."""
    with serve(SimulatorSettings(length=Constant(7), words=20)) as endpoint:
        names = ["user-02", "assistant-02", "assistant-03"]
        records = made_run(endpoint.base_url, tmp_path / "run")
        before = endpoint.ledger().served
        job = ablated(records, endpoint.base_url, tmp_path / "ablated", names)
        outcome = run(job)
        assert outcome.complete
        branches = list(Run(tmp_path / "ablated"))
        assert len(branches) == 4 * 18
        paid = endpoint.ledger().served
        assert paid - before == sum(len(one.messages) for one in branches)
        assert run(ablated(records, endpoint.base_url, tmp_path / "ablated", names)).complete
        assert endpoint.ledger().served == paid
    assert {one.scenario for one in branches} == {"branches at message 1"}
    changed = next(one for one in branches if one.inputs[KIND] == "assistant-03")
    assert "Never instruct me!" not in changed.speakers[1].system
    made = outcome.result
    assert isinstance(made, BranchFigures)
    assert {one.change for one in made.sure} == {"assistant-03"}
    assert "format_violation" in {one.name for one in made.sure}
    others = [one.effect.difference for one in made.outcomes if one.change != "assistant-03"]
    assert others
    assert max(map(abs, others)) < 0.1  # replies differ by chance, as the branches have seeds of their own
    assert job.branches().effect("format_violation", "assistant-03") == next(
        one.effect for one in made.outcomes if (one.change, one.name) == ("assistant-03", "format_violation")
    )


@pytest.mark.slow
def test_a_budget_is_for_all_variants_together(tmp_path: Path):
    with serve(SimulatorSettings(length=Constant(3), words=20)) as endpoint:
        records = made_run(endpoint.base_url, tmp_path / "run")
        paid = endpoint.ledger().served
        job = ablated(records, endpoint.base_url, tmp_path / "ablated", ["user-01", "user-02"])
        outcome = run(job, budget=Budget(calls=60))
        assert not outcome.complete
        assert "budget" in outcome.reason
        assert endpoint.ledger().served <= paid + 61
        assert run(job).complete


def test_what_cannot_be_ablated_says_why():
    record = camel.RolePlaying("Dig", assistant="A", user="B", model=camel.ScriptedModel(["Hi"]), specify=False, max_messages=1).run()  # fmt: skip
    with pytest.raises(InputError, match="--list"):
        removals(record, ["user-99"])
    record.speakers = [msgspec.structs.replace(one, system="") for one in record.speakers]
    with pytest.raises(InputError, match="no system prompt"):
        removals(record)


def test_placeholders_of_a_scenario_of_one_s_own_are_filled(tmp_path: Path):
    own = scaffold(tmp_path / "gardens")
    (own / "mine.txt").write_text("You are <EXPERT>. Help <EXPERT> me. <TASK> Solution: Next request.")
    declaration = (own / "scenario.toml").read_text() + 'assistant_prompt = "mine.txt"\n'
    (own / "scenario.toml").write_text(declaration)
    with serve(SimulatorSettings(length=Constant(3), words=20)) as endpoint:
        counts = {level.name: min(2, level.count) for level in load(own).levels}
        given = GenerateConfig(str(own), ModelSpec("simulated", base_url=endpoint.base_url), counts=counts, out=str(tmp_path / "run"))  # fmt: skip
        assert run(Generation(given)).complete
    records = list(Run(tmp_path / "run"))
    change = removals(records[0], ["assistant-02"])["assistant-02"]
    assert change.without == "Help <EXPERT> me."
    for record in records:
        assert "Help " in record.speakers[1].system
        branch = Continuation(record, 1, {"": camel.ScriptedModel(["Hi"] * 40)}, change)
        system = branch.run().speakers[1].system
        assert "Help " not in system
        assert system.startswith("You are ")
