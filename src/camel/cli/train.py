"""`camel train`: fine-tune a model on rows."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli.options import argument, flag, leave_to, option, typed
from camel.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from camel.training.config import TrainConfig

BESIDE = ("--address", "--gguf", "--dry-run", "--device", "--parameters")
"""Options that hold beside a file too."""


def train(
    command: typer.Context,
    given: Annotated[
        list[str] | None, argument("ROWS… | CONFIG.toml", "Folders of rows, or a file that says all of this.")
    ] = None,
    preferences: Annotated[
        list[str] | None,
        option("Instead of rows: learn what a critic preferred (DPO); repeatable.", "RUN|FILE"),
    ] = None,
    recipe: Annotated[str, option("Settings to begin from: paper, lora, qlora, dpo, cpu.", "NAME")] = "",
    model: Annotated[str, option("A folder, a name on the hub, a GGUF file, or local.", "MODEL")] = "",
    out: Annotated[str, option("Where the model is written.", "FOLDER")] = "model",
    epochs: Annotated[float | None, option("Times that every row is read.")] = None,
    steps: Annotated[int | None, option("Steps at most.")] = None,
    batch: Annotated[int | None, option("Rows of a step.")] = None,
    length: Annotated[int | None, option("Longest row.", "TOKENS")] = None,
    learning_rate: Annotated[float | None, option("Learning rate.")] = None,
    devices: Annotated[int | None, option("GPUs, or processes on CPUs; each is started.", "N")] = None,
    address: Annotated[
        str,
        option(
            "Train on a Ray cluster: local (one started here), auto, or host:port of its head.", "ADDRESS"
        ),
    ] = "",
    gguf: Annotated[bool, option("Also write the model as one GGUF file, for camel serve.")] = True,
    dry_run: Annotated[
        bool, flag("--dry-run", "Say what it would take, and with which settings; train nothing.")
    ] = False,
    device: Annotated[
        str,
        option("For --dry-run: A100-80GB, H100-80GB or CPU; CPU where the settings are for one.", "NAME"),
    ] = "",
    parameters: Annotated[
        str, option("For --dry-run: how many a model has that is not here: 7B, 135M.", "COUNT")
    ] = "",
) -> None:
    """Fine-tune a model on rows that `camel rows` made, or on preferences. The same command goes on where it stopped."""
    from rich.console import Console

    from camel.jobs.signals import INTERRUPTED
    from camel.training.config import made_config, read_config

    console = Console(highlight=False)
    given = given or []
    if len(given) == 1 and given[0].endswith(".toml"):
        leave_to(given[0], [option for option in typed(command) if option not in BESIDE])
        config = read_config(Path(given[0]))
    else:
        chosen: dict[str, Any] = {
            "model": model or None,
            "epochs": epochs,
            "steps": steps,
            "batch": batch,
            "length": length,
            "learning_rate": learning_rate,
            "devices": devices,
            "preferences": preferences,
        }
        stated = {name: value for name, value in chosen.items() if value is not None}
        usual = "dpo" if preferences else "lora"
        config = made_config(recipe or usual, {"rows": given, "out": out, **stated})
    if dry_run:
        _estimate(console, config, device, address, parameters)
        return
    if not _trained(console, config, gguf, address):
        typer.echo("stopped by you; the same command goes on")
        raise typer.Exit(INTERRUPTED)


def _estimate(console: Console, config: TrainConfig, device: str, address: str, parameters: str) -> None:
    import msgspec

    from camel.reports.numbers import duration, money
    from camel.training.estimate import estimate, guessed
    from camel.training.launch import command
    from camel.training.stored_rows import Rows

    if config.preferences:
        raise InputError("what preferences take is not estimated: leave out --dry-run, or estimate the rows")
    rows = [Rows(path) for path in config.rows]
    tokens = sum(marker.totals.get("tokens", 0.0) for one in rows for marker in one.markers)
    size = guessed(parameters) if parameters else None
    device = device or ("CPU" if config.precision == "fp32" else "A100-80GB")
    found = estimate(config, sum(map(len, rows)), tokens, device, size)
    for line in found.arithmetic:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    fits = "fits" if found.fits else "does not fit: a smaller at_once, an adapter, or more devices"
    console.print(
        f"{found.memory:.0f} GB on each of {found.devices} {found.device}: {fits}. About {duration(3600 * found.hours)}, {money(found.dollars)}, besides loading the model.",
        markup=False,
        soft_wrap=True,
    )
    console.print("It would be started with:", markup=False)
    console.print(msgspec.json.format(msgspec.json.encode(config), indent=2).decode(), markup=False)
    if address:
        console.print(f"as {config.devices} workers of the Ray cluster at {address}", markup=False)
    elif config.devices > 1:
        *words, _ = command(config)
        console.print(f"by: {shlex.join(words)} CONFIG", markup=False, soft_wrap=True)


def _trained(console: Console, config: TrainConfig, gguf: bool, address: str) -> bool:
    from camel.cli.panel import say
    from camel.reports.numbers import duration
    from camel.training.launch import launched
    from camel.training.trained import Step

    asked = False

    def stop(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say(console, "stopping after this step, with a checkpoint")

    def notice(step: Step) -> None:
        rate = step.tokens / max(step.seconds, 1e-9)
        left = step.seconds / max(1, step.step) * (step.of - step.step)
        say(
            console,
            f"step {step.step:,} of {step.of:,} · loss {step.loss:.3f} · {rate:,.0f} tokens/s · {step.memory:.1f} GB · "
            f"about {duration(left)} to go",
        )

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        found = launched(config, notice=notice, stop=lambda: asked, gguf=gguf, address=address)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if found is None:
        return False
    say(
        console,
        f"loss {found.first_loss:.3f} to {found.last_loss:.3f} in {found.steps:,} steps · {found.out}/README.md"
        + (f"\nserve it: camel serve --gguf {found.out}/model.gguf" if gguf else ""),
    )
    return True
