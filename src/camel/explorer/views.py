"""Prepares answers of the catalogue for pages: links, rows, facets, a conversation.

The one decision to know: the whole state of a page is its URL. Every choice of the reader is a link to the same page with
another query, pin or view, so that pages can be bookmarked and sent to others, and work without JavaScript.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup
from msgspec.structs import replace

from camel.core.results import result_rows
from camel.core.transcript import Transcript
from camel.explorer.colors import GRAY, SEATS, Mark, ending
from camel.explorer.reading import findings, marks_of, score, shown_messages
from camel.index.build import UNFINISHED
from camel.query.answers import Row
from camel.query.parts import ANNOTATED
from camel.query.where import Query
from camel.reports.numbers import money, short

MOST = 150
"""Maximum number of values that a facet shows. The reader can search for the others."""
TITLES = {
    "run": "Run",
    "stop": "Ending",
    "finding": "Finding",
    "scenario": "Scenario",
    "user": "User",
    "assistant": "Assistant",
    "other": "Other roles",
    "length": "Messages",
    "size": "Tokens",
    "cost": "Cost in dollars",
    "model": "Model",
    "label": "Label",
    "tool": "Tool",
    "starred": "Annotation",
    "noted": "Annotation",
    "tag": "Tag",
}
NUMBER_TITLES = {"messages": "Messages", "tokens": "Tokens", "calls": "Calls", "cost": "Dollars"}

BOOST = Markup('hx-boost="true"')
"""Attribute of links that stay on the page: htmx replaces only its content. Without JavaScript they are ordinary links."""

Params = list[tuple[str, str]]


class PageState(NamedTuple):
    """What pages pass to each other: the query, the conversation pinned for comparison, and the view of messages."""

    query: Query
    pin: str = ""
    raw: bool = False
    columns: tuple[str, ...] = ()
    """Columns of the table view. Empty if the page shows the list."""

    def params(self, **changed: Any) -> Params:
        """Return the state as parameters of a URL."""
        state = self._replace(**changed)
        params = state.query.to_params()
        params += [("pin", state.pin)] if state.pin else []
        params += [("columns", ",".join(state.columns))] if state.columns else []
        return params + ([("view", "raw")] if state.raw else [])

    def url(self, path: str, extra: Iterable[tuple[str, str]] = (), **changed: Any) -> str:
        """Return a link to another page with this state and the given changes."""
        return url(path, [*extra, *self.params(**changed)])

    def conversation(self, run: str, id: str, **changed: Any) -> str:
        """Return the link to a conversation."""
        return self.url(f"/conversation/{quote(run, safe='')}", [("id", id)], **changed)

    def compare(self, address: str, here: Params) -> str:
        """Return the link that compares a conversation with the pinned one. If none is pinned, the link pins it."""
        if self.pin and self.pin != address:
            return self._replace(pin="").url("/compare", [("left", self.pin), ("right", address)])
        return self.url("/list", here, pin="" if self.pin else address)


def url(path: str, params: Iterable[tuple[str, str]]) -> str:
    """Return a path with URL parameters."""
    # A lone surrogate cannot be written in a URL, nor be in a run.
    written = urlencode([(name, value.encode("utf-8", "replace")) for name, value in params])
    return f"{path}?{written}" if written else path


def run_url(name: str) -> str:
    """Return the link to the page of a run."""
    return f"/run/{quote(name, safe='')}"


def at_message(number: int) -> str:
    """Return the URL fragment of a message, whose index counts from 0. The task has the index -1 and no fragment."""
    return f"#m{number + 1}" if number >= 0 else ""


class Role(NamedTuple):
    """A role in a list, with the color and sign of its seat."""

    name: str
    mark: Mark


def roles(user: str, assistant: str, *others: str) -> list[Role]:
    """Return the roles of a row with their colors. Roles other than user and assistant are gray, because a row does not
    contain their seats."""
    made = [Role(user, SEATS["user"]), Role(assistant, SEATS["assistant"])]
    made += [Role(name, Mark("", "c-0", "member-1", GRAY)) for name in others]
    return [role for role in made if role.name]


def title_of(cast: Sequence[Role]) -> str:
    """Return the title of a conversation, made from its roles."""
    names = [role.name for role in cast]
    if [role.mark.css for role in cast] == ["s-user", "s-assistant"]:
        return " instructs ".join(names)
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def words(name: str) -> str:
    """Return an identifier as words: `max_messages` becomes "max messages"."""
    return name.replace("_", " ")


def facet_name(facet: str, value: str) -> str:
    """Return the value of a facet as text for the reader."""
    if facet in ("length", "size"):
        return re.sub(r"\d+", lambda number: f"{int(number[0]):,}", value).replace("-", "–")
    if facet == "stop":
        return ending(value).title
    if facet in ("starred", "noted"):
        return {"starred": "starred", "noted": "with a note"}[facet]
    return (words(value) if facet in ("finding", "scenario") else value) or "none"


def number_words(name: str) -> Callable[[float], str]:
    """Return a function that formats the values of a numeric column: `cost` in dollars, others with few digits."""
    return money if name == "cost" else short


def day(time: str) -> str:
    """Return the day of an ISO time, written as 3 May 2025."""
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return ""
    return f"{then.day} {then:%b %Y}"


# --- the list ----------------------------------------------------------------------------------------------------


def toggled(query: Query, facet: str, value: str) -> Query:
    """Return the query with a value of a facet added. If the value was already chosen, it is removed."""
    chosen = query.runs if facet == "run" else query.facets.get(facet, ())
    chosen = tuple(one for one in chosen if one != value) if value in chosen else (*chosen, value)
    if facet == "run":
        return replace(query, runs=chosen)
    facets = {name: values for name, values in query.facets.items() if name != facet}
    return replace(query, facets=facets | ({facet: chosen} if chosen else {}))


def facet_lists(
    state: PageState, counts: Mapping[str, Sequence[tuple[str, int]]], without: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Return the facets with their values and counts. Chosen values come first."""
    lists: list[dict[str, Any]] = []
    for name, title in TITLES.items():
        chosen = state.query.runs if name == "run" else state.query.facets.get(name, ())
        counted_values = {value: count for value, count in counts.get(name, ()) if count}
        values = [*chosen, *(value for value in counted_values if value not in chosen)]
        if name in without or len(values) < (1 if name in ANNOTATED or name == "tool" or chosen else 2):
            continue
        if name in ("length", "size", "cost"):
            values = [*counted_values, *(value for value in chosen if value not in counted_values)]
        shown = [(value, counted_values.get(value, 0)) for value in values[:MOST]]
        lists.append({"name": name, "title": title, "chosen": chosen, "counts": shown, "all": len(values)})
    return lists


