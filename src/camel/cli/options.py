"""Options that several commands have, each said once."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from camel.cli.completing import models, runs

RunPlace = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's folder, or s3://bucket/prefix.", autocompletion=runs),
]
ModelName = Annotated[
    str,
    typer.Option(
        envvar="CAMEL_MODEL",
        metavar="NAME",
        autocompletion=models,
        help="Model name. Left out: what the server serves, or gpt-4.1-mini.",
    ),
]
BaseUrl = Annotated[
    str,
    typer.Option(
        envvar="OPENAI_BASE_URL",
        metavar="URL",
        help="Any OpenAI-compatible endpoint. The key comes from OPENAI_API_KEY.",
    ),
]
Local = Annotated[
    bool,
    typer.Option(
        "--local",
        help="Use the tiny real model on this machine, whatever --model and --base-url say; no key.",
    ),
]
Temperature = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="0.2 unless given (0.8 with --local); 'default' for the model's own."
    ),
]
Guided = Annotated[
    str,
    typer.Option(metavar="SERVER", help="Hold replies to the format: llama.cpp, vllm, openai or off."),
]
Seed = Annotated[int | None, typer.Option(help="For endpoints that can repeat themselves.")]
Context = Annotated[int | None, typer.Option(help="The model's window in tokens, if it is not known.")]
Save = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Write the transcript here (.json or .md); repeatable."),
]
Host = Annotated[
    str, typer.Option(help="Address to listen on; on any but this machine's own a token is needed.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="A further name under which this machine is reached, e.g. through a proxy."
    ),
]
FrameIn = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN", help="Pages of this origin may hold it in a frame: https://huggingface.co."
    ),
]
Public = Annotated[
    bool,
    typer.Option("--public", help="Ask for no token on any address: everybody who reaches it is let in."),
]
OpenBrowser = Annotated[
    bool | None, typer.Option("--open/--no-open", help="Open a browser; by default where a terminal is.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what was written there before.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


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
    from camel.core.errors import InputError

    if options:
        raise InputError(f"{file} says this itself: change it there, and leave out {', '.join(options)}")
