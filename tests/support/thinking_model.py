"""The small real model made to think: llama.cpp with a chat template that knows thoughts, and a grammar that demands one.

Run as a program with a port and a folder: serves until it is ended. With `plain` as third argument it keeps the model's own
template, so that thoughts come within the text.
"""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% set content = message.content -%}
{%- if message.role == 'assistant' -%}
{%- set thought = message.reasoning_content if message.reasoning_content is defined else '' -%}
{%- if '</think>' in content -%}{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}{%- endif -%}
{%- if loop.last and thought -%}<think>
{{ thought }}
</think>

{% endif -%}
{%- endif -%}
{{ content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false -%}
<think>

</think>

{% endif -%}
{%- endif -%}
"""
MARKER = "Thought:"
"""Begins every thought, and occurs in no speech."""
_GRAMMAR = r"""
root     ::= "<think>\nThought: " sentence (" " sentence)? "\n</think>\n\n" speech
sentence ::= [A-Z] [a-z]{1,8} (" " [a-z]{1,9}){2,4} "."
"""
"""Bounded, so that even text of single letters ends within 200 tokens."""
GRAMMARS = {
    "user": _GRAMMAR + r"""speech ::= "Instruction: " sentence "\nInput: None" """,
    "assistant": _GRAMMAR + r"""speech ::= "Solution: " sentence "\nNext request." """,
}
"""What the model must write in each seat: a thought, then its move."""


def main(port: int, model: Path, template: str) -> None:
    """Serve."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {"thinker"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = 2
    params.n_ctx = 4096
    params.cpuparams.n_threads = 1
    params.ui = False
    if template:
        params.chat_template = template
        params.use_jinja = True
    server = xllamacpp.Server(params)  # ends when nobody refers to it
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), "" if sys.argv[3:] == ["plain"] else TEMPLATE)
