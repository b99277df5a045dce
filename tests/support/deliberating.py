"""A model for tests of critics: what it says is a function of what it is asked, and its calls are counted."""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections.abc import Awaitable, Callable

from camel.core.conversation import Critic
from camel.core.errors import RequestRejected
from camel.core.message import Usage
from camel.core.model import Choice, Model, Reply, Request
from camel.core.role_playing import RolePlaying
from camel.core.stops import paper_rules
from camel.core.transcript import Transcript
from camel.models.recorded import RecordedModel

WORDS = [
    "bridge",
    "lantern",
    "orchard",
    "turbine",
    "ledger",
    "compass",
    "mosaic",
    "harbour",
    "vineyard",
    "atlas",
]


class Speaker(Model):
    """Plays both roles and the critic; `most` choices a call (0: refuses more than one), `mute` judges answer nonsense."""

    def __init__(self, *, most: int = 100, mute: int = 0, jitter: random.Random | None = None) -> None:
        self.most, self.mute, self.jitter = most, mute, jitter
        self.asked: list[Request] = []
        self.sent: list[tuple[str, str]] = []
        """Who was asked what, to the letter."""
        self.refused = 0

    @property
    def questions(self) -> list[str]:
        """What the critic was asked."""
        return [text for speaker, text in self.sent if speaker == "critic"]

    @property
    def calls(self) -> int:
        return len(self.asked) - self.refused

    async def reply(self, request: Request) -> Reply:
        self.asked.append(request)
        heard = bytes(request.history.encoded())
        self.sent.append((request.speaker, heard.decode()))
        if self.jitter:
            for _ in range(self.jitter.randrange(4)):  # calls made together end in any order
                await asyncio.sleep(0)
        if request.sampling.n > 1 and not self.most:
            self.refused += 1
            raise RequestRejected("n must be 1")
        seed = f"{request.sampling.seed} {request.speaker}".encode()
        count = min(request.sampling.n, max(1, self.most))
        draws = [int.from_bytes(hashlib.sha256(heard + seed + bytes([i])).digest()[:8]) for i in range(count)]
        choices = tuple(Choice(self._said(request, draw)) for draw in draws)
        return Reply(choices, Usage(len(heard) // 4, 10 * count, 0, 1), "speaker", draws[0] % 1000 / 1000)

    def _said(self, request: Request, draw: int) -> str:
        words = " ".join(WORDS[draw // 10**place % 10] for place in range(6))
        if request.speaker == "user":
            return f"Instruction: Look at the {words}.\nInput: None"
        if request.speaker != "critic":
            return f"Solution: I looked at the {words}, and it works.\nNext request."
        if self.mute and draw % self.mute == 0:
            return "I like them all."
        if request.expects == "scores":
            return "\n".join(f"{n + 1}: {draw // 7**n % 11}. So." for n in range(request.options))
        number = draw % request.options + 1
        if request.expects == "verdict":
            return f"{number}. {'ACCEPT' if draw // 100 % 2 else 'REVISE'}: Name the {words}."
        return f"{number}. It names the {words}."


def play(
    model: Model, critic: Critic | None, user_critic: Critic | None = None, messages: int = 6
) -> RolePlaying:
    return RolePlaying(
        assistant="Programmer",
        user="Trader",
        task="Build a bot",
        model=model,
        critic=critic,
        user_critic=user_critic,
        specifier=None,
        rules=paper_rules(max_messages=messages),
        id="a conversation",
    )


class Killed(Exception):
    """The process ended here."""


class Journal:
    """An item's steps as the engine keeps them: numbered in the order in which they are begun."""

    def __init__(self, kept: dict[int, tuple[bytes, bytes]], die_after: int | None = None) -> None:
        self.kept, self.left = kept, die_after
        self.step = 0

    def model(self, model: Model) -> Model:
        return RecordedModel(model, self.once)

    async def once(self, check: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        step, self.step = self.step, self.step + 1
        if step in self.kept:
            assert self.kept[step][0] == check, f"step {step} asks something else than before"
            return self.kept[step][1]
        result = await make()
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1
        self.kept[step] = check, result
        return result


OPTION = re.compile(r"^Option (\d+):$", re.MULTILINE)


def check_record(transcript: Transcript) -> None:
    """What must hold of every record, for every kind of critic."""
    for message in transcript.messages:
        found = message.deliberation
        if found is None:
            continue
        said = found.proposals[found.choice]
        assert said.content == message.content
        assert said.speaker == ""
        # What was said is a first proposal, or a revision of one, and of one of those.
        while said.revises:
            said = found.proposals[said.parent]
        assert said.parent == -1
        assert all(one.parent < place for place, one in enumerate(found.proposals))
    assert Transcript.from_json(transcript.to_json()) == transcript
