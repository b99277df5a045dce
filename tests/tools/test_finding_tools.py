"""Tools by name, the allow list, and settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel.core.errors import InputError, MissingExtra
from camel.core.tools import Toolbox, Workplace
from camel.tools.find import find_tools, resolve, with_command
from camel.tools.settings import ServerSettings, ToolSettings, check_allowed, check_tools, secret_values
from tests.support.acting import act

MODULE = """
from camel import tool

def search(query: str) -> str:
    "Search."
    return f"found {query}"

@tool(read_only=True)
async def read(path: str, mode: str = "r") -> str:
    "Read a file."
    return f"content of {path}"

class Group:
    inner = search

both = [search, read]
nothing = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shop_tools.py").write_text(MODULE)
    (tmp_path / "broken_tools.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shop_tools", raising=False)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("shop_tools:search", ["search"]),
        ("shop_tools:read", ["read"]),
        ("shop_tools:both", ["search", "read"]),
        ("shop_tools:Group.inner", ["search"]),
    ],
)
def test_a_function_of_the_users_program(name: str, found: list[str]):
    assert list(Toolbox([name]).tools) == found


async def test_a_function_is_called():
    action = await act(Toolbox(["shop_tools:search"]), "search", {"query": "tea"})
    assert action.result == "found tea"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("shop_tools:no_such", "no_such"),
        ("no_module_here:x", "current folder"),
        ("broken_tools:x", "no_such_package"),
        ("shop_tools:nothing", "not 3"),
        ("shop_tools:Group", "function"),
        ("snake", "python"),
        ("pyton", "did you mean python?"),
        ("world", 'world = "module:Class"'),
        ("mcp:time", "mcp:time=COMMAND"),
        ("mcp:a=unclosed 'quote", "quotation"),
        ("mcp:a b=x", "'mcp:a b'"),
        ("../etc:passwd", "etc:passwd"),
    ],
)
def test_a_name_that_is_wrong(name: str, part: str):
    with pytest.raises(InputError) as caught:
        resolve(name)
    assert part in str(caught.value)


def test_without_the_extra_its_name_is_in_the_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "camel.tools.mcp_servers", raising=False)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with pytest.raises(MissingExtra) as caught:
        resolve("mcp:time=mcp-server-time")
    assert caught.value.extra == "tools"


def test_without_bubblewrap_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    from camel.sandbox import process
    from camel.tools import python

    monkeypatch.setattr(process.shutil, "which", lambda name: None)
    process._bubblewrap.cache_clear()
    python._sandbox.cache_clear()
    with pytest.raises(InputError, match="bubblewrap"):
        resolve("python")


def test_the_same_name_twice_is_refused():
    with pytest.raises(InputError, match="search"):
        find_tools(["shop_tools:search", "shop_tools:both"], ToolSettings())


def test_a_server_on_the_command_line():
    name, settings = with_command("mcp:time=mcp-server-time --local-timezone 'Europe/Berlin'", ToolSettings())
    assert name == "mcp:time"
    assert settings.servers["time"].command == ("mcp-server-time", "--local-timezone", "Europe/Berlin")
    name, settings = with_command("mcp:web=https://example.org/mcp", ToolSettings())
    assert settings.servers["web"].url == "https://example.org/mcp"


# ---------------------------------------------------------------- settings


def read(table: dict[str, Any]) -> ToolSettings:
    return msgspec.convert(table, ToolSettings)


