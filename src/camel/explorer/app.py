"""The web app: routes, each a question to the catalogue and a page.

The one decision to know: a route never sees more than its reader may. It gets the catalogue from `_PageRequest`, which has
looked at the reader's consent; there is no other way to the data, so that a new route is behind the gate by itself.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from markupsafe import Markup
from msgspec import ValidationError, convert
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.explorer import statistics, views
from camel.explorer.access import MISALIGNMENT, Consent, Door, Keys, local
from camel.explorer.agents import Agents
from camel.explorer.charts import drawn
from camel.explorer.forms import read_form
from camel.explorer.home import hidden_labels, run_cards
from camel.explorer.map_pages import add_map_pages
from camel.explorer.maps import maps_in
from camel.explorer.pages import STATIC, environment
from camel.explorer.play import add_play
from camel.explorer.reading import terms_of
from camel.explorer.views import PageState
from camel.explorer.watch import RunWatch
from camel.query.answers import NeedsConsent, NotThere
from camel.query.catalogue import Catalogue
from camel.query.sources import CatalogueRun
from camel.query.where import Query
from camel.runs.control import Wish, read_wish, wish

ROWS = 40
"""Rows of a page."""
SAMPLE = 20


class _PageRequest:
    """A request with what its reader may see."""

    def __init__(self, request: Request, catalogue: Catalogue, consent: Consent) -> None:
        self.request = request
        self.allowed = consent.given(request)
        self.catalogue = catalogue.allowing(*self.allowed)
        pairs = request.query_params.multi_items()
        if len(pairs) > 400:
            raise InputError("this link has too many parameters: begin at the list")
        self.last = dict(pairs)
        self.state = PageState(
            Query.from_params(pairs), self.last.get("pin", "")[:500], self.last.get("view") == "raw"
        )

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number among the parameters, None where it is not given."""
        text = self.last.get(name, "").strip().replace(",", "")
        if not text:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise InputError(f"{name} is a whole number from {least:,} to {most:,}, not {shown(text)}")
        return int(text)


