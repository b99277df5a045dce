"""Uploads a dataset's folder to the Hugging Face hub with the hub's client.

The one decision to know: a dataset with a gated card is gated before its first byte is uploaded, so it is never public, not
even for a moment.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from camel._version import __version__
from camel.core.errors import InputError, MissingExtra

_FIELDS = ("pretty_name", "license", "language", "tags", "size_categories")


class Upload(NamedTuple):
    """What a push uploads."""

    files: dict[str, int]
    """Names of the files, with their sizes in bytes."""
    card: dict[str, str]
    """Fields of the dataset card."""
    gated: bool
    """Whether only readers that you approve get access."""
    patterns: list[str]
    """Patterns of the files' names."""


def plan_upload(folder: str | Path) -> Upload:
    """Return what `push_dataset` would upload. Makes no request.

    From a folder of training rows, which is also a run, only the card and the data that it names are uploaded.
    """
    folder = Path(folder)
    if not (folder / "README.md").is_file():
        raise InputError(
            f"'{folder}' is not a dataset: it has no README.md; export one with `camel export RUN dataset DIR`"
        )
    front = (folder / "README.md").read_text(encoding="utf-8").partition("\n---\n")[0]
    card: dict[str, str] = {}
    for name, value, listed in re.findall(r"^(\w+): *(.*)((?:\n- .*)*)", front, re.MULTILINE):
        if name in _FIELDS:
            card[name] = ", ".join(part.strip('" ') for part in (value, *listed.split("\n- ")) if part)
    data = re.findall(r"^ +path: (.+)$", front, re.MULTILINE)
    patterns = ["README.md", *data] if (folder / "run.json").exists() else ["*"]
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    sizes = {
        name: path.stat().st_size
        for name, path in files.items()
        if any(fnmatch(name, one) for one in patterns)
    }
    return Upload(sizes, card, "\nextra_gated_prompt:" in front, patterns)


def push_dataset(
    folder: str | Path,
    repo: str,
    *,
    endpoint: str | None = None,
    token: str | None = None,
    private: bool = False,
) -> str:
    """Upload a folder that the exporter `dataset` or `camel rows` wrote, and return the dataset's URL.

    `repo` is `owner/name`; it is created if it does not exist. `endpoint` and `token` default to the client's settings
    (`hf auth login`).
    """
    try:
        hub: Any = import_module("huggingface_hub")
    except ModuleNotFoundError:
        raise MissingExtra("pushing to the hub", "data") from None
    upload = plan_upload(folder)
    api = hub.HfApi(endpoint=endpoint, token=token, library_name="camel-society", library_version=__version__)
    try:
        address = api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
        if upload.gated:
            api.update_repo_settings(repo, repo_type="dataset", gated="manual")
        api.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            folder_path=Path(folder),
            allow_patterns=upload.patterns,
            commit_message=f"Written by camel-society {__version__}",
        )
    except Exception as error:  # the errors of the client and its transport have no common base
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"cannot push to '{repo}': {reason}") from error
    return str(address)
