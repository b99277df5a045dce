"""Pages of lists and conversations: the list with its facets, one conversation, two compared turn by turn, two groups."""

from __future__ import annotations

import csv
import io
import math
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, groupby, pairwise, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import msgspec
from markupsafe import Markup
from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response, StreamingResponse

from camel.core.errors import CamelError, InputError
from camel.explorer import views
from camel.explorer.charts import csv_cell, printable, shares
from camel.explorer.credit_curve import credit_of
from camel.explorer.forks import branches, can_fork
from camel.explorer.home import labels_in, run_head, source_of
from camel.explorer.maps import maps_in
from camel.explorer.markup import HTML_TAG, as_plain
from camel.explorer.reading import ShownMessage, pulse, terms_of
from camel.explorer.routing import PageRequest, Site
from camel.explorer.views import PageState, url
from camel.index.facets import NUMBERS
from camel.query.answers import NotThere, Page, Row
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.record.release import RESTRICTED, Release, check_labels, marks
from camel.reports.numbers import counted
from camel.runs.canary import canary_of

MOST_WORDS = 1_000
"""Maximum length of a compared message, in words. Comparing longer messages would take too long."""
LEAST = 0.3
"""Minimum share of equal words for which differences are marked, because unrelated texts differ everywhere."""
_SPACE = re.compile(r"(\s+)")


class AlignedTurn(NamedTuple):
    """The messages of one turn, one per side. In the texts, words that the other side does not have are marked."""

    messages: tuple[ShownMessage | None, ShownMessage | None]
    """The message of each side. None for a side whose conversation has ended."""
    texts: tuple[Markup, Markup]


def align(
    left: Sequence[ShownMessage], right: Sequence[ShownMessage], render: Callable[[ShownMessage], Markup]
) -> list[AlignedTurn]:
    """Pair the messages of both sides by position: the first with the first, the second with the second."""
    turns: list[AlignedTurn] = []
    for pair in zip_longest(left, right):
        texts = [Markup("") if one is None else render(one) for one in pair]
        turns.append(AlignedTurn(pair, mark_changes(texts[0], texts[1])))
    return turns


def mark_changes(left: str, right: str) -> tuple[Markup, Markup]:
    """Put a span around the words of each HTML text that the other text does not contain."""
    sides = [HTML_TAG.split(text) for text in (left, right)]  # every second piece is a tag or a formula
    words = [[word for text in side[::2] for word in text.split()] for side in sides]
    found = SequenceMatcher(None, words[0], words[1])
    if not 0 < max(map(len, words)) <= MOST_WORDS or words[0] == words[1] or found.ratio() < LEAST:
        return Markup(left), Markup(right)  # noqa: S704 - both are HTML already
    same = found.get_matching_blocks()
    kept_left = {one.a + n for one in same for n in range(one.size)}
    kept_right = {one.b + n for one in same for n in range(one.size)}
    return _with_spans(sides[0], kept_left), _with_spans(sides[1], kept_right)


def _with_spans(pieces: list[str], kept: set[int]) -> Markup:
    """Join the pieces. Words whose index is not in `kept` get a span, and consecutive words share one."""
    number = 0
    for place in range(0, len(pieces), 2):
        parts: list[tuple[bool, str]] = []
        for part in _SPACE.split(pieces[place]):
            is_word = bool(part.strip())
            changed = number not in kept if is_word else bool(parts) and parts[-1][0]
            parts.append((changed, part))
            number += is_word
        runs = [(one, "".join(text for _, text in some)) for one, some in groupby(parts, itemgetter(0))]
        pieces[place] = "".join(_span(text) if changed else text for changed, text in runs)
    return Markup("".join(pieces))  # noqa: S704 - the words of HTML in spans of ours


def _span(text: str) -> str:
    """Put a span around a changed text, but not around the space after it."""
    words = text.rstrip()
    return f'<span class="changed">{words}</span>{text[len(words) :]}' if words else text


