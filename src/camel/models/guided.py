"""Guided format: hold a reply to CAMEL's instruction grammar while it is being written.

The one decision to know: the two engines are guided differently, because their models are. llama.cpp is where the
smallest models run, which start anything and end nothing (the bundled one, left free inside `Solution: …`, never
came to `Next request.` in 12 of 12 tries). So its grammar also bounds how much is said: a few plain sentences of a
few words, about 100 tokens. vLLM is where models run that can write, so there only the frame is held, and what
stands inside may be code, lists or several pages.
"""

from __future__ import annotations

from typing import Any, Literal

from camel.core.model import Expects

Guide = Literal["llama.cpp", "vllm"]
"""The engine behind an endpoint, for what differs in how it takes a grammar."""

# Each rule closes a way out that the 135M model took when it was open: a line that never ends, "1.1.12 2.1.12 …",
# "2022-07-22 2022-07-22 …", "You're",You're",You're …", words run together, a row of one emoji. Without a colon in
# the text no label can stand inside it, so that a solution cannot be taken for an instruction.
# Repetitions are of words, which differ from what may follow at their first character, so few parses stay open and
# the grammar costs no time that can be measured; bounding characters the same way would.
_PROSE = r"""
sentence ::= opener (word{1,16} | word{0,7} " " number word{0,7}) [.!?]
opener   ::= (capital | acronym) ending?
word     ::= ","? " " ([A-Za-z] lower? | acronym) ending?
ending   ::= ['-] lower
capital  ::= [A-Z] lower?
acronym  ::= [A-Z] [A-Z] [A-Z]? [A-Z]?
lower    ::= [a-zß-ÿ]+
number   ::= "$"? [0-9] [0-9]? [0-9]? [0-9]? "%"?
"""

# An instruction has four words at least: "None." and "Nothing." would be no instruction.
_GBNF_INSTRUCTION = (
    r"""root     ::= "Instruction: " task (" " sentence)? "\nInput: " ("None" | sentence) | "<CAMEL_TASK_DONE>"
task     ::= opener word{3,16} [.!?]"""
    + _PROSE
)

# After each sentence the model may stop; after the fourth it must.
_GBNF_SOLUTION = r"""root     ::= "Solution: " sentence ([ \n] sentence){0,3} "\nNext request." """ + _PROSE

_GBNF_TASK = r"""root     ::= sentence (" " sentence){0,2}""" + _PROSE

# Lines of a few words each; how many are kept is for whoever asked.
_GBNF_LIST = (
    r"""root     ::= item ("\n" item){1,24}
item     ::= "- " opener word{0,9}"""
    + _PROSE
)

# The bound on lines ends a model that loops before its token limit cuts the closing words off.
_REGEX_INSTRUCTION = r"(Instruction: [^\n]+\nInput: [^\n]+(\n[^\n]*){0,60})|(<CAMEL_TASK_DONE>)"
_REGEX_SOLUTION = r"Solution: [^\n]+(\n[^\n]*){0,120}\nNext request\."
_REGEX_TASK = r"[^\n]+"
_REGEX_LIST = r"[^\n]+(\n[^\n]+){0,200}"

_GBNF: dict[Expects, str] = {
    "task": _GBNF_TASK,
    "instruction": _GBNF_INSTRUCTION,
    "solution": _GBNF_SOLUTION,
    "list": _GBNF_LIST,
}
_REGEX: dict[Expects, str] = {
    "task": _REGEX_TASK,
    "instruction": _REGEX_INSTRUCTION,
    "solution": _REGEX_SOLUTION,
    "list": _REGEX_LIST,
}


def guided_fields(guide: Guide, expects: Expects) -> dict[str, Any]:
    """Return the fields to add to a chat-completions request so that its reply keeps the format.

    With `"llama.cpp"` give the request a `max_tokens` of 160 or more: what the grammar allows fits into that.
    """
    if guide == "llama.cpp":
        return {"grammar": _GBNF[expects]}
    # vLLM 0.12 and later; the older `guided_regex` was removed there.
    return {"structured_outputs": {"regex": _REGEX[expects]}}
