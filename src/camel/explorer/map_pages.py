"""The map's page, and what it asks for: points to draw, a text under the pointer, the list of what was chosen.

The one decision to know: the page is whole before any script runs. The legend, the groups' names and the list of a choice
are HTML from here; the script only draws points and puts names where they belong. Texts reach it as text.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.explorer import views
from camel.explorer.home import hidden_labels
from camel.explorer.maps import BY, MOST_CORNERS, MapView, Point, area_from, map_of, maps_in
from camel.explorer.routing import PageRequest, Site
from camel.explorer.views import Params
from camel.index.facets import FACETS
from camel.maps.texts import KINDS
from camel.query.answers import NotThere
from camel.reports.numbers import counted, short

ROWS = 40
"""Texts of a choice that are listed at a time."""
EXCERPT = 280
REPEATS = 12
"""Near-duplicates that are named."""
TITLES = {"cluster": "Group", **views.TITLES}


class _View:
    """What a request to the map is about."""

    def __init__(self, asked: PageRequest) -> None:
        self.asked, self.state, self.catalogue = asked, asked.state, asked.catalogue
        self.maps = maps_in(self.catalogue)
        wanted = [run for run in self.state.query.runs if run in self.maps] or list(self.maps)
        self.run = wanted[0] if wanted else ""
        kinds = self.maps.get(self.run, [])
        self.of = asked.last.get("of", "") or (kinds[0] if kinds else KINDS[0])
        if self.of not in KINDS:
            raise InputError(f"a map is of {' or '.join(KINDS)}, not of {shown(self.of)}")
        self.colour = asked.last.get("colour", "cluster")
        if self.colour not in BY:
            raise InputError(f"points are coloured by {', '.join(BY)}, not by {shown(self.colour)}")
        self.area = asked.last.get("area", "")[: 40 * MOST_CORNERS]

    def map(self) -> MapView:
        """The map."""
        if not self.run:
            raise NotThere("no run here has a map yet: camel map RUN --embedder MODEL makes one")
        return map_of(self.catalogue, self.run, self.of, self.state.query)

    def params(self, **changed: str) -> Params:
        """What makes this map's address, besides the query."""
        now = {"of": self.of, "colour": self.colour, "area": self.area, **changed}
        usual = {"of": (self.maps.get(self.run) or [""])[0], "colour": "cluster", "area": ""}
        return [(name, value) for name, value in now.items() if value and value != usual[name]]

    def url(self, path: str = "/map", *, query: Any = None, **changed: str) -> str:
        """A link to this map, or to another that differs in what is given."""
        asked = query or self.state.query
        if len(self.maps) > 1 and self.run and "run" not in changed:
            asked = replace(asked, runs=(self.run,))
        if "run" in changed:
            asked = replace(asked, runs=(changed.pop("run"),))
        return self.state.url(path, self.params(**changed), query=asked)

    def exact(self, path: str, *keep: str) -> str:
        """The address of something that the page asks for: nothing is left to what is usual."""
        params = [("of", self.of), *((name, getattr(self, name)) for name in keep)]
        return self.state.url(path, params, query=replace(self.state.query, runs=(self.run,)))


def add_map_pages(site: Site) -> None:
    """Add the map's routes."""
    get = site.get

    @get("/map")
    def the_map(asked: PageRequest) -> Response:
        view = _View(asked)
        there = view.run and view.of in view.maps[view.run]
        return asked.page("map.html", here="map", **(_shown(view) if there else _missing(view)))

    @get("/map/points")
    def points(asked: PageRequest) -> Response:
        view = _View(asked)
        return Response(view.map().points(view.colour), media_type="application/octet-stream")

    @get("/map/text")
    def text(asked: PageRequest) -> Response:
        view = _View(asked)
        found = view.map().at(asked.whole("at", 0, 2**32) or 0)
        said = {
            "text": _cut(found.text, 700),
            "group": found.label,
            "who": " and ".join(role for role in (found.user, found.assistant) if role),
            "id": found.id,
            "stop": views.words(found.stop),
            "link": _link(view, found),
        }
        return Response(msgspec.json.encode(said), media_type="application/json")

    @get("/map/rows")
    def rows(asked: PageRequest) -> Response:
        view = _View(asked)
        return asked.page("map_rows.html", **_choice(view, view.map()))


def _missing(view: _View) -> dict[str, Any]:
    """The page where there is no map yet."""
    runs = [one.address for one in view.catalogue.runs if not hidden_labels(one, view.asked.allowed)]
    return {
        "title": "Map",
        "command": f"camel map {runs[0] if runs else 'RUN'} --of {view.of} --embedder MODEL",
        "others": [
            {"name": f"{run}, {of}", "link": view.url(run=run, of=of)}
            for run, kinds in view.maps.items()
            for of in kinds
        ],
    }