ROWS, TABLE_ROWS = 40, 100
"""Maximum number of rows on a page of the list, and on a page of the table view, where each row is one line."""
HISTOGRAMS = 200_000
"""Maximum number of conversations for histograms in the facets. Above it, the facets show the buckets of the index."""
BINS = 14
FEWEST = 10
"""Minimum number of conversations for a histogram."""


def add_list_pages(site: Site) -> None:
    """Add the routes of lists and conversations."""
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
            **browse(asked, asked.state, TABLE_ROWS if asked.state.columns else ROWS),
        )

    @get("/pulses")
    def pulses(asked: PageRequest) -> Response:
        """Return the pulses of some conversations. Lists load them after the page, because each is read from the data."""
        drawn: list[Any] = []
        for address in asked.request.query_params.getlist("of")[:ROWS]:
            run, _, id = address.partition("/")
            try:
                drawn.append(pulse(asked.catalogue.conversation(run, id)))
            except (CamelError, OSError):
                drawn.append(None)
        return asked.page("pulses.html", pulses=drawn)

    @get("/random")
    def random(asked: PageRequest) -> Response:
        found = asked.catalogue.sample(asked.state.query, 1, secrets.randbelow(10**9))
        if not found:
            return RedirectResponse(asked.state.url("/list"), 303)
        return RedirectResponse(asked.state.conversation(found[0].run, found[0].id), 303)

    @get("/conversation/{run}")
    def conversation(asked: PageRequest) -> Response:
        run, id, state = asked.request.path_params["run"], asked.last.get("id", ""), asked.state
        transcript = asked.catalogue.conversation(run, id)
        near = asked.catalogue.neighbors(run, id, state.query)
        row, after = asked.catalogue.row(run, id), near.next
        source, shown = source_of(asked.catalogue, run), views.conversation(run, transcript, row.cost)
        return asked.page(
            "conversation.html",
            here="list",
            conversation=shown,
            row=row,
            families=branches(asked.catalogue, run, transcript),
            forks=url(f"/fork/{quote(run, safe='')}", [("id", id)]) if can_fork(source, transcript) else "",
            credit=credit_of(source, transcript, shown["score"]),
            terms=terms_of(state.query.text),
            raw=state.raw,
            thoughts=True,
            previous=near.previous and state.conversation(near.previous.run, near.previous.id),
            next=after and state.conversation(after.run, after.id),
            next_title=after and views.title_of(views.roles(after.user, after.assistant, *after.others)),
        )

    get("/conversation/{run}/json")(lambda asked: _copy(asked, "json"))
    get("/conversation/{run}/markdown")(lambda asked: _copy(asked, "md"))

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
            compared.append(views.conversation(run, asked.catalogue.conversation(run, id)))
        turns = align(compared[0]["messages"], compared[1]["messages"], render)
        start = asked.whole("from", 1, max(1, len(turns))) or 1
        return asked.page(
            "compare.html",
            here="list",
            sides=compared,
            turns=turns[start - 1 :],
            start=start,
            terms=terms,
            thoughts=True,
        )


