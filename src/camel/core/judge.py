"""A judge that is a model: it reads the task, the conversation and numbered options, and chooses, scores or gives feedback.

The one decision to know: each question is one chat message with the conversation first and the options last. The next
question begins with the same bytes, so an endpoint's prefix cache applies. Earlier options and answers are not repeated,
so the model cannot choose a number of an earlier question. Quoted messages are behind `>`, so that none can pose as an
option or as the question. An answer is JSON where a grammar constrained the endpoint, otherwise free text; an ambiguous
answer does not count, and the question is asked again. The readers never raise, and their time is bounded for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeGuard, cast

import msgspec
from msgspec.structs import replace

from camel.core.checks import shown, whole
from camel.core.critic import Case, Verdict, seeded
from camel.core.errors import ContextOverflow, InputError
from camel.core.history import History
from camel.core.inception import fill, texts
from camel.core.message import Message, Sampling, in_one_line, well_formed
from camel.core.model import Expects, Model, Request, checked_model
from camel.core.thought import separate
from camel.core.transcript import Transcript

TOP_SCORE = 10.0


class RatedAnswer(NamedTuple):
    """A rating of one conversation, and the reason. Yes is 1 and no is 0."""

    value: float
    reason: str


class ComparedSolutions(NamedTuple):
    """Scores of two solutions, the better one (1 or 2; 0 for a draw), and the reason."""

    better: int
    scores: tuple[float, float]
    reason: str


_NOUN = r"(?:option|proposal|candidate|choice|answer|number|no\.?)"
_PLURAL = r"\s+(?:options|proposals|candidates|choices|answers|of)\b"
_ANOTHER = r"\s*(?:[,/&+-]|\band\b|\bor\b|\bto\b)\s*#?\d"
_NUMBER = rf"\#?(?P<number>\d{{1,4}})(?!\d|\s?[/%]|[.,]\d|{_PLURAL}|{_ANOTHER})"
# A number at the very beginning. After a noun it must end the phrase: "Option 1 is worse than …" chooses nothing.
_FIRST = re.compile(rf"[^\w#]*+(?:{_NUMBER}|{_NOUN}[^\w#]*+{_NUMBER.replace('number', 'named')}(?=\s*(?:[^\w\s]|\Z|\n)|\s+because\b))", re.IGNORECASE)  # fmt: skip
_DECLARED = re.compile(
    rf"\b(?:choose|chose|choosing|pick|select|prefer|recommend|go with|(?:choice|answer|best|winner|selection)\s+(?:\w+\s+)?(?:is|:))"
    rf"[^\w#]*+(?:{_NOUN}[^\w#]*+)?{_NUMBER}",
    re.IGNORECASE,
)
_ALONE = re.compile(
    rf"^[^\w\n#]*+(?:(?:I|my|the|final|overall|best)\s+){{0,3}}(?:choose|pick|select|choice|answer|verdict|decision|selection)\b"
    rf"[^\w\n#]*+(?:is\b[^\w\n#]*+)?(?:{_NOUN}[^\w\n#]*+)?{_NUMBER}[^\w\n]*+$",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of a line that contains only a choice."""
