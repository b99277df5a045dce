"""The report of a study, and its plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from camel.evaluation.study import SEEN, UNSEEN, Behavior, Deserved, Example, Study, shown
from camel.record.release import WARNING
from camel.reports import blocks as kinds
from camel.reports.intervals import Rate
from camel.reports.numbers import FEW, counted, interval, percent, share, share_with_interval, short
from camel.reports.plots import GRAY, SEATS, Plot, Spec, bands, colors, dots, panels, plot, seat_colors

_SHOWN_ROLES = 8
_LEAST_ROLE = 5
"""Minimum number of conversations that a role needs to be shown."""


def report(study: Study) -> kinds.Report:
    """Build the report of a study."""
    found = shown(study.behaviors)
    warning: kinds.Inline = ""
    if study.labels:
        labels = ", ".join(study.labels)
        warning = kinds.styled(
            "**Contains conversations labeled {}.** {} Canary: `{}`", labels, WARNING, study.canary
        )
    return kinds.Report(
        "Study",
        _headline(study, found),
        f"{counted(len(study.behaviors), 'rule')} looked for signs of failing conversations in every message of the run. "
        "The rules do not use a model.",
        _facts(study),
        {
            "Behaviors": _overview(study, found),
            "When": [kinds.Picture("by-turn")],
            "Endings": _endings(study, found),
            "Who": [kinds.Picture("by-seat"), *_roles(found)],
            "Done": _deserved(study.deserved) if study.deserved else [],
            "Growth": [kinds.Picture("length"), kinds.Picture("tokens")],
            "Examples": _examples(found) if found else [],
            "Method": _method(study),
        },
        plots(study),
        study.run.rstrip("/").rpartition("/")[2],  # without its path: reports are passed on
        warning,
    )


def _headline(study: Study, found: Sequence[Behavior]) -> str:
    if not found:
        return f"None of {counted(len(study.behaviors), 'behavior')} was found in {counted(study.conversations, 'conversation')}"
    rate = found[0].conversations
    rank = "the only behavior found" if len(found) == 1 else f"the most frequent of {len(found)} behaviors"
    return f"{found[0].title} in {rate.count:,} of {counted(rate.of, 'conversation')}, {rank}"


def _facts(study: Study) -> kinds.Facts:
    spread = f", {study.length.median:g} in the median conversation" if study.conversations >= FEW else ""
    done, judged = study.stops.get("done"), study.deserved.rate if study.deserved else None
    cached = percent(study.usage.cached / max(1, study.usage.prompt))
    return {
        "Scenario": study.scenario,
        "Model": ", ".join(study.models[:4]) or "not recorded",
        "Conversations": f"{study.conversations:,}",
        "Messages": f"{study.messages:,}{spread}",
        "With any behavior": kinds.share_cell(study.any),
        "Ended as done": kinds.share_cell(done) if done else "",
        "Judged done": kinds.share_cell(judged) if judged and judged.of else "",
        "Tokens": f"{short(study.usage.total)}, {cached} of the prompts cached" if study.usage.total else "",
    }


def _overview(study: Study, found: Sequence[Behavior]) -> list[kinds.Block]:
    rows: list[Sequence[kinds.Cell] | kinds.Muted] = []
    for one in found:
        seat = max(one.by_seat.items(), key=lambda item: item[1].rate, default=("", None))[0]
        name = kinds.Span(one.title, "strong", f"x-{one.name}")
        rows.append((name, kinds.share_cell(one.conversations), kinds.share_cell(one.messages), seat))
    absent = [one for one in study.behaviors if not one.conversations.count]
    blocks: list[kinds.Block] = [kinds.Picture("behaviors")]
    if absent and found:
        most = percent(max(one.conversations.high for one in absent))
        bound = (
            f" Each of them occurs in at most {most} of such conversations (95% interval)."
            if study.conversations >= FEW
            else ""
        )
        blocks.append(kinds.Note(f"Not found: {', '.join(one.title.lower() for one in absent)}.{bound}"))
    if rows:
        head = ("Behavior", "Conversations", "Messages", "Most in")
        blocks.append(kinds.Grid(head, rows, title="Behaviors by conversation and message"))
    blocks.append(kinds.Points(list(_points(study, found))))
    blocks.append(
        kinds.Note(
            kinds.styled(
                "{} {} To measure quality, use a judge (`camel study RUN --judge MODEL`), compare with single-shot answers "
                "(`camel evaluate agents RUN`), or let people vote on the pairs of that comparison (`camel vote`).",
                SEEN,
                UNSEEN,
            )
        )
    )
    return blocks


def _points(study: Study, found: Sequence[Behavior]) -> Iterator[kinds.Inline]:
    """Yield the main findings as sentences."""
    if not found and study.conversations >= FEW:
        most = percent(max((one.conversations.high for one in study.behaviors), default=1.0))
        yield f"Each behavior occurs in at most {most} of such conversations (95% interval)."
    for one in found[:3]:
        stops = {stop: rate for stop, rate in one.by_stop.items() if rate.of >= 20}
        if len(stops) > 1:
            high = max(stops, key=lambda stop: stops[stop].rate)
            low = min(stops, key=lambda stop: stops[stop].rate)
            # Report only differences whose intervals do not overlap.
            if stops[high].low > stops[low].high:
                yield kinds.styled(
                    "**{}** depends on the ending: it occurs in {} of conversations that end with *{}* and in {} with *{}*.",
                    one.title,
                    percent(stops[high].rate),
                    high.replace("_", " "),
                    percent(stops[low].rate),
                    low.replace("_", " "),
                )
    if study.stops:
        stop, rate = next(iter(study.stops.items()))
        yield kinds.styled(
            "The most frequent ending is *{}*: {}.", stop.replace("_", " "), share_with_interval(rate)
        )


def _endings(study: Study, found: Sequence[Behavior]) -> list[kinds.Block]:
    words = {stop.replace("_", " "): rate for stop, rate in study.stops.items()}
    if len(words) == 1:
        blocks: list[kinds.Block] = [
            kinds.Paragraph(f"All {study.conversations:,} conversations end with {next(iter(words))}.")
        ]
    elif study.conversations < FEW:
        each = ", ".join(f"{stop} {share(rate)}" for stop, rate in words.items())
        blocks = [kinds.Paragraph(f"Endings: {each}.")]
    else:
        blocks = [kinds.Picture("stops")]
    if found and len(words) > 1:
        head = ("Behavior", *(f"{stop} ({rate.count:,})" for stop, rate in words.items()))
        rows = [
            (one.title, *(kinds.Shade(share(rate), rate.rate) for rate in one.by_stop.values()))
            for one in found
        ]
        blocks += [
            kinds.Grid(head, rows, left=len(head), title="Behaviors by ending"),
            kinds.Note(
                "Share of the conversations with each ending that show a behavior; their number is in parentheses."
            ),
        ]
    return blocks


def _roles(found: Sequence[Behavior]) -> list[kinds.Block]:
    folds: list[kinds.Block] = []
    for one in found:
        roles = [role for role in one.by_role if role.rate.of >= _LEAST_ROLE][:_SHOWN_ROLES]
        rows = [
            (
                (f"{role.role} ", kinds.Span(f"as {role.seat}", "interval")),
                kinds.share_cell(role.rate),
                f"{role.rate.count:,} of {role.rate.of:,}",
            )
            for role in roles
        ]
        if rows:
            head = ("Role", "Share of its conversations", "")
            folds.append(kinds.Details(one.title, [kinds.Grid(head, rows, wide=True)]))
    if not folds:
        return []
    note = "Ordered by the lower end of the interval, so that rare roles do not lead by chance. With many roles, some still may."
    return [kinds.Heading("Roles with the largest shares"), kinds.Note(note), *folds]


def _deserved(deserved: Deserved) -> list[kinds.Block]:
    rate = deserved.rate
    words: dict[bool | None, kinds.Span] = {
        True: kinds.Span("deserved", "good"),
        False: kinds.Span("not deserved", "bad"),
        None: kinds.Span("undecided", "strong"),
    }
    quotes = [
        kinds.Quote(
            [words[one.deserved], kinds.Span(one.id, "source", conversation=one.id)],
            one.reason or "(no reason given)",
            one.task,
        )
        for one in deserved.examples
    ]
    more = f", {deserved.undecided:,} undecided" if deserved.undecided else ""
    found = [f"It gave no clear yes or no for any of them{more}."]
    if rate.of:
        found = kinds.styled("It found the task done in **{}**{}.", share_with_interval(rate), more)
    declared = kinds.styled(
        "{} conversations declared their task done; `{}` was shown {} of them. ",
        f"{deserved.ended_done:,}",
        deserved.model,
        f"{deserved.asked:,}",
    )
    return [
        kinds.Heading("Was the task done when a conversation said so?"),
        kinds.Paragraph([*declared, *found]),
        kinds.Details("The judge's reasons", quotes),
    ]


def _examples(found: Sequence[Behavior]) -> list[kinds.Block]:
    folds = [
        kinds.Details(
            one.title,
            [_example(example) for example in one.examples],
            kinds.Span(f"{len(one.examples)} of {one.conversations.count:,} conversations", "muted"),
            open=not place,
            name=f"x-{one.name}",
        )
        for place, one in enumerate(found)
    ]
    note = "Drawn at random from the conversations that show it. The marked words triggered the rule."
    return [kinds.Heading("Examples"), kinds.Note(note), *folds]


def _example(one: Example) -> kinds.Quote:
    style: kinds.Style = "user" if one.speaker == "user" else "assistant"
    head = [
        kinds.Span(one.role, style),
        kinds.Span(one.speaker, "muted"),
        kinds.Span(f"{one.id} · message {one.index + 1}", "source", conversation=one.id),
    ]
    return kinds.Quote(head, marked(one.excerpt, one.evidence), one.before, one.reason)


def marked(message: str, evidence: str) -> kinds.Inline:
    """Return a message with the evidence highlighted. If the message does not contain the evidence, nothing is highlighted."""
    before, found, after = message.partition(evidence) if evidence.strip() else (message, "", "")
    return (before, kinds.Span(found, "mark"), after) if found else message


def _method(study: Study) -> list[kinds.Block]:
    versions = ", ".join(f"{one.name} {one.version}" for one in study.behaviors)
    return [
        kinds.Heading("Method"),
        kinds.Paragraph(
            kinds.styled(
                "Rules (*detectors*) check every message. A share of conversations has Wilson's 95% interval. A share of "
                "messages has the same interval for a smaller effective number of messages, because messages of one conversation "
                "are similar. The intervals show how much other runs with the same configuration may differ. They do not include "
                "errors of the detectors. About one in twenty intervals does not contain the true value."
            )
        ),
        kinds.Note(
            kinds.styled(
                "Detectors and their versions: {}. Fingerprint of the run's configuration: `{}`. All figures are in "
                "`study.json`.",
                versions,
                study.fingerprint,
            )
        ),
    ]


MOST_TURNS = 60
"""Maximum number of messages per conversation in a plot. `study.json` has more."""
LABELS = kinds.TEXTS["measures"]


def plots(study: Study) -> list[Plot]:
    """Return the plots of a study. Return an empty list if there are too few conversations."""
    if study.conversations < FEW:
        return []
    found = shown(study.behaviors)
    made = [_stops(study)] if len(study.stops) > 1 else []
    if found:
        made += [_behaviors(study, found), _by_turn(study, found), _by_seat(found)]
    made.append(_growth(study, ("chars",), "length", "Length of messages"))
    # No curve of cached tokens if the endpoint does not report them.
    counted = {curve.measure for curve in study.growth if any(point.high for point in curve.points)}
    if tokens := [name for name in ("prompt", "completion", "cached") if name in counted]:
        made.append(_growth(study, tokens, "tokens", "Tokens per call"))
    return made


def _dot(name: str, rate: Rate, **more: Any) -> Spec:
    return {
        "name": name, "value": rate.rate, "low": rate.low, "high": rate.high, "says": share(rate), "span": interval(rate), **more
    }  # fmt: skip


def _stops(study: Study) -> Plot:
    rows = [_dot(stop.replace("_", " "), rate) for stop, rate in study.stops.items()]
    caption = f"Share of {study.conversations:,} conversations, with 95% intervals."
    return plot("stops", "Why conversations end", caption, lambda width: dots(rows, width))


def _behaviors(study: Study, found: list[Behavior]) -> Plot:
    rows = [_dot(one.title, one.conversations) for one in found]
    caption = (
        f"Share of {study.conversations:,} conversations with at least one such message, with 95% intervals."
    )
    return plot("behaviors", "Conversations that show a behavior", caption, lambda width: dots(rows, width))


def _by_turn(study: Study, found: list[Behavior]) -> Plot:
    rows: list[Spec] = [
        {"behavior": one.title, "turn": turn, "seat": seat, **to_builtins(rate)}
        for one in found
        for turn, (rate, seat) in enumerate(zip(one.by_turn, study.speakers, strict=True), 1)
        # A seat that never shows the behavior would be a line at zero.
        if turn <= MOST_TURNS and rate.of and one.by_seat[seat].count
    ]
    y = _amount("low", axis={"format": ".0%", "tickCount": 3}, scale={"domainMin": 0})
    caption = kinds.TEXTS["study"]["by_turn"].format(conversations=study.conversations)
    return plot(
        "by-turn",
        "When behaviors occur",
        caption,
        lambda width: panels(rows, "behavior", _lines(rows, y, "rate"), width),
    )


def _amount(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": None, **more}


def _lines(rows: list[Spec], y: Spec, value: str) -> Spec:
    """Return a plot with a line and a band for each seat, by position in the conversation."""
    last = max((row["turn"] for row in rows), default=1)
    x = _amount(
        "turn", scale={"domain": [1, max(2, last)], "nice": False}, axis={"tickMinStep": 1, "format": "d"}
    ) | {"title": "message"}
    seats = _ordered({row["seat"] for row in rows})
    color = colors("seat", seats, seat_colors(seats))
    line = {"type": "line", "point": {"size": 24, "opacity": 1} if last <= 20 else False}
    return {"encoding": {"x": x, "color": color}, "layer": bands(y, value, line)}


def _ordered(seats: Iterable[str]) -> list[str]:
    """Return the seats in their usual order: user, assistant, others."""
    return sorted(seats, key=lambda seat: (seat != "user", seat != "assistant", seat))


def _by_seat(found: list[Behavior]) -> Plot:
    seats = _ordered(found[0].by_seat)[:8]
    colors = dict(zip(seats, seat_colors(seats), strict=True))
    rows = [
        _dot(
            one.title if seat == seats[0] else "",
            rate,
            color=colors[seat],
            shape=SEATS.get(seat, (GRAY, "circle"))[1],
            says=f"{seat} {share(rate)}",
        )
        for one in found
        for seat, rate in ((seat, one.by_seat[seat]) for seat in seats)
    ]
    caption = kinds.TEXTS["study"]["by_seat"].format(messages=found[0].messages.of)
    return plot("by-seat", "Which seats show behaviors", caption, lambda width: dots(rows, width))


def _growth(study: Study, measures: Sequence[str], name: str, title: str) -> Plot:
    rows: list[Spec] = [
        {"seat": curve.seat, "measure": LABELS[curve.measure], **to_builtins(point)}
        for curve in study.growth
        if curve.measure in measures
        for point in curve.points
        if point.turn <= MOST_TURNS
    ]
    y = _amount("low", axis={"format": "~s", "tickCount": 4}, scale={"domainMin": 0})
    caption = kinds.TEXTS["study"]["growth"].format(
        conversations=study.conversations, unit=", in characters" if name == "length" else ""
    )
    return plot(name, title, caption, lambda width: panels(rows, "measure", _lines(rows, y, "median"), width))
