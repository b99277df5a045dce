"""All errors that CAMEL raises on purpose, in one tree.

    CamelError
    ├── InputError              an argument, a setting or a file is wrong; raised before any call is paid
    │   ├── MissingExtra        packages are not installed; names the extra
    │   └── Damaged             a file of a run is missing or damaged
    ├── Left                    a person left; the conversation ends there and is stored
    └── ModelError              a model call ended without a usable reply
        ├── Unreachable         no connection, or it broke before the reply was complete
        ├── DeadlineExceeded    the call's total deadline passed, retries included
        ├── RateLimited         429 until the deadline; `retry_after` is the wait that the endpoint asked for
        ├── QuotaExhausted      the account has no credit; waiting does not help
        ├── NotAuthorized       401 or 403
        ├── RequestRejected     any other 4xx, or a redirect: this request will never work
        │   ├── ContextOverflow the prompt and the reserved completion exceed the model's window
        │   └── ContentRejected moderation, or content that the endpoint cannot read
        ├── ServerFailed        5xx, or an error body in a 200
        ├── ReplyTooLarge       the body, or what it unpacks to, exceeds the cap
        ├── MalformedReply      a 2xx whose body is not a chat completion
        ├── BadReply            no usable reply, retries included
        │   ├── EmptyReply      it has no text
        │   ├── CutReply        it was cut off at the token limit
        │   └── FilteredReply   the endpoint's content filter ended it
        └── NotUnderstood       no reply could be parsed, retries included

The one decision to know: each type says whether the call may be retried (`retryable`), so the client's single retry
loop needs no table of its own.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from camel.core.message import Usage


_MAKE_ROOM = "free some space and run the same command again"
_ALLOW = "make it writable or choose another folder"
_ADVICE = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EROFS: _ALLOW,
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.ENAMETOOLONG: "choose a shorter name",
}


def advice_for(error: OSError) -> str:
    """Return what the user can do about an error of the file system, or an empty string."""
    return _ADVICE.get(error.errno or 0, "")


class CamelError(Exception):
    """Base class of every error raised on purpose. Its text is one line that includes what to do next."""


class InputError(CamelError, ValueError):
    """A role, a task, a setting or a file given by the caller cannot be used."""


class NoRoom(InputError):
    """The first prompt of a conversation does not fit the model's context window."""


class MissingExtra(InputError):
    """A feature needs packages that the core install does not include."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}': pip install 'camel-society[{extra}]'")
        self.extra = extra


class Damaged(InputError):
    """A file of a run is missing or damaged. The command itself is right, so the exit code is 1, not 2."""


class Left(CamelError):
    """A person left the conversation. It ends normally; this is not a failure."""


class ModelError(CamelError):
    """A call to a model ended without a usable reply."""

    retryable: ClassVar[bool] = False
    """Whether the same request may succeed if it is sent again."""

    def __init__(self, message: str, *, status: int | None = None, attempts: int = 1) -> None:
        super().__init__(message)
        self.status = status
        self.attempts = attempts
        self.limited = 0
        """Number of attempts that got a 429."""


class Unreachable(ModelError):
    """The endpoint could not be reached, or the connection broke before the reply was complete."""

    retryable = True


class DeadlineExceeded(ModelError):
    """The total deadline of the call passed. Not retryable: the deadline already covers every retry."""


class RateLimited(ModelError):
    """The endpoint answered 429."""

    retryable = True
    retry_after: float | None = None


class QuotaExhausted(ModelError):
    """The account of this API key has no credit."""


class NotAuthorized(ModelError):
    """The API key is missing, wrong, or not allowed to use this model."""


class RequestRejected(ModelError):
    """The endpoint rejects this request; a retry would not help."""


class ContextOverflow(RequestRejected):
    """The prompt, with the completion reserved for it, does not fit the model's context window."""


class ContentRejected(RequestRejected):
    """The endpoint rejects the content of this request: moderation, or content that it cannot read."""


class ServerFailed(ModelError):
    """The endpoint failed on its side."""

    retryable = True
    retry_after: float | None = None


class ReplyTooLarge(ModelError):
    """The reply's body exceeds the size cap, as sent or as decompressed."""


class MalformedReply(ModelError):
    """The endpoint reported success but did not send a chat completion."""

    retryable = True


class BadReply(ModelError):
    """None of the replies, retries included, was usable."""

    def __init__(self, message: str, *, attempts: int = 1, usage: Usage | None = None) -> None:
        super().__init__(message, attempts=attempts)
        self.usage = usage
        """Usage of all these replies."""


class EmptyReply(BadReply):
    """The reply has no text."""


class CutReply(BadReply):
    """The reply was cut off at the token limit."""


class FilteredReply(BadReply):
    """The endpoint's content filter ended the reply."""


class NotUnderstood(ModelError):
    """No reply of the model could be parsed, retries included."""
