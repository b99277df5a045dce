"""The voting app: a task, two solutions next to each other, and four answers.

The one decision to know: no page reveals which system wrote a solution. A page gets a task and two texts in the order drawn
for this voter, and pairs are identified by signatures instead of their ids. Only this module maps "A" to a system, when the
answer arrives. There is no page with results: `camel vote FOLDER --results` prints them.

The server answers after the vote is on disk, never before.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, urlsplit

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.evaluation.pairs import Pair, read_pairs
from camel.evaluation.votes import BallotBox, CastVote, Choice, Dealer, Stale, voter_name, votes_folder
from camel.explorer.access import MISALIGNMENT, Consent, Keys, is_loopback, local, read_form
from camel.explorer.app import answer, is_any, link_to, listening, open_page
from camel.explorer.policy import VOTES
from camel.explorer.routing import Refused, environment, new_app
from camel.query.answers import NeedsConsent
from camel.record.release import RESTRICTED
from camel.storage.journal import JournalBroken

DAYS = 180
"""Number of days for which a browser stores a pass."""


class Passes:
    """Makes and checks passes: names of voters, signed with the folder's own secret.

    An invitation link and a browser's cookie carry the same text, so that a link works on any device and after every restart.
    Where the app is open to others, a name without a pass is not accepted.
    """

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


_NONCE = re.compile(r"[0-9a-f]{0,32}")


class Booth:
    """Selects pairs for voters and interprets answers. No return value reveals which system wrote a solution."""

    def __init__(self, pairs: Sequence[Pair], box: BallotBox) -> None:
        self.box, self.dealer = box, Dealer(pairs, box)
        self.keys = Keys(box.secret)
        self.pairs = self.dealer.pairs
        self._handles = {key: self.keys.sign(f"pair\n{key}")[:24] for key in self.pairs}
        self._keys_of = {handle: key for key, handle in self._handles.items()}
        self.restricted = {key for key, pair in self.pairs.items() if RESTRICTED.intersection(pair.labels)}

    def open(self, allowed: Collection[str]) -> int:
        """Return the number of pairs that a voter may be shown."""
        return len(self.pairs) - (0 if MISALIGNMENT in allowed else len(self.restricted))

    def may(self, key: str, allowed: Collection[str]) -> bool:
        """Return whether a voter may be shown a pair."""
        return key not in self.restricted or MISALIGNMENT in allowed

    def path(self, key: str) -> str:
        """Return the URL path of the page for voting on a pair."""
        return f"/pair/{self._handles[key]}"

    def key(self, handle: str) -> str | None:
        """Return the key of the pair with this handle in its URL path. Return None if there is no such pair."""
        return self._keys_of.get(handle)

    def next(self, voter: str, allowed: Collection[str]) -> str | None:
        """Return the URL path of the voter's next pair. Return None if there is none."""
        found = self.dealer.next(
            voter, lambda pair: MISALIGNMENT in allowed or not RESTRICTED.intersection(pair.labels)
        )
        return found and self.path(found)

    def first(self, voter: str, key: str) -> Literal["a", "b"]:
        """Return which solution of a pair this voter sees as A."""
        return "a" if int(self.keys.sign(f"order\n{voter}\n{key}")[0], 16) % 2 else "b"

    def sides(self, voter: str, key: str) -> tuple[str, str]:
        """Return the two solutions in the order in which this voter sees them."""
        pair = self.pairs[key]
        return (pair.text_a, pair.text_b) if self.first(voter, key) == "a" else (pair.text_b, pair.text_a)

    def choice(self, voter: str, key: str, answer: str) -> Choice | None:
        """Return the choice that an answer on this voter's screen stands for. Return None if the answer is invalid."""
        if answer in ("A", "B"):
            return "a" if (answer == "A") == (self.first(voter, key) == "a") else "b"
        return "draw" if answer == "draw" else "skip" if answer == "skip" else None

    def answer(self, vote: CastVote | None) -> str:
        """Return the answer that the voter chose, with the sides as their screen showed them. Return an empty text if there is no vote."""
        if vote is None or vote.choice in ("draw", "skip"):
            return vote.choice if vote else ""
        return "A" if vote.choice == vote.first else "B"


