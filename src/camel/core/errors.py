"""Every error CAMEL raises on purpose, in one tree.

    CamelError
    ├── InputError              what the caller gave is wrong; raised before any call is paid
    │   ├── MissingExtra        a part needs packages that are not installed; names the extra
    │   └── Damaged             a file of a run is gone, or not as it was written
    ├── Left                    a person left their seat; the conversation ends there and is kept
    └── ModelError              a model call ended without a usable reply
        ├── Unreachable         no connection, or it broke before the reply was whole
        ├── DeadlineExceeded    the call's total deadline passed, retries included
        ├── RateLimited         429 until patience ran out; `retry_after` says how long it asked for
        ├── QuotaExhausted      the account has no credit; waiting does not help
        ├── NotAuthorised       401 or 403
        ├── RequestRejected     any other 4xx, or a redirect: this request will never work
        │   ├── ContextOverflow the prompt and the reserved completion exceed the model's window
        │   └── ContentRejected moderation, or content that the endpoint cannot read
        ├── ServerFailed        5xx, or an error body in a 200
        ├── ReplyTooLarge       the body, or what it unpacks to, exceeds the cap
        ├── MalformedReply      a 2xx whose body is not a chat completion
        ├── BadReply            a reply that cannot be used, however often it was asked for
        │   ├── EmptyReply      it has no text
        │   ├── CutReply        it ended at the limit of tokens
        │   └── FilteredReply   the endpoint's content filter ended it
        └── NotUnderstood       the model was asked often enough and never answered in a form that can be used

The one decision to know: whether a failed call is worth another try is a property of its type
(`retryable`), so the client's single retry loop needs no table of its own.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from camel.core.message import Usage


_MAKE_ROOM = "make room, and the same command goes on"
_ALLOW = "make it writable, or choose another folder"
_MENDS = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EROFS: _ALLOW,
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.ENAMETOOLONG: "choose a shorter name",
}


def mend_of(error: OSError) -> str:
    """What to do about a failure of the file system that no code of ours caused; empty where that is not known."""
    return _MENDS.get(error.errno or 0, "")


class CamelError(Exception):
    """Base of every error raised on purpose; its text is one line and says what to do next."""


class InputError(CamelError, ValueError):
    """A role, a task, a setting or a file given by the caller cannot be used."""


class NoRoom(InputError):
    """A conversation whose first prompt does not fit its model's context window."""


class MissingExtra(InputError):
    """A part of the library needs packages that the core install does not bring."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}': pip install 'camel-society[{extra}]'")
        self.extra = extra


class Damaged(InputError):
    """A file of a run is gone, or not as it was written. What was asked for is right: the exit code is 1, not 2."""


class Left(CamelError):
    """A person left their seat: to the conversation this is an end like others, not a failure."""


class ModelError(CamelError):
    """A call to a model ended without a usable reply."""

    retryable: ClassVar[bool] = False
    """Whether the same request may succeed if it is sent again."""

    def __init__(self, message: str, *, status: int | None = None, attempts: int = 1) -> None:
        super().__init__(message)
        self.status = status
        self.attempts = attempts
        self.limited = 0
        """How many of the attempts were answered 429."""


class Unreachable(ModelError):
    """The endpoint could not be reached, or the connection broke before the reply was whole."""

    retryable = True


class DeadlineExceeded(ModelError):
    """The total deadline of the call passed. Not retryable: the deadline already covers every retry."""


class RateLimited(ModelError):
    """The endpoint answered 429."""

    retryable = True
    retry_after: float | None = None


class QuotaExhausted(ModelError):
    """The account behind the key has no credit left."""


class NotAuthorised(ModelError):
    """The key is missing, wrong, or not allowed to use this model."""


class RequestRejected(ModelError):
    """The endpoint will not serve this request, however often it is sent."""


class ContextOverflow(RequestRejected):
    """The prompt, with the completion reserved for it, does not fit the model's context window."""


class ContentRejected(RequestRejected):
    """The endpoint will not serve what this request says: moderation, or content that it cannot read."""


class ServerFailed(ModelError):
    """The endpoint failed on its side."""

    retryable = True
    retry_after: float | None = None


class ReplyTooLarge(ModelError):
    """The reply's body exceeds the size cap, as sent or as decompressed."""


class MalformedReply(ModelError):
    """The endpoint said success and sent something that is not a chat completion."""

    retryable = True


class BadReply(ModelError):
    """A reply came as often as it was asked for, and each time it could not be used."""

    def __init__(self, message: str, *, attempts: int = 1, usage: Usage | None = None) -> None:
        super().__init__(message, attempts=attempts)
        self.usage = usage
        """What the replies took."""


class EmptyReply(BadReply):
    """The reply has no text."""


class CutReply(BadReply):
    """The reply ended at the limit of tokens."""


class FilteredReply(BadReply):
    """The endpoint's content filter ended the reply."""


class NotUnderstood(ModelError):
    """A model was asked often enough and never answered in a form that can be used."""
