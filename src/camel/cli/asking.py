"""What commands that make something of a run, or ask a model about it, check and open first."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable

from rich.console import Console

from camel.cli.panel import say
from camel.core.errors import InputError
from camel.core.model import Model
from camel.generation.status import read_status
from camel.models.connect import connect
from camel.models.local import LocalServer, local_model
from camel.record.release import RESTRICTED


def check_finished(run: str, what: str) -> None:
    """Refuse a run that is not complete: which conversations it has must not change below what is made from it."""
    now = read_status(run)
    if now.state != "complete":
        how = f": {now.resume}" if now.resume and now.state == "stopped" else ""
        raise InputError(f"{run} is not complete, and only a complete run is {what}; finish it first{how}")


def acknowledged(labels: Iterable[str] | None) -> tuple[str, ...]:
    """The `--acknowledge` of a command line."""
    given = tuple(labels or ())
    if unknown := sorted(set(given) - RESTRICTED):
        raise InputError(f"--acknowledge takes {', '.join(sorted(RESTRICTED))}, not {unknown[0]!r}")
    return given


@contextlib.contextmanager
def chosen_model(
    console: Console, name: str, base_url: str, local: bool, concurrency: int
) -> Generator[Model]:
    """The model that is asked, by the options that say so: it is served here while the block runs if `local`."""
    if not local:
        yield connect(name, base_url=base_url)
        return
    server = LocalServer(parallel=concurrency)
    # The grammar is that of instructions, which neither translations nor verdicts nor programs are.
    with local_model(server, guided=None, say=lambda text: say(console, text)) as model:
        yield model
