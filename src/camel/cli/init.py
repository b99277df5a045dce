"""`camel init`: three questions, and a configuration that works."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import completing
from camel.cli.options import argument, flag, option
from camel.core.errors import CamelError, InputError

if TYPE_CHECKING:
    from camel.generation.init import Answers

LOCAL, API, SERVER = "1", "2", "3"


def init(
    file: Annotated[Path, argument("[FILE.toml]", "The configuration to write.")] = Path("camel.toml"),
    local: Annotated[bool, flag("--local", "With the tiny real model on this machine; no key.")] = False,
    model: Annotated[str, option("With this model.", "NAME", autocompletion=completing.models)] = "",
    base_url: Annotated[
        str, option("Any OpenAI-compatible endpoint; else that of OPENAI_BASE_URL, else OpenAI.", "URL")
    ] = "",
    key_variable: Annotated[
        str, option("The environment variable that holds the key. Never the key.", "NAME")
    ] = "",
    scenario: Annotated[
        str,
        option("The kind of data: a scenario's name or folder.", "NAME", autocompletion=completing.scenarios),
    ] = "",
    size: Annotated[str, option("How many conversations, or for how many dollars.", "N|$N")] = "",
) -> None:
    """Ask three questions and write a configuration for camel generate. With options, or without a terminal, it asks nothing."""
    from camel.generation.init import read_size, write_config

    if file.exists():
        raise InputError(f"{file} exists and is not overwritten: camel init ANOTHER.toml")
    if local and (model or base_url or key_variable):
        raise InputError("--local is a model of its own: leave out --model, --base-url and --key-variable")
    given = any((local, model, base_url, key_variable, scenario, size))
    if not given and sys.stdin.isatty():
        answers = _asked()
    else:
        answers = _model(local, model, base_url, key_variable)
        number, money = read_size(size) if size else (None, None)
        answers = answers._replace(scenario=scenario or answers.scenario, size=number, money=money)
    typer.echo(write_config(file, answers))
    _next(file, answers)


def _model(local: bool, model: str, base_url: str, key_variable: str) -> Answers:
    """By the options, and where they say nothing by what the environment has."""
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
    """The one model of a server."""
    from camel.models.endpoint import served_models

    served = list(served_models(url))
    if len(served) != 1:
        raise InputError(f"name one of the endpoint's models with --model: {', '.join(served[:20])}")
    return served[0]


def _asked() -> Answers:
    """The three questions."""
    from camel.generation.init import KEY_VARIABLE, LOCAL_SIZE, SIZE, Answers, offered_scenarios, read_size
    from camel.models.connect import DEFAULT_MODEL

    typer.echo("1. Which model?")
    typer.echo("   1  the tiny one on this machine: no key, well-formed nonsense, for trying things out")
    typer.echo("   2  an API with a key: OpenAI, or any that speaks its protocol")
    typer.echo("   3  a server of yours: vLLM, SGLang, llama.cpp, Ollama, a gateway")
    usual = API if os.environ.get(KEY_VARIABLE) else LOCAL
    which = _choice("   1, 2 or 3", usual, (LOCAL, API, SERVER))
    answers = Answers()
    if which == API:
        name = typer.prompt("   model", default=DEFAULT_MODEL)
        url = typer.prompt("   base URL (empty: OpenAI)", default="", show_default=False)
        variable = typer.prompt("   the environment variable that holds the key", default=KEY_VARIABLE)
        answers = Answers(model=name, base_url=url, key_variable=variable)
    elif which == SERVER:
        usual_url = os.environ.get("OPENAI_BASE_URL") or "http://127.0.0.1:8000/v1"
        url = typer.prompt("   base URL", default=usual_url)
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
    picked = _choice("   a number, a name", names[0], (*names, *numbers))
    answers = answers._replace(scenario=names[int(picked) - 1] if picked in numbers else picked)
    typer.echo("3. How many conversations, or for how much money (such as $5)?")
    few = LOCAL_SIZE if which == LOCAL else SIZE
    while True:
        try:
            size, money = read_size(typer.prompt("   how many, or $N", default=str(few)))
            return answers._replace(size=size, money=money)
        except CamelError as error:
            typer.echo(f"   {error}")


def _choice(text: str, usual: str, among: tuple[str, ...]) -> str:
    while (said := str(typer.prompt(text, default=usual)).strip()) not in among:
        typer.echo(f"   one of {', '.join(among)}")
    return said


def _next(file: Path, answers: Answers) -> None:
    name = shlex.quote(str(file))
    typer.echo(f"wrote {file}. Next:")
    if answers.key_variable and not os.environ.get(answers.key_variable):
        typer.echo(f"  export {answers.key_variable}=…")
    typer.echo(f"  camel doctor {name}")
    typer.echo(f"  camel plan {name}")
    typer.echo(f"  camel generate {name}")
