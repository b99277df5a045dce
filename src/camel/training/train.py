"""Fine-tuning on rows: one call, on a CPU, a GPU or several; whoever is killed goes on with the same call.

    out/config.json        what it is made from, and the fingerprint under which it goes on
    out/checkpoints/       the last two; a training goes on from the newest whole one
    out/progress.jsonl     a line a step: loss, learning rate, tokens/s, memory
    out/merged/            the model, adapters merged, as transformers reads it
    out/model.gguf         the same for `camel serve --gguf`
    out/README.md          its card: data, settings, results

The one decision to know: the trainer is TRL's and only that. The rows are given to it as tokens and labels, so that what
is learnt was decided, and can be tested, before it starts.
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
from camel.storage.files import replacing
from camel.training.card import write_card
from camel.training.chats import tokenized
from camel.training.config import TrainConfig
from camel.training.rows import Rows
from camel.training.weights import GGUF, MERGED, converter, need, opened, to_gguf

CHECKPOINTS, PROGRESS, CONFIG, RESULT = "checkpoints", "progress.jsonl", "config.json", "result.json"


class NotANumber(CamelError):
    """The loss became infinite or no number."""


class Step(msgspec.Struct, frozen=True):
    """How a training stands after a step."""

    step: int
    of: int
    epoch: float
    loss: float
    learning_rate: float
    tokens: int
    """Read so far in this start."""
    seconds: float
    """Of this start."""
    memory: float
    """GB, of the device; of the process where that is a CPU."""


class Trained(msgspec.Struct, frozen=True):
    """What came of it."""

    out: str
    steps: int
    rows: int
    first_loss: float
    """Mean over the first tenth of the steps."""
    last_loss: float
    """Mean over the last tenth."""
    seconds: float
    """Of the last start."""


def train(
    config: TrainConfig,
    *,
    notice: Callable[[Step], None] = lambda step: None,
    stop: Callable[[], bool] = lambda: False,
    gguf: bool = True,
) -> Trained | None:
    """Train, or go on; None when `stop` said so, with a checkpoint from which the same call goes on."""
    if gguf:
        converter()  # who lacks it hears of it now, and not after the last step
    rows = [Rows(path) for path in config.rows]
    data = " ".join(marker.sha256 for one in rows for marker in one.markers)
    out = Path(config.out)
    begun = _begun(config, out, config.fingerprint(data))
    if (out / RESULT).is_file():
        return msgspec.json.decode((out / RESULT).read_bytes(), type=Trained)
    started = time.monotonic()
    trainer, count = _trainer(config, rows, out, notice, stop)
    last = _newest(out / CHECKPOINTS)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    if stop() and trainer.state.global_step < trainer.state.max_steps:
        return None
    losses = [one["loss"] for one in trainer.state.log_history if "loss" in one]
    if not losses or not math.isfinite(losses[-1]):
        raise NotANumber("the loss is no number any more: try a smaller learning rate")
    _write_merged(trainer, out)
    if gguf:
        to_gguf(out / MERGED, out / GGUF)
    tenth = max(1, len(losses) // 10)
    result = Trained(
        config.out,
        trainer.state.global_step,
        count,
        sum(losses[:tenth]) / tenth,
        sum(losses[-tenth:]) / tenth,
        time.monotonic() - started,
    )
    write_card(out, config, rows, result, losses, begun)
    _put(out / RESULT, msgspec.json.encode(result))
    return result


def _begun(config: TrainConfig, out: Path, fingerprint: str) -> dict[str, Any]:
    """What the folder holds, if this may go on with it."""
    path = out / CONFIG
    if path.is_file():
        begun: dict[str, Any] = json.loads(path.read_text())
        if begun.get("fingerprint") != fingerprint:
            raise InputError(
                f"{out} holds a training of something else: name another folder with --out, or remove this one"
            )
        return begun
    if out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty and holds no training: name another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    begun = {"fingerprint": fingerprint, "version": __version__, "config": msgspec.to_builtins(config)}
    _put(path, json.dumps(begun, indent=2).encode())
    return begun


def _trainer(
    config: TrainConfig,
    rows: list[Rows],
    out: Path,
    notice: Callable[[Step], None],
    stop: Callable[[], bool],
) -> tuple[Any, int]:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    trl, torch, transformers, datasets = need("trl"), need("torch"), need("transformers"), need("datasets")
    transformers.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    gpu = bool(torch.cuda.is_available())
    precision = config.precision if config.precision != "auto" else ("bf16" if gpu else "fp32")
    bits = config.adapter.bits if config.adapter else 16
    if bits == 4 and not gpu:
        raise InputError("four-bit weights need a GPU: leave out adapter.bits")
    transformers.set_seed(config.seed)
    model, tokenizer = opened(config.model, bits=bits, precision=precision)
    if tokenizer.chat_template is None:
        raise InputError(f"{config.model} has no chat template: give a model that was made for chats")
    files = [str(file) for one in rows for file in one.files]
    data = tokenized(tokenizer, files, config.length, str(out / "tokens"))
    if not len(data):
        raise InputError("the rows hold nothing to learn at this length")
    devices = max(1, config.devices if gpu else 1)
    arguments = trl.SFTConfig(
        output_dir=str(out / CHECKPOINTS),
        num_train_epochs=config.epochs,
        max_steps=config.steps or -1,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        per_device_train_batch_size=min(config.at_once, config.batch),
        gradient_accumulation_steps=max(1, config.batch // (min(config.at_once, config.batch) * devices)),
        max_length=config.length,
        bf16=precision == "bf16",
        use_cpu=not gpu,
        gradient_checkpointing=gpu,
        logging_steps=1,
        save_steps=config.save_every,
        save_total_limit=2,
        seed=config.seed,
        data_seed=config.seed,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=gpu,
        **({"fsdp": "full_shard auto_wrap"} if devices > 1 else {}),
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
    trainer = trl.SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=adapter,
        callbacks=[_callback(out / PROGRESS, notice, stop)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer, len(data)


def _callback(path: Path, notice: Callable[[Step], None], stop: Callable[[], bool]) -> Any:
    transformers = need("transformers")

    class Watch(transformers.TrainerCallback):
        """Writes a line a step, and ends the training where it is asked to."""

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
            with path.open("ab") as file:
                file.write(msgspec.json.encode(step) + b"\n")
            notice(step)

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
            if stop():
                control.should_save = control.should_training_stop = True
            return control

    return Watch()


def _memory() -> float:
    torch = need("torch")
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _newest(folder: Path) -> Path | None:
    """The last checkpoint that is whole: the state is what is written last."""
    found: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        with contextlib.suppress(ValueError, OSError):
            step = int(path.name.rpartition("-")[2])
            json.loads((path / "trainer_state.json").read_text())
            found.append((step, path))
    return max(found)[1] if found else None


def _write_merged(trainer: Any, out: Path) -> None:
    """The model with its adapters merged into it, beside its tokenizer."""
    model = trainer.model
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    part = out / f"{MERGED}.part"
    for left in (part, out / MERGED):  # by a start that was killed here
        shutil.rmtree(left, ignore_errors=True)
    model.save_pretrained(str(part))
    trainer.processing_class.save_pretrained(str(part))
    part.rename(out / MERGED)


def _put(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)
