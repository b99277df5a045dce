"""Access control for all routes: the host name, the token, signed cookies and the headers of responses.

The one decision to know: it is a middleware around the app, so no route can bypass it. The Host header must be an address or
a known name, which stops DNS rebinding. The token must be right if one is needed. Every response has the same headers, which
allow scripts, images and forms of this server only.

The explorer creates new secrets at each start and keeps them in memory, so cookies of an earlier process are invalid. The
secrets of votes are stored with the votes.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
import secrets
import socket
from collections.abc import Collection, Mapping
from html import escape
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.explorer.visitors import TooMany, Visitors

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_POLICY = "content-security-policy"
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]{1,253}(?::(?:[0-9]{1,5}|\*))?")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[\w.-]{1,253})(?::[0-9]{1,5})?")
MAX_FORM = 10_000
"""Default maximum size of a form, in bytes."""
_MOST_FIELDS = 20
MISALIGNMENT = "misalignment"
"""The label of conversations that are shown only after consent."""


def set_cookie(response: Response, name: str, value: str, framed: bool) -> None:
    """Set a session cookie that scripts cannot read. An empty value deletes the cookie.

    Requests from pages of other sites do not include it. If the app is `framed` in another site, such a cookie would never
    be sent, so a partitioned cookie is used. Forms do not rely on cookies alone: they have a token and are checked by origin.
    """
    rules = "Secure; SameSite=None; Partitioned" if framed else "SameSite=strict"
    end = "" if value else "; Max-Age=0"
    response.headers.append("set-cookie", f"{name}={value}; Path=/; HttpOnly; {rules}{end}")


class Keys:
    """Signs texts with a secret. Unless a secret is given, each process makes a new one."""

    def __init__(self, secret: bytes = b"", *, framed: bool = False) -> None:
        self._secret = secret or secrets.token_bytes(32)
        self.framed = framed
        """Whether other sites may show the app in a frame. If so, cookies must be partitioned."""
        # Cookies do not distinguish ports, so two servers on one machine need different names.
        self.suffix = self.sign("cookies")[:8]

    def sign(self, text: str) -> str:
        """Return the signature of a text."""
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    def signed(self, text: str, signature: str) -> bool:
        """Return whether a signature is valid for a text."""
        return hmac.compare_digest(self.sign(text).encode(), signature.encode("utf-8", "replace"))


class Consent:
    """Stores in a signed cookie that a reader consented to see conversations with a label."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._cookie = f"camel-consent-{keys.suffix}"

    @property
    def form_token(self) -> str:
        """The token in the app's own forms, which other sites cannot read."""
        return self._keys.sign("form")

    def given(self, request: Request) -> frozenset[str]:
        """Return the labels that the reader has consented to."""
        given = request.cookies.get(self._cookie, "")
        return frozenset([MISALIGNMENT] if self._keys.signed(f"consent:{MISALIGNMENT}", given) else [])

    def check_form(self, request: Request, token: str, what: str = "form") -> bool:
        """Return whether a form was sent by a page of this app. `what` is the text whose signature `token` must be."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = request.headers.get("origin")
        if origin not in (None, "null") and origin.partition("://")[2] != request.headers.get("host"):
            return False
        return self._keys.signed(what, token)

    def answered(self, form: Mapping[str, str]) -> Response:
        """Store the answer to a consent question in the cookie. After consent, redirect to the page that asked for it."""
        shows = form.get("answer") == "show"
        response = RedirectResponse(local(form.get("next", "/")) if shows else "/", 303)
        given = self._keys.sign(f"consent:{MISALIGNMENT}") if shows else ""
        set_cookie(response, self._cookie, given, self._keys.framed)
        return response


async def read_form(request: Request, most: int = MAX_FORM) -> dict[str, str]:
    """Read the fields of a form. Return no fields if the form has too many or is larger than `most` bytes."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            return {}
    if data.count(b"&") >= _MOST_FIELDS:
        return {}
    return dict(parse_qsl(data.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS))


