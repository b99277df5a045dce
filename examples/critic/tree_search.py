"""A critic looks two messages ahead before the programmer answers, and says what it saw.

    export OPENAI_API_KEY=<your key>
    python examples/critic/tree_search.py

With OPENAI_BASE_URL it uses any other endpoint.
"""

from __future__ import annotations

import asyncio
import os
import sys

from camel import Beam, CamelError, Deliberation, ModelJudge, RolePlaying, Sampling, connect

CRITERIA = ("Could the trader run it today?", "Does it do what was asked, and no more?")


def show(found: Deliberation) -> None:
    """Print a deliberation as the tree that it is."""
    below: dict[int, list[int]] = {}
    for number, proposal in enumerate(found.proposals):
        below.setdefault(proposal.parent, []).append(number)

    def branch(parent: int, indent: str) -> None:
        for number in below.get(parent, []):
            proposal = found.proposals[number]
            score = "" if proposal.score is None else f" [{proposal.score:g}]"
            said = "  <- said" if number == found.choice else ""
            who = proposal.speaker or "proposal"
            print(f"{indent}{who} {number + 1}{score}: {' '.join(proposal.content.split())[:60]}{said}")
            branch(number, indent + "    ")

    branch(-1, "    ")


async def main() -> None:
    """Run the conversation, and show how each of the programmer's messages was chosen."""
    async with connect(os.environ.get("CAMEL_MODEL", "")) as model:
        critic = Beam(judge=ModelJudge(model, "score", CRITERIA), width=2, depth=1, calls=12)
        role_playing = RolePlaying(
            assistant="Python Programmer",
            user="Stock Trader",
            task="Develop a trading bot for the stock market",
            model=model,
            sampling=Sampling(temperature=0.2),
            critic=critic,
        )
        async for message in role_playing:
            print(f"\n--- {message.role}, {message.usage.calls} calls\n{message.content}")
            if message.deliberation:
                show(message.deliberation)
    transcript = role_playing.transcript
    print(f"\nEnded because {transcript.stop.detail}." if transcript.stop else "Not finished.")
    print(f"{len(transcript.messages)} messages, {transcript.usage.calls} calls.")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except CamelError as error:
        sys.exit(f"tree_search: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
