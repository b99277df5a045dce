"""The contents of `run.json`, and which local folder has a run's journals."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

import msgspec

from camel.runs.layout import Segment

SCHEMA = 1


class Settings(msgspec.Struct, frozen=True):
    """The contents of `run.json`."""

    fingerprint: str
    config: dict[str, Any]
    version: str
    """Version of camel that created the run."""
    forked_from: str = ""
    schema: int = SCHEMA
    lists: dict[str, str] = {}
    """A hash of the inputs of each level's lists, by which a fork decides which lists it can reuse."""
    planned: dict[str, Segment] = {}
    """The planned size of each stage. Runs of earlier versions do not have it."""


class Holder(msgspec.Struct, frozen=True):
    """The local folder that has the journals of a run in an object store."""

    host: str
    folder: str
    token: str = msgspec.field(default_factory=partial(secrets.token_hex, 8))
    """Unique id of this folder, even if several machines have the same name."""
    copied: bool = False
    """Whether the journals are copied to the store (`camel.runs.copies`), so that a process with another folder can resume."""

    def __str__(self) -> str:
        return f"{self.folder} on {self.host}"
