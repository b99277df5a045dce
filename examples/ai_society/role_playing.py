"""A Python programmer helps a stock trader to build a trading bot: the demo of the paper's README.

    export OPENAI_API_KEY=<your key>
    python examples/ai_society/role_playing.py

With OPENAI_BASE_URL it talks to any other endpoint; with `--local` to the tiny model on this machine.
Change the roles and the task below, or run `camel play --help` for the same as a command.
"""

from __future__ import annotations

import asyncio
import os
import sys

from camel import ChatModel, Event, RolePlaying, Sampling, Text, local_model

ASSISTANT = "Python Programmer"
USER = "Stock Trader"
TASK = "Develop a trading bot for the stock market"
MODEL = os.environ.get("CAMEL_MODEL", "gpt-4.1-mini")


def show(event: Event) -> None:
    """Print the words as they come."""
    if isinstance(event, Text):
        print(event.text, end="", flush=True)


async def main(model: ChatModel, sampling: Sampling) -> None:
    """Let the two talk, and say why they stopped."""
    async with model:
        role_playing = RolePlaying(
            assistant=ASSISTANT, user=USER, task=TASK, model=model, sampling=sampling, watch=show
        )
        print("Task specifier: ", end="")
        await role_playing.prepared()
        print("\n")
        async for message in role_playing:
            print(f"\n   [{message.index + 1}, {message.role}]\n")
    transcript = role_playing.transcript
    print(f"Ended because {transcript.stop.detail}." if transcript.stop else "Not finished.")
    print(f"{len(transcript.messages)} messages, {transcript.usage.total:,} tokens.")


if __name__ == "__main__":
    if "--local" in sys.argv:
        # Short and varied replies suit a model of this size.
        with local_model() as tiny:
            asyncio.run(main(tiny, Sampling(temperature=0.8, max_tokens=160)))
    else:
        asyncio.run(main(ChatModel(MODEL), Sampling(temperature=0.2)))