def create_app(
    pairs: Sequence[Pair], box: BallotBox, *, hosts: Collection[str] = (), by_name: bool = True, url: str = ""
) -> FastAPI:
    """Create the app for voting on pairs. If `by_name` is false, voters need an invitation link. `url` is the app's address."""
    booth = Booth(pairs, box)
    keys = booth.keys
    consent, passes = Consent(keys), Passes(keys, secure=url.startswith("https:"))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await box.close()

    failed = "The server failed. Reload the page to try again; your votes are saved."
    app = new_app("CAMEL votes", lifespan, keys, hosts=hosts, command="camel vote", failure=failed)
    pages = environment()

    def form_of(voter: str | None) -> str:
        return f"form\n{voter or ''}"

    async def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
        voter, allowed = passes.shown(request), consent.given(request)
        voter = values.pop("voter", voter)
        done, total = 0, booth.open(allowed)
        if voter:
            done = sum(key in booth.pairs and booth.may(key, allowed) for key in box.of(voter))
        around = {
            "frame": "vote/frame.html",
            "voter": voter or "",
            "link": passes.link(voter) if voter else "",
            "form_token": keys.sign(form_of(voter)),
            "done": done,
            "total": total,
            "consented": MISALIGNMENT in allowed,
            "hidden": len(booth.pairs) - total,
        }
        found = pages.get_template(template)
        # In a thread: rendering a long text takes a while, and others vote meanwhile.
        html = await asyncio.to_thread(found.render, {**around, **values})
        return HTMLResponse(html, status)

    async def failure(request: Request, error: Exception) -> Response:
        if isinstance(error, NeedsConsent):
            return await ask_consent(request, 403, request.url.path)
        if isinstance(error, HTTPException):
            error = Refused(error.status_code, "Page not found", "Your votes are saved.")
        assert isinstance(error, Refused)
        return await page(request, "vote/error.html", error.status, title=error.title, text=error.text)

    def voter_of(request: Request) -> str:
        voter = passes.shown(request)
        if not voter:
            raise Refused(
                401, "No name given", "Open your invitation link, or enter your name on the first page."
            )
        return voter

    async def form_from(request: Request, voter: str | None) -> dict[str, str]:
        form = await read_form(request)
        if not consent.check_form(request, form.get("token", ""), form_of(voter)):
            text = (
                "The form was not sent by a page that was made for you. Continue voting and try again there."
            )
            raise Refused(403, "Form rejected", text)
        return form

    def onward(request: Request, voter: str) -> Response:
        return RedirectResponse(booth.next(voter, consent.given(request)) or "/", 303)

    # --- joining and leaving -------------------------------------------------------------------------------------

    async def home(request: Request) -> Response:
        voter = passes.shown(request)
        if voter is None and not by_name:
            text = "Open the invitation link that you received; this browser then remembers you."
            raise Refused(401, "By invitation", text)
        if not voter:
            return await page(request, "vote/join.html", name="", wrong="")
        if (to := booth.next(voter, consent.given(request))) is not None:
            return RedirectResponse(to, 303)
        mine = box.of(voter)
        skipped = [
            booth.path(key)
            for key, vote in mine.items()
            if vote.choice == "skip" and key in booth.pairs and booth.may(key, consent.given(request))
        ]
        seen = [key for key in mine if key in booth.pairs]
        return await page(
            request, "vote/done.html", skipped=skipped, last=booth.path(seen[-1]) if seen else ""
        )

    async def come(request: Request) -> Response:
        voter = passes.voter(request.query_params.get("pass", ""))
        if voter is None:
            text = (
                "The link is incomplete, or it is for another vote. Open it again exactly as you received it."
            )
            raise Refused(401, "Unknown invitation", text)
        if not voter and passes.shown(request):  # a voter who has a name keeps it
            return RedirectResponse("/", 303)
        response = await page(
            request, "vote/welcome.html" if voter else "vote/join.html", voter=voter, name="", wrong=""
        )
        passes.give(response, voter)
        return response

    async def join(request: Request) -> Response:
        shown = passes.shown(request)
        if shown is None and not by_name:
            raise Refused(401, "By invitation", "Open the invitation link that you received first.")
        form = await form_from(request, shown)
        given = form.get("name", "")
        try:
            name = await box.join(voter_name(given), new=not by_name)
        except InputError as error:
            return await page(request, "vote/join.html", 400, name=given[:200], wrong=str(error))
        except JournalBroken:  # its text names a folder, which may name a system
            raise Refused(
                503, "Not saved", "Your name could not be written to the server's disk. Try again."
            ) from None
        response = onward(request, name)
        passes.give(response, name)
        return response

    async def leave(request: Request) -> Response:
        await form_from(request, voter_of(request))
        response = RedirectResponse("/", 303)
        passes.take(response)
        return response

    # --- voting -----------------------------------------------------------------------------------------------

    async def booth_page(
        request: Request, voter: str, key: str, status: int = 200, note: str = ""
    ) -> Response:
        allowed = consent.given(request)
        mine = box.of(voter)
        last = mine.get(key)
        seen = [one for one in mine if one in booth.pairs and booth.may(one, allowed)]
        at = seen.index(key) if key in seen else len(seen)
        return await page(
            request,
            "vote/pair.html",
            status,
            note=note,
            here=booth.path(key),
            task=booth.pairs[key].task,
            sides=booth.sides(voter, key),
            restricted=key in booth.restricted,
            chosen=booth.answer(last),
            nonce=secrets.token_hex(16),
            replaces=last.nonce if last else "",
            number=at + 1,
            back=booth.path(seen[at - 1]) if at else "",
            forward="" if last is None else booth.path(seen[at + 1]) if at + 1 < len(seen) else "/",
        )

    def pair_of(request: Request) -> tuple[str, str]:
        """Return the voter and the pair of a request. Raise `NeedsConsent` if the voter may not be shown the pair."""
        voter = voter_of(request)
        key = booth.key(request.path_params["handle"])
        if key is None:
            raise Refused(404, "Pair not found", "The pairs have changed, or the link is incomplete.")
        if not booth.may(key, consent.given(request)):
            raise NeedsConsent([MISALIGNMENT])
        return voter, key

    async def show(request: Request) -> Response:
        return await booth_page(request, *pair_of(request))

    async def vote(request: Request) -> Response:
        voter, key = pair_of(request)
        form = await form_from(request, voter)
        choice, nonce = booth.choice(voter, key, form.get("choice", "")), form.get("nonce", "")
        if choice is None or len(nonce) != 32 or not _NONCE.fullmatch(nonce):
            raise Refused(400, "No valid answer", "Choose one of the four answers on the page.")
        made = CastVote(
            voter, booth.pairs[key].id, key, choice, booth.first(voter, key), nonce, round(time.time(), 3)
        )
        try:
            await box.add(made, form.get("replaces", ""))
        except Stale as stale:
            kept = {"draw": "“equally good”", "skip": "“skip”"}.get(
                booth.answer(stale.vote), booth.answer(stale.vote)
            )
            note = f"You have already answered {kept}, and that answer counts. Answer again to change it."
            return await booth_page(request, voter, key, 409, note)
        except JournalBroken:
            note = (
                "Your answer could not be written to the server's disk and does not count yet. Answer again."
            )
            return await booth_page(request, voter, key, 503, note)
        return onward(request, voter)

    # --- consent ----------------------------------------------------------------------------------------------

    async def ask_consent(request: Request, status: int, to: str) -> Response:
        return await page(request, "vote/consent.html", status, next=local(to))

    async def consent_page(request: Request) -> Response:
        voter_of(request)
        return await ask_consent(request, 200, request.query_params.get("next", "/"))

    async def answer_consent(request: Request) -> Response:
        return consent.answered(await form_from(request, voter_of(request)))

    for error in (Refused, HTTPException, NeedsConsent):
        app.add_exception_handler(error, failure)
    routes: dict[str, Callable[..., Any]] = {
        "GET /": home,
        "GET /join": come,
        "POST /join": join,
        "POST /leave": leave,
        "GET /pair/{handle}": show,
        "POST /pair/{handle}": vote,
        "GET /consent": consent_page,
        "POST /consent": answer_consent,
    }
    for route in VOTES:
        method, _, path = route.partition(" ")
        app.api_route(path, methods=[method])(routes[route])
    return app


