"""The models of a study: where each is, and how it is served while it is asked.

The one decision to know: a model that lies on this disk is served only for as long as it is asked. A chain of five models
of seven billion weights does not fit a machine at once; one after the other they do.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple, get_args

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.model import Model
from camel.models.connect import label
from camel.models.guided import Guide
from camel.models.local import LocalServer, Say, ServedModel, find_model, weights_digest
from camel.models.named import NamedModel
from camel.models.prices import find
from camel.models.spec import ModelSpec, find_spec, read_name
from camel.training.train import CONFIG, RESULT
from camel.training.weights import GGUF, MERGED, to_gguf


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


def find_place(name: str, say: Say) -> ModelPlace:
    """The model that somebody named: a folder, or as everywhere a model is named. What is served here is fetched."""
    path, (label, url, file) = Path(name), read_name(name)
    if path.is_dir():
        return ModelPlace(path.resolve().name, trained(path) or path)
    if not file:
        return ModelPlace(label, None, url)
    path = ModelSpec(name).server(say=say).model_path or find_model(say)
    return ModelPlace(path.parent.name if path.name == GGUF else label.removesuffix(".gguf"), path)


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
        told.update(weights_digest(place.path).encode())
    else:
        for file in sorted(_folder(place.path).glob("*.safetensors")):
            told.update(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return told.hexdigest()[:16]


def _folder(path: Path) -> Path:
    """Where in a folder the model lies."""
    found = path / MERGED if (path / MERGED).is_dir() else path
    if not (found / "config.json").is_file():
        raise InputError(f"{path} holds no model: give a GGUF file, or a folder that transformers reads")
    return found


def lend(
    place: ModelPlace,
    *,
    scratch: Path,
    base_url: str = "",
    guided: str = "",
    context: int = 4_096,
    parallel: int = 2,
    say: Say = lambda line: None,
) -> Model:
    """A model of the study. `scratch` is where a folder's model is put as GGUF, once."""
    if guided and guided not in get_args(Guide):
        raise InputError(f"guided must be one of {', '.join(get_args(Guide))}, not {shown(guided)}")
    if place.path is None:
        guide: Guide | None = guided or None  # pyright: ignore[reportAssignmentType]
        model = find_spec(place.name, base_url=place.url or base_url, guided=guide).open()
        return NamedModel(model, place.label, find(place.name))

    def server() -> LocalServer:
        path = _file(place, scratch, say)
        return LocalServer(model_path=path, alias=place.name, context_tokens=context, parallel=parallel)

    return ServedModel(place.label, server, context, say=say)


def _file(place: ModelPlace, scratch: Path, say: Say) -> Path:
    assert place.path is not None
    if not place.path.is_dir():
        return place.path
    made = scratch / f"{version_of(place)}.gguf"
    if not made.is_file():
        say(f"writing {place.name} as a GGUF file")
        to_gguf(_folder(place.path), made)
    return made
