"""Ways to solve a problem with one model: alone, by voting, by correcting oneself, and by talking.

The one decision to know: a method makes attempts until its tokens are used, then chooses among the answers, with a vote or
with the model's own judgment. No method sees whether an answer is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.history import History, estimate_tokens
from camel.core.message import Sampling, Usage, with_seed
from camel.core.model import Model, Reply, Request, WrappedModel
from camel.core.play import Declaration
from camel.core.role_playing import RolePlaying
from camel.core.society import Ending, Society
from camel.evaluation.cooperation.exercises import Exercise

MAX_MESSAGES = 8
"""Maximum number of messages of a role play about one problem."""
MEMBERS = ("Ada", "Ben", "Cleo")


class Purse(WrappedModel):
    """A model that counts the tokens of its calls, and limits the length of replies without a limit of their own."""

    usage = Usage()

    def __init__(self, model: Model, longest: int | None) -> None:
        super().__init__(model)
        self._longest = longest

    async def reply(self, request: Request) -> Reply:
        """Return the reply of the wrapped model."""
        if request.sampling.max_tokens is None:
            sampling = msgspec.structs.replace(request.sampling, max_tokens=self._longest)
            request = msgspec.structs.replace(request, sampling=sampling)
        reply = await self.inner.reply(request)
        if reply.usage.unknown:
            raise InputError("the endpoint reports no token counts, so the methods cannot have equal budgets")
        self.usage += reply.usage
        return reply


@dataclass
class Attempts:
    """The attempts at one problem so far."""

    exercise: Exercise
    model: Model
    sampling: Sampling
    session: str
    seed: int | None
    texts: list[str] = field(default_factory=list[str])
    keys: list[str] = field(default_factory=list[str])
    """The answers in a normal form; empty for an attempt without an answer."""

    def add(self, text: str) -> None:
        """Add an attempt."""
        self.texts.append(text)
        self.keys.append(self.exercise.key(text))

    @property
    def next_seed(self) -> int | None:
        """The seed of the next attempt."""
        return None if self.seed is None else (self.seed + 7919 * len(self.texts)) % 2**31

    async def ask(self, *turns: str, speaker: str = "solver") -> str:
        """Ask the model, given the turns of user and model in order."""
        history = History()
        for place, text in enumerate(turns):
            history.add("assistant" if place % 2 else "user", text)
        sampling = with_seed(self.sampling, self.next_seed)
        return (await self.model.reply(Request(history, sampling, self.session, speaker))).content


Attempt = Callable[[Attempts], Awaitable[str]]
Choose = Literal["vote", "judge", "last"]


class Method(msgspec.Struct, frozen=True):
    """A way to solve problems: how an attempt is made, and how one of the answers is chosen."""

    name: str
    attempt: Any
    """An `Attempt`. It returns a text that contains an answer."""
    choose: Choose = "vote"
    once: bool = False
    """Whether there is one attempt per problem, whatever it costs."""
    identity: Any = None
    """What identifies a method of the user's own."""

    def reserve(self, made: Attempts) -> int:
        """Return the number of tokens to keep for the choice among the answers and one more."""
        if self.choose != "judge" or not made.texts:
            return 0
        sizes = [_size(text) for text in made.texts]
        return _size(made.exercise.question) + sum(sizes) + sum(sizes) // len(sizes) + 80

    async def chosen(self, made: Attempts) -> int:
        """Return the number of the chosen attempt, or -1 if none has an answer."""
        keys = made.keys
        if not any(keys):
            return -1
        if self.choose == "last":
            return max(place for place, key in enumerate(keys) if key)
        if self.choose == "judge" and len({*keys} - {""}) > 1:
            listed = "\n\n".join(f"Solution {number + 1}:\n{text}" for number, text in enumerate(made.texts))
            question = _JUDGE.format(question=made.exercise.question, solutions=listed)
            said = (await made.ask(question, speaker="judge")).split()
            number = next((int(word.strip(".:#*")) for word in said if word.strip(".:#*").isdecimal()), 0)
            if 1 <= number <= len(keys) and keys[number - 1]:
                return number - 1
        return vote(keys)


def vote(keys: Sequence[str]) -> int:
    """Return the place of the most frequent answer; of several, that of the first. -1 if there is none."""
    counts = Counter(key for key in keys if key)
    return keys.index(counts.most_common(1)[0][0]) if counts else -1


