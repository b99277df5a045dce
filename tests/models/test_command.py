"""Programs as models: what they are sent, what counts as a reply, and how hostile ones end."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel import InputError, RolePlaying, Sampling, ScriptedModel, Usage, connect, load_society
from camel.core.errors import (
    DeadlineExceeded,
    MalformedReply,
    ModelError,
    RateLimited,
    ServerFailed,
    Unreachable,
)
from camel.core.history import History
from camel.core.model import Request, Text, ToolSchema
from camel.models.command import MAX_LINE, CommandModel
from camel.models.spec import ModelSpec, read_spec
from tests.support.command import camel
from tests.support.waiting import wait_for

HEAD = """
import json, os, sys, time
def requests():
    for line in sys.stdin: yield json.loads(line)
def write(line):
    sys.stdout.write(line + "\\n"); sys.stdout.flush()
def say(request, content="yes", **more):
    write(json.dumps({"id": request["id"], "content": content, **more}))
def heard(request):
    return request["messages"][-1]["content"]
"""
process = pytest.mark.slow
"""Starts a process."""


def program(folder: Path, body: str) -> str:
    """A command whose program has this body."""
    path = folder / "program.py"
    path.write_text(HEAD + body)
    return shlex.join([sys.executable, str(path)])


def asked(folder: Path, body: str, *texts: str, deadline: float = 60.0) -> list[Any]:
    """The answers to all texts, asked at once; an error is one of them."""

    async def ask() -> list[Any]:
        async with CommandModel(program(folder, body), deadline=deadline) as model:
            return await asyncio.gather(*map(model.ask, texts), return_exceptions=True)

    return asyncio.run(ask())


def is_running(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_command_is_a_name_that_is_plain_data():
    spec = read_spec(f"command:{sys.executable} agent.py --at me@http://x", "http://127.0.0.1:1/v1")
    assert spec.command == f"{sys.executable} agent.py --at me@http://x"
    assert (spec.base_url, spec.is_here, spec.file) == ("", True, "")
    assert msgspec.json.decode(msgspec.json.encode(spec), type=ModelSpec) == spec
    spec.prepare()
    assert isinstance(spec.open(), CommandModel)
    assert ModelSpec("gpt-4.1-mini").command == ""


def test_its_price_is_unknown_unless_it_is_set():
    assert ModelSpec("command:python agents/gpt-4.1-mini").cost() is None
    priced = msgspec.convert({"name": "command:python x", "price": {"input": 1, "output": 2}}, ModelSpec)
    assert priced.cost() == priced.price


@pytest.mark.parametrize("command", ["", "   ", "no-such-program-anywhere x", "python 'unclosed"])
def test_a_command_that_cannot_run_is_refused_before_any_call(command: str):
    with pytest.raises(InputError):
        connect(f"command:{command}")


def test_a_file_of_another_author_cannot_name_a_command(tmp_path: Path):
    path = tmp_path / "society.toml"
    text = 'task = "Plan"\nmodel = "{}"\n[[members]]\nname = "Ada"\n[[members]]\nname = "Bob"\n'
    path.write_text(text.format("gpt-4.1-mini"))
    assert load_society(path).model == "gpt-4.1-mini"
    path.write_text(text.format(f"command:touch {tmp_path}/owned"))
    with pytest.raises(InputError, match="--model"):
        load_society(path)
    assert not (tmp_path / "owned").exists()


# --- requests and replies --------------------------------------------------------------------------------------------


@process
async def test_what_is_sent_and_what_comes_back(tmp_path: Path):
    body = """
for request in requests():
    say(request, json.dumps(request), model="mine", reasoning="because",
        usage={"prompt_tokens": 7, "completion_tokens": 3})
"""
    history = History("Be brief.")
    history.add("user", "line\nbreak \u2028 \ud800")
    shown: list[Any] = []
    request = Request(
        history,
        Sampling(temperature=0.5, max_tokens=9),
        "a session",
        "user",
        watch=shown.append,
        tools=(ToolSchema("add", "Adds.", {"type": "object"}),),
    )
    async with CommandModel(program(tmp_path, body)) as model:
        reply = await model.reply(request)
    assert json.loads(reply.content) == {
        "id": 1,
        "session": "a session",
        "speaker": "user",
        "temperature": 0.5,
        "max_tokens": 9,
        "tools": [
            {
                "type": "function",
                "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}},
            }
        ],
        "messages": [entry.to_dict() for entry in history.entries],
    }
    assert (reply.usage, reply.model, reply.choices[0].reasoning) == (Usage(7, 3, calls=1), "mine", "because")
    assert shown == [Text("user", reply.content)]


@process
def test_calls_are_in_flight_at_once_and_answered_in_any_order(tmp_path: Path):
    body = """
