"""A run with a model that thinks is the run that the same model makes without thoughts, and the thoughts are in the record alone.

The endpoint answers by what it is asked, so one thought in one prompt would change what is said after it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from camel import Run
from camel.formats.exporters import FORMATS
from camel.generation.config import GenerateConfig, RunSection
from camel.models.simulator import Constant, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.scenarios.critics import CriticSettings
from tests.support.endpoints import serve
from tests.support.explorer_client import client
from tests.support.jobs import generation
from tests.support.thinkers import HEARD, MARKER

pytest.importorskip("pyarrow")

CRITICS = {
    "none": None,
    "choose": CriticSettings(),
    "score": CriticSettings(mode="score"),
    "feedback": CriticSettings(mode="feedback", revisions=1),
}


def make(where: Path, author: str, critic: CriticSettings | None, tasks: int) -> Run:
    """A run of four pairs of roles: lists, specified tasks, conversations, a critic."""
    with serve(SimulatorSettings(length=Constant(7), words=20, author=author)) as endpoint:
        config = GenerateConfig(
            scenario="ai_society",
            model=ModelSpec("simulated", base_url=endpoint.base_url),
            out=str(where),
            counts={"assistant_role": 2, "user_role": 2, "task": tasks},
            critic=critic,
            run=RunSection(concurrency=8),
        )
        assert asyncio.run(generation(config).run()).status == "complete"
    return Run(where)


def check(tmp_path: Path, critic: str, author: str, tasks: int) -> None:
    plain = make(tmp_path / "plain", "society", CRITICS[critic], tasks)
    thinking = make(tmp_path / "thinking", f"tests.support.thinkers:{author}", CRITICS[critic], tasks)
    assert len(thinking) == 4 * tasks
    for record in thinking:
        assert all(MARKER in message.reasoning for message in record.messages)
        spoken = [record.task.text, *(message.content for message in record.messages)]
        assert not any(MARKER in text or HEARD in text for text in spoken)
    for name in ("chat", "instruction", "messages", "alpaca"):
        files = [tmp_path / f"{run}-{name}.jsonl" for run in ("plain", "thinking")]
        for run, file in zip((plain, thinking), files, strict=True):
            FORMATS[name].write(run, file)
        assert files[0].read_bytes() == files[1].read_bytes()
    # Data files hold the record; nothing else of the run holds a thought.
    others = [
        path for path in (tmp_path / "thinking").rglob("*") if path.is_file() and "data" not in path.parts
    ]
    assert others
    assert not any(MARKER.encode() in path.read_bytes() for path in others)


@pytest.mark.parametrize("critic", CRITICS)
def test_the_same_conversations_with_and_without_thoughts(critic: str, tmp_path: Path):
    check(tmp_path, critic, "before_a_tag" if critic == "none" else "between_tags", 1)


@pytest.mark.thorough
@pytest.mark.parametrize("critic", CRITICS)
def test_two_hundred_of_them(critic: str, tmp_path: Path):
    check(tmp_path, critic, "between_tags", 50)


def test_pages_show_thoughts_folded_on_the_page_of_a_conversation_only(tmp_path: Path):
    from camel.query.catalogue import Catalogue

    run = make(tmp_path / "run", "tests.support.thinkers:between_tags", None, 1)
    id = run[0].transcript.id
    with Catalogue([tmp_path / "run"]) as catalogue:
        app = client(catalogue)
        page = app.get(f"/conversation/{quote('run')}?{urlencode({'id': id})}").text
        before, _, rest = page.partition('<details class="fold thought">')
        assert MARKER not in before
        thought, _, after = rest.partition("</details>")
        assert MARKER in thought
        assert MARKER not in after.rpartition("</details>")[2]
        pinned = urlencode({"left": f"run/{id}", "right": f"run/{id}"})
        for other in ("/", "/list", "/list?q=trap", "/statistics", f"/compare?{pinned}"):
            assert MARKER not in app.get(other).text


SOCIETY = """
[turns]
policy = "moderated"
moderator = "Host"
[stop]
max_messages = 6
[[members]]
name = "Host"
[[members]]
name = "Ann"
[[members]]
name = "Bob"
"""


@pytest.mark.parametrize("size", [2, pytest.param(200, marks=pytest.mark.thorough)])
def test_neither_a_moderator_nor_a_judge_hears_a_thought(size: int, tmp_path: Path):
    """A thought says `Next: Bob`, and another gives a verdict: who speaks and what is judged stay as they are without."""
    from camel import connect, study

    folder = tmp_path / "meeting"
    folder.mkdir()
    (folder / "society.toml").write_text(SOCIETY)
    items = ", ".join(f'"Topic {number}"' for number in range(size))
    (folder / "scenario.toml").write_text(
        f'title = "Meeting"\n[[levels]]\nname = "topic"\nitems = [{items}]\n[society]\ntask = "Discuss <TOPIC>"\n'
    )
    said: list[list[list[tuple[str, str]]]] = []
    judged: list[object] = []
    for author in ("society", "tests.support.thinkers:between_tags"):
        where = tmp_path / author.rpartition(":")[2]
        with serve(SimulatorSettings(length=Constant(7), words=20, author=author)) as endpoint:
            model = ModelSpec("simulated", base_url=endpoint.base_url)
            config = GenerateConfig(str(folder), model, out=str(where / "run"))
            assert asyncio.run(generation(config).run()).status == "complete"
            conversation = make(where / "conversation", author, None, 1)
            judge = connect("simulated", base_url=endpoint.base_url)
            found = study(conversation.folder.root, out=where / "study", judge=judge, progress=False)
        said.append(
            [[(one.speaker, one.content) for one in record.messages] for record in Run(where / "run")]
        )
        verdict = found.deserved
        assert verdict is not None
        judged.append(
            (verdict.rate, verdict.asked, verdict.undecided, [one.reason for one in verdict.examples])
        )
        pages = [
            path for path in (where / "study").rglob("*") if path.is_file() and path.suffix != ".journal"
        ]
        assert pages
        assert not any(MARKER.encode() in path.read_bytes() for path in pages if "kept" not in path.parts)
    assert said[0] == said[1]
    assert judged[0] == judged[1]
