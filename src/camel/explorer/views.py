"""What the pages show, made from the catalogue's answers: rows, facets, a conversation.

The one decision to know: a page's whole state is its URL. Everything a reader can choose is a link that another query,
pin or view would have, so that pages can be bookmarked, sent to a colleague, and read without JavaScript.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape
from msgspec.structs import asdict, replace

from camel.core.transcript import Transcript
from camel.explorer.reading import bubbles, findings, hues, hues_of
from camel.index.build import UNFINISHED
from camel.query.answers import Row, ShownHit
from camel.query.where import Query
from camel.reports.numbers import counted, money, short

SHOWN = 7
"""Values of a facet that are shown before "more"."""
MOST = 150
"""Values of a facet that are shown at all; the search finds the others."""
TITLES = {
    "run": "Run",
    "stop": "How it ended",
    "finding": "Findings",
    "scenario": "Scenario",
    "assistant": "Assistant",
    "user": "User",
    "other": "Other roles",
    "length": "Messages",
    "size": "Tokens",
    "cost": "Cost in dollars",
    "model": "Model",
    "label": "Labels",
}
NUMBER_TITLES = {"messages": "Messages", "tokens": "Tokens", "calls": "Calls", "cost": "Dollars"}
SORTS = (
    ("", "In order"),
    ("messages", "By length"),
    ("tokens", "By tokens"),
    ("calls", "By calls"),
    ("cost", "By cost"),
)

BOOST = Markup('hx-boost="true"')
"""On links that stay on the page: only what is in it is replaced. Without JavaScript they are links like others."""

Params = list[tuple[str, str]]


class PageState(NamedTuple):
    """What travels from page to page: the query, what is pinned for comparing, and how messages are shown."""

    query: Query
    pin: str = ""
    raw: bool = False

    def params(self, **changed: Any) -> Params:
        """As parameters of a URL."""
        state = self._replace(**changed)
        params = state.query.to_params()
        params += [("pin", state.pin)] if state.pin else []
        return params + ([("view", "raw")] if state.raw else [])

    def url(self, path: str, extra: Iterable[tuple[str, str]] = (), **changed: Any) -> str:
        """A link to another page in this state, or in one that differs in what is given."""
        return url(path, [*extra, *self.params(**changed)])

    def conversation(self, run: str, id: str, **changed: Any) -> str:
        """The link to a conversation."""
        return self.url(f"/conversation/{quote(run, safe='')}", [("id", id)], **changed)

    def compare(self, address: str, here: Params) -> str:
        """The link that compares a conversation with the pinned one, pins it, or takes the pin away."""
        if self.pin and self.pin != address:
            return self._replace(pin="").url("/compare", [("left", self.pin), ("right", address)])
        return self.url("/list", here, pin="" if self.pin else address)


def url(path: str, params: Iterable[tuple[str, str]]) -> str:
    """A path with parameters."""
    # A lone half of a surrogate pair cannot be written in a URL; it cannot be in a run either.
    written = urlencode([(name, value.encode("utf-8", "replace")) for name, value in params])
    return f"{path}?{written}" if written else path


def at_message(number: int) -> str:
    """Where on the page of a conversation a message is, from 0; nowhere for the task."""
    return f"#m{number + 1}" if number >= 0 else ""


def roles(*names: str) -> list[dict[str, Any]]:
    """Roles with their colors, those that there are."""
    there = [name for name in names if name]
    colors = hues_of(there)
    return [{"name": name, "hue": colors[name]} for name in there]


def words(name: str) -> str:
    """A name of ours as people write it: `max_messages` is "max messages"."""
    return name.replace("_", " ")


def facet_name(facet: str, value: str) -> str:
    """A value of a facet as it is shown."""
    if facet in ("length", "size"):
        return re.sub(r"\d+", lambda number: f"{int(number[0]):,}", value).replace("-", "–")
    return (words(value) if facet in ("stop", "finding", "scenario") else value) or "none"


# --- the list ----------------------------------------------------------------------------------------------------


def toggled(query: Query, facet: str, value: str) -> Query:
    """The query with a value of a facet added, or taken away."""
    chosen = query.runs if facet == "run" else query.facets.get(facet, ())
    chosen = tuple(one for one in chosen if one != value) if value in chosen else (*chosen, value)
    if facet == "run":
        return replace(query, runs=chosen)
    facets = {name: values for name, values in query.facets.items() if name != facet}
    return replace(query, facets=facets | ({facet: chosen} if chosen else {}))


def facet_lists(state: PageState, counts: Mapping[str, Sequence[tuple[str, int]]]) -> list[dict[str, Any]]:
    """The facets with their values, each a link that adds or removes it."""
    lists: list[dict[str, Any]] = []
    for name, title in TITLES.items():
        chosen = state.query.runs if name == "run" else state.query.facets.get(name, ())
        counted_values = {value: count for value, count in counts.get(name, ()) if count}
        values = [*chosen, *(value for value in counted_values if value not in chosen)]
        if len(values) < 2 and not chosen:
            continue
        if name in ("length", "size", "cost"):
            values = [*counted_values, *(value for value in chosen if value not in counted_values)]
        shown = [
            {
                "name": facet_name(name, value),
                "count": f"{counted_values.get(value, 0):,}",
                "on": value in chosen,
                "link": state.url("/list", query=toggled(state.query, name, value)),
            }
            for value in values[:MOST]
        ]
        lists.append({"title": title, "shown": shown[:SHOWN], "more": shown[SHOWN:]})
    return lists


def chips(state: PageState, path: str) -> list[dict[str, str]]:
    """What is chosen, each a link to the same without it."""
    query = state.query
    made: list[dict[str, str]] = []

    def add(name: str, without: Query) -> None:
        made.append({"name": name, "link": state.url(path, query=without)})

    if query.text:
        add(f"“{query.text}”", replace(query, text=""))
    for run in query.runs:
        add(f"Run: {run}", toggled(query, "run", run))
    for facet, values in query.facets.items():
        for value in values:
            add(f"{TITLES[facet]}: {facet_name(facet, value)}", toggled(query, facet, value))
    for number, (least, most) in query.ranges.items():
        left = {name: limits for name, limits in query.ranges.items() if name != number}
        add(f"{NUMBER_TITLES[number]}: {_limit(least)}–{_limit(most)}", replace(query, ranges=left))
    return made


def ranges(query: Query) -> list[dict[str, str]]:
    """The numbers between which a conversation can be looked for, as a form shows them."""
    made: list[dict[str, str]] = []
    for name in ("messages", "tokens", "cost"):
        least, most = map(_limit, query.ranges.get(name, (None, None)))
        ends = {"least_name": f"{name}-from", "least": least, "most_name": f"{name}-to", "most": most}
        made.append({"name": name, "title": NUMBER_TITLES[name], **ends})
    return made


def _limit(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def stop_class(reason: str) -> str:
    """The colour of a way to end."""
    return {"done": "good", "error": "warn"}.get(reason, "")


def list_row(row: Row, at: int | None, state: PageState, here: Params) -> dict[str, Any]:
    """A row of the list; `here` says which page of it, for links that stay there."""
    address = f"{row.run}/{row.id}"
    parts = [counted(row.messages, "message"), f"{short(row.tokens)} tokens", money(row.cost)]
    pinned = state.pin == address
    return {
        "at": "" if at is None else f"{at + 1:,}",
        "run": row.run,
        "roles": roles(row.user, row.assistant, *row.others),
        "task": row.task,
        "labels": row.labels,
        "findings": [words(name) for name in row.findings],
        "stop": row.stop,
        "stop_class": stop_class(row.stop),
        "length": " · ".join(part for part in parts if part),
        "link": state.conversation(row.run, row.id) + (at_message(row.hit.message) if row.hit else ""),
        "hits": [hit_html(row.hit)] if row.hit else [],
        "pinned": pinned,
        "pin": state.compare(address, here),
        "pin_text": "pinned" if pinned else "compare with pinned" if state.pin else "compare",
    }


def hit_html(hit: ShownHit) -> Markup:
    """What was found, with the words marked."""
    mark = Markup("<mark>{}</mark>").format
    return Markup("").join(mark(text) if is_word else escape(text) for text, is_word in hit.pieces)


# --- a conversation ----------------------------------------------------------------------------------------------


def talk(run: str, transcript: Transcript, cost: float | None = None) -> dict[str, Any]:
    """A conversation, ready for its page."""
    colours = hues(transcript)
    shown = bubbles(transcript)
    models = list(dict.fromkeys(message.model for message in transcript.messages if message.model))
    usage = transcript.usage
    ended = transcript.stop.reason if transcript.stop else UNFINISHED
    about = [
        ("run", run),
        ("id", transcript.id),
        ("scenario", transcript.scenario),
        *((words(name), value) for name, value in transcript.inputs.items()),
        ("model", ", ".join(models)),
        ("prompt", f"{usage.prompt:,} tokens, {usage.cached:,} cached" if usage.calls else ""),
        ("completion", f"{usage.completion:,} tokens" if usage.calls else ""),
        ("calls", f"{usage.calls:,}" if usage.calls else ""),
        ("time", f"{sum(message.latency for message in transcript.messages):.1f} s of calls"),
        ("cost", money(cost)),
        ("fingerprint", transcript.fingerprint),
    ]
    speakers = [asdict(speaker) | {"hue": colours[speaker.role]} for speaker in transcript.speakers]
    return {
        "title": " and ".join(speaker.role for speaker in transcript.speakers) or transcript.id,
        "run": run,
        "id": transcript.id,
        "task": transcript.task.text,
        "original": transcript.task.original,
        "speakers": speakers,
        "prompted": [speaker for speaker in speakers if speaker["system"] or speaker["opening"]],
        "labels": transcript.labels,
        "messages": transcript.messages,
        "bubbles": shown,
        "tokens": f"{usage.total:,}",
        "cost": money(cost),
        "stop": transcript.stop,
        "ended": ended,
        "stop_class": stop_class(ended),
        "whole": findings(transcript).get(-1, []),
        "found": sum(len(bubble.found) for bubble in shown),
        "about": [(name, value) for name, value in about if value],
    }