def browse(
    asked: PageRequest, state: PageState, most: int = ROWS, without: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the facets and rows of a list, for the template `browse.html`."""
    query, catalogue, last = state.query, asked.catalogue, asked.last
    at, sample = asked.whole("at", 1, 2**53), asked.whole("sample", 1, 200)
    here = [(name, last[name]) for name in ("after", "before", "at", "sample", "seed") if name in last]
    if sample:
        rows = catalogue.sample(query, sample, asked.whole("seed", 0, 2**53) or 0)
        page = Page(rows, None, None, catalogue.count(query), 0)
    elif at:
        page = catalogue.jump(query, at - 1, most)
    else:
        page = catalogue.page(query, last.get("after"), last.get("before"), most)
    numbers = [None if sample else page.at + place for place in range(len(page.rows))]
    histograms = _histograms(asked, state) if catalogue.count() <= HISTOGRAMS else []
    drawn = {"messages": "length", "tokens": "size", "cost": "cost"}
    without = [*without, *(drawn[one["name"]] for one in histograms)]
    sampled = f"{len(page.rows):,} at random of " if sample else ""
    return {
        "facets": views.facet_lists(state, catalogue.facets(query), without),
        "histograms": histograms,
        "page": page,
        "rows": [views.list_row(row, at, state, here) for row, at in zip(page.rows, numbers, strict=True)],
        "summary": sampled + counted(page.total, "conversation"),
        "several_runs": len(catalogue.runs) > 1 and len(query.runs) != 1,
        # Notes about whole runs are on the first page; here, those about this list.
        "notes": [note for note in page.notes if note not in catalogue.notes()],
        "hidden": catalogue.restricted(),
        "paging": here,
        "sampling": bool(sample),
        "seed": str(secrets.randbelow(10**9)),
        "has_map": bool(maps_in(catalogue)),
        "sorts": {} if sample else _sorts(state),
    }


def _sorts(state: PageState) -> dict[str, dict[str, str]]:
    """Return, for each column, its current order and the link that sorts by it or reverses the order."""
    query, made = state.query, dict[str, dict[str, str]]()
    for name in ("", *NUMBERS):
        now = query.sort == name
        order = {"asc": "desc", "desc": "asc"}[query.order] if now else "desc" if name else "asc"
        link = state.url("/list", query=replace(query, sort=name, order=order))
        made[name] = {"link": link, "order": f"{query.order}ending" if now else ""}
    return made


def _histograms(asked: PageRequest, state: PageState) -> list[dict[str, Any]]:
    """Return a histogram for each numeric column, with a link from each bar to its range. Columns with too few values have none."""
    made: list[dict[str, Any]] = []
    for name in ("messages", "tokens", "cost"):
        rest = {other: limits for other, limits in state.query.ranges.items() if other != name}
        query = replace(state.query, ranges=rest)
        found = asked.catalogue.histogram(query, name, bins=BINS)
        counts, chosen = found.series.get("", []), state.query.ranges.get(name)
        if sum(counts) < FEWEST or len(counts) < 2 or found.summary is None:
            continue
        spans = [(low, high if name == "cost" else high - 1) for low, high in pairwise(found.edges)]
        low, high = (-math.inf if one is None else one for one in chosen or (None, None))
        # A histogram of one bar ends at the largest value; one of several may end after it.
        ends = asked.catalogue.histogram(query, name, bins=1).edges
        made.append(
            {
                "name": name,
                "title": views.NUMBER_TITLES[name],
                "counts": counts,
                "spans": spans,
                "inside": [chosen is not None and b >= low and (high < 0 or a <= high) for a, b in spans],
                "links": [
                    state.url("/list", query=replace(query, ranges=rest | {name: one})) for one in spans
                ],
                "ends": (ends[0], ends[1] - (name != "cost")),
                "median": found.summary.median,
                "shown": views.number_words(name),
                "reset": state.url("/list", query=query) if chosen else "",
            }
        )
    return made


def _canonical(asked: PageRequest) -> str | None:
    """Return the URL with a range in one parameter if a form sent the range in two fields. Otherwise return None."""
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
    """Return a conversation as a JSON or Markdown file, with its labels."""
    run, id = asked.request.path_params["run"], asked.last.get("id", "")
    transcript = asked.catalogue.conversation(run, id)
    headers: dict[str, str] = {}
    if asked.last.get("download"):
        # The name comes from the URL and is used in a header and as a file name, so it is restricted to a few characters.
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{run}-{id}").strip("-")[:100] or "conversation"
        headers["content-disposition"] = f'attachment; filename="{name}.{kind}"'
    if kind == "json":
        return Response(transcript.to_json(), media_type="application/json", headers=headers)
    return Response(transcript.to_markdown(), media_type="text/markdown; charset=utf-8", headers=headers)


Releases = Mapping[str, Release]
COLUMNS = tuple(name for name in Row.__struct_fields__ if name not in ("shard", "row", "hit"))


def add_downloads(site: Site) -> None:
    """Add the route for downloads: CSV with one line per conversation, or JSONL with complete conversations.

    A download is streamed page by page, so its size is not limited by memory. An error closes the connection, so that the
    browser reports a failed download instead of storing an incomplete file.
    """

    @site.get("/download/{file}")
    def download(asked: PageRequest) -> Response:
        file, catalogue = asked.request.path_params["file"], asked.catalogue
        if file not in FILES:
            raise NotThere(f"there is no such download. Choose from {', '.join(FILES)}")
        media, rows, write = FILES[file]
        # Errors are raised here, before the response begins.
        releases = releases_of(catalogue, asked.state.query, asked.allowed)
        pages = (page.rows for page in catalogue.pages(asked.state.query, rows))
        lines = write(catalogue, releases, chain([next(pages)], pages))
        headers = {"content-disposition": f'attachment; filename="{file}"'}
        return StreamingResponse(lines, media_type=media, headers=headers)


def releases_of(catalogue: Catalogue, query: Query, allowed: frozenset[str]) -> Releases:
    """Return the release settings of each run. Restricted conversations need consent and a canary, as in an export."""
    chosen = [one for one in catalogue.runs if not query.runs or one.name in query.runs]
    restricted = {one.name for one in chosen if labels_in(one) & RESTRICTED & allowed}
    return {
        one.name: Release(True, canary_of(one.folder)) if one.name in restricted else Release()
        for one in chosen
    }


def _csv(catalogue: Catalogue, releases: Releases, pages: Iterable[Sequence[Row]]) -> Iterator[str]:
    yield ",".join((*COLUMNS, "canary")) + "\n"
    for rows in pages:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for row in rows:
            restricted = check_labels(row.id, row.labels, releases[row.run])
            values: list[Any] = [getattr(row, name) for name in COLUMNS]
            cells = ["; ".join(cast("Any", value)) if isinstance(value, tuple) else value for value in values]
            writer.writerow([*map(csv_cell, cells), releases[row.run].canary if restricted else ""])
        yield text.getvalue()


def _jsonl(catalogue: Catalogue, releases: Releases, pages: Iterable[Sequence[Row]]) -> Iterator[bytes]:
    for rows in pages:
        yield msgspec.json.Encoder().encode_lines(
            {"run": row.run, **msgspec.to_builtins(one), **marks(one, releases[row.run])}
            for row, one in zip(rows, catalogue.conversations(rows), strict=True)
        )


FILES: Mapping[str, tuple[str, int, Callable[..., Iterator[str] | Iterator[bytes]]]] = {
    "conversations.csv": ("text/csv; charset=utf-8", 1_000, _csv),
    "conversations.jsonl": ("application/jsonl", 200, _jsonl),
}
"""By file name: media type, number of conversations to read at a time, and the function that writes them."""


# --- two groups: a selection with another run, or with all other conversations -------------------------------------
# Only group A and both groups together are counted, and group B is the difference. So a comparison with all other
# conversations of a large run takes no longer than counting all conversations.

REST = "-"
"""The value of the run parameter that means all other conversations. No run's name begins with it."""
FACETS = ("stop", "finding", "scenario", "label", "user", "assistant", "other", "model")
CONTRASTED = ("messages", "tokens", "cost")
CONTRAST_BINS, MOST = 12, 10


class GroupPair(NamedTuple):
    """The queries for group A and for both groups together. Group B is the difference."""

    a: Query
    both: Query
    names: tuple[str, str]


def add_contrast_pages(site: Site) -> None:
    """Add the routes of the pages that compare two groups."""

    @site.get("/contrast")
    def contrast(asked: PageRequest) -> Response:
        groups = groups_of(asked)
        return asked.page(
            "contrast.html",
            here="list",
            groups=groups,
            counts=counts_of(asked, groups) if groups else (0, 0),
            plots=plots_of(asked, groups) if groups else [],
            runs=[run.name for run in asked.catalogue.runs],
            against=asked.last.get("against", ""),
            chips=views.chips(asked.state, "/contrast"),
        )

    @site.get("/contrast/groups.csv")
    def as_csv(asked: PageRequest) -> Response:
        if (groups := groups_of(asked)) is None:
            raise InputError("no second group is given. Choose one on the page first")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["plot", "value", "group", "conversations", "share", "low", "high"])
        for plot in plots_of(asked, groups):
            for row in plot["rows"]:
                for name, side in zip(groups.names, row["sides"], strict=True):
                    writer.writerow(map(csv_cell, [plot["name"], row["name"], name, *side.values()]))
        headers = {"content-disposition": 'attachment; filename="groups.csv"'}
        return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def groups_of(asked: PageRequest) -> GroupPair | None:
    """Return the two groups that the URL names. Return None if it names only one."""
    query, against = asked.state.query, asked.last.get("against", "")
    chosen = ", ".join(chip["name"] for chip in views.chips(asked.state, "/contrast")) or "all"
    if against == REST:
        # A filter is compared with the other conversations of its runs, a run with all other runs.
        plain = query.to_params() == [("run", name) for name in query.runs]
        return GroupPair(query, Query() if plain else Query(query.runs), (chosen, "everything else"))
    if not against or not query.runs:
        return None
    return GroupPair(query, replace(query, runs=(*query.runs, against)), (chosen, f"Run: {against}"))


