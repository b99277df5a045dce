"""Passes of voters: what an invitation link carries and a browser stores.

The one decision to know: a pass is a voter's name signed with the folder's own secret. The same text is in the invitation
link and in the browser's cookie, so that a link works on any device and after every restart. Where the app is open to others,
a name without a pass is not accepted.
"""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from camel.explorer.access import Keys

DAYS = 180
"""Number of days for which a browser stores a pass."""


class Passes:
    """Makes and checks passes, which are signed names of voters."""

    def __init__(self, keys: Keys, *, secure: bool = False) -> None:
        self._keys, self._secure = keys, secure
        self._cookie = f"camel-voter-{keys.suffix}"

    def of(self, voter: str) -> str:
        """Return the pass of a voter. The pass of "" is for a voter who will choose a name."""
        name = base64.urlsafe_b64encode(voter.encode()).decode().rstrip("=")
        return f"{name}.{self._keys.sign(self._signed(voter))}"

    def voter(self, token: str) -> str | None:
        """Return the voter's name in a pass. Return None if the pass is invalid."""
        name, _, signature = token[:1_000].partition(".")
        try:
            voter = base64.urlsafe_b64decode(name.encode() + b"=" * (-len(name) % 4)).decode()
        except (binascii.Error, ValueError):
            return None
        return voter if self._keys.signed(self._signed(voter), signature) else None

    def link(self, voter: str) -> str:
        """Return the path of an invitation link."""
        return f"/join?pass={quote(self.of(voter))}"

    def shown(self, request: Request) -> str | None:
        """Return the voter whose pass a browser sent. Return "" if they have not chosen a name, and None without a pass."""
        return self.voter(request.cookies.get(self._cookie, ""))

    def give(self, response: Response, voter: str) -> None:
        """Store a pass in the browser. The cookie is lax, so that it is also sent after a click on a link in a mail."""
        response.set_cookie(
            self._cookie,
            self.of(voter),
            max_age=DAYS * 86_400,
            httponly=True,
            samesite="lax",
            secure=self._secure,
            path="/",
        )

    def take(self, response: Response) -> None:
        """Delete the pass from the browser."""
        response.delete_cookie(self._cookie, httponly=True, samesite="lax", secure=self._secure, path="/")

    @staticmethod
    def _signed(voter: str) -> str:
        return f"voter\n{voter}"
