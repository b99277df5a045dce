"""Faults of speakers with tools: repeated calls, ignored errors, and claimed actions that did not happen.

The one decision to know: only speakers that have tools (`Speaker.tools`) are checked for claimed actions. Without tools,
"I tested it" may be part of a role. A claim counts unless one of the speaker's calls, there or before, can be what it reports.
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
        if seen and re.search(_AGAIN, message.content):
            seen = {key: outcome for key, outcome in seen.items() if key[0] == message.speaker}
        found = False
        for action in message.actions:
            key = (message.speaker, action.tool, _sorted(action.arguments))
            outcome = (action.result, action.error)
            reads = _reads(action.tool) or re.search(r"(?i)^\W{0,9}(?:\w+\W{1,9})?select\b", action.arguments)
            if seen.get(key) == outcome and not action.change:
                found = True
            elif action.change or not (action.error or reads):
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
        if {bool(one.error) for one in message.actions} == {True} and (said := _stated(prose(work(message)))):
            yield Hit(index, "the calls failed, and the message reports a success or a result", said)


def claimed_action(transcript: Transcript) -> Iterator[Hit]:
    """Find messages of speakers with tools that claim an action for which the speaker called no tool.

    If another speaker asked for an action and no tool was called, any statement in the answer is such a claim. Elsewhere, only
    a report of an action is one, if no tool that the speaker called, there or before, can have done it.
    """
    tools = {one.name: {tool.name: tool.description for tool in one.tools} for one in transcript.speakers}
    called = {name: set[str]() for name, offered in tools.items() if offered}
    own = dict.fromkeys(called, "")
    for index, message in enumerate(transcript.messages):
        if (name := message.speaker) in called:
            called[name] |= (here := {action.tool for action in message.actions})
            asked = prose(transcript.messages[index - 1].content)[-400:].lower() if index else ""
            before, own[name] = own[name], prose(work(message))
            requested = not all(map(_reads, tools[name])) and _asks(asked, before)
            answers = (
                requested
                and not here
                and not re.search(_WAITS, own[name])
                and not re.search(_SHOWS, message.content)
            )
            said = _stated(own[name], _GENERAL) if answers else ""
            for claim, action, kind in () if said else _claims(message, asked, requested):
                calls = here if kind == "look" and re.search(_AFRESH, action) else called[name]
                if not _is_backed(action, kind, tools[name], calls):
                    said = claim
                    break
            if said:
                yield Hit(index, "the message claims an action, and no tool for it was called", said)


def _stated(text: str, excluded: str = "") -> str:
    """Return the first sentence that states something, or "" if the text admits a failure: anywhere, or before it if `excluded`."""
    for one in re.split(_END, text):
        if re.search(_ADMITS, re.sub(_HARMLESS, " ", one if excluded else text)):
            return ""
        if one and not re.search(_ASIDE, one) and not (excluded and re.search(excluded, one)):
            return one
    return ""


def _asks(text: str, before: str) -> bool:
    """Return whether a text asks for an action, or accepts the offer of one in the text before it."""
    parts = [one for one in re.split(_CLAUSE, text) if re.search(r"\w", one)]
    if not parts or re.search(_DECLINES, text) or re.search(_COMPOSES, text):
        return False
    facts = [
        bool(re.search(_TALK, one) or (re.search(_ASKED, one) and not re.search(_POLITE, one)))
        for one in parts
    ]
    if facts[-1] or re.search(_OFFER, before):
        return not any(facts)
    wants = _POLITE if facts[0] else f"{_POLITE}|^(?!{_CHAT}|{_TOLD})"
    return any(re.search(wants, one) for one, fact in zip(parts, facts, strict=True) if not fact)


def _is_backed(action: str, kind: str, offered: dict[str, str], called: set[str]) -> bool:
    """Return whether one of the called tools can be what a claim reports."""
    able = {name for name in {*offered, *called} if _fits(name, offered.get(name, "") + " " + name, action)}
    if kind == "look":
        return bool(called) and (not re.search(_RUNS, action) or not able or bool(able & called))
    able = {name for name in able if not _reads(name)}
    return bool(able & called) if able else not all(map(_reads, called)) or kind == "state"


def _fits(name: str, text: str, action: str) -> bool:
    """Return whether an action has a word of a tool's name, or one of the same kind as a word of its name or description."""
    words = [word[:5].lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name) if len(word) > 2]
    alike = any(re.search(one, text.lower()) and re.search(one, action) for one in _KINDS.split("  "))
    return alike or any(f" {word}" in f" {action}" for word in words)


