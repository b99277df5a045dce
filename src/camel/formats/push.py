"""Push: a dataset's folder to the Hugging Face hub, through the hub's own client.

The one decision to know: a dataset whose card asks readers to agree to something is gated before its first byte is
uploaded, so it is never open to all, not even for a moment.
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
    """Upload `folder`, as the exporter `dataset` wrote it, and return the address of the dataset.

    `repo` is `owner/name`; it is made if it does not exist. Without `endpoint` and `token` the client's own
    settings apply (`hf auth login`).
    """
    folder = Path(folder)
    try:
        hub: Any = import_module("huggingface_hub")
    except ModuleNotFoundError:
        raise MissingExtra("pushing to the hub", "data") from None
    card = folder / "README.md"
    if not card.is_file():
        raise InputError(f"{folder} is not a dataset: it has no README.md")
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
    except Exception as error:  # the client's errors and those of its transport have no common base
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"pushing to {repo} failed: {reason}") from error
    return str(address)
