"""`camel show`: print the summary of a run, or one of its conversations, in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from camel.cli import options as shared
from camel.cli.options import acknowledged, argument
from camel.cli.output import echo, print_json
from camel.core.errors import CamelError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from camel.core.transcript import Transcript
    from camel.library.run import Run

FIRST = 10
"""Number of conversations that a summary lists."""
MOST_COUNTED = 100_000
"""Maximum number of conversations whose failed tool calls are counted."""


def show(
    run: shared.RunPlace,
    id: Annotated[str, argument("ID", "Conversation to print, instead of the summary.")] = "",
    acknowledge: shared.Acknowledge = None,
    where: shared.Where = "",
    show_prompts: shared.ShowPrompts = False,
    show_reasoning: shared.ShowReasoning = False,
    as_json: shared.AsJson = False,
) -> None:
    """Print a summary of a run, or one conversation."""
    from rich.console import Console

    from camel.library.run import Run

    records, labels = Run(run).where(where), acknowledged(acknowledge)
    console = Console(highlight=False)
    if not id:
        _show_run(console, records, labels, as_json)
        return
    try:
        found = records[id].transcript
    except KeyError:
        advice = f"camel show {shlex.quote(run)} lists the first ids, camel explore {shlex.quote(run)} finds others"
        raise InputError(f"'{run}' has no conversation {id!r}: {advice}") from None
    if hidden := _hidden(found, labels):
        raise InputError(
            f"conversation '{id}' is labeled '{hidden}': add --acknowledge {shlex.quote(hidden)} to read it"
        )
    if as_json:
        print_json(found)
    else:
        show_conversation(console, found, show_prompts, show_reasoning)


def _hidden(transcript: Transcript, acknowledged: Sequence[str]) -> str:
    """Return a label of the conversation that has yet to be acknowledged, or an empty string."""
    from camel.record.release import RESTRICTED

    hidden = [one for one in transcript.labels if one in RESTRICTED and one not in acknowledged]
    return hidden[0] if hidden else ""


def show_conversation(console: Console, transcript: Transcript, prompts: bool, reasoning: bool) -> None:
    """Print one conversation."""
    from camel.cli.screen import Screen
    from camel.core.results import result_rows

    screen = Screen(console, {speaker.name: speaker.role for speaker in transcript.speakers})
    models = dict.fromkeys(speaker.model for speaker in transcript.speakers if speaker.model)
    screen.note(" · ".join(part for part in (transcript.id, transcript.scenario, *models) if part), "bold")
    screen.note(f"Task: {transcript.task.text}\n")
    if prompts:
        screen.prompts(transcript)
    for message in transcript.messages:
        screen.show_message(message)
        screen.deliberation(message)
        if reasoning and message.reasoning:
            screen.note(f"  reasoning: {message.reasoning}\n")
    if transcript.unspoken:
        screen.note("Calls before a message that was never said")
        for action in transcript.unspoken:
            screen.show_action(action)
    if rows := result_rows(transcript):
        screen.note("▌ Result", "bold")
        screen.table(dict(rows))
    if transcript.scores:
        screen.note("▌ Scores", "bold")
        scores = transcript.scores.items()
        values = {name: one.text if one.value is None else f"{one.value:g}" for name, one in scores}
        screen.table({name: f"{values[name]} {one.reason[:300]}" for name, one in scores})
    screen.summary(transcript)


def _show_run(console: Console, run: Run, labels: Sequence[str], as_json: bool) -> None:
    from camel.cli.panel import current
    from camel.core.message import in_one_line
    from camel.query.columns import count_actions, total
    from camel.reports.numbers import counted, money, short

    now, first, selected = run.status(), list(islice(run, FIRST)), run.chosen is not None
    calls, failures = now.tool_calls, None
    if selected or (run.folder.on_disk and len(run) <= MOST_COUNTED):  # it reads all files
        with suppress(CamelError, OSError):  # a damaged file
            calls, failures = count_actions(run)
    stops, usage, paid = total(run) if selected else (now.stops, now.usage, now.money)
    seats = _models(first)
    rows: list[dict[str, Any]] = []
    for one in first:
        hidden = _hidden(one, labels)
        rows.append(
            {
                "id": one.id,
                "messages": len(one.messages),
                "ended": one.stop.reason if one.stop else "",
                "roles": {} if hidden else {speaker.name: speaker.role for speaker in one.speakers},
                "task": f"[hidden: --acknowledge {hidden}]" if hidden else one.task.text,
            }
        )
    if as_json:
        found = {"stops": stops, "usage": usage, "money": paid, "matches": len(run)}
        found |= {"tool_calls": calls, "failed_tool_calls": failures, "seats": seats, "conversations": rows}
        print_json(now.to_dict() | found)
        return
    echo(" · ".join(part for part in (now.run, now.scenario, now.state) if part), "bold")
    used = {model for models in seats.values() for model in models} or {now.model}
    models = "; ".join(f"{seat}: {', '.join(names)}" for seat, names in seats.items())
    echo(f"models    {models if len(used) > 1 else next(iter(used))}")
    if stage := current(now):
        failed = f", {now.failed:,} failed" if now.failed else ""
        echo(f"progress  {stage.title}: {stage.committed:,} of {stage.planned:,}{failed}")
    if selected:
        echo(f"matches   {len(run):,} of {sum(one.rows for one in run.markers):,} conversations, with:")
    if stops:
        echo("endings   " + ", ".join(f"{name} {count:,}" for name, count in stops.items()))
    cost = "price unknown" if paid is None else money(paid)
    echo(f"cost      {cost}, {short(usage.total)} tokens, {short(usage.calls)} calls")
    failed = f", {failures:,} failed" if failures else ""
    echo(f"tools     {counted(calls, 'call')}{failed}\n" if calls else "")
    width = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        figures = f"{counted(row['messages'], 'message')} · {row['ended'] or 'not ended'}"
        roles = " & ".join(row["roles"].values())
        first_line = " · ".join(part for part in (in_one_line(roles), figures) if part)
        for left, text in ((row["id"], first_line), ("", in_one_line(row["task"]))):
            line = f"{left:<{width}}  {text}"
            echo(line if len(line) <= console.width else f"{line[: console.width - 1]}…")
    if len(run) > len(rows):
        echo(f"and {len(run) - len(rows):,} more: camel explore {shlex.quote(now.run)}")


def _models(transcripts: Sequence[Transcript]) -> dict[str, list[str]]:
    """Return the names of the models in each seat, including the critic's."""
    found: dict[str, set[str]] = {}
    for one in transcripts:
        for speaker in one.speakers:
            found.setdefault(speaker.name, set()).add(speaker.model)
        for message in one.messages:
            if message.deliberation:
                found.setdefault("critic", set()).add(message.deliberation.critic)
    return {seat: sorted(names) for seat, models in found.items() if (names := models - {""})}
