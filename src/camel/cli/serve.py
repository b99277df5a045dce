"""`camel serve`: serve a small model on this machine, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import option

SLOTS, WINDOW = 2, 4096


def serve(
    port: shared.Port = 8080,
    gguf: Annotated[Path | None, option("GGUF file to serve.", "FILE")] = None,
    concurrency: shared.Concurrency = SLOTS,
    context: shared.Context = WINDOW,
    threads: Annotated[int | None, option("Number of CPU threads.", "N")] = None,
) -> None:
    """Serve a model on this machine until you press Ctrl-C."""
    from camel.models import local

    settings = local.LocalServer(
        port=port,
        parallel=concurrency or SLOTS,
        context_tokens=context or WINDOW,
        model_path=gguf,
        alias=gguf.stem if gguf else local.ALIAS,
        **({} if threads is None else {"threads": threads}),
    )

    def ready(server: local.Running) -> None:
        typer.echo(
            f"{server.model} is ready at {server.base_url}. Press Ctrl-C to stop. In another terminal:"
        )
        typer.echo(
            f"  OPENAI_BASE_URL={server.base_url} camel play --guided llama.cpp --max-tokens 160 --temperature 0.8"
        )

    local.serve(settings, ready)
