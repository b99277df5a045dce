"""The `camel` command: one thin module per command, each of which parses options and calls the library."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from camel._version import __version__
from camel.cli.ablate import ablate
from camel.cli.agents import agents
from camel.cli.credit import credit
from camel.cli.demo import demo
from camel.cli.doctor import doctor
from camel.cli.evaluate import app as evaluate
from camel.cli.explore import explore
from camel.cli.export import export, import_
from camel.cli.fork import fork
from camel.cli.generate import generate
from camel.cli.help import HelpCommand, HelpGroup
from camel.cli.init import init
from camel.cli.map import map_
from camel.cli.output import visible
from camel.cli.plan import plan
from camel.cli.play import play
from camel.cli.preview import preview
from camel.cli.push import push
from camel.cli.reproduce import reproduce
from camel.cli.rows import rows
from camel.cli.run import app as run
from camel.cli.scenarios import app as scenarios
from camel.cli.score import score
from camel.cli.serve import serve
from camel.cli.show import show
from camel.cli.society import society
from camel.cli.study import study
from camel.cli.train import train
from camel.cli.translate import translate
from camel.cli.vote import vote
from camel.core.errors import CamelError, Damaged, InputError, advice_for

GROUPS: dict[str, tuple[Any, ...]] = {
    "Start": (demo, play, society, agents),
    "Generate": (generate, preview, plan, fork, translate, scenarios),
    "Read": (explore, show, export, import_, push),
    "Measure": (study, score, credit, ablate, vote, evaluate, reproduce, map_),
    "Train": (rows, train),
    "Operate": (run,),
    "Setup": (init, doctor, serve),
}
"""Commands and groups of commands in the order of `camel --help`."""


def name_of(command: Any) -> str:
    """Return the name of a command or of a group of commands on the command line."""
    return str(command.info.name) if isinstance(command, typer.Typer) else command.__name__.rstrip("_")


class Commands(HelpGroup):
    """All commands, by group."""

    order = tuple(name_of(command) for commands in GROUPS.values() for command in commands)


app = typer.Typer(
    name="camel",
    cls=Commands,
    help="Let language-model agents converse, study the results, and train on them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


for _group, _members in GROUPS.items():
    for _member in _members:
        if isinstance(_member, typer.Typer):
            app.add_typer(_member, rich_help_panel=_group)
        else:
            app.command(name_of(_member), cls=HelpCommand, rich_help_panel=_group)(_member)


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
    """Let language-model agents converse, study the results, and train on them."""


def main() -> None:
    """Run the command line. Known errors are one line on stderr; the exit status is 2 for wrong input, 1 for other failures."""
    try:
        sys.exit(app(prog_name="camel", standalone_mode=False))
    except CamelError as error:
        typer.echo(f"camel: {visible(str(error))}", err=True)
        sys.exit(2 if isinstance(error, InputError) and not isinstance(error, Damaged) else 1)
    except (typer.Abort, KeyboardInterrupt):
        # Commands have stored their results by now, so a traceback would only confuse.
        typer.echo("Interrupted.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the output is gone; the interpreter must not report that again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if not (advice := advice_for(error)):
            raise
        place = f" '{os.fsdecode(error.filename)}'" if isinstance(error.filename, str | bytes) else ""
        problem = visible(f"cannot use the file{place} ({error.strerror or error}): {advice}")
        typer.echo(f"camel: {problem}", err=True)
        sys.exit(1)
    except Exception as error:
        # The parser's own errors; their class has moved between typer's releases, their method has not.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        text = message()
        if not text.startswith("Usage:"):
            path = getattr(getattr(error, "ctx", None), "command_path", "") or "camel"
            text = f"camel: {text.rstrip('.')}{'' if text.endswith('?') else '.'} See {path} --help."
        typer.echo(text, err=True)
        sys.exit(2)
