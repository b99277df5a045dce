"""Faults of speakers with tools: repeated calls, ignored errors, and claimed actions that did not happen.

The one decision to know: only speakers that have tools (`Speaker.tools`) are checked for claimed actions. Without tools,
"I tested it" may be part of a role. A claim counts only if one of the speaker's tools could have done what is claimed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from camel.core.message import Message
from camel.core.transcript import Transcript
from camel.detectors.finding import Hit
from camel.detectors.prose import prose, work


def repeated_call(transcript: Transcript) -> Iterator[Hit]:
    """Find calls that their speaker has made before with the same arguments and the same outcome, if nothing in between could
    have changed it: a call that may change something, or another speaker's request to try again."""
    seen: dict[tuple[str, str, str], tuple[str, str]] = {}
    for index, message in enumerate(transcript.messages):
        if seen and _AGAIN.search(message.content):
            seen = {key: outcome for key, outcome in seen.items() if key[0] == message.speaker}
        found = False
        for action in message.actions:
            key = (message.speaker, action.tool, _sorted(action.arguments))
            outcome = (action.result, action.error)
            if seen.get(key) == outcome and not action.change:
                found = True
            elif action.change or not (action.error or _READS.search(action.tool)):
                seen.clear()
            seen[key] = outcome
        if found:
            yield Hit(index, "a tool is called again with the same arguments, and nothing has changed since")


