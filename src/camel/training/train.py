"""Fine-tunes a model on rows or preferences, on a CPU or GPUs. After a kill, the same call resumes the training.

    out/config.json        settings, and the fingerprint that a resumed training must have
    out/checkpoints/       the last two; a training resumes from the newest complete one
    out/progress.jsonl     one line per step: loss, learning rate, tokens, memory
    out/merged/            the model with merged adapters, for transformers
    out/model.gguf         the same model for `camel serve --gguf`
    out/README.md          model card: data, settings, results

The one decision to know: TRL's trainer does the training. It gets rows as tokens and labels, so tests can check which tokens
are trained on without a training. With several devices, every process calls `train` (`launch` starts them), and the first one
writes the files.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.errors import CamelError, InputError
from camel.core.message import in_one_line
from camel.storage import inside
from camel.training.config import TrainConfig
from camel.training.data import digest_of, pairs, tokenized
from camel.training.stored_rows import Rows
from camel.training.weights import (
    GGUF,
    MERGED,
    check_template,
    content_of,
    converter,
    need,
    opened,
    template_text,
    to_gguf,
)

_WIDTH, _HEIGHT = 640, 200


def write_card(
    config: TrainConfig, rows: list[Rows], result: Trained, losses: list[float], begun: dict[str, Any]
) -> None:
    """Write the model card `README.md`, and the loss curve `loss.svg`."""
    out = Path(config.out)
    (out / "loss.svg").write_text(curve(losses), "utf-8")
    labels = sorted({label for one in rows for label in _labels(one)})
    kind, what = "sft", "rows of conversations between"
    if config.preferences:
        kind, what = "dpo", "preferences of a critic between answers of"
    lines: list[str] = []
    for one in rows:
        settings = one.folder.settings()
        sources: list[dict[str, Any]] = settings.config.get("rows", {}).get("sources", [])
        names = ", ".join(f"{in_one_line(str(s.get('run', '')))} x {s.get('weight', 1)}" for s in sources)
        lines.append(f"| {len(one):,} | {names} | `{settings.fingerprint}` |")
    lines += [f"| | {in_one_line(name)} | |" for name in config.preferences]
    if labels:
        lines += ["", f"**This model was trained on data labeled {', '.join(map(in_one_line, labels))}.**"]
    template = Path(__file__).with_name("card.md").read_text("utf-8")
    card = template.format(
        base=json.dumps(config.model),
        kind=kind,
        labels=f"labels: {json.dumps(labels)}\n" if labels else "",
        name=in_one_line(out.name),
        model=in_one_line(config.model),
        what=what,
        data="\n".join(lines),
        settings=msgspec.json.format(msgspec.json.encode(config), indent=2).decode(),
        result=result,
        begun=begun,
    )
    (out / "README.md").write_text(card, "utf-8")


def _labels(rows: Rows) -> set[str]:
    from camel.record.parquet import arrow

    pq = arrow("pyarrow.parquet")
    found: set[str] = set()
    with rows.opened() as files:
        for file in files:
            column = pq.read_table(file, columns=["labels"]).column("labels").combine_chunks()
            found.update(column.flatten().unique().to_pylist())
    return found


def curve(losses: list[float]) -> str:
    """Return the loss curve as SVG."""
    top = max(losses, default=1.0) or 1.0
    last = max(1, len(losses) - 1)
    points = " ".join(
        f"{40 + (_WIDTH - 60) * at / last:.1f},{20 + (_HEIGHT - 50) * (1 - loss / top):.1f}"
        for at, loss in enumerate(losses)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<path d="M40 20V{_HEIGHT - 30}H{_WIDTH - 20}" fill="none" stroke="#888"/>'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="2"/>'
        f'<text x="8" y="24" fill="#444">{top:.2f}</text><text x="22" y="{_HEIGHT - 26}" fill="#444">0</text>'
        f'<text x="{_WIDTH - 20}" y="{_HEIGHT - 12}" text-anchor="end" fill="#444">step {len(losses)}</text></svg>\n'
    )


CHECKPOINTS, PROGRESS, CONFIG, RESULT = "checkpoints", "progress.jsonl", "config.json", "result.json"


class Step(msgspec.Struct, frozen=True):
    """The state of a training after a step."""

    step: int
    of: int
    epoch: float
    loss: float
    learning_rate: float
    tokens: int
    """Number of tokens processed since this process started."""
    seconds: float
    """Seconds since this process started."""
    memory: float
    """Peak memory in GB: of the GPU, or of the process if there is no GPU."""


class Trained(msgspec.Struct, frozen=True):
    """The result of a training."""

    out: str
    steps: int
    rows: int
    first_loss: float
    """Mean loss over the first 10 % of the steps."""
    last_loss: float
    """Mean loss over the last 10 % of the steps."""
    seconds: float
    """Seconds from the start of the process that finished the training to its end."""


class NotANumber(CamelError):
    """The loss became infinite or NaN."""


def train(
    config: TrainConfig,
    *,
    notice: Callable[[Step], None] = lambda step: None,
    stop: Callable[[], bool] = lambda: False,
    gguf: bool = True,
) -> Trained | None:
    """Train a model, or resume its training. Return None if `stop` returned true; the same call then resumes.

    With several devices, `camel.training.launch`, torchrun or Ray calls this in each of the `config.devices` processes.
    """
    if processes() != config.devices:
        raise InputError(
            f"{config.devices} devices need {config.devices} processes, not {processes()}. Start the training with camel train, "
            "or with camel.training.launch.launched in Python"
        )
    out = Path(config.out)
    rows, begun = prepared(config, gguf=gguf) if _first() else (_rows(config), {})
    if (done := finished(config)) is not None:
        return done
    started = time.monotonic()
    trainer, count = _trainer(config, rows, notice, stop)
    last = _newest(out / CHECKPOINTS)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    # From the state, because `stop` may return different values in different processes.
    if trainer.state.global_step < trainer.state.max_steps:
        return None
    losses = [one["loss"] for one in trainer.state.log_history if "loss" in one]
    if not losses or not math.isfinite(losses[-1]):
        raise NotANumber("the loss is infinite or not a number. Try a smaller learning rate")
    tenth = max(1, len(losses) // 10)
    result = Trained(
        config.out,
        trainer.state.global_step,
        count,
        sum(losses[:tenth]) / tenth,
        sum(losses[-tenth:]) / tenth,
        time.monotonic() - started,
    )
    _write_merged(trainer, config, out)
    if not _first():
        return result
    if gguf:
        to_gguf(out / MERGED, out / GGUF)
    write_card(config, rows, result, losses, begun)
    inside.write(out, RESULT, msgspec.json.encode(result))
    return result


def processes() -> int:
    """Return the number of processes of this training, from the environment variable `WORLD_SIZE`."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def _first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _rows(config: TrainConfig) -> list[Rows]:
    return [Rows(path) for path in config.rows]


