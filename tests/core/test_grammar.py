"""The instruction grammar: what models really write, and what must never count."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from camel.core import grammar
from camel.core.grammar import DONE_TOKEN, Move, parse
from tests.support.scaling import assert_linear

BOT = "Write a function that loads daily prices"

# Message -> the parts it must yield; parts not named must be absent.
WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    # as the prompts ask
    "instruction without input": (f"Instruction: {BOT}\nInput: None", {"instruction": BOT}),
    "instruction with input": (
        f"Instruction: {BOT}\nInput: prices.csv",
        {"instruction": BOT, "input": "prices.csv"},
    ),
    "instruction alone": (f"Instruction: {BOT}", {"instruction": BOT}),
    "solution": ("Solution: Use pandas.\nNext request.", {"solution": "Use pandas.", "next_request": True}),
    "solution without its ending": ("Solution: Use pandas.", {"solution": "Use pandas."}),
    "next request on the same line": (
        "Solution: Use pandas. Next request.",
        {"solution": "Use pandas.", "next_request": True},
    ),
    "done": (DONE_TOKEN, {"done": True}),
    # case, colons, white space
    "lower case": (f"instruction: {BOT}\ninput: none", {"instruction": BOT}),
    "upper case": (f"INSTRUCTION: {BOT}\nINPUT: X.CSV", {"instruction": BOT, "input": "X.CSV"}),
    "full-width colon": (f"Instruction：{BOT}\nInput：无数据", {"instruction": BOT, "input": "无数据"}),
    "space before the colon": (
        f"Instruction : {BOT}\nInput : None",
        {"instruction": BOT},
    ),
    "text on the next line": (f"Instruction:\n{BOT}\nInput:\nx.csv", {"instruction": BOT, "input": "x.csv"}),
    "blank lines": (f"\n\n  Instruction: {BOT}\n\n\nInput: x\n\n", {"instruction": BOT, "input": "x"}),
    "indented": (f"    Instruction: {BOT}\n    Input: x", {"instruction": BOT, "input": "x"}),
    "windows line ends": (f"Instruction: {BOT}\r\nInput: x\r\n", {"instruction": BOT, "input": "x"}),
    "windows heading": (f"### Instruction\r\n{BOT}\r\n### Input\r\nx", {"instruction": BOT, "input": "x"}),
    "capital that lowers to two characters": ("İİ ok.\nInstruction: Go\nInput: İ", {"instruction": "Go", "input": "İ"}),
    # Markdown
    "bold with the colon inside": (f"**Instruction:** {BOT}\n**Input:** x", {"instruction": BOT, "input": "x"}),
    "bold with the colon outside": (f"**Instruction**: {BOT}\n**Input**: x", {"instruction": BOT, "input": "x"}),
    "bold alone on its line": (f"**Instruction**\n{BOT}\n\n**Input**\nx", {"instruction": BOT, "input": "x"}),
    "italics": (f"*Instruction:* {BOT}\n_Input:_ x", {"instruction": BOT, "input": "x"}),
    "bold underscores": (f"__Instruction:__ {BOT}", {"instruction": BOT}),
    "heading with a colon": (f"## Instruction: {BOT}\n## Input: x", {"instruction": BOT, "input": "x"}),
    "heading alone on its line": (f"### Instruction\n{BOT}\n### Input\nx", {"instruction": BOT, "input": "x"}),
    "bold heading": (f"### **Instruction:**\n{BOT}\n### **Input:**\nNone", {"instruction": BOT}),
    "list item": (f"- Instruction: {BOT}\n- Input: x", {"instruction": BOT, "input": "x"}),
    "starred list item in bold": (f"* **Instruction:** {BOT}\n* **Input:** x", {"instruction": BOT, "input": "x"}),
    "numbered list item": (f"1. Instruction: {BOT}\n2. Input: x", {"instruction": BOT, "input": "x"}),
    "number in bold": (f"**1. Instruction:** {BOT}", {"instruction": BOT}),
    "numbered marker": (f"Instruction 4: {BOT}\nInput: x", {"instruction": BOT, "input": "x"}),
    "marker with a hash": (f"Instruction #2: {BOT}", {"instruction": BOT}),
    "plural opening the message": (f"Instructions: {BOT}", {"instruction": BOT}),
    "bold solution": ("**Solution:**\n\nUse pandas.\n\n**Next request.**", {"solution": "Use pandas.", "next_request": True}),
    "numbered solution": ("Solution 1: Use pandas.", {"solution": "Use pandas."}),
    "solution heading": ("# Solution\nUse pandas.\nNext request", {"solution": "Use pandas.", "next_request": True}),
    # prose around
    "prose before on its own line": (f"Sure, let us begin.\n\nInstruction: {BOT}", {"instruction": BOT}),
    "prose before on the same line": (f"Great work! Instruction: {BOT}", {"instruction": BOT}),
    "prose that ends in a picture": (f"Great work 😊 Instruction: {BOT}", {"instruction": BOT}),
    "chinese prose before": (f"好的。Instruction: {BOT}", {"instruction": BOT}),
    "a speaker's label before": (f"Stock Trader: Instruction: {BOT}", {"instruction": BOT}),
    "a quoted sentence before": (f'You said "it works." Instruction: {BOT}', {"instruction": BOT}),
    "thanks before a solution": ("Thanks! Solution: Use pandas.", {"solution": "Use pandas."}),
    "the prompt's own headings echoed": (
        f"2. Instruct without any input:\nInstruction: {BOT}\nInput: None",
        {"instruction": BOT},
    ),
    "same-line input after a full stop": (f"Instruction: {BOT}. Input: x", {"instruction": f"{BOT}.", "input": "x"}),
    "same-line input without one": (f"Instruction: {BOT} Input: None", {"instruction": BOT}),
    "same-line input in bold": (f"**Instruction:** {BOT} **Input:** x", {"instruction": BOT, "input": "x"}),
    "instruction, then an answer to itself": (
        f"Instruction: {BOT}\nInput: None\nSolution: Done.",
        {"instruction": BOT, "solution": "Done."},
    ),
    "two instructions: the first, with its own input": (
        "Instruction: A thing\nInput: None\nInstruction: B thing\nInput: b.csv",
        {"instruction": "A thing"},
    ),
    # wrappings
    "whole message in a fence": (f"```\nInstruction: {BOT}\nInput: x\n```", {"instruction": BOT, "input": "x"}),
    "whole message in a markdown fence": (f"```markdown\nInstruction: {BOT}\n```\n", {"instruction": BOT}),
    "whole message in tildes": (f"~~~\nInstruction: {BOT}\n~~~", {"instruction": BOT}),
    # saying nothing
    "instruction none": ("Instruction: None\nInput: None", {}),
    "instruction none with a full stop": ("Instruction: None.\nInput: N/A", {}),
    "instruction empty": ("Instruction:\nInput: None", {}),
    "no further instructions": ("Instruction: No further instructions.\nInput: None", {}),
    "placeholders echoed": ("Instruction: <YOUR_INSTRUCTION>\nInput: <YOUR_INPUT>", {}),
    "solution placeholder echoed": ("Solution: <YOUR_SOLUTION>\nNext request.", {"next_request": True}),
    "placeholders, then the real one": (
        f"Instruction: <YOUR_INSTRUCTION>\nInput: <YOUR_INPUT>\n\n2.\nInstruction: {BOT}\nInput: x",
        {"instruction": BOT, "input": "x"},
    ),
    "input not applicable": (f"Instruction: {BOT}\nInput: Not applicable.", {"instruction": BOT}),
    "no input needed": (f"Instruction: {BOT}\nInput: No input needed", {"instruction": BOT}),
    "none required": (f"Instruction: {BOT}\nInput: None required.", {"instruction": BOT}),
    "a solution of one word": ("Solution: No \nNext request.", {"solution": "No", "next_request": True}),
    "none in bold": (f"Instruction: {BOT}\nInput: **None**", {"instruction": BOT}),
    "an input that starts like nothing": (
        f"Instruction: {BOT}\nInput: None of the files, only x",
        {"instruction": BOT, "input": "None of the files, only x"},
    ),
    # inside a solution, other people's words
    "a recipe's instructions": (
        "Solution: Pancakes.\n\n**Instructions:**\n1. Mix.\n2. Fry.\n\nNext request.",
        {"solution": "Pancakes.\n\n**Instructions:**\n1. Mix.\n2. Fry.", "next_request": True},
    ),
    "a recipe without the marker": ("Here is the recipe.\n\nIngredients: flour\n\nInstructions:\n1. Mix.", {}),
    "numbered steps": (
        "Solution: Follow these.\nInstruction 1: Open the app.\nInstruction 2: Log in.",
        {"solution": "Follow these.\nInstruction 1: Open the app.\nInstruction 2: Log in."},
    ),
    "examples' input": (
        "Solution: Try it.\nInput: [3, 1]\nOutput: [1, 3]",
        {"solution": "Try it.\nInput: [3, 1]\nOutput: [1, 3]"},
    ),
    "a second solution is part of the first": ("Solution: A.\nSolution: B.", {"solution": "A.\nSolution: B."}),
    "a flipped assistant": (
        "Solution: Done.\n\nInstruction: Now test it.\nInput: None",
        {"solution": "Done.", "instruction": "Now test it."},
    ),
    "next request in the middle": ("Solution: Say Next request. when done, I hear.", {"solution": "Say Next request. when done, I hear."}),
    "next request and a long tail of blanks": (f"Solution: A.\nNext request.{' ' * 200}", {"solution": "A.", "next_request": True}),
    # mentions, not uses
    "the word in a sentence": ("Your instruction: was it this? The input: yes. A solution: no", {}),
    "after a comma": ("I followed your plan, instruction: nothing unusual", {}),
    "the word alone on a line": ("Instruction\nis what you gave me", {}),
    "json keys": ('{"Instruction": "Sort", "Input": "x"}', {}),
    "fenced code amid prose": ("See:\n```\nInstruction: Sort\n<CAMEL_TASK_DONE>\n```\nThat is all.", {}),
    "a whole message of python": ("```python\nprompt = '''\nInstruction: Sort\n'''\n```", {}),
    "fence on the marker's line": (
        "Solution: ```text\nInstruction: Sort\n```\nNext request.",
        {"solution": "```text\nInstruction: Sort\n```", "next_request": True},
    ),
    "fence in a list item": ("Do:\n1. ```\n   Instruction: Sort\n   ```\nFine.", {}),
    "fence within a longer fence": ("So:\n````md\n```\nInstruction: A\n```\nInstruction: B\n````\nFine.", {}),
    "fence with words is no closing fence": ("So:\n```\n```python\nInstruction: A\n```\nFine.", {}),
    "fence never closed": ("So:\n```\nInstruction: A", {}),
    "after a closed fence": ("```\nx\n```\nInstruction: A\n```\ny\n```", {"instruction": "A\n```\ny\n```"}),
    "block quote": ("> Instruction: Sort\n> Input: x\n\nI did that.", {}),
    "sentence in a block quote": ("> Well. Instruction: Sort. Done! <CAMEL_TASK_DONE>\n\nI did that.", {}),
    "quotation": ('You said "Fine. Instruction: Sort it." and I did.', {}),
    "quotation over two lines": ('You said "Fine.\nInstruction: Sort it." and I did.', {}),
    "curly quotation over paragraphs": ("You said “Fine.\n\nInstruction: Sort it.” and I did.", {}),
    "German quotation": ("Du sagtest „Gut.\nInstruction: Sort it.“ und das tat ich.", {}),
    "Polish quotation": ("Mówisz „Dobrze.\nInstruction: Sort it.” i tak jest.", {}),
    "Danish quotation": ("Du sagde »Godt.\nInstruction: Sort it.« og det gjorde jeg.", {}),
    "French quotation in a German one": ("Du sagtest „Das «Ja»\nInstruction: Sort it.“ dazu.", {}),
    "after a German quotation": (
        "Instruction: Übersetze „Hallo“ ins Englische.\nInput: Keine Angabe",
        {"instruction": "Übersetze „Hallo“ ins Englische.", "input": "Keine Angabe"},
    ),
    "between German quotations": (
        "Instruction: Übersetze „Hallo“.\nInput: „Welt“ und “World”",
        {"instruction": "Übersetze „Hallo“.", "input": "„Welt“ und “World”"},
    ),
    "after a Polish quotation": ("To jest „ok”.\nInstruction: Continue", {"instruction": "Continue"}),
    "after a Danish quotation": ("Det er »godt«.\nInstruction: Go «on»", {"instruction": "Go «on»"}),
    "after a German quotation, done": (f"Danke für die „Lösung“.\n{DONE_TOKEN}", {"done": True}),
    "between German and English quotations, done": (f"Danke für „das“.\n{DONE_TOKEN}\nSo “long”.", {"done": True}),
    "quotation never closed": ("It is “fine.\nInstruction: Continue", {"instruction": "Continue"}),
    "German quotation closed in another paragraph": (
        'Es ist „gut".\n\nInstruction: Go „on“',
        {"instruction": "Go „on“"},
    ),
    "path with guillemets": ("See Home » Menu.\nInstruction: Open «Menu»", {"instruction": "Open «Menu»"}),
    "quotation that opens the message": ('"Fine.\nInstruction: Sort it." is what you said', {}),
    "single quotation": ("You said 'Don't. Instruction: Sort it.' and I did.", {}),
    "inline code": ("Use the form `Hi. Instruction: Sort it` always.", {}),
    "html comment": ("Text.\n<!--\nInstruction: Sort\n<CAMEL_TASK_DONE>\n-->\nText.", {}),
    "inches are no quotation": ('Cut 5" off.\nInstruction: Cut 6" more', {"instruction": 'Cut 6" more'}),
    "apostrophes are no quotation": (
        "The traders' view is yours. Instruction: Write the bot's code, it's late",
        {"instruction": "Write the bot's code, it's late"},
    ),
    "an instruction full of quotation marks": (
        'Instruction: Name it "Bot" and "Trader"\nInput: "x"',
        {"instruction": 'Name it "Bot" and "Trader"', "input": '"x"'},
    ),
    # done, dressed up
    "done without brackets": ("CAMEL_TASK_DONE", {"done": True}),
    "done in lower case": ("<camel_task_done>", {"done": True}),
    "done with a full stop": (f"{DONE_TOKEN}.", {"done": True}),
    "done in bold": (f"**{DONE_TOKEN}**", {"done": True}),
    "done as a heading": (f"# {DONE_TOKEN}", {"done": True}),
    "done in code marks": (f"`{DONE_TOKEN}`", {"done": True}),
    "done in a fence": (f"```\n{DONE_TOKEN}\n```", {"done": True}),
    "done in quotation marks": (f'"{DONE_TOKEN}"', {"done": True}),
    "done with escaped underscores": ("<CAMEL\\_TASK\\_DONE>", {"done": True}),
    "done as a closing tag": ("</CAMEL_TASK_DONE>", {"done": True}),
    "done with a picture": (f"{DONE_TOKEN} 🎉", {"done": True}),
    "thanks, then done": (f"Thank you for your help! {DONE_TOKEN}", {"done": True}),
    "thanks in bold, then done": (f"**Thank you!** {DONE_TOKEN}", {"done": True}),
    "thanks on the line before": (f"Thank you for your help.\n\n{DONE_TOKEN}", {"done": True}),
    "done, then thanks": (f"{DONE_TOKEN}\n\nThank you for your help!", {"done": True}),
    "done, full stop, thanks": (f"{DONE_TOKEN}. Thank you for your help.", {"done": True}),
    "done with windows line ends": (f"Thank you.\r\n{DONE_TOKEN}\r\nBye.", {"done": True}),
    "no instruction and done": (f"Instruction: None\nInput: None\n{DONE_TOKEN}", {"done": True}),
    "done in the instruction's place": (f"Instruction: {DONE_TOKEN}\nInput: None", {"done": True}),
    "solution and done": (f"Solution: It works.\n{DONE_TOKEN}", {"solution": "It works.", "done": True}),
    "instruction beats done": (f"Instruction: {BOT}\nInput: None\n{DONE_TOKEN}", {"instruction": BOT}),
    "instruction after done": (f"{DONE_TOKEN}\nInstruction: {BOT}", {"instruction": BOT}),
    "done in mid-sentence": (f"I will say {DONE_TOKEN} when it works.", {}),
    "done as the last word of a sentence": (f"I am not yet ready to say {DONE_TOKEN}", {}),
    "done in inline code": (f"It is over. `{DONE_TOKEN}`", {}),
    "done in a sentence's quotation": (f'It says "All good. {DONE_TOKEN}" at the end.', {}),
    "done in a quotation of its own line": (f'It says "All good.\n{DONE_TOKEN}\nThanks" at the end.', {}),
    "look-alike letters": ("<CAMEL_TAſK_DONE>\n<\u212aAMEL_TASK_DONE>\n<САMEL_TASK_DONE>", {}),
    "zero-width letters": ("<CAMEL_\u200bTASK_DONE>", {}),
    "a longer word": ("XCAMEL_TASK_DONE_NOT", {}),
    # nothing at all
    "empty": ("", {}),
    "blank": (" \n\t\n", {}),
    "prose": ("Hello, how can I help you today?", {}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), WRITTEN.values(), ids=WRITTEN)
def test_what_models_write(text: str, parts: dict[str, Any]):
    assert parse(text) == Move(**parts)


# Texts without markers: no marker's word, no done token, nothing that opens or closes a quotation or a fence.
WORDS = st.sampled_from(
    [
        "the",
        "a",
        "bot",
        "price",
        "load",
        "use",
        "and",
        "then",
        "with",
        "risk",
        "data,",
        "code.",
        "fast!",
        "new?",
        "limit",
        "(small)",
        "42",
        "naïve",
        "価格",
        "x=1;",
        "{}",
        "\\n",
        "$5",
        "50%",
    ]
)
PLAIN = st.lists(WORDS, min_size=1, max_size=30).map(" ".join)
SAYING = PLAIN.filter(lambda text: any(c.isalpha() for c in text))
PARAGRAPHS = st.lists(SAYING, min_size=1, max_size=4).map("\n\n".join)
ANYTHING = st.text(max_size=300)
PIECES = st.sampled_from(
    ["Instruction:", "instruction", "Input:", "Solution:", "Next request.", DONE_TOKEN, "None", "**", "#", "```", "~~~", ">",
     "<!--", "-->", '"', "“", "”", "„", "»", "«", "'", "`", "\n", "\n\n", " ", ". ", ":", "1.", "- ", "\r\n", "İ", "text", "\0", "\ud800"]
)  # fmt: skip
SOUP = st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=40).map("".join)


@given(st.one_of(SOUP, ANYTHING))
@settings(max_examples=200)
def test_parse_never_raises_and_is_never_done_with_an_instruction(text: str):
    move = parse(text)
    assert not (move.done and move.instruction is not None)
    assert move.input is None or move.instruction is not None
    for part in (move.instruction, move.input, move.solution):
        # A part is never empty, and consists of the message's own words.
        assert part is None or (
            part.strip() == part != "" and part in text.replace("\r\n", "\n").replace("\r", "\n")
        )


@given(PARAGRAPHS, st.one_of(st.none(), PARAGRAPHS), st.booleans())
def test_a_rendered_instruction_reads_back(instruction: str, given_input: str | None, done_after: bool):
    move = Move(instruction=instruction, input=given_input)
    assert parse(move.render()) == move
    if done_after:  # a message with an instruction does not end the task
        assert parse(f"{move.render()}\n{DONE_TOKEN}") == move


@given(PARAGRAPHS, st.booleans())
def test_a_rendered_solution_reads_back(solution: str, closes: bool):
    move = Move(solution=solution, next_request=closes)
    assert parse(move.render()) == move


def test_a_rendered_done_reads_back():
    assert parse(Move(done=True).render()) == Move(done=True)


@st.composite
def decorated(draw: st.DrawFn, word: str) -> str:
    """A marker as some model would write it."""
    cased = draw(st.sampled_from([word, word.lower(), word.upper(), word.title()]))
    number = draw(st.sampled_from(["", "", " 1", " #2"])) if word != "Input" else ""
    lead = draw(st.sampled_from(["", "", "  ", "- ", "* ", "1. ", "2) ", "## ", "### ", "- ## "]))
    bold = draw(st.sampled_from(["", "**", "__", "*"]))
    colon = draw(st.sampled_from([":", "：", " :"]))
    inside = draw(st.booleans())
    marker = f"{cased}{number}{colon}{bold}" if inside else f"{cased}{number}{bold}{colon}"
    after = draw(st.sampled_from([" ", "\n", "\n\n"]))
    return f"{lead}{bold}{marker}{after}"


@given(decorated("Instruction"), decorated("Input"), SAYING, SAYING)
def test_decoration_does_not_change_an_instruction(marker: str, input_marker: str, what: str, context: str):
    assert parse(f"{marker}{what}\n{input_marker}{context}") == Move(instruction=what, input=context)


@given(decorated("Solution"), PARAGRAPHS)
def test_decoration_does_not_change_a_solution(marker: str, what: str):
    assert parse(f"{marker}{what}\n\nNext request.") == Move(solution=what, next_request=True)


MARKED = st.lists(
    st.one_of(
        st.sampled_from(["Instruction: Sort it.", "**Instruction:** Sort", "### Instruction", "Input: x", "Well. Instruction: Sort"])
        | st.sampled_from(["Solution: I did.", "Fine. Solution: I did.", DONE_TOKEN, f"Thanks. {DONE_TOKEN}", "CAMEL_TASK_DONE."]),
        PLAIN,
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip
MENTIONS = {
    "fence": lambda lines: "```\n" + "\n".join(lines) + "\n```",
    "python fence": lambda lines: "```python\n" + "\n".join(lines) + "\n```",
    "tildes": lambda lines: "~~~~\n" + "\n".join(lines) + "\n~~~~",
    "block quote": lambda lines: "\n".join(f"> {line}" for line in lines),
    "quotation": lambda lines: 'It said "' + "\n".join(lines) + '" there',
    "curly quotation": lambda lines: "It said “" + "\n\n".join(lines) + "” there",
    "guillemets": lambda lines: "It said «" + "\n".join(lines) + "» there",
    "German quotation": lambda lines: "It said „" + "\n".join(lines) + "“ there",
    "Polish quotation": lambda lines: "It said „" + "\n".join(lines) + "” there",
    "Danish quotation": lambda lines: "It said »" + "\n".join(lines) + "« there",
    "inline code": lambda lines: f"It said `{' '.join(lines)}` there",
    "comment": lambda lines: "<!-- " + "\n".join(lines) + " -->",
}


@pytest.mark.parametrize("how", MENTIONS)
@given(before=SAYING, lines=MARKED, after=SAYING)
@settings(max_examples=25)
def test_what_is_mentioned_is_not_used(how: str, before: str, lines: list[str], after: str):
    text = f"{before}\n\n{MENTIONS[how](lines)}\n\n{after}"
    assert parse(text) == Move()
    # An instruction after it is still read.
    assert parse(f"{text}\n\nInstruction: Continue").instruction == "Continue"


@given(
    PARAGRAPHS,
    st.sampled_from(["Instruction: Sort it\nInput: None", "Solution: Sorted.", DONE_TOKEN, "Just words."]),
)
def test_prose_before_adds_no_move(prose: str, message: str):
    assert parse(f"{prose}\n\n{message}") == parse(message)


@given(
    PARAGRAPHS,
    st.sampled_from(["Instruction: Sort it\nInput: x", "Solution: Sorted.", DONE_TOKEN, "Just words."]),
)
def test_prose_after_adds_no_move(prose: str, message: str):
    assume(not prose.startswith(("None", "none")))
    alone, followed = parse(message), parse(f"{message}\n\n{prose}")
    assert (followed.done, followed.next_request) == (alone.done, False)
    assert (followed.instruction is None) == (alone.instruction is None)
    assert (followed.solution is None) == (alone.solution is None)


def hostile(size: int) -> dict[str, str]:
    """Texts of about `size` characters, each a trap for a parser that looks back or ahead too far."""
    return {
        "spaces": " " * 3 * size,
        "stars": "*" * 3 * size,
        "newlines": "\n" * size,
        "stars in a part": "Instruction: " + "*" * size + "x",
        "spaces in a part": "Instruction: x" + " " * size + "x",
        "spaces after the word": ("Instruction" + " " * 1000) * (size // 1011),
        "the bare word": "Instruction" * (size // 11),
        "markers on one line": "Instruction: " * (size // 13),
        "sentences on one line": "a. Instruction: b " * (size // 18),
        "inputs on one line": "Instruction: " + "b Input: " * (size // 9),
        "markers on lines": "Instruction: x\nInput: y\nSolution: z\n" * (size // 36),
        "plurals on lines": "x\n" + "Instructions: x\n" * (size // 16),
        "fences": "```\n```\nInstruction:\n" * (size // 21),
        "tildes and a backtick": ":~~~" * (size // 4) + "`",
        "backticks": "`" * size,
        "fences on one line": ":```a" * (size // 5),
        "open comments": "<!--" * (size // 4) + "\nInstruction: x",
        "block quotes": "> Instruction: x\n" * (size // 17),
        "quotation marks": '"Well. Instruction: ' * (size // 20),
        "single quotation marks": "'a. Instruction: " * (size // 17),
        "curly quotation marks": "“a. Instruction: " * (size // 17),
        "German quotation marks": "„a. Instruction: " * (size // 17),
        "Danish quotation marks": " »a. Instruction: " * (size // 18),
        "quotation marks of all kinds": "„“«»「』”" * (size // 7) + " »a" * (size // 3) + "\n\n",
        "done tokens": f". {DONE_TOKEN}" * (size // 19),
        "done lines in fences": f"```\n```\n> {DONE_TOKEN}\n" * (size // 28),
        "quoted done lines": f'"a. {DONE_TOKEN}.\n' * (size // 23),
        "one line of letters": "x" * 3 * size + "\nInstruction: y",
        "lowering to two characters": "İ" * (size // 2) + "\nInstruction: y",
        "next requests": "next request " * (size // 13),
        "a number of digits": "Instruction " + "9" * size + ":",
    }


@pytest.mark.parametrize("kind", hostile(1_011))
def test_time_grows_in_step_with_the_text(kind: str):
    assert_linear(lambda size: parse(hostile(size)[kind]))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", hostile(1_011))
def test_long_texts_are_parsed_in_seconds(kind: str):
    # The slowest takes about half a second on a slow core; a quadratic one takes minutes.
    text = hostile(300_000)[kind]
    started = time.process_time()
    parse(text)
    assert time.process_time() - started < 15


def test_ordinary_messages_are_quick():
    text = "Instruction: " + "Write a function that loads the data and cleans it. " * 13 + "\nInput: None"
    best = min(_seconds(text) for _ in range(5))
    assert best < 200e-6, "about 12 microseconds on an idle core"


def _seconds(text: str) -> float:
    started = time.process_time()
    for _ in range(200):
        parse(text)
    return (time.process_time() - started) / 200


PROMPTED = st.sampled_from(
    ["Instruction: ", "Solution: ", "\nInput: ", "Input: None", "\nNext request.", "Next request.", "instruction", "input", '"', "'", "„", "“", "”", " »", "«",
     "`", "```\n", "<CAMEL_TASK_DONE>", "> ", "\n", ". ", "None", "a word and another one that fills the line up to some length ", "\r\n"]
)  # fmt: skip


@given(st.lists(PROMPTED, max_size=9).map("".join) | st.text(max_size=200))
@example("Instruction: " + "x" * 70 + "\nInput: None")
@example("Solution: " + "x" * 70 + "\nNext request.")
@example("Instruction: " + "x" * 70 + " »x\nInput: y« z")
def test_the_short_way_gives_the_same_answer(text: str):
    quick = grammar._as_prompted(text)
    assert quick is None or quick == grammar._as_written(text)


def test_the_short_way_is_taken():
    assert grammar._as_prompted("Instruction: " + "x" * 70 + "\nInput: None")
    assert grammar._as_prompted("Solution: " + "x" * 70 + "\nNext request.")
