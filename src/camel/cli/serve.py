"""`camel serve`: serve a small model on this machine, or a society as an endpoint, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import argument, option, typed, typed_model
from camel.core.errors import InputError

SLOTS, WINDOW = 2, 4096
OF_MODEL = ("--gguf", "--context", "--threads")
OF_BOTH = ("--port", "--concurrency")

FileArgument = Annotated[str, argument("FILE", "Society to serve: a TOML file of a society or of `camel generate`, or a scenario.")]  # fmt: skip
ValueOption = Annotated[list[str] | None, option("With FILE: value of a placeholder that requests do not fill.", "NAME=TEXT")]  # fmt: skip
KeyOption = Annotated[str, option("With FILE: environment variable with the key that clients must send.", "NAME")]  # fmt: skip


def serve(
    command: typer.Context,
    file: FileArgument = "",
    port: shared.Port = 8080,
    gguf: Annotated[Path | None, option("GGUF file to serve.", "FILE")] = None,
    concurrency: shared.Concurrency = None,
    context: shared.Context = WINDOW,
    threads: Annotated[int | None, option("Number of CPU threads.", "N")] = None,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    trust_host: shared.TrustHost = None,
    value: ValueOption = None,
    allow: shared.Allow = None,
    out: shared.Out = "",
    host: shared.Host = "127.0.0.1",
    client_key: KeyOption = "",
    budget_usd: shared.BudgetUsd = None,
    budget_tokens: shared.BudgetTokens = None,
    budget_calls: shared.BudgetCalls = None,
    budget_hours: shared.BudgetHours = None,
) -> None:
    """Serve a model or a society until you press Ctrl-C."""
    given = [one for one in typed(command) if (one in OF_MODEL if file else one not in OF_MODEL + OF_BOTH)]
    if given:
        raise InputError(f"{given[0]} {'cannot be used with' if file else 'needs'} FILE")
    if wrong := next((one for one in value or () if "=" not in one), None):
        raise InputError(f"--value must be NAME=TEXT, not {wrong!r}")
    if not file:
        _serve_model(port, gguf, concurrency or SLOTS, context or WINDOW, threads)
        return
    from camel.jobs.budget import Budget
    from camel.library.serving import serve as serve_society
    from camel.models.spec import find_spec

    if file.endswith(".toml"):
        model, base_url = typed_model(command, model, base_url)
    outcome = serve_society(
        file,
        model=find_spec(model, base_url=base_url) if model or base_url else None,
        values={name: text for name, _, text in (one.partition("=") for one in value or [])},
        allow=allow or (),
        out=out,
        host=host,
        port=port,
        key_variable=client_key,
        concurrency=concurrency or 64,
        budget=Budget(usd=budget_usd, tokens=budget_tokens, calls=budget_calls, hours=budget_hours),
        ready=lambda url, name: typer.echo(f"{name} is ready at {url} (press Ctrl-C to stop)"),
    )
    if outcome.status != "stopped":
        typer.echo(f"stopped: {outcome.reason}")
        raise typer.Exit(outcome.exit_status)


def _serve_model(port: int, gguf: Path | None, concurrency: int, context: int, threads: int | None) -> None:
    from camel.models import local

    settings = local.LocalServer(
        port=port,
        parallel=concurrency,
        context_tokens=context,
        model_path=gguf,
        alias=gguf.stem if gguf else local.ALIAS,
        threads=local.default_threads() if threads is None else threads,
    )

    def ready(server: local.Running) -> None:
        typer.echo(
            f"{server.model} is ready at {server.base_url}. Press Ctrl-C to stop. In another terminal:"
        )
        typer.echo(
            f"  OPENAI_BASE_URL={server.base_url} camel play --guided llama.cpp --max-tokens 160 --temperature 0.8"
        )

    local.serve(settings, ready)
