"""The list of mutation tests fits the code: its files exist, and what it accepts can still happen."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
LIST = tomllib.loads((ROOT / "tests/mutation.toml").read_text())


@pytest.fixture(scope="module")
def mutate() -> Iterator[ModuleType]:
    loader = importlib.machinery.SourceFileLoader("mutate_tool", str(ROOT / "tools/mutate"))
    spec = importlib.util.spec_from_loader("mutate_tool", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate_tool"] = module  # dataclasses look their module up
    loader.exec_module(module)
    yield module
    del sys.modules["mutate_tool"]


@pytest.mark.parametrize("area", LIST["areas"])
def test_an_area_has_tests_and_enough_to_change(mutate: ModuleType, area: str):
    its = LIST["areas"][area]
    assert [path for path in its["tests"] if not (ROOT / path).exists()] == []
    assert sum(len(mutate.mutants(Path(path))) for path in its["modules"]) >= 30


def test_accepted_mutants_are_mutants_of_the_code(mutate: ModuleType):
    modules = {path for area in LIST["areas"].values() for path in area["modules"]}
    known = {(path, one.function, one.change) for path in modules for one in mutate.mutants(Path(path))}
    for entry in LIST.get("accepted", []):
        assert (entry["module"], entry["function"], entry["change"]) in known, "remove the entry or update it"
        assert entry["kind"] in ("equivalent", "accepted")
        assert len(entry["reason"].split()) > 3


def test_a_change_is_one_place_and_leaves_messages_alone(mutate: ModuleType, tmp_path: Path):
    path = tmp_path / "code.py"
    path.write_text(
        'from errors import Bad\n\n\ndef f(x: int = 2) -> str:\n    """What it does."""\n'
        '    if x < 1 and x != 5:\n        raise Bad(f"x is {x + 1}")\n    return "a" + x[1:]\n'
    )
    before = path.read_text()
    assert {one.change.replace("\n", " ") for one in mutate.mutants(path)} == {
        "def f(x: int=2) -> str: -> def f(x: int=3) -> str:",
        "if x < 1 and x != 5: -> if x < 1 or x != 5:",
        "if x < 1 and x != 5: -> if x <= 1 and x != 5:",
        "if x < 1 and x != 5: -> if x < 2 and x != 5:",
        "if x < 1 and x != 5: -> if x < 1 and x == 5:",
        "if x < 1 and x != 5: -> if x < 1 and x != 6:",
        "raise Bad(f'x is {x + 1}') -> removed",
        "return 'a' + x[1:] -> return None",
        "return 'a' + x[1:] -> return '' + x[1:]",
        "return 'a' + x[1:] -> return 'a' + x[2:]",
        "return 'a' + x[1:] -> return 'a' + x[1:-1]",
    }
    assert path.read_text() == before
