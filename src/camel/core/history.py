"""What one speaker has heard and said so far, in the form a chat model reads.

The one decision to know: a history only grows, and each entry is serialised once, when it is added. A call sends
`encoded()`, so a conversation of n messages costs n encodings instead of n², and the bytes of the prefix never
change, which is what keeps an endpoint's prefix cache warm.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from camel.core.message import well_formed

ChatRole = Literal["system", "user", "assistant"]

_encode = msgspec.json.Encoder().encode
_OPEN = {
    "system": b'{"role":"system","content":',
    "user": b'{"role":"user","content":',
    "assistant": b'{"role":"assistant","content":',
}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a chat, from the point of view of the model that reads it."""

    role: ChatRole
    content: str


class History:
    """An append-only chat, kept both as entries and as JSON."""

    __slots__ = ("_hash", "_hashed", "_json", "_tokens", "_unmeasured", "entries")

    def __init__(self, system: str = "") -> None:
        self.entries: list[Entry] = []
        self._json = bytearray()
        self._tokens = 0
        self._unmeasured = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._hashed = 0
        if system:
            self.add("system", system)

    def add(self, role: ChatRole, content: str, *, tokens: int | None = None) -> None:
        """Append one entry. `tokens` is its length where it is known; otherwise a cautious estimate is kept."""
        content = well_formed(content)
        self.entries.append(Entry(role, content))
        if self._json:
            self._json += b","
        self._json += _OPEN[role]
        self._json += _encode(content)
        self._json += b"}"
        self._unmeasured += (estimate_tokens(content) if tokens is None else tokens) + PER_ENTRY_TOKENS

    def measured(self, tokens: int) -> None:
        """Take an endpoint's count of everything so far in place of the estimates."""
        self._tokens, self._unmeasured = tokens, 0

    @property
    def tokens(self) -> int:
        """The length so far: counted where an endpoint has counted, estimated (rather high) for the rest."""
        return self._tokens + self._unmeasured

    def encoded(self) -> bytearray:
        """The entries as the inside of a JSON array. Not a copy: do not change it, and send it before adding more."""
        return self._json

    def digest(self) -> bytes:
        """A hash of `encoded()`; each byte is hashed once, however often it is asked for."""
        if self._hashed < len(self._json):
            self._hash.update(memoryview(self._json)[self._hashed :])
            self._hashed = len(self._json)
        return self._hash.digest()

    def copy(self) -> History:
        """The same history, to grow in another way."""
        other = History()
        other.entries, other._json = self.entries.copy(), self._json.copy()
        other._tokens, other._unmeasured = self._tokens, self._unmeasured
        other._hash, other._hashed = self._hash.copy(), self._hashed
        return other

    def __len__(self) -> int:
        return len(self.entries)


PER_ENTRY_TOKENS = 8
"""What a chat template adds around an entry; templates in use take 3 to 7."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text`, on the high side.

    English takes about 4.3 bytes a token in current vocabularies and 3.5 in small ones; code and digits take fewer
    bytes, other scripts 2 to 3 a token. Three bytes a token errs high for nearly everything.
    """
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // 3 + 1