waiting = []
for request in requests():
    waiting.append(request)
    if len(waiting) == 20:
        for one in reversed(waiting): say(one, heard(one))
"""
    texts = [f"text {number}" for number in range(20)]
    assert asked(tmp_path, body, *texts) == texts


@process
def test_one_process_serves_an_event_loop_and_the_next_loop_gets_another(tmp_path: Path):
    model = CommandModel(program(tmp_path, "for request in requests(): say(request, str(os.getpid()))"))

    async def ask() -> set[str]:
        first = set(await asyncio.gather(*(model.ask("x") for _ in range(5))))
        first.add(await model.ask("x"))
        await model.aclose()
        return first

    pids = [asyncio.run(ask()) for _ in range(2)]
    assert [len(one) for one in pids] == [1, 1]
    assert pids[0] != pids[1]
    assert not any(is_running(int(pid)) for pid in pids[0] | pids[1])


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"error": "no idea"}, ServerFailed),
        ({"error": {"message": "slow down", "type": "rate_limit_exceeded"}}, RateLimited),
        ({"content": 7}, MalformedReply),
        ({"content": "x", "error": {"a": "b"}}, ServerFailed),
        ({"content": {"a": [1]}}, MalformedReply),
    ],
)
@process
def test_what_is_not_a_reply_is_a_typed_error(tmp_path: Path, reply: Any, error: type[ModelError]):
    body = f"for request in requests(): write(json.dumps({{**{reply!r}, 'id': request['id']}}))"
    assert [type(one) for one in asked(tmp_path, body, "x")] == [error]


@process
def test_a_paid_reply_is_read_although_other_fields_are_wrong(tmp_path: Path):
    body = r"""
for request in requests():
    write('{"id": %d, "content": "half \\ud800 a pair", "usage": {"prompt_tokens": -3}, "model": 5, "logprobs": NaN}'
        % request["id"])
"""
    assert asked(tmp_path, body, "x") == ["half ? a pair"]


@process
def test_serve_seat_with_functions_that_print_and_fail(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    body = """
import asyncio
from camel import serve_seat
async def reply(messages, session, speaker, **request):
    text = messages[-1]["content"]
    print("printed", flush=True)
    os.system("echo from a child")
    if text == "fail": raise LookupError("no such thing")
    await asyncio.sleep(0.01)
    return {"content": text.upper(), "usage": {"prompt_tokens": 1}} if text == "dict" else text.upper()
def plain(messages, **request):
    return asyncio.run(reply(messages, **request))
serve_seat(FUNCTION)
"""
    for function in ("reply", "plain"):
        *said, failed = asked(tmp_path, body.replace("FUNCTION", function), "dict", "text", "fail")
        assert said == ["DICT", "TEXT"]
        assert isinstance(failed, ServerFailed)
        assert "no such thing" in str(failed)
    shown = capfd.readouterr().err
    assert "printed" in shown
    assert "from a child" in shown
    assert "Traceback" in shown


@process
def test_a_seat_of_a_role_play(tmp_path: Path):
    body = """
for request in requests():
    say(request, "<CAMEL_TASK_DONE>" if len(request["messages"]) > 3 else "Instruction: Begin.\\nInput: None")
