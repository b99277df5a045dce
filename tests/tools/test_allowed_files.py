"""What a society's file or a served scenario names is neither imported nor started before the user allows it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import camel
from camel import InputError, Member, Society
from camel.generation.toolboxes import allow_tools, named_tools
from camel.scenarios import check, load, load_society
from tests.support import in_process
from tests.support.acting import act

TRACING = """
from pathlib import Path
from camel import World, tool
Path("trace").touch()

def note(text: str) -> str:
    "Write a note."
    return f"noted {text}"

class Shop(World):
    @tool
    def buy(self, item: str) -> str:
        "Buy something."
        return item
"""
SHOP = """
title = "Shop"
[role_play]
assistant = "Seller"
user = "Customer"
task = "Buy something for <BUDGET> euros"
specify = false
max_messages = 6
[[levels]]
name = "budget"
items = ["10", "20"]
"""
CHAT = """
title = "Chat"
[dialogue]
task = "Spend <budget>"
world = "tracing:Shop"
[[dialogue.seats]]
name = "Seller"
tools = ["world"]
[[dialogue.seats]]
name = "Customer"
[[levels]]
name = "budget"
items = ["10", "20"]
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tracing", raising=False)
    Path("tracing.py").write_text(TRACING)


def write(tools: Any = (), world: str = "") -> Path:
    path = Path("file.toml")
    head = f'task = "Dig"\n{f"world = {world!r}" if world else ""}\n'
    path.write_text(f'{head}[[members]]\nname = "A"\ntools = {tools}\n[[members]]\nname = "B"\n')
    return path


def scenario(text: str) -> Path:
    Path("shop").mkdir()
    Path("shop/scenario.toml").write_text(text)
    return Path("shop")


@pytest.mark.parametrize(
    ("tools", "world", "allow"),
    [
        (["tracing:note"], "", ()),
        (["tracing:note"], "", ("tracing:other",)),
        (["mcp:time=touch trace"], "", ()),
        (["mcp:time=touch trace"], "", ("mcp:other", "python")),
        (["world"], "tracing:Shop", ()),
        (["buy"], "tracing:Shop", ("python",)),
        (["world", "tracing:note"], "tracing:Shop", ("tracing:Shop",)),
        ([], "tracing:Shop", ()),
        ([], "tracing", ()),
        (["tracing"], "", ()),
        ([["tracing:note"]], "", ()),
        ("'tracing:note'", "", ()),
    ],
)
@pytest.mark.parametrize("command", ["society", "serve"])
def test_a_file_is_refused_before_anything_is_imported_or_started(
    command: str, tools: Any, world: str, allow: tuple[str, ...]
):
    path = write(tools, world)
    options = [word for name in allow for word in ("--allow", name)]
    done = in_process.invoke([command, str(path), "--model", "m", *options])
    assert isinstance(done.exception, InputError)
    assert not Path("trace").exists()


def test_a_served_file_is_refused_in_python():
    with pytest.raises(InputError, match="--allow tracing:note"):
        camel.serve(write(["tracing:note"]), model="m")
    assert not Path("trace").exists()


def test_a_served_scenario_needs_the_option():
    path = scenario(SHOP.replace("[[levels]]", 'assistant_tools = ["tracing:note"]\n[[levels]]'))
    with pytest.raises(InputError, match="--allow tracing:note"):
        camel.serve(path, model="m")
    with pytest.raises(InputError, match="--allow python"):
        camel.serve("code_executed", model="m")
    assert not Path("trace").exists()


def test_allow_is_not_for_objects():
    with pytest.raises(InputError, match="allow"):
        camel.serve(Society(members=(Member("A"), Member("B"))), model="m", allow=["python"])


async def test_what_is_allowed_is_used_within_its_patterns():
    declared = load_society(write(["tracing:note", "buy"], "tracing:Shop"))
    allowed = allow_tools(declared, ['tracing:note(text="a*")', "tracing:Shop"])
    toolbox = allowed.members[0].tools
    assert set(toolbox.tools) == {"note", "buy"}
    assert allowed.members[1].tools == ()
    assert (await act(toolbox, "note", {"text": "apple"})).result == "noted apple"
    assert (await act(toolbox, "note", {"text": "pear"})).error


def test_a_name_that_the_world_does_not_have():
    with pytest.raises(InputError, match=r"mean buy.*world"):
        allow_tools(load_society(write(["by"], "tracing:Shop")), ["tracing:Shop"])


def test_a_server_in_a_file_needs_its_command():
    with pytest.raises(InputError, match="mcp:time=COMMAND"):
        allow_tools(load_society(write(["mcp:time"])), ["mcp:time"])


@pytest.mark.parametrize(
    ("names", "severity"),
    [('["pyton"]', "error"), ('["world"]', "error"), ('["mcp:tme"]', "warning"), ('["python", "a:b"]', None)],
)
def test_the_check_of_a_scenario_reports_wrong_names(names: str, severity: str | None):
    path = scenario(SHOP.replace("[[levels]]", f"assistant_tools = {names}\n[[levels]]"))
    assert [one.severity for one in check(path)] == ([severity] if severity else [])


def test_the_check_of_a_scenario_imports_nothing():
    path = scenario(CHAT)
    done = in_process.invoke(["scenarios", "check", str(path)])
    assert done.exit_code == 0, done.output
    assert not Path("trace").exists()
    assert named_tools(load(path)) == ["tracing:Shop"]  # as allow lists it, without the methods
