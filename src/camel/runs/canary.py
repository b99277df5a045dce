"""The canary of a run: a GUID that shows, in a model's output, that labeled data was in its training data."""

from __future__ import annotations

from camel.core.errors import CamelError, InputError
from camel.runs.run import RunFolder
from camel.scenarios import load


def canary_of(folder: RunFolder) -> str:
    """Return the canary GUID of the run's scenario."""
    name = str(folder.settings().config.get("scenario", ""))
    try:
        canary = load(name).canary
    except CamelError as error:
        raise InputError(f"cannot read the canary of the scenario {name!r}: {error}") from None
    if not canary:
        raise InputError(
            f"the scenario {name!r} has no canary, which a release of labeled data needs: add one to its scenario.toml"
        )
    return canary
