"""Tools and worlds in runs: who may use them, what identifies a run, budgets, and what happens after a kill."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import camel
from camel import GenerateConfig, InputError, Model, ModelSpec, Reply, Request, RolePlaying, Run, tool
from camel.core.message import Action, Usage
from camel.core.model import Choice
from camel.generation.config import Figure, read_config
from camel.generation.forecast import warnings
from camel.generation.plan import make_plan
from camel.jobs.budget import Budget
from camel.jobs.status import read_status
from tests.support.jobs import generation

pytest.importorskip("pyarrow")

MODULE = """
from camel import World, tool

DONE = []

@tool(version=VERSION)
def note(text: str) -> str:
    "Write a note."
    DONE.append(text)
    return f"noted {text}"

@tool(idempotent=True)
def keep(text: str) -> str:
    "Keep a text."
    DONE.append(text)
    return f"kept {text}"

@tool(read_only=True)
def look(text: str) -> str:
    "Look."
    DONE.append(text)
    return f"saw {text}"

class Shop(World):
    version = VERSION
    def __init__(self, row):
        self.stock, self.sold = int(row.get("stock", 3)), []
    @tool
    def sell(self, text: str) -> str:
        "Sell something."
        self.sold.append(text)
        self.stock -= 1
        return f"{self.stock} left"
    def check(self):
        return len(self.sold) == 1
"""
SCENARIO = """
title = "Sales"
[[levels]]
name = "item"
items = ["a chair", "a lamp", "a book", "a bell"]
[role_play]
assistant = "Seller"
user = "Buyer"
task = "Sell <ITEM>"
specify = false
max_messages = 4
"""


class Caller(Model):
    """Calls tools before each message: each of `calls` in a reply of its own, or all in one."""

    name = "caller"

    def __init__(self, *calls: str, together: bool = False, seat: str = "assistant") -> None:
        self.calls, self.together, self.seat = calls, together, seat
        self.asked = 0

    def calls_for(self, prompt: str) -> tuple[str, ...]:
        return self.calls

    async def reply(self, request: Request) -> Reply:
        self.asked += 1
        await asyncio.sleep(0)
        entries = request.history.entries
        said = (
            "Instruction: Next step.\nInput: None"
            if request.speaker == "user"
            else "Solution: Done.\nNext request."
        )
        calls = self.calls_for(entries[0].content)
        if request.speaker == self.seat and calls:
            made = 0
            for entry in reversed(entries):
                if entry.role == "assistant" and "<tool_call>" not in entry.content:
                    break
                made += entry.content.count("<tool_call>") * (entry.role == "assistant")
            task = entries[0].content.split("Sell ")[-1].split(".")[0].split("\n")[0][:20]
            left = calls[made:]
            if left:
                several = left if self.together else left[:1]
                said = "\n".join(
                    f"<tool_call>{json.dumps({'name': one, 'arguments': {'text': f'{task} {len(entries)} {place}'}})}</tool_call>"
                    for place, one in enumerate(several)
                )
        return Reply((Choice(said),), Usage(10, 5, calls=1), model="caller")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with tools and a world, under a name of its own for each test."""
    name = f"till_{abs(hash(str(tmp_path))) % 10**9}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("VERSION", "1"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def done(module: str) -> list[str]:
    return sys.modules[module].DONE if module in sys.modules else []


def changed(tmp_path: Path, module: str) -> None:
    """Load the module again, with tools of another version."""
    (tmp_path / f"{module}.py").write_text(
        MODULE.replace("VERSION", "2") + "# another size, so that it is compiled again"
    )
    from camel.generation import toolboxes

    toolboxes._toolbox.cache_clear()
    sys.modules.pop(module)
    import importlib

    importlib.invalidate_caches()


def config(
    tmp_path: Path, *, scenario: str = "", end: str = "", allow: tuple[str, ...] = (), **more: Any
) -> GenerateConfig:
    folder = tmp_path / "sales"
    folder.mkdir(exist_ok=True)
    (folder / "scenario.toml").write_text(SCENARIO + end + "\n" + scenario)
    from camel.tools.settings import ToolSettings

    settings = more.pop("tools", None) or ToolSettings(allow=allow, form="text")
    return GenerateConfig(
        scenario=str(folder),
        model=ModelSpec("caller"),
        out=str(tmp_path / more.pop("run", "run")),
        shard_size=2,
        tools=settings,
        **more,
    )


