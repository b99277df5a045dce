"""The web app: its access control, the pages that modules add to it (`routing`), and its server, also in a notebook.

The one decision to know: a token is created at each start and is part of the printed link, also on a loopback address, because
a machine may have several users. Requests without it are refused.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import re
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from contextlib import asynccontextmanager, nullcontext
from html import escape
from typing import Any

import uvicorn
from fastapi import FastAPI
from msgspec import json, to_builtins
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from camel.core.errors import CamelError, InputError
from camel.explorer import views
from camel.explorer.access import MAX_FORM, Consent, Keys, is_loopback, local
from camel.explorer.fork_pages import add_fork_pages
from camel.explorer.forks import ForkRunner
from camel.explorer.home import FILES, measured, open_source, reports_of, run_head, run_rows, source_of
from camel.explorer.list_pages import HISTOGRAMS, add_contrast_pages, add_downloads, add_list_pages, browse
from camel.explorer.map_pages import add_map_pages
from camel.explorer.play_pages import add_play
from camel.explorer.reading import pulse, score, shown_messages
from camel.explorer.rooms import Agents
from camel.explorer.routing import PageRequest, Refused, Site, new_app
from camel.explorer.statistics import add_statistics_pages, charts, figures
from camel.explorer.views import PageState
from camel.explorer.visitors import VisitorLimits, Visitors
from camel.explorer.watch import add_watch_pages
from camel.jobs.budget import Budget
from camel.jobs.status import find_runs
from camel.query.answers import NeedsConsent, NotThere, Row
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.reports.html import POLICY
from camel.runs.annotations import MOST_TAGS, NOTE_CHARS, TAG_CHARS

GALLERY = 6
"""Number of conversations on the first page, in addition to the one with an excerpt."""
DRAWN = 40
"""Number of sampled conversations from which the first page chooses. The same runs always give the same sample."""


def add_run_pages(site: Site, intro: str = "") -> None:
    """Add the routes of the pages about runs, and of reports."""

    @site.get("/")
    def home(asked: PageRequest) -> Response:
        total = asked.catalogue.count()
        return asked.page(
            "home.html",
            here="runs",
            runs=run_rows(asked),
            total=total,
            restricted=asked.catalogue.restricted(),
            notes=asked.catalogue.notes(),
            opening=opening,
            intro=intro,
            **(_featured(asked) if total <= HISTOGRAMS else {"lead": None, "gallery": []}),
        )

    @site.get("/run/{run}")
    def run(asked: PageRequest) -> Response:
        name = asked.request.path_params["run"]
        source, state = source_of(asked.catalogue, name), PageState(Query(runs=(name,)), asked.state.pin)
        return asked.page(
            "run.html",
            here="runs",
            state=state,
            run=run_head(asked, name, "run"),
            figures=figures(asked, state),
            charts=charts(asked.catalogue, state, ("stop", "messages", "tokens")),
            measured=measured(source, asked.allowed),
            **browse(asked, state, 12, ("run",)),
        )

    @site.get("/run/{run}/configuration")
    def configuration(asked: PageRequest) -> Response:
        name = asked.request.path_params["run"]
        settings = source_of(asked.catalogue, name).folder.settings()
        text = json.format(json.encode(to_builtins(settings)), indent=2).decode()
        return asked.page(
            "configuration.html", here="runs", run=run_head(asked, name, "configuration"), text=text
        )

    @site.get("/reports")
    def reports(asked: PageRequest) -> Response:
        groups = {one.name: measured(one, asked.allowed) for one in asked.catalogue.runs}
        return asked.page(
            "reports.html", here="reports", groups={run: found for run, found in groups.items() if found}
        )

    @site.get("/reports/{run}/{folder}/{file}")
    def report(asked: PageRequest) -> Response:
        names = asked.request.path_params
        source = open_source(asked)  # reports quote conversations
        name, _, kind = names["file"].rpartition(".")
        for stored in reports_of(source):
            if (stored.key, stored.name) == (names["folder"], name) and kind in FILES:
                # Its own policy allows its inline styles and nothing else: no script of a changed file can run.
                policy = {"content-security-policy": POLICY}
                return Response(stored.read(kind), media_type=FILES[kind], headers=policy)
        raise NotThere("there is no such report: the page Reports lists those there are")


def _featured(asked: PageRequest) -> dict[str, Any]:
    """Return the conversations of the first page: one with an excerpt, and some more. The same runs give the same ones."""
    rows = asked.catalogue.sample(Query(), DRAWN, 0)
    rows.sort(key=lambda row: (row.stop != "done", bool(row.findings), not 4 <= row.messages <= 30))
    chosen: list[Row] = []
    for row in [row for row in rows if row.messages]:
        if len(chosen) <= GALLERY and not any(
            (row.user, row.assistant) == (one.user, one.assistant) for one in chosen[:4]
        ):
            chosen.append(row)
    shown = [_shown(asked, row) for row in chosen]
    return {"lead": shown[0] if shown else None, "gallery": shown[1 : 1 + GALLERY]}


def opening(text: str) -> str:
    """Return the prose at the beginning of a text for a short quote, without tables, code and Markdown syntax."""
    prose = re.split(r"^\s*(?:\||```|\$\$)", text, maxsplit=1, flags=re.MULTILINE)[0]
    return re.sub(r"[*`#]+", "", prose).strip() or text


def _shown(asked: PageRequest, row: Row) -> dict[str, Any]:
    transcript = asked.catalogue.conversation(row.run, row.id)
    messages = shown_messages(transcript, {})
    spoken = [
        opening(part.text)
        for message in messages
        for part in message.parts
        if part.kind in ("solution", "prose")
    ]
    return views.list_row(row, None, PageState(Query()), []) | {
        "words": sum(message.words for message in messages),
        "messages": messages[:3],
        "score": score(messages),
        "pulse": pulse(transcript),
        "quote": next((text for text in spoken if len(text) > 40), ""),
    }


MAX_ANNOTATION = 12 * (NOTE_CHARS + MOST_TAGS * TAG_CHARS) + MAX_FORM
"""Maximum size of the form in bytes: a character can take four bytes, each escaped as three."""


def add_annotations(site: Site) -> None:
    """Add the route that changes stars, tags and notes, which `annotations.html` shows.

    A change is a posted form, followed by a redirect to the page; the script only avoids the reload.
    """
    site.pages.globals.update(annotates=site.control)  # pyright: ignore[reportCallIssue, reportArgumentType]

    async def annotate(request: Request) -> Response:
        form = await site.form(request, "Open the conversation and use the form on its page.", MAX_ANNOTATION)
        changes: dict[str, Any] = {}
        if "star" in form:
            changes["star"] = form["star"] == "yes"
        if form.get("what") == "text":  # a field that was emptied is not in the form
            changes["tags"] = form.get("tags", "").split(",")
            changes["note"] = form.get("note", "").replace("\r\n", "\n").strip()
        run, id = request.path_params["run"], form.get("id", "")
        catalogue = PageRequest(site, request).catalogue
        try:
            await asyncio.to_thread(catalogue.annotate, run, id, **changes)
        except NeedsConsent:
            text = "Open the conversation and give consent first."
            raise Refused(403, "Not accepted", text) from None
        return RedirectResponse(local(form.get("next", "/list")), 303)

    site.add("POST /annotate/{run}", annotate)


def create_app(
    catalogue: Catalogue,
    *,
    token: str = "",
    hosts: Collection[str] = (),
    frames: Collection[str] = (),
    agents: Agents | None = None,
    public: bool = False,
    visitors: VisitorLimits = VisitorLimits(),  # noqa: B008 - frozen
    intro: str = "",
) -> FastAPI:
    """Create the app over a catalogue.

    With a `token`, requests must show it. `hosts` are further names of this machine, `frames` the origins whose pages
    may show the app in a frame. With `agents`, the app can hold conversations. If it is `public`, `visitors` limits what each
    visitor uses, and nobody can change runs. `intro` is what the first page says about the runs.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with agents.open() if agents else nullcontext(), runner.open() if runner else nullcontext():
            yield

    runner = ForkRunner(agents) if agents and not public else None
    keys = Keys(framed=bool(frames))
    command = "camel agents" if agents else "camel explore"
    known = Visitors(public, visitors, agents.meter.budget if agents else Budget())
    app = new_app(
        "CAMEL explorer",
        lifespan,
        keys,
        hosts=hosts,
        token=token,
        command=command,
        frames=frames,
        visitors=known,
    )
    site = Site(app, catalogue, Consent(keys), plays=agents is not None, control=not public)
    add_run_pages(site, intro)
    add_list_pages(site)
    add_downloads(site)
    add_statistics_pages(site)
    add_contrast_pages(site)
    add_map_pages(site)
    add_watch_pages(site)
    add_annotations(site)
    add_fork_pages(site, runner)
    _add_consent(site)
    if agents is not None:
        add_play(site, agents, keys)
    return app


