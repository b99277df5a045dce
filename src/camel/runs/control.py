"""The control file of a run, which its workers read.

    control.json     {"wish": "pause"}     no new calls until it changes
                     {"wish": "stop"}      like Ctrl-C: calls in flight end, and the process exits
                     {"wish": "go"}        or no such file

The one decision to know: control is a file in the run, so it works across machines and needs no port, no process id and
only the right to write there. A pause lasts until `go`, over restarts, so that a supervisor that restarts the run does
not cause new costs. A stop applies only to the processes that are running now.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from camel.runs.run import RunFolder

CONTROL = "control.json"
Wish = Literal["go", "pause", "stop"]


class _Control(msgspec.Struct, frozen=True):
    wish: Wish = "go"


def read_wish(folder: RunFolder) -> Wish:
    """Return the last request in the control file. Return "go" if there is none or it is unreadable."""
    try:
        return msgspec.json.decode(folder.store.get(CONTROL), type=_Control).wish
    except (OSError, msgspec.MsgspecError, RecursionError):
        return "go"


def wish(folder: RunFolder, what: Wish) -> None:
    """Ask the workers of a run to pause, stop or continue."""
    if what == "go":
        folder.store.remove([CONTROL])
    else:
        # Durable: if a power failure lost the pause, a supervisor would restart the run and its costs.
        folder.store.put(CONTROL, msgspec.json.encode(_Control(what)))
