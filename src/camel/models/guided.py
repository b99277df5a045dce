"""Placeholder until the guided formats land."""

from __future__ import annotations

from typing import Any, Literal

Guide = Literal["llama.cpp", "vllm"]


def guided_fields(guide: Guide, expects: Literal["instruction", "solution"]) -> dict[str, Any]:
    """Extra body fields that hold a reply to the instruction grammar."""
    raise NotImplementedError