def chips(state: PageState, path: str) -> list[dict[str, str]]:
    """Return the chosen filters, each with a link to the same page without that filter."""
    query = state.query
    made: list[dict[str, str]] = []

    def add(name: str, without: Query) -> None:
        made.append({"name": name, "link": state.url(path, query=without)})

    if query.text:
        add(f"“{query.text}”", replace(query, text=""))
    if query.where:
        add(query.where, replace(query, where=""))
    for run in query.runs:
        add(f"Run: {run}", toggled(query, "run", run))
    for facet, values in query.facets.items():
        for value in values:
            add(f"{TITLES[facet]}: {facet_name(facet, value)}", toggled(query, facet, value))
    for number, limits in query.ranges.items():
        rest = {name: one for name, one in query.ranges.items() if name != number}
        least, most = map(limit_words, limits)
        shown = (
            f"{least} to {most}" if least and most else f"at least {least}" if least else f"at most {most}"
        )
        add(f"{NUMBER_TITLES[number]}: {shown}", replace(query, ranges=rest))
    return made


def limit_words(number: float | None) -> str:
    """Return a limit of a range as text. Return an empty text if there is no limit."""
    return "" if number is None else f"{number:g}"


def list_row(row: Row, at: int | None, state: PageState, here: Params) -> dict[str, Any]:
    """Return the values that the list shows for a row. `here` are the parameters of the current page, for the pin link."""
    address = f"{row.run}/{row.id}"
    return {
        "row": row,
        "at": "" if at is None else f"{at + 1:,}",
        "address": address,
        "roles": roles(row.user, row.assistant, *row.others),
        "ending": ending(row.stop),
        "link": state.conversation(row.run, row.id) + (at_message(row.hit.message) if row.hit else ""),
        "pin": state.compare(address, here),
    }


# --- a conversation ----------------------------------------------------------------------------------------------


def conversation(run: str, transcript: Transcript, cost: float | None = None) -> dict[str, Any]:
    """Return the values that the page of a conversation shows."""
    found, marks = findings(transcript), marks_of(transcript)
    shown = shown_messages(transcript, found)
    speakers = sorted(transcript.speakers, key=lambda one: one.name != "user")  # the one who asks is first
    cast = [Role(speaker.role or speaker.name, marks[speaker.name]) for speaker in speakers]
    return {
        "run": run,
        "id": transcript.id,
        "title": title_of(cast) or transcript.id,
        "record": transcript,
        "cast": list(zip(cast, speakers, strict=True)),
        "messages": shown,
        "words": sum(message.words for message in shown),
        "score": score(shown),
        "cost": cost,
        "ending": ending(transcript.stop.reason if transcript.stop else UNFINISHED),
        "whole": found.get(-1, []),
        "result": result_rows(transcript),
    }
