"""A judge that is a model: it reads the task, the conversation and numbered options, and chooses, scores or gives feedback.

The one decision to know: each question is one chat message with the conversation first and the options last. The next
question begins with the same bytes, so an endpoint's prefix cache applies. Earlier options and answers are not repeated,
so the model cannot choose a number of an earlier question. Quoted messages are behind `>`, so that none can pose as an
option or as the question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from camel.core.answers import read_choice, read_ruling, read_scores
from camel.core.checks import shown, whole
from camel.core.critic import Case, Verdict, seeded
from camel.core.errors import ContextOverflow, InputError
from camel.core.history import History
from camel.core.inception import fill, texts
from camel.core.message import Message, Sampling, in_one_line, well_formed
from camel.core.model import Expects, Model, Request, checked_model
from camel.core.transcript import Transcript

Mode = Literal["choose", "score", "feedback"]
"""`choose` the best option, `score` each from 0 to 10, or choose and give `feedback` for a revision."""
CRITIC = "critic"
"""The speaker name under which a judge's calls are made."""
_EXPECTS: dict[Mode, Expects] = {"choose": "choice", "score": "scores", "feedback": "verdict"}
_READERS = {"choose": read_choice, "score": read_scores, "feedback": read_ruling}
_MOST_QUOTED = 2_000
"""Maximum number of characters of an unreadable answer to quote when the judge is asked again."""


@dataclass(frozen=True)
class ModelJudge:
    """Asks a model to judge, and asks again if the answer cannot be parsed."""

    model: Model
    mode: Mode = "choose"
    criteria: tuple[str, ...] = ()
    """The criteria, one sentence each. Default: progress, correctness, the speaker's role."""
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.2))
    retries: int = 2
    """Maximum number of times the judge is asked again if its answer cannot be parsed."""

    def __post_init__(self) -> None:
        checked_model(self.model)
        mode: Any = self.mode
        if mode not in _EXPECTS:
            raise InputError(f"mode must be one of {', '.join(_EXPECTS)}, not {shown(mode)}")
        criteria: Any = self.criteria
        if isinstance(criteria, str) or not all(isinstance(one, str) and one.strip() for one in criteria):
            raise InputError(f"criteria must be a list of sentences, not {shown(criteria)}")
        whole("retries", self.retries, 0, 100)

    async def judge(self, case: Case) -> Verdict:
        """Ask the model and return its verdict. If the model does not decide, the verdict has only a reason."""
        count = len(case.options)
        # In the final round nothing is revised any more, so the judge is asked for a choice instead of feedback.
        mode: Mode = "choose" if self.mode == "feedback" and case.final else self.mode
        if mode == "choose" and len({(one.content, one.then) for one in case.options}) == 1:
            return Verdict(0, reason="there was nothing to choose between", critic=CRITIC)
        most = self.retries + 1 if case.calls is None else min(self.retries + 1, case.calls)
        said = Verdict(critic=CRITIC)
        sampling = self.sampling if self.sampling.n == 1 else replace(self.sampling, n=1)
        unread = ""
        for attempt in range(most):
            request = Request(
                self._question(case, mode, unread if attempt else None),
                seeded(sampling, attempt) if attempt else sampling,
                case.conversation.transcript.id,
                CRITIC,
                _EXPECTS[mode],
                options=count,
            )
            try:
                reply = await self.model.reply(request)
            except ContextOverflow as error:
                return replace(
                    said, reason=f"the critic's prompt no longer fits: {error}", calls=said.calls + 1
                )
            said = replace(
                said,
                critic=reply.model or CRITIC,
                usage=said.usage + reply.usage,
                latency=said.latency + reply.latency,
                calls=said.calls + 1,
            )
            unread = well_formed(reply.content)
            if verdict := _READERS[mode](unread, count):
                return replace(
                    verdict, critic=said.critic, usage=said.usage, latency=said.latency, calls=said.calls
                )
        tries = "1 answer" if said.calls == 1 else f"{said.calls} answers"
        return replace(said, reason=f"{tries} could not be read, the last: {shown(unread)}")

    def _question(self, case: Case, mode: Mode, unread: str | None) -> History:
        """Return the question as a chat. After an unreadable answer, the chat also contains the last such answer."""
        prompts = texts("critic")
        history = History(self._system(case))
        how = fill(prompts[mode], {"COUNT": str(len(case.options))})
        said = quote_messages(case.conversation.transcript.messages, "The conversation so far")
        history.add("user", f"{said}{_options(case)}{how}")
        if unread is not None:
            history.add("assistant", unread.strip()[:_MOST_QUOTED] or "…")
            history.add("user", f"{prompts['again']} {how}")
        return history

    def _system(self, case: Case) -> str:
        task = case.conversation.transcript.task
        speakers = case.conversation.transcript.speakers
        criteria = self.criteria or texts("critic")["criteria"].splitlines()
        values = {
            "ROLES": ", ".join(f"{in_one_line(one.role)} ({in_one_line(one.name)})" for one in speakers),
            "TASK": task.inserted,
            "CRITERIA": "\n".join(f"- {in_one_line(one)}" for one in criteria),
        }
        return fill(texts("critic")["system"], values)


def quote_messages(messages: Iterable[Message], heading: str = "The conversation") -> str:
    """Return a conversation as text. The text only grows, so that the endpoint can reuse its prefix cache."""
    parts = [f"{heading}:\n\n"]
    for message in messages:
        who = f"{in_one_line(message.role)} ({in_one_line(message.speaker)})"
        parts.append(f"{who}:\n{quoted(message.content)}\n\n")
    return "".join(parts)


def _options(case: Case) -> str:
    roles = {one.name: one.role for one in case.conversation.transcript.speakers}
    who = f"{in_one_line(case.agent.role)} ({in_one_line(case.agent.name)})"
    ahead = any(option.then for option in case.options)
    follows = ", and what would follow" if ahead else ""
    parts = [f"It is the turn of {who}. The options for what to say{follows}:\n\n"]
    for number, option in enumerate(case.options, 1):
        parts.append(f"Option {number}:\n{quoted(option.content)}\n")
        parts += [
            f"then {in_one_line(roles.get(name, name))} ({in_one_line(name)}):\n{quoted(one.content)}\n"
            for one in option.then
            for name in [one.speaker or case.agent.name]
        ]
        parts.append("\n")
    return "".join(parts)


def quoted(text: str) -> str:
    """Prefix every line with `>`, which the text itself cannot remove."""
    return "\n".join(f"> {line}" for line in text.splitlines()) or ">"


def quoted_talk(transcript: Transcript) -> str:
    """Return a conversation with every line quoted, so that no message can pose as part of the prompt."""
    return "\n\n".join(
        f"Message {message.index + 1}:\n{quoted(f'{in_one_line(message.role)} ({message.speaker}) says:')}\n{quoted(message.content)}"
        for message in transcript.messages
    )


def shortened(text: str, most: int, sign: str = "") -> str:
    """Shorten a text to `most` characters: a third from its beginning, then `sign`, then the rest from its end."""
    if len(text) <= most:
        return text
    return f"{text[: most // 3]}\n[… {len(text) - most:,} characters are left out …]\n{sign}{text[-(most - most // 3) :]}"
