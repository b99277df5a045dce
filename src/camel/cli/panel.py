"""How a run that is going on looks: a panel on a terminal, lines elsewhere, JSON where asked for.

The one decision to know: a view is told of snapshots and events and knows nothing of the campaign behind them, so that
`camel status` draws a folder with the same code.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from camel.cli.screen import visible
from camel.jobs.progress import Snapshot, StageState, View, progress_of
from camel.models.replica import ReplicaState
from camel.reports.numbers import counted, duration, money, short

BAR, WIDTH = 28, 96
REPLICAS = 8
"""Lines of the panel that endpoints may take."""


class _Quiet:
    """What views have in common: entering and leaving does nothing."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def note(self, text: str) -> None:
        """Say something on a line of its own."""
        say(self.console, text)

    def event(self, entry: dict[str, Any]) -> None:
        """Say what happened, where the entry has words for it; the rest is in the figures."""
        if text := entry.get("text"):
            self.note(text)


class LivePanel(_Quiet):
    """A panel that stays in its place on a terminal."""

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
        """Draw the panel anew."""
        # Narrower than the terminal: the ^C that it echoes must not wrap to a new line, which would leave a torn box.
        self._live.update(panel(now, min(WIDTH, self.console.width - 4)), refresh=True)


class Lines(_Quiet):
    """One line now and then, for logs and pipes."""

    every = 10.0

    def show(self, now: Snapshot) -> None:
        """Print a line."""
        self.note(line(now))

    def event(self, entry: dict[str, Any]) -> None:
        """Print it; that a stage is complete a panel shows by itself."""
        if entry["event"] == "stage":
            self.note(f"stage {entry['stage']} is complete: {counted(entry['items'], 'item')}")
        super().event(entry)


class JsonLines(_Quiet):
    """One JSON object a line, for programs."""

    every = 10.0

    def show(self, now: Snapshot) -> None:
        """Print a snapshot's figures."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.event({"time": time, "event": "progress", **progress_of(now)})

    def event(self, entry: dict[str, Any]) -> None:
        """Print an event."""
        # Past rich: nothing may wrap or colour it.
        self.console.file.write(msgspec.json.encode(entry).decode() + "\n")
        self.console.file.flush()

    def note(self, text: str) -> None:
        """Only objects are printed."""


def choose_view(console: Console, as_json: bool) -> View:
    """The view that fits where the output goes."""
    if as_json:
        return JsonLines(console)
    return LivePanel(console) if console.is_terminal else Lines(console)


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line as it is: no markup, no control characters, no wrapping."""
    console.print(Text(visible(text), style), soft_wrap=True)


