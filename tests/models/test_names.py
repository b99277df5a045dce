"""What a model's name says, everywhere a name is taken: where the model is, how it is recorded, and what it needs first."""

from __future__ import annotations

import asyncio
import gc
import pickle
import struct
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import camel
from camel.core.errors import InputError
from camel.core.history import History
from camel.core.model import Request
from camel.jobs.launch import JobOptions, Launch
from camel.models import local
from camel.models.chat import ChatModel
from camel.models.connect import MODELS, pool_of
from camel.models.endpoint import ollama_url
from camel.models.local import LocalServer, Running, usual_window, weights_digest
from camel.models.prices import FREE
from camel.models.simulator import SimulatorProcess, SimulatorSettings
from camel.models.spec import SLOTS, ModelSpec, find_spec
from tests.support.endpoints import serve

NAME = "some-model"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(model=NAME)) as process:
        yield process


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that begins as a GGUF file does."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf(2048))
    return path


def gguf(window: int, kind: int = 4, before: bytes = b"") -> bytes:
    """The beginning of a GGUF file: two pairs of metadata."""
    values = {4: "<I", 10: "<Q"}

    def pair(name: bytes, kind: int, value: bytes) -> bytes:
        return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value

    text = struct.pack("<Q", 5) + b"llama"
    pairs = [pair(b"general.architecture", 8, text), pair(b"llama.context_length", kind, struct.pack(values[kind], window))]  # fmt: skip
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + before + b"".join(pairs)


# ---------------------------------------------------------------- what a name says


@pytest.mark.parametrize(
    ("given", "name", "base_url", "file"),
    [
        ("gpt-4", "gpt-4", "", ""),
        ("gpt-4@https://host:1/v1", "gpt-4", "https://host:1/v1", ""),
        ("a/b@http://host/v1", "a/b", "http://host/v1", ""),
        ("x.gguf@http://host/v1", "x.gguf", "http://host/v1", ""),
        ("local", "smollm2-135m", "", "local"),
        ("models/tiny.gguf", "tiny.gguf", "", "models/tiny.gguf"),
        ("~/TINY.GGUF", "TINY.GGUF", "", "~/TINY.GGUF"),
        ("hf:some/tiny-GGUF", "hf:some/tiny-GGUF", "", "hf:some/tiny-GGUF"),
        ("hf:some/tiny-GGUF:q4_k_m", "hf:some/tiny-GGUF:Q4_K_M", "", "hf:some/tiny-GGUF:Q4_K_M"),
        ("ollama:llama3.2:1b", "ollama:llama3.2:1b", "", ""),
        ("kind:name", "kind:name", "", ""),
    ],
)
def test_what_a_name_says(given: str, name: str, base_url: str, file: str):
    spec = ModelSpec(given)
    assert (spec.name, spec.base_url, spec.file) == (name, base_url, file)
    assert spec.is_here == bool(file or given.startswith("ollama:"))
    # The same wherever it is sent, and however it is stored.
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert msgspec.convert(msgspec.to_builtins(spec), ModelSpec) == spec
    assert msgspec.structs.replace(spec) == spec