"""
    name = f"command:{program(tmp_path, body)}"
    model = ScriptedModel(lambda request: "Solution: Done. Next request.")
    roles = {"assistant": "Chef", "user": "Guest", "task": "A menu"}
    transcript = RolePlaying(**roles, model=model, user_model=name, specifier=None).run()
    assert [message.model for message in transcript.messages] == [name, "scripted", name]
    assert transcript.stop
    assert transcript.stop.reason == "done"


@process
def test_doctor_checks_a_program(tmp_path: Path):
    body = (
        'for request in requests(): say(request, "hello", usage={"prompt_tokens": 3, "completion_tokens": 1})'
    )
    healthy = camel("doctor", "--model", f"command:{program(tmp_path, body)}", cwd=tmp_path)
    assert healthy.status == 0, healthy.stdout + healthy.stderr
    assert "by command:" in healthy.stdout
    failing = camel("doctor", "--model", f"command:{sys.executable} -c 1/0", cwd=tmp_path)
    assert failing.status == 1
    assert "ZeroDivisionError" in failing.stdout


# --- hostile programs ------------------------------------------------------------------------------------------------


@process
def test_lines_that_are_no_replies_are_printed_without_control_codes_and_change_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    body = r"""
for request in requests():
    number = request["id"]
    sys.stderr.write("\x1b[31mred\x1b]0;title\x07 \x9b2J alarm\n"); sys.stderr.flush()
    write("not JSON \x1b[2J at all")
    write("[1, 2]"); write("7"); write("null"); write("{"); write("")
    sys.stdout.buffer.write(b"\xff\xfe\x00\n"); sys.stdout.flush()
    for other in (number + 1000, -1, 0, True, 1.0, str(number), None, [number], {"a": 1}):
        write(json.dumps({"id": other, "content": "wrong"}))
    say(request, "right")
    say(request, "a second time")
    for n in range(3000): sys.stderr.write(f"line {n} " + "x" * 500 + "\n")
"""
    assert asked(tmp_path, body, "x", "y") == ["right", "right"]
    shown = capfd.readouterr().err
    assert "red" in shown
    assert "not JSON" in shown
    assert not any((ord(letter) < 32 and letter != "\n") or 127 <= ord(letter) < 160 for letter in shown)
    assert len(shown.splitlines()) == 1_000
    assert max(map(len, shown.splitlines())) < 1_000


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit(3)", "code 3"),
        ("raise ImportError('no module')", "no module"),
        ("for request in requests(): os.kill(os.getpid(), 9)", "-9"),
        (
            'for request in requests(): sys.stdout.write(\'{"id": 1, "cont\'); sys.stdout.flush(); os._exit(0)',
            "0",
        ),
        ("sys.stdin.close(); os.close(0); os.close(1); os.close(2)", "0"),
    ],
)
@process
def test_a_program_that_dies_makes_all_calls_in_flight_unreachable(tmp_path: Path, body: str, words: str):
    for error in asked(tmp_path, body, "x", "y"):
        assert type(error) is Unreachable
        assert words in str(error)


@process
def test_a_line_that_is_written_in_pieces_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    body = """for request in requests():
    for piece in ("one ", "line", "\\nrest"): sys.stderr.write(piece); sys.stderr.flush(); time.sleep(0.2)
    say(request)"""
    assert asked(tmp_path, body, "x") == ["yes"]
    assert capfd.readouterr().err.splitlines() == ["program.py: one line", "program.py: rest"]


@process
def test_it_is_started_again_at_the_next_call(tmp_path: Path):
    body = """
for request in requests():
    if heard(request) == "die": os._exit(1)
    say(request, str(os.getpid()))
"""

    async def ask() -> tuple[str, str]:
        async with CommandModel(program(tmp_path, body)) as model:
            before = await model.ask("x")
            with pytest.raises(Unreachable):
                await model.ask("die")
            return before, await model.ask("x")

    before, after = asyncio.run(ask())
    assert before != after


@process
def test_the_last_reply_counts_even_without_its_newline(tmp_path: Path):
    body = "for request in requests(): sys.stdout.write(json.dumps({'id': 1, 'content': 'last'})); sys.exit()"
    assert asked(tmp_path, body, "x") == ["last"]


@pytest.mark.parametrize(
    "body",
    [
        "while True: sys.stdout.write('x' * 2**20)",
        "print('[' + '[],' * 10**7 + '[]]', flush=True); time.sleep(600)",
    ],
    ids=["100 MB", "nested"],
)
@process
def test_a_line_that_is_too_long_or_too_nested_costs_little_memory(tmp_path: Path, body: str):
    code = f"""
