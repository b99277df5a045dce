"""Prompts of evaluations, and what fits a judge's window."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.history import estimate_tokens
from camel.core.judge import quoted
from camel.core.message import Sampling, in_one_line
from camel.core.transcript import Transcript

PROMPTS = Path(__file__).parent / "prompts"
LARGE = 32_768
"""Tokens of a window into which a conversation of the paper's length fits twice."""


class AskedModel(NamedTuple):
    """A model that an evaluation asks."""

    name: str
    """As it is reported."""
    seat: str
    """Among the models of the job."""
    window: int | None = None
    """Tokens of its context, where that is known."""
    version: str = ""
    """Tells it from another of the same name: weights that were trained here may be trained again."""

    @property
    def small_window(self) -> int | None:
        """A window that decides what is asked. A large one does not, and an endpoint may tell it at one start and not at the
        next."""
        return self.window if self.window is not None and self.window < LARGE else None

    def fitting(self, sampling: Sampling) -> Sampling:
        """At most a quarter of a small window for the answer."""
        if self.window is None or sampling.max_tokens is None or sampling.max_tokens <= self.window // 4:
            return sampling
        return msgspec.structs.replace(sampling, max_tokens=max(64, self.window // 4))

    def room(self, others: str, reserved: int) -> int:
        """Characters that fit its window beside all else; where the window is not known, as if there were no end."""
        if self.window is None:
            return 10**9
        # Three bytes a token; signs before lines and other scripts take some of it.
        return max(300, int(2.5 * (self.window - reserved - 64 - estimate_tokens(others))))


def read_prompt(name: str, needed: Collection[str] = ()) -> str:
    """A shipped prompt by its version's name, or a text file's; it must have the placeholders that are filled in."""
    shipped = {path.stem: path for path in PROMPTS.glob("*.txt")}
    path = shipped.get(name, Path(name))
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(shipped))
        raise InputError(f"cannot read the prompt {shown(name)}: {error}; shipped are {known}") from None
    if missing := [f"<{one}>" for one in needed if f"<{one}>" not in text]:
        raise InputError(f"the prompt {shown(name)} lacks {', '.join(missing)}")
    return text


def quoted_talk(transcript: Transcript) -> str:
    """What was said and by whom, behind a sign that no text can take away from itself."""
    return "\n\n".join(
        f"Message {message.index + 1}:\n{quoted(f'{in_one_line(message.role)} ({message.speaker}) says:')}\n{quoted(message.content)}"
        for message in transcript.messages
    )


def shortened(text: str, most: int, sign: str = "") -> str:
    """A text, or where it is too long its beginning and, mostly, its end, where solutions are; `sign` begins that."""
    if len(text) <= most:
        return text
    return f"{text[: most // 3]}\n[… {len(text) - most:,} characters are left out …]\n{sign}{text[-(most - most // 3) :]}"
