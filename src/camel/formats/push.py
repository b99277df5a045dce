"""Uploads a dataset's folder to the Hugging Face hub with the hub's client.

The one decision to know: a dataset with a gated card is gated before its first byte is uploaded, so it is never public, not
even for a moment.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from camel._version import __version__
from camel.core.errors import InputError, MissingExtra


def push_dataset(
    folder: str | Path,
    repo: str,
    *,
    endpoint: str | None = None,
    token: str | None = None,
    private: bool = False,
) -> str:
    """Upload a folder that the exporter `dataset` wrote, and return the dataset's URL.

    `repo` is `owner/name`; it is created if it does not exist. `endpoint` and `token` default to the client's settings
    (`hf auth login`).
    """
    folder = Path(folder)
    try:
        hub: Any = import_module("huggingface_hub")
    except ModuleNotFoundError:
        raise MissingExtra("pushing to the hub", "data") from None
    card = folder / "README.md"
    if not card.is_file():
        raise InputError(
            f"'{folder}' is not a dataset: it has no README.md; export one with `camel export RUN dataset DIR`"
        )
    gated = "\nextra_gated_prompt:" in card.read_text(encoding="utf-8").partition("\n---\n")[0]
    api = hub.HfApi(endpoint=endpoint, token=token, library_name="camel-society", library_version=__version__)
    try:
        address = api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
        if gated:
            api.update_repo_settings(repo, repo_type="dataset", gated="manual")
        api.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            folder_path=folder,
            commit_message=f"Written by camel-society {__version__}",
        )
    except Exception as error:  # the errors of the client and its transport have no common base
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"cannot push to '{repo}': {reason}") from error
    return str(address)
