"""The `camel` command: one thin file a verb, each parsing into the library's own objects."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from camel._version import __version__
from camel.cli.ablate import ablate
from camel.cli.agents import agents
from camel.cli.compact import compact
from camel.cli.control import pause, resume, stop
from camel.cli.demo import demo
from camel.cli.doctor import doctor
from camel.cli.evaluate import app as evaluate
from camel.cli.explore import explore
from camel.cli.export import export, import_
from camel.cli.gc import gc
from camel.cli.generate import generate
from camel.cli.index import index
from camel.cli.init import init
from camel.cli.map import map_
from camel.cli.plan import plan
from camel.cli.play import play
from camel.cli.rows import rows
from camel.cli.scenarios import app as scenarios
from camel.cli.serve import serve
from camel.cli.society import society
from camel.cli.status import runs, status
from camel.cli.study import study
from camel.cli.train import train
from camel.cli.translate import translate
from camel.cli.verify import verify
from camel.cli.vote import vote
from camel.core.errors import CamelError, Damaged, InputError, advice_for

app = typer.Typer(
    name="camel",
    help="Societies of language-model agents: let two of them play roles and solve a task.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    demo, init, doctor, play, society, agents, serve, translate, generate, plan, pause, resume, stop, status, runs,
    study, ablate, explore, vote, export, import_, rows, train, verify, compact, index, map_, gc,
):  # fmt: skip
    app.command(command.__name__.rstrip("_"))(command)
app.add_typer(scenarios)
app.add_typer(evaluate)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"camel-society {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Societies of language-model agents: let two of them play roles and solve a task."""


def main() -> None:
    """Run the command line. Errors we know are one line on stderr: 2 for input, 1 for a model or a file that failed."""
    try:
        sys.exit(app(standalone_mode=False))
    except CamelError as error:
        _complain(str(error))
        sys.exit(2 if isinstance(error, InputError) and not isinstance(error, Damaged) else 1)
    except (typer.Abort, KeyboardInterrupt):
        # Verbs with something to keep have kept it by now; whoever leaves a question needs no traceback.
        typer.echo("camel: left", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read the output has gone; the interpreter must not complain about it again on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if not (advice := advice_for(error)):
            raise
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        _complain(f"{place}{error.strerror or error}: {advice}")
        sys.exit(1)
    except Exception as error:
        # The parser's own errors; their class has moved between typer's releases, their method has not.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        text = message()
        typer.echo(
            text if text.startswith("Usage:") else f"camel: {text.rstrip('.?')}. Try --help.", err=True
        )
        sys.exit(2)


def _complain(text: str) -> None:
    from camel.cli.screen import visible

    typer.echo(f"camel: {visible(text)}", err=True)
