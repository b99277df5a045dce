"""The models of a study: where they are, and how they are served.

The one decision to know: a model on this disk is served only while the study uses it. Five models of seven billion weights
do not fit in a machine's memory together, but they do one after the other.
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

PARALLEL = 2
"""Maximum number of calls in flight to a model that the study serves itself."""


class ModelPlace(NamedTuple):
    """The location of a model: a path or an endpoint."""

    name: str
    """Name of the model in requests and in price lists."""
    path: Path | None
    """A GGUF file or a folder of transformers. None for a model at an endpoint."""
    url: str = ""
    """URL of the model's endpoint. Empty for the default endpoint of the study."""

    @property
    def label(self) -> str:
        """The name of the model in reports, with the host of its endpoint."""
        return label(self.name, self.url)


def find_place(name: str, say: Say) -> ModelPlace:
    """Return the location of a model. `name` is a folder or a name as in `ModelSpec`. The `local` model is downloaded if
    needed."""
    path, (label, url, file) = Path(name), read_name(name)
    if path.is_dir():
        return ModelPlace(path.resolve().name, trained(path) or path)
    if not file:
        return ModelPlace(label, None, url)
    path = ModelSpec(name).server(say=say).model_path or find_model(say)
    return ModelPlace(path.parent.name if path.name == GGUF else label.removesuffix(".gguf"), path)


def trained(folder: Path) -> Path | None:
    """Return the GGUF file of a training, or None if the training is not finished."""
    return folder / GGUF if (folder / RESULT).is_file() and (folder / GGUF).is_file() else None


def version_of(place: ModelPlace) -> str:
    """Return a hash that changes when the model is trained again. It is empty for a model at an endpoint."""
    if place.path is None:
        return ""
    folder, digest = place.path.parent, hashlib.sha256()
    if place.path.name == GGUF and (folder / RESULT).is_file():
        # Settings, losses and seconds differ between any two trainings, and are faster to hash than the weights.
        for name in (CONFIG, RESULT):
            digest.update((folder / name).read_bytes())
    elif place.path.is_file():
        digest.update(weights_digest(place.path).encode())
    else:
        for file in sorted(_folder(place.path).glob("*.safetensors")):
            digest.update(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _folder(path: Path) -> Path:
    """Return the folder with the model in the format of transformers. `path` is that folder or the folder of a training."""
    found = path / MERGED if (path / MERGED).is_dir() else path
    if not (found / "config.json").is_file():
        raise InputError(f"'{path}' contains no model. Use a GGUF file or a folder for transformers")
    return found


def lend(
    place: ModelPlace,
    *,
    scratch: Path,
    base_url: str = "",
    guided: str = "",
    context: int = 4_096,
    say: Say = lambda line: None,
) -> Model:
    """Return a client for the model at a location. A folder of transformers is converted to GGUF once, in the folder
    `scratch`."""
    if guided and guided not in get_args(Guide):
        raise InputError(f"guided must be one of {', '.join(get_args(Guide))}, not {shown(guided)}")
    if place.path is None:
        guide: Guide | None = guided or None  # pyright: ignore[reportAssignmentType]
        model = find_spec(place.name, base_url=place.url or base_url, guided=guide).open()
        return NamedModel(model, place.label, find(place.name))

    def server() -> LocalServer:
        path = _file(place, scratch, say)
        return LocalServer(model_path=path, alias=place.name, context_tokens=context, parallel=PARALLEL)

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
