"""Options that several commands have, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelName = Annotated[
    str,
    typer.Option(
        envvar="CAMEL_MODEL",
        metavar="NAME",
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
Seed = Annotated[int | None, typer.Option(help="For endpoints that can repeat themselves.")]
Context = Annotated[int | None, typer.Option(help="The model's window in tokens, if it is not known.")]
Save = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Write the transcript here (.json or .md); repeatable."),
]
