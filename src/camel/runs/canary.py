"""The canary of a run: what tells, in any text that holds it, that labeled data was trained on."""

from __future__ import annotations

from camel.core.errors import CamelError, InputError
from camel.runs.run import RunFolder
from camel.scenarios import load


def canary_of(folder: RunFolder) -> str:
    """The GUID of the scenario that the run was made from."""
    name = str(folder.settings().config.get("scenario", ""))
    try:
        canary = load(name).canary
    except CamelError as error:
        raise InputError(f"the canary cannot be read from the scenario {name!r}: {error}") from None
    if not canary:
        raise InputError(f"the scenario {name!r} declares no canary, which such a release must carry")
    return canary
