"""Pages of lists and conversations: the runs, the list, one conversation, two side by side."""

from __future__ import annotations

import re
import secrets
from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from camel.explorer import views
from camel.explorer.home import run_cards
from camel.explorer.maps import maps_in
from camel.explorer.reading import terms_of
from camel.explorer.routing import PageRequest, Site
from camel.query.where import Query
from camel.reports.numbers import counted

ROWS = 40
"""Rows of a page."""
SAMPLE = 20


def add_list_pages(site: Site) -> None:
    """Add their routes."""
    get = site.get

    @get("/")
    def home(asked: PageRequest) -> Response:
        return asked.page(
            "runs.html",
            here="runs",
            runs=run_cards(asked.catalogue, asked.allowed),
            total=asked.catalogue.count(),
            restricted=asked.catalogue.restricted(),
            notes=asked.catalogue.notes(),
        )

    @get("/list")
    def listing(asked: PageRequest) -> Response:
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
            total, notes = asked.catalogue.count(query), []
            paging = {"next": None, "previous": None, "where": ""}
            summary = f"{len(rows):,} at random of {counted(total, 'conversation')}"
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
            total = result.total
            notes = [note for note in result.notes if note not in asked.catalogue.notes()]
            paging = {
                "next": result.next and state.url("/list", [("after", result.next)]),
                "previous": result.previous and state.url("/list", [("before", result.previous)]),
                "where": f"{result.at + 1:,}–{result.at + len(rows):,} of {total:,}" if rows else "",
            }
            summary = counted(total, "conversation")
        kept = state.params()
        return asked.page(
            "list.html",
            here="list",
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
            hidden=asked.catalogue.restricted(),
            pinned=state.pin and {"name": state.pin, "unpin": state.url("/list", here, pin="")},
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
            **paging,
        )

    @get("/random")
    def random(asked: PageRequest) -> Response:
        found = asked.catalogue.sample(asked.state.query, 1, int(_seed()))
        if not found:
            return RedirectResponse(asked.state.url("/list"), 303)
        return RedirectResponse(asked.state.conversation(found[0].run, found[0].id), 303)

    @get("/conversation/{run}")
    def conversation(asked: PageRequest) -> Response:
        run, id, state = asked.request.path_params["run"], asked.last.get("id", ""), asked.state
        transcript = asked.catalogue.conversation(run, id)
        beside = asked.catalogue.neighbours(run, id, state.query)
        address = f"{run}/{id}"
        other = state.pin and state.pin != address
        base = f"/conversation/{quote(run, safe='')}"
        return asked.page(
            "conversation.html",
            talk=views.talk(run, transcript, asked.catalogue.row(run, id).cost),
            run_title=run,
            terms=terms_of(state.query.text),
            raw=state.raw,
            thoughts=True,
            raw_link=state.conversation(run, id, raw=not state.raw),
            up=state.url("/list"),
            up_name="Results" if state.query.to_params() else "All conversations",
            previous=beside.previous and state.conversation(beside.previous.run, beside.previous.id),
            next=beside.next and state.conversation(beside.next.run, beside.next.id),
            random=state.url("/random"),
            json=views.url(f"{base}/json", [("id", id)]),
            markdown=views.url(f"{base}/markdown", [("id", id)]),
            permalink=views.url(base, [("id", id)]),
            pin=state.compare(address, []) if other else state.url("/list", pin=address),
            pin_text="Compare with pinned" if other else "Compare with another",
        )

    @get("/conversation/{run}/json")
    def as_json(asked: PageRequest) -> Response:
        return _copy(asked, "json")

    @get("/conversation/{run}/markdown")
    def as_markdown(asked: PageRequest) -> Response:
        return _copy(asked, "md")

    @get("/compare")
    def compare(asked: PageRequest) -> Response:
        state = asked.state
        sides = [asked.last.get(side, "") for side in ("left", "right")]
        talks: list[dict[str, Any]] = []
        for address in sides:
            run, _, id = address.partition("/")
            made = views.talk(run, asked.catalogue.conversation(run, id))
            talks.append(made | {"link": state.conversation(run, id)})
        return asked.page(
            "compare.html",
            talks=talks,
            terms=terms_of(state.query.text),
            raw=state.raw,
            thoughts=True,
            raw_link=state.url("/compare", [("left", sides[0]), ("right", sides[1])], raw=not state.raw),
            swap=state.url("/compare", [("left", sides[1]), ("right", sides[0])]),
            up=state.url("/list"),
        )


def _canonical(asked: PageRequest) -> str | None:
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


def _copy(asked: PageRequest, kind: str) -> Response:
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
