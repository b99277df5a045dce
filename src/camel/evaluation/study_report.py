"""The report of a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from camel.evaluation.study import SEEN, UNSEEN, Behaviour, Deserved, Example, Study, shown
from camel.evaluation.study_plots import plots
from camel.record.release import WARNING
from camel.reports import report_files
from camel.reports.blocks import (
    Block,
    Cell,
    Details,
    Grid,
    Heading,
    Inline,
    Muted,
    Note,
    Paragraph,
    Picture,
    Points,
    Quote,
    RateBar,
    Report,
    Section,
    Span,
    Style,
    Tile,
    styled,
)
from camel.reports.intervals import Rate
from camel.reports.numbers import interval, percent, short

_SHOWN_ROLES = 8
_LEAST_ROLE = 5
"""Conversations of a role from which its share is worth showing."""

PAGE = "study.html"


def write_study(study: Study, folder: Path) -> None:
    """Write the report, its figures and its plots."""
    report_files.write_report(folder, "study", report(study), study.to_json())


def report(study: Study) -> Report:
    """The whole report."""
    found = shown(study.behaviours)
    name = study.run.rstrip("/").rpartition("/")[2]  # not where it lies: reports are passed on
    about = [study.scenario, ", ".join(study.models[:4]) or "no model named"]
    warning: Inline = ""
    if study.labels:
        labels = ", ".join(study.labels)
        warning = styled(
            "**Contains conversations labelled {}.** {} Canary: `{}`", labels, WARNING, study.canary
        )
    return Report(
        "Behaviour study",
        (Span(name, "mono"), *(f" · {part}" for part in about if part)),
        _tiles(study),
        [
            Section("Behaviours", _behaviours(study, found)),
            Section("When", [Picture("by-turn")]),
            Section("Endings", [Picture("stops"), Picture("by-stop")]),
            Section("Who", [Picture("by-seat"), *_roles(found)]),
            Section("Done", _deserved(study.deserved) if study.deserved else []),
            Section("Growth", [Picture("length"), Picture("tokens")]),
            Section("Examples", _examples(found) if found else []),
            Section("Method", _method(study)),
        ],
        plots(study),
        name,
        warning,
    )


def _tiles(study: Study) -> list[Tile]:
    length = study.length
    spread = (
        f"{length.median:g} in the median conversation, {length.low:g} to {length.high:g} in the middle half"
    )
    tiles = [
        Tile("Conversations", f"{study.conversations:,}"),
        Tile("Messages", f"{study.messages:,}", spread),
        Tile("With any behaviour", percent(study.any.rate), interval(study.any)),
    ]
    if done := study.stops.get("done"):
        tiles.append(Tile("Ended as done", percent(done.rate), interval(done)))
    if study.deserved and study.deserved.rate.of:
        rate = study.deserved.rate
        tiles.append(Tile("Done was deserved", percent(rate.rate), f"{interval(rate)} by a judge's word"))
    elif study.usage.total:
        cached = study.usage.cached / max(1, study.usage.prompt)
        tiles.append(Tile("Tokens", short(study.usage.total), f"{percent(cached)} of the prompts cached"))
    return tiles


def _share(rate: Rate) -> Inline:
    return (f"{percent(rate.rate)} ", Span(interval(rate), "interval"))


def _behaviours(study: Study, found: Sequence[Behaviour]) -> list[Block]:
    rows: list[Sequence[Cell] | Muted] = []
    for one in found:
        rate = one.conversations
        seat = max(one.by_seat.items(), key=lambda item: item[1].rate, default=("", None))[0]
        name = Span(one.title, "strong", f"x-{one.name}")
        rows.append((name, RateBar(rate.rate, rate.low, rate.high), _share(rate), _share(one.messages), seat))
    for one in study.behaviours:
        if not one.conversations.count:
            most = Span(f"up to {percent(one.conversations.high)}", "interval")
            rows.append(Muted((one.title, "not found", ("0% ", most), "", "")))
    head = ("Behaviour", "Conversations that show it", "Share, 95% interval", "Of messages", "Most in")
    return [
        Heading("Behaviours"),
        Points(list(_points(study, found))),
        Note(
            styled(
                "{} {} Whether the work is any good, models and people say: `camel study RUN --judge MODEL`, "
                "`camel evaluate agents RUN`, then `camel vote` on its pairs.",
                SEEN,
                UNSEEN,
            )
        ),
        Grid(head, rows, left=2, wide=True),
    ]


def _points(study: Study, found: Sequence[Behaviour]) -> Iterator[Inline]:
    """What one would say first, from the figures alone."""
    if not found:
        most = percent(max((one.conversations.high for one in study.behaviours), default=1.0))
        yield (
            f"None of the {len(study.behaviours)} behaviours was found in {study.conversations:,} conversations: "
            f"each occurs in at most {most} of such conversations."
        )
        return
    first = found[0]
    yield styled(
        "Most frequent: **{}**, in {} of the conversations ({}).",
        first.title.lower(),
        percent(first.conversations.rate),
        interval(first.conversations),
    )
    for one in found[:3]:
        stops = {stop: rate for stop, rate in one.by_stop.items() if rate.of >= 20}
        if len(stops) > 1:
            high = max(stops, key=lambda stop: stops[stop].rate)
            low = min(stops, key=lambda stop: stops[stop].rate)
            # Where the intervals do not meet, the difference is no accident.
            if stops[high].low > stops[low].high:
                yield styled(
                    "{} goes with the ending: {} where it is *{}*, {} where it is *{}*.",
                    one.title,
                    percent(stops[high].rate),
                    high.replace("_", " "),
                    percent(stops[low].rate),
                    low.replace("_", " "),
                )
    if study.stops:
        stop, rate = next(iter(study.stops.items()))
        share = f"{percent(rate.rate)} ({interval(rate)})"
        yield styled("Most conversations end with *{}*: {}.", stop.replace("_", " "), share)


def _roles(found: Sequence[Behaviour]) -> list[Block]:
    folds: list[Block] = []
    for one in found:
        roles = [role for role in one.by_role if role.rate.of >= _LEAST_ROLE][:_SHOWN_ROLES]
        rows = [
            (
                (f"{role.role} ", Span(f"as {role.seat}", "interval")),
                _share(role.rate),
                f"{role.rate.count:,} of {role.rate.of:,}",
            )
            for role in roles
        ]
        if rows:
            head = ("Role", "Its conversations in which it shows it", "")
            folds.append(Details(one.title, [Grid(head, rows, wide=True)]))
    if not folds:
        return []
    note = (
        "Ordered by the lower end of the interval, so that rare roles do not lead by accident. Of many roles some lead by "
        "accident all the same."
    )
    return [Heading("Roles that show them most"), Note(note), *folds]


def _deserved(deserved: Deserved) -> list[Block]:
    rate = deserved.rate
    words: dict[bool | None, Span] = {
        True: Span("deserved", "good"),
        False: Span("not deserved", "bad"),
        None: Span("undecided", "strong"),
    }
    quotes = [
        Quote([words[one.deserved], Span(one.id, "source")], one.reason or "(no reason given)", one.task)
        for one in deserved.examples
    ]
    more = f", {deserved.undecided:,} undecided" if deserved.undecided else ""
    found = [f"Not one could be judged{more}: it says neither yes nor no."]
    if rate.of:
        count = f"{rate.count:,} of {rate.of:,}{more}"
        found = styled(
            "It found the task done in **{}** ({}; {}).", percent(rate.rate), interval(rate), count
        )
    declared = styled(
        "Of {} conversations that were declared done, {} were shown to `{}`. ",
        f"{deserved.ended_done:,}",
        f"{deserved.asked:,}",
        deserved.model,
    )
    return [
        Heading("Was “done” deserved?"),
        Paragraph([*declared, *found]),
        Details("In the judge's words", quotes),
    ]


def _examples(found: Sequence[Behaviour]) -> list[Block]:
    folds = [
        Details(
            one.title,
            [_example(example) for example in one.examples],
            Span(f"{len(one.examples)} of {one.conversations.count:,} conversations", "muted"),
            open=not place,
            name=f"x-{one.name}",
        )
        for place, one in enumerate(found)
    ]
    note = "Drawn by chance among the conversations that show it; what decided is marked."
    return [Heading("Examples"), Note(note), *folds]


def _example(one: Example) -> Quote:
    style: Style = "user" if one.speaker == "user" else "seat"
    head = [
        Span(one.role, style),
        Span(one.speaker, "muted"),
        Span(f"{one.id} · message {one.index + 1}", "source"),
    ]
    return Quote(head, marked(one.excerpt, one.evidence), one.before, one.reason)


def marked(message: str, evidence: str) -> Inline:
    """A message with the evidence marked, where it can be found in it."""
    before, found, after = message.partition(evidence) if evidence.strip() else (message, "", "")
    return (before, Span(found, "mark"), after) if found else message


def _method(study: Study) -> list[Block]:
    versions = ", ".join(f"{one.name} {one.version}" for one in study.behaviours)
    return [
        Heading("How this was made"),
        Paragraph(
            styled(
                "Rules (*detectors*) looked at every message; no model was asked what it thinks of them. A share of "
                "conversations has Wilson's 95% interval. A share of messages has the same, after the number of messages was "
                "reduced to as many independent ones as vary as much between conversations; a share of the messages at one "
                "place in the conversation needs no such care, as there is one in each. The intervals say how far the run may "
                "be from others made in the same way. They do not say how often a detector is wrong, and they hold one by "
                "one: of twenty, one may miss."
            )
        ),
        Note(
            styled(
                "Detectors and their versions: {}. Fingerprint of the run's configuration: `{}`. All figures are in "
                "`study.json`, the plots in `plots/`.",
                versions,
                study.fingerprint,
            )
        ),
    ]
