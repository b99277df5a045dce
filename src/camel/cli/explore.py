"""`camel explore`: read, find and watch runs in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli import completing
from camel.cli.options import AllowHost, FrameIn, Host, OpenBrowser, Port, Public, argument
from camel.core.errors import MissingExtra


def explore(
    runs: Annotated[
        list[str],
        argument(
            "RUN…",
            "Runs' folders, s3://bucket/prefix, a folder of runs, or files of the original's formats.",
            autocompletion=completing.runs,
        ),
    ],
    port: Port = 8090,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    frame_in: FrameIn = None,
    public: Public = False,
    open_browser: OpenBrowser = None,
) -> None:
    """Explore runs in the browser until Ctrl-C. Needs the extra `explore`."""
    try:
        from camel.explorer.serving import serve
    except ImportError as error:
        raise MissingExtra(f"The explorer ({error.name})", "explore") from None
    from camel.jobs.status import find_runs

    found = [one for run in runs for one in (find_runs(run) or [run])]

    def ready(link: str) -> None:
        typer.echo(f"{len(found):,} {'run' if len(found) == 1 else 'runs'} at {link}\nCtrl-C stops it.")

    serve(
        runs,
        host=host,
        port=port,
        allow_hosts=allow_host or (),
        frames=frame_in or (),
        public=public,
        open_browser=open_browser,
        ready=ready,
    )
