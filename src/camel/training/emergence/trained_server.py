"""The models of a study: where each is, and how it is served while it is asked.

The one decision to know: a model that lies on this disk is served only for as long as it is asked. A chain of five models
of seven billion weights does not fit a machine at once; one after the other they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.model import Model, Reply, Request
from camel.models.connect import connect, label, named_at
from camel.models.guided import Guide
from camel.models.local import ALIAS, LocalServer, find_model, local_model
from camel.models.prices import ModelPrice, find
from camel.training.train import CONFIG, RESULT
from camel.training.weights import GGUF, LOCAL, MERGED, to_gguf

FREE = ModelPrice(0.0, 0.0)
Say = Callable[[str], None]


class ModelPlace(NamedTuple):
    """Where a model is."""

    name: str
    """As it is asked for and paid for."""
    path: Path | None
    """A GGUF file, or a folder as transformers writes them; None: at an endpoint."""
    url: str = ""
    """Of its endpoint; empty: of the one that all others are at."""

    @property
    def label(self) -> str:
        """As it is reported: of where it is, only the host."""
        return label(self.name, self.url)


def find_place(spec: str, say: Say) -> ModelPlace:
    """The model that somebody named: `local`, a GGUF file, a folder, NAME or NAME@URL."""
    if spec == LOCAL:
        return ModelPlace(ALIAS, find_model(say))
    name, url = named_at(spec)
    if url:
        return ModelPlace(name, None, url)
    path = Path(spec)
    if path.is_file() or path.suffix == ".gguf":
        return ModelPlace(path.parent.name if path.name == GGUF else path.stem, path)
    if path.is_dir():
        return ModelPlace(path.resolve().name, trained(path) or path)
    return ModelPlace(name, None)


def trained(folder: Path) -> Path | None:
    """The file of a training that is over."""
    return folder / GGUF if (folder / RESULT).is_file() and (folder / GGUF).is_file() else None


def version_of(place: ModelPlace) -> str:
    """Stands for the weights: those of one name may be trained again. Empty for an endpoint's, of which only the name is known."""
    if place.path is None:
        return ""
    folder, told = place.path.parent, hashlib.sha256()
    if place.path.name == GGUF and (folder / RESULT).is_file():
        # What a training says of itself: settings, data, losses, seconds. No two say the same, and the file may be large.
        for name in (CONFIG, RESULT):
            told.update((folder / name).read_bytes())
    elif place.path.is_file():
        status = place.path.stat()
        told.update(_digest(place.path, status.st_size, status.st_mtime_ns))
    else:
        for file in sorted(_folder(place.path).glob("*.safetensors")):
            told.update(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return told.hexdigest()[:16]


@cache
def _digest(path: Path, size: int, time: int) -> bytes:
    """Of a whole file; looked at again where it has changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _folder(path: Path) -> Path:
    """Where in a folder the model lies."""
    found = path / MERGED if (path / MERGED).is_dir() else path
    if not (found / "config.json").is_file():
        raise InputError(f"{path} holds no model: give a GGUF file, or a folder that transformers reads")
    return found


class Lent(Model):
    """A model of the study. One that lies on this disk is served from its first call until it rests."""

    def __init__(
        self,
        place: ModelPlace,
        *,
        scratch: Path,
        base_url: str = "",
        guided: str = "",
        context: int = 4_096,
        parallel: int = 2,
        say: Say = lambda line: None,
    ) -> None:
        """`scratch` is where a folder's model is put as GGUF, once."""
        if guided and guided not in get_args(Guide):
            raise InputError(f"guided must be one of {', '.join(get_args(Guide))}, not {shown(guided)}")
        self.place, self._scratch, self._parallel, self._say = place, scratch, parallel, say
        self.name, self.context_tokens = place.label, context
        self.price = FREE if place.path else find(place.name)
        self._asked: Model | None = None
        self._serving = contextlib.ExitStack()
        self._opening = asyncio.Lock()
        if place.path is None:
            guide: Guide | None = guided or None  # pyright: ignore[reportAssignmentType]
            self._asked = connect(place.name, base_url=place.url or base_url, guided=guide)
            self.context_tokens = self._asked.context_tokens

    async def reply(self, request: Request) -> Reply:
        """Ask it; a model on this disk is served first."""
        if self._asked is None:
            async with self._opening:
                self._asked = self._asked or await asyncio.to_thread(self._serve)
        return await self._asked.reply(request)

    async def rest(self) -> None:
        """Close its connections, and take a server of its own down: the next model needs the room."""
        if self._asked is not None:
            await self._asked.aclose()
        if self.place.path is not None:
            self._asked = None
            await asyncio.to_thread(self._serving.close)

    async def aclose(self) -> None:
        """Close its connections, and a server of its own."""
        await self.rest()

    def _serve(self) -> Model:
        """Serve it; loading takes its time."""
        server = LocalServer(
            model_path=self._file(),
            alias=self.place.name,
            context_tokens=self.context_tokens or 4_096,
            parallel=self._parallel,
        )
        return self._serving.enter_context(local_model(server, say=self._say))

    def _file(self) -> Path:
        assert self.place.path is not None
        if not self.place.path.is_dir():
            return self.place.path
        made = self._scratch / f"{version_of(self.place)}.gguf"
        if not made.is_file():
            self._say(f"writing {self.place.name} as a GGUF file")
            to_gguf(_folder(self.place.path), made)
        return made
