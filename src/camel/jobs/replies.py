"""Unusable replies: empty, cut off at the token limit, or ended by a content filter.

Such a call is repeated a limited number of times; then its item fails. Each attempt is a separate step in the
journal, so that none is paid for again after a crash.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from camel.core.errors import BadReply, CutReply, EmptyReply, FilteredReply
from camel.core.model import THOUGHT_ONLY, Choice, Model, Reply, Request, WrappedModel
from camel.models.guided import CRITICS

TRIES = 3
Cut = Literal["fail", "keep"]


def fault_of(choice: Choice, cut: Cut = "fail") -> type[BadReply] | None:
    """Return the class of error for an unusable candidate reply, or None if it is usable."""
    if choice.finish == "content_filter":
        return FilteredReply
    if choice.finish == "length" and cut == "fail":
        return CutReply
    return None if choice.content.strip() or choice.calls else EmptyReply


_WORDS: dict[type[BadReply], str] = {
    EmptyReply: "the model's reply was empty",
    CutReply: 'the reply was cut off at the token limit: set run.cut_replies = "keep" and retry, or fork the run with a larger sampling.max_tokens',
    FilteredReply: "the endpoint's content filter ended the reply",
}


class CheckedModel(WrappedModel):
    """A model that repeats calls with unusable replies. Calls of critics and judges are not checked: they retry themselves."""

    def __init__(self, model: Model, cut: Cut = "fail") -> None:
        super().__init__(model)
        self._cut: Cut = cut

    async def reply(self, request: Request) -> Reply:
        """Return the first usable reply. Raise a `BadReply` after several attempts."""
        reply = await self.inner.reply(request)
        if request.expects in CRITICS:
            return reply
        used, tries = reply.usage, 1
        while not (good := tuple(one for one in reply.choices if fault_of(one, self._cut) is None)):
            if tries == TRIES:
                kind = fault_of(reply.choices[0], self._cut) or EmptyReply
                words = THOUGHT_ONLY if reply.choices[0].thought_only else _WORDS[kind]
                raise kind(f"{words} (tried {tries} times)", attempts=tries, usage=used)
            reply = await self.inner.reply(request)
            used, tries = used + reply.usage, tries + 1
        if tries == 1 and len(good) == len(reply.choices):
            return reply
        return replace(reply, choices=good, usage=used)
