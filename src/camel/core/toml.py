"""Reading what people write in TOML: a mistake names the file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from camel.core.errors import InputError


def read_table(path: Path, missing: str = "") -> dict[str, Any]:
    """The table of a TOML file. `missing` is what to do where there is no such file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = missing if missing and isinstance(error, FileNotFoundError) else error
        raise InputError(f"cannot read {path}: {why}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from None
