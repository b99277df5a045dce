"""Shell completion of runs, scenarios, models and formats. Each function runs on every press of Tab, so it must be fast.

On any error the list is empty: a traceback in the middle of a command line would not help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path

MOST = 200
"""Maximum number of names to offer."""
RUN_FILE = "run.json"


def _completion(names: Callable[[str], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion function that offers the names that begin with the typed text, and nothing after an error."""

    @wraps(names)
    def offer(incomplete: str) -> list[str]:
        try:
            found = sorted({name for name in names(incomplete) if name.startswith(incomplete)})
        except Exception:
            return []
        return found[:MOST]

    return offer


@_completion
def runs(incomplete: str) -> Iterable[str]:
    """Yield run folders in the typed folder (by default `.` and `runs/`), and other folders, which can be completed further."""
    base = incomplete.rpartition("/")[0]
    places = [f"{base}/"] if base else ["", "runs/"]
    for place in places:
        for path in Path(place or ".").iterdir() if Path(place or ".").is_dir() else ():
            if path.is_dir() and not path.name.startswith("."):
                yield f"{place}{path.name}" if (path / RUN_FILE).exists() else f"{place}{path.name}/"


@_completion
def scenarios(incomplete: str) -> Iterable[str]:
    """Return the names of all scenarios, those of plug-ins included, without reading a scenario's files."""
    from camel.core.plugins import offered

    folder = Path(__file__).parent.parent / "scenarios"
    return [*(path.parent.name for path in folder.glob("*/scenario.toml")), *offered("scenarios")]


@_completion
def models(incomplete: str) -> Iterable[str]:
    """Return the names of models with a known price, without calling an endpoint."""
    from camel.models.prices import names

    return names()


@_completion
def formats(incomplete: str) -> Iterable[str]:
    """Return the formats of `camel export`."""
    from camel.formats.exporters import FORMATS

    return [*FORMATS, "site"]
