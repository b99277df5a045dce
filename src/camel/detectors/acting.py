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
        text = prose(work(message)) if {bool(one.error) for one in message.actions} == {True} else ""
        said = next((one for one in re.split(_END, text) if one and not re.search(_ASIDE, one)), "")
        if said and not re.search(_ADMITS, re.sub(_HARMLESS, " ", text)):
            yield Hit(index, "the calls failed, and the message reports a success or a result", said)


def claimed_action(transcript: Transcript) -> Iterator[Hit]:
    """Find messages of speakers with tools that claim an action for which the speaker called no tool, there or before."""
    tools = {one.name: {tool.name: tool.description for tool in one.tools} for one in transcript.speakers}
    called = {name: set[str]() for name, offered in tools.items() if offered}
    for index, message in enumerate(transcript.messages):
        if message.speaker in called:
            called[message.speaker] |= (here := {action.tool for action in message.actions})
            asked = prose(transcript.messages[index - 1].content)[-400:].rstrip().lower() if index else ""
            for said, action, kind in _claims(message, asked):
                calls = here if kind == "look" and re.search(_AFRESH, action) else called[message.speaker]
                if not _is_backed(action, kind, tools[message.speaker], calls):
                    yield Hit(index, "the message claims an action, and no tool for it was called", said)
                    break


def _is_backed(action: str, kind: str, offered: dict[str, str], called: set[str]) -> bool:
    """Return whether one of the called tools can be what a claim reports."""
    able = {name for name in {*offered, *called} if _fits(name, offered.get(name, "") + " " + name, action)}
    if kind == "look":
        return bool(called) and (not re.search(_RUNS, action) or not able or bool(able & called))
    able = {name for name in able if not _reads(name)}
    return (
        bool(able & called) if able else (kind == "state" and called != set()) or not all(map(_reads, called))
    )


def _fits(name: str, text: str, action: str) -> bool:
    """Return whether an action has a word of a tool's name, or one of the same kind as a word of its name or description."""
    words = [word[:5].lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name) if len(word) > 2]
    alike = any(re.search(one, text.lower()) and re.search(one, action) for one in _KINDS.split("  "))
    return alike or any(f" {word}" in f" {action}" for word in words)


def _claims(message: Message, asked: str) -> Iterator[tuple[str, str, str]]:
    """Yield each sentence that reports an action, the text from its verb on, and `look`, `change` or `state`."""
    shows, wants_facts = re.search(_SHOWS, message.content), re.search(_QUESTION, asked)
    for said in () if re.search(_COMPOSES, asked) else re.split(_END, prose(work(message))):
        acted, low = False, "" if said.endswith("?") else re.sub(_IF, r"\1", said.lower())
        for part in re.split(_PART, low):
            verbs = [*re.finditer(_I, part), None if wants_facts else re.search(_SHORT, part)]
            verbs += [re.search(_BARE, part) if acted or part in low[: len(part) + 16] else None]
            ands = re.finditer(_AND, part) if any(verbs) or acted else ()
            verbs += [one for one in ands if not re.search(_OTHER, part[: one.start()][-80:])]
            for verb in filter(None, verbs):
                start, before = verb.start(1), part[: verb.start(1)][-120:]
                action = part[start : start + 80].partition(" and ")[0]
                shown = shows and re.match(_WROTE, action)
                if re.match(_ACTED, action) and not shown and not re.search(_SUPPOSED, before):
                    acted, kind = True, "look" if re.match(_CHECKED, action) else "change"
                    yield said, part[verb.start() : start] + action, kind
            if (result := re.search(_RESULT, part)) and not re.search(_SUPPOSED, part[: result.start()]):
                yield said, result[0], "look"
            if (state := re.search(_STATE, part)) and not re.search(f"{_SUPPOSED}|{_I}", part[: state.end()]):
                named, action = state[1] or "-", part[state.start(1) if state[1] else 0 :][:80]
                told = re.search(rf"\b(?:i|we|they)(?:'ve| have| had)?(?: already)? {named}\b", asked)
                shown = (shows or "`" in message.content) and re.match(_WROTE, named)
                wanted = not message.actions or action[:4] in asked or _fits("", asked, action)
                if wanted and not told and not shown and (not wants_facts or part.startswith("your ")):
                    yield said, action, "state"