import asyncio, resource
from camel.models.command import CommandModel
async def main():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with CommandModel({program(tmp_path, "for request in requests():" + chr(10) + "    " + body)!r}, deadline=3) as model:
        try:
            await model.ask("x")
        except Exception as error:
            print(type(error).__name__, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    error, megabytes = done.stdout.split()
    assert error in ("Unreachable", "DeadlineExceeded")
    assert int(megabytes) < 200
    assert MAX_LINE == 64 * 2**20


@process
def test_a_program_that_hangs_is_ended_at_the_deadline_with_all_that_it_started(tmp_path: Path):
    body = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
open(PATH, "w").write(f"{os.getpid()} {child.pid}")
time.sleep(600)
""".replace("PATH", repr(str(tmp_path / "pids")))
    (error,) = asked(tmp_path, body, "x", deadline=3)
    assert type(error) is DeadlineExceeded
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    wait_for(lambda: not any(map(is_running, pids)))


@process
def test_a_call_that_is_never_answered_does_not_end_the_others(tmp_path: Path):
    body = """
for request in requests():
    if heard(request) != "never": say(request, str(os.getpid()))
"""

    async def ask() -> list[Any]:
        async with CommandModel(program(tmp_path, body), deadline=3) as model:
            never = asyncio.create_task(model.ask("never"))
            first = await model.ask("x")
            (error,) = await asyncio.gather(never, return_exceptions=True)
            return [error, first, await model.ask("x")]

    error, first, second = asyncio.run(ask())
    assert type(error) is DeadlineExceeded
    assert first == second


@process
def test_a_program_that_never_reads_is_ended_too(tmp_path: Path):
    (error,) = asked(tmp_path, "time.sleep(600)", "x" * 10_000_000, deadline=1)
    assert type(error) is DeadlineExceeded


@process
def test_nothing_is_left_after_the_parent_was_killed(tmp_path: Path):
    body = """
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
for request in requests(): say(request, f"{os.getpid()} {child.pid} {os.getppid()}")
time.sleep(600)
"""
    code = f"""
import asyncio, time
from camel.models.command import CommandModel
async def main():
    model = CommandModel({program(tmp_path, body)!r})
    print(await model.ask("x"), flush=True)
    time.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        own, child, _ = map(int, parent.stdout.readline().split())
        assert is_running(own)
        assert is_running(child)
        parent.kill()
    wait_for(lambda: not is_running(own) and not is_running(child))


@process
async def test_closing_ends_a_program_that_ignores_the_end_of_its_input(tmp_path: Path):
    model = CommandModel(
        program(tmp_path, "for request in requests(): say(request, str(os.getpid()))\ntime.sleep(600)")
    )
    pid = int(await model.ask("x"))
    await model.aclose()
    assert not is_running(pid)


@process
async def test_closing_ends_a_program_that_reads_nothing(tmp_path: Path):
    model = CommandModel(
        program(tmp_path, "open(PATH, 'w').close(); time.sleep(600)".replace("PATH", repr(f"{tmp_path}/up")))
    )
    call = asyncio.create_task(model.ask("x" * 10_000_000))
    while not (tmp_path / "up").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    call.cancel()
    await model.aclose()
    with pytest.raises(asyncio.CancelledError):
        await call


@process
def test_a_reply_of_any_depth_is_answered(tmp_path: Path):
    body = """
for request in requests():
    depth = int(heard(request))
    write('{"id": %d, "content": "x", "more": %s}' % (request["id"], "[" * depth + "]" * depth))
"""
    said = asked(tmp_path, body, *map(str, (10, 300, *range(900, 1_000, 3))), deadline=3)
    assert said[:2] == ["x", "x"]
    assert {type(one) for one in said} <= {str, MalformedReply, DeadlineExceeded}


@process
def test_a_program_has_no_foreign_child_and_the_usual_signals(tmp_path: Path):
    body = """
for request in requests():
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        say(request, "fine")
"""
    assert asked(tmp_path, body, "x") == ["fine"]
    shell = 'read line; yes | head -1 >&2; echo \'{"id": 1, "content": "\'"${PIPESTATUS[0]}"\'"}\''

    async def ask() -> str:
        async with CommandModel(shlex.join(["bash", "-c", shell])) as model:
            return await model.ask("x")

    assert asyncio.run(ask()) == str(128 + 13), "`yes` was ended by SIGPIPE"
