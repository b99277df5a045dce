"""Every place that takes a model's name takes all forms of it: the endpoint's ledger is the witness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import camel
from camel.models import hub, local
from camel.models.local import LocalServer, Running
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from tests.support.command import camel as run
from tests.support.contests import a_run
from tests.support.endpoints import serve

pytest.importorskip("pyarrow")
MODEL = "some-model"
GENERATE = (
    'scenario = "ai_society"\nout = "made"\ncounts = {{ assistant_role = 1, user_role = 1, task = 1 }}\n'
    "[model]\nname = {name!r}\n"
)
EMERGENCE = (
    'base = "{name}"\njudges = ["{name}"]\nrepeats = 0\nout = "emerging"\n[[steps]]\nname = "AI Society"\nmodel = "{name}"\n'
    '[[domains]]\nname = "math"\nquestions = 1\nsubjects = ["geometry"]\n'
)
SOCIETY = 'task = "Dig"\n[[members]]\nname = "Ada"\n[[members]]\nname = "Bob"\n[stop]\nmax_messages = 2\n'


class Form(NamedTuple):
    """A way to name a model."""

    name: str
    """URL, FILE and PORT are filled in."""
    recorded: str
    """What a run says it was made with."""


FORMS = {
    "url": Form(f"{MODEL}@URL", MODEL),
    "file": Form("FILE", "tiny.gguf"),
    "hub": Form("hf:some/tiny-GGUF:q8_0", "hf:some/tiny-GGUF:Q8_0"),
    "ollama": Form(f"ollama:{MODEL}", f"ollama:{MODEL}"),
    "local": Form("local", "smollm2-135m"),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(model=MODEL, words=5, length=Constant(3))) as process:
        yield process


@pytest.fixture
def form(
    request: pytest.FixtureRequest,
    endpoint: SimulatorProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Form:
    """A name in this form. What is served here is served by the simulated endpoint, and nothing else can be reached."""
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")

    @contextmanager
    def running(settings: LocalServer, say: Any = None) -> Generator[Running]:
        yield Running(endpoint.base_url, settings.alias, settings.context_tokens, None)  # type: ignore[arg-type]

    monkeypatch.setattr(local, "check_extra", lambda: None)
    monkeypatch.setattr(local, "running", running)
    monkeypatch.setattr(local, "find_model", lambda say: file)
    monkeypatch.setattr("camel.training.emergence.experiment.find_model", lambda say: file)
    monkeypatch.setattr(hub, "fetch", lambda name, say=None: (name, file))
    monkeypatch.setenv("OLLAMA_HOST", endpoint.base_url.removesuffix("/v1"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    form = FORMS[request.param]
    return form._replace(name=form.name.replace("URL", endpoint.base_url).replace("FILE", str(file)))


def command(*words: str) -> Callable[[str, Path], None]:
    """A command in which MODEL is the name; a file NAME.toml is written as it is called."""
    files = {"made.toml": GENERATE, "emerging.toml": EMERGENCE, "debate.toml": SOCIETY.replace("{", "{{")}

    def call(name: str, folder: Path) -> None:
        a_run(folder / "run", numbers=range(2), size=2)
        for file, text in files.items():
            (folder / file).write_text(text.format(name=name))
        done = run(*(word.replace("MODEL", name) for word in words), cwd=folder)
        # The doctor finds that the small model's server keeps to no grammar.
        assert done.status == (words[0] == "doctor" and name == "local"), done.stdout + done.stderr

    return call


def role_play(name: str, folder: Path) -> None:
    camel.RolePlaying("Dig", assistant="A", user="B", model=name, specify=False, max_messages=2).run()


def society(name: str, folder: Path) -> None:
    camel.Society("Dig", members=["Ada", "Bob"], model=name, stop=camel.Ending(max_messages=2)).run()


def generate(name: str, folder: Path) -> None:
    play = camel.RolePlaying("Dig", assistant="A", user="B", specify=False, max_messages=2)
    camel.generate(play, model=name, out=folder / "made", progress=False)


def connect(name: str, folder: Path) -> None:
    async def ask() -> str:
        async with camel.connect(name) as model:
            return await model.ask("Hello?")

    assert asyncio.run(ask())


def judge(name: str, folder: Path) -> None:
    a_run(folder / "run", numbers=range(2), size=2)
    camel.study(folder / "run", judge=name, sample=1, progress=False)


def ablate(name: str, folder: Path) -> None:
    generate(name, folder)
    command(
        "ablate",
        "made",
        "--sentence",
        "user-02",
        "--max-messages",
        "2",
        "--out",
        "ablated",
        "--model",
        "MODEL",
    )(name, folder)


PLACES = {
    "generate": command("generate", "made.toml"),
    "ablate": ablate,
    "translate": command("translate", "run", "--to", "de", "--model", "MODEL"),
    "study": command("study", "run", "--judge", "MODEL", "--sample", "1"),
    "agents": command("evaluate", "agents", "run", "--judge", "MODEL", "--model", "MODEL", "--sample", "1", "--repeats", "0"),
    "humaneval": command("evaluate", "humaneval", "--model", "MODEL", "-n", "1", "--problems", "1", "--out", "solved"),
    "emergence": command("evaluate", "emergence", "emerging.toml"),
    "play": command("play", "--model", "MODEL", "--max-messages", "2", "--no-specify"),
    "society": command("society", "debate.toml", "--model", "MODEL"),
    "doctor": command("doctor", "--model", "MODEL"),
    "RolePlaying": role_play,
    "Society": society,
    "camel.generate": generate,
    "camel.study": judge,
    "camel.connect": connect,
}  # fmt: skip


# Each place and each form more than once; all pairs of them are thorough.
PAIRS = [
    pytest.param(place, form, marks=pytest.mark.slow if (row + column) % 5 == 0 else pytest.mark.thorough)
    for row, place in enumerate(PLACES)
    for column, form in enumerate(FORMS)
]


@pytest.mark.parametrize(("place", "form"), PAIRS, indirect=["form"])
def test_every_place_takes_every_form(place: str, form: Form, endpoint: SimulatorProcess, tmp_path: Path):
    before = endpoint.ledger().served
    PLACES[place](form.name, tmp_path)
    assert endpoint.ledger().served > before
    if (tmp_path / "made" / "run.json").exists():
        assert camel.Run(tmp_path / "made").settings.config["model.name"] == form.recorded