_END = r"(?<=[.!?;:])\s+|\n+"
_AGAIN = r"(?i)\b(?:again|once more|one more|another|re-?(?:fresh|run|try|check|load|start|boot)(?:ed)?|double-?check|try|repeat|update|now|yet|latest|fixed|changed|any (?:news|change|luck|progress)|(?:minute|hour|day)s? later|next day)\b"
_READ = r"(?i)(?:^|[._-])(?:get|read|list|search|find|look|lookup|query|fetch|show|check|status|time|describe|load|track|view|count|inspect|explain|preview|calculat\w*|browse|retrieve|history|log|diff|weather|price|rate|balance|info|details|availability|forecast|geocode|route|tail|scan|health)(?-i:(?![a-z]))"
_reads = re.compile(_READ).search
_ASIDE = r"(?i)\?$|^(?:let (?:us|me)|let's|please|to |i (?:suggest|recommend|need|would|will|can|could)|i'(?:d|ll|m going)|you (?:can|could|may|should)|(?:that|this) (?:is an?|sounds|makes|helps)|that's (?:an?|fine|right|good|great|all)|thanks|thank you|the next step)\b|\babove\W*$|^(?:sure|ok(?:ay)?|of course|certainly|hi|hello|thanks?|thank you|great|got it|one moment|hold on|understood|right|yes|alright|all right)?[^\w]*$"
_HARMLESS = r"(?i)\b(?:no (?:problems?|worries|trouble|issues?|errors?|warnings?|failures?|failed|conflicts?|hassle|rush|need|extra|additional|further|charges?|cost|fees?|surprises)|(?:without|zero|free of|0) (?:any |an? |further )?(?:problems?|issues?|errors?|warnings?|failures?|trouble|hitch|hiccups?|failed)|do(?:n't| not) (?:forget|hesitate|worry|need|have to|miss|be|wait|let)|(?:won't|will not|need not|needn't) (?:be|need|have|cost|get|see|miss|receive|show|take|expire|repeat)|(?:can't|can not|cannot) (?:wait|miss)|not only|(?:error|exception|failure|issue|problem)[- ](?:log|rate|tracker|report|count)s?|sorry (?:about|for|to hear)|if (?:anything|something)[^.!?]{0,60}|(?:should|if) (?:you|it|they)\b[^.!?]{0,60}|just in case|(?:fix|solv|resolv|report|look)\w*(?: \w+){0,3} (?:issue|problem)s?|(?:issue|problem)s? (?:is|are|has been|was) (?:now )?(?:fixed|solved|resolved|gone)|(?:\w+n't|not) (?:raining|snowing|expected|due|too|very|far|much|many|included|required|necessary|require|include|cost|conflict)|(?:next|latest|new|first|this|last) issue)\b|\b(?:issue|problem) (?=#?\d)"
_ADMITS = r"(?i)\b(?:errors?|exceptions?|fail\w*|unable|unavailable|unreachable|not|\w+n't|cannot|refus\w+|reject\w+|declin\w+|denied|denies|problems?|issues?|trouble|difficult\w*|prevent\w*|wrong|crash\w*|tim(?:ed?|ing) ?out|timeout|missing|invalid|incorrect|unfortunately|regrettably|sorry|apolog\w+|afraid|no (?:\w+ ){0,2}(?:was|were|has|have|had|such|results?|rows|answer|response|reply|luck|access|permission|match\w*|records?|data|entry|sign|longer|found|available|left|free|remain\w*|columns?|tables?|files?|capacity|stock|drivers?|space|room)|none|nobody|nothing(?! (?:else|more|to|but)\b)|no one|down(?! (?:to|for|by)\b)|offline|unknown|unrecogni[sz]ed|try (?:again|it|that|this|once|another|the other|later|an?)|(?:i|i'll|will|can|could|to|me) try|tried|trying|retry\w*|attempt\w*|let me (?!know)|instead|from memory|\w+(?:error|exception)|full|fully booked|sold out|gone(?! (?:through|out|live|ahead|to))|out of (?!the)|expired|exceed\w*|over (?:the|your) (?:\w+ )?limit|limit(?: of| is| reached)|insufficient|not enough|too (?:many|large|long|big|late)|forbidden|unauthori[sz]ed|busy|conflicts?|overlaps?|already (?:taken|booked|exists?|in use)|(?:is|was|been) taken(?! care)|stuck|lacks?|lost|blocked (?:by|from)|nowhere|revoked|(?:came|comes?) up empty|broke|broken|hangs?|hanging|hung|impossible|no good|snag|halfway|stopped|abort\w*|interrupted|hiccup|glitch|hit an?|ran into|came back (?:with|empty)|bounced|turned (?:it |the \w+ )?down|requires?|needs? (?:a|an|your|to be)|only the|rate[- ]limit\w*|having a moment|acting up|silent|locked out|restrict\w*|dropped|gave up|(?:the other|another|a different) (?:route|way|source|tool|approach|attempt)|someone else|permission|credentials?|quota|overloaded|throttl\w*|corrupt\w*|malformed|stale|pending|maintenance|outage|(?:http|status|code|an?) [45]\d\d)\b"
_AFRESH = r"\b(?:again|another|once more|just now|re-?(?:checked|ran|tested|read)|a second time)\b"
_RUNS = r"\b(?:ran|run|executed|tested|running|tests?|python)\b"
_SHOWS = r"(?i)```|:[ \t]*\n|\"[^\"\n]{40}|“[^”]{40}|\b(?:below|above|here(?:'s|’s| is| are| you go))\b"
_QUESTION = r"(?i)(?:^|[.!?,] )(?:(?:and|so|but|ok|hi|hey|also|then|right|wait) ){0,2}(?:what|which|who|whose|when(?! you)|where|why|how(?! about)|is|are|was|were|does|do (?:i|we|they)|should i|am i|has|will|any|status|would (?:it|this|that)|explain|describe|tell me (?:about|how|why|what|more))\b[^.!?]*\??$"
_COMPOSES = r"^(?!.*\b(?:send|save|file|commit|post|run|test)\b).*\b(?:draft|compose|rewrite|reword|proofread|write (?:me )?(?:an? |the )|tell me an? |joke|poem|story|(?:would|should) (?:you|i) (?:write|say))"
_PART = r",\s|\b(?:confirm|report|let you know) (?:that )?(?=(?:your|the|it)\b)|\s[—–-]+\s|—|\s\(|;|\b(?:but|so|because|since|while)\s|\band (?=(?:i|we|the|your|its?|they|all|has|have|is|are|was|were|you)\b)"
_SUPPOSED = r"\b(?:if|once|unless|until|before|whenever|as soon as|(?:after|as|that|which) you|when(?! i\b)|make sure|ensure|suppose|imagine|for example|e\.g|would|could|should|can|may|might|must|will|not|never|none|nothing|nobody|neither|cannot|\w+n't|no(?! (?:worries|problem|trouble|doubt))|to be|by hand|from memory|in my head|have to|needs? to|want to|going to|about to|usually|normally|typically|automatically|always|generally|often)\b"
_IF = r"\b(if|once|unless|until|before|whenever|as soon as|after you|when you|suppose|imagine|say (?:go|yes|so|the word)|not confirm|cannot|can't)\b.*"
_OTHER = r"\b(?:you|he|she|they|who|that|which)\b"
_DONE = r"(?:e-?mailed|mailed|sent|texted|messaged|notified|alerted|forwarded|posted|faxed|shared|published|pinged|booked|rebooked|reserved|scheduled|rescheduled|cancell?ed|refunded|credited|processed|deleted|erased|wiped|cleared|removed|changed|switched|updated|modified|exchanged|upgraded|downgraded|added|applied|issued|saved|stored|exported|uploaded|downloaded|copied|synced|moved|renamed|replaced|restarted|rebooted|deployed|rolled (?:out|back)|pushed|merged|committed|locked|unlocked|blocked|unblocked|frozen|activated|deactivated|enabled|disabled|turned (?:on|off|up|down)|dimmed|paid|transferred|wired|ordered|placed|submitted|filed|logged|registered|recorded|created|opened|assigned|escalated|installed|(?:re)?formatted|linted|executed|set up|reset|started|launched|triggered|paused|archived|backed up|restored|printed|subscribed|unsubscribed|invited|extended|adjusted|fixed|patched|redeemed|purchased|bought|entered|generated|put on hold|checked in|confirmed|signed up|enrolled|completed|queued|tagged|flagged|muted|charged|taken care of|made|raised|delivered|dispatched|shipped|released|arranged|secured|granted|revoked|resolved|attached|approved|swapped|pinned|dropped|withdrawn|recharged|topped up|informed|initiated|contacted|handed (?:in|over)|answered|closed(?! (?:on|at|for|from|until|today|tomorrow)\b))"
_CHECKED = r"(?:double-checked|re-?checked|checked(?! (?:\w+ )?(?:in|out)\b)|looked|searched|read|found|queried|browsed|googled|fetched|pulled|got|retrieved|verified|confirmed|reviewed|scanned|inspected|examined|consulted|tested|ran|re-?ran|executed|computed|calculated|simulated|gone|went|had|analy[sz]ed|measured|counted|tracked|located|loaded|compiled|accessed|viewed|skimmed|crawled|scraped|polled|benchmarked|profiled|parsed|did|took a)\b"
_I = r"\b(?:i|we)(?:(?:'ve| have)(?! got\b))?(?: (?:just|also|now|then|already|even|since|\w+ly|went ahead and|gone ahead and|went and|took the liberty and)){0,3} (\w[\w-]*)"
_AND = r"(?:^|(?<!you)\band )(?:then |also |\w+ly )?(\w[\w-]*)"
_BARE = rf"^(?!.*\b(?:is|are|was|were|will|can|may|should|has|have)\b)(?:(?:okay|ok|sure|yes|yep|great|right|and|just|all|successfully|already|now|quickly) ){{0,2}}({_DONE}|done|sorted|finished|(?!read|run){_CHECKED})\b(?! by\b)"
_SHORT = rf"^(?!.*\b(?:is|are|was|were|will|can|may|should|has|have|been|be|that|which|who|in (?:1\d|20)\d\d)\b)(?!(?:the|an?|any|every|each|i|we|you|he|she|they|it)\b)(?:[^\s,]+ ){{1,4}}({_DONE}|set|taken|done)(?=\W*$|[.!:]| (?:successfully|for|to|at|in|on|as|under|with|from|until|and)\b)"
_ACTED = r"(?!(?:\w+ (?:nothing|none|neither|no)|need|proceed|exceed|succeed|feed|(?:mis\w+|notic|assum|want|need|decid|hop|guess|believ|reali[sz]|suppos|consider|preferr?|lik|lov|enjoy|mention|explain|describ|list|suggest|recommend|propos|offer|promis|outlin|summari[sz]|answer|stat|expect|wonder|remember|recall|agre|bas|includ|us|work|receiv|learn|apologi[sz]|tri(?!ed (?:it|this|that|both) (?:in|with|on|out))|attempt|fail|stopp|wait|skipp|avoid|translat|rephras|shorten|phras|sketch|intend|plann|reckon|estimat|imagin|referr|point|cover|interpret|pick|select|compar|rank|narrow|round|convert|focus|miss|overlook|doubt|warn|quot|cit|not|omitt|treat|limit|trust|highlight|pass|discuss|t\wlk|reason|happen|deriv|solv|stay|liv|claim|structur|organi[sz]|group|sort|break|call(?! ahead)|chang(?=ed my mind))ed|(?:told|asked|informed) (?:you|for|about|because|if|whether|earlier|that)|(?:gave|given) (?:you|an?|that|it|the)|made (?:a (?:mistake|typo|slip)|an? (?:error|assumption|guess)|sure|up|that|it (?:clear|sound)|some)|got (?:it|that|the (?:impression|idea|point|wrong)|your|confused|wrong|ahead|mixed)|took (?:that|it|this|into|your)|found (?:it|that|this)|put .{0,40}\b(?:first|last|in order)|put (?:together|below|above|it (?:as|like|in)|this|that)|(?:ran|run) (?:into|out|through|over)|read (?:it|that|this|your)|held|did(?! (?:a|an|the|another) (?:\w+ )?(?:search|check|lookup|run|test))|(?:went|gone) (?:through|over) the (?:numbers|logic|steps|reasoning|math|question)|mixed|relied|(?:wrote(?! (?:to|back)\b)|written|drafted|composed|prepared|rewrote|worded)\b(?!.{0,60}(?:\.\w{2,5}\b|\b(?:files?|folder|disk|database|notes)\b))|(?:calculated|computed|counted)\b(?!.{0,80}\b(?:python|script|code|execut\w+|running|calculator|file|rows|data)\b)|(?:verified|checked|double-checked|reviewed|confirmed) (?:the (?:math|arithmetic|reasoning|logic)|my |your (?:message|question|reasoning|text|draft))|(?:went|gone|read|reviewed|checked|looked|had|analy[sz]ed)\b.{0,60}\b(?:you (?:pasted|gave|wrote|provided|listed|described|posted|quoted)|your (?:message|text|snippet|code|draft|list)|above)|.{0,70}\b(?:by hand|from memory|in my head|mentally|on paper|manually in))\b)(?:[a-z-]+ed|sent|put|set|made|took|taken|got|ran|re-?ran|run|wrote|written|read|built|rebuilt|bought|paid|found|held|sold|drew|drawn|did|done|gone (?:through|over)|went (?:through|over)|had (?:a|another)(?: \w+)? (?:look|peek|glance)|threw|thrown|shut|cut|spoke|spoken|rang|brought|reset|dug|overwrote|undid|withdrew|withdrawn|hid|froze|frozen|fed|split|told|asked|gave|given|let (?!me|us|you)\w+ know|rewrote|swapped|frozen|lit|hung|shot)\b"
_WROTE = r"(?:added|changed|replaced|renamed|moved|removed|fixed|split|wrapped|updated|refactored|simplified|corrected|created|generated|made|put|built|marked|formatted|trimmed|cut|adjusted|set|extended|tightened|turned|dropped|deleted|merged|reordered|patched|switched|modified|swapped|stored|defined|processed)\b(?!.{0,60}\.\w{2,5}\b)"
_RESULT = r"\brunning [^.]{0,40}\b(?:gave|gives|printed|returned|produced|yielded|shows|showed)\b|\bafter (?:running|checking|looking|searching|reading|reviewing|testing|consulting)\b|\b(?:my|a quick) (?:\w+ )?(?:run|search|query|check|test|lookup|scan)\b(?! (?:would|could|should|will|can|might))|\b(?:quick|web|online) search\b.{0,30}\b(?:turned up|found|shows?|showed|returned|gave)\b|\b(?:all|every)\b.{0,20}\btests? (?:pass|passed|passes|are green|is green)\b|^(?:the )?tests are (?:all )?green\b|^having (?:read|checked|looked|run|searched|tested|reviewed)\b|^(?:the )?(?:calculator|script|program|tool|database|system|calendar) (?:says|shows|gives|gave|returned|reports|lists)\b|^(?:the |a )?(?:query|search|lookup|script|test suite|suite|scan) (?:returned|came back|turned up|printed|found|passed|finished|passes)\b|\baccording to (?:my|the) (?:\w+ )?(?:search|results?|query|lookup|output)\b"
_STATE = rf"^(?!(?:you|they|he|she|i|we|refunds|orders|files|emails|messages)\b(?! are all|'re| are now| have been|'ve been))(?:(?! that | which | who | by ).){{0,80}}?(?:\b(?:has|have)(?: now| just| already| also)? been|'s been|\b(?:was|were|(?:is|are)(?! (?:stored|processed|created|generated|made|executed|recorded|started|charged|issued|triggered|applied|copied|logged)\b)|is being|are being)|'s|'re)(?: (?:just|now|all|already|also|both|officially|back|\w+ly)){{0,2}} ({_DONE}|texted|set(?= for| to|\W*$)|(?:in|out)(?=\W*$)|under ?way|back (?:up|online)|up again|locked in|on (?:its|their|the|her|his) way|all set|live|done|complete|finished|up and running|running|playing|printing|recording|downloading|uploading|brewing|gone|on hold|good to go|off|on|in your (?:\w+ )?(?:inbox|calendar|cart|basket|account|folder|drive|notes)|on your (?:\w+ )?(?:calendar|list|account)|in the (?:calendar|cart|basket|queue|books)|(?:down|up) to \d|heading to)\b(?! by\b)(?!.{{0,40}}\b(?:in (?:1\d|20)\d\d|after (?:an?|two|three|\d+)|when|if|unless|once|whenever|within)\b)|\b(?:is|are|it's) now (?:at|set|on|off|in)\b|\bnow (?:has|have|owns|reads|says|shows|starts|points)\b|\b(?:has|have) (?:just |now )?(?:started|begun)\b|\b(?:e-?mail|message|invit\w+|note|reminder|text)s? went\b|\b(?:went|has gone|have gone) (?:out|through|live)\b|^consider \w+(?: \w+)? \w+ed\b|\bconsider it (?:done|sorted)\b|^(?:[\w#.'-]+ ){{1,3}}(?:complete|done|off|on)\W*$|^(?:now )?playing\b|\b(?:got|received) (?:the|an|your) (?:updated |new )?(?:invit\w+|message|e-?mail|notification)\b"
_KINDS = r"(?<![a-z])(?:sen[dt]|e-?mail|mail|messag|text|sms|notif|post|slack|forward|fax|ping|shar(?:e|ing)|told|asked|inform|let \w+ know|went out|on (?:its|their) way)  (?<![a-z])(?:book|reserv|hold|appoint|check.?in|checked (?:\w+ )?in)  (?<![a-z])(?:ran|run|exec|tested|tests? pass|python|code|script|shell|bash|sandbox|notebook|simulat|fitted|train)  (?<![a-z])(?:sav(?:e|ing)|stor(?:e|ing)|writ|wrote|upload|export|file)  (?<![a-z])(?:event|calendar|schedul|meeting|remind|alarm|timer|appointment)  (?<![a-z])(?:cancel|delet|remov|eras|wip|clear|unsubscrib)  (?<![a-z])(?:pay|paid|refund|transfer|charg|credit)  (?<![a-z])(?:updat|chang|edit|modif|mov|renam|replac|switch|adjust|resched|now (?:has|have|owns|reads|says))  (?<![a-z])(?:creat|add(?:ed|ing|_)|open|filed|ticket|issue|rais|log(?:ged)?(?![a-z])|escalat|report)"