def create_app(
    catalogue: Catalogue,
    *,
    token: str = "",
    hosts: Collection[str] = (),
    frames: Collection[str] = (),
    agents: Agents | None = None,
    control: bool = True,
) -> FastAPI:
    """The app over a catalogue. With a `token`, only who shows it is let in; `hosts` are further names of this machine,
    `frames` the origins whose pages may hold it in a frame. With `agents`, conversations can be held in it. Without
    `control`, nobody can pause or stop a run.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with agents.open() if agents else nullcontext():
            yield

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, title="CAMEL explorer", lifespan=lifespan)
    keys = Keys(framed=bool(frames))
    consent = Consent(keys)
    command = "camel agents" if agents else "camel explore"
    app.add_middleware(Door, hosts=hosts, token=token, suffix=keys.suffix, command=command, frames=frames)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    pages = environment()

    def page(name: str, allowed: Collection[str], status: int = 200, **values: Any) -> Response:
        state: PageState = values.pop("state", PageState(Query()))
        frame = {
            "here": values.pop("here", ""),
            "consented": MISALIGNMENT in allowed,
            "plays": agents is not None,
            "find_text": state.query.text,
            # A search keeps what is chosen, except the order: what fits best comes first.
            "find_keeps": [
                (key, value) for key, value in state.params() if key not in ("q", "sort", "order", "view")
            ],
        }
        return HTMLResponse(pages.get_template(name).render(**frame, **values), status)

    def failure(request: Request, status: int, title: str, text: str) -> Response:
        return page("error.html", consent.given(request), status, title=title, text=text)

    def get(path: str) -> Callable[[Callable[[_PageRequest], Response]], None]:
        def add(answer: Callable[[_PageRequest], Response]) -> None:
            def route(request: Request) -> Response:
                try:
                    return answer(_PageRequest(request, catalogue, consent))
                except NeedsConsent:
                    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                    return page(
                        "consent.html",
                        consent.given(request),
                        403,
                        form_token=consent.form_token,
                        next=local(here),
                    )
                except NotThere as error:
                    return failure(request, 404, "It is not there", str(error))
                except InputError as error:
                    return failure(request, 400, "That cannot be shown", str(error))
                except CamelError as error:
                    return failure(request, 500, "Something went wrong", str(error))

            app.get(path)(route)

        return add

    @app.exception_handler(HTTPException)
    def not_found(request: Request, error: HTTPException) -> Response:  # pyright: ignore[reportUnusedFunction]
        title = "There is no such page" if error.status_code == 404 else "That cannot be done"
        return failure(
            request, error.status_code, title, "Begin with the runs, or with the list of all conversations."
        )

    # --- pages -----------------------------------------------------------------------------------------------

    @get("/")
    def home(asked: _PageRequest) -> Response:
        cards = run_cards(asked.catalogue, asked.allowed)
        return page(
            "runs.html",
            asked.allowed,
            here="runs",
            runs=cards,
            total=asked.catalogue.count(),
            restricted=asked.catalogue.restricted(),
            notes=asked.catalogue.notes(),
        )

    @get("/list")
    def listing(asked: _PageRequest) -> Response:
        if (canonical := _canonical(asked)) is not None:
            return RedirectResponse(canonical, 303)
        state, query = asked.state, asked.state.query
        after, before = asked.last.get("after"), asked.last.get("before")
        at, sample = asked.whole("at", 1, 2**53), asked.whole("sample", 1, 200)
        seed = asked.whole("seed", 0, 2**53) or 0
        here = [
            (name, asked.last[name])
            for name in ("after", "before", "at", "sample", "seed")
            if name in asked.last
        ]
        if sample:
            found = asked.catalogue.sample(query, sample, seed)
            rows = [views.list_row(row, None, state, here) for row in found]
            total, notes, paging = (
                asked.catalogue.count(query),
                (),
                {"next": None, "previous": None, "where": ""},
            )
            summary = f"{len(rows):,} at random of {views.counted(total, 'conversation')}"
        else:
            result = (
                asked.catalogue.jump(query, at - 1, ROWS)
                if at
                else asked.catalogue.page(query, after, before, ROWS)
            )
            rows = [
                views.list_row(row, result.at + number, state, here) for number, row in enumerate(result.rows)
            ]
            # That an index is missing stands on the first page; here, what concerns this list.
            total, notes = (
                result.total,
                [note for note in result.notes if note not in asked.catalogue.notes()],
            )
            paging = {
                "next": result.next and state.url("/list", [("after", result.next)]),
                "previous": result.previous and state.url("/list", [("before", result.previous)]),
                "where": f"{result.at + 1:,}–{result.at + len(rows):,} of {total:,}" if rows else "",
            }
            summary = views.counted(total, "conversation")
        pinned = state.pin and {"name": state.pin, "unpin": state.url("/list", here, pin="")}
        kept = state.params()
        hidden = asked.catalogue.restricted()
        return page(
            "list.html",
            asked.allowed,
            here="list",
            state=state,
            heading=f"“{query.text}”" if query.text else "Conversations",
            facets=views.facet_lists(state, asked.catalogue.facets(query)),
            ranges=views.ranges(query),
            range_keeps=[(key, value) for key, value in kept if not key.endswith("-range")],
            chips=views.chips(state, "/list"),
            summary=summary,
            total=total,
            rows=rows,
            several_runs=len(asked.catalogue.runs) > 1,
            notes=notes,
            hidden=hidden,
            pinned=pinned,
            sampling=bool(sample),
            again=state.url("/list", [("sample", str(sample or SAMPLE)), ("seed", _seed())]),
            whole=state.url("/list"),
            sample=state.url("/list", [("sample", str(SAMPLE)), ("seed", _seed())]),
            random=state.url("/random"),
            statistics=state.url("/statistics"),
            map=state.url("/map") if maps_in(asked.catalogue) else "",
            sorts=[
                (value, "Best first" if not value and query.text else name) for value, name in views.SORTS
            ],
            sort=query.sort,
            order=query.order,
            sort_keeps=[(key, value) for key, value in kept if key not in ("sort", "order")],
            jump_keeps=kept,
            empty="No conversation fits all of this. Remove a filter above, or search for other words."
            if kept
            else "Nothing has been committed yet: it appears here as the run goes on.",
            previous=paging["previous"],
            next=paging["next"],
            where=paging["where"],
        )

    @get("/random")
    def random(asked: _PageRequest) -> Response:
        found = asked.catalogue.sample(asked.state.query, 1, int(_seed()))
        if not found:
            return RedirectResponse(asked.state.url("/list"), 303)
        return RedirectResponse(asked.state.conversation(found[0].run, found[0].id), 303)

    @get("/conversation/{run}")
    def conversation(asked: _PageRequest) -> Response:
        run, id, state = asked.request.path_params["run"], asked.last.get("id", ""), asked.state
        transcript = asked.catalogue.conversation(run, id)
        beside = asked.catalogue.neighbours(run, id, state.query)
        address = f"{run}/{id}"
        if state.pin and state.pin != address:
            pin = state._replace(pin="").url("/compare", [("left", state.pin), ("right", address)])
            pin_text = "Compare with pinned"
        else:
            pin, pin_text = state.url("/list", pin=address), "Compare with another"
        base = f"/conversation/{quote(run, safe='')}"
        return page(
            "conversation.html",
            asked.allowed,
            state=state,
            talk=views.talk(run, transcript, asked.catalogue.row(run, id).cost),
            run_title=run,
            terms=terms_of(state.query.text),
            raw=state.raw,
            raw_link=state.conversation(run, id, raw=not state.raw),
            up=state.url("/list"),
            up_name="Results" if state.query.to_params() else "All conversations",
            previous=beside.previous and state.conversation(beside.previous.run, beside.previous.id),
            next=beside.next and state.conversation(beside.next.run, beside.next.id),
            random=state.url("/random"),
            json=views.url(f"{base}/json", [("id", id)]),
            markdown=views.url(f"{base}/markdown", [("id", id)]),
            permalink=views.url(base, [("id", id)]),
            pin=pin,
            pin_text=pin_text,
        )

    @get("/conversation/{run}/json")
    def as_json(asked: _PageRequest) -> Response:
        return _copy(asked, "json")

    @get("/conversation/{run}/markdown")
    def as_markdown(asked: _PageRequest) -> Response:
        return _copy(asked, "md")

    @get("/compare")
    def compare(asked: _PageRequest) -> Response:
        state = asked.state
        sides = [asked.last.get(side, "") for side in ("left", "right")]
        talks: list[dict[str, Any]] = []
        for address in sides:
            run, _, id = address.partition("/")
            made = views.talk(run, asked.catalogue.conversation(run, id))
            talks.append(made | {"link": state.conversation(run, id)})
        return page(
            "compare.html",
            asked.allowed,
            state=state,
            talks=talks,
            terms=terms_of(state.query.text),
            raw=state.raw,
            raw_link=state.url("/compare", [("left", sides[0]), ("right", sides[1])], raw=not state.raw),
            swap=state.url("/compare", [("left", sides[1]), ("right", sides[0])]),
            up=state.url("/list"),
        )

    @get("/statistics")
    def statistics_page(asked: _PageRequest) -> Response:
        made = statistics.charts(asked.catalogue, asked.state)
        total = asked.catalogue.count(asked.state.query)
        charts = [
            {
                "name": one.plot.name,
                "title": one.plot.title,
                "caption": one.plot.caption,
                "drawing": Markup(drawn(one)),  # noqa: S704 - drawn from data, every text escaped
                "files": [
                    (kind.upper(), asked.state.url(f"/statistics/{one.plot.name}.{kind}"))
                    for kind in statistics.KINDS
                ],
            }
            for one in made
        ]
        return page(
            "statistics.html",
            asked.allowed,
            here="statistics",
            state=asked.state,
            figures=[("conversations", f"{total:,}")],
            charts=charts,
            notes=statistics.notes(asked.catalogue, asked.state, made),
            chips=views.chips(asked.state, "/statistics"),
            up=asked.state.url("/list"),
        )

    add_map_pages(get, page)

    @get("/statistics/{file}")
    def plot(asked: _PageRequest) -> Response:
        name, _, kind = asked.request.path_params["file"].rpartition(".")
        made = statistics.chart(asked.catalogue, asked.state, name) if kind in statistics.KINDS else None
        if made is None:
            raise NotThere(
                "there is no such plot of these conversations: the page of statistics has those there are"
            )
        headers = {"content-disposition": f'attachment; filename="{made.plot.name}.{kind}"'}
        return Response(
            statistics.KINDS[kind].make(made), media_type=statistics.KINDS[kind].type, headers=headers
        )

    # --- watching --------------------------------------------------------------------------------------------

    watched: dict[str, RunWatch] = {}

    def source_of(asked: _PageRequest) -> CatalogueRun:
        name = asked.request.path_params["run"]
        source = next((one for one in asked.catalogue.runs if one.name == name), None)
        if source is None:
            raise NotThere(f"there is no run {shown(name)}")
        if hidden := hidden_labels(source, asked.allowed):
            raise NeedsConsent(hidden)
        return source

    def looked(source: CatalogueRun) -> RunWatch:
        one = RunWatch(source)
        try:
            one.look_now()
        finally:
            one.close()
        return one

    @get("/watch/{run}")
    def watch(asked: _PageRequest) -> Response:
        one = looked(source_of(asked))
        return page(
            "watch.html",
            asked.allowed,
            run=one.source.name,
            where=one.source.address,
            now=one.state(),
            events=f"/watch/{quote(one.source.name, safe='')}/events",
            link=PageState(Query(runs=(one.source.name,))).url("/list"),
            text_hidden=not one.shows_text,
            form_token=consent.form_token,
            control=control and f"/watch/{quote(one.source.name, safe='')}/control",
            wishes=(("pause", "Pause"), ("go", "Go on"), ("stop", "Stop after current calls")),
        )

    @app.post("/watch/{run}/control")
    async def answer_wish(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        form = await read_form(request)
        if not control:
            return failure(
                request, 403, "Not accepted", "This explorer is for everybody, and controls no run."
            )
        if not consent.check_form(request, form.get("token", "")):
            text = "This did not come from the explorer's own page. Open the page of the run and press the button there."
            return failure(request, 403, "Not accepted", text)

        def grant(wished: Wish) -> str:
            source = source_of(_PageRequest(request, catalogue, consent))
            # What is wished already may be wished again: two clicks on a button.
            if wished not in looked(source).totals()["can"] and wished != read_wish(source.folder):
                raise InputError(
                    "the run is not in a state for that: its page has a button for what can be wished now"
                )
            wish(source.folder, wished)
            return source.name

        try:
            run = await asyncio.to_thread(grant, convert(form.get("wish", ""), Wish))
        except NeedsConsent:
            return failure(request, 403, "Not accepted", "Open the page of the run and give consent first.")
        except NotThere as error:
            return failure(request, 404, "It is not there", str(error))
        except (ValidationError, CamelError, OSError) as error:
            return failure(request, 400, "That cannot be done", str(error))
        return RedirectResponse(f"/watch/{quote(run, safe='')}", 303)

    @get("/watch/{run}/events")
    def events(asked: _PageRequest) -> Response:
        source = source_of(asked)
        one = watched.get(source.name)
        if one is None or one.closed:
            one = watched[source.name] = RunWatch(source)
        one.source = source  # as it is now: with what has been committed since
        stream = one.stream(asked.request.headers.get("last-event-id", ""), asked.allowed)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    # --- consent ---------------------------------------------------------------------------------------------

    @get("/consent")
    def ask_consent(asked: _PageRequest) -> Response:
        return page(
            "consent.html",
            asked.allowed,
            form_token=consent.form_token,
            next=local(asked.last.get("next", "/")),
        )

    @app.post("/consent")
    async def answer_consent(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        form = await read_form(request)
        if not consent.check_form(request, form.get("token", "")):
            text = "This answer did not come from the explorer's own page. Open the page of the consent and answer there."
            return failure(request, 403, "Not accepted", text)
        shows = form.get("answer") == "show"
        response = RedirectResponse(local(form.get("next", "/")) if shows else "/", 303)
        (consent.give if shows else consent.withdraw)(response)
        return response

    if agents is not None:
        add_play(app, agents, pages, catalogue, consent, keys, page, failure)
    return app


def _canonical(asked: _PageRequest) -> str | None:
    """Where a form sent limits in two fields, the link that says the same in one."""
    ranges = dict(asked.state.query.ranges)
    sent = False
    for name in views.NUMBER_TITLES:
        given = [asked.last.get(f"{name}-{end}") for end in ("from", "to")]
        if given == [None, None]:
            continue
        sent = True
        read = Query.from_params({f"{name}-range": "..".join((one or "").strip() for one in given)})
        ranges.pop(name, None)
        ranges |= read.ranges
    if not sent:
        return None
    return asked.state.url("/list", query=views.replace(asked.state.query, ranges=ranges))


def _copy(asked: _PageRequest, kind: str) -> Response:
    """A conversation to take away, with its labels."""
    run, id = asked.request.path_params["run"], asked.last.get("id", "")
    transcript = asked.catalogue.conversation(run, id)
    headers: dict[str, str] = {}
    if asked.last.get("download"):
        # A name from outside goes into a header and onto a disk: letters, digits and little else.
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{run}-{id}").strip("-")[:100] or "conversation"
        headers["content-disposition"] = f'attachment; filename="{name}.{kind}"'
    if kind == "json":
        return Response(transcript.to_json(), media_type="application/json", headers=headers)
    return Response(transcript.to_markdown(), media_type="text/markdown; charset=utf-8", headers=headers)


def _seed() -> str:
    return str(secrets.randbelow(10**9))
