"""A very small model with random weights, made in a second, that transformers and trl can train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ':' + m['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def make_tokenizer(folder: Path) -> Any:
    """Write its tokenizer, one token per byte or more, and return it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator(["Solution: Next request."], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="</s>", pad_token="<s>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_model(folder: Path) -> None:
    """Write a very small model that transformers can train."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer(folder)
    torch.manual_seed(0)
    size = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    LlamaForCausalLM(size).save_pretrained(folder)
