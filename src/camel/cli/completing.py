"""What the shell offers when Tab is pressed: runs, scenarios, models, formats. Called on each press, so each is cheap.

The one decision to know: whatever goes wrong here offers nothing. A traceback in the middle of somebody's command line helps nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path

MOST = 200
"""Names offered at most."""
RUN_FILE = "run.json"


def _offering(names: Callable[[str], Iterable[str]]) -> Callable[[str], list[str]]:
    """Keep what begins as typed."""

    @wraps(names)
    def offer(incomplete: str) -> list[str]:
        try:
            found = sorted({name for name in names(incomplete) if name.startswith(incomplete)})
        except Exception:
            return []
        return found[:MOST]

    return offer


@_offering
def runs(incomplete: str) -> Iterable[str]:
    """Runs' folders near by: in this folder, in runs/, or below what is typed; and folders that lead further."""
    base = incomplete.rpartition("/")[0]
    places = [f"{base}/"] if base else ["", "runs/"]
    for place in places:
        for path in Path(place or ".").iterdir() if Path(place or ".").is_dir() else ():
            if path.is_dir() and not path.name.startswith("."):
                yield f"{place}{path.name}" if (path / RUN_FILE).exists() else f"{place}{path.name}/"


@_offering
def scenarios(incomplete: str) -> Iterable[str]:
    """Names of scenarios: those that come with CAMEL, and plug-ins'. Nothing of them is read."""
    from camel.core.plugins import offered

    folder = Path(__file__).parent.parent / "scenarios"
    return [*(path.parent.name for path in folder.glob("*/scenario.toml")), *offered("scenarios")]


@_offering
def models(incomplete: str) -> Iterable[str]:
    """Models of the catalogue: no endpoint is asked."""
    from camel.models.prices import names

    return names()


@_offering
def formats(incomplete: str) -> Iterable[str]:
    """What a run can be exported as."""
    from camel.formats.exporters import FORMATS

    return [*FORMATS, "site"]
