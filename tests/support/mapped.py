"""Maps for tests, and an embedder: a vector of the words of a text, the same on every machine, with a ledger of what it was asked."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from camel.jobs.runner import Runner
from camel.maps.embedding import Of
from camel.maps.mapping import MapJob
from camel.maps.table import MapHeader

WIDTH = 48


class Words:
    """Texts with the same words are close."""

    def __init__(self, name: str = "words", *, fail_at: int | None = None) -> None:
        self.name, self._fail_at = name, fail_at
        self.calls = 0
        self.ledger: Counter[str] = Counter()

    def embed(self, texts: Sequence[str]) -> Any:
        self.calls += 1
        if self.calls == self._fail_at:
            raise RuntimeError("the power went out")
        self.ledger.update(texts)
        made = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                digest = hashlib.sha256(word.encode()).digest()
                made[row, digest[0] % WIDTH] += 1 if digest[1] % 2 else -1
                made[row, digest[2] % WIDTH] += 0.5
        return made + 1e-3


def mapped(run: Path, of: Of = "tasks") -> MapHeader:
    """Make a map of a run, its points along the main directions: UMAP takes long to begin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("camel.maps.mapping.FEW", 10**9)
        work = Runner(MapJob(str(run), Words(), of)).run
        with ThreadPoolExecutor(1) as thread:  # for playwright keeps a loop running in this one
            ended = thread.submit(lambda: asyncio.run(work())).result()
        assert ended.status == "complete"
        return ended.result.header


def unit(vectors: Any) -> NDArray[np.float32]:
    """Normalize vectors to length 1. A zero vector stays zero."""
    made = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    return np.divide(made, lengths, out=np.zeros_like(made), where=lengths > 0)