def _shown(view: _View) -> dict[str, Any]:
    drawn = view.map()
    legend = drawn.legend(view.colour)
    header, state = drawn.header, view.state
    source = next(one for one in view.catalogue.runs if one.name == view.run)
    count = sum(part.rows for part in source.parts)
    stale = count - header.conversations
    area = area_from(view.area)
    return {
        "title": f"Map of {view.of}",
        "command": "",
        "run": view.run,
        "of": view.of,
        "total": len(drawn.rows),
        "figures": _figures(drawn),
        "about": f"{header.method} over vectors of {header.model}",
        "stale": f"{counted(stale, 'conversation')} came after this map was made: camel map {source.address} takes them in"
        if stale > 0 and not hidden_labels(source, view.asked.allowed)
        else "",
        "runs": [
            {"name": run, "on": run == view.run, "link": view.url(run=run, area="")} for run in view.maps
        ],
        "kinds": [
            {"name": of, "on": of == view.of, "link": view.url(of=of, area="")} for of in view.maps[view.run]
        ],
        "colours": [(name, TITLES[name]) for name in BY if name == "cluster" or name in TITLES],
        "colour": view.colour,
        "colour_keeps": [
            *((name, value) for name, value in view.params() if name != "colour"),
            *replace(state.query, runs=(view.run,) if len(view.maps) > 1 else state.query.runs).to_params(),
        ],
        "steps": legend.steps,
        "legend": [_entry(view, one) for one in legend.entries],
        "labels": [
            {"short": ", ".join(group.label.split(", ")[:2]), "x": group.x, "y": group.y, "n": n}
            for _, group, n in drawn.groups
        ],
        "chips": [{**chip, "link": _with(chip["link"], view)} for chip in views.chips(state, "/map")],
        "repeats": _repeats(view, drawn),
        "hidden": view.catalogue.restricted(),
        "here_link": view.url(),
        "area": view.area if area else "",
        "points": view.exact("/map/points", "colour"),
        "text": view.exact("/map/text"),
        "rows_link": view.exact("/map/rows"),
        "clear": view.url(area=""),
        **_choice(view, drawn),
    }


def _with(link: str, view: _View) -> str:
    """A link to the map with what this one shows."""
    more = views.url("", view.params()).lstrip("?")
    return f"{link}{'&' if '?' in link else '?'}{more}" if more else link


def _entry(view: _View, entry: Any) -> dict[str, Any]:
    query, by = view.state.query, view.colour
    name = views.facet_name(by, entry.value) if by in FACETS else entry.value
    single = by in FACETS and entry.colour < 8 and not (FACETS[by].many and ", " in entry.value)
    return {
        "name": name if entry.value or entry.colour < 8 else "others",
        "colour": entry.colour,
        "count": f"{entry.texts:,}",
        "x": entry.x,
        "y": entry.y,
        "group": by == "cluster",
        "on": by in FACETS and entry.value in query.facets.get(by, ()),
        "link": view.url(query=views.toggled(query, by, entry.value)) if single else "",
    }


def _figures(drawn: MapView) -> list[tuple[str, str, str]]:
    figures = [(short(len(drawn.rows)), drawn.header.of, "points on the map")]
    if (found := drawn.figures) is not None and len(drawn.rows) == len(drawn.visible):
        share = found.copies / found.texts
        figures += [
            (
                f"{share:.0%}" if share >= 0.01 or not share else f"{share:.2%}",
                "near-duplicates",
                f"{counted(found.copies, 'text')} with a cosine of {found.threshold:g} or more to an earlier one; {found.pairs:,} pairs",
            ),
            (
                "" if found.nearest is None else f"{found.nearest:.2f}",
                "to the nearest",
                "mean distance (1 - cosine) to the nearest other text",
            ),
            (
                f"{found.effective:.0f}",
                "effective number",
                "of different texts: Vendi score with cosine similarity",
            ),
        ]
    return [one for one in figures if one[0]]


def _repeats(view: _View, drawn: MapView) -> list[dict[str, str]]:
    """The closest near-duplicates of different conversations that the reader may see, side by side."""
    whole = len(drawn.visible) == len(drawn.file.x)
    made: list[dict[str, str]] = []
    for one in drawn.header.repeats:
        if (one.open or whole) and one.one != one.other and len(made) < REPEATS:
            sides = [("left", f"{view.run}/{one.one}"), ("right", f"{view.run}/{one.other}")]
            name = f"{_cut(one.one, 40)} and {_cut(one.other, 40)}"
            made.append({"cosine": f"{one.cosine:.2f}", "name": name, "link": views.url("/compare", sides)})
    return made


def _choice(view: _View, drawn: MapView) -> dict[str, Any]:
    """The texts within the line, or nothing where none is drawn."""
    area = area_from(view.area)
    if area is None:
        return {"chosen": None, "points_chosen": [], "more": ""}
    start = view.asked.whole("from", 0, 2**31) or 0
    found = drawn.inside(area)
    some = drawn.read(found[start : start + ROWS])
    more = ""
    if start + ROWS < len(found):
        params = [("of", view.of), ("area", view.area), ("from", str(start + ROWS))]
        more = view.state.url("/map/rows", params, query=replace(view.state.query, runs=(view.run,)))
    listed = [
        {
            "text": _cut(one.text, EXCERPT),
            "label": one.label,
            "roles": views.roles(one.user, one.assistant),
            "link": _link(view, one),
            "repeats": bool(one.copy_of),
        }
        for one in some
    ]
    return {"chosen": f"{len(found):,}", "points_chosen": listed, "more": more}


def _link(view: _View, point: Point) -> str:
    """The conversation of a point, at its message. Without the query: it may have come from a map of another run."""
    base = views.url(f"/conversation/{quote(view.run, safe='')}", [("id", point.id)])
    return base + views.at_message(point.message)


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