class Links(NamedTuple):
    """The links for voters."""

    pairs: int
    anybody: str
    """The link for voters who enter a name themselves."""
    own: dict[str, str]
    """The personal link of each voter who was invited by name."""


def serve(
    pairs: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_hosts: Sequence[str] = (),
    url: str = "",
    invite: Sequence[str] = (),
    needs_token: bool = True,
    open_browser: bool | None = False,
    ready: Callable[[Links], None] = lambda links: None,
) -> None:
    """Take votes until interrupted. Calls `ready` with the links once the port is open.

    Voters need a link: a personal one, or one with which they choose a free name. Without `needs_token`, everyone at this machine
    may enter any name, unless other machines can connect (another address or another host name).
    """
    found, invited = read_pairs(pairs), [voter_name(name) for name in invite]
    if not found:
        raise InputError(f"'{pairs}' has no pairs to vote on")
    asked = urlsplit(url)
    if url and (asked.scheme not in ("http", "https") or not asked.hostname or asked.path.strip("/")):
        raise InputError(
            f"--url must be the address that voters open, such as https://vote.example.org, not {shown(url)}"
        )
    by_name = not needs_token and is_loopback(host) and not url and not allow_hosts
    with listening(host, port) as opened:
        invited = asyncio.run(keep_invited(votes_folder(pairs), invited))
        box = BallotBox(votes_folder(pairs))
        # If the server listens on all addresses, other machines can use this machine's name.
        base = url or link_to(socket.gethostname() if is_any(host) else host, opened.getsockname()[1], "")
        base = base.rstrip("/")
        known = {*allow_hosts, socket.gethostname(), host, asked.hostname or host}
        app = create_app(found, box, hosts=known, by_name=by_name, url=url)
        passes = Passes(Keys(box.secret))
        anybody = f"{base}/" if by_name else base + passes.link("")
        ready(Links(len(found), anybody, {name: base + passes.link(name) for name in invited}))
        open_page(anybody, open_browser)
        answer(app, opened)


async def keep_invited(folder: Path, names: Sequence[str]) -> list[str]:
    """Reserve the invited names, and return them as stored. Call it before their links are printed."""
    box = BallotBox(folder)
    try:
        return [await box.join(name) for name in names]
    finally:
        await box.close()