_QUOTED = re.compile(r"^[^\S\n]*+>[^\n]*+|[\"“][^\"“”\s]{0,100}\s[^\"“”\n]{0,500}[\"”]", re.MULTILINE)
_MENTIONED = re.compile(r"\b(?:option|proposal|candidate)[^\w#]*+\#?(\d{1,4})", re.IGNORECASE)
_SCORE = r"(?P<score>\d{1,2}(?:\.\d{1,4})?)(?:\s*/\s*10\b)?(?![\d/%]|\.\d)"
_SCORED = re.compile(
    rf"^[^\w#\n]*+(?:{_NOUN}[^\S\n]*+)?\#?(?P<number>\d{{1,4}})[*_`)\]]{{0,4}}[^\S\n]*+(?:[:=–—-]|\.(?=\s)|\))[^\w\n-]*+"
    rf"(?:scores?[^\w\n-]*+)?{_SCORE}(?P<reason>[^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
_SCORED_ALONE = re.compile(
    rf"[^\w-]*+(?:scores?[^\w-]*+)?{_SCORE}(?P<reason>.*)\Z", re.IGNORECASE | re.DOTALL
)
_RULING = re.compile(r"\b(ACCEPT|REVISE)(?:E?D)?\b", re.IGNORECASE)
_EDGES = " \t\r\n.,:;-–—*_`#()[]"


def read_choice(text: str, count: int) -> Verdict | None:
    """Return which of `count` options `text` chooses, or None if that is unclear."""
    text = separate(text).speech
    if (found := _object(text, "choice")) is not None:
        number, reason = found.get("choice"), found.get("reason", "")
        if _is_option(number, count) and isinstance(reason, str):
            return Verdict(number - 1, reason=reason)
        return None
    own = _without_quotations(text)
    alone = list(_ALONE.finditer(own))
    declared = {int(one["number"]) for one in (_DECLARED.finditer(own, alone[-1].end() if alone else 0))}
    if (first := _FIRST.match(own)) and not alone:
        number, reason = int(first["number"] or first["named"]), text[first.end() :]
    else:
        declared |= {int(one["number"]) for one in alone}
        numbers = declared or {int(one) for one in _MENTIONED.findall(own)}
        if len(numbers) != 1:
            return None
        number, reason = numbers.pop(), text
    return Verdict(number - 1, reason=reason.strip(_EDGES)) if _is_option(number, count) else None


def _without_quotations(text: str) -> str:
    """Replace quoted sentences and lines by spaces, because the critic did not say them, unless there is nothing else."""
    own = _QUOTED.sub(lambda found: " " * len(found[0]), text)
    return own if own.strip() else text


def read_scores(text: str, count: int) -> Verdict | None:
    """Return the scores from 0 to `TOP_SCORE` that `text` gives to `count` options, and choose the first with the highest one.
    Return None unless it scores each option exactly once."""
    text = separate(text).speech
    if (found := _object(text, "scores")) is not None:
        return _scores_in(found, count)
    scores: dict[int, tuple[float, str]] = {}
    for line in _SCORED.finditer(text):
        number, score = int(line["number"]), float(line["score"])
        if not _is_option(number, count) or number in scores or score > TOP_SCORE:
            return None
        scores[number] = score, line["reason"].strip(_EDGES)
    alone = _SCORED_ALONE.match(text) if count == 1 and not scores else None
    if alone and (score := float(alone["score"])) <= TOP_SCORE:
        scores[1] = score, alone["reason"].strip(_EDGES)
    if len(scores) != count:
        return None
    ordered = [scores[number] for number in range(1, count + 1)]
    return _scored([score for score, _ in ordered], [reason for _, reason in ordered])


def read_ruling(text: str, count: int) -> Verdict | None:
    """Return which of `count` options `text` finds best, with feedback if it does not accept it. Return None if it has no
    ruling, or asks for a revision without telling what to change."""
    text = separate(text).speech
    if (found := _object(text, "choice", "verdict")) is not None:
        number, ruling, words = found.get("choice"), found.get("verdict"), found.get("feedback", "")
        if not _is_option(number, count) or ruling not in ("accept", "revise") or not isinstance(words, str):
            return None
        return _ruled(Verdict(number - 1), ruling, words)
    rulings = list(_RULING.finditer(_without_quotations(text)))
    # In capitals as in the prompt, or else the only one of the two words in the text.
    loud = [ruling for ruling in rulings if ruling[1].isupper()]
    if not loud and len({ruling[1].lower() for ruling in rulings}) != 1:
        return None
    ruling = (loud or rulings)[0]
    chosen = Verdict(0) if count == 1 else read_choice(text[: ruling.start()], count)
    return chosen and _ruled(chosen, ruling[1].lower(), text[ruling.end() :].strip(_EDGES))


_VALUE = (
    r"(?P<value>[-−]?\d{1,9}(?:\.\d{1,9})?)(?![\d%]|\.\d)(?:\s*(?:/|out of|of)\s*(?P<top>\d{1,9}(?:\.0)?)\b)?"
)
_RATED_FIRST = re.compile(rf"[\s*_`#>\"'(\[]*+(?:(?:overall|final|my)\s+)?(?:(?:score|rating|answer|grade)\b[^\w\n-]*+(?:is\b[^\w\n-]*+)?)?{_VALUE}(?!\s*(?:[-–]|to|or)\s*\d)", re.IGNORECASE)  # fmt: skip
_RATED_LATER = re.compile(rf"\b(?:score|rating|grade|rate (?:it|this)|give (?:it|this))\b[^\w\n-]{{0,8}}(?:(?:is|as|a|an|of|at|the conversation|this conversation)\b[^\w\n-]{{0,4}}){{0,3}}{_VALUE}(?!\s*(?:[-–]|to|or)\s*\d)", re.IGNORECASE)  # fmt: skip
YES_OR_NO = re.compile(r"[\W_]*(?:answer\s*[:=]?[\W_]*)?(yes|no)\b", re.IGNORECASE)


def read_rating(text: str, scale: tuple[float, float] | None) -> RatedAnswer | None:
    """Return the rating that `text` gives, on a scale of numbers or as yes or no. Return None if there is no clear one."""
    text = separate(text).speech
    found = _object(text, "score", "rating", "answer")
    if found is not None:
        value = next((found[key] for key in ("score", "rating", "answer") if key in found), None)
        reason = found.get("reason", "")
        text = f"{value}\n{reason}" if isinstance(value, str | int | float) else ""
        if isinstance(value, bool):
            text = f"{'yes' if value else 'no'}\n{reason}"
    if scale is None:
        said = YES_OR_NO.match(text)
        return said and RatedAnswer(float(said[1].lower() == "yes"), text[said.end() :].strip(_EDGES))
    first = _RATED_FIRST.match(text)
    given = [first] if first else list(_RATED_LATER.finditer(text))
    values = {float(one["value"].replace("−", "-")) for one in given}
    tops = {float(one["top"]) for one in given if one["top"]}
    if len(values) != 1 or tops - {scale[1]} or not scale[0] <= (value := values.pop()) <= scale[1]:
        return None
    return RatedAnswer(value, (text[first.end() :] if first else text).strip(_EDGES))


def read_comparison(text: str) -> ComparedSolutions | None:
    """Return how `text` compares two solutions, from a JSON object at its beginning or end with consistent scores.

    An object in the middle may be a quotation from a solution.
    """
    text = _FENCE.sub("", separate(text).speech.strip()).strip()
    if (found := _at_an_end(text)) is None:
        return None
    better, reason = found.get("better"), found.get("reason", "")
    given = _scores_in({"scores": found.get("scores")}, 2)
    if isinstance(better, bool) or better not in (0, 1, 2) or given is None or not isinstance(reason, str):
        return None
    one, two = given.scores
    if (better == 0 and one != two) or (better == 1 and one < two) or (better == 2 and one > two):
        return None
    return ComparedSolutions(int(better), (one, two), reason)


_FENCE = re.compile(r"\A```\w*\s*\n|```\Z")
_TRIES = 20
"""Maximum number of opening braces, counted from the end of an answer, that are tried as the start of its last object."""


def _at_an_end(text: str) -> dict[str, Any] | None:
    if text.startswith("{"):
        return _object(text)
    if not text.endswith("}"):
        return None
    start = len(text)
    for _ in range(_TRIES):
        if (start := text.rfind("{", 0, start)) < 0:
            break
        if (found := _object(text[start:])) is not None and "better" in found:
            return found
    return None


def _ruled(chosen: Verdict, ruling: str, words: str) -> Verdict | None:
    if ruling == "accept":
        return replace(chosen, reason=words)
    return replace(chosen, reason=words, feedback=words) if words.strip() else None


def _scored(scores: list[float], reasons: list[str]) -> Verdict:
    best = scores.index(max(scores))
    return Verdict(best, tuple(scores), tuple(reasons), reasons[best])


def _scores_in(found: dict[str, Any], count: int) -> Verdict | None:
    scores, reasons = found.get("scores"), found.get("reasons", [])
    if not isinstance(scores, list) or not isinstance(reasons, list):
        return None
    given, said = cast("list[Any]", scores), cast("list[Any]", reasons)
    if len(given) != count or not all(map(_is_score, given)) or not all(isinstance(one, str) for one in said):
        return None
    padded = [*said, *[""] * count][:count]
    return _scored([float(score) for score in given], padded)


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= TOP_SCORE


def _is_option(number: Any, count: int) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= count


def _object(text: str, *keys: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`, also between prose or fences. It must have one of the keys: an answer about
    programs can contain other objects."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        found = msgspec.json.decode(text[start : end + 1])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if not isinstance(found, dict) or (keys and not any(key in found for key in keys)):
        return None
    return cast("dict[str, Any]", found)


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
