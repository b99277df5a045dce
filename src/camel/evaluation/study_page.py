"""A study as one HTML page. Whatever a model said goes through `text` of `page`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from camel.evaluation.study import SEEN, UNSEEN, Behaviour, Deserved, Example, Study, shown
from camel.evaluation.study_plots import plots
from camel.record.release import WARNING
from camel.reports.html import document, figure, interval, percent, short, text, tiles
from camel.reports.plots import Plot, svg, write_plots
from camel.storage import inside

_SHOWN_ROLES = 8
_LEAST_ROLE = 5
"""Conversations of a role from which its share is worth showing."""


PAGE = "study.html"


def write_study(study: Study, folder: Path) -> None:
    """Write the figures, the plots and the page."""
    pictures = [(plot, svg(plot)) for plot in plots(study)]
    write_plots(folder, pictures)
    inside.write(folder, "study.json", study.to_json())
    inside.write(folder, PAGE, page(study, pictures))


def page(study: Study, pictures: Sequence[tuple[Plot, str]]) -> str:
    """The whole page; `pictures` are the plots and the SVG of each."""
    drawn = {plot.name: figure(plot, picture) for plot, picture in pictures}
    found = shown(study.behaviours)
    parts = [
        ("Behaviours", "behaviours", _behaviours(study, found)),
        ("When", "when", _figures(drawn, "by-turn")),
        ("Endings", "endings", _figures(drawn, "stops", "by-stop")),
        ("Who", "who", _figures(drawn, "by-seat") + _roles(found)),
        ("Done", "done", _deserved(study.deserved)),
        ("Growth", "growth", _figures(drawn, "length", "tokens")),
        ("Examples", "examples", _examples(found)),
        ("Method", "method", _method(study)),
    ]
    return document(
        f"Behaviour study of {_name(study.run)}",
        _head(study, found),
        [(title, name, body) for title, name, body in parts if body],
    )


def _head(study: Study, found: Sequence[Behaviour]) -> str:
    about = " · ".join(
        text(part) for part in (study.scenario, ", ".join(study.models[:4]) or "no model named") if part
    )
    cards = [
        ("Conversations", f"{study.conversations:,}", ""),
        (
            "Messages",
            f"{study.messages:,}",
            f"{study.length.median:g} in the median conversation, {study.length.low:g} to {study.length.high:g} in the middle half",
        ),
        ("With any behaviour", percent(study.any.rate), interval(study.any)),
    ]
    if done := study.stops.get("done"):
        cards.append(("Ended as done", percent(done.rate), interval(done)))
    if study.deserved and study.deserved.rate.of:
        cards.append(
            (
                "Done was deserved",
                percent(study.deserved.rate.rate),
                f"{interval(study.deserved.rate)} by a judge's word",
            )
        )
    elif study.usage.total:
        cached = study.usage.cached / max(1, study.usage.prompt)
        cards.append(("Tokens", short(study.usage.total), f"{percent(cached)} of the prompts cached"))
    return (
        f'<h1>Behaviour study</h1><p class="muted"><span class="mono">{text(_name(study.run))}</span> · {about}</p>'
        f"{_warning(study)}{tiles(cards)}"
    )


def _warning(study: Study) -> str:
    if not study.labels:
        return ""
    return (
        f"<p><strong>Contains conversations labelled {text(', '.join(study.labels))}.</strong> {text(WARNING)} "
        f'Canary: <span class="mono">{text(study.canary)}</span></p>'
    )


def _behaviours(study: Study, found: Sequence[Behaviour]) -> str:
    absent = [one for one in study.behaviours if not one.conversations.count]
    rows = "".join(map(_behaviour_row, found)) + "".join(
        f'<tr class="none"><td class="name">{text(one.title)}</td><td>not found</td>'
        f'<td class="number">0% <span class="interval">up to {percent(one.conversations.high)}</span></td><td></td><td></td></tr>'
        for one in absent
    )
    points = "".join(f"<li>{point}</li>" for point in _points(study, found))
    return (
        "<h2>Behaviours</h2>"
        f'<ul class="points">{points}</ul>'
        f"<p><small>{text(SEEN)} {text(UNSEEN)} Whether the work is any good, models and people say: "
        '<span class="mono">camel study RUN --judge</span>, <span class="mono">camel evaluate agents RUN</span>, then '
        '<span class="mono">camel vote</span> on its pairs.</small></p>'
        '<div class="scroll"><table><thead><tr><th></th><th>Conversations that show it</th><th class="number">Share, 95% interval</th>'
        '<th class="number">Of messages</th><th class="number">Most in</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _behaviour_row(one: Behaviour) -> str:
    rate = one.conversations
    seat = max(one.by_seat.items(), key=lambda item: item[1].rate, default=("", None))[0]
    bar = (
        f'<div class="bar" role="img" aria-label="{percent(rate.rate)}"><i style="width:{rate.rate * 100:.2f}%"></i>'
        f'<b style="left:{rate.low * 100:.2f}%;width:{(rate.high - rate.low) * 100:.2f}%"></b></div>'
    )
    return (
        f'<tr><td class="name"><a href="#x-{text(one.name)}">{text(one.title)}</a></td><td>{bar}</td>'
        f'<td class="number">{percent(rate.rate)} <span class="interval">{interval(rate)}</span></td>'
        f'<td class="number">{percent(one.messages.rate)} <span class="interval">{interval(one.messages)}</span></td>'
        f'<td class="number">{text(seat)}</td></tr>'
    )


def _points(study: Study, found: Sequence[Behaviour]) -> Iterable[str]:
    """What one would say first, from the figures alone."""
    if not found:
        yield (
            f"None of the {len(study.behaviours)} behaviours was found in {study.conversations:,} conversations: "
            f"each occurs in at most {percent(max((one.conversations.high for one in study.behaviours), default=1.0))} of such conversations."
        )
        return
    first = found[0]
    yield (
        f"Most frequent: <strong>{text(first.title.lower())}</strong>, in {percent(first.conversations.rate)} of the conversations "
        f"({interval(first.conversations)})."
    )
    for one in found[:3]:
        stops = {stop: rate for stop, rate in one.by_stop.items() if rate.of >= 20}
        if len(stops) > 1:
            high = max(stops.items(), key=lambda item: item[1].rate)
            low = min(stops.items(), key=lambda item: item[1].rate)
            # Where the intervals do not meet, the difference is no accident.
            if high[1].low > low[1].high:
                yield (
                    f"{text(one.title)} goes with the ending: {percent(high[1].rate)} where it is "
                    f"<em>{text(high[0].replace('_', ' '))}</em>, {percent(low[1].rate)} where it is <em>{text(low[0].replace('_', ' '))}</em>."
                )
    if study.stops:
        stop, rate = next(iter(study.stops.items()))
        yield f"Most conversations end with <em>{text(stop.replace('_', ' '))}</em>: {percent(rate.rate)} ({interval(rate)})."


def _figures(drawn: dict[str, str], *names: str) -> str:
    return "".join(drawn[name] for name in names if name in drawn)


def _roles(found: Sequence[Behaviour]) -> str:
    tables: list[str] = []
    for one in found:
        roles = [role for role in one.by_role if role.rate.of >= _LEAST_ROLE][:_SHOWN_ROLES]
        if not roles:
            continue
        rows = "".join(
            f'<tr><td>{text(role.role)} <span class="interval">as {text(role.seat)}</span></td>'
            f'<td class="number">{percent(role.rate.rate)} <span class="interval">{interval(role.rate)}</span></td>'
            f'<td class="number">{role.rate.count:,} of {role.rate.of:,}</td></tr>'
            for role in roles
        )
        tables.append(
            f"<details><summary><h3>{text(one.title)}</h3></summary>"
            f'<div class="scroll"><table><thead><tr><th>Role</th><th class="number">Its conversations in which it shows it</th>'
            f'<th class="number"></th></tr></thead><tbody>{rows}</tbody></table></div></details>'
        )
    if not tables:
        return ""
    return (
        "<h2>Roles that show them most</h2><p><small>Ordered by the lower end of the interval, so that rare roles do not lead by "
        "accident. Of many roles some lead by accident all the same.</small></p>" + "".join(tables)
    )


def _deserved(deserved: Deserved | None) -> str:
    if deserved is None:
        return ""
    rate = deserved.rate
    words = {True: ("yes", "deserved"), False: ("no", "not deserved"), None: ("", "undecided")}
    examples = "".join(
        f'<article><header><span class="verdict {words[one.deserved][0]}">{words[one.deserved][1]}</span>'
        f'<span class="mono muted">{text(one.id)}</span></header><div class="before">{text(one.task)}</div>'
        f'<div class="said">{text(one.reason) or "(no reason given)"}</div></article>'
        for one in deserved.examples
    )
    more = f", {deserved.undecided:,} undecided" if deserved.undecided else ""
    found = (
        f"It found the task done in <strong>{percent(rate.rate)}</strong> ({interval(rate)}; {rate.count:,} of {rate.of:,}{more})"
        if rate.of
        else f"Not one could be judged{more}: it says neither yes nor no"
    )
    return (
        "<h2>Was “done” deserved?</h2>"
        f"<p>Of {deserved.ended_done:,} conversations that were declared done, {deserved.asked:,} were shown to "
        f'<span class="mono">{text(deserved.model)}</span>. {found}.</p>'
        f"<details><summary><h3>In the judge's words</h3></summary>{examples}</details>"
    )


def _examples(found: Sequence[Behaviour]) -> str:
    if not found:
        return ""
    parts: list[str] = []
    for place, one in enumerate(found):
        shown_of = f"{len(one.examples)} of {one.conversations.count:,} conversations"
        inner = "".join(map(_example, one.examples))
        parts.append(
            f'<details id="x-{text(one.name)}"{" open" if not place else ""}><summary><h3>{text(one.title)}</h3>'
            f'<span class="muted">{shown_of}</span></summary>{inner}</details>'
        )
    return (
        "<h2>Examples</h2><p><small>Drawn by chance among the conversations that show it; what decided is marked.</small></p>"
        + "".join(parts)
    )


def _example(one: Example) -> str:
    seat = "seat user" if one.speaker == "user" else "seat"
    before = f'<div class="before" dir="auto">{text(one.before)}</div>' if one.before else ""
    return (
        f'<article><header><span class="{seat}">{text(one.role)}</span><span class="muted">{text(one.speaker)}</span>'
        f'<span class="mono muted">{text(one.id)} · message {one.index + 1}</span></header>{before}'
        f'<div class="said" dir="auto">{marked(one.excerpt, one.evidence)}</div>'
        f'<p class="reason">{text(one.reason)}</p></article>'
    )


def marked(message: str, evidence: str) -> str:
    """A message with the evidence marked, where it can be found in it."""
    at = message.find(evidence) if evidence.strip() else -1
    if at < 0:
        return text(message) or '<span class="muted">(empty)</span>'
    end = at + len(evidence)
    return f"{text(message[:at])}<mark>{text(message[at:end])}</mark>{text(message[end:])}"


def _method(study: Study) -> str:
    versions = ", ".join(f"{one.name} {one.version}" for one in study.behaviours)
    return (
        "<h2>How this was made</h2>"
        "<p>Rules (<em>detectors</em>) looked at every message; no model was asked what it thinks of them. A share of conversations has "
        "Wilson's 95% interval. A share of messages has the same, after the number of messages was reduced to as many independent ones as "
        "vary as much between conversations; a share of the messages at one place in the conversation needs no such care, as there "
        "is one in each. The intervals say how far the run may be from others made in the same way. They do not say how often a "
        "detector is wrong, and they hold one by one: of twenty, one may miss.</p>"
        f"<p><small>Detectors and their versions: {text(versions)}. Fingerprint of the run's configuration: "
        f'<span class="mono">{text(study.fingerprint)}</span>. All figures are in <span class="mono">study.json</span>, '
        'the plots in <span class="mono">plots/</span>.</small></p>'
    )


def _name(run: str) -> str:
    """A run's name without where it lies: pages are passed on, and folders tell of their owners."""
    return run.rstrip("/").rpartition("/")[2]