def _sorted(arguments: str) -> str:
    """Return arguments in a form that does not depend on spaces and the order of keys."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted").decode()
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return arguments


def ignored_error(transcript: Transcript) -> Iterator[Hit]:
    """Find messages that report success or a result although all their calls failed, and do not mention the failure."""
    for index, message in enumerate(transcript.messages):
        if (
            message.actions
            and all(one.error for one in message.actions)
            and not _ADMITS.search(message.content)
        ):
            claims = (one for one in _statements(message) if _SUCCEEDS.search(one) or any(_claims(one)))
            if said := next(claims, ""):
                yield Hit(index, "the calls failed, and the message reports a success or a result", said)


def claimed_action(transcript: Transcript) -> Iterator[Hit]:
    """Find messages of speakers with tools that claim an action for which the speaker called no tool, there or before."""
    tools = {speaker.name: speaker.tools for speaker in transcript.speakers if speaker.tools}
    called: set[tuple[str, str]] = set()
    for index, message in enumerate(transcript.messages):
        called.update((message.speaker, action.tool) for action in message.actions)
        offered = tools.get(message.speaker, [])
        claims = ((said, able) for said in _statements(message) for able in _claims(said)) if offered else ()
        for said, able in claims:
            names = {one.name for one in offered if able.search(f"{one.name} {one.description}")}
            if names and not any((message.speaker, name) in called for name in names):
                yield Hit(index, "the message claims an action, and no tool for it was called", said)
                break


def _statements(message: Message) -> Iterator[str]:
    """Yield the sentences of a message that are neither questions nor denials."""
    return (one for one in _END.split(prose(work(message))) if one and not _UNSURE.search(one))


def _claims(said: str) -> Iterator[re.Pattern[str]]:
    """Yield a pattern of the tools for each action that a sentence claims."""
    for found in _CLAIM.finditer(said):
        if not _SUPPOSED.search(said, max(0, found.start() - 80), found.start()):
            yield _ABLE[(found.lastindex or 1) - 1]


def _any(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_END = re.compile(r"(?<=[.!?;:])\s+|\n+")
_AGAIN = _any(r"\b(?:again|once more|re-?(?:fresh|run|try|check|load)|update|now|latest|fixed|changed)\b")
_READS = _any(r"(?:^|[._-])(?:get|read|list|search|find|look|query|fetch|show|check|status|time)(?![a-z])")
_UNSURE = _any(r"\?\s*$|\b(?:not|never|none|nothing|nobody|cannot|\w+n't)\b|^(?:let|please)\b")
_SUPPOSED = _any(r"\b(?:if|once|before|until|unless|would|could|should|can|when you|after you)\b")
_ADMITS = _any(
    r"(?<!without )(?<!without any )\b(?:errors?|exception|fail\w*|unable|unavailable|not|\w+n['’]t|cannot|refus\w+|reject\w+|declin\w+|denied|problems?|issues?|trouble|difficult\w*|prevent\w*|wrong|crash\w*|timed? ?out|missing|invalid|unfortunately|sorry|no (?!additional|extra|further|charge|cost)\w+|none|nobody|nothing|down|unknown|try|tried|instead|memory|\w+Error)\b"
)
_SUCCEEDS = _any(
    r"\d|\b(?:done|sent|saved|booked|reserved|confirmed|completed?|scheduled|stored|written|processed|success\w*|all set|works|pass(?:es|ed)?|finished|added|cancell?ed|switched|changed|updated|created|results?|outputs?|return(?:s|ed)|print(?:s|ed)|shows?|according to|found|based on|data|went out|now has|has the|have a|is active|delivered)\b"
)
_I = r"\b(?:i|we)(?:'ve| have)?(?: (?:just|also|now|then|\w+ly|already|went ahead and|gone ahead and)){0,2} "
_WAS = r"(?:has been|have been|was|were)(?: (?:just|now|\w+ly))? "
_ITS = rf"\b(?:the|your|our|it|they|all|this|everything)\b(?:(?! that | which | who )[^,;]){{0,80}}? {_WAS}"
_OBJECT = r" (?:\w+ )?(?:order|address|booking|reservation|subscription|account|ticket|flight|refund|payment|item|shipping|delivery|bag|charge|certificate|cabin|passenger)s?\b"
_CHANGED = r"(?:cancell?ed|refunded|processed|deleted|removed|changed|switched|updated|modified|exchanged|upgraded|downgraded|added|applied|issued)\b"
_KINDS = {
    r"quer|database|sql|record|search|find|look|get|list": rf"{_I}(?:queried|(?:ran|executed)\b.{{0,20}}\bquer(?:y|ies)|(?:pulled|got|retrieved|fetched|checked|looked)\b.{{0,50}}\b(?:database|table of|records))\b",
    r"python|(?<![a-z])run|exec|code|shell|bash|script|terminal|sandbox|interpret|calculat": rf"{_I}(?:(?:ran|run)\b(?! (?:through|into|out|over))|executed\b|tested\b|(?:computed|calculated|simulated|verified|checked|confirmed)\b.{{0,80}}\b(?:python|script|code|execut\w+|running)\b|loaded\b.{{0,40}}\b(?:file|csv|data)\b)|{_ITS}(?:executed|run|tested)\b|\brunning (?:it|this|the \w+(?: \w+)?) (?:gave|printed|returned|produced)\b|\bafter running\b.{{0,60}}\bi (?:got|found)\b|\bmy (?:test )?run\b",
    r"send|mail|messag|notif|post|slack|sms|invit|forward": rf"{_I}(?:sent|e-?mailed|mailed|messaged|notified|forwarded|posted)\b|{_ITS}(?:sent|e-?mailed|mailed|forwarded|posted)\b|\b(?:e-?mail|message|invitation|reminder)s?\b.{{0,20}}\b(?:is|are) on (?:its|their|the) way\b",
    r"search|web|brows|google|look|find|fetch|wiki|http": rf"{_I}(?:searched|googled|browsed|looked\b.{{0,30}}\b(?:up|online)|checked\b.{{0,20}}\b(?:online|the web|the internet)|found\b.{{0,40}}\bonline)\b|\bmy (?:web |online |quick )?search\b|\b(?:quick|web|online) search\b.{{0,30}}\b(?:turned up|found|shows?|showed|returned|gave)\b",
    r"event|calendar|schedul|meeting|appointment|remind": rf"{_I}(?:(?:added|put|entered)\b.{{0,60}}\bcalendars?|(?:created|scheduled|set up)\b.{{0,40}}\b(?:event|meeting|appointment|reminder|invite)s?)\b|{_ITS.replace('|was', '|was|is')}(?:scheduled|added to .{{0,20}}calendar)\b",
    r"book|reserv|ticket": rf"{_I}(?:booked|reserved|made\b.{{0,20}}\b(?:reservation|booking))\b|{_ITS.replace('|was', '|was|is')}(?:booked|reserved)\b|\b(?:booking|reservation) (?:has gone|went) through\b|\b(?:your|the) (?:booking|reservation)[^,;]{{0,60}} (?:is |{_WAS})(?:completed|confirmed)\b",
    r"file|save|stor|writ|document|note|upload|export": rf"{_I}(?:saved\b|stored\b|(?:wrote|written|exported|updated|created|appended|uploaded)\b.{{0,60}}(?:\.\w{{2,5}}\b|\b(?:file|folder|disk)s?\b))|{_ITS}(?:saved|stored|exported)\b|\b(?:the|your) file\b.{{0,30}}\b{_WAS}(?:created|written|updated)\b",
    r"order|cancel|updat|chang|refund|modif|delet|remov|edit|account|send|issu|add|set|book|creat|return": rf"{_I}{_CHANGED}.{{0,60}}{_OBJECT}|\b(?:your|the){_OBJECT.replace('flight|', '')}[^,;]{{0,60}}\b{_WAS}{_CHANGED}|\b(?:has|have) been successfully {_CHANGED}",
}
"""Words in the name or description of a tool, and how a speaker claims an action that such a tool can do."""
_ABLE = [_any(words) for words in _KINDS]
_CLAIM = _any("|".join(f"({claim})" for claim in _KINDS.values()))