def _size(text: str) -> int:
    # `estimate_tokens` assumes three bytes per token, which is about 25% too many tokens for these prompts.
    return estimate_tokens(text) * 4 // 5


_SOLVE = "Solve this problem step by step. {form}\n\n{question}"
_JUDGE = """Several solutions of one problem follow. Decide which one is most likely right.

Problem:
{question}

{solutions}

Answer with the number of the best solution and nothing else."""
_FEEDBACK = "Check your solution step by step. Name every mistake in it, or say that there is none. Do not write a new solution yet."
_REFINE = "Now write the final solution, with the mistakes corrected. {form}"
_REPORT = """Two or more agents worked on a problem. Their conversation follows. Write down the solution at which they arrived, in a \
few lines, without changing it. {form}

Problem:
{question}

Conversation:
{conversation}"""


async def _single(made: Attempts) -> str:
    return await made.ask(_SOLVE.format(form=made.exercise.form, question=made.exercise.question))


async def _refine(made: Attempts) -> str:
    if not made.texts:
        return await _single(made)
    question = _SOLVE.format(form=made.exercise.form, question=made.exercise.question)
    feedback = await made.ask(question, made.texts[-1], _FEEDBACK)
    return await made.ask(
        question, made.texts[-1], _FEEDBACK, feedback, _REFINE.format(form=made.exercise.form)
    )


def talking(declaration: Declaration) -> Attempt:
    """Return the attempt that plays a declared conversation about the problem and writes down its result."""

    async def attempt(made: Attempts) -> str:
        exercise = made.exercise
        task = f"{exercise.question}\n\n{exercise.form}"
        row = dict.fromkeys(declaration.placeholders, task)
        play = declaration.fill(row).play(
            made.model, id=f"{made.session}-{len(made.texts)}", seed=made.next_seed
        )
        transcript = await play.finish()
        # A message that ends as asked is the result, and needs no further call.
        said = (one.content for one in reversed(transcript.messages) if "####" in one.content)
        if exercise.key(text := next(said, "")):
            return text
        talk = "\n\n".join(f"{one.role}: {one.content}" for one in transcript.messages)
        return await made.ask(
            _REPORT.format(form=exercise.form, question=exercise.question, conversation=talk)
        )

    return attempt


def _role_play(critic: int | None = None) -> Attempt:
    return talking(
        RolePlaying(
            "<problem>",
            assistant="Problem Solver",
            user="Teacher",
            specify=False,
            max_messages=MAX_MESSAGES,
            critic=critic,
        )
    )


def _society() -> Attempt:
    return talking(
        Society(
            "Find the right solution together. First everyone solves the problem alone, then compare.\n\n<problem>",
            members=MEMBERS,  # pyright: ignore[reportArgumentType] - plain names are accepted
            stop=Ending(max_rounds=2),
        )
    )


METHODS: dict[str, Callable[[], Method]] = {
    "single": lambda: Method("single", _single, once=True),
    "best_of_n": lambda: Method("best_of_n", _single, "judge"),
    "self_consistency": lambda: Method("self_consistency", _single),
    "self_refine": lambda: Method("self_refine", _refine, "last"),
    "role_play": lambda: Method("role_play", _role_play()),
    "role_play_critic": lambda: Method("role_play_critic", _role_play(2)),
    "society": lambda: Method("society", _society()),
}
"""The methods that come with CAMEL."""
REFERENCE = "single"


def find_methods(given: Sequence[str | Declaration]) -> list[Method]:
    """Return methods by name, and a method for each declared conversation with a placeholder for the problem."""
    found: list[Method] = []
    for one in given:
        if isinstance(one, str):
            if one not in METHODS:
                raise InputError(
                    f"there is no method {shown(one)}{similar(one, METHODS)}. Use {', '.join(METHODS)}, or a RolePlaying or Society"
                )
            found.append(METHODS[one]())
        else:
            if len(one.placeholders) != 1:
                raise InputError(
                    f"{one.title} needs one placeholder, such as <problem>, where the problem goes, not {len(one.placeholders)}"
                )
            title = "_".join(one.title.lower().split())[:40]
            name = title if title not in METHODS else f"my_{title}"
            found.append(Method(name, talking(one), identity=one.identity()))
    names = [one.name for one in found]
    if again := next((name for name in names if names.count(name) > 1), ""):
        raise InputError(f"two methods are called {again}")
    return found