@pytest.mark.parametrize(
    "table",
    [
        {"allow": ["no name"]},
        {"allow": ["python(code=)"]},
        {"allow": ["python(code='x')"]},
        {"allow": ['python(code="a" mode="b")']},
        {"allow": ["rm -rf"]},
        {"permit": ["python"]},
        {"servers": {"a b": {"command": ["x"]}}},
        {"servers": {"a.b": {"command": ["x"]}}},
        {"servers": {"a": {}}},
        {"servers": {"a": {"command": ["x"], "url": "https://a"}}},
        {"servers": {"a": {"command": ["x"], "environment": ["KEY=value"]}}},
        {"servers": {"a": {"command": ["x"], "headers": {"A": "b"}}}},
        {"servers": {"a": {"url": "https://a", "environment": ["KEY"]}}},
        {"servers": {"a": {"url": "file:///etc/passwd"}}},
        {"servers": {"a": {"url": "https://a", "headers": {"A": "costs $"}}}},
        {"servers": {"a": {"url": "https://a", "headers": {"A": "b\nC: d"}}}},
        {"servers": {"a": {"command": ["x"], "seconds": 0}}},
        {"limits": {"calls": 0}},
        {"form": "xml"},
    ],
)
def test_settings_that_are_wrong(table: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        read(table)


def test_what_a_scenario_names_must_be_allowed():
    settings = read(
        {
            "allow": ["python", 'mcp:files.read(path="/data/*")', "shop_tools:search"],
            "servers": {"files": {"command": ["files"]}, "evil": {"command": ["rm", "-rf", "a b"]}},
        }
    )
    check_allowed(["python", "mcp:files", "mcp:files.read", "shop_tools:search"], settings)
    for name in ("mcp:evil", "mcp:files.write", "shop_tools:read", "shop_tools:search.more", "mcp:file"):
        with pytest.raises(InputError) as caught:
            check_allowed(["python", name], settings)
        assert f'"{name}"]' in str(caught.value)  # the line to add
    with pytest.raises(InputError, match="'a b'"):  # the user sees what would be started
        check_allowed(["mcp:evil.tool"], settings)


def test_an_unknown_server_is_named_before_it_can_be_allowed():
    settings = read({"servers": {"time": {"command": ["x"]}}})
    with pytest.raises(InputError, match="mean time"):
        check_tools(["mcp:tme"], "", settings)


def test_a_wrong_name_in_allow_is_named():
    with pytest.raises(InputError, match="mean shop:Shop"):
        check_allowed(["shop:Shop"], ToolSettings(allow=("shop:Shp",)))


def test_two_servers_of_one_name_are_refused():
    _, settings = with_command("mcp:time=first", ToolSettings())
    assert with_command("mcp:time=first", settings)[1] == settings
    with pytest.raises(InputError, match="time"):
        with_command("mcp:time=second", settings)


def test_nothing_is_allowed_by_default():
    with pytest.raises(InputError, match="python"):
        check_allowed(["python"], ToolSettings())


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ({"path": "/data/a.txt"}, True),
        ({"path": "/data/a/b.txt", "mode": "r"}, True),
        ({"path": "/etc/passwd"}, False),
        ({"path": "/data/../etc/passwd"}, False),
        ({"path": "/data/..\\..\\etc"}, False),
        ({"path": "/DATA/a.txt"}, False),
        ({"path": "/data/a.txt", "mode": "w"}, False),
        ({}, False),
    ],
)
async def test_patterns_for_arguments(arguments: dict[str, Any], allowed: bool):
    entries = ('shop_tools:read(path="/data/*", mode="r")', 'shop_tools:read(path="/data/*", mode="")')
    toolbox = Toolbox(find_tools(["shop_tools:read"], ToolSettings(allow=entries)))
    action = await act(toolbox, "read", arguments)
    assert bool(action.result) is allowed
    assert ("/data/*" in action.error) is not allowed


async def test_an_entry_without_patterns_allows_all_calls():
    settings = ToolSettings(allow=("shop_tools:read", 'shop_tools:read(path="/data/*")'))
    action = await act(Toolbox(find_tools(["shop_tools:read"], settings)), "read", {"path": "/etc"})
    assert action.result


def test_secrets_are_values_of_named_variables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", 'pass"word')
    monkeypatch.setenv("SHORT", "1")
    web = ServerSettings(url="https://a", headers={"Authorization": "Bearer $TOKEN"})
    local = ServerSettings(command=("x",), environment=("SHORT",))
    found = secret_values(ToolSettings(servers={"web": web, "local": local}))
    assert set(found) == {'pass"word', 'pass\\"word'}
    assert Workplace(secrets=found).hidden('{"key": "pass\\"word"}') == '{"key": "[secret]"}'
    monkeypatch.delenv("TOKEN")
    with pytest.raises(InputError, match="TOKEN"):
        secret_values(ToolSettings(servers={"web": web}))
