"""`camel init`: ask three questions and write a configuration."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import argument, option, typed_model
from camel.core.errors import CamelError, InputError

if TYPE_CHECKING:
    from camel.generation.init import Answers

LOCAL, API, SERVER = "1", "2", "3"


def init(
    context: typer.Context,
    file: Annotated[Path, argument("FILE.toml", "Configuration file to write.")] = Path("camel.toml"),
    local: shared.Local = False,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    key_variable: Annotated[str, option("Environment variable that holds the API key.", "NAME")] = "",
    scenario: shared.ScenarioName = "",
    size: Annotated[
        str, option("Number of conversations to generate, or their cost, such as '$5'.", "N|$N")
    ] = "",
) -> None:
    """Write a configuration file for `camel generate`."""
    from camel.generation.init import read_size, write_config

    model, base_url = typed_model(context, model, base_url)
    if file.exists():
        raise InputError(f"'{file}' already exists: choose another name, such as camel init other.toml")
    if local and (model or base_url or key_variable):
        raise InputError("--local cannot be combined with --model, --base-url or --key-variable")
    given = any((local, model, base_url, key_variable, scenario, size))
    if not given and sys.stdin.isatty():
        answers = _ask()
    else:
        answers = _choose_model(local, model, base_url, key_variable)
        number, money = read_size(size) if size else (None, None)
        answers = answers._replace(scenario=scenario or answers.scenario, size=number, money=money)
    typer.echo(write_config(file, answers))
    name = shlex.quote(str(file))
    typer.echo(f"wrote {file}. Next:")
    if answers.key_variable and not os.environ.get(answers.key_variable):
        typer.echo(f"  export {answers.key_variable}=…")
    typer.echo(f"  camel doctor {shlex.quote(str(name))}")
    typer.echo(f"  camel plan {shlex.quote(str(name))}")
    typer.echo(f"  camel generate {shlex.quote(str(name))}")


def _choose_model(local: bool, model: str, base_url: str, key_variable: str) -> Answers:
    """Return answers with the model that the options name. Default: the one that the environment names, or the local model."""
    from camel.generation.init import KEY_VARIABLE, Answers
    from camel.models.connect import DEFAULT_MODEL
    from camel.models.spec import ModelSpec

    at = base_url or os.environ.get("OPENAI_BASE_URL", "")
    has_key = bool(os.environ.get(KEY_VARIABLE))
    if local or not (model or at or key_variable or has_key):
        return Answers()
    name = model or (_served(at) if at else DEFAULT_MODEL)
    needs_none = ModelSpec(name, base_url).is_here or (at and not has_key)
    variable = key_variable or ("" if needs_none else KEY_VARIABLE)
    return Answers(model=name, base_url=base_url, key_variable=variable)


def _served(url: str) -> str:
    """Return the name of the only model that the server at `url` lists. Raise an `InputError` if it lists more or none."""
    from camel.models.endpoint import served_models

    served = list(served_models(url))
    if len(served) != 1:
        raise InputError(f"choose one of the endpoint's models with --model: {', '.join(served[:20])}")
    return served[0]


def _ask() -> Answers:
    """Ask the user the three questions and return the answers."""
    from camel.generation.init import KEY_VARIABLE, LOCAL_SIZE, SIZE, Answers, offered_scenarios, read_size
    from camel.models.connect import DEFAULT_MODEL

    typer.echo("1. Which model?")
    typer.echo(
        "   1  the small model on this machine: needs no key, for trying things out; replies make little sense"
    )
    typer.echo("   2  an API with a key: OpenAI, or one with the same protocol")
    typer.echo("   3  your own server: vLLM, SGLang, llama.cpp, Ollama or a gateway")
    default = API if os.environ.get(KEY_VARIABLE) else LOCAL
    which = _choice("   1, 2 or 3", default, (LOCAL, API, SERVER))
    answers = Answers()
    if which == API:
        name = typer.prompt("   model", default=DEFAULT_MODEL)
        url = typer.prompt("   base URL (leave empty for OpenAI)", default="", show_default=False)
        variable = typer.prompt("   environment variable that holds the key", default=KEY_VARIABLE)
        answers = Answers(model=name, base_url=url, key_variable=variable)
    elif which == SERVER:
        default_url = os.environ.get("OPENAI_BASE_URL") or "http://127.0.0.1:8000/v1"
        url = typer.prompt("   base URL", default=default_url)
        try:
            served: str | None = _served(url)
        except CamelError as error:
            typer.echo(f"   {error}")
            served = None
        answers = Answers(model=typer.prompt("   model", default=served), base_url=url)
    typer.echo("2. What kind of data?")
    scenarios = offered_scenarios()
    for number, one in enumerate(scenarios, 1):
        typer.echo(f"   {number}  {one.name:<12} {one.title}: {one.shape}")
    names = [one.name for one in scenarios]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    picked = _choice("   a number or a name", names[0], (*names, *numbers))
    answers = answers._replace(scenario=names[int(picked) - 1] if picked in numbers else picked)
    typer.echo("3. How many conversations, or for how much (such as $5)?")
    default_size = LOCAL_SIZE if which == LOCAL else SIZE
    while True:
        try:
            size, money = read_size(typer.prompt("   a number, or $N", default=str(default_size)))
            return answers._replace(size=size, money=money)
        except CamelError as error:
            typer.echo(f"   {error}")


def _choice(text: str, default: str, options: tuple[str, ...]) -> str:
    while (given := str(typer.prompt(text, default=default)).strip()) not in options:
        typer.echo(f"   enter one of {', '.join(options)}")
    return given
