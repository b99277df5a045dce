"""Help texts: they fit a terminal, options of one name are one object, and every command has an example that parses."""

from __future__ import annotations

import inspect
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
import typer.main
from typer.models import OptionInfo

from camel.cli import GROUPS, app, name_of
from camel.cli.help import first_sentence, texts
from tests.support import in_process

TERMINAL = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
LINES, MORE = 40, 3
"""Lines of a terminal, and of commands still to come."""
ROOT: Any = in_process.parser()
TYPES = re.compile(r"<[a-z]+(\[\w+\])?( range)?>|\{\w+|\blist\[|…")
"""Types and braces that typer would print, and its mark of a text that was cut."""


def walk(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))


COMMANDS = dict(walk())
each_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


def help_of(path: tuple[str, ...]) -> list[str]:
    shown = in_process.invoke([*path, "--help"], env=TERMINAL)
    assert shown.exit_code == 0, shown.output
    return shown.output.splitlines()


def test_the_list_of_commands_fits_a_terminal():
    lines = help_of(())
    assert len(lines) <= LINES - MORE
    for group, members in GROUPS.items():
        first = next(number for number, line in enumerate(lines) if line.startswith(f"{group} "))
        listed = [line[10:].split()[0] for line in lines[first : first + len(members)]]
        assert listed == [name_of(one) for one in members]
    listed = {name_of(one) for members in GROUPS.values() for one in members}
    assert listed == set(ROOT.commands)


@each_command
def test_no_line_is_cut_or_shows_a_type(path: tuple[str, ...]):
    for line in help_of(path):
        assert len(line) <= 80, line
        assert not TYPES.search(line), line
    assert len(first_sentence(COMMANDS[path])) <= 60 or not path


@each_command
def test_the_example_parses(path: tuple[str, ...]):
    example = texts(" ".join(("camel", *path))).get("example", "")
    if not path:
        return
    lines = help_of(path)
    assert lines[-2:] == ["Example:", f"  {example}"]
    program, *words = shlex.split(example)
    assert program == "camel"
    assert tuple(words[: len(path)]) == path
    found = ROOT
    while words and words[0] in getattr(found, "commands", {}):
        found = found.commands[words.pop(0)]
    assert not hasattr(found, "commands")
    found.make_context("camel", words)


@each_command
def test_every_value_has_a_placeholder(path: tuple[str, ...]):
    for param in COMMANDS[path].params:
        if param.name not in ("install_completion", "show_completion"):
            assert getattr(param, "is_flag", False) or param.metavar, param.name
            assert (param.help or "").endswith("."), param.name


@each_command
def test_texts_of_options_belong_to_a_parameter(path: tuple[str, ...]):
    own = texts(" ".join(("camel", *path)))
    names = {param.name for param in COMMANDS[path].params}
    assert {*own.get("defaults", {}), *own.get("options", {})} <= names
    assert all(text.endswith(".") for text in own.get("options", {}).values())


def test_study_takes_one_judge():
    shown = " ".join(" ".join(help_of(("study",))).split())
    judge = shown[shown.index("--judge MODEL") : shown.index("--sample N")]
    assert "repeatable" not in judge


def functions(group: typer.Typer = app) -> Iterator[Callable[..., None]]:
    for one in group.registered_commands:
        assert one.callback
        yield one.callback
    for inner in group.registered_groups:
        assert inner.typer_instance
        yield from functions(inner.typer_instance)


def test_options_of_one_name_are_one_object():
    """Commands may differ in the default of an option and in its words in help.toml, not in its type or meaning."""
    found: dict[str, dict[tuple[int, Any], list[str]]] = defaultdict(lambda: defaultdict(list))
    for function in functions():
        for name, one in inspect.signature(function, eval_str=True).parameters.items():
            kind, *metadata = get_args(one.annotation) or (None,)
            for info in (info for info in metadata if isinstance(info, OptionInfo)):
                # Typer keeps the first name where a default would be.
                given = [text for text in (info.default, *(info.param_decls or ())) if isinstance(text, str)]
                for option in "/".join(given or [f"--{name.replace('_', '-')}"]).split("/"):
                    found[option][id(info), kind].append(function.__name__)
    assert {"--model", "--budget-usd", "--out", "--json", "--max-tokens", "--port"} <= set(found)
    assert {option: list(uses.values()) for option, uses in found.items() if len(uses) > 1} == {}


def test_servers_have_their_own_ports():
    ports = [
        param.default
        for name in ("agents", "explore", "serve", "vote")
        for param in ROOT.commands[name].params
        if param.name == "port"
    ]
    assert len(set(ports)) == 4
