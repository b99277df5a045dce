"""Reads a critic's answer: as JSON where a grammar constrained the endpoint, otherwise as free text.

The one decision to know: an ambiguous answer does not count. The prompt asks the critic for a number first. Prose that
names several options without choosing one is no answer, and the critic is asked again. The readers never raise, and
their time is bounded for any text.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeGuard, cast

import msgspec
from msgspec.structs import replace

from camel.core.critic import Verdict
from camel.core.thought import separate

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
    if first := _FIRST.match(text):
        number, reason = int(first["number"] or first["named"]), text[first.end() :]
    else:
        declared = {int(one["number"]) for one in _DECLARED.finditer(text)}
        numbers = declared or {int(one) for one in _MENTIONED.findall(text)}
        if len(numbers) != 1:
            return None
        number, reason = numbers.pop(), text
    return Verdict(number - 1, reason=reason.strip(_EDGES)) if _is_option(number, count) else None


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
    rulings = list(_RULING.finditer(text))
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
_YES_NO = re.compile(r"[\W_]*(?:answer\s*[:=]?[\W_]*)?(yes|no)\b", re.IGNORECASE)


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
        said = _YES_NO.match(text)
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
