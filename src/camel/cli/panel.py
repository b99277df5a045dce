"""Shows a job in progress: a panel on a terminal, lines elsewhere, JSON on request.

A view receives snapshots and events, and does not depend on the job. `camel run status` therefore uses the same code for a
run's folder.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from camel.cli.output import echo, escaped, visible
from camel.jobs.progress import Printed, Snapshot, StageState, View, progress_of
from camel.models.replica import ReplicaState, ReplicaTotals
from camel.reports.numbers import counted, duration, money, short

BAR, WIDTH = 28, 96
REPLICAS = 8
"""Maximum number of endpoints that the panel lists."""


class _ConsoleView(Printed):
    """Base class of views that print to a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def note(self, text: str) -> None:
        """Print a line."""
        echo(text, console=self.console)


class LivePanel(_ConsoleView):
    """A panel that is redrawn in place on a terminal."""

    every = 0.25

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> LivePanel:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, now: Snapshot) -> None:
        """Redraw the panel."""
        # Narrower than the terminal: an echoed ^C must not wrap to a new line, which would break the box.
        self._live.update(panel(now, min(WIDTH, self.console.width - 4)), refresh=True)


class Lines(_ConsoleView):
    """Prints a line every few seconds, for logs and pipes."""

    def show(self, now: Snapshot) -> None:
        """Print a line."""
        self.note(line(now))

    def event(self, entry: dict[str, Any]) -> None:
        """Print an event, including the end of a stage, which a panel does not print."""
        if entry["event"] == "stage":
            self.note(f"stage {entry['stage']} is complete: {counted(entry['items'], 'item')}")
        super().event(entry)


class JsonLines(_ConsoleView):
    """Prints one JSON object per line, for programs."""

    def show(self, now: Snapshot) -> None:
        """Print a snapshot's figures."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.event({"time": time, "event": "progress", **progress_of(now)})

    def event(self, entry: dict[str, Any]) -> None:
        """Print an event."""
        # Not through rich, which would wrap and color it.
        self.console.file.write(escaped(msgspec.json.encode(entry)) + "\n")
        self.console.file.flush()

    def note(self, text: str) -> None:
        """Print nothing, because the output contains only JSON objects."""


def choose_view(console: Console, as_json: bool) -> View:
    """Return the view for a terminal, a log or a program."""
    if as_json:
        return JsonLines(console)
    return LivePanel(console) if console.is_terminal else Lines(console)


# --- texts -------------------------------------------------------------------------------------------------------


def line(now: Snapshot) -> str:
    """Return the progress of a run in one line."""
    stage = current(now)
    parts = [
        f"{stage.title} {stage.finished:,}/{stage.planned:,}" if stage else "",
        f"{stage.committed:,} committed" if stage and stage.committed else "",
        f"{now.failed:,} failed" if now.failed else "",
        waits_for(now),
        counted(now.usage.calls, "call")
        + ("" if now.calls_per_second is None else f" ({short(now.calls_per_second)}/s)"),
        counted(now.tool_calls, "tool call") if now.tool_calls else "",
        f"{spent(now)} → {expected(now)}" if now.expected else spent(now),
        f"{share_cached(now)} cached" if now.usage.cached else "",
        f"{now.retries:,} retries" if now.retries else "",
        counted(sum(now.errors.values()), "error") if now.errors else "",
        f"{duration(now.elapsed)} elapsed" if now.elapsed else "",
        f"{duration(now.eta)} remaining" if now.eta is not None else "",
    ]
    return " · ".join(part for part in parts if part)


def waits_for(now: Snapshot) -> str:
    """Return what a run without recent replies waits for, as text. Empty if there are recent replies."""
    if now.state != "working" or now.paused or now.calls_per_second:
        return ""
    if not now.workers:
        return "no worker has started yet"
    return f"{counted(now.in_flight, 'call')} in flight, no recent reply" if now.in_flight else ""


def stage_notes(now: Snapshot, stage: StageState) -> list[str]:
    """Return notes about a stage: finished items in incomplete shards, which are not repeated later, failed items and tokens."""
    more = stage.finished - stage.committed
    where = "to commit" if now.state == "working" else "more in the journal"
    notes = [
        f"{more:,} {where}" if more > 0 else "",
        f"{stage.failed:,} failed" if stage.failed else "",
        f"{short(stage.tokens)} tokens" if stage.extra and stage.tokens else "",
    ]
    return [note for note in notes if note]


def current(now: Snapshot) -> StageState | None:
    """Return the first incomplete stage, or the run's last stage if all are complete."""
    open_stages = [stage for stage in now.stages if stage.committed < stage.planned]
    own = [stage for stage in now.stages if not stage.extra] or now.stages
    return open_stages[0] if open_stages else (own[-1] if own else None)


def stopped(why: str, state: str = "stopped") -> str:
    """Return a text with the state of a run that stops or has stopped, and the reason."""
    if state == "working":
        return f"stopping: {why}"
    return why if why.startswith("stopped") else f"stopped: {why}"


def spent(now: Snapshot) -> str:
    """Return the cost so far as text: in dollars if the price is known, otherwise in tokens."""
    return money(now.money) if now.money else f"{short(now.usage.total)} tokens"


def expected(now: Snapshot) -> str:
    """Return the expected cost of the whole run as text. Empty if there is no estimate."""
    if now.expected_money:
        return f"about {money(now.expected_money)}"
    return "" if now.expected is None else f"about {short(now.expected.total)} tokens"


