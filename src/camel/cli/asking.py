"""What commands that ask a model open first."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable

from camel.cli.command import How
from camel.core.errors import InputError
from camel.core.model import Model
from camel.models.local import LocalServer, local_model
from camel.models.spec import ModelSpec, find_spec
from camel.record.release import RESTRICTED


def acknowledged(labels: Iterable[str] | None) -> tuple[str, ...]:
    """The `--acknowledge` of a command line."""
    given = tuple(labels or ())
    if unknown := sorted(set(given) - RESTRICTED):
        raise InputError(f"--acknowledge takes {', '.join(sorted(RESTRICTED))}, not {unknown[0]!r}")
    return given


@contextlib.contextmanager
def chosen_model(
    how: How, name: str, base_url: str, local: bool, concurrency: int, batch: bool = False
) -> Generator[Model | ModelSpec]:
    """The model that is asked, by the options that say so: it is served here while the block runs if `local`."""
    if not local:
        yield find_spec(name, base_url=base_url, batch=batch)
        return
    if batch:
        raise InputError("the model of --local has no batch API: leave out --batch")
    server = LocalServer(parallel=concurrency)
    # The grammar is that of instructions, which neither translations nor verdicts nor programs are.
    with local_model(server, guided=None, say=how.say) as model:
        yield model
