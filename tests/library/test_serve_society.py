"""A society as an endpoint: replies, records, idempotency, errors and hostile requests."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from camel import Dialogue, InputError, Message, Participant, RolePlaying, Run, Stop, Task, Transcript
from camel.generation.served import reply_text
from camel.models.simulator import SimulatorProcess, SimulatorSettings
from camel.models.simulator.settings import Constant
from tests.support.endpoints import serve as simulated
from tests.support.served import CALLS, SOCIETY, ask, ask_all, chat, serving


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with simulated(SimulatorSettings(words=8)) as found:
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "run"


@pytest.fixture(scope="module")
def url(simulator: SimulatorProcess, place: Path) -> Iterator[str]:
    with serving(place, simulator) as found:
        yield found


@pytest.fixture
def count(simulator: SimulatorProcess) -> Any:
    """Returns the number of calls since the test began."""
    before = simulator.ledger().requests
    return lambda: simulator.ledger().requests - before


def test_a_request_is_a_conversation_and_its_last_message_the_reply(
    url: str, place: Path, count: Any
) -> None:
    found = ask(url, chat("Be brief.", "Add 2 and 3.", model="society", temperature=0, max_tokens=9, seed=1))
    assert found.status == 200
    run = Run(place)
    talk = next(one for one in run if f"chatcmpl-{one.id}" == found.body["id"])
    assert found.text == talk.messages[-1].content
    assert talk.task.text == "Instructions:\nBe brief.\n\nTask:\nAdd 2 and 3."
    usage = found.body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (talk.usage.prompt, talk.usage.completion)
    assert usage["total_tokens"] == talk.usage.total
    assert "cost" not in usage
    assert count() == CALLS == talk.usage.calls


def test_earlier_messages_are_part_of_the_task(url: str, place: Path) -> None:
    said = [("user", "Hello"), ("assistant", "Hi"), ("user", [{"type": "text", "text": "Add <b> & <task>."}])]
    found = ask(url, {"messages": [{"role": role, "content": text} for role, text in said]})
    talk = next(one for one in Run(place) if f"chatcmpl-{one.id}" == found.body["id"])
    assert talk.task.text == "Earlier messages:\nUser: Hello\n\nAssistant: Hi\n\nTask:\nAdd <b> & <task>."


def test_a_stream_has_the_same_reply(url: str, count: Any) -> None:
    body = chat("Stream it.")
    whole = ask(url, body, Idempotency_Key="streamed")
    for options in ({}, {"stream_options": {"include_usage": True}}):
        raw = ask(url, {**body, "stream": True, **options}, Idempotency_Key="streamed").body.decode()
        *events, last = [line.removeprefix("data: ") for line in raw.split("\n\n") if line]
        chunks = [json.loads(one) for one in events]
        assert last == "[DONE]"
        assert {one["object"] for one in chunks} == {"chat.completion.chunk"}
        assert {one["id"] for one in chunks} == {whole.body["id"]}
        usage = chunks.pop()["usage"] if options else whole.body["usage"]
        assert usage == whole.body["usage"]
        deltas = [one["choices"][0]["delta"] for one in chunks]
        assert "".join(one.get("content", "") for one in deltas) == whole.text
        assert deltas[0]["role"] == "assistant"
        assert [one["choices"][0]["finish_reason"] for one in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert count() == CALLS


def test_a_long_stream_has_comments_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camel.library.serving.PING", 0.05)
    settings = SimulatorSettings(words=8, latency=Constant(0.1))
    with simulated(settings) as slow, serving(tmp_path / "run", slow) as url:
        raw = ask(url, chat("Wait.", stream=True)).body
    assert raw.startswith(b": in progress\n\n")
    assert raw.endswith(b"data: [DONE]\n\n")


def test_a_stream_that_fails_has_an_error_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from camel.jobs.budget import Budget

    monkeypatch.setattr("camel.library.serving.PING", 0.02)
    with simulated(SimulatorSettings(words=8, latency=Constant(0.2))) as slow:
        with serving(tmp_path / "run", slow, budget=Budget(calls=2)) as url:
            raw = ask(url, chat("Fail.", stream=True)).body.decode()
        *_, last = [line for line in raw.split("\n\n") if line]
        assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
        with serving(tmp_path / "run", slow) as url:
            assert ask(url, chat("Fail.")).status == 200
        assert slow.ledger().requests == CALLS


def test_the_reply_ends_before_a_stop_sequence(url: str) -> None:
    whole = ask(url, chat("Stop it."), Idempotency_Key="whole").text
    word = whole.split()[3]
    cut = ask(url, chat("Stop it.", stop=[word, "never"])).text
    assert word not in cut


def test_a_key_is_paid_for_once(url: str, count: Any) -> None:
    body = chat("With a key.")
    answers = [ask(url, body, Idempotency_Key="one") for _ in range(2)]
    assert {one.text for one in answers} == {answers[0].text}
    assert {one.body["id"] for one in answers} == {answers[0].body["id"]}
    assert count() == CALLS
    other = ask(url, chat("Another task."), Idempotency_Key="one")
    assert (other.status, other.body["error"]["code"]) == (422, "idempotency_key_reused")
    assert count() == CALLS


def test_equal_requests_without_a_key_are_two_conversations(url: str, count: Any) -> None:
    first, second = ask(url, chat("Again.")), ask(url, chat("Again."))
    assert first.body["id"] != second.body["id"]
    assert count() == 2 * CALLS


def test_requests_with_one_key_at_the_same_time_share_a_conversation(tmp_path: Path) -> None:
    with simulated(SimulatorSettings(words=8, latency=Constant(0.05))) as slow:
        with serving(tmp_path / "run", slow) as url:
            found: list[Any] = []
            body = chat("Together.")
            threads = [
                threading.Thread(target=lambda: found.append(ask(url, body, Idempotency_Key="k")))
                for _ in range(8)
            ]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
        assert len({one.body["id"] for one in found}) == 1
        assert slow.ledger().requests == CALLS


def test_a_client_that_went_away_gets_its_conversation_at_the_next_request(tmp_path: Path) -> None:
    with simulated(SimulatorSettings(words=8, latency=Constant(0.2))) as slow:
        with serving(tmp_path / "run", slow) as url:
            with pytest.raises(TimeoutError):
                ask(url, chat("Away."), timeout=0.3)
            found = ask(url, chat("Away."))
            assert found.status == 200
            assert slow.ledger().requests == CALLS
            assert ask(url, chat("Away.")).body["id"] != found.body["id"]
        assert len(Run(tmp_path / "run")) == 2


def test_sixteen_clients_at_once(tmp_path: Path) -> None:
    with simulated(SimulatorSettings(words=8, latency=Constant(0.02))) as slow:
        with serving(tmp_path / "run", slow) as url:
            answers = ask_all(url, [chat(f"Task {number}.") for number in range(48)])
        ledger = slow.ledger()
    assert {one.status for one in answers} == {200}
    assert ledger.requests == ledger.billed == 48 * CALLS
    assert ledger.billed_repeats == 0
    assert ledger.max_in_flight > 4
    run = Run(tmp_path / "run")
    assert sorted(one.task.text for one in run) == sorted(f"Task {number}." for number in range(48))


def test_after_a_restart_keys_and_open_requests_are_known(
    tmp_path: Path, simulator: SimulatorProcess, count: Any
) -> None:
    with serving(tmp_path / "run", simulator) as url:
        first = ask(url, chat("Keep."), Idempotency_Key="kept")
        second = ask(url, chat("Delivered."))
    with serving(tmp_path / "run", simulator) as url:
        assert count() == 2 * CALLS
        assert ask(url, chat("Keep."), Idempotency_Key="kept").body["id"] == first.body["id"]
        assert ask(url, chat("Other."), Idempotency_Key="kept").status == 422
        assert count() == 2 * CALLS
        assert ask(url, chat("Delivered.")).body["id"] != second.body["id"]


def test_a_budget_stops_the_server(tmp_path: Path, simulator: SimulatorProcess) -> None:
    from camel.jobs.budget import Budget

    with serving(tmp_path / "run", simulator, budget=Budget(calls=CALLS + 1)) as url:
        assert ask(url, chat("Within.")).status == 200
        beyond = ask(url, chat("Beyond."))
        assert beyond.status == 503
        assert "Retry-After" in beyond.headers
    with serving(tmp_path / "run", simulator) as url:
        assert ask(url, chat("Beyond.")).status == 200
    assert len(Run(tmp_path / "run")) == 2


def test_a_price_gives_a_cost(tmp_path: Path, simulator: SimulatorProcess) -> None:
    from camel.models.spec import ModelPrice, ModelSpec

    spec = ModelSpec("simulated", simulator.base_url, price=ModelPrice(input=1.0, output=2.0))
    with serving(tmp_path / "run", simulator, model=spec) as url:
        usage = ask(url, chat("Count.")).body["usage"]
    assert usage["cost"] == pytest.approx((usage["prompt_tokens"] + 2 * usage["completion_tokens"]) / 1e6)


# --- what is served ---------------------------------------------------------------------------------------------------


def test_a_role_play_answers_with_the_last_solution(tmp_path: Path, simulator: SimulatorProcess) -> None:
    play = RolePlaying("Anything", assistant="Chemist", user="Student", specify=False, max_messages=4)
    with serving(tmp_path / "run", simulator, play) as url:
        found = ask(url, chat("Name an acid."))
    talk = Run(tmp_path / "run")[0].transcript
    assert talk.task.text == "Name an acid."
    last = [one for one in talk.messages if one.speaker == "assistant"][-1]
    assert last.content.startswith("Solution:")
    assert found.text == last.move.solution


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("ai_society", {"assistant_role": "Chemist", "user_role": "Student"}),
        ("math", {"topic": "algebra", "subtopic": "groups"}),
    ],
)
def test_a_scenario_is_served(
    tmp_path: Path, simulator: SimulatorProcess, what: str, values: dict[str, str]
) -> None:
    with serving(tmp_path / "run", simulator, what, values=values) as url:
        found = ask(url, chat("Name an acid.", model=what))
    assert found.status == 200
    talk = Run(tmp_path / "run")[0].transcript
    assert talk.inputs == {**values, ("problem" if what == "math" else "task"): "Name an acid."}


def test_a_configuration_is_served_with_its_result(tmp_path: Path, simulator: SimulatorProcess) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f'scenario = "math"\n[model]\nname = "simulated"\nbase_url = "{simulator.base_url}"\n'
        '[result.fields]\nnumber = "integer"\n'
    )
    with serving(
        tmp_path / "run", simulator, config, model=None, values={"topic": "x", "subtopic": "y"}
    ) as url:
        found = ask(url, chat("Add 1 and 2."))
    assert isinstance(json.loads(found.text)["number"], int)


def test_one_placeholder_is_for_the_request(tmp_path: Path, simulator: SimulatorProcess) -> None:
    lesson = Dialogue(
        "A lesson about <topic>",
        seats=(Participant("learner", "learner of <level>"), Participant("assistant", "tutor")),
    )
    with pytest.raises(InputError), serving(tmp_path / "run", simulator, lesson):
        pass
    with serving(tmp_path / "run", simulator, lesson, values={"level": "grade 5"}) as url:
        assert ask(url, chat("fractions")).status == 200
    assert Run(tmp_path / "run")[0].transcript.inputs == {"topic": "fractions", "level": "grade 5"}


@pytest.mark.parametrize(
    ("said", "stop", "reply"),
    [
        ([("Ada", "Vote: Berlin"), ("Bob", "Vote: **berlin**"), ("Cleo", "Vote: Rome")], "agreed", "Berlin"),
        ([("Ada", "It is 7."), ("Bob", "Yes, 7.\n<CAMEL_TASK_DONE>")], "done", "Yes, 7."),
        ([("Ada", "It is 7."), ("Bob", "<CAMEL_TASK_DONE>")], "done", "It is 7."),
        ([("assistant", "Solution: 7\nNext request."), ("user", "<CAMEL_TASK_DONE>")], "done", "7"),
        ([("assistant", "It is 7."), ("user", "Thanks!")], "done", "It is 7."),
        ([], "done", ""),
    ],
)
def test_the_result_of_a_conversation(said: list[tuple[str, str]], stop: str, reply: str) -> None:
    messages = [Message(at, name, name, text) for at, (name, text) in enumerate(said)]
    transcript = Transcript("1", Task("?"), messages=messages, stop=Stop(stop, ""))
    assert reply_text(transcript) == reply
    transcript.result = {"number": 7}
    assert reply_text(transcript) == '{"number":7}'


def test_a_folder_of_another_run_is_refused(tmp_path: Path, simulator: SimulatorProcess) -> None:
    from msgspec.structs import replace

    from camel import generate

    society = replace(SOCIETY, task="<task>")
    generate(
        society,
        inputs=[{"task": "1"}],
        model=f"simulated@{simulator.base_url}",
        out=tmp_path / "run",
        progress=False,
    )
    with pytest.raises(InputError, match="--out"), serving(tmp_path / "run", simulator):
        pass


# --- errors and hostile requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b'{"messages":' + b'[{"a":' * 5_000 + b"1" + b"}]" * 5_000 + b"}", 400),
        ({}, 400),
        ({"messages": []}, 400),
        ({"messages": "hello"}, 400),
        ({"messages": [{"role": "user", "content": 5}]}, 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 400),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, 400),
        (chat(" "), 400),
        (chat("Be brief.", ""), 400),
        (chat("\x00"), 400),
        (chat("x", n=2), 400),
        (chat("x", tools=[{"type": "function"}]), 400),
        (chat("x", response_format={"type": "json_object"}), 400),
        (chat("x", logprobs=True), 400),
        (chat("x", stop=5), 400),
        (chat("x", stream="yes"), 400),
        (chat("x", made_up=1), 400),
        (chat("x" * 200_001), 400),
        (chat("x", model="gpt-4"), 404),
        (b'{"messages": "' + b"x" * 5_000_000 + b'"}', 413),
    ],
)
def test_requests_that_cannot_be_answered(url: str, count: Any, body: Any, status: int) -> None:
    found = ask(url, body)
    assert found.status == status
    assert found.body["error"]["type"] == "invalid_request_error"
    assert found.body["error"]["message"]
    assert count() == 0


def test_harmless_values_are_accepted(url: str) -> None:
    fields: dict[str, Any] = {
        "n": 1,
        "tools": [],
        "response_format": {"type": "text"},
        "logprobs": False,
        "stop": None,
    }
    assert ask(url, chat("\\ud800 <CAMEL_TASK_DONE> \x1b[31m", **fields)).status == 200


def test_other_routes_and_types_get_errors_in_the_same_format(url: str) -> None:
    assert ask(f"{url}/none", chat("x")).body["error"]["message"]
    elsewhere = ask(url, chat("x"), Host="rebound.example")
    assert (elsewhere.status, elsewhere.body["error"]["type"]) == (403, "invalid_request_error")
    plain = ask(url, chat("x"), Content_Type="text/plain")
    assert (plain.status, plain.body["error"]["type"]) == (415, "invalid_request_error")


def test_a_slow_client_delays_nobody(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camel.library.serving.READ_SECONDS", 0.3)
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((host, int(port))) as slow:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        slow.sendall(head)
        assert ask(url, chat("Meanwhile.")).status == 200
        slow.settimeout(20)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_a_key_can_be_required(
    tmp_path: Path, simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SERVED_KEY", raising=False)
    with (
        pytest.raises(InputError, match="SERVED_KEY"),
        serving(tmp_path / "run", simulator, key_variable="SERVED_KEY"),
    ):
        pass
    with (
        pytest.raises(InputError, match="--client-key"),
        serving(tmp_path / "run", simulator, host="0.0.0.0"),
    ):
        pass
    monkeypatch.setenv("SERVED_KEY", "s3cret")
    with serving(tmp_path / "run", simulator, key_variable="SERVED_KEY") as url:
        for wrong in (
            {},
            {"Authorization": "Bearer other"},
            {"Authorization": "Bearer s3cret2"},
            {"Authorization": "Bearer é"},
        ):
            found = ask(url, chat("x"), **wrong)
            assert (found.status, found.body["error"]["code"]) == (401, "invalid_api_key")
        assert ask(url, chat("x"), Authorization="Bearer s3cret").status == 200
    assert b"s3cret" not in b"".join(
        one.read_bytes() for one in (tmp_path / "run").rglob("*") if one.is_file()
    )


def test_models_are_listed(url: str) -> None:
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    connection = HTTPConnection(host, int(port))
    connection.request("GET", "/v1/models")
    assert [one["id"] for one in json.loads(connection.getresponse().read())["data"]] == ["society"]
    connection.close()


def test_faults_of_the_endpoint_are_retried_within_a_request(tmp_path: Path) -> None:
    with simulated(SimulatorSettings(words=8, faults={"500": 0.25})) as faulty:
        with serving(tmp_path / "run", faulty) as url:
            answers = ask_all(url, [chat(f"Task {number}.") for number in range(8)], clients=4)
        assert {one.status for one in answers} == {200}
        assert faulty.ledger().billed == 8 * CALLS
        assert faulty.ledger().billed_repeats == 0
