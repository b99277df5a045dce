"""The control file of a run, which its workers read.

    control.json     {"wish": "pause"}     no new calls until the wish changes
                     {"wish": "stop"}      as Ctrl-C: calls in flight end, and the process exits
                     {"wish": "go"}        or no such file

The one decision to know: a wish is a file in the run, so it reaches a run on another machine and needs no port, no process
id and no rights but those to write there. A pause lasts until `go`, restarts included, so that a supervisor that restarts
the run does not begin to pay again. A stop is for the processes that are working now.
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
    """The wish; "go" where there is none that can be read."""
    try:
        return msgspec.json.decode(folder.store.get(CONTROL), type=_Control).wish
    except (OSError, msgspec.MsgspecError, RecursionError):
        return "go"


def wish(folder: RunFolder, what: Wish) -> None:
    """Tell the workers of a run what to do."""
    if what == "go":
        folder.store.remove([CONTROL])
    else:
        # Durable: a pause that is lost in a power cut would let a supervisor restart the run and pay again.
        folder.store.put(CONTROL, msgspec.json.encode(_Control(what)))
