"""Bad input ends in one line, before any call is paid for. The witness is a model, or an endpoint, that counts its calls."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel.cli import main
from camel.core.checks import shown
from camel.core.conversation import Agent, Conversation
from camel.core.errors import InputError
from camel.core.message import Sampling
from camel.core.role_playing import RolePlaying
from camel.core.stops import MaxMessages, MessageLoop, NoInstruction, TokenLimit
from camel.core.task import Task, TaskSpecifier
from camel.core.transcript import Transcript
from camel.models.chat import ChatModel
from camel.models.scripted import ScriptedModel


class Loud:
    """A value whose `repr` has several lines."""

    def __repr__(self) -> str:
        return "first line\nsecond line\n" + "x" * 500


CIRCULAR: dict[str, Any] = {}
CIRCULAR["self"] = CIRCULAR
NAN, INF = float("nan"), float("inf")


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text.strip() == text != ""
    assert len(text.splitlines()) == 1, text
    assert len(text) < 400
    return text


# --- roles, tasks and what a role play is made of ----------------------------------------------------------------------

TEXTS: dict[str, Any] = {
    "empty": "",
    "blank": " \t\n ",
    "invisible": "\u200b\u2060\ufeff",
    "none": None,
    "number": 42,
    "bool": True,
    "bytes": b"Programmer",
    "list": ["Programmer"],
    "dict": {"role": "Programmer"},
    "an object of many lines": Loud(),
    "half of a surrogate pair": "Program\ud800mer",
    "NUL": "Program\x00mer",
    "huge": "x" * 300_000,
}
ROLE_PLAY: dict[str, dict[str, Any]] = {
    **{f"{part}: {kind}": {part: value} for part in ("assistant", "user", "task") for kind, value in TEXTS.items()},
    "role: over its limit": {"user": "x" * 1001},
    "sampling: dict": {"sampling": {"temperature": 1}},
    "sampling: none": {"sampling": None},
    "sampling: text": {"user_sampling": "hot"},
    "specifier: true": {"specifier": True},
    "specifier: a class": {"specifier": TaskSpecifier},
    "rules: number": {"rules": 3},
    "rules: text": {"rules": "done"},
    "rules: a class": {"rules": [MaxMessages]},
    "rules: a function": {"rules": [lambda messages, call: None]},
    "rules: none inside": {"rules": [None]},
    "inception: text": {"inception": "You are a <ASSISTANT_ROLE>"},
    "watch: text": {"watch": "print"},
    "id: number": {"id": 7},
    "model: text": {"model": "gpt-4.1-mini"},
    "model: a class": {"model": ScriptedModel},
    "model: no reply": {"model": object()},
    "model: reply is no method": {"user_model": type("Odd", (), {"reply": "hello"})()},
    "unknown setting": {"with_critic": True},
}  # fmt: skip


@pytest.mark.parametrize("case", ROLE_PLAY)
def test_role_playing_refuses(case: str):
    witness = ScriptedModel(["never"] * 9)
    settings = {"assistant": "Programmer", "user": "Trader", "task": "A bot", "model": witness} | ROLE_PLAY[
        case
    ]
    expected = TypeError if case == "unknown setting" else InputError
    with pytest.raises(expected) as refused:
        RolePlaying(**settings)
    one_line(refused.value)
    assert witness.requests == []


@pytest.mark.parametrize("name", ["assistant", "user", "task"])
def test_the_error_names_what_is_wrong(name: str):
    settings: dict[str, Any] = {"assistant": "Programmer", "user": "Trader", "task": "A bot"}
    with pytest.raises(InputError, match=name):
        RolePlaying(model=ScriptedModel([]), **(settings | {name: ""}))


class Small(ScriptedModel):
    context_tokens = 2000


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"task": "x" * 10_000}, "2,000"),
        ({"sampling": Sampling(max_tokens=1900)}, "2,000"),
        ({"user_sampling": Sampling(max_tokens=1900)}, "2,000"),
        ({"rules": [TokenLimit(limit=600), MaxMessages()]}, "600"),
        ({"rules": [TokenLimit(reserve=1900), MaxMessages()]}, "2,000"),
        ({"assistant": "価" * 1000, "user": "価" * 1000, "sampling": Sampling(max_tokens=10)}, "2,000"),
    ],
)
def test_prompts_that_cannot_fit_are_refused(settings: dict[str, Any], limit: str):
    witness = Small(["never"])
    with pytest.raises(InputError, match=limit) as refused:
        RolePlaying(**({"assistant": "A", "user": "U", "task": "T", "model": witness} | settings))
    one_line(refused.value)
    assert witness.requests == []


def test_good_input_is_taken():
    """The other side of the coin: these refusals are not refusals of everything."""
    odd = ["x" * 1000, "Привет", "🧙", "<TASK>", "a\nb", "{}", "1"]
    for role in odd:
        model = ScriptedModel(["<CAMEL_TASK_DONE>"])
        RolePlaying(assistant=role, user=role, task=role, model=model, specifier=None).run()
        assert len(model.requests) == 1


# --- settings ----------------------------------------------------------------------------------------------------------

SAMPLING: dict[str, dict[str, Any]] = {
    "temperature below zero": {"temperature": -0.1},
    "temperature huge": {"temperature": 1e9},
    "temperature a huge integer": {"temperature": 10**6000},
    "temperature NaN": {"temperature": NAN},
    "temperature infinite": {"temperature": INF},
    "temperature text": {"temperature": "0.2"},
    "temperature bool": {"temperature": True},
    "temperature list": {"temperature": [0.2]},
    "temperature an object": {"temperature": Loud()},
    "top_p above one": {"top_p": 1.01},
    "top_p below zero": {"top_p": -1},
    "top_p NaN": {"top_p": NAN},
    "max_tokens zero": {"max_tokens": 0},
    "max_tokens negative": {"max_tokens": -5},
    "max_tokens a fraction": {"max_tokens": 10.5},
    "max_tokens a whole fraction": {"max_tokens": 10.0},
    "max_tokens huge": {"max_tokens": 10**12},
    "max_tokens bool": {"max_tokens": True},
    "n zero": {"n": 0},
    "n none": {"n": None},
    "n huge": {"n": 10**6},
    "seed text": {"seed": "1"},
    "seed too large": {"seed": 2**63},
    "logprobs negative": {"logprobs": -1},
    "logprobs bool": {"logprobs": True},
    "presence penalty": {"presence_penalty": 3},
    "frequency penalty": {"frequency_penalty": -INF},
    "stop text": {"stop": "END"},
    "stop with an empty string": {"stop": ["END", ""]},
    "stop with a number": {"stop": [1]},
    "stop none": {"stop": None},
    "stop half of a surrogate pair": {"stop": ["\ud800"]},
    "extra a list": {"extra": [1]},
    "extra text": {"extra": "x"},
    "extra with a number as key": {"extra": {1: 2}},
    "extra with an object": {"extra": {"x": object()}},
    "extra with a function": {"extra": {"x": print}},
    "extra circular": {"extra": CIRCULAR},
    "extra with half of a surrogate pair": {"extra": {"x": "\ud800"}},
    "extra with a huge integer": {"extra": {"x": 10**6000}},
}


@pytest.mark.parametrize("case", SAMPLING)
def test_sampling_refuses(case: str):
    with pytest.raises(InputError) as refused:
        Sampling(**SAMPLING[case])
    name = next(iter(SAMPLING[case]))
    assert name in one_line(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        {"temprature": 0.2},
        {"temperature": "hot"},
        {"temperature": -1},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"n": None},
        {"stop": [""]},
        {"extra": []},
        {"temperature": True},
        [],
        None,
        "x",
    ],
)
def test_sampling_from_a_file_refuses(data: Any):
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(data, Sampling)
    one_line(refused.value)


def test_sampling_takes_what_endpoints_take():
    values: dict[str, Any] = {
        "temperature": 0,
        "top_p": 1,
        "max_tokens": 1,
        "n": 1,
        "seed": -1,
        "logprobs": 0,
    }
    assert Sampling(**values, stop=["\n"], extra={"reasoning_effort": "low"}).stop == ("\n",)
    assert msgspec.convert({"temperature": 1, "stop": ["a"]}, Sampling) == Sampling(
        temperature=1, stop=("a",)
    )


OBJECTS: dict[str, Callable[[], object]] = {
    "max messages zero": lambda: MaxMessages(0),
    "max messages negative": lambda: MaxMessages(-40),
    "max messages text": lambda: MaxMessages("40"),  # type: ignore[arg-type]
    "max messages fraction": lambda: MaxMessages(4.5),  # type: ignore[arg-type]
    "max messages bool": lambda: MaxMessages(True),
    "max messages none": lambda: MaxMessages(None),  # type: ignore[arg-type]
    "max messages hugely negative": lambda: MaxMessages(-(10**6000)),
    "rounds zero": lambda: NoInstruction(rounds=0),
    "reserve negative": lambda: TokenLimit(reserve=-1),
    "limit zero": lambda: TokenLimit(limit=0),
    "limit text": lambda: TokenLimit(limit="4096"),  # type: ignore[arg-type]
    "pleasantries zero": lambda: MessageLoop(pleasantries=0),
    "similarity above one": lambda: MessageLoop(similarity=1.5),
    "similarity NaN": lambda: MessageLoop(similarity=NAN),
    "word limit zero": lambda: TaskSpecifier(word_limit=0),
    "word limit text": lambda: TaskSpecifier(word_limit="50"),  # type: ignore[arg-type]
    "specifier's sampling": lambda: TaskSpecifier(sampling={"temperature": 1}),  # type: ignore[arg-type]
    "specifier's model": lambda: TaskSpecifier(model="gpt"),  # type: ignore[arg-type]
    "agent without a name": lambda: Agent("", "R", ScriptedModel([])),
    "agent with a number for a name": lambda: Agent(3, "R", ScriptedModel([])),  # type: ignore[arg-type]
    "agent without a model": lambda: Agent("a", "R", None),  # type: ignore[arg-type]
    "agent with a dict for sampling": lambda: Agent("a", "R", ScriptedModel([]), sampling={}),  # type: ignore[arg-type]
    "no speakers": lambda: Conversation([], Transcript("t", Task("t")), rules=[]),
    "speakers of one name": lambda: Conversation(
        [Agent("a", "R", ScriptedModel([])), Agent("a", "S", ScriptedModel([]))],
        Transcript("t", Task("t")),
        rules=[],
    ),
    "rules that are none": lambda: Conversation(
        [Agent("a", "R", ScriptedModel([]))],
        Transcript("t", Task("t")),
        rules=[42],  # type: ignore[list-item]
    ),
}


@pytest.mark.parametrize("case", OBJECTS)
def test_objects_refuse(case: str):
    with pytest.raises(InputError) as refused:
        OBJECTS[case]()
    one_line(refused.value)


def test_what_is_shown_of_a_value_is_short_and_on_one_line():
    for value in (Loud(), 10**6000, "x" * 999, ["a\nb"] * 99, None):
        text = shown(value)
        assert 0 < len(text) <= 60
        assert "\n" not in text


# --- the endpoint ------------------------------------------------------------------------------------------------------

HERE = "http://127.0.0.1:9/v1"
ENDPOINTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "no key for OpenAI": ("gpt-4.1-mini", {}),
    "a blank key for OpenAI": ("gpt-4.1-mini", {"api_key": "  "}),
    "key with a newline": ("m", {"base_url": HERE, "api_key": "sk-a\nb"}),
    "key that is not ASCII": ("m", {"base_url": HERE, "api_key": "sk-clé"}),
    "key with NUL": ("m", {"base_url": HERE, "api_key": "sk\x00"}),
    "key a number": ("m", {"base_url": HERE, "api_key": 42}),
    "key bytes": ("m", {"base_url": HERE, "api_key": b"sk"}),
    "name empty": ("", {"base_url": HERE}),
    "name blank": ("  ", {"base_url": HERE}),
    "name none": (None, {"base_url": HERE}),
    "name a number": (4, {"base_url": HERE}),
    "name of two lines": ("gpt\n4", {"base_url": HERE}),
    "name huge": ("m" * 10_000, {"base_url": HERE}),
    "name half of a surrogate pair": ("m\ud800", {"base_url": HERE}),
    "URL of another scheme": ("m", {"base_url": "ftp://host/v1"}),
    "URL of a file": ("m", {"base_url": "file:///etc/passwd"}),
    "URL without a scheme": ("m", {"base_url": "localhost:8080/v1"}),
    "URL without a host": ("m", {"base_url": "http:///v1"}),
    "URL with a bad port": ("m", {"base_url": "http://host:99999/v1"}),
    "URL with a word as port": ("m", {"base_url": "http://host:http/v1"}),
    "URL with half an address": ("m", {"base_url": "http://[::1/v1"}),
    "URL a number": ("m", {"base_url": 8080}),
    "URL blank": ("m", {"base_url": "   "}),
    "deadline zero": ("m", {"base_url": HERE, "deadline": 0}),
    "deadline NaN": ("m", {"base_url": HERE, "deadline": NAN}),
    "no attempts": ("m", {"base_url": HERE, "max_attempts": 0}),
}


@pytest.mark.parametrize("case", ENDPOINTS)
def test_the_client_refuses(case: str):
    name, settings = ENDPOINTS[case]
    with pytest.raises(InputError) as refused:
        ChatModel(name, **settings)
    text = one_line(refused.value)
    assert "sk-" not in text, "a key is not repeated in an error"


# --- the command line --------------------------------------------------------------------------------------------------


class Endpoint(ThreadingHTTPServer):
    """Answers every call, and counts them."""

    paid = 0
    daemon_threads = True


class _Answers(BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        self._send({"data": [{"id": "only"}]})

    def do_POST(self) -> None:
        self.server.paid += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "<CAMEL_TASK_DONE>"}
        self._send(
            {
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 9},
            }
        )

    def _send(self, data: object) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def camel(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, int]:
    """Run `camel play` in this process; returns its exit code and how many calls it made."""
    url = f"http://127.0.0.1:{endpoint.server_port}/v1"
    monkeypatch.setattr(sys, "argv", ["camel", "play", "--base-url", url, "--model", "only", *arguments])
    before, code = endpoint.paid, 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    return code, endpoint.paid - before


COMMANDS: dict[str, list[str]] = {
    "temperature a word": ["--temperature", "hot"],
    "temperature NaN": ["--temperature", "nan"],
    "temperature infinite": ["--temperature", "inf"],
    "temperature negative": ["--temperature=-1"],
    "temperature empty": ["--temperature", ""],
    "max tokens negative": ["--max-tokens=-3"],
    "max tokens a word": ["--max-tokens", "many"],
    "seed a fraction": ["--seed", "1.5"],
    "seed too large": ["--seed", str(2**70)],
    "max messages zero": ["--max-messages", "0"],
    "max messages negative": ["--max-messages=-1"],
    "max messages a word": ["--max-messages", "forty"],
    "word limit zero": ["--word-limit", "0"],
    "guided nonsense": ["--guided", "magic"],
    "save into a missing folder": ["--save", "missing/folder/x.json"],
    "save with a wrong suffix": ["--save", "x.txt"],
    "save without a suffix": ["--save", "transcript"],
    "save onto a folder": ["--save", "folder.json"],
    "save: the second is wrong": ["--save", "x.json", "--save", "y.pdf"],
    "role empty": ["--assistant", ""],
    "role blank": ["--user", "   "],
    "role huge": ["--user", "x" * 5000],
    "task empty": ["--task", ""],
    "base URL nonsense": ["--base-url", "nonsense"],
    "base URL of a file": ["--base-url", "file:///etc/passwd"],
    "model of two lines": ["--model", "a\nb"],
    "window too small": ["--context", "300"],
    "unknown option": ["--bogus"],
    "option without its value": ["--task"],
    "an argument too many": ["extra"],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_the_command_refuses(
    case: str,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    code, paid = camel(endpoint, monkeypatch, *COMMANDS[case])
    assert (code, paid) == (2, 0)
    said = capsys.readouterr().err.strip().splitlines()
    # The parser of the command line puts a hint in front of what it says about an option it does not know.
    message = [line for line in said if line and not line.startswith(("Usage:", "Try "))]
    assert len(message) == 1, said
    assert list(tmp_path.iterdir()) == [tmp_path / "folder.json"], "nothing was written"


@pytest.mark.parametrize("arguments", [["--max-tokens", "0"], ["--context", "0"]])
def test_the_command_refuses_zero(
    arguments: list[str],
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    assert camel(endpoint, monkeypatch, *arguments) == (2, 0)


def test_without_a_key_there_is_no_call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["camel", "play"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "OPENAI_API_KEY" in said[0]


def test_the_command_takes_good_input(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """The witness does count: two calls, the specifier's and the user's."""
    file = tmp_path / "conversation.json"
    assert camel(endpoint, monkeypatch, "--save", str(file), "--max-messages", "3") == (0, 2)
    assert Transcript.from_json(file.read_bytes()).messages[0].content == "<CAMEL_TASK_DONE>"
    assert capsys.readouterr().err == ""


def test_there_are_enough_cases():
    assert len(ROLE_PLAY) + len(SAMPLING) + len(OBJECTS) + len(ENDPOINTS) + len(COMMANDS) >= 150
