"""What one speaker has heard and said so far, in the format of a chat model.

The one decision to know: a history only grows, and each entry is serialized once, when it is added. A call sends
`encoded()`, so a conversation of n messages costs n encodings instead of n², and the bytes of the prefix never
change, which is what keeps an endpoint's prefix cache warm.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from camel.core.message import ToolCall, well_formed

ChatRole = Literal["system", "user", "assistant", "tool"]

_encode = msgspec.json.Encoder().encode
_OPEN = {
    "system": b'{"role":"system","content":',
    "user": b'{"role":"user","content":',
    "assistant": b'{"role":"assistant","content":',
}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a chat, from the point of view of the model that reads it."""

    role: ChatRole
    content: str
    calls: tuple[ToolCall, ...] = ()
    """The tool calls of an assistant's entry."""
    answers: str = ""
    """The id of the call whose result this is, for the role `tool`."""
    partial: bool = False
    """Whether the entry is a step before the speaker's message: tool calls, or their results."""

    @property
    def text(self) -> str:
        """The content, and the tool calls as text."""
        if not self.calls:
            return self.content
        called = [f"{call.name}({call.arguments})" for call in self.calls]
        return "\n".join([*([self.content] if self.content else []), *called])

    def to_dict(self) -> dict[str, Any]:
        """Return the entry in the format of chat templates and trainers."""
        entry: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.calls:
            functions = [(one.id, {"name": one.name, "arguments": one.arguments}) for one in self.calls]
            entry["tool_calls"] = [{"id": id, "type": "function", "function": one} for id, one in functions]
        if self.role == "tool":
            entry["tool_call_id"] = self.answers
        return entry


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
        """Append one entry. `tokens` is the entry's length if known. Otherwise a high estimate is used."""
        content = well_formed(content)
        self.entries.append(Entry(role, content))
        if self._json:
            self._json += b","
        self._json += _OPEN[role]
        self._json += _encode(content)
        self._json += b"}"
        self._unmeasured += (estimate_tokens(content) if tokens is None else tokens) + PER_ENTRY_TOKENS

    def append(self, entry: Entry) -> None:
        """Append an entry of any kind, such as tool calls and their results."""
        if not entry.partial:
            self.add(entry.role, entry.content)
            return
        self.entries.append(entry)
        if self._json:
            self._json += b","
        self._json += _encode(entry.to_dict())
        self._unmeasured += estimate_tokens(entry.text) + PER_ENTRY_TOKENS

    def measured(self, tokens: int) -> None:
        """Replace the estimated length so far by `tokens`, the endpoint's count."""
        self._tokens, self._unmeasured = tokens, 0

    @property
    def tokens(self) -> int:
        """The length so far: the endpoint's count where there is one, and a high estimate for the rest."""
        return self._tokens + self._unmeasured

    def encoded(self) -> bytearray:
        """Return the entries as JSON objects, joined by commas, without the brackets of an array. Not a copy: do not change it,
        and send it before you add more entries."""
        return self._json

    def digest(self) -> bytes:
        """Return a hash of `encoded()`. Each byte is hashed once, even over many calls."""
        if self._hashed < len(self._json):
            self._hash.update(memoryview(self._json)[self._hashed :])
            self._hashed = len(self._json)
        return self._hash.digest()

    def copy(self) -> History:
        """Return an independent copy."""
        other = History()
        other.entries, other._json = self.entries.copy(), self._json.copy()
        other._tokens, other._unmeasured = self._tokens, self._unmeasured
        other._hash, other._hashed = self._hash.copy(), self._hashed
        return other

    def __len__(self) -> int:
        return len(self.entries)


PER_ENTRY_TOKENS = 8
"""Tokens that a chat template adds around an entry; common templates add 3 to 7."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text`, on the high side.

    English takes about 4.3 bytes per token in current vocabularies and 3.5 in small ones. Code and digits take fewer,
    other scripts 2 to 3. Three bytes per token overestimates nearly everything.
    """
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // 3 + 1