def _claims(message: Message, asked: str, requested: bool) -> Iterator[tuple[str, str, str]]:
    """Yield each sentence that reports an action, the text about it, and `look`, `change` or `state`."""
    shows, wants_facts = re.search(_SHOWS, message.content), re.search(_QUESTION, asked)
    text = prose(work(message))
    partly = requested and not all(_reads(one.tool) for one in message.actions)
    partly = partly and not re.search(_WAITS, text) and _stated(text)
    for said in () if re.search(_COMPOSES, asked) else re.split(_END, text):
        acted, low = False, "" if said.endswith("?") else re.sub(_IF, r"\1", said.lower())
        for part in re.split(_PART, low):
            bare = re.search(_BARE, part) if acted or low.startswith(part) else None
            for verb in filter(None, [*re.finditer(_I, part), bare]):
                start, before = verb.start(1), part[: verb.start(1)][-120:]
                action = part[start : start + 80].partition(" and ")[0]
                shown = shows and re.match(_WROTE, action)
                if re.match(_ACTED, action) and not shown and not re.search(_SUPPOSED, before):
                    kind = "change" if acted or verb is not bare or action[:4] == "done" else "state"
                    kind = "look" if re.match(_CHECKED, action) else kind
                    yield said, part[verb.start() : start] + action, kind
                    acted = True
            if (result := re.search(_RESULT, part)) and not re.search(_SUPPOSED, part[: result.start()]):
                yield said, result[0], "look"
            if (
                partly
                and not re.search(_ASIDE, said)
                and _shares(asked, part)
                and not re.search(_SUPPOSED, part)
            ):
                yield said, part[:120], "state"
            if (state := re.search(_STATE, part)) and not re.search(f"{_SUPPOSED}|{_I}", part[: state.end()]):
                named = state[1] or state[2] or "-"
                told = re.search(rf"\b(?:i|we|they)(?:'ve| have| had)?(?: already)? {named}\b", asked)
                shown = (shows or "`" in message.content) and re.match(_WROTE, named)
                wanted = not message.actions or named[:4] in asked or _fits("", asked, part[:120])
                wanted |= requested and not re.match(_PAST, named)
                if wanted and not told and not shown and (not wants_facts or part.startswith("your ")):
                    yield said, part[:120], "change" if requested and message.actions else "state"


def _shares(asked: str, part: str) -> bool:
    """Return whether two texts share a word of four or more letters, by its first five."""
    first, second = ({word[:5] for word in re.findall(r"[a-z]{4,}", text)} for text in (asked, part))
    return not first.isdisjoint(second)


