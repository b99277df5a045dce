"""Tools of real MCP servers: a released one over pipes, and one made with the SDK over pipes and HTTP."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import InputError
from camel.core.tools import Toolbox, Workplace
from camel.tools.find import find_tools
from camel.tools.settings import ServerSettings, ToolSettings, secret_values
from tests.support.acting import act, runs

pytest.importorskip("mcp", reason="needs the extra 'tools'")
pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parent.parent / "support"
SCRIPT, SMALL = str(SUPPORT / "web_tools.py"), str(SUPPORT / "hostile_server.py")
TIME = shutil.which("mcp-server-time", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


COUNTER = ToolSettings(servers={"counter": ServerSettings(command=(sys.executable, SCRIPT), trust=True)})


def small(*words: str, **settings: Any) -> ServerSettings:
    """A server that starts fast. Servers with different words are different servers."""
    return ServerSettings(command=(sys.executable, "-I", "-S", SMALL, *words), **settings)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with subprocess.Popen([sys.executable, SCRIPT, str(port)], stderr=subprocess.DEVNULL) as process:
        for _ in range(600):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@pytest.mark.skipif(TIME is None, reason="needs mcp-server-time")
async def test_a_released_server():
    toolbox = Toolbox([f"mcp:time={TIME} --local-timezone UTC"])
    assert set(toolbox.tools) == {"get_current_time", "convert_time"}
    assert toolbox.schemas[0].parameters["required"] == ["timezone"]
    action = await act(toolbox, "get_current_time", {"timezone": "Asia/Tokyo"})
    assert "+09:00" in action.result
    assert "nowhere" in (await act(toolbox, "get_current_time", {"timezone": "nowhere"})).error


async def test_one_tool_of_a_server():
    assert [one.name for one in find_tools(["mcp:counter.add"], COUNTER)] == ["add"]
    with pytest.raises(InputError, match="ad"):
        find_tools(["mcp:counter.ad"], COUNTER)


async def test_a_killed_server_is_started_again_and_calls_share_it():
    toolbox = Toolbox(find_tools(["mcp:counter"], COUNTER))
    places = [Workplace() for _ in range(20)]
    await asyncio.gather(*(act(toolbox, "add", {"amount": 1}, place) for place in places))
    assert (await act(toolbox, "read", {})).result == "20"
    os.kill(int((await act(toolbox, "process", {})).result), signal.SIGKILL)
    assert (await act(toolbox, "read", {})).result == "0"  # the counter was in its memory


async def test_allow_selects_tools_and_arguments():
    allow = ("mcp:counter.read", 'mcp:counter.add(amount="[1-5]")')
    settings = ToolSettings(allow=allow, servers=COUNTER.servers)
    toolbox = Toolbox(find_tools(["mcp:counter"], settings))
    assert set(toolbox.tools) == {"read", "add"}
    before = int((await act(toolbox, "read", {})).result)
    assert "amount" in (await act(toolbox, "add", {"amount": 7})).error
    assert (await act(toolbox, "add", {"amount": 5})).result
    assert (await act(toolbox, "read", {})).result == str(before + 5)


async def test_names_of_two_servers_are_unique():
    settings = ToolSettings(servers={"one": small("fine", "1"), "two": small("fine", "2")})
    tools = find_tools(["mcp:one", "mcp:two.act"], settings)
    assert [tool.name for tool in tools] == ["act", "two_act"]
    assert (await act(Toolbox(tools), "two_act", {})).result == "fine"


async def test_the_identity_follows_from_what_the_server_lists():
    cases = {"a": "fine", "b": "fine", "c": "huge-description", "d": "lying-hints"}
    settings = ToolSettings(servers={name: small(case, name) for name, case in cases.items()})
    found = [Toolbox(find_tools([f"mcp:{name}"], settings)).identity()["tools"] for name in cases]
    assert found[0] == found[1]
    assert len({one["act"][1] for one in found}) == 3


@pytest.mark.parametrize("trust", [True, False])
async def test_a_call_is_repeated_only_if_it_may_be(tmp_path: Path, trust: bool):
    settings = ToolSettings(servers={"small": small("dies-once", str(tmp_path / "mark"), trust=trust)})
    toolbox = Toolbox(find_tools(["mcp:small"], settings))
    action = await act(toolbox, "act", {})
    assert (action.result == "second") is trust
    assert ("may have had its effect" in action.error) is not trust
    assert (await act(toolbox, "act", {})).result == "second"  # it was started again


async def test_a_server_over_http(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COUNTER_TOKEN", "token-4711")
    headers = {"Authorization": "Bearer $COUNTER_TOKEN"}
    settings = ToolSettings(servers={"web": ServerSettings(url=url, headers=headers)})
    toolbox = Toolbox(find_tools(["mcp:web"], settings))
    place = Workplace(secrets=secret_values(settings))
    await act(toolbox, "add", {"amount": 2}, place)
    assert (await act(toolbox, "read", {}, place)).result == "2"
    assert (await act(toolbox, "log", {"text": "some words"}, place)).result == "SOME WORDS"
    assert (await act(toolbox, "header", {"name": "authorization"}, place)).result == "Bearer [secret]"


def test_a_server_that_is_not_there():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with pytest.raises(InputError, match="mcp:web"):
        find_tools([f"mcp:web=http://127.0.0.1:{port}/mcp"], ToolSettings())


def test_servers_end_with_the_process():
    code = f"""
import asyncio
from tests.support.acting import act, runs
from camel.core.tools import Toolbox
toolbox = Toolbox(["mcp:small={sys.executable} -I -S {SMALL} leaves-children"])
print(asyncio.run(act(toolbox, "act", {{}})).result)
"""
    root = str(Path(__file__).parent.parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert not done.stderr
    assert done.stdout.strip().isdecimal()
    assert not runs(done.stdout.strip(), patience=10.0)
