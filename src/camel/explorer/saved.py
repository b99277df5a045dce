"""The run in which the agents app saves conversations."""

from __future__ import annotations

from pathlib import Path

import msgspec

from camel._version import __version__
from camel.core.errors import InputError
from camel.core.transcript import Transcript
from camel.index.build import UNFINISHED, write_indexed
from camel.jobs.ledger import STOPPED, totals_of
from camel.models.prices import cost
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings

STAGE = "conversations"
FINGERPRINT = "agents"


def prepared(out: str | Path) -> RunFolder:
    """Open the run in which conversations are saved. Create it if it does not exist."""
    folder = open_folder(out)
    if not folder.exists:
        if folder.stages():
            raise InputError(f"'{folder.address}' is not empty and not a run: choose another folder")
        folder.create(Settings(FINGERPRINT, {"scenario": "agents app", "shard_size": 1}, __version__))
    elif folder.settings().fingerprint != FINGERPRINT:
        raise InputError(f"'{folder.address}' contains a run with other data: choose another folder")
    return folder


def append(folder: RunFolder, transcript: Transcript) -> None:
    """Add a conversation to a run as a separate shard. `camel run compact` merges these shards."""
    transcript = msgspec.structs.replace(transcript, fingerprint=FINGERPRINT)
    reason = transcript.stop.reason if transcript.stop else UNFINISHED
    totals = {**totals_of(transcript.usage), "failed": float(reason == "error"), f"{STOPPED}{reason}": 1.0}
    while True:
        shard = max(folder.committed(STAGE), default=-1) + 1
        path = folder.data_path(STAGE, shard, new_attempt(), ".parquet")
        written = write_indexed(folder, STAGE, path, [transcript], FINGERPRINT, cost)
        file, size = folder.persist(path)
        if folder.commit(Marker(STAGE, shard, file, written.rows, written.sha256, FINGERPRINT, totals, size)):
            return
        folder.discard(path)  # another server has committed this shard number
