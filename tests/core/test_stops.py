"""Each stop rule fires where it should and nowhere else; a false stop truncates a conversation that was paid for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from camel.core.grammar import DONE_TOKEN
from camel.core.message import Message
from camel.core.stops import (
    AssistantInstructs,
    DoneToken,
    MaxMessages,
    MessageLoop,
    NextCall,
    NoInstruction,
    Stop,
    StopRule,
    TokenLimit,
    paper_rules,
    play_rules,
)
from camel.scenarios import RolePlay, load, shipped

TRANSCRIPTS = Path(__file__).parent.parent / "fixtures" / "transcripts"
CALL = NextCall("user")
ASK = "Instruction: Write part {} of the bot.\nInput: None"
ANSWER = "Solution: Part {} is done.\nNext request."


def dialogue(*lines: str, first: str = "user") -> list[Message]:
    """The lines, said in turn."""
    seats = ("user", "assistant") if first == "user" else ("assistant", "user")
    return [Message(i, seats[i % 2], seats[i % 2].title(), line) for i, line in enumerate(lines)]


def first_stop(messages: Sequence[Message], rules: Sequence[StopRule]) -> tuple[str, int] | None:
    """The first rule to fire when the messages come one by one, and after how many of them."""
    for count in range(len(messages) + 1):
        for rule in rules:
            if stop := rule.check(messages[:count], CALL):
                return stop.reason, count
    return None


# --- done ------------------------------------------------------------------------------------------------------------


def test_done_ends_it():
    stop = DoneToken().check(dialogue(ASK, ANSWER, DONE_TOKEN), CALL)
    assert stop == Stop("done", "the user said that the task is done", "user")


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (ASK,),
        (ASK, DONE_TOKEN),  # the assistant's word does not count
        (ASK, f"Solution: All done.\n{DONE_TOKEN}"),
        (DONE_TOKEN, ANSWER),  # not the last message
        (ASK, ANSWER, f"Instruction: Explain what `{DONE_TOKEN}` means.\nInput: None"),
        (ASK, ANSWER, f"I shall not say {DONE_TOKEN} before it works."),
    ],
)
def test_done_is_silent(lines: tuple[str, ...]):
    assert DoneToken().check(dialogue(*lines), CALL) is None


def test_done_by_another_seat():
    assert DoneToken(by="chair").check([Message(0, "chair", "Chair", DONE_TOKEN)], CALL) is not None
    assert DoneToken(by="chair").check([Message(0, "user", "User", DONE_TOKEN)], CALL) is None


# --- no instruction --------------------------------------------------------------------------------------------------

TALK = "That is a good point, let us think about it."


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((TALK, ANSWER, TALK, ANSWER), None),  # two rounds
        ((TALK, ANSWER, TALK, ANSWER, TALK), ("user_no_instruction", 5)),  # three
        ((TALK, ANSWER, TALK, ANSWER, ASK, ANSWER, TALK, ANSWER, TALK), None),  # an instruction resets
        ((ASK, ANSWER, TALK, ANSWER, TALK, ANSWER, TALK), ("user_no_instruction", 7)),
        (
            ("Instruction: None\nInput: None", ANSWER) * 3,
            ("user_no_instruction", 5),
        ),  # none is no instruction
        ((ASK, TALK, ASK, TALK, ASK, TALK), None),  # what the assistant leaves out is no matter
        (("> Instruction: Sort", ANSWER) * 3, ("user_no_instruction", 5)),  # nor is a mention
    ],
)
def test_no_instruction(lines: tuple[str, ...], expected: tuple[str, int] | None):
    assert first_stop(dialogue(*lines), [NoInstruction()]) == expected


def test_no_instruction_is_asked_when_the_user_has_spoken():
    messages = dialogue(TALK, ANSWER, TALK, ANSWER, TALK, ANSWER)
    assert NoInstruction().check(messages, CALL) is None
    assert NoInstruction().check(messages[:-1], CALL) is not None


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_no_instruction_counts_its_rounds(rounds: int):
    lines = (TALK, ANSWER) * 6
    assert first_stop(dialogue(*lines), [NoInstruction(rounds=rounds)]) == (
        "user_no_instruction",
        2 * rounds - 1,
    )


# --- the assistant instructs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "fires"),
    [
        ("Instruction: Now you write part 2.\nInput: None", True),
        ("Solution: Done.\n\nInstruction: Test it on your data.", True),
        ("**Instruction:** Test it on your data.", True),
        ("Sure! Instruction: Test it on your data.", True),
        (ANSWER, False),
        ("Solution: Pancakes.\n\nInstructions:\n1. Mix.\n2. Fry.\n\nNext request.", False),
        ("Here is the recipe.\n\n**Instructions:**\n1. Mix.\n2. Fry.", False),
        ("Solution: Steps.\nInstruction 1: Open the app.\nInstruction 2: Log in.", False),
        ("Solution: You wrote:\n> Instruction: Write part 2.\nand here it is.", False),
        ('Solution: As you said, "Fine. Instruction: Write part 2." Here it is.', False),
        ("Solution: A prompt:\n```\nInstruction: Write part 2.\nInput: None\n```", False),
        ("Solution: ```\nInstruction: Write part 2.\n```", False),
        ("I followed your instruction: it works.", False),
        ("Instruction: None", False),
    ],
)
def test_assistant_instructs(line: str, fires: bool):
    assert (AssistantInstructs().check(dialogue(ASK, line), CALL) is not None) == fires
    # The user may say the same.
    assert AssistantInstructs().check(dialogue(ANSWER, ANSWER, line), CALL) is None


# --- length ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "limit", "fires"),
    [(39, 40, False), (40, 40, True), (41, 40, True), (0, 1, False), (1, 1, True)],
)
def test_max_messages(count: int, limit: int, fires: bool):
    stop = MaxMessages(limit).check(dialogue(*[ASK] * count), CALL)
    assert (stop is not None) == fires
    if stop:
        assert stop.reason == "max_messages"
        assert str(limit) in stop.detail


def test_the_papers_limit_is_40():
    assert MaxMessages().limit == 40
    assert NoInstruction().rounds == 3


@pytest.mark.parametrize(
    ("rule", "call", "fires"),
    [
        (TokenLimit(), NextCall("user", 3584, None, 4096), False),  # 512 reserved, exactly full
        (TokenLimit(), NextCall("user", 3585, None, 4096), True),  # one token over
        (TokenLimit(reserve=0), NextCall("user", 4096, None, 4096), False),
        (TokenLimit(reserve=0), NextCall("user", 4097, None, 4096), True),
        (TokenLimit(), NextCall("user", 3996, 100, 4096), False),  # max_tokens takes the reserve's place
        (TokenLimit(), NextCall("user", 3997, 100, 4096), True),
        (TokenLimit(), NextCall("user", 100, 4000, 4096), True),
        (TokenLimit(), NextCall("user", 10**9, None, None), False),  # unknown window
        (TokenLimit(limit=1000), NextCall("user", 488, None, None), False),
        (TokenLimit(limit=1000), NextCall("user", 489, None, None), True),
        (TokenLimit(limit=1000), NextCall("user", 489, None, 8192), True),  # the smaller of the two
        (TokenLimit(limit=8192), NextCall("user", 489, None, 1000), True),
        (TokenLimit(limit=8192), NextCall("user", 488, None, 1000), False),
    ],
)
def test_token_limit(rule: TokenLimit, call: NextCall, fires: bool):
    stop = rule.check([], call)
    assert (stop is not None) == fires
    if stop:
        assert (stop.reason, stop.speaker) == ("token_limit", "user")


# --- loops -----------------------------------------------------------------------------------------------------------

LONG_ASK = "Instruction: Please describe how the trading bot handles an order that is only filled in part.\nInput: None"
LONG_ANSWER = (
    "Solution: The bot keeps the rest of the order open until the end of the day and cancels what is left then. "
    "It writes both into the journal. Next request."
)
SORRY = "Solution: I am sorry, but I cannot help with this, as I have no access to your files or to the market. Next request."

LOOPS = {
    "thanks and thanks again": (
        ["Thank you for your help!", "You're welcome!", "Thanks again!", "My pleasure. Goodbye!"],
        4,
    ),
    "thanks inside the markers": (
        [ASK, ANSWER]
        + ["Thank you so much!", "Solution: You're welcome! Next request."] * 2,
        6,
    ),
    "goodbyes": (["Goodbye!", "Bye, take care.", "See you!", "Farewell and good luck."], 4),
    "long goodbyes, never the same": (
        [
            "Thank you for your kind words. It was a pleasure to work with you on this.",
            "Thank you too! If you have any more questions in the future, do not hesitate to reach out. Have a great day!",
            "I appreciate it. I wish you all the best with the next project. Goodbye!",
            "Thanks, and take care! I am glad to have been of help.",
        ],
        4,
    ),
    "both to the letter": ([LONG_ASK, LONG_ANSWER] * 4, 6),
    "both in short lines": (["Instruction: Continue.\nInput: None", "Solution: Done. Next request."] * 4, 6),
    "both nearly: blanks, case and punctuation": (
        [
            LONG_ASK,
            LONG_ANSWER,
            LONG_ASK.replace("Please", "please").replace("\n", "\n\n"),
            LONG_ANSWER.replace(". It", "!\n\nIt"),
            f"**{LONG_ASK}**",
            LONG_ANSWER.replace("The bot", "the bot,"),
        ],
        6,
    ),
    "both nearly: a word left out": (
        [
            LONG_ASK,
            LONG_ANSWER,
            LONG_ASK.replace("Please ", ""),
            LONG_ANSWER.replace("both ", ""),
            LONG_ASK,
            LONG_ANSWER,
        ],
        6,
    ),
    "a circle of two": (
        [LONG_ASK, LONG_ANSWER, ASK.format("one"), SORRY] * 3,
        8,
    ),
    "begins after good messages": (
        [ASK.format(1), ANSWER.format(1), ASK.format(2), ANSWER.format(2)] + [LONG_ASK, LONG_ANSWER] * 3,
        10,
    ),
    "one is stuck": (
        [line for i in range(6) for line in (f"Instruction: Do {'x' * i} thing number {i} for me.\nInput: None", SORRY)],
        10,
    ),
    "the user is stuck": (
        [line for i in range(6) for line in (LONG_ASK, f"Solution: This time I tell the story of {i} traders of {i} towns.")],
        9,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOOPS)
def test_loops_are_seen(kind: str):
    lines, after = LOOPS[kind]
    assert first_stop(dialogue(*lines), [MessageLoop()]) == ("message_loop", after)
    # And not one message before: what is cut off is a loop already.
    assert first_stop(dialogue(*lines[: after - 1]), [MessageLoop()]) is None


CITIES = ["Paris", "London", "Rome", "Madrid", "Lisbon", "Vienna", "Prague", "Athens"]
LISTING = [f"total_{i} = price_{i} * amount_{i}  # position {i}" for i in range(40)]

NOT_LOOPS = {
    "a template filled in": [
        line
        for city in CITIES
        for line in (
            f"Instruction: Give me the three best museums of {city} with their opening hours in the format that we agreed on.\nInput: None",
            f"Solution: In the format that we agreed on, the three best museums of {city}, with hours, are the {city} Museum, the {city} Gallery and the old town hall. Next request.",
        )
    ],
    "numbers worked off": [
        line
        for i in range(3, 12)
        for line in (
            f"Instruction: Write the unit test for function number {i} of the module in the same style as before.\nInput: None",
            f"Solution: Here is the unit test for function number {i} of the module, in the same style as before: assert f({i}) == {i * i}. Next request.",
        )
    ],
    "a header of boilerplate": [
        line
        for i in range(8)
        for line in (
            f"Instruction: Continue.\nInput: row {i}",
            "Solution: This is not financial advice. Past results do not tell the future. Ask a professional before you trade. "
            f"All figures are estimates. With that said, the answer for row {i} is {CITIES[i]}. Next request.",
        )
    ],
    "a listing that grows": [
        line
        for i in range(30, 38)
        for line in (
            f"Instruction: Add the line for position {i} to the program and show it whole.\nInput: None",
            "Solution: Here is the whole program.\n```python\n" + "\n".join(LISTING[:i]) + "\n```\nNext request.",
        )
    ],
    "short answers that recur": [
        line
        for i in range(8)
        for line in (
            f"Instruction: Is the review number {i} positive?\nInput: I like the {CITIES[i]} model.",
            "Solution: Yes.\nNext request.",
        )
    ],
    "the same instruction to continue": [
        line
        for i in range(8)
        for line in (
            "Instruction: Continue.\nInput: None",
            f"Solution: Chapter {i}. And so they came to {CITIES[i]}, where it was evening. Next request.",
        )
    ],
    "a board game in the same few words": [
        line
        for a, b in [(1, 2), (2, 1), (2, 2), (1, 1), (1, 3), (3, 1)]
        for line in (
            f"Instruction: Place X in row {a} column {b} of our board.\nInput: None",
            f"Solution: The board now has X in row {a} column {b}.\nNext request.",
        )
    ],
    "thanks, but still working": [
        line
        for i in range(5)
        for line in (f"Thank you!\n\nInstruction: Add item {i}.\nInput: None", f"Solution: You're welcome! Item {i} is in. Next request.")
    ],
    "thanks in long messages": [
        "Thank you. " + "The report should say how the fund did in each of the years. " * 8,
        "You're welcome. " + "In the first year it grew by four per cent, in the second by five. " * 8,
        "Thanks. " + "Now compare it with the index and with a savings account, please. " * 8,
        "Happy to help. " + "The index grew by six per cent in each of these years, the account by one. " * 8,
    ],
    "three thanks": ["Thank you!", "You're welcome!", "Thanks again!"],
    "thanks, interrupted": ["Thank you!", "You're welcome!", ASK, "You're welcome!", "Thanks!", "Bye!"],
    "one repeats once": [LONG_ASK, LONG_ANSWER, LONG_ASK, LONG_ANSWER.replace("cancels", "sells")],
    "both repeat once": [LONG_ASK, LONG_ANSWER, LONG_ASK, LONG_ANSWER],
    "stuck four times, then not": [LONG_ASK, ANSWER.format(1), LONG_ASK, ANSWER.format(2), LONG_ASK, ANSWER.format(3),
        LONG_ASK, ANSWER.format(4), ASK.format(5), ANSWER.format(5), LONG_ASK, ANSWER.format(6)],
}  # fmt: skip


@pytest.mark.parametrize("kind", NOT_LOOPS)
def test_progress_is_no_loop(kind: str):
    assert first_stop(dialogue(*NOT_LOOPS[kind]), [MessageLoop()]) is None


def test_loop_of_three_speakers():
    names = ("a", "b", "c")
    same = [Message(i, names[i % 3], "Role", f"This is {names[i % 3]} and I say it again.") for i in range(9)]
    assert first_stop(same, [MessageLoop()]) == ("message_loop", 9)
    one_goes_on = [
        Message(m.index, m.speaker, m.role, f"Item {m.index} is new." if m.speaker == "b" else m.content)
        for m in same
    ]
    assert first_stop(one_goes_on, [MessageLoop()]) is None


# --- whole transcripts -----------------------------------------------------------------------------------------------

# Transcripts of the small real model, read one by one: the rule that should end each and after how many messages,
# or None where no rule should. One that is not listed here is only checked for being readable.
# The sixth guided one (11) goes in circles too, but with other words each time, which no rule takes for a repeat.
SMALL_MODEL: dict[str, tuple[str, int] | None] = {
    **{f"smollm2-{n}": ("user_no_instruction", 5) for n in range(1, 7)},
    "smollm2-7": ("message_loop", 6),
    "smollm2-8": ("message_loop", 7),
    "smollm2-9": ("message_loop", 14),
    "smollm2-10": ("message_loop", 10),
    "smollm2-11": None,
    "smollm2-12": ("message_loop", 14),
}


def said(path: Path) -> list[Message]:
    data = json.loads(path.read_text("utf-8"))
    return [
        Message(i, line["speaker"], data.get(line["speaker"], "") or "Role", line["content"])
        for i, line in enumerate(data["messages"])
    ]


GOOD = sorted(TRANSCRIPTS.glob("good-*.json"))
REAL = sorted(TRANSCRIPTS.glob("smollm2-*.json"))


def test_there_are_good_transcripts():
    assert len(GOOD) >= 6
    for path in GOOD:
        messages = said(path)
        assert 8 <= len(messages) <= 17
        assert [m.speaker for m in messages] == [("user", "assistant")[i % 2] for i in range(len(messages))]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_conversation_ends_by_done_alone(path: Path):
    messages = said(path)
    assert first_stop(messages, paper_rules()) == ("done", len(messages))
    others = [rule for rule in play_rules() if not isinstance(rule, DoneToken)]
    assert first_stop(messages, others) is None
    # Every message says what its seat should.
    for message in messages[:-1]:
        part = message.move.instruction if message.speaker == "user" else message.move.solution
        assert part is not None, message.content


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_transcripts_end_where_a_reader_would_end_them(path: Path):
    messages = said(path)
    stop = first_stop(messages, play_rules())
    if path.stem in SMALL_MODEL:
        assert stop == SMALL_MODEL[path.stem]
    assert stop is None or 0 < stop[1] <= len(messages)


def test_the_loop_rule_is_not_the_papers_and_can_be_left_out():
    assert not any(isinstance(rule, MessageLoop) for rule in (*paper_rules(), *play_rules(())))
    kinds = [type(rule).__name__ for rule in play_rules()]
    assert kinds.index("NoInstruction") < kinds.index("MessageLoop") < kinds.index("MaxMessages")
    for name in shipped():
        if isinstance(end := load(name).end, RolePlay):
            assert [type(rule).__name__ for rule in end.rules()] == kinds, "all role plays end as before"


def test_rules_are_pure():
    messages = dialogue(*[LONG_ASK, LONG_ANSWER] * 3)
    for rule in play_rules():
        assert rule.check(messages, CALL) == rule.check(list(messages), CALL)
    assert [m.content for m in messages] == [LONG_ASK, LONG_ANSWER] * 3


def test_a_limit_of_one_message_is_said_in_the_singular():
    stop = MaxMessages(1).check([Message(0, "user", "Trader", "Hello")], CALL)
    assert stop is not None
    assert stop.detail.endswith("limit of 1 message")
