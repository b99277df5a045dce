"""Who may ask what: the door in front of every route.

The one decision to know: the door is outside the app. Whatever a route does, a request came through here first: its Host
must be an address or a name that is ours (a page elsewhere that has its name resolve to this machine is turned away),
where a token is needed it must have been shown, and every answer leaves with the same headers, under which no page can
run a script, load a picture or send a form anywhere but here.

The explorer's secrets are made anew at each start and live in its process alone: cookies of an earlier start mean nothing.
Votes outlast a start, and so do their secrets.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Collection, Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from camel.core.checks import shown
from camel.core.errors import InputError

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
"""Bytes of a form that is read, unless more is expected."""
_MOST_FIELDS = 20
MISALIGNMENT = "misalignment"
"""The label whose rows are shown only after consent."""


def set_cookie(response: Response, name: str, value: str, framed: bool) -> None:
    """Have the browser remember something until it ends, out of reach of scripts; with an empty value, have it forget.

    Of ours alone: other sites' pages do not bring it. In a frame on another's page ours are the other's guests, and a
    strict cookie would never come: there it may, kept apart for each site that we are a guest of. Forms do not rely on
    it: they carry a token, and the browser's word for where they come from.
    """
    rules = "Secure; SameSite=None; Partitioned" if framed else "SameSite=strict"
    end = "" if value else "; Max-Age=0"
    response.headers.append("set-cookie", f"{name}={value}; Path=/; HttpOnly; {rules}{end}")


class Keys:
    """What this start of the server signs with, or all starts that are given the same secret."""

    def __init__(self, secret: bytes = b"", *, framed: bool = False) -> None:
        self._secret = secret or secrets.token_bytes(32)
        self.framed = framed
        """Whether pages of others may hold ours in a frame, where cookies need other rules."""
        # Cookies know no ports: two servers on one machine must not take each other's.
        self.suffix = self.sign("cookies")[:8]

    def sign(self, text: str) -> str:
        """A signature of a text, which nobody else can make."""
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    def signed(self, text: str, signature: str) -> bool:
        """Whether a signature is ours."""
        return hmac.compare_digest(self.sign(text).encode(), signature.encode("utf-8", "replace"))


class Consent:
    """Remembers, in a signed cookie, that somebody asked to see rows of a label."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._cookie = f"camel-consent-{keys.suffix}"

    @property
    def form_token(self) -> str:
        """Stands in our own form, which no other site can read."""
        return self._keys.sign("form")

    def given(self, request: Request) -> frozenset[str]:
        """The labels that this browser may be shown."""
        given = request.cookies.get(self._cookie, "")
        return frozenset([MISALIGNMENT] if self._keys.signed(f"consent:{MISALIGNMENT}", given) else [])

    def check_form(self, request: Request, token: str, what: str = "form") -> bool:
        """Whether a form came from our own page; `what` says what its token was signed for."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = request.headers.get("origin")
        if origin not in (None, "null") and origin.partition("://")[2] != request.headers.get("host"):
            return False
        return self._keys.signed(what, token)

    def answered(self, form: Mapping[str, str]) -> Response:
        """Have the browser remember the answer until it or the server ends, and go on."""
        shows = form.get("answer") == "show"
        response = RedirectResponse(local(form.get("next", "/")) if shows else "/", 303)
        given = self._keys.sign(f"consent:{MISALIGNMENT}") if shows else ""
        set_cookie(response, self._cookie, given, self._keys.framed)
        return response


async def read_form(request: Request, most: int = MAX_FORM) -> dict[str, str]:
    """The fields of a form; none where it is larger than expected."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            return {}
    if data.count(b"&") >= _MOST_FIELDS:
        return {}
    return dict(parse_qsl(data.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS))