def counts_of(asked: PageRequest, groups: GroupPair) -> tuple[int, int]:
    """Count the conversations of each group."""
    a, both = asked.catalogue.count(groups.a), asked.catalogue.count(groups.both)
    return a, both - a


def plots_of(asked: PageRequest, groups: GroupPair) -> list[dict[str, Any]]:
    """Return the plots that compare two groups. Filtered fields have no plot, because it would only show the filter."""
    catalogue, totals, query = asked.catalogue, counts_of(asked, groups), groups.a
    made: list[dict[str, Any]] = []
    for number in CONTRASTED:
        both = catalogue.histogram(groups.both, number, bins=CONTRAST_BINS)
        if number not in query.ranges and both.series and len(both.edges) > 2:
            a = catalogue.histogram(groups.a, number, edges=both.edges).series.get("", [0] * CONTRAST_BINS)
            written = "${:.2g}" if number == "cost" else "{:,.0f}"
            names = [written.format(edge if edge >= 0.0001 else 0) for edge in both.edges]
            made.append(_plot(number, views.NUMBER_TITLES[number], names, both.series[""], a, totals))
    facets, of_a = catalogue.facets(groups.both), dict(catalogue.facets(groups.a))
    for name in FACETS:
        values, mine = facets[name][:MOST], dict(of_a[name])
        if not query.facets.get(name) and (len(values) > 1 or (name == "finding" and values)):
            names = [printable(views.facet_name(name, value)) for value, _ in values]
            a = [mine.get(value, 0) for value, _ in values]
            made.append(_plot(name, views.TITLES[name], names, [n for _, n in values], a, totals))
    return made


def _plot(
    name: str,
    title: str,
    names: Sequence[str],
    both: Sequence[int],
    a: Sequence[int],
    totals: tuple[int, int],
) -> dict[str, Any]:
    """Return the values of a plot, and for each group the count and the share of each value, with its interval."""
    rows = [
        {"name": value, "sides": [{"n": n, **shares(n, of)} for n, of in zip(pair, totals, strict=True)]}
        for value, *pair in zip(names, a, [n - m for n, m in zip(both, a, strict=True)], strict=False)
    ]
    return {"name": name, "title": title, "numbers": name in CONTRASTED, "rows": rows}