def run(settings: GenerateConfig, model: Model, **more: Any) -> Any:
    return asyncio.run(generation(settings, model, **more).run())


def actions(settings: GenerateConfig) -> list[Action]:
    return [one for made in Run(Path(settings.out)) for message in made.messages for one in message.actions]


def test_the_tools_of_a_scenario_are_called_and_recorded(tmp_path: Path, module: str):
    settings = config(
        tmp_path,
        end=f'assistant_tools = ["{module}:note", "python"]\nuser_tools = ["{module}:look"]\nhear_actions = true',
        allow=("python", f"{module}:note", f"{module}:look"),
    )
    assert run(settings, Caller("note", "note")).complete
    found = actions(settings)
    assert [one.tool for one in found] == ["note"] * 16
    assert sorted(one.result.removeprefix("noted ") for one in found) == sorted(done(module))
    one = next(iter(Run(Path(settings.out))))
    assert [tool.name for tool in one.speakers[1].tools] == ["note", "python"]
    assert (one.hear_actions, one.speakers[1].tool_form) == (True, "text")
    assert read_status(settings.out).tool_calls == 16
    run(settings, Caller("note", "note"))
    assert len(done(module)) == 16, "a finished run executes nothing again"


def test_nothing_of_a_scenario_is_imported_or_started_before_the_user_allows_it(tmp_path: Path, module: str):
    started = tmp_path / "started"
    server = f'[tools.servers.files]\ncommand = ["touch", "{started}"]\n'
    for end, named in (
        (f'assistant_tools = ["{module}:note"]', f"{module}:note"),
        ('user_tools = ["python"]', "python"),
        ('assistant_tools = ["mcp:files"]', "mcp:files"),
        (f'world = "{module}:Shop"\nassistant_tools = ["sell"]', f"{module}:Shop"),
    ):
        settings = config(tmp_path, end=end, scenario=server)
        for action in (lambda settings=settings: run(settings, Caller()), settings.loaded_scenario):
            with pytest.raises(InputError, match=named):
                action()
        assert not Path(settings.out).exists()
    assert module not in sys.modules
    assert not started.exists()


def test_a_scenario_cannot_allow_its_own_tools(tmp_path: Path):
    with pytest.raises(InputError, match="allow"):
        config(
            tmp_path, end='assistant_tools = ["python"]', scenario='[tools]\nallow = ["python"]'
        ).loaded_scenario()


def test_a_scenario_without_tools_keeps_its_fingerprint(tmp_path: Path):
    plain = config(tmp_path).loaded_scenario()
    assert "tools" not in plain.fingerprint()
    servers = config(
        tmp_path, scenario='[tools]\nform = "text"\n[tools.servers.x]\ncommand = ["y"]'
    ).loaded_scenario()
    assert servers.fingerprint() == plain.fingerprint()
    assert "tools" not in config(tmp_path).decisive(plain)


def test_tools_of_the_users_own_configuration_are_allowed(tmp_path: Path, module: str):
    (tmp_path / "camel.toml").write_text(
        textwrap.dedent(f"""
        scenario = "sales"
        [model]
        name = "caller"
        [models.assistant]
        tools = ["{module}:note"]
        [tools]
        form = "text"
        [budget]
        tool_calls = 100
        tool_seconds = 60
        """)
    )
    config(tmp_path)
    settings = replace(read_config(tmp_path / "camel.toml"), out=str(tmp_path / "run"))
    assert settings.budget == Budget(tool_calls=100, tool_seconds=60)
    found = settings.decisive(settings.loaded_scenario())["tools"]["assistant"]
    assert [*found[0]["tools"]] == ["note"]


def test_a_changed_tool_or_world_is_noticed_on_resume(tmp_path: Path, module: str):
    end = f'assistant_tools = ["{module}:note"]\nworld = "{module}:Shop"'
    settings = config(tmp_path, end=end, allow=(f"{module}:note", f"{module}:Shop"))
    run(replace(settings, budget=Budget(tool_calls=2)), Caller("note"))
    more = config(tmp_path, end=end, allow=(f"{module}:note", f"{module}:Shop", "python"))
    run(replace(more, budget=Budget(tool_calls=3)), Caller("note"))  # what is allowed is no part of the data
    assert len(done(module)) == 3
    changed(tmp_path, module)
    with pytest.raises(InputError, match="tools"):
        run(settings, Caller("note"))


