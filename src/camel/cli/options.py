"""Options that several commands have, each declared once, and short forms to declare the others."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from camel.cli.completing import models, runs, scenarios
from camel.core.errors import InputError


def option(help: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """An option's help and what stands for its value there; its name is the parameter's unless `names` say otherwise."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def flag(name: str, help: str) -> Any:
    """A switch that is off unless given."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str, **more: Any) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help, **more)


RunPlace = Annotated[str, argument("RUN", "A run's folder, or s3://bucket/prefix.", autocompletion=runs)]
ConfigFile = Annotated[Path, argument("CONFIG.toml", "As for camel generate.")]
ScenarioPlace = Annotated[
    str, argument("NAME", "A shipped name, or a scenario's folder.", autocompletion=scenarios)
]
Stage = Annotated[str, option("The stage; left out: that of the conversations.")]

ModelName = Annotated[
    str,
    option(
        "NAME[@URL], FILE.gguf, hf:OWNER/REPO[:QUANT], ollama:NAME or local. Left out: what the server serves, or gpt-4.1-mini.",
        "MODEL", envvar="CAMEL_MODEL",
        autocompletion=models,
    ),
]  # fmt: skip
BaseUrl = Annotated[
    str,
    option(
        "Any OpenAI-compatible endpoint. The key comes from OPENAI_API_KEY.", "URL", envvar="OPENAI_BASE_URL"
    ),
]
Dialect = Annotated[
    str, option("What the endpoint accepts, such as anthropic; left out: what its host is known for.", "NAME")
]
CommonUrl = Annotated[
    str, option("The endpoint of all models that name none.", "URL", envvar="OPENAI_BASE_URL")
]
Local = Annotated[
    bool,
    flag("--local", "Use the tiny real model on this machine, whatever --model and --base-url say; no key."),
]
Batch = Annotated[bool, flag("--batch", "Ask in batches: about half the price, within 24 hours.")]
Temperature = Annotated[
    str | None, option("0.2 unless given (0.8 with --local); 'default' for the model's own.", "NUMBER")
]
MaxTokens = Annotated[int | None, option("Longest reply, in tokens.")]
Guided = Annotated[str, option("Hold replies to the format: llama.cpp, vllm, openai or off.", "SERVER")]
Seed = Annotated[int | None, option("Random seed, for endpoints that take one.")]
Context = Annotated[int | None, option("The model's window in tokens, if it is not known.")]
ShowPrompts = Annotated[bool, flag("--show-prompts", "Print the system prompts.")]
ShowReasoning = Annotated[bool, flag("--show-reasoning", "Print what a model thought before each message.")]
Save = Annotated[list[Path] | None, option("Write the transcript here (.json or .md); repeatable.", "FILE")]
Acknowledge = Annotated[
    list[str] | None, option("Include conversations with this label: misalignment.", "LABEL")
]

Port = Annotated[int, option("0 takes a free one.", min=0, max=65535)]
Host = Annotated[str, option("Address to listen on; on any but this machine's own a token is needed.")]
AllowHost = Annotated[
    list[str] | None,
    option("A further name under which this machine is reached, e.g. through a proxy.", "NAME"),
]
FrameIn = Annotated[
    list[str] | None,
    option("Pages of this origin may hold it in a frame: https://huggingface.co.", "ORIGIN"),
]
Public = Annotated[
    bool, flag("--public", "Ask for no token on any address: everybody who reaches it is let in.")
]
OpenBrowser = Annotated[
    bool | None, option("Open a browser; by default where a terminal is.", None, "--open/--no-open")
]

DryRun = Annotated[bool, flag("--dry-run", "Show what it would take, and stop.")]
Force = Annotated[bool, flag("--force", "Replace what was written there before.")]
AsJson = Annotated[bool, flag("--json", "Print one JSON object.")]


def print_json(value: Any) -> None:
    """What `--json` prints: one object in a line."""
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())


def typed(command: typer.Context) -> list[str]:
    """The options that stand on the command line, under their first name: not those from the environment."""
    found: list[str] = []
    for parameter in command.command.params:
        source = command.get_parameter_source(parameter.name or "")
        # Its class has moved between typer's releases, its name has not.
        if parameter.opts[0].startswith("--") and source is not None and source.name == "COMMANDLINE":
            found.append(parameter.opts[0])
    return found


def leave_to(file: object, options: Collection[str]) -> None:
    """Refuse options that a file says itself: that they do nothing beside it would not be seen."""
    if options:
        raise InputError(f"{file} says this itself: change it there, and leave out {', '.join(options)}")


def acknowledged(labels: Collection[str] | None) -> tuple[str, ...]:
    """The `--acknowledge` of a command line."""
    from camel.record.release import RESTRICTED

    if unknown := sorted(set(labels or ()) - RESTRICTED):
        raise InputError(f"--acknowledge takes {', '.join(sorted(RESTRICTED))}, not {unknown[0]!r}")
    return tuple(labels or ())