def table(
    console: Console, head: tuple[str, ...], rows: list[tuple[str, ...]], right: Container[int] = ()
) -> None:
    """A table on a terminal, its first column never cut; elsewhere, and where it is too wide, plain columns, which no
    width cuts off. The columns of `right` hold numbers."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    if console.is_terminal and sum(widths) + 3 * len(widths) + 1 <= console.width:
        drawn = Table()
        for number, name in enumerate(head):
            drawn.add_column(name, justify="right" if number in right else "left", no_wrap=True)
        for row in rows:
            drawn.add_row(*(Text(visible(cell)) for cell in row))
        console.print(drawn)
        return
    for row in (head, *rows):
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        say(console, "  ".join(cells).rstrip())


# --- words -------------------------------------------------------------------------------------------------------


def line(now: Snapshot) -> str:
    """A run in one line."""
    stage = current(now)
    parts = [
        f"{stage.title} {stage.finished:,}/{stage.planned:,}" if stage else "",
        f"{stage.committed:,} committed" if stage and stage.committed else "",
        f"{now.failed:,} failed" if now.failed else "",
        waits_for(now),
        counted(now.usage.calls, "call")
        + ("" if now.calls_per_second is None else f" ({short(now.calls_per_second)}/s)"),
        f"{spent(now)} → {expected(now)}" if now.expected else spent(now),
        f"{share_cached(now)} cached" if now.usage.cached else "",
        f"{now.retries:,} retries" if now.retries else "",
        counted(sum(now.errors.values()), "error") if now.errors else "",
        f"{duration(now.elapsed)} gone" if now.elapsed else "",
        f"{duration(now.eta)} to go" if now.eta is not None else "",
    ]
    return " · ".join(part for part in parts if part)


def waits_for(now: Snapshot) -> str:
    """What a run that gets no answers waits for."""
    if now.state != "working" or now.paused or now.calls_per_second:
        return ""
    if not now.workers:
        return "no worker is there yet"
    return f"{counted(now.in_flight, 'call')} in flight, none answered lately" if now.in_flight else ""


def uncommitted(now: Snapshot, stage: StageState) -> str:
    """What has ended in shards that are not whole yet: nothing of it is lost when a run stops."""
    more = stage.finished - stage.committed
    if more <= 0:
        return ""
    return f"{more:,} to commit" if now.state == "working" else f"{more:,} more in the journal"


def current(now: Snapshot) -> StageState | None:
    """The first stage that is not complete; when all are, the last, of which the figures beside it are."""
    open_stages = [stage for stage in now.stages if stage.committed < stage.planned]
    own = [stage for stage in now.stages if not stage.extra] or now.stages
    return open_stages[0] if open_stages else (own[-1] if own else None)


def stopped(why: str, state: str = "stopped") -> str:
    """That a run stopped, and why."""
    if state == "working":
        return f"stopping: {why}"
    return why if why.startswith("stopped") else f"stopped: {why}"


def spent(now: Snapshot) -> str:
    """What has been used: money where it costs any and the price is known, else tokens."""
    return money(now.money) if now.money else f"{short(now.usage.total)} tokens"


def expected(now: Snapshot) -> str:
    """What the whole run is expected to use."""
    if now.expected_money:
        return f"about {money(now.expected_money)}"
    return "" if now.expected is None else f"about {short(now.expected.total)} tokens"


def share_cached(now: Snapshot) -> str:
    """How much of what was sent the endpoint had in its cache."""
    return f"{now.usage.cached / now.usage.prompt:.0%}" if now.usage.prompt else "0%"


# --- the panel ---------------------------------------------------------------------------------------------------


def panel(now: Snapshot, width: int = WIDTH) -> Panel:
    """A run as a box on the terminal."""
    # On a narrow terminal the bars give way, not the words.
    bar = max(6, BAR - max(0, WIDTH - width))
    parts: list[RenderableType] = [_stages(now, bar), Text(), _figures(now)]
    if len(now.replicas) > 1:
        parts += [Text(), _replicas(now.replicas)]
    if now.stops:
        parts += [Text(), _stops(now.stops, bar)]
    words = {
        "working": "paused" if now.paused else "",
        "complete": "complete",
        "stopped": "stopped",
        "new": "not started",
    }[now.state]
    style = {"working": "cyan", "complete": "green", "stopped": "yellow", "new": "dim"}[now.state]
    if now.why and now.state != "complete":
        parts += [Text(), Text(visible(stopped(now.why, now.state)), "yellow")]
        style = "yellow"
    title = Text(f" {visible(now.scenario)} · {visible(now.model)}{f' · {words}' if words else ''} ", "bold")
    return Panel(
        Group(*parts), title=title, title_align="left", border_style=style, padding=(0, 1), width=width
    )


def _stages(now: Snapshot, width: int) -> Table:
    grid = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "right", "left"):
        grid.add_column(justify=justify, no_wrap=True)
    at_work = current(now)
    for stage in now.stages:
        is_done = stage.committed >= stage.planned > 0
        name = Text(stage.title, "green" if is_done else "bold" if stage is at_work else "dim")
        bar = ProgressBar(
            total=max(1, stage.planned),
            completed=stage.finished,
            width=width,
            complete_style="cyan",
            finished_style="green",
        )
        notes = [
            f"{stage.open:,} in work" if stage.open else "",
            uncommitted(now, stage),
            f"{stage.failed:,} failed" if stage.failed else "",
            f"{short(stage.tokens)} tokens" if stage.extra and stage.tokens else "",
        ]
        grid.add_row(
            name,
            bar,
            f"{stage.committed:,} / {stage.planned:,}",
            Text(" · ".join(note for note in notes if note), "red" if stage.failed else "dim"),
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
    speed = "" if now.tokens_per_second is None else f" · {short(now.tokens_per_second)}/s"
    cost = f"{spent(now)} → {expected(now)}" if now.expected is not None else spent(now)
    no_worker = "" if now.workers or now.state != "working" else " · no worker is there yet"
    grid.add_row("calls", f"{usage.calls:,}{rate}", "in flight", f"{now.in_flight:,}{no_worker}")
    grid.add_row("tokens", f"{short(usage.total)}{speed}", "cached", f"{share_cached(now)} of the prompts")
    grid.add_row("spent", cost, "trouble", trouble)
    left = "" if now.eta is None else f"about {duration(now.eta)}"
    start = "this start" if now.state == "working" else "last start"
    grid.add_row("elapsed", f"{duration(now.elapsed)} ({start})", "to go", left)
    return grid


def _replicas(replicas: tuple[ReplicaState, ...]) -> Table:
    """The endpoints, a line each; of many, the troubled ones first."""
    grid = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "right", "right", "right", "right"):
        grid.add_column(justify=justify, no_wrap=True)
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
    if len(replicas) > REPLICAS:
        healthy = sum(one.state == "closed" for one in replicas)
        grid.add_row(Text(f"{len(replicas):,} in all, {healthy:,} healthy", "dim"))
    return grid


def _stops(stops: dict[str, int], width: int) -> Table:
    """Why conversations ended, as a small bar chart."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    total = sum(stops.values())
    for reason, count in sorted(stops.items(), key=lambda pair: -pair[1])[:6]:
        style = "red" if reason == "error" else "green" if reason == "done" else "yellow"
        bar = "█" * max(1, round(width * count / total))
        grid.add_row(Text(reason, "dim"), Text(bar, style), f"{count:,} ({count / total:.0%})")
    return grid