def test_a_critic_may_not_discard_proposals_that_changed_something(tmp_path: Path, module: str):
    critic = '[critic]\nseats = ["assistant"]\nproposals = 2\n'
    names = (f"{module}:note", f"{module}:look")
    settings = config(tmp_path, end=f'assistant_tools = ["{module}:note"]', scenario=critic, allow=names)
    model = Caller("note")
    with pytest.raises(InputError, match="critic"):
        run(settings, model)
    assert (model.asked, Path(settings.out).exists()) == (0, False)
    user = config(tmp_path, end=f'user_tools = ["{module}:note"]', scenario=critic, allow=names)
    user.decisive(user.loaded_scenario())


def test_validation_needs_tools_that_may_be_repeated(tmp_path: Path, module: str):
    from camel.generation.validation import Validation

    names = tuple(f"{module}:{name}" for name in ("note", "keep", "Shop"))
    strict = Validation("messages >= 2")
    settings = config(tmp_path, end=f'assistant_tools = ["{module}:note"]', allow=names, validate=strict)
    with pytest.raises(InputError, match="validate"):
        run(settings, Caller("note"))
    fine = config(
        tmp_path,
        end=f'assistant_tools = ["{module}:keep", "world"]\nworld = "{module}:Shop"',
        allow=names,
        validate=strict,
        run="fine",
    )
    assert run(fine, Caller("keep", "sell")).complete


def test_a_budget_of_tool_calls_stops_the_run_and_counts_over_all_processes(tmp_path: Path, module: str):
    end = f'assistant_tools = ["{module}:note"]'
    given: dict[str, Any] = {"end": end, "allow": (f"{module}:note",)}
    outcome = run(config(tmp_path, **given, budget=Budget(tool_calls=3)), Caller("note"))
    assert outcome.status == "halted"
    assert "tool calls" in outcome.reason
    assert len(done(module)) == 3
    again = run(config(tmp_path, **given, budget=Budget(tool_calls=3)), Caller("note"))
    assert (again.status, len(done(module))) == ("halted", 3), "journaled calls count"
    assert run(config(tmp_path, **given, budget=Budget(tool_calls=9)), Caller("note")).complete
    assert len(done(module)) == 8
    assert not any(made.failed for made in Run(tmp_path / "run")), "a stop interrupts no call"
    over = run(config(tmp_path, **given, budget=Budget(tool_calls=8)), Caller("note"))
    assert over.complete, "there is nothing to do, so no limit is reached"


def test_a_budget_of_seconds(tmp_path: Path, module: str):
    slow = (
        (tmp_path / f"{module}.py")
        .read_text()
        .replace("DONE.append(text)", "__import__('time').sleep(0.05); DONE.append(text)")
    )
    (tmp_path / f"{module}.py").write_text(slow)
    settings = config(
        tmp_path,
        end=f'assistant_tools = ["{module}:note"]',
        allow=(f"{module}:note",),
        budget=Budget(tool_seconds=0.1),
    )
    outcome = run(settings, Caller("note"))
    assert (outcome.status, "seconds of tools" in outcome.reason) == ("halted", True)
    assert 2 <= len(done(module)) < 8


def test_the_check_of_a_world_is_a_score_that_filters_find(tmp_path: Path, module: str):
    class Some(Caller):
        def calls_for(self, prompt: str) -> tuple[str, ...]:
            return ("sell",) if "lamp" in prompt else ("sell", "sell")

    settings = config(
        tmp_path,
        end=f'assistant_tools = ["world"]\nworld = "{module}:Shop"',
        allow=(f"{module}:Shop",),
    )
    scenario = Path(settings.scenario) / "scenario.toml"
    scenario.write_text(scenario.read_text().replace("max_messages = 4", "max_messages = 2"))
    assert run(settings, Some()).complete
    found = Run(Path(settings.out))
    assert {made.task.text: made.scores["check"].value for made in found} == {
        "Sell a chair": 0.0,
        "Sell a lamp": 1.0,
        "Sell a book": 0.0,
        "Sell a bell": 0.0,
    }
    assert [made.task.text for made in found.where("score.check = 1")] == ["Sell a lamp"]
    changes = [json.loads(one.change) for one in actions(settings)]
    assert changes[0] == [[["stock"], 2], [["sold", 0], changes[0][1][1]]]