class Door:
    """Middleware around the app that accepts or rejects requests."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] = (),
        token: str = "",
        suffix: str = "",
        frames: Collection[str] = (),
        command: str = "camel explore",
        failure: str = "",
        visitors: Visitors | None = None,
    ) -> None:
        self._app, self._token, self._command = app, token, command
        self._visitors = visitors or Visitors(False)
        self._failure = failure or f"Details are in the terminal where <code>{command}</code> is running."
        self._headers, self._framed = headers_for(frames), bool(frames)
        self._hosts = {host.lower() for host in hosts} | {"localhost"}
        self._cookie = f"camel-token-{suffix}" if suffix else "camel-token"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the app, or reject it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                own = headers.get(_POLICY)  # that of a report, which is stricter except for inline styles
                for name, value in self._headers.items():
                    headers[name] = value
                if own:
                    headers[_POLICY] = f"{own}; {self._headers[_POLICY].rpartition('; ')[2]}"
                # Browsers revalidate scripts and styles each time, and get them again if they have changed.
                fixed = scope["path"].startswith("/static/")
                headers.setdefault("cache-control", "no-cache" if fixed else "no-store")
            await send(message)

        rejection = self._reject(scope)
        try:
            await (rejection or self._app)(scope, receive, send_with_headers)
        except Exception:
            if not begun:  # here, because the server's own error page would not have these headers
                await _page(500, "Something went wrong", self._failure)(scope, receive, send_with_headers)
            raise

    def _reject(self, scope: Scope) -> Response | None:
        """Return the page that rejects a request, or None to accept it."""
        headers = Headers(scope=scope)
        if not is_ours(headers.get("host", ""), self._hosts):
            return _page(
                421,
                "Unknown host name",
                "The server does not accept requests for this host name. Open the link that "
                f"<code>{self._command}</code> printed, or add the name with <code>--allow-host</code>.",
            )
        if scope["path"].startswith("/static/"):  # the style sheet, for the pages below
            return None
        visitor = self._visitors.of(client.host if (client := Request(scope).client) else "")
        scope["visitor"] = visitor
        if visitor is not None:
            try:
                visitor.request()
            except TooMany as error:
                page = _page(429, "Too many requests", escape(str(error)))
                page.headers["retry-after"] = str(math.ceil(error.seconds))
                return page
        if not self._token:
            return None
        asked = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in asked if name == "token"]
        if given and scope["method"] == "GET" and self._is_token(given[0]):
            return self._signed_in(scope, [(name, value) for name, value in asked if name != "token"])
        if self._is_token(Request(scope).cookies.get(self._cookie, "")):
            return None
        return _page(
            401,
            "Token required",
            f"Open the complete link that <code>{self._command}</code> printed when it started. It ends in "
            "<code>?token=…</code>. The browser then stores the token.",
        )

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    def _signed_in(self, scope: Scope, rest: list[tuple[str, str]]) -> Response:
        """Store the token in a cookie and return a page that reloads. A redirect after a link in a mail would not send the
        cookie.
        """
        # Exactly one slash at the beginning: two would be another host.
        target = "/" + quote(scope["path"].lstrip("/\\")) + (f"?{urlencode(rest)}" if rest else "")
        response = _page(
            200,
            "Signed in",
            f'<a href="{escape(target)}">Continue to the explorer</a>',
            head=f'<meta http-equiv="refresh" content="0;url={escape(target)}">',
        )
        set_cookie(response, self._cookie, self._token, self._framed)
        return response


def local(target: str) -> str:
    """Return `target` if it is a path of this server, otherwise "/"."""
    own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if own and len(target) < 4_000 else "/"


def headers_for(frames: Collection[str]) -> dict[str, str]:
    """Return the headers of all responses. Pages of the origins in `frames` may show the app in a frame."""
    for origin in frames:
        if not _ORIGIN.fullmatch(origin):
            raise InputError(f"an origin must have the form https://example.org, not {shown(origin)}")
    if not frames:
        return HEADERS
    policy = HEADERS["content-security-policy"].replace(
        "frame-ancestors 'none'", f"frame-ancestors {' '.join(frames)}"
    )
    # The older header cannot contain a list.
    kept = {name: value for name, value in HEADERS.items() if name != "x-frame-options"}
    return kept | {"content-security-policy": policy}


def is_ours(host: str, known: Collection[str]) -> bool:
    """Return whether a Host header is an IP address or a known name. An unknown name may belong to another site."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() in known
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address to listen on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def _page(status: int, title: str, body: str, head: str = "") -> Response:
    """Return an HTML page that is made without a template. Callers must escape everything that comes from the request."""
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="/static/camel.svg"><link rel="stylesheet" href="/static/style.css">{head}<title>{title} · CAMEL</title></head>'
        f'<body><main class="narrow"><h1>{title}</h1><p>{body}</p></main></body></html>',
        status,
    )
