"""The map's page and its data: points to draw, the text under the pointer, the list of selected texts.

The one decision to know: the page is complete before any script runs. The legend, the names of groups and the list of a
selection are HTML from here; the script draws points and positions names. Texts reach it as text.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.explorer import views
from camel.explorer.home import hidden_labels
from camel.explorer.maps import BY, MOST_CORNERS, MapView, Point, area_from, map_command, map_of, maps_in
from camel.explorer.routing import PageRequest, Site
from camel.explorer.views import Params
from camel.index.facets import FACETS
from camel.maps.embedding import KINDS
from camel.query.answers import NotThere
from camel.reports.numbers import counted, short

ROWS = 40
"""Number of selected texts that are listed at a time."""
EXCERPT = 280
REPEATS = 12
"""Maximum number of near-duplicates that the page names."""
TITLES = {"cluster": "Group", **views.TITLES}


class _View:
    """The map that a request asks for: run, kind of text, color and selected area."""

    def __init__(self, asked: PageRequest) -> None:
        self.asked, self.state, self.catalogue = asked, asked.state, asked.catalogue
        self.maps = maps_in(self.catalogue)
        wanted = [run for run in self.state.query.runs if run in self.maps] or list(self.maps)
        self.run = wanted[0] if wanted else ""
        kinds = self.maps.get(self.run, [])
        self.of = asked.last.get("of", "") or (kinds[0] if kinds else KINDS[0])
        if self.of not in KINDS:
            raise InputError(f"of must be {' or '.join(KINDS)}, not {shown(self.of)}")
        self.color = asked.last.get("color", "cluster")
        if self.color not in BY:
            raise InputError(f"color must be one of {', '.join(BY)}, not {shown(self.color)}")
        self.area = asked.last.get("area", "")[: 40 * MOST_CORNERS]

    def map(self) -> MapView:
        """Return the requested map. Raise `NotThere` if no run has a map."""
        if not self.run:
            raise NotThere(f"no run here has a map yet: make one with {map_command('RUN', self.of)}")
        return map_of(self.catalogue, self.run, self.of, self.state.query)

    def params(self, **changed: str) -> Params:
        """Return the URL parameters of this map, without those of the query and without default values."""
        now = {"of": self.of, "color": self.color, "area": self.area, **changed}
        usual = {"of": (self.maps.get(self.run) or [""])[0], "color": "cluster", "area": ""}
        return [(name, value) for name, value in now.items() if value and value != usual[name]]

    def url(self, path: str = "/map", *, query: Any = None, **changed: str) -> str:
        """Return a link to this map with the given changes."""
        asked = query or self.state.query
        if len(self.maps) > 1 and self.run and "run" not in changed:
            asked = replace(asked, runs=(self.run,))
        if "run" in changed:
            asked = replace(asked, runs=(changed.pop("run"),))
        return self.state.url(path, self.params(**changed), query=asked)

    def exact(self, path: str, *keep: str) -> str:
        """Return the URL of data that the page requests. It contains the run, the kind of text and the parameters in `keep`."""
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
        return Response(view.map().points(view.color), media_type="application/octet-stream")

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
    """Return the values of the page that is shown if there is no map yet."""
    runs = [one.address for one in view.catalogue.runs if not hidden_labels(one, view.asked.allowed)]
    return {
        "title": "Map",
        "install": "" if find_spec("sentence_transformers") else "pip install 'camel-society[map]'",
        "command": map_command(runs[0] if runs else "RUN", view.of),
        "others": [
            {"name": f"{run}, {of}", "link": view.url(run=run, of=of)}
            for run, kinds in view.maps.items()
            for of in kinds
        ],
    }


def _shown(view: _View) -> dict[str, Any]:
    drawn = view.map()
    legend = drawn.legend(view.color)
    header, state = drawn.header, view.state
    source = next(one for one in view.catalogue.runs if one.name == view.run)
    count = sum(part.rows for part in source.parts)
    stale = count - header.conversations
    area = area_from(view.area)
    return {
        "title": f"Map of {view.of}",
        "command": "",
        "run": view.run,
        "run_link": f"/run/{quote(view.run, safe='')}",
        "of": view.of,
        "total": len(drawn.rows),
        "figures": _figures(drawn),
        "about": header.about,
        "stale": f"{counted(stale, 'conversation')} came after this map was made: add them with {map_command(source.address, view.of)}"
        if stale > 0 and not hidden_labels(source, view.asked.allowed)
        else "",
        "runs": [
            {"name": run, "on": run == view.run, "link": view.url(run=run, area="")} for run in view.maps
        ],
        "kinds": [
            {"name": of, "on": of == view.of, "link": view.url(of=of, area="")} for of in view.maps[view.run]
        ],
        "colors": [(name, TITLES[name]) for name in BY if name == "cluster" or name in TITLES],
        "color": view.color,
        "color_keeps": [
            *((name, value) for name, value in view.params() if name != "color"),
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
        "points": view.exact("/map/points", "color"),
        "text": view.exact("/map/text"),
        "rows_link": view.exact("/map/rows"),
        "clear": view.url(area=""),
        **_choice(view, drawn),
    }


def _with(link: str, view: _View) -> str:
    """Return a link to the map with the parameters of this map added."""
    more = views.url("", view.params()).lstrip("?")
    return f"{link}{'&' if '?' in link else '?'}{more}" if more else link


def _entry(view: _View, entry: Any) -> dict[str, Any]:
    query, by = view.state.query, view.color
    name = views.facet_name(by, entry.value) if by in FACETS else entry.value
    single = by in FACETS and entry.color < 8 and not (FACETS[by].many and ", " in entry.value)
    return {
        "name": name if entry.value or entry.color < 8 else "other",
        "color": entry.color,
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
                "mean distance (1 - cosine) of a text to the nearest other one",
            ),
            (
                f"{found.effective:.0f}",
                "effective number",
                "number of texts that differ as much as these do: Vendi score with cosine similarity",
            ),
        ]
    return [one for one in figures if one[0]]


def _repeats(view: _View, drawn: MapView) -> list[dict[str, str]]:
    """Return the closest near-duplicates from different conversations, among those that the reader may see."""
    whole = len(drawn.visible) == len(drawn.file.x)
    made: list[dict[str, str]] = []
    for one in drawn.header.repeats:
        if (one.open or whole) and one.one != one.other and len(made) < REPEATS:
            sides = [("left", f"{view.run}/{one.one}"), ("right", f"{view.run}/{one.other}")]
            name = f"{_cut(one.one, 40)} and {_cut(one.other, 40)}"
            made.append({"cosine": f"{one.cosine:.2f}", "name": name, "link": views.url("/compare", sides)})
    return made


def _choice(view: _View, drawn: MapView) -> dict[str, Any]:
    """Return the texts inside the line that the reader has drawn. Return none if there is no line."""
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
    """Return the link to the message of a point. It omits the query, which may be about another run."""
    base = views.url(f"/conversation/{quote(view.run, safe='')}", [("id", point.id)])
    return base + views.at_message(point.message)


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