class Door:
    """The middleware around the app."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] = (),
        token: str = "",
        suffix: str = "",
        frames: Collection[str] = (),
        command: str = "camel explore",
    ) -> None:
        self._app, self._token, self._command = app, token, command
        self._headers, self._framed = headers_for(frames), bool(frames)
        self._hosts = {host.lower() for host in hosts} | {"localhost"}
        self._cookie = f"camel-token-{suffix}" if suffix else "camel-token"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or not."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        begun = False

        async def leave(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                own = headers.get(
                    _POLICY
                )  # a report brings one that allows less than ours, and inline styles
                for name, value in self._headers.items():
                    headers[name] = value
                if own:
                    headers[_POLICY] = f"{own}; {self._headers[_POLICY].rpartition('; ')[2]}"
                # Scripts and styles are asked about each time, and sent when they have changed.
                fixed = scope["path"].startswith("/static/")
                headers.setdefault("cache-control", "no-cache" if fixed else "no-store")
            await send(message)

        answer = self._refused(scope)
        try:
            await (answer or self._app)(scope, receive, leave)
        except Exception:
            if not begun:  # here, because what stands around us would answer without our headers
                told = f"What is known about it stands where <code>{self._command}</code> was started."
                await _page(500, "Something went wrong", told)(scope, receive, leave)
            raise

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not is_ours(headers.get("host", ""), self._hosts):
            return _page(
                421,
                "Not this address",
                "The server answers only under an address of its own machine. Open the link that "
                f"<code>{self._command}</code> printed, or name this host with <code>--allow-host</code>.",
            )
        if not self._token or scope["path"].startswith("/static/"):  # the style sheet, for the pages below
            return None
        asked = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in asked if name == "token"]
        if given and scope["method"] == "GET" and self._is_token(given[0]):
            return self._signed_in(scope, [(name, value) for name, value in asked if name != "token"])
        if self._is_token(_cookie(headers.get("cookie", ""), self._cookie)):
            return None
        return _page(
            401,
            "A token is needed",
            f"Open the whole link that <code>{self._command}</code> printed when it started: it ends in "
            "<code>?token=…</code>. The browser then remembers it.",
        )

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    def _signed_in(self, scope: Scope, rest: list[tuple[str, str]]) -> Response:
        """A page that goes on by itself. Not a redirect: that of a link in somebody's mail would bring no cookie."""
        # One slash at the beginning: two would be another host.
        target = "/" + quote(scope["path"].lstrip("/\\")) + (f"?{urlencode(rest)}" if rest else "")
        response = _page(
            200,
            "Signed in",
            f'<a href="{_attribute(target)}">Go on to the explorer</a>',
            head=f'<meta http-equiv="refresh" content="0;url={_attribute(target)}">',
        )
        set_cookie(response, self._cookie, self._token, self._framed)
        return response


def local(target: str) -> str:
    """A path of our own to go to; the first page where it is anything else."""
    own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if own and len(target) < 4_000 else "/"


def headers_for(frames: Collection[str]) -> dict[str, str]:
    """What every answer leaves with, where pages of these origins may hold ours in a frame."""
    for origin in frames:
        if not _ORIGIN.fullmatch(origin):
            raise InputError(f"an origin is written as https://example.org, not {shown(origin)}")
    if not frames:
        return HEADERS
    policy = HEADERS["content-security-policy"].replace(
        "frame-ancestors 'none'", f"frame-ancestors {' '.join(frames)}"
    )
    # The older header knows no list.
    kept = {name: value for name, value in HEADERS.items() if name != "x-frame-options"}
    return kept | {"content-security-policy": policy}


def is_ours(host: str, known: Collection[str]) -> bool:
    """Whether a Host header names this machine: by an address, which no foreign name can be, or by a known name."""
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
    """Whether an address to listen on is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def _cookie(header: str, name: str) -> str:
    try:
        cookies = SimpleCookie(header)
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _page(status: int, title: str, body: str, head: str = "") -> Response:
    """A page that needs nothing but itself; nothing of the request stands in it unescaped."""
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="/static/camel.svg"><link rel="stylesheet" href="/static/style.css">{head}<title>{title} · CAMEL</title></head>'
        f'<body><main class="narrow"><h1>{title}</h1><p>{body}</p></main></body></html>',
        status,
    )
