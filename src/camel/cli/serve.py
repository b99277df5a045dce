"""`camel serve`: serve a small model on this machine, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camel.cli.help import defaults
from camel.cli.options import Concurrency, Context, Port, option

SLOTS, WINDOW = 2, 4096


@defaults(gguf="SmolLM2-135M-Instruct", threads="at most 2")
def serve(
    port: Port = 8080,
    gguf: Annotated[Path | None, option("GGUF file to serve.", "FILE")] = None,
    concurrency: Concurrency = SLOTS,
    context: Context = WINDOW,
    threads: Annotated[int | None, option("CPU threads.", "N")] = None,
) -> None:
    """Serve a small model on this machine until Ctrl-C.

    It listens on 127.0.0.1 with the OpenAI protocol. --context applies to each conversation. Needs the extra `local`.

    Example: camel serve --gguf models/trial/model.gguf
    """
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