def _add_consent(site: Site) -> None:
    @site.get("/consent")
    def ask_consent(asked: PageRequest) -> Response:
        return asked.page("consent.html", next=local(asked.last.get("next", "/")))

    async def answer_consent(request: Request) -> Response:
        return site.consent.answered(await site.form(request, "Open the consent page and answer there."))

    site.add("POST /consent", answer_consent)


TOKEN = "CAMEL_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the token for addresses other than loopback. If it is not set, each start makes a new token."""
LEAST_TOKEN = 16
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def serve(
    runs: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_hosts: Sequence[str] = (),
    frames: Sequence[str] = (),
    public: bool = False,
    needs_token: bool = True,
    agents: Agents | None = None,
    open_browser: bool | None = False,
    intro: str = "",
    ready: Callable[[str, int], None] = lambda link, runs: None,
) -> None:
    """Serve runs until interrupted. `ready` is called with the link and the number of runs once the port is open.

    Folders of runs are searched again while it serves, so that new runs appear.

    `open_browser=None` opens a browser if there is a screen and a terminal. `public` needs no token on any address, and limits
    what each visitor uses. Without `needs_token`, a loopback address needs none, and all users of this machine have access.
    With `agents`, the app can hold conversations. `intro` is what the first page says about the runs.
    """

    def find() -> list[str]:
        return [one for run in runs for one in (find_runs(run) or [run])]

    open_door = public or (not needs_token and is_loopback(host))
    if agents and not public:
        # Visitors of a public server do not see what others have saved.
        runs = [agents.folder.address, *runs]
    chosen = checked_token(os.environ.get(TOKEN, ""))
    token = "" if open_door else chosen or secrets.token_urlsafe(24)
    with Catalogue(find(), annotations=not public) as catalogue, listening(host, port) as door:
        hosts = {*allow_hosts, socket.gethostname(), *([] if is_any(host) else [host])}
        app = create_app(
            catalogue, token=token, hosts=hosts, frames=frames, agents=agents, public=public, intro=intro
        )
        path = "play" if agents else ""
        link = link_to(host, door.getsockname()[1], token, path)
        # Printed lines end up in logs, so a token that the user chose is not repeated there.
        said = link.replace(f"token={chosen}", f"token=${TOKEN}") if token and chosen else link
        ready(said, len(catalogue.runs))
        open_page(link, open_browser)
        with looking(catalogue, find):
            answer(app, door)


