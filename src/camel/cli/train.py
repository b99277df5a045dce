"""`camel train`: fine-tune a model on rows."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli import options as shared
from camel.cli.options import argument, leave_to, option, typed
from camel.cli.output import echo
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.training.config import TrainConfig

WITH_FILE = ("--address", "--write-gguf", "--dry-run", "--device", "--parameters")
"""Options that can be combined with a configuration file."""

GivenArgument = Annotated[list[str] | None, argument("ROWS... | TRAIN.toml", "Folders that `camel rows` wrote, or a file with all settings of the training.")]  # fmt: skip
PreferencesOption = Annotated[list[str] | None, option("Train on preferences (DPO): a run with a critic, or a file that `camel export RUN preferences` wrote.", "RUN|FILE")]  # fmt: skip
ChatTemplateOption = Annotated[str | None, option("Chat template of a base model that has none: vicuna, or a Jinja file.", "NAME|FILE")]  # fmt: skip
DeviceOption = Annotated[str, option("With --dry-run: device to estimate for: A100-80GB, H100-80GB or CPU.", "NAME")]  # fmt: skip
ParametersOption = Annotated[str, option("With --dry-run: number of parameters, such as 7B, if the model is not on this machine.", "COUNT")]  # fmt: skip


def train(
    command: typer.Context,
    given: GivenArgument = None,
    preferences: PreferencesOption = None,
    recipe: Annotated[str, option("Predefined settings: paper, lora, qlora, dpo or cpu.", "NAME")] = "",
    base_model: shared.BaseModel = "",
    chat_template: ChatTemplateOption = None,
    out: shared.Out = "model",
    epochs: Annotated[float | None, option("Number of passes over the rows.", "NUMBER")] = None,
    steps: Annotated[int | None, option("Maximum number of training steps.", "N")] = None,
    batch_size: Annotated[int | None, option("Number of rows per training step.", "ROWS")] = None,
    length: shared.RowLength = None,
    learning_rate: Annotated[float | None, option("Learning rate.", "NUMBER")] = None,
    devices: Annotated[int | None, option("Number of GPUs, or of processes on CPUs.", "N")] = None,
    address: shared.Address = "",
    write_gguf: Annotated[bool, option("Also write model.gguf, for `camel serve`.")] = True,
    dry_run: shared.DryRun = False,
    device: DeviceOption = "",
    parameters: ParametersOption = "",
) -> None:
    """Fine-tune a model on rows or on preferences."""
    from camel.jobs.signals import INTERRUPTED
    from camel.training.config import made_config, read_config

    given = given or []
    if len(given) == 1 and given[0].endswith(".toml"):
        leave_to(given[0], [option for option in typed(command) if option not in WITH_FILE])
        config = read_config(Path(given[0]))
    else:
        chosen: dict[str, Any] = {
            "model": base_model or None,
            "chat_template": chat_template,
            "epochs": epochs,
            "steps": steps,
            "batch": batch_size,
            "length": length,
            "learning_rate": learning_rate,
            "devices": devices,
            "preferences": preferences,
        }
        settings = {name: value for name, value in chosen.items() if value is not None}
        default = "dpo" if preferences else "lora"
        config = made_config(recipe or default, {"rows": given, "out": out, **settings})
    if dry_run:
        _estimate(config, device, address, parameters)
        return
    if not _train(config, write_gguf, address):
        typer.echo("stopped by you; run the same command to continue")
        raise typer.Exit(INTERRUPTED)


def _estimate(config: TrainConfig, device: str, address: str, parameters: str) -> None:
    import msgspec

    from camel.reports.numbers import duration, money
    from camel.training.estimate import estimate, guessed
    from camel.training.launch import command
    from camel.training.stored_rows import Rows
    from camel.training.weights import check_template

    if config.preferences:
        raise InputError("--dry-run cannot estimate training on preferences: remove it, or estimate rows")
    check_template(config.model, config.chat_template)
    rows = [Rows(path) for path in config.rows]
    tokens = sum(marker.totals.get("tokens", 0.0) for one in rows for marker in one.markers)
    size = guessed(parameters) if parameters else None
    device = device or ("CPU" if config.precision == "fp32" else "A100-80GB")
    found = estimate(config, sum(map(len, rows)), tokens, device, size)
    for line in found.arithmetic:
        echo(f"  {line}")
    fits = "fits" if found.fits else "does not fit: use a smaller at_once, an adapter or more devices"
    echo(
        f"{found.memory:.0f} GB on each of {found.devices} {found.device}: {fits}. About {duration(3600 * found.hours)}, {money(found.dollars)}, plus the time to load the model."
    )
    echo("Settings:")
    echo(msgspec.json.format(msgspec.json.encode(config), indent=2).decode())
    if address:
        echo(f"It runs as {config.devices} workers of the Ray cluster at {address}.")
    elif config.devices > 1:
        *words, _ = command(config)
        echo(f"Command: {shlex.join(words)} CONFIG")


def _train(config: TrainConfig, gguf: bool, address: str) -> bool:
    from camel.reports.numbers import duration
    from camel.training.launch import launched
    from camel.training.train import Step

    stopping = False

    def stop(number: int, frame: Any) -> None:
        nonlocal stopping
        if stopping:
            raise KeyboardInterrupt
        stopping = True
        echo("stopping after this step; a checkpoint is saved")

    def notice(step: Step) -> None:
        rate = step.tokens / max(step.seconds, 1e-9)
        remaining = step.seconds / max(1, step.step) * (step.of - step.step)
        echo(
            f"step {step.step:,} of {step.of:,} · loss {step.loss:.3f} · {rate:,.0f} tokens/s · {step.memory:.1f} GB · "
            f"about {duration(remaining)} remaining",
        )

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        found = launched(config, notice=notice, stop=lambda: stopping, gguf=gguf, address=address)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if found is None:
        return False
    echo(
        f"loss {found.first_loss:.3f} to {found.last_loss:.3f} in {found.steps:,} steps · {found.out}/README.md"
        + (f"\nnext: camel serve --gguf {shlex.quote(f'{found.out}/model.gguf')}" if gguf else ""),
    )
    return True
