"""The control file of a run: what somebody wishes of whoever works on it.

    control.json     {"wish": "pause"}     no new calls until there is another wish
                     {"wish": "stop"}      as Ctrl-C: what is in flight ends, and the process leaves
                     {"wish": "go"}        or no such file

The one decision to know: a wish is a file in the run, so that it reaches a run on another machine, and needs no port, no
process id and no rights but those to write there. A pause stays until somebody says go, also for the next start, so that
nothing that restarts a run by itself begins to pay again; a stop is for those who work on it now, and goes with them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from camel.runs.run import RunFolder
from camel.storage import inside
from camel.storage.store import BucketStore

CONTROL = "control.json"
Wish = Literal["go", "pause", "stop"]


class _Control(msgspec.Struct, frozen=True):
    wish: Wish = "go"


def read_wish(folder: RunFolder) -> Wish:
    """What is wished; "go" where nothing is, or nothing that can be understood."""
    try:
        return msgspec.json.decode(folder.store.get(CONTROL), type=_Control).wish
    except (OSError, msgspec.MsgspecError, RecursionError):
        return "go"


def wish(folder: RunFolder, what: Wish) -> None:
    """Wish something of whoever works on a run."""
    if what == "go":
        folder.store.remove([CONTROL])
        return
    data = msgspec.json.encode(_Control(what))
    if isinstance(folder.store, BucketStore):
        folder.store.put(CONTROL, data)
        return
    # Durable: a pause that is lost in a power cut would let whatever restarts the run begin to pay again.
    inside.write(folder.root, CONTROL, data)
