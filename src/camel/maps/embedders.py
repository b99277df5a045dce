"""Embedders: objects with a name and `embed`, usually models of sentence-transformers.

The one decision to know: the user chooses the model: a folder, an installed package that contains one, or a name on the hub.
Code that comes with a model is never run, and the first two need no network. Without a model, words are compared.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from camel.core.errors import InputError
from camel.maps.layout import need_package

_SMALL = 2**20
"""Size in bytes up to which a model's file is identified by its content. A larger file is identified by its size."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    name: str
    """Name of the model, which identifies its vectors."""

    def embed(self, texts: Sequence[str]) -> Any:
        """Return an array with one vector per text. It is called in a thread, one call at a time."""
        ...


class SharedWords:
    """An embedder without a model: texts that share words and parts of words are near each other."""

    name = "words-1"
    """Changes with any change of the vectors."""
    size = 512

    def embed(self, texts: Sequence[str]) -> Any:
        """Return an array with one unit vector per text."""
        numpy = import_module("numpy")
        vectors = numpy.zeros((len(texts), self.size), "float32")
        for vector, text in zip(vectors, texts, strict=True):
            for word, count in Counter(re.findall(r"\w+", text.lower())).items():
                for place, weight in _features(word):
                    vector[place] += weight * math.sqrt(count)
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[:, :1] += lengths == 0  # a text without words
        return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)


@lru_cache(maxsize=100_000)
def _features(word: str) -> list[tuple[int, float]]:
    """Return the places of a word and of its trigrams in a vector, each with its weight. Common words count little."""
    usual = 0.1 if word in common_words() else 1.0
    trigrams = [f" {word} "[at : at + 3] for at in range(len(word))]
    found: list[tuple[int, float]] = []
    for text, weight in (
        (f"word {word}", 1.0),
        *((part, 1.5 / math.sqrt(len(trigrams))) for part in trigrams),
    ):
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        found.append((number // 2 % SharedWords.size, usual * weight * (1 if number % 2 else -1)))
    return found


@cache
def common_words() -> frozenset[str]:
    """Return the words that say little about a text."""
    return frozenset((Path(__file__).parent / "common_words.txt").read_text("utf-8").split())


def find_embedder(model: str) -> Embedder:
    """Return the embedder of a model, or `SharedWords` if no model is named."""
    return SentenceModel(model) if model.strip() else SharedWords()


class SentenceModel:
    """A model of sentence-transformers. It is loaded at first use, because its name is enough to find the remaining work."""

    def __init__(self, model: str) -> None:
        folder = Path(model).expanduser()
        if not folder.is_dir() and (model.startswith((".", "/", "~")) or folder.exists()):
            raise InputError(f"there is no folder '{model}': pass that of a sentence-transformers model")
        found = folder if folder.is_dir() else _packaged(model)
        self._where = model if found is None else str(found)
        own = model if found is None or found != folder else folder.resolve().name
        self.name = own if found is None else f"{own}@{_digest(found)}"
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> Any:
        """Return an array with one unit vector per text."""
        if self._model is None:
            self._model = self._load()
        return self._model.encode(
            list(texts), batch_size=32, normalize_embeddings=True, show_progress_bar=False
        )

    def _load(self) -> Any:
        # Only one thread pool, and no output of the libraries.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        library = need_package("sentence_transformers", "Embedding texts")
        logging = import_module("transformers.utils.logging")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            return library.SentenceTransformer(self._where, trust_remote_code=False)
        except Exception as error:  # the library raises many kinds of errors
            said = " ".join(str(error).split())[:200]
            raise InputError(
                f"cannot load the embedding model '{self._where}' ({said}): pass the folder of a model"
            ) from None


def _packaged(name: str) -> Path | None:
    """Return the folder of a model in an installed package of this name. The code of the package is not run."""
    module = name.replace("-", "_")
    spec = find_spec(module) if module.isidentifier() else None
    for where in (spec and spec.submodule_search_locations) or ():
        for folder in (Path(where), Path(where) / "model"):
            if (folder / "modules.json").is_file():
                return folder
    return None


def _digest(folder: Path) -> str:
    """Return a hash that identifies a model, independent of the folder that it is in."""
    known = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, size = path.relative_to(folder).as_posix(), path.stat().st_size
        if not name.startswith(".") and path.suffix in (".json", ".txt", ".safetensors", ".bin", ".onnx"):
            known.update(f"{name}\0{size}\0".encode())
            known.update(path.read_bytes() if size <= _SMALL else b"")
    return known.hexdigest()[:12]