_END = r"(?<=[.!?;:])\s+|\n+"
_CLAUSE = r"(?<=[.!?;:])\s+|\n+|, (?:and )?"
_AGAIN = r"(?i)\b(?:again|once more|one more|another|re-?(?:fresh|run|try|check|load|start|boot)(?:ed)?|double-?check|try|repeat|update|now|yet|latest|fixed|changed|any (?:news|change|luck|progress)|(?:minute|hour|day)s? later|next day)\b"
_READ = r"(?i)^(?:get|read|list|search|find|look|lookup|query|fetch|show|check|describe|load|track|view|count|inspect|explain|preview|calculat\w*|browse|retrieve|diff|geocode|route|tail|scan|weather|price)(?-i:(?![a-z]))|^(?!(?:add|set|create|update|delete|remove|send|book|cancel|change|save|post|record|play|share)(?-i:(?![a-z])))(?:.*[._-])?(?:search|lookup|query|find|list|read|fetch|show|check|status|time|history|log|diff|weather|price|rate|balance|info|details|availability|forecast|health)$"
_reads = re.compile(_READ).search
_ASIDE = r"(?i)\?$|^(?:let (?:us|me)|let's|please|to |i (?:suggest|recommend|need|would|will|can|could)|i'(?:d|ll|m going)|you (?:can|could|may|should)|(?:that|this) (?:is an?|sounds|makes|helps)|that's (?:an?|fine|right|good|great|all)|(?:thanks|thank you)(?!, (?:we|i|the|your)\b)|the next step)\b|\babove\W*$|^(?:sure|ok(?:ay)?|of course|certainly|hi|hello|thanks?|thank you|great|got it|one moment|hold on|understood|right|yes|alright|all right)?[^\w]*$"
_HARMLESS = r"(?i)\b(?:no (?:problems?|worries|trouble|issues?|errors?|warnings?|failures?|failed|conflicts?|hassle|rush|need|extra|additional|further|charges?|cost|fees?|surprises)|(?:without|zero|free of|0) (?:any |an? |further )?(?:problems?|issues?|errors?|warnings?|failures?|trouble|hitch|hiccups?|failed)|do(?:n't| not) (?:forget|hesitate|worry|need|have to|miss|be|wait|let)|(?:won't|will not|need not|needn't) (?:be|need|have|cost|get|see|miss|receive|show|take|expire|repeat)|(?:can't|can not|cannot) (?:wait|miss)|not only|none (?:of them )?failed|(?:error|exception|failure|issue|problem)[- ](?:log|rate|tracker|report|count)s?|sorry (?:about|for|to hear)|if (?:anything|something)[^.!?]{0,60}|(?:should|if) (?:you|it|they)\b[^.!?]{0,60}|just in case|(?:fix|solv|resolv|report|look)\w*(?: \w+){0,3} (?:issue|problem)s?|(?:issue|problem)s? (?:is|are|has been|was) (?:now )?(?:fixed|solved|resolved|gone)|(?:\w+n't|not) (?:raining|snowing|expected|due|too|very|far|much|many|included|required|necessary|require|include|cost|conflict)|(?:next|latest|new|first|this|last) issue)\b|\b(?:issue|problem) (?=#?\d)"
_ADMITS = r"(?i)\b(?:errors?|exceptions?|fail\w*|unable|unavailable|unreachable|not|\w+n't|cannot|refus\w+|reject\w+|declin\w+|denied|denies|problems?|issues?|trouble|difficult\w*|prevent\w*|wrong|crash\w*|tim(?:ed?|ing) ?out|timeout|missing|invalid|incorrect|unfortunately|regrettably|sorry|apolog\w+|afraid|no (?:\w+ ){0,2}(?:was|were|has|have|had|such|results?|rows|answer|response|reply|luck|access|permission|match\w*|records?|data|entry|sign|longer|found|available|left|free|remain\w*|columns?|tables?|files?|capacity|stock|drivers?|space|room)|none|nobody|nothing(?! (?:else|more|to|but)\b)|no one|down(?! (?:to|for|by)\b)|offline|unknown|unrecogni[sz]ed|try (?:again|it|that|this|once|another|the other|later|an?)|(?:i|i'll|will|can|could|to|me) try|tried|trying|retry\w*|attempt\w*|let me (?!know)|instead|from memory|\w+(?:error|exception)|full|fully booked|sold out|gone(?! (?:through|out|live|ahead|to|from|now|for good)\b)|out of (?!the)|expired|exceed\w*|over (?:the|your) (?:\w+ )?limit|limit(?: of| is| reached)|insufficient|not enough|too (?:many|large|long|big|late)|forbidden|unauthori[sz]ed|busy|conflicts?|overlaps?|already (?:taken|booked|exists?|in use)|(?:is|was|been) taken(?! care)|stuck|lacks?|lost|blocked (?:by|from)|nowhere|revoked|(?:came|comes?) up empty|broke|broken|hangs?|hanging|hung|impossible|no good|snag|halfway|stopped|abort\w*|interrupted|hiccup|glitch|hit an?|ran into|came back (?:with|empty)|bounced|turned (?:it |the \w+ )?down|requires?|needs? (?:a|an|your|to be)|only the|rate[- ]limit\w*|having a moment|acting up|silent|locked out|restrict\w*|dropped|gave up|(?:the other|another|a different) (?:route|way|source|tool|approach|attempt)|someone else|permission|credentials?|quota|overloaded|throttl\w*|corrupt\w*|malformed|stale|pending|maintenance|outage|(?:http|status|code|an?) [45]\d\d)\b"
_TALK = r"^(?:(?:and|so|but|ok|hi|hey|also|then|please|just|now|can you|could you|can|could) ){0,3}(?:explain|describe|tell me|give me|show me|summari[sz]e|translate|list|suggest|recommend|compare|help|calculate|compute|evaluate|convert|solve|estimate|find|plan|make an? \w+ plan|continue|go on|confirm|remind me (?:what|which|when|how|where)|put together|refactor|let'?s (?:play|talk)|pretend|imagine|suppose|act as|say|repeat)\b"
_ASKED = r"\?\W*$|^(?:(?:and|so|but|ok|hi|hey|also|then|right|wait|oh|well) ){0,3}(?:what|which|who|whose|when|where|why|how(?! about)|is|are|was|were|am|does|do (?!it|that|this|the|a|so|not|both|all)\w+ |did|should i|has|have|any)\b"
_CHAT = r"(?:hi|hey|hello|hm+|ok|okay|fine|great|nice|perfect|cool|thx|thanks|thank you|ta|good ?\w+|morning|right|ugh|lol|oh|wow|lovely|awesome|wonderful|excellent|sorry|sure|yes|yep|no|welcome|keep it|let us|let'?s (?:start|go))\b[\w' ]{0,20}\W*$"
_POLITE = r"\b(?:please|pls|asap|(?:can|could|would|will) (?:you(?! be able)|someone|somebody|it)|(?:can|could|may) (?:i|we) (?:get|have)|is it possible to|any chance|if so|then|mind \w+ing|(?:i|we)(?:'d like| want| need| would like)|someone should)\b"
_TOLD = r"(?:(?:and|but|so|because|since|if|when|oh|well) )*(?:i|we|you|he|she|it|they|that|this|these|there|the|my|our|his|her|nobody|still|already|nothing|some\w+|every\w+|\w+'(?:s|re|m|ve|d|ll)|\w+ing)\b|\w+ \w+s (?:the|an?|my|no|me)\b|(?:[^\s]+ ){0,3}(?:is|are|was|were|am|has|have|had|isn't|does|did|didn't|doesn't|hasn't|will|won't|can't|seems?)\b"
_OFFER = r"(?i)\b(?:shall|should|can|could|want me|like me|i'll)\b|\?$"
_DECLINES = r"^(?:no|nope|nah|not|never ?mind|wait|later|hold|thanks|thx|i'll|i will|let me|hm+|i see|interesting)\b|\b(?:hold off|don't(?! forget)|do not|no idea|not sure|myself|good to know|leave (?:it|that|them)|forget (?:it|that|about)|no need|not yet|just the text)\b"
_WAITS = r"(?im)\b(?:once you|as soon as you|until you|before i|when you're (?:ready|happy)|say the word|you confirm|to confirm|i need (?!to )|i'd need|happy to|dear|subject|if you (?:like|want|give|tell|send)|give me|tell me (?:the|which|what|how|when|who)|depends|according to your|from memory|i (?:can't|cannot|could ?n.t|have ?n.t|did ?n.t|won't|am unable|was unable)|i'm (?:not|afraid|unable)|unfortunately|(?:nothing|none) (?:is|was|has)|i can (?:only|offer))\b|\A(?:\w+\W+){0,2}i(?:'ll| will| can| could| would|'d)\b|^(?!.*\b(?:else|also|as well|too|another|again|more)\b).*\?$"
_GENERAL = r"(?i)\b(?:would|could|should|can|may|might|must|ha(?:s|ve) to|usually|normally|typically|often|most|as far as)\b|^(?:just |then |first,? )?(?:open|use|try|check|move|upload|type|click|choose|tell|give|take|keep|make|feel|ask|call|contact|bring|wear|remember|my pleasure|you're welcome|glad|enjoy|have an?|dear|sorry|good \w+|welcome)\b"
_AFRESH = r"\b(?:again|another|once more|just now|re-?(?:checked|ran|tested|read)|a second time)\b"
_RUNS = r"\b(?:ran|run|executed|tested|running|tests?|python)\b"
_SHOWS = r"(?i)```|:[ \t]*\n|\"[^\"\n]{40}|“[^”]{40}|\b(?:below|above|here(?:'s|’s| is| are| you go))\b"
_QUESTION = r"(?i)(?:^|[.!?,] )(?:(?:and|so|but|ok|hi|hey|also|then|right|wait) ){0,2}(?:what|which|who|whose|when(?! you)|where|why|how(?! about)|is|are|was|were|does|do (?:i|we|they)|should i|am i|has|will|any|status|would (?:it|this|that)|explain|describe|tell me (?:about|how|why|what|more))\b[^.!?]*\??$"
_COMPOSES = r"^(?!.*\b(?:send|save|file|commit|post|run|test)\b).*\b(?:draft|compose|rewrite|reword|proofread|write (?:me )?(?:an? |the )|tell me an? |joke|poem|story|(?:would|should) (?:you|i) (?:write|say))"
_PART = r",\s|\b(?:confirm|report|let you know) (?:that )?(?=(?:your|the|it)\b)|\s[—–-]+\s|—|\s\(|;|\b(?:but|so|because|since|while)\s|(?<!ahead )(?<!went )\band (?=(?:[a-z-]+ed|sent|put|set|made|i|we|the|your|its?|they|all|has|have|is|are|was|were|you)\b)"
_SUPPOSED = r"\b(?:if|once|unless|until|before|whenever|as soon as|(?:after|as|that|which) you|when(?! i\b)|make sure|ensure|suppose|imagine|for example|e\.g|would|could|should|can|may|might|must|will|not|never|none|nothing|nobody|neither|cannot|\w+n't|no(?! (?:worries|problem|trouble|doubt))|to be|by hand|from memory|in my head|have to|needs? to|want to|going to|about to|usually|normally|typically|automatically|always|generally|often)\b"
_IF = r"\b(if|once|unless|until|before|whenever|as soon as|after you|when you|suppose|imagine|say (?:go|yes|so|the word)|not confirm|cannot|can't)\b.*"
_CHECKED = r"(?:double-checked|re-?checked|checked(?! (?:\w+ )?(?:in|out)\b)|looked|searched|read|found|queried|browsed|googled|fetched|pulled|got|retrieved|verified|confirmed|reviewed|scanned|inspected|examined|consulted|tested|ran|re-?ran|executed|computed|calculated|simulated|gone|went|had|analy[sz]ed|measured|counted|tracked|located|loaded|compiled|accessed|viewed|skimmed|crawled|scraped|polled|benchmarked|profiled|parsed|did|took a)\b"
_I = r"\b(?:i|we)(?:(?:'ve| have)(?! got\b))?(?: (?:just|also|now|then|already|even|since|\w+ly|went ahead and|gone ahead and|went and|took the liberty and)){0,3} (\w[\w-]*)"
_BARE = r"^(?:(?:okay|ok|sure|yes|yep|great|right|and|then|also|just|all|successfully|already|now|quickly|\w+ly) ){0,2}(?!found|read|run|got|had|did|set\\b)([\w-]+)(?! by\\b)(?!.*\\b(?:is|are|was|were|will|can|may|should|has|have)\\b)"
_ACTED = r"(?!(?:\w+ (?:nothing|none|neither|no)|need|proceed|exceed|succeed|feed|(?:mis\w+|notic|assum|want|need|decid|hop|guess|believ|reali[sz]|suppos|consider|preferr?|lik|lov|enjoy|mention|explain|describ|list|suggest|recommend|propos|offer|promis|outlin|summari[sz]|answer|stat|expect|wonder|remember|recall|agre|bas|includ|us|work|receiv|learn|apologi[sz]|tri(?!ed (?:it|this|that|both) (?:in|with|on|out))|attempt|fail|stopp|wait|skipp|avoid|translat|rephras|shorten|phras|sketch|intend|plann|reckon|estimat|imagin|referr|point|cover|interpret|pick|select|compar|rank|narrow|round|convert|focus|miss|overlook|doubt|warn|quot|cit|not|omitt|treat|limit|trust|highlight|pass|discuss|t\wlk|reason|happen|deriv|solv|stay|liv|claim|structur|organi[sz]|group|sort|break|call(?! ahead)|chang(?=ed my mind))ed|(?:told|asked|informed) (?:you|for|about|because|if|whether|earlier|that)|(?:gave|given) (?:you|an?|that|it|the)|made (?:a (?:mistake|typo|slip)|an? (?:error|assumption|guess)|sure|up|that|it (?:clear|sound)|some)|got (?:it|that|the (?:impression|idea|point|wrong)|your|confused|wrong|ahead|mixed)|took (?:that|it|this|into|your)|found (?:it|that|this)|put .{0,40}\b(?:first|last|in order)|put (?:together|below|above|it (?:as|like|in)|this|that)|(?:ran|run) (?:into|out|through|over)|read (?:it|that|this|your)|held|did(?! (?:a|an|the|another) (?:\w+ )?(?:search|check|lookup|run|test))|(?:went|gone) (?:through|over) the (?:numbers|logic|steps|reasoning|math|question)|mixed|relied|(?:wrote(?! (?:to|back)\b)|written|drafted|composed|prepared|rewrote|worded)\b(?!.{0,60}(?:\.\w{2,5}\b|\b(?:files?|folder|disk|database|notes)\b))|(?:calculated|computed|counted)\b(?!.{0,80}\b(?:python|script|code|execut\w+|running|calculator|file|rows|data)\b)|(?:verified|checked|double-checked|reviewed|confirmed) (?:the (?:math|arithmetic|reasoning|logic)|my |your (?:message|question|reasoning|text|draft))|(?:went|gone|read|reviewed|checked|looked|had|analy[sz]ed)\b.{0,60}\b(?:you (?:pasted|gave|wrote|provided|listed|described|posted|quoted)|your (?:message|text|snippet|code|draft|list)|above)|.{0,70}\b(?:by hand|from memory|in my head|mentally|on paper|manually in))\b)(?:[a-z-]+ed|sent|put|set|made|took|taken|got|ran|re-?ran|run|wrote|written|read|built|rebuilt|bought|paid|found|held|sold|drew|drawn|did|done|gone (?:through|over)|went (?:through|over)|had (?:a|another)(?: \w+)? (?:look|peek|glance)|threw|thrown|shut|cut|spoke|spoken|rang|brought|reset|dug|overwrote|undid|withdrew|withdrawn|hid|froze|frozen|fed|split|told|asked|gave|given|let (?!me|us|you)\w+ know|rewrote|swapped|frozen|lit|hung|shot)\b"
_WROTE = r"(?:added|changed|replaced|renamed|moved|removed|fixed|split|wrapped|updated|refactored|simplified|corrected|created|generated|made|put|built|marked|formatted|trimmed|cut|adjusted|set|extended|tightened|turned|dropped|deleted|merged|reordered|patched|switched|modified|swapped|stored|defined|processed)\b(?!.{0,60}\.\w{2,5}\b)"
_RESULT = r"\brunning [^.]{0,40}\b(?:gave|gives|printed|returned|produced|yielded|shows|showed)\b|\bafter (?:running|checking|looking|searching|reading|reviewing|testing|consulting)\b|\b(?:my|a quick) (?:\w+ )?(?:run|search|query|check|test|lookup|scan)\b(?! (?:would|could|should|will|can|might))|\b(?:quick|web|online) search\b.{0,30}\b(?:turned up|found|shows?|showed|returned|gave)\b|\b(?:all|every)\b.{0,20}\btests? (?:pass|passed|passes|are green|is green)\b|^(?:the )?tests are (?:all )?green\b|^having (?:read|checked|looked|run|searched|tested|reviewed)\b|^(?:the )?(?:calculator|script|program|tool|(?:your )?(?:database|system|calendar|account|inbox|records?|website|site)) (?:says?|shows|gives|gave|returned|reports|lists)\b|^(?:the |a )?(?:query|search|lookup|script|test suite|suite|scan) (?:returned|came back|turned up|printed|found|passed|finished|passes)\b|\bi (?:can )?see (?:that )?(?:your|order|an? \w+ (?:on|in|for|from)|\d)|\blooking (?:at|through|in) (?:your|the) (?!code|snippet|text|message|list|error|question)|\ba (?:quick )?(?:look|peek|glance) (?:at|in)|\baccording to (?:my|the) (?:\w+ )?(?:search|results?|query|lookup|output)\b"
_PAST = r"(?:[a-z-]+ed|sent|put|set|made|taken|run|written|built|bought|paid|done|gone|frozen|withdrawn|reset|split|cut|shut|told|turned \w+)"
_STATE = rf"^(?!(?:you|they|he|she|i|we|refunds|orders|files|emails|messages)\b(?! are all|'re| are now| have been|'ve been))(?:(?! that | which | who | by ).){{0,80}}?(?:\b(?:(?:has|have)(?: now| just| already| also)?(?: been)?|was|were|is|are|is being|are being)|'s been|'s|'re)(?: (?:just|now|all|already|also|both|officially|back|\w+ly)){{0,2}} ({_PAST}|gone|on (?:its|their|the|her|his) way|all set|live|on hold|yours|in your \w+|on your \w+)\b(?! by\b)(?!.{{0,40}}\b(?:in (?:1\d|20)\d\d|after (?:an?|two|three|\d+)|when|if|unless|once|whenever|within)\b)|^(?!(?:the|an?|any|every|each|i|we|you|he|she|they|it)\b)(?:[^\s,]+ ){{0,4}}({_PAST})(?=\W*$|[.!:]| (?:successfully|for|to|at|in|on|as|under|with|from|until|and)\b)|\b(?:is|are|it's) now\b|\bnow \w+s\b|\bis .{{0,40}}\bnow\W*$|\b(?:went|has gone|have gone) (?:out|through|live)\b"
_KINDS = r"(?<![a-z])(?:sen[dt]|e-?mail|mail|messag|text|sms|notif|post|slack|forward|fax|ping|shar(?:e|ing)|told|asked|inform|let \w+ know|went out|on (?:its|their) way)  (?<![a-z])(?:book|reserv|hold|appoint|check.?in|checked (?:\w+ )?in)  (?<![a-z])(?:ran|run|exec|tested|tests? pass|python|code|script|shell|bash|sandbox|notebook|simulat|fitted|train)  (?<![a-z])(?:sav(?:e|ing)|stor(?:e|ing)|writ|wrote|upload|export|file)  (?<![a-z])(?:event|calendar|schedul|meeting|remind|alarm|timer|appointment)  (?<![a-z])(?:cancel|delet|remov|eras|wip|clear|unsubscrib|gone)  (?<![a-z])(?:pay|paid|refund|transfer|charg|credit)  (?<![a-z])(?:updat|chang|edit|modif|mov|renam|replac|switch|adjust|resched|now (?:has|have|owns|reads|says))  (?<![a-z])(?:creat|add(?:ed|ing|_)|open|filed|ticket|issue|rais|log(?:ged)?(?![a-z])|escalat|report)"