def test_with_a_base_url_the_name_is_the_endpoint_s(file: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("local", "tiny.gguf", "hf:a/b", "ollama:a"):
        spec = ModelSpec(name, "http://host/v1")
        assert (spec.name, spec.file, spec.is_here) == (name, "", False)
    # The endpoint of a command line is for names that do not say where they are.
    elsewhere = "http://127.0.0.1:9/v1"
    for name in ("local", "hf:a/b", "ollama:a", str(file)):
        assert find_spec(name, base_url=elsewhere).is_here
    assert find_spec("a@http://127.0.0.1:7/v1", base_url=elsewhere).base_url == "http://127.0.0.1:7/v1"
    # llama.cpp's server calls its model by the file that it has.
    spec = find_spec("models/away.gguf", base_url=elsewhere)
    assert (spec.name, spec.base_url, spec.is_here) == ("models/away.gguf", elsewhere, False)


def test_what_is_served_here_costs_nothing(file: Path):
    for name in ("local", str(file), "hf:a/gpt-4", "ollama:gpt-4"):
        assert ModelSpec(name).cost() == FREE
    price = camel.ModelSpec("gpt-4").cost()
    assert price
    assert price != FREE
    assert ModelSpec("ollama:big-cloud", price=price).cost() == price


@pytest.mark.parametrize("word", ["hf", "ollama", "local"])
def test_no_plug_in_takes_a_reserved_word(word: str, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match=word):
        MODELS[word] = lambda name: camel.ScriptedModel([])
    monkeypatch.setattr("camel.core.plugins.offered", lambda group: {word: ("plugin",)})
    assert word not in MODELS
    assert word not in list(MODELS)
    assert word in MODELS.own  # camel doctor says that nobody can reach such a plug-in


# ---------------------------------------------------------------- GGUF files


@pytest.mark.parametrize(
    ("data", "window"),
    [
        (gguf(2048), 2048),
        (gguf(4096, kind=10), 4096),
        (gguf(131_072), 8192),
        (gguf(0), 8192),
        (b"GGUF", 8192),
        (b"", 8192),
        (gguf(2048).replace(b"llama.context_length", b"llama_context_length"), 8192),
        (gguf(2048)[:-2], 8192),
    ],
)
def test_the_window_of_a_file(data: bytes, window: int, tmp_path: Path):
    (tmp_path / "x.gguf").write_bytes(data)
    assert usual_window(tmp_path / "x.gguf") == window
    assert ModelSpec(str(tmp_path / "x.gguf")).window == window
    assert ModelSpec(str(tmp_path / "x.gguf"), context_tokens=1000).window == 1000


def test_a_file_s_content_is_part_of_what_it_is(tmp_path: Path):
    names = [tmp_path / name / "tiny.gguf" for name in ("a", "b", "c")]
    for path, end in zip(names, (b"1", b"1", b"2"), strict=True):
        path.parent.mkdir()
        path.write_bytes(b"GGUF" + bytes(5 * 2**20) + end)
    digests = [weights_digest(path) for path in names]
    assert digests[0] == digests[1] != digests[2]
    assert [ModelSpec(str(path)).weights for path in names] == digests
    assert [ModelSpec(name).weights for name in ("gpt-4", "local", "hf:a/b", "away.gguf")] == [""] * 4


def test_a_run_does_not_continue_with_another_file_of_the_name(file: Path, tmp_path: Path):
    config = camel.GenerateConfig("ai_society", ModelSpec(str(file)))
    scenario = config.loaded_scenario()
    before = config.decisive(scenario)
    assert before["model.name"] == "tiny.gguf"
    file.write_bytes(gguf(4096))
    after = config.decisive(scenario)
    assert {name for name in before if before[name] != after[name]} == {"model.weights"}
    assert "model.weights" not in camel.GenerateConfig("ai_society", ModelSpec("gpt-4")).decisive(scenario)


@pytest.mark.parametrize(("content", "says"), [(None, "missing.gguf"), (b"<html>", "not a GGUF")])
def test_a_file_that_cannot_be_served_is_refused_at_once(content: bytes | None, says: str, tmp_path: Path):
    pytest.importorskip("xllamacpp")
    if content:
        (tmp_path / "missing.gguf").write_bytes(content)
    with pytest.raises(InputError, match=says):
        camel.connect(str(tmp_path / "missing.gguf"))


# ---------------------------------------------------------------- served here


class Served:
    """Instead of llama.cpp's server: how it was asked for, and whether it runs."""

    def __init__(self, endpoint: SimulatorProcess) -> None:
        self._endpoint = endpoint
        self.settings: list[LocalServer] = []
        self.running = 0

    @contextmanager
    def __call__(self, settings: LocalServer, say: Any = None) -> Generator[Running]:
        self.settings.append(settings)
        self.running += 1
        try:
            yield Running(self._endpoint.base_url, settings.alias, settings.context_tokens, None)  # type: ignore[arg-type]
        finally:
            self.running -= 1


@pytest.fixture
def served(endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(local, "check_extra", lambda: None)
    monkeypatch.setattr(local, "running", served := Served(endpoint))
    return served


def asked() -> Request:
    history = History()
    history.add("user", "Hello")
    return Request(history)


async def test_equal_specs_share_a_server_which_ends_with_its_last_user(served: Served, file: Path):
    one, two = (camel.connect(str(file)) for _ in range(2))
    other = camel.connect(str(file), context_tokens=1024)
    assert served.settings == []
    replies = await asyncio.gather(*(model.reply(asked()) for model in (one, two, one)))
    assert (served.running, {reply.model for reply in replies}) == (1, {"tiny.gguf"})
    await other.reply(asked())
    assert served.running == 2
    assert [one.context_tokens for one in served.settings] == [2048, 1024]
    # One who is still being answered keeps it.
    last = asyncio.create_task(one.reply(asked()))
    await asyncio.sleep(0)
    await two.aclose()
    assert served.running == 2
    await last
    await one.rest()
    await other.aclose()
    assert served.running == 0
    await one.reply(asked())
    assert (served.running, len(served.settings)) == (1, 3)
    await one.aclose()


async def test_a_file_is_served_as_it_is(served: Served, file: Path):
    async with camel.connect(str(file)) as model:
        await model.reply(asked())
        (server,) = served.settings
        assert (server.model_path, server.alias, server.context_tokens) == (file, "tiny.gguf", 2048)
        assert (model.name, model.context_tokens, model.price) == ("tiny.gguf", 2048, FREE)
        pool = pool_of(model)
        assert pool is not None
        assert pool.size == 1
        # No grammar, unless one is asked for.
        assert [chat.wire.guided for chat in (model.inner,) if isinstance(chat, ChatModel)] == [None]  # type: ignore[attr-defined]


async def test_a_model_that_is_forgotten_takes_its_server_along(served: Served, file: Path):
    model = camel.connect(str(file))
    await model.reply(asked())
    await model.inner.aclose()  # type: ignore[attr-defined]
    assert served.running == 1
    del model
    async with asyncio.timeout(60):
        while served.running:  # a timer of the event loop may refer to it for a moment
            gc.collect()
            await asyncio.sleep(0.01)


async def test_no_more_calls_at_once_than_there_are_slots(served: Served, file: Path):
    async with ModelSpec(str(file)).open(64) as model:
        await asyncio.gather(*(model.reply(asked()) for _ in range(20)))
        assert [one.parallel for one in served.settings] == [SLOTS]
        pool = pool_of(model)
        assert pool is not None
        assert pool.settings.rates.ceiling == SLOTS


@pytest.mark.parametrize("name", ["local", "tiny.gguf", "hf:some/tiny", "ollama:tiny"])
def test_a_cluster_refuses_what_only_this_machine_has(name: str, tmp_path: Path):
    play = camel.RolePlaying("Dig", assistant="A", user="B", model=camel.ScriptedModel([]))
    with pytest.raises(InputError, match="NAME@URL"):
        camel.generate(play, model=name, out=tmp_path / "run", address="auto", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_job_has_no_more_in_flight_than_there_are_slots(served: Served, file: Path, tmp_path: Path):
    pytest.importorskip("pyarrow")
    from camel.generation.dialogues import Dialogues

    play = camel.RolePlaying("Dig", assistant="A", user="B", model=camel.ScriptedModel([]))
    job = Dialogues(play, None, ModelSpec(str(file)), str(tmp_path / "run"))
    assert Launch(job, JobOptions(concurrency=64)).runner.concurrency == SLOTS
    assert Launch(job, JobOptions(concurrency=1)).runner.concurrency == 1


# ---------------------------------------------------------------- Ollama


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("box", "http://box:11434/v1"),
        (' "box:8080" ', "http://box:8080/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("[::1]:8080", "http://[::1]:8080/v1"),
        ("http://box", "http://box:80/v1"),
        ("https://box", "https://box:443/v1"),
        ("https://box:1234/ollama/", "https://box:1234/ollama/v1"),
    ],
)
def test_where_ollama_is(host: str, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert ollama_url() == url


@pytest.mark.parametrize("host", ["box:many", "ftp://box", "user:secret@box:1"])
def test_what_is_no_host_is_refused(host: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", host)
    with pytest.raises(InputError, match="OLLAMA_HOST") as raised:
        ollama_url()
    assert "secret" not in str(raised.value)


async def test_ollama_is_asked_by_its_own_name_and_without_a_key(
    endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OLLAMA_HOST", endpoint.base_url.removesuffix("/v1"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with camel.connect(f"ollama:{NAME}") as model:
        reply = await model.reply(asked())
        assert (model.name, reply.model) == (f"ollama:{NAME}", NAME)
        assert isinstance(model, ChatModel)
        assert "Authorization" not in model._headers  # pyright: ignore[reportPrivateUsage]


def test_what_to_do_about_ollama(endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", endpoint.base_url.removesuffix("/v1"))
    with pytest.raises(InputError, match="ollama pull some-modal"):
        camel.connect("ollama:some-modal")
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9.*ollama serve.*ollama pull tiny"):
        camel.connect("ollama:tiny")