def prepared(config: TrainConfig, *, gguf: bool) -> tuple[list[Rows], dict[str, Any]]:
    """Check the inputs and the output folder before a training starts. Return the rows and the content of `config.json`."""
    if gguf:
        converter()  # fail now if it is missing, not after the last step
    check_template(config.model, config.chat_template)
    rows = _rows(config)
    for one in rows:
        one.check()
    data = [marker.sha256 for one in rows for marker in one.markers]
    data += [digest_of(name) for name in config.preferences]
    weights = content_of(config.model)
    # A model on this disk is identified by its content, not by its path.
    known = msgspec.structs.replace(config, model=weights) if weights else config
    return rows, _begin(config, Path(config.out), known.fingerprint(" ".join(data)))


def finished(config: TrainConfig) -> Trained | None:
    """Return the result of a finished training. Return None if it is not finished."""
    path = Path(config.out) / RESULT
    return msgspec.json.decode(path.read_bytes(), type=Trained) if path.is_file() else None


def _begin(config: TrainConfig, out: Path, fingerprint: str) -> dict[str, Any]:
    """Create the output folder, or check that its training can be resumed. Return the content of `config.json`."""
    path = out / CONFIG
    if path.is_file():
        begun: dict[str, Any] = json.loads(path.read_text())
        if begun.get("fingerprint") != fingerprint:
            raise InputError(
                f"'{out}' contains a training with other settings or data. Choose another folder with --out, or remove this one"
            )
        return begun
    if out.is_dir() and any(out.iterdir()):
        raise InputError(f"'{out}' is not empty and contains no training. Choose another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    begun = {"fingerprint": fingerprint, "version": __version__, "config": msgspec.to_builtins(config)}
    inside.write(out, CONFIG, json.dumps(begun, indent=2))
    return begun


def _trainer(
    config: TrainConfig, rows: list[Rows], notice: Callable[[Step], None], stop: Callable[[], bool]
) -> tuple[Any, int]:
    out = Path(config.out)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    trl, torch, transformers, datasets = need("trl"), need("torch"), need("transformers"), need("datasets")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    gpu = bool(torch.cuda.is_available())
    precision = config.precision if config.precision != "auto" else ("bf16" if gpu else "fp32")
    bits = config.adapter.bits if config.adapter else 16
    if bits == 4 and not gpu:
        raise InputError("4-bit weights need a GPU. Remove adapter.bits")
    transformers.set_seed(config.seed)
    model, tokenizer = opened(config.model, bits=bits, precision=precision)
    if config.chat_template:
        tokenizer.chat_template = template_text(config.chat_template)
    elif tokenizer.chat_template is None:  # a model of the hub
        raise InputError(f"'{config.model}' has no chat template. Add --chat-template vicuna, or a file")
    with need("accelerate").PartialState(cpu=not gpu).main_process_first():
        if config.preferences:
            data = pairs(config.preferences, out / "tokens")
        else:
            files = [str(file) for one in rows for file in one.local(out / "rows")]
            data = tokenized(tokenizer, files, config.length, str(out / "tokens"))
    if not len(data):
        raise InputError(f"no row has an answer in its first {config.length:,} tokens. Increase length")
    kind = trl.DPOConfig if config.preferences else trl.SFTConfig
    arguments = kind(
        output_dir=str(out / CHECKPOINTS),
        num_train_epochs=config.epochs,
        max_steps=config.steps or -1,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        per_device_train_batch_size=config.each,
        gradient_accumulation_steps=config.rounds,
        max_length=config.length,
        bf16=precision == "bf16",
        use_cpu=not gpu,
        logging_steps=1,
        save_steps=config.save_every,
        save_total_limit=2,
        seed=config.seed,
        data_seed=config.seed,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=gpu,
        **({"beta": config.beta} if config.preferences else {}),
        **spreading(config, gpu),
    )
    adapter = None
    if config.adapter:
        adapter = need("peft").LoraConfig(
            r=config.adapter.rank,
            lora_alpha=config.adapter.alpha,
            lora_dropout=config.adapter.dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
    trainer = (trl.DPOTrainer if config.preferences else trl.SFTTrainer)(
        model=model,
        args=arguments,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=adapter,
        callbacks=[_callback(out / PROGRESS, notice, stop)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer, len(data)


def spreading(config: TrainConfig, gpu: bool) -> dict[str, Any]:
    """Return the trainer's arguments for checkpointing and for training on several devices."""
    if config.devices == 1:
        return {"gradient_checkpointing": gpu}
    backend = {} if gpu else {"ddp_backend": "gloo"}
    if config.spread == "copies" or (config.spread == "auto" and not gpu):
        return {"gradient_checkpointing": gpu, "ddp_find_unused_parameters": False, **backend}
    if not gpu:
        # accelerate would use copies without a warning.
        raise InputError("spread = weights needs GPUs. Remove spread, or set it to copies")
    settings = {
        "version": 2,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "state_dict_type": "FULL_STATE_DICT",
        "activation_checkpointing": gpu,
    }
    # FSDP does its own activation checkpointing; doing it twice would waste time.
    return {"gradient_checkpointing": False, "fsdp": True, "fsdp_config": settings}


def _callback(path: Path, notice: Callable[[Step], None], stop: Callable[[], bool]) -> Any:
    transformers = need("transformers")

    class Watch(transformers.TrainerCallback):
        """Writes a progress line per step, and stops the training when `stop` returns true."""

        def __init__(self) -> None:
            self._started = time.monotonic()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            if not logs or "loss" not in logs:
                return
            step = Step(
                state.global_step,
                state.max_steps,
                round(float(logs.get("epoch", 0.0)), 3),
                float(logs["loss"]),
                float(logs.get("learning_rate", 0.0)),
                int(logs.get("num_tokens", 0)),
                round(time.monotonic() - self._started, 2),
                _memory(),
            )
            if state.is_world_process_zero:
                with path.open("ab") as file:
                    file.write(msgspec.json.encode(step) + b"\n")
                notice(step)

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
            if _agree(stop(), args.device):
                control.should_save = control.should_training_stop = True
            return control

    return Watch()


def _agree(stop: bool, device: Any) -> bool:
    """Return the `stop` of the first process in all processes. If one stopped alone, the others would wait for it."""
    if processes() == 1:
        return stop
    torch = need("torch")
    value = torch.tensor([int(stop)], device=device)
    torch.distributed.broadcast(value, 0)
    return bool(value.item())


def _memory() -> float:
    torch = need("torch")
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _newest(folder: Path) -> Path | None:
    """Return the newest checkpoint that is complete. Its state file is written last, so a readable state means complete."""
    found: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        with contextlib.suppress(ValueError, OSError):
            step = int(path.name.rpartition("-")[2])
            json.loads((path / "trainer_state.json").read_text())
            found.append((step, path))
    return max(found)[1] if found else None


def _write_merged(trainer: Any, config: TrainConfig, out: Path) -> None:
    """Write the model, with its adapters merged into it, and its tokenizer."""
    gathered, part = out / "gathered", out / f"{MERGED}.part"
    if _first():
        for folder in (gathered, part, out / MERGED):  # of a process that was killed at this point
            shutil.rmtree(folder, ignore_errors=True)
    if trainer.is_fsdp_enabled:
        trainer.accelerator.wait_for_everyone()
        trainer.save_model(str(gathered))  # in all processes, because each has a part of the weights
    if not _first():
        return
    model = trainer.accelerator.unwrap_model(trainer.model)
    if trainer.is_fsdp_enabled:
        model, _ = opened(config.model if config.adapter else str(gathered))
        if config.adapter:
            model = need("peft").PeftModel.from_pretrained(model, str(gathered))
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    model.save_pretrained(str(part))
    trainer.processing_class.save_pretrained(str(part))
    shutil.rmtree(gathered, ignore_errors=True)
    part.rename(out / MERGED)
