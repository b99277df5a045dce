"""A Python programmer helps a stock trader to build a trading bot: the demo of the paper's README.

    export OPENAI_API_KEY=<your key>
    python examples/ai_society/role_playing.py

With OPENAI_BASE_URL it uses any other endpoint; with `--local` to the tiny model on this machine.
Change the roles and the task below, or run `camel play --help` for the same as a command.
"""

from __future__ import annotations

import asyncio
import os
import sys

from camel import CamelError, ChatModel, Event, RolePlaying, Sampling, Text, connect, local_model
from camel.models.local import LOCAL_SAMPLING

ASSISTANT = "Python Programmer"
USER = "Stock Trader"
TASK = "Develop a trading bot for the stock market"
MODEL = os.environ.get("CAMEL_MODEL", "")


class Printer:
    """Prints the words as they come, under the name of who says them."""

    def __init__(self) -> None:
        self.speaker = ""

    def __call__(self, event: Event) -> None:
        """Show one piece of a reply."""
        if not isinstance(event, Text):
            print(f"\n(trying again: {event.error})")
            return
        if event.speaker != self.speaker:
            self.speaker = event.speaker
            print(f"\n\n--- {event.speaker}")
        print(event.text, end="", flush=True)


async def main(model: ChatModel, sampling: Sampling) -> None:
    """Run the conversation, and print why it stopped."""
    async with model:
        role_playing = RolePlaying(
            assistant=ASSISTANT, user=USER, task=TASK, model=model, sampling=sampling, watch=Printer()
        )
        transcript = await role_playing.finish()
    print(f"\n\nEnded because {transcript.stop.detail}." if transcript.stop else "Not finished.")
    print(f"{len(transcript.messages)} messages, {transcript.usage.total:,} tokens.")


if __name__ == "__main__":
    try:
        if "--local" in sys.argv:
            with local_model() as tiny:
                asyncio.run(main(tiny, LOCAL_SAMPLING))
        else:
            asyncio.run(main(connect(MODEL), Sampling(temperature=0.2)))
    except CamelError as error:
        sys.exit(f"role_playing: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