@contextlib.contextmanager
def looking(catalogue: Catalogue, find_runs: Callable[[], Sequence[str]] = lambda: ()) -> Generator[None]:
    """Run the detectors over small runs, and add new runs, in a background thread for as long as this context lasts."""
    ended = threading.Event()
    thread = threading.Thread(target=catalogue.keep_looking, args=[ended, find_runs], daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)


def answer(app: FastAPI, door: socket.socket) -> None:
    """Serve the app on an open socket until it is interrupted."""
    try:
        uvicorn.Server(settings(app)).run([door])
    except asyncio.CancelledError:  # interrupted before uvicorn listened for it
        raise KeyboardInterrupt from None


def settings(app: FastAPI) -> uvicorn.Config:
    """Return the server's settings: no access log, and at most two seconds to shut down."""
    return uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )


def checked_token(token: str) -> str:
    """Return a token that the user chose. Raise an `InputError` if it is too short or not valid in a link."""
    # It is part of links and cookies.
    if token and not re.fullmatch(rf"[A-Za-z0-9_-]{{{LEAST_TOKEN},200}}", token):
        raise InputError(f"{TOKEN} must have at least {LEAST_TOKEN} letters, digits, _ or -, or be unset")
    return token


def link_to(host: str, port: int, token: str, path: str = "") -> str:
    """Return the link that opens the explorer."""
    name = "127.0.0.1" if is_any(host) else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/{path}" + (f"?token={token}" if token else "")