def test_a_table_gives_a_world_its_start(tmp_path: Path, module: str):
    (tmp_path / "rows.csv").write_text("item,stock,other\na chair,7,x\na lamp,9,y\n")
    text = SCENARIO[: SCENARIO.index("[[levels]]")] + SCENARIO[SCENARIO.index("[role_play]") :]
    settings = config(
        tmp_path,
        allow=(f"{module}:Shop",),
        inputs=camel.Inputs(source=str(tmp_path / "rows.csv"), keep=("stock",)),
    )
    settings = replace(settings, shard_size=None)
    (tmp_path / "sales" / "scenario.toml").write_text(
        f'{text}assistant_tools = ["sell"]\nworld = "{module}:Shop"\n'
    )
    assert run(settings, Caller("sell")).complete
    assert {made.messages[1].actions[0].result for made in Run(tmp_path / "run")} == {"6 left", "8 left"}
    assert {one.inputs["stock"] for one in Run(tmp_path / "run")} == {"7", "9"}


def test_societies_and_dialogues_of_a_scenario_have_tools(tmp_path: Path, module: str):
    head = SCENARIO[: SCENARIO.index("[role_play]")]
    allow = (f"{module}:note", f"{module}:Shop")
    settings = config(tmp_path, allow=allow)
    scenario = tmp_path / "sales" / "scenario.toml"
    scenario.write_text(
        head
        + f'[dialogue]\ntask = "Sell <ITEM>"\nmax_messages = 2\nworld = "{module}:Shop"\nhear_actions = true\n'
        f'[[dialogue.seats]]\nname = "seller"\ntools = ["world", "{module}:note"]\n[[dialogue.seats]]\nname = "buyer"\n'
    )
    assert run(settings, Caller("sell", "note", seat="seller")).complete
    assert [one.tool for one in actions(settings)] == ["sell", "note"] * 4
    (tmp_path / "sales" / "society.toml").write_text(
        f'world = "{module}:Shop"\n[[members]]\nname = "Ann"\ntools = ["sell"]\n[[members]]\nname = "Bob"\n'
        f'tools = ["{module}:note"]\n[stop]\nmax_messages = 2\n'
    )
    scenario.write_text(head + '[society]\ntask = "Sell <ITEM>"\n')
    settings = replace(settings, out=str(tmp_path / "second"))
    assert run(settings, Caller("sell", seat="Ann")).complete
    assert [one.result for one in actions(settings)] == ["2 left"] * 4
    scenario.write_text(
        head
        + '[dialogue]\n[[dialogue.seats]]\nname = "a"\ntools = "python"\n[[dialogue.seats]]\nname = "b"\n'
    )
    with pytest.raises(InputError, match="tool"):
        settings.loaded_scenario()


def test_a_plan_mentions_tool_calls(tmp_path: Path, module: str):
    settings = config(tmp_path, end=f'assistant_tools = ["{module}:note"]', allow=(f"{module}:note",))
    hours = Figure(1, 1, 1)
    assert any("tools" in line for line in warnings(make_plan(settings), settings, hours))
    plain = config(tmp_path)
    assert warnings(make_plan(plain), plain, hours) == []


# --- from a program ----------------------------------------------------------------------------------------------

CALLS: list[str] = []


@tool
def record(text: str) -> str:
    """Record a text."""
    CALLS.append(text)
    return "recorded"


def test_a_declaration_with_tools_is_durable(tmp_path: Path):
    CALLS.clear()
    play = RolePlaying(
        "Sell <item>",
        assistant="Seller",
        user="Buyer",
        specify=False,
        max_messages=4,
        assistant_tools=camel.Toolbox([record], form="text"),
    )
    rows = [{"item": f"thing {number}"} for number in range(6)]
    given = {"inputs": rows, "out": tmp_path / "run", "progress": False}
    camel.generate(play, model=Caller("record"), **given, budget_tool_calls=5)
    assert len(CALLS) == 5
    made = camel.generate(play, model=Caller("record"), **given)
    assert len(CALLS) == len(set(CALLS)) == 12
    assert made.status().tool_calls == 12
    with pytest.raises(InputError, match="validate"):
        camel.generate(
            play,
            model=Caller("record"),
            inputs=rows,
            out=tmp_path / "other",
            progress=False,
            validate="messages > 1",
        )
    assert len(CALLS) == 12
