"""`camel init` and `camel demo --live`: a configuration from a few answers, and the files of the demonstration.

The one decision to know: the configuration is parsed before it is written, so it works. Existing files are never
overwritten.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.toml import plain_message
from camel.generation.config import GenerateConfig
from camel.generation.plan import make_plan
from camel.generation.toolboxes import named_tools
from camel.models.discovery import find_replicas
from camel.models.endpoint import checked_name
from camel.models.local import LOCAL
from camel.models.spec import ModelSpec
from camel.scenarios import Scenario, Translate, known, load

KEY_VARIABLE = "OPENAI_API_KEY"
LOCAL_SIZE, SIZE = 2, 8
"""Default number of conversations with the small local model, and with other models."""


class Answers(NamedTuple):
    """The answers to `camel init`."""

    scenario: str = "ai_society"
    """The scenario: a name, or the path of a folder."""
    model: str = LOCAL
    """The name of a model. `local` is the small model that runs on this machine."""
    base_url: str = ""
    key_variable: str = ""
    """The environment variable with the API key."""
    size: int | None = None
    """Number of conversations or questions. Default: as many as `money` pays for, or a few."""
    money: float | None = None
    """Budget in US dollars."""


def offered_scenarios() -> list[Scenario]:
    """Return the scenarios that need no acknowledgment and no other run."""
    loaded: list[Scenario] = []
    for name in known():
        try:
            scenario = load(name)
        except InputError:  # skip a broken plug-in
            continue
        if not scenario.gated and not isinstance(scenario.end, Translate):
            loaded.append(scenario)
    return loaded


def read_size(text: str) -> tuple[int | None, float | None]:
    """Parse a size such as `25,000` or `$5`. Return a number of conversations or an amount in dollars; the other is None."""
    plain = text.strip().lower().replace(",", "").replace("_", "")
    number = plain.removeprefix("$").removesuffix("dollars").removesuffix("usd").strip()
    is_money = number != plain
    try:
        value = float(number) if is_money else int(number)
    except ValueError:
        value = 0
    if not 0 < value < 1e12:
        raise InputError(f"the size must be a number such as 8, or money such as $5, not {shown(text)}")
    return (None, float(value)) if is_money else (int(value), None)


def counts_for(counts: Mapping[str, int], size: int) -> dict[str, int]:
    """Return counts of the levels, reduced evenly, with a product as close as possible to `size` and not above it."""
    chosen = dict.fromkeys(counts, 1)
    while True:
        room = [
            name
            for name in chosen
            if chosen[name] < counts[name]
            and prod(chosen.values()) // chosen[name] * (chosen[name] + 1) <= size
        ]
        if not room:
            return chosen
        # The level that has grown least; of several, the last, which varies fastest.
        name = min(reversed(room), key=lambda name: chosen[name])
        chosen[name] += 1


def config_text(answers: Answers, name: str) -> str:
    """Return a commented configuration. `name` is the file's name, used in its comments and for the run's folder."""
    scenario = _scenario(answers.scenario)
    _quoted(name)
    checked_name(answers.model)
    if answers.base_url:
        find_replicas(answers.base_url)
    full = {level.name: level.count for level in scenario.levels}
    few = LOCAL_SIZE if answers.model == LOCAL else SIZE
    size = answers.size or (_affordable(answers, full) if answers.money else few)
    if size > scenario.count:
        raise InputError(
            f"scenario '{scenario.name}' has only {scenario.count:,} items at full size, not {size:,}: choose fewer, or write your own "
            "scenario with larger counts (camel scenarios new)"
        )
    text = _text(answers, name, scenario, full, counts_for(full, size))
    try:
        config = msgspec.convert(tomllib.loads(text), GenerateConfig)
    except msgspec.ValidationError as error:
        raise InputError(plain_message(error).partition(" (in ")[0]) from None
    config.loaded_scenario()  # raises an error if it cannot run
    return text


def write_config(path: Path, answers: Answers) -> str:
    """Write a configuration and return its text. Never overwrites a file."""
    text = config_text(answers, str(path))
    _write_new(path, text)
    return text


def _scenario(name: str) -> Scenario:
    scenario = load(name)
    if isinstance(scenario.end, Translate):
        raise InputError("a translation needs an existing run: use camel translate RUN --to LANGUAGE")
    if scenario.gated:
        raise InputError(
            f"'{scenario.name}' needs your acknowledgment: copy its file from configs/ in the repository and read the comments "
            "there"
        )
    return scenario


def _affordable(answers: Answers, full: Mapping[str, int]) -> int:
    """Return the number of items that the money will probably pay for."""
    assert answers.money is not None
    config = GenerateConfig(answers.scenario, _section(answers))

    def cost(size: int) -> float:
        money = make_plan(config, counts=counts_for(full, size)).money
        if money is None:
            raise InputError(
                f"the price of '{answers.model}' is unknown: give a number instead of an amount of money, and add its price to the file"
            )
        return money.likely

    most = prod(full.values())
    low, high = 0, most + 1
    if cost(1) > answers.money:
        raise InputError(
            f"one conversation with '{answers.model}' will probably cost {cost(1):.2f} dollars, more than {answers.money:g}: "
            "choose a cheaper model or a larger amount"
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= answers.money else (low, middle)
    return low


def _section(answers: Answers) -> ModelSpec:
    return ModelSpec(answers.model, answers.base_url, key_variable=answers.key_variable)


def _text(
    answers: Answers, name: str, scenario: Scenario, full: Mapping[str, int], counts: Mapping[str, int]
) -> str:
    total = prod(counts.values())
    what = "conversations" if scenario.has_conversations else "items"
    lines = [
        "# Written by camel init. Edit it freely; docs/generate.md describes all settings.",
        f"#   camel doctor {name}      check the setup",
        f"#   camel plan {name}        estimate calls, tokens and cost",
        f"#   camel generate {name}    generate; the same command resumes",
        _line(
            f"scenario = {_quoted(answers.scenario)}", f"{scenario.title}; camel scenarios lists the others"
        ),
        _line(f"out = {_quoted(f'runs/{Path(name).stem}')}", "the run's folder"),
        *_list_lines(scenario),
        "",
        _line("[counts]", f"{' × '.join(map(str, counts.values()))} = {total:,} {what}"),
        *(_line(f"{level} = {count}", f"{full[level]} at full size") for level, count in counts.items()),
        "",
        "[model]",
    ]
    if answers.model == LOCAL:
        lines.append(
            _line(
                f'name = "{LOCAL}"',
                "the tiny model on this machine: right format, poor content; for trying out",
            )
        )
        lines.append(_line('# name = "gpt-4.1-mini"', "a capable model; needs OPENAI_API_KEY"))
    else:
        lines += _model_lines(answers)
        lines += [
            "",
            "[run]",
            _line(
                f"concurrency = {min(64, max(1, total))}",
                "concurrent conversations; may change when a run is resumed",
            ),
        ]
    if tools := named_tools(scenario):
        lines += ["", "[tools]", _line(f"allow = {json.dumps(tools)}", "what this scenario may use")]
    money = answers.money
    lines += ["", "[budget]" if money else "# [budget]"]
    budget = f"usd = {money:g}" if money else "# usd = 5"
    lines.append(_line(budget, "US dollars; at the limit the run stops and can be resumed"))
    return "\n".join(lines) + "\n"


def _list_lines(scenario: Scenario) -> list[str]:
    shipped = [
        f"{level.name.replace('_', ' ')}s" for level in scenario.levels if level.given and level.prompt
    ]
    comment = f"left out: {' and '.join(shipped)} that come with CAMEL"
    return [_line('# lists = "asked"', comment)] if shipped else []


def _model_lines(answers: Answers) -> list[str]:
    lines = [_line(f"name = {_quoted(answers.model)}", "the model's name at the endpoint")]
    if answers.base_url:
        lines.append(_line(f"base_url = {_quoted(answers.base_url)}", "may change when a run is resumed"))
    else:
        lines.append(_line('# base_url = "http://127.0.0.1:8000/v1"', "default: OPENAI_BASE_URL, or OpenAI"))
    if answers.key_variable:
        key = f"key_variable = {_quoted(answers.key_variable)}"
        lines.append(_line(key, "the environment variable with the API key; never write the key itself"))
    if _section(answers).cost() is None:
        price = "# price = { input = 0.40, cached = 0.10, output = 1.60 }"
        lines.append(_line(price, "dollars per million tokens; needed for a budget in dollars"))
    return lines


def _line(code: str, comment: str) -> str:
    # A title may come from an untrusted scenario: it must stay inside the comment.
    plain = "".join(letter if letter.isprintable() else " " for letter in comment)
    return f"{code:<31} # {plain}"


def _quoted(text: str) -> str:
    if not text.isprintable():
        raise InputError(f"{shown(text)} contains characters that cannot be printed")
    return json.dumps(text, ensure_ascii=False)  # a JSON string of printable characters is also a TOML string


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"'{path}' already exists: choose another file name") from None
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror or error}") from None


# ---------------------------------------------------------------- the demonstration

_DEMO = Path(__file__).parent / "demo"


def write_demo(folder: Path) -> Path:
    """Write the demonstration's scenario and configuration unless they exist, and return the path of the configuration."""
    for name in ("scenario/scenario.toml", "demo.toml"):
        path, text = folder / name, (_DEMO / name).read_text("utf-8")
        if not path.exists():
            _write_new(path, text.replace("{out}", _quoted(str(folder / "demonstration"))))
    return folder / "demo.toml"
