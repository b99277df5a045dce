"""`camel explore`: read, search and watch runs in the browser."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from camel.cli import options as shared
from camel.cli.options import argument, complete_runs
from camel.core.errors import MissingExtra

RunsArgument = Annotated[list[str], argument("RUN", "Runs, folders of runs, s3://bucket/prefix, or files in the formats of the CAMEL paper's datasets.", autocompletion=complete_runs)]  # fmt: skip


def explore(
    runs: RunsArgument,
    port: shared.Port = 8090,
    host: shared.Host = "127.0.0.1",
    allow_host: shared.AllowHost = None,
    frame_in: shared.FrameIn = None,
    public: shared.Public = False,
    no_token: shared.NoToken = False,
    open_browser: shared.OpenBrowser = None,
) -> None:
    """Read, search and watch runs in the browser."""
    open_explorer(
        runs,
        host=host,
        port=port,
        allow_hosts=allow_host or (),
        frames=frame_in or (),
        public=public,
        needs_token=not no_token,
        open_browser=open_browser,
    )


def open_explorer(runs: list[str], **options: Any) -> None:
    """Serve runs until Ctrl-C, and print the address; for the options see `camel.explorer.app.serve`."""
    try:
        from camel.explorer.app import serve
    except ImportError as error:
        raise MissingExtra(f"The explorer ({error.name})", "explore") from None
    from camel.reports.numbers import counted

    def ready(link: str, runs: int) -> None:
        typer.echo(f"{counted(runs, 'run')} at {link}\nPress Ctrl-C to stop.")

    serve(runs, ready=ready, **options)
