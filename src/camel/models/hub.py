"""Models of the Hugging Face hub: a repository's GGUF file by its quantization, in the hub client's own cache.

The one decision to know: if the quantization is named and the file is cached, the hub is not contacted. So a resumed run
keeps its weights and needs no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from camel.core.checks import shown
from camel.core.errors import InputError, MissingExtra

HUB = "hf:"
PREFERRED = ("Q4_K_M", "Q8_0")
"""Quantizations to prefer if the name has none. If the repository has neither, the smallest file is used."""
_PART = r"[A-Za-z0-9](?:[\w-]|\.(?!\.)){0,95}"
_NAME = re.compile(rf"{HUB}({_PART}/{_PART})(?::({_PART}))?", re.ASCII)
_FILE = re.compile(r"(?:\w[\w.+ -]*/)*(?!mmproj)\w[\w.+ -]*\.gguf", re.ASCII | re.IGNORECASE)
"""Pattern of a model file's path. It excludes paths that lead elsewhere, and `mmproj` files (vision)."""
_SPLIT = re.compile(r"-\d{5}-of-\d{5}$", re.IGNORECASE)
_QUANT = re.compile(r"(?<![A-Z0-9])((?:UD-)?[IT]?Q\d(?:_[A-Z0-9]+)*|MXFP4\w*|B?FP?(?:16|32))(?![A-Z0-9])")


def read_hub_name(name: str) -> tuple[str, str]:
    """Return the repository and the quantization (may be empty) of `hf:OWNER/REPO[:QUANT]`."""
    if not (found := _NAME.fullmatch(name)):
        raise InputError(f"a hub model must be hf:OWNER/REPO or hf:OWNER/REPO:QUANT, not {shown(name)}")
    return found[1], (found[2] or "").upper()


def fetch(name: str, say: Callable[[str], None] = lambda line: None) -> tuple[str, Path]:
    """Return the model's name with its quantization, and the path of its file. Download the file if it is not cached."""
    repository, quant = read_hub_name(name)
    try:
        hub: Any = import_module("huggingface_hub")
    except ModuleNotFoundError:
        raise MissingExtra("A model of the hub", "local") from None
    chosen, paths = "", list[Path]()
    with suppress(Exception):  # the errors of the client and its transport have no common base
        folder = Path(hub.snapshot_download(repository, allow_patterns=[], local_files_only=True))
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*.gguf")}
        chosen, files = choose(repository, sizes, quant)
        paths = [folder / file for file in files]
    if quant and paths and not _SPLIT.search(paths[0].stem):
        return f"{HUB}{repository}:{chosen}", paths[0]
    try:
        info = hub.HfApi(library_name="camel-society").model_info(repository, files_metadata=True, timeout=10)
        sizes = {one.rfilename: one.size or 0 for one in info.siblings or ()}
        chosen, files = choose(repository, sizes, quant)
        if not paths:
            say(f"downloading {repository} {chosen}, {sum(map(sizes.__getitem__, files)) / 1e6:,.0f} MB")
        paths = [Path(hub.hf_hub_download(repository, file)) for file in files]
    except InputError:
        raise
    except Exception as error:
        if not paths:
            reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
            raise InputError(
                f"cannot download '{repository}' from the hub ({reason}): check the name and your access (`hf auth login`); "
                "without a network, copy its GGUF file to this machine and pass the file's path as the model"
            ) from None
    return f"{HUB}{repository}:{chosen}", paths[0]


def choose(repository: str, sizes: Mapping[str, int], quant: str) -> tuple[str, list[str]]:
    """Return the chosen quantization and its files. A model that is split has several."""
    models: dict[str, list[str]] = {}
    for file in sorted(filter(_FILE.fullmatch, sizes)):
        models.setdefault(_SPLIT.sub("", file[:-5]).upper(), []).append(file)
    if not models:
        raise InputError(f"'{repository}' has no GGUF file: choose another, often called NAME-GGUF")
    quants = {stem: next(iter(_QUANT.findall(stem)[::-1]), stem) for stem in models}
    fits: list[str] = []
    for wanted in (quant,) if quant else PREFERRED:
        fits = fits or [stem for stem in models if wanted in (stem, quants[stem])]
    if not quant and not fits:
        fits = [min(models, key=lambda stem: sum(sizes[file] for file in models[stem]))]
    if len(fits) != 1:
        there = ", ".join(fits or sorted(set(quants.values())))
        raise InputError(f"'{repository}' has {len(fits) or 'no'} {quant or 'models'}: choose one of {there}")
    return quant or quants[fits[0]], models[fits[0]]
