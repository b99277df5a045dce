"""Pages of lists and conversations: the list with its facets, one conversation, two compared."""

from __future__ import annotations

import re
import secrets
from itertools import pairwise
from typing import Any

from markupsafe import Markup
from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from camel.core.errors import CamelError
from camel.explorer import views
from camel.explorer.compare import align
from camel.explorer.home import run_head
from camel.explorer.maps import maps_in
from camel.explorer.markup import as_plain
from camel.explorer.reading import ShownMessage, terms_of
from camel.explorer.routing import PageRequest, Site
from camel.explorer.score import pulse
from camel.explorer.views import PageState
from camel.query.where import Query
from camel.reports.numbers import counted, money, short

ROWS = 40
"""Rows of a page."""
SAMPLE = 20
HISTOGRAMS = 200_000
"""Conversations up to which facets of numbers are histograms; of more, the counted buckets are shown, which cost nothing."""
BINS = 14
FEWEST = 10
"""Conversations from which on a distribution is drawn."""


def add_list_pages(site: Site) -> None:
    """Add their routes."""
    get = site.get

    @get("/list")
    def listing(asked: PageRequest) -> Response:
        if (canonical := _canonical(asked)) is not None:
            return RedirectResponse(canonical, 303)
        query = asked.state.query
        return asked.page(
            "list.html",
            here="list",
            run=run_head(asked, query.runs[0], "list") if len(query.runs) == 1 else None,
            heading=f"“{query.text}”" if query.text else "Conversations",
            chips=views.chips(asked.state, "/list"),
            **browse(asked, asked.state),
        )

    @get("/pulses")
    def pulses(asked: PageRequest) -> Response:
        """The pulses of some conversations. A list loads them after its page, because each is read from the data."""
        drawn: list[dict[str, Any] | None] = []
        for address in asked.request.query_params.getlist("of")[:ROWS]:
            run, _, id = address.partition("/")
            try:
                drawn.append(pulse(asked.catalogue.conversation(run, id)))
            except (CamelError, OSError):
                drawn.append(None)
        return asked.page("pulses.html", pulses=drawn)

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
        near = asked.catalogue.neighbours(run, id, state.query)
        address = f"{run}/{id}"
        other = state.pin and state.pin != address
        base = views.url(f"/conversation/{views.quote(run, safe='')}", [])
        after = near.next
        return asked.page(
            "conversation.html",
            here="list",
            conversation=views.conversation(
                run, transcript, asked.catalogue.row(run, id).cost, run_link=views.run_url(run)
            ),
            run_link=views.run_url(run),
            terms=terms_of(state.query.text),
            raw=state.raw,
            thoughts=True,
            raw_link=state.conversation(run, id, raw=not state.raw),
            up=state.url("/list"),
            up_name="Results" if state.query.to_params() else "All conversations",
            previous=near.previous and state.conversation(near.previous.run, near.previous.id),
            next=after and state.conversation(after.run, after.id),
            next_title=after and views.title_of(views.roles(after.user, after.assistant, *after.others)),
            random=state.url("/random"),
            json=views.url(f"{base}/json", [("id", id)]),
            markdown=views.url(f"{base}/markdown", [("id", id)]),
            permalink=views.url(base, [("id", id)]),
            pin=state.compare(address, []) if other else state.url("/list", pin=address),
            pin_text="Compare with pinned" if other else "Compare",
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
        terms, parts = terms_of(state.query.text), site.pages.get_template("parts.html").module

        def render(shown: ShownMessage) -> Markup:
            return as_plain(shown.message.content, terms) if state.raw else parts.text_of(shown, terms)  # type: ignore[attr-defined]

        compared: list[dict[str, Any]] = []
        for address in sides:
            run, _, id = address.partition("/")
            made = views.conversation(run, asked.catalogue.conversation(run, id), run_link=views.run_url(run))
            compared.append(made | {"link": state.conversation(run, id)})
        return asked.page(
            "compare.html",
            here="list",
            sides=compared,
            turns=align(compared[0]["messages"], compared[1]["messages"], render),
            terms=terms,
            raw=state.raw,
            thoughts=True,
            raw_link=state.url("/compare", [("left", sides[0]), ("right", sides[1])], raw=not state.raw),
            swap=state.url("/compare", [("left", sides[1]), ("right", sides[0])]),
            up=state.url("/list"),
        )


def browse(
    asked: PageRequest, state: PageState, rows: int = ROWS, without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The facets, rows and links of a list, for the template `browse.html`."""
    query, catalogue = state.query, asked.catalogue
    after, before = asked.last.get("after"), asked.last.get("before")
    at, sample = asked.whole("at", 1, 2**53), asked.whole("sample", 1, 200)
    seed = asked.whole("seed", 0, 2**53) or 0
    here = [
        (name, asked.last[name]) for name in ("after", "before", "at", "sample", "seed") if name in asked.last
    ]
    paging: dict[str, Any] = {"next": None, "previous": None, "where": ""}
    notes: list[str] = []
    if sample:
        found = catalogue.sample(query, sample, seed)
        shown = [views.list_row(row, None, state, here) for row in found]
        total = catalogue.count(query)
        summary = f"{len(shown):,} at random of {counted(total, 'conversation')}"
    else:
        result = catalogue.jump(query, at - 1, rows) if at else catalogue.page(query, after, before, rows)
        shown = [
            views.list_row(row, result.at + number, state, here) for number, row in enumerate(result.rows)
        ]
        # Notes about whole runs are on the first page; here, those about this list.
        total, notes = result.total, [note for note in result.notes if note not in catalogue.notes()]
        paging = {
            "next": result.next and state.url("/list", [("after", result.next)]),
            "previous": result.previous and state.url("/list", [("before", result.previous)]),
            "where": f"{result.at + 1:,} to {result.at + len(shown):,} of {total:,}" if shown else "",
        }
        summary = counted(total, "conversation")
    kept = state.params()
    histograms = _histograms(asked, state) if catalogue.count() <= HISTOGRAMS else []
    drawn = {"messages": "length", "tokens": "size", "cost": "cost"}
    return {
        "facets": views.facet_lists(
            state, catalogue.facets(query), [*without, *(drawn[one["name"]] for one in histograms)]
        ),
        "histograms": histograms,
        "ranges": views.ranges(query),
        "range_keeps": [(key, value) for key, value in kept if not key.endswith("-range")],
        "summary": summary,
        "total": total,
        "rows": shown,
        "pulses": views.url("/pulses", [("of", row["address"]) for row in shown]),
        "several_runs": len(catalogue.runs) > 1 and len(query.runs) != 1,
        "notes": notes,
        "hidden": catalogue.restricted(),
        "pinned": state.pin and {"name": state.pin, "unpin": state.url("/list", here, pin="")},
        "sampling": bool(sample),
        "again": state.url("/list", [("sample", str(sample or SAMPLE)), ("seed", _seed())]),
        "whole": state.url("/list"),
        "sample": state.url("/list", [("sample", str(SAMPLE)), ("seed", _seed())]),
        "random": state.url("/random"),
        "statistics": state.url("/statistics"),
        "map": state.url("/map") if maps_in(catalogue) else "",
        "sorts": {} if sample else _sorts(state),
        "jump_keeps": kept,
        "filtered": bool(kept),
        **paging,
    }


def _sorts(state: PageState) -> dict[str, dict[str, str]]:
    """By column: the link that sorts by it, or reverses the order, and the order it has now."""
    made: dict[str, dict[str, str]] = {}
    for name in ("", "messages", "tokens", "cost"):
        now = state.query.sort == name
        order = ("desc" if state.query.order == "asc" else "asc") if now else "desc" if name else "asc"
        shown = {"asc": "ascending", "desc": "descending"}[state.query.order] if now else ""
        sorted_query = replace(state.query, sort=name, order=order)
        made[name] = {"link": state.url("/list", query=sorted_query), "order": shown}
    return made


def _histograms(asked: PageRequest, state: PageState) -> list[dict[str, Any]]:
    """Facets of numbers: bars that each link to their range; one distinct value, or few values, have none."""
    made: list[dict[str, Any]] = []
    for name in ("messages", "tokens", "cost"):
        chosen = state.query.ranges.get(name)
        rest = {other: limits for other, limits in state.query.ranges.items() if other != name}
        found = asked.catalogue.histogram(replace(state.query, ranges=rest), name, bins=BINS)
        counts = found.series.get("", [])
        if sum(counts) < FEWEST or len(counts) < 2 or found.summary is None:
            continue
        low, high = chosen or (None, None)
        bars: list[dict[str, Any]] = []
        for place, ((start, end), count) in enumerate(zip(pairwise(found.edges), counts, strict=True)):
            last = end if name == "cost" else end - 1
            limits = rest | {name: (start, last)}
            inside = chosen is not None and (low is None or last >= low) and (high is None or start <= high)
            bars.append(
                {
                    "x": round(place * 232 / len(counts), 1),
                    "width": round(232 / len(counts) - 1.5, 1),
                    "height": round(44 * count / max(counts), 1),
                    "in": inside,
                    "link": state.url("/list", query=replace(state.query, ranges=limits)),
                    "says": f"{counted(count, 'conversation')}, {_number(name, start)} to {_number(name, last)}",
                }
            )
        # One bar ends at the largest value, several may end after it.
        ends = asked.catalogue.histogram(replace(state.query, ranges=rest), name, bins=1).edges
        made.append(
            {
                "name": name,
                "title": views.NUMBER_TITLES[name],
                "bars": bars,
                "low": _number(name, ends[0]),
                "high": _number(name, ends[1] - (name != "cost")),
                "median": _number(name, found.summary.median),
                "reset": state.url("/list", query=replace(state.query, ranges=rest)) if chosen else "",
            }
        )
    return made


def _number(name: str, value: float) -> str:
    return money(value) if name == "cost" else short(value)


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
    return asked.state.url("/list", query=replace(asked.state.query, ranges=ranges))


def _copy(asked: PageRequest, kind: str) -> Response:
    """A conversation as a file, with its labels."""
    run, id = asked.request.path_params["run"], asked.last.get("id", "")
    transcript = asked.catalogue.conversation(run, id)
    headers: dict[str, str] = {}
    if asked.last.get("download"):
        # The name comes from outside and goes into a header and onto a disk: letters, digits and little else.
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{run}-{id}").strip("-")[:100] or "conversation"
        headers["content-disposition"] = f'attachment; filename="{name}.{kind}"'
    if kind == "json":
        return Response(transcript.to_json(), media_type="application/json", headers=headers)
    return Response(transcript.to_markdown(), media_type="text/markdown; charset=utf-8", headers=headers)


def _seed() -> str:
    return str(secrets.randbelow(10**9))
