"""What the pages show, made from the catalogue's answers: links, rows, facets, a conversation.

The one decision to know: the whole state of a page is its URL. Every choice of the reader is a link to the same page with
another query, pin or view, so that pages can be bookmarked and sent to others, and work without JavaScript.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape
from msgspec.structs import asdict, replace

from camel.core.transcript import Transcript
from camel.explorer.colors import GRAY, SEATS, Mark, ending
from camel.explorer.reading import ShownMessage, findings, marks_of, shown_messages
from camel.explorer.score import score
from camel.index.build import UNFINISHED
from camel.query.answers import Row, ShownHit
from camel.query.where import Query
from camel.reports.numbers import counted, duration, money

SHOWN = 7
"""Values of a facet that are shown before "more"."""
MOST = 150
"""Values of a facet that are shown at all; the search finds the others."""
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
}
NUMBER_TITLES = {"messages": "Messages", "tokens": "Tokens", "calls": "Calls", "cost": "Dollars"}

BOOST = Markup('hx-boost="true"')
"""On links that stay on the page: htmx replaces its content only. Without JavaScript they are ordinary links."""

Params = list[tuple[str, str]]


class PageState(NamedTuple):
    """What pages pass to each other: the query, the conversation pinned for comparison, and the view of messages."""

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
        """A link to another page in this state, except for what is given."""
        return url(path, [*extra, *self.params(**changed)])

    def conversation(self, run: str, id: str, **changed: Any) -> str:
        """The link to a conversation."""
        return self.url(f"/conversation/{quote(run, safe='')}", [("id", id)], **changed)

    def compare(self, address: str, here: Params) -> str:
        """The link that compares a conversation with the pinned one, or pins it, or unpins it."""
        if self.pin and self.pin != address:
            return self._replace(pin="").url("/compare", [("left", self.pin), ("right", address)])
        return self.url("/list", here, pin="" if self.pin else address)


def url(path: str, params: Iterable[tuple[str, str]]) -> str:
    """A path with parameters."""
    # A lone surrogate cannot be written in a URL, nor be in a run.
    written = urlencode([(name, value.encode("utf-8", "replace")) for name, value in params])
    return f"{path}?{written}" if written else path


def run_url(name: str) -> str:
    """The link to the page of a run."""
    return f"/run/{quote(name, safe='')}"


def at_message(number: int) -> str:
    """The anchor of a message on the page of its conversation, counted from 0; empty for the task."""
    return f"#m{number + 1}" if number >= 0 else ""


class Role(NamedTuple):
    """A role in a list, with the mark of its seat."""

    name: str
    mark: Mark


def roles(user: str, assistant: str, *others: str) -> list[Role]:
    """The roles of a row. Rows do not say which other seat has which role, so those are gray."""
    made = [Role(user, SEATS["user"]), Role(assistant, SEATS["assistant"])]
    made += [Role(name, Mark("", "c-0", "member-1", GRAY)) for name in others]
    return [role for role in made if role.name]


def title_of(cast: Sequence[Role]) -> str:
    """Who takes part, in words."""
    names = [role.name for role in cast]
    if [role.mark.css for role in cast] == ["s-user", "s-assistant"]:
        return " instructs ".join(names)
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def words(name: str) -> str:
    """An identifier in words: `max_messages` is "max messages"."""
    return name.replace("_", " ")


def facet_name(facet: str, value: str) -> str:
    """The value of a facet as it is shown."""
    if facet in ("length", "size"):
        return re.sub(r"\d+", lambda number: f"{int(number[0]):,}", value).replace("-", "–")
    if facet == "stop":
        return ending(value).title
    return (words(value) if facet in ("finding", "scenario") else value) or "none"


# --- the list ----------------------------------------------------------------------------------------------------


def toggled(query: Query, facet: str, value: str) -> Query:
    """The query with a value of a facet added, or removed if it was chosen."""
    chosen = query.runs if facet == "run" else query.facets.get(facet, ())
    chosen = tuple(one for one in chosen if one != value) if value in chosen else (*chosen, value)
    if facet == "run":
        return replace(query, runs=chosen)
    facets = {name: values for name, values in query.facets.items() if name != facet}
    return replace(query, facets=facets | ({facet: chosen} if chosen else {}))


def facet_lists(
    state: PageState, counts: Mapping[str, Sequence[tuple[str, int]]], without: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """The facets with their values, each a link that adds or removes it."""
    lists: list[dict[str, Any]] = []
    for name, title in TITLES.items():
        chosen = state.query.runs if name == "run" else state.query.facets.get(name, ())
        counted_values = {value: count for value, count in counts.get(name, ()) if count}
        values = [*chosen, *(value for value in counted_values if value not in chosen)]
        if name in without or (len(values) < 2 and not chosen):
            continue
        if name in ("length", "size", "cost"):
            values = [*counted_values, *(value for value in chosen if value not in counted_values)]
        most = max(counted_values.values(), default=0)
        shown = [
            {
                "name": facet_name(name, value),
                "count": counted_values.get(value, 0),
                "on": value in chosen,
                "link": state.url("/list", query=toggled(state.query, name, value)),
                "mark": ending(value) if name == "stop" else None,
                "bar": 36 * counted_values.get(value, 0) / most
                if len(set(counted_values.values())) > 1
                else 0,
            }
            for value in values[:MOST]
        ]
        lists.append(
            {"name": name, "title": title, "shown": shown[:SHOWN], "more": shown[SHOWN:], "all": len(values)}
        )
    return lists


def chips(state: PageState, path: str) -> list[dict[str, str]]:
    """The chosen filters, each a link to the same page without it."""
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
    for number, limits in query.ranges.items():
        rest = {name: one for name, one in query.ranges.items() if name != number}
        least, most = map(_limit, limits)
        shown = (
            f"{least} to {most}" if least and most else f"at least {least}" if least else f"at most {most}"
        )
        add(f"{NUMBER_TITLES[number]}: {shown}", replace(query, ranges=rest))
    return made


def ranges(query: Query) -> list[dict[str, str]]:
    """The numbers by which a list can be limited, as a form shows them."""
    made: list[dict[str, str]] = []
    for name in ("messages", "tokens", "cost"):
        least, most = map(_limit, query.ranges.get(name, (None, None)))
        ends = {"least_name": f"{name}-from", "least": least, "most_name": f"{name}-to", "most": most}
        made.append({"name": name, "title": NUMBER_TITLES[name], **ends})
    return made


def _limit(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def list_row(row: Row, at: int | None, state: PageState, here: Params) -> dict[str, Any]:
    """A row of the list; `here` names the page of the list, for links that stay on it."""
    address = f"{row.run}/{row.id}"
    pinned = state.pin == address
    return {
        "at": "" if at is None else f"{at + 1:,}",
        "run": row.run,
        "address": address,
        "roles": roles(row.user, row.assistant, *row.others),
        "task": row.task,
        "labels": row.labels,
        "findings": [words(name).capitalize() for name in row.findings],
        "ending": ending(row.stop),
        "messages": row.messages,
        "tokens": f"{row.tokens:,}",
        "cost": money(row.cost).removeprefix("$"),
        "link": state.conversation(row.run, row.id) + (at_message(row.hit.message) if row.hit else ""),
        "hits": [hit_html(row.hit)] if row.hit else [],
        "pinned": pinned,
        "pin": state.compare(address, here),
        "pin_text": "Unpin" if pinned else "Compare with the pinned one" if state.pin else "Pin to compare",
    }


def hit_html(hit: ShownHit) -> Markup:
    """A search hit with its words marked."""
    mark = Markup("<mark>{}</mark>").format
    return Markup("").join(mark(text) if is_word else escape(text) for text, is_word in hit.pieces)


# --- a conversation ----------------------------------------------------------------------------------------------


def conversation(
    run: str, transcript: Transcript, cost: float | None = None, *, run_link: str = ""
) -> dict[str, Any]:
    """A conversation, ready for its page; facts link to the page of the run where there is one."""
    found = findings(transcript)
    shown = shown_messages(transcript, found)
    usage, marks = transcript.usage, marks_of(transcript)
    total = sum(message.words for message in shown)
    speakers = [
        asdict(speaker) | {"mark": marks[speaker.name], "role": speaker.role or speaker.name}
        for speaker in transcript.speakers
    ]
    speakers.sort(key=lambda speaker: speaker["name"] != "user")  # the one who asks comes first
    size = [counted(len(shown), "message"), counted(total, "word")]
    size += [f"{usage.total:,} tokens"] if usage.calls else []
    size += [money(cost)] if cost else []
    return {
        "title": title_of([Role(speaker["role"], speaker["mark"]) for speaker in speakers]) or transcript.id,
        "run": run,
        "id": transcript.id,
        "task": transcript.task.text,
        "original": transcript.task.original,
        "speakers": speakers,
        "prompted": [speaker for speaker in speakers if speaker["system"] or speaker["opening"]],
        "labels": transcript.labels,
        "messages": shown,
        "score": score(shown),
        "size": size,
        "stop": transcript.stop,
        "ending": ending(transcript.stop.reason if transcript.stop else UNFINISHED),
        "whole": found.get(-1, []),
        "about": [fact for fact in (("Run", run, run_link), *_facts(transcript, shown)) if fact[1]],
    }


def _facts(transcript: Transcript, shown: Sequence[ShownMessage]) -> Iterator[tuple[str, str, str]]:
    """Facts for the margin of a conversation: name, value and link, the latter two possibly empty."""
    usage = transcript.usage
    yield "Scenario", transcript.scenario, ""
    by_seat = {message.speaker: message.model for message in transcript.messages if message.model}
    models = list(dict.fromkeys(by_seat.values()))
    if len(models) == 1:
        yield "Model", models[0] + (", all seats" if len(by_seat) > 1 else ""), ""
    else:
        yield "Models", ", ".join(f"{model} ({seat})" for seat, model in by_seat.items()), ""
    if chosen := [one.message.deliberation for one in shown if one.message.deliberation]:
        most = max(len(one.proposals) for one in chosen)
        yield "Critic", f"up to {counted(most, 'proposal')}, {counted(len(chosen), 'time')}", ""
    for name, given in transcript.scores.items():
        value = "no score" if given.value is None else f"{given.value:g}"
        yield words(name).capitalize(), f"{value} by {given.by}" if given.by else value, ""
    flagged = [one for one in shown if one.found]
    titles = dict.fromkeys(found.title for one in flagged for found in one.found)
    if flagged:
        at = at_message(flagged[0].message.index)
        yield "Findings", f"{len(titles)}, {', '.join(titles)}", at
    yield "Labels", ", ".join(transcript.labels), ""
    if usage.calls:
        yield "Tokens", f"{usage.prompt:,} read, {usage.completion:,} written", ""
        seconds = sum(message.latency for message in transcript.messages)
        yield "Calls", f"{usage.calls:,}" + (f" in {duration(seconds)}" if seconds else ""), ""
    prompts = sum(bool(speaker.system or speaker.opening) for speaker in transcript.speakers)
    yield "System prompts", str(prompts or ""), "#prompts"