def share_cached(now: Snapshot) -> str:
    """Return the share of prompt tokens that the endpoint had cached, as text."""
    return f"{now.usage.cached / now.usage.prompt:.0%}" if now.usage.prompt else "0%"


# --- the panel ---------------------------------------------------------------------------------------------------


def panel(now: Snapshot, width: int = WIDTH) -> Panel:
    """Return the panel that shows the progress of a run."""
    # On a narrow terminal the bars shrink, not the text.
    bar = max(6, BAR - max(0, WIDTH - width))
    parts: list[RenderableType] = [_stages(now, bar), Text(), _figures(now)]
    if len(now.replicas) > 1:
        parts += [Text(), _replicas(now.replicas, now.replica_totals)]
    if now.stops:
        parts += [Text(), _stops(now.stops, bar)]
    state, style = {
        "working": ("paused" if now.paused else "", "cyan"),
        "complete": ("complete", "green"),
        "stopped": ("stopped", "yellow"),
        "new": ("not started", "dim"),
    }[now.state]
    if now.why and now.state != "complete":
        parts += [Text(), Text(visible(stopped(now.why, now.state)), "yellow")]
        style = "yellow"
    title = Text(f" {visible(now.scenario)} · {visible(now.model)}{f' · {state}' if state else ''} ", "bold")
    return Panel(
        Group(*parts), title=title, title_align="left", border_style=style, padding=(0, 1), width=width
    )


def _grid(*justify: Literal["left", "right"]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for one in justify:
        grid.add_column(justify=one, no_wrap=True)
    return grid


def _stages(now: Snapshot, width: int) -> Table:
    grid = _grid("left", "left", "right", "left")
    active = current(now)
    for stage in now.stages:
        is_done = stage.committed >= stage.planned > 0
        name = Text(stage.title, "green" if is_done else "bold" if stage is active else "dim")
        bar = ProgressBar(
            total=max(1, stage.planned),
            completed=stage.finished,
            width=width,
            complete_style="cyan",
            finished_style="green",
        )
        notes = [f"{stage.open:,} in progress"] if stage.open else []
        notes += stage_notes(now, stage)
        grid.add_row(
            name,
            bar,
            f"{stage.committed:,} / {stage.planned:,}",
            Text(" · ".join(notes), "red" if stage.failed else "dim"),
        )
    return grid


def _figures(now: Snapshot) -> Table:
    grid = Table.grid(padding=(0, 2))
    for column in range(4):
        grid.add_column(style="dim" if column % 2 == 0 else "", no_wrap=True)
    usage = now.usage
    troubles = sum(now.errors.values())
    limited = f" ({now.rate_limited:,} × 429)" if now.rate_limited else ""
    trouble = Text(f"{now.retries:,} retries · {troubles:,} errors{limited}")
    trouble.stylize("yellow" if troubles or now.rate_limited else "")
    rate = "" if now.calls_per_second is None else f" · {short(now.calls_per_second)}/s"
    rate += f" · {counted(now.tool_calls, 'tool call')}" if now.tool_calls else ""
    speed = "" if now.tokens_per_second is None else f" · {short(now.tokens_per_second)}/s"
    cost = f"{spent(now)} → {expected(now)}" if now.expected is not None else spent(now)
    no_worker = "" if now.workers or now.state != "working" else " · no worker has started yet"
    grid.add_row("calls", f"{usage.calls:,}{rate}", "in flight", f"{now.in_flight:,}{no_worker}")
    grid.add_row("tokens", f"{short(usage.total)}{speed}", "cached", f"{share_cached(now)} of the prompts")
    grid.add_row("spent", cost, "problems", trouble)
    remaining = "" if now.eta is None else f"about {duration(now.eta)}"
    attempt = "this attempt" if now.state == "working" else "last attempt"
    grid.add_row("elapsed", f"{duration(now.elapsed)} ({attempt})", "remaining", remaining)
    return grid


def _replicas(replicas: tuple[ReplicaState, ...], totals: ReplicaTotals) -> Table:
    """Return a table with one endpoint per line. Endpoints with problems come first."""
    grid = _grid("left", "left", "right", "right", "right", "right")
    styles = {"closed": "green", "open": "red", "half-open": "yellow"}
    for one in sorted(replicas, key=lambda one: (one.state == "closed", one.url))[:REPLICAS]:
        most = "" if one.limit is None else f" of {one.limit:.0f}"
        grid.add_row(
            Text(visible(one.url.split("://")[-1])[:40], "dim"),
            Text("healthy" if one.state == "closed" else one.state, styles[one.state]),
            f"{one.in_flight:,}{most} in flight",
            f"{one.open:,} open",
            f"{one.cached:.0%} cached",
            f"{one.refused:,} × 429" if one.refused else "",
        )
    if totals.count > REPLICAS:
        grid.add_row(Text(f"{totals.count:,} in total, {totals.healthy:,} healthy", "dim"))
    return grid


def _stops(stops: dict[str, int], width: int) -> Table:
    """Return a small bar chart of why conversations ended."""
    grid = _grid("left", "left", "right")
    total = sum(stops.values())
    for reason, count in sorted(stops.items(), key=lambda pair: -pair[1])[:6]:
        style = "red" if reason == "error" else "green" if reason == "done" else "yellow"
        bar = "█" * max(1, round(width * count / total))
        grid.add_row(Text(reason, "dim"), Text(bar, style), f"{count:,} ({count / total:.0%})")
    return grid