def is_any(host: str) -> bool:
    """Return whether an address to listen on means all addresses of this machine."""
    return host in ("0.0.0.0", "::", "")  # noqa: S104 - asked whether it is, not bound here


def listening(host: str, port: int) -> socket.socket:
    """Open a port to listen on. If that fails, raise an `InputError` that explains what to do."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, reuse_port=False)
    except socket.gaierror as error:
        raise InputError(f"cannot listen on {host}: {error.strerror}: give an address with --host") from None
    except OSError as error:
        hint = ": choose another with --port" if port else ""
        reason = os.strerror(error.errno) if error.errno else error
        raise InputError(f"cannot listen on {host} port {port}: {reason}{hint}") from None


def open_page(link: str, wanted: bool | None) -> None:
    """Open a page in a browser. If `wanted` is None, it is opened if there is a screen and a terminal."""
    # Without a screen, a text browser would take over the terminal.
    screen = sys.platform == "darwin" or any(os.environ.get(name) for name in _SCREENS)
    if screen and sys.stdout.isatty() and sys.stdin.isatty() if wanted is None else wanted:
        # In a thread: some browsers stay in the foreground until they are closed.
        threading.Thread(target=webbrowser.open, args=[link], daemon=True).start()


HOST = "127.0.0.1"
FRAMES = ("http://localhost:*", "http://127.0.0.1:*", "https://localhost:*", "https://127.0.0.1:*")
"""Origins whose pages may show the explorer in a frame: those of this machine."""
_PATIENCE = 20.0
_open: dict[tuple[str, ...], RunningExplorer] = {}


class RunningExplorer:
    """The same server on a loopback address, in a thread that ends with this process.

    A notebook shows it in a frame, with a link that opens it in a new tab. Only pages from this machine may do so.
    """

    def __init__(self, runs: Sequence[str], port: int = 0, height: int = 640) -> None:
        self.height = height
        with contextlib.ExitStack() as opened:
            self._socket = opened.enter_context(listening(HOST, port))
            catalogue = opened.enter_context(Catalogue(runs))
            token = secrets.token_urlsafe(24)
            self.url = link_to(HOST, self._socket.getsockname()[1], token)
            self._server = uvicorn.Server(settings(create_app(catalogue, token=token, frames=FRAMES)))
            opened.enter_context(looking(catalogue))
            self._opened = opened.pop_all()
        self._thread = threading.Thread(target=self._serve, name="camel-view", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _serve(self) -> None:
        with self._opened:
            self._server.run([self._socket])

    @property
    def running(self) -> bool:
        """Whether the server is still running."""
        return self._thread.is_alive() and not self._server.should_exit

    def stop(self) -> None:
        """Stop the server. If you do not call this, it stops with the notebook's kernel."""
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        atexit.unregister(self.stop)

    def __repr__(self) -> str:
        return f"<explorer at {self.url}>" if self.running else "<explorer, stopped>"

    def _repr_html_(self) -> str:
        if not self.running:
            return "<p>The explorer was stopped.</p>"
        url = escape(self.url)
        return (
            f'<p><a href="{url}" target="_blank" rel="noopener">Open the explorer in a new tab</a> ({url})</p>'
            f'<iframe src="{url}" title="CAMEL explorer" style="width:100%;height:{self.height}px;'
            'border:1px solid rgba(128,128,128,.35);border-radius:8px"></iframe>'
        )


def view(*runs: str, port: int = 0, height: int = 640) -> RunningExplorer:
    """Open the explorer on some runs, in a thread of this process. A second call with the same runs returns the same explorer."""
    if not runs:
        raise CamelError("view needs at least one run")
    known = _open.get(runs)
    if known is None or not known.running:
        known = _open[runs] = RunningExplorer(runs, port, height)
    known.height = height
    return known
