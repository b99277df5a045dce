"""Each rule at its edges: what counts, what does not, and where it points. The corpus is for the rates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.core.message import Message
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.detectors import DETECTORS, detect, repeating, replies
from camel.detectors.prose import _WORD, has_any, words

ROLES = {"user": "Stock Trader", "assistant": "Python Programmer"}


def conversation(*said: str, task: str = "Develop a trading bot for the stock market") -> Transcript:
    """From lines such as `u: …` (an instruction), `a: …` (a solution), and `U: …`, `A: …` as they stand."""
    messages: list[Message] = []
    for index, line in enumerate(said):
        seat, text = line[0], line[3:]
        speaker = "user" if seat in "uU" else "assistant"
        if seat == "u":
            instruction, _, context = text.partition(" // ")
            text = f"Instruction: {instruction}\nInput: {context or 'None'}"
        elif seat == "a":
            text = f"Solution: {text}\nNext request."
        messages.append(Message(index, speaker, ROLES[speaker], text))
    return Transcript("t", Task(task), messages=messages)


def found(name: str, *said: str, **more: str) -> list[int]:
    return [finding.index for finding in detect(conversation(*said, **more), [name])]


ASKED = "u: Write the function that loads the prices."

FLAKES = [
    "I will write the function for you right away.",
    "Sure! I'll get on that.",
    "Absolutely, I'd be happy to help you with the function that loads the prices.",
    "Okay.",
    "Got it! Let's dive in.",
    "I understand what you need. I am going to create the function now.",
    "Thank you for the clear instruction. I'll start working on it.",
    "Of course! I can definitely help with that.",
    "We will load the prices with a function.",
    "I'm on it!",
    "Alright, let me think about the best way to load the prices.",
    "Great! I look forward to working on this with you.",
    "I am ready to help.",
    "Yes, I can do that.",
    "I would be delighted to write it. Please let me know if you have any preferences.",
]
NO_FLAKES = [
    "I will use pandas: `pd.read_csv(path)`.",
    "Yes.\n\n```python\nprices = load(path)\n```",
    "No, the function exists already: it is called load_prices.",
    "42.",
    "Which columns does the file have?",
    "I'm sorry, but I can't help with that.",
    "It is `read_csv`.",
    "Let me show you:\n1. Open the file.\n2. Read the rows.",
    "I opened the file and counted 250 rows; the last one is empty.",
]


@pytest.mark.parametrize("reply", FLAKES)
def test_a_flake_reply_is_found(reply: str):
    assert found("flake_reply", ASKED, f"a: {reply}") == [1]
    assert found("flake_reply", ASKED, f"A: {reply}") == [1]


@pytest.mark.parametrize("reply", NO_FLAKES)
def test_an_answer_is_no_flake_reply(reply: str):
    assert found("flake_reply", ASKED, f"a: {reply}") == []


def test_a_reply_that_was_asked_for_may_announce():
    assert (
        found("flake_reply", "u: Tell me how you would load the prices.", "a: I will read them with pandas.")
        == []
    )
    assert (
        found(
            "flake_reply", "u: Write a speech of one sentence.", "a: I will not leave you alone in the dark."
        )
        == []
    )
    assert found(
        "flake_reply", "u: Write a speech of one sentence.", "a: I will write a speech of one sentence."
    ) == [1]


def test_courtesy_is_no_flake_reply():
    assert found("flake_reply", "U: <CAMEL_TASK_DONE>", "A: Sure, happy to help!") == []
    assert found("flake_reply", "U: Thank you so much!", "A: My pleasure!") == []


def test_an_empty_solution_is_a_flake_reply():
    assert found("flake_reply", ASKED, "A: Solution:\nNext request.", ASKED, "A: ") == [1, 3]


PROMISES = [
    "I'll get back to you with the code tomorrow.",
    "I will send you the finished script by Monday.",
    "Please give me a few hours to finish this.",
    "I am currently working on the function.",
    "I've attached the script to this message.",
    "Please find the script attached.",
    "I have uploaded the code to the repository.",
    "The loader reads CSV files. Here is the code:",
    "[Insert code here]",
    "The function takes a path and returns a table. I'll share the full code with you later.",
    "Hold on while I check the documentation.",
    "I'll let you know once the function is ready.",
    "I will have it ready for you by the end of the day.",
    "I'm going to need some time for this. I will update you soon.",
]
NO_PROMISES = [
    "The scheduler will send you the report tomorrow at nine.",
    "Here is the code:\n\n```python\nx = 1\n```",
    "Call `load` and wait a few minutes until the cache is warm.",
    "I will now show the function: `load(path)`.",
    "The sensor is attached to the board with two screws.",
    "Replace `[path]` by your own, see [the manual](https://example.org).",
    "Set the timer to one minute; a moment later the lamp goes out.",
]


@pytest.mark.parametrize("reply", PROMISES)
def test_an_empty_promise_is_found(reply: str):
    assert found("empty_promise", ASKED, f"a: {reply}") == [1]


@pytest.mark.parametrize("reply", NO_PROMISES)
def test_a_delivery_is_no_empty_promise(reply: str):
    assert found("empty_promise", ASKED, f"a: {reply}") == []


def test_a_letter_may_promise():
    letter = "Dear Ms Weber, thank you. We will get back to you by the end of next week. Please find our offer attached, with the prices for all of the three variants and the terms of delivery."
    assert found("empty_promise", "u: Write a letter to a customer.", f"a: {letter}") == []


REFUSALS = [
    "I'm sorry, but I can't assist with that request.",
    "I cannot help you with insider trading.",
    "I’m sorry, I can’t help with that.",
    "As a language model, I'm not able to execute trades.",
    "I must respectfully decline to write this function.",
    "Sorry, I won't write code that manipulates the market.",
    "I am unable to fulfill this request, because it is illegal.",
    "I don't feel comfortable writing this.",
    "Unfortunately, I'm not able to provide financial advice. You may want to talk to a professional.",
    "I will not help you to deceive investors.",
    "That goes against my guidelines, so I have to say no.",
    "I'm afraid that this is not something I can do.",
]
NO_REFUSALS = [
    "You cannot load a file that does not exist.",
    "I can't think of a simpler way than this: `pd.read_csv(path)`.",
    "I can't recommend pandas enough: `pd.read_csv(path)`.",
    "If the file is missing the function raises an error, because it cannot help otherwise.",
    "I'm sorry for the mistake. The function now returns the table.",
    "The dialog says \"I'm sorry, I can't help with that\" when the file is missing.",
    "I couldn't find a bug in it.",
    "I can't see your file, but with these columns it works like this: `pd.read_csv(path)`.",
]


@pytest.mark.parametrize("reply", REFUSALS)
def test_a_refusal_is_found(reply: str):
    assert found("refusal", ASKED, f"a: {reply}") == [1]
    assert found("refusal", f"U: {reply}") == [0]


@pytest.mark.parametrize("reply", NO_REFUSALS)
def test_an_answer_is_no_refusal(reply: str):
    assert found("refusal", ASKED, f"a: {reply}") == []


@pytest.mark.parametrize("finish", ["refusal", "content_filter"])
def test_what_the_endpoint_withheld_is_a_refusal(finish: str):
    transcript = conversation(ASKED)
    transcript.messages.append(Message(1, "assistant", "Python Programmer", "", finish=finish))  # pyright: ignore[reportArgumentType]
    assert [f.detector for f in detect(transcript, ["refusal", "flake_reply"])] == ["refusal"]


FLIPS = [
    "A: Instruction: Give me the file.\nInput: None",
    "A: Now please write the function and send it to me.",
    "A: Your task is to collect the prices of ten shares.",
    "A: As a stock trader, I need a bot that buys low and sells high.",
    "A: I want you to implement the loader.",
    "A: You should now create a file with the prices.",
]
NO_FLIPS = [
    "A: Could you tell me which columns the file has?",
    "A: Please tell me more about the file.",
    "A: What would you like me to do next?",
    "A: Please give me more details about the file.",
    "a: Please write the path into the first line, then run the script.",
    "a: **Instructions:**\n1. Write the path.\n2. Run the script.",
    "A: As a Python programmer, I suggest pandas.",
    "A: Please give me the next instruction.",
]


@pytest.mark.parametrize("reply", FLIPS)
def test_an_assistant_who_instructs_flips(reply: str):
    assert found("role_flipping", ASKED, reply) == [1]


@pytest.mark.parametrize("reply", NO_FLIPS)
def test_an_assistant_who_asks_does_not_flip(reply: str):
    assert found("role_flipping", ASKED, reply) == []


@pytest.mark.parametrize(
    "said",
    [
        "Solution: Use pandas.\nNext request.",
        "How can I help you today?",
        "Sure! Here is the function: it opens the file and reads the rows.",
        "As a Python programmer, I would use pandas for that.",
        "I'd be happy to help you with the trading bot. What do you need?",
        "What would you like me to do next?",
        "I am here to assist you with any questions.",
        "Here's the code:\n\n```python\nload(path)\n```",
        "Certainly! I have prepared the list of shares.",
        "Please instruct me what to do.",
    ],
)
def test_a_user_who_serves_flips(said: str):
    assert found("role_flipping", f"U: {said}", "a: It is done.") == [0]


@pytest.mark.parametrize(
    "said",
    [
        "Instruction: Here is the code, fix it.\nInput: ```python\nload(\n```",
        "Thank you, that is good.",
        "What does the second line do?",
        "I am a stock trader and I need a bot.",
        "<CAMEL_TASK_DONE>",
        "I tried it and it fails with an error.",
    ],
)
def test_a_user_who_does_not_serve_does_not_flip(said: str):
    assert found("role_flipping", f"U: {said}") == []


def test_an_echo_is_found_and_a_solution_that_begins_with_one_is_not():
    assert found("repeated_instruction", ASKED, "a: Write the function that loads the prices.") == [1]
    assert found("repeated_instruction", ASKED, "a: Okay, so: write the function that loads the prices") == [
        1
    ]
    reply = "a: Write the function that loads the prices: `def load(path): return pd.read_csv(path)`"
    assert found("repeated_instruction", ASKED, reply) == []
    assert found("repeated_instruction", "u: Write it.", "a: Write it.") == []


def test_an_instruction_given_twice_is_found():
    other, done = "u: Explain the function.", "a: It opens the file and reads the rows."
    assert found("repeated_instruction", ASKED, done, other, done, ASKED) == [4]
    assert found("repeated_instruction", ASKED, done, f"{ASKED} // prices.csv") == []
    assert found("repeated_instruction", ASKED, "A: Which file?", ASKED) == []
    assert found("repeated_instruction", ASKED, "a: I'm sorry, but I can't do that.", ASKED) == []
    assert found("repeated_instruction", "u: Continue.", done, "u: Continue.") == []
    more = "u: Write one more function that loads prices."
    assert found("repeated_instruction", more, done, more) == []


def test_a_loop_is_found_once_and_again_after_something_else():
    thanks = ["U: Thank you!", "A: You're welcome!", "U: Thanks, bye!", "A: Goodbye!"]
    assert found("message_loop", *thanks, *thanks) == [3]
    assert found("message_loop", *thanks, ASKED, "a: It reads the rows of the file.", *thanks) == [3, 9]


PRAISE = ["U: You are brilliant, I love it!", "A: You're too kind, what a wonderful person you are!"]


def test_praise_from_both_sides_is_a_loop_from_the_third_message():
    assert found("sycophancy_loop", *PRAISE) == []
    assert found("sycophancy_loop", *PRAISE, *PRAISE, *PRAISE) == [2]
    work = [ASKED, "a: It reads the rows of the file with pandas."]
    assert found("sycophancy_loop", *PRAISE, *work, *PRAISE) == []
    assert found("sycophancy_loop", *PRAISE, PRAISE[0], *work, *PRAISE, PRAISE[0]) == [2, 7]
    assert found("sycophancy_loop", PRAISE[0], PRAISE[0], PRAISE[0]) == []


CUT = [
    "```python\ndef load(path):\n    return pd.read_csv(path,",
    "```python\ndef load(path):\n    return pd.read_csv(path\n```",
    "```python\nif ready:\n```",
    "```python\nname = 'prices\n```",
    "```js\nfunction load(path) {\n  return fetch(path);\n```",
    "```python\ndef load(path):\n    pass\n```",
    "```python\ndef load(path):\n    # TODO: implement\n    return None\n```",
    "```java\npublic void load() {\n    // TODO: add the loading logic here\n}\n```",
    "```c\nint load(char *path) {\n    // ...\n}\n```",
    "```sql\nSELECT day, price FROM prices WHERE\n```",
    "import pandas as pd\n\ndef load(path):\n    return pd.read_csv(path,",
    "```python\nclass Bot:\n    def buy(self):\n        raise NotImplementedError\n```",
]
WHOLE = [
    "```python\ndef load(path):\n    return pd.read_csv(path)",
    "```python\ndef load(path):\n    return pd.read_csv(path)\n```",
    '```python\nprint("(")  # an open one: (\n```',
    "```python\nx = cube[..., 0]\n```",
    "```python\nclass Stop(Exception):\n    pass\n```",
    "```python\ntry:\n    load(path)\nexcept OSError:\n    pass\n```",
    "```js\nconst double = (n) => 2 * n;\n```",
    "```rust\nfn first<'a>(text: &'a str) -> &'a str { &text[..1] }\n```",
    "```bash\nif [ -f prices.csv ]; then\n  echo yes\nfi\n```",
    "```text\nloading (\n```",
    "```go\nfor {\n\tselect {\n\tcase <-done:\n\t\treturn\n\t}\n}\n```",
    "```html\n<p>It's (nearly) done</p>\n```",
    "Use `load(` to begin.",
    "```python\nfrom typing import Protocol\n\nclass Loader(Protocol):\n    def load(self): ...\n```",
    '```json\n{"path": "prices.csv", "rows": [1, 2]}\n```',
    '```python\ntext = """an open (\nbracket"""\n```',
]


@pytest.mark.parametrize("code", CUT)
def test_unfinished_code_is_found(code: str):
    assert found("unfinished_code", ASKED, f"a: {code}") == [1]


@pytest.mark.parametrize("code", WHOLE)
def test_whole_code_is_not(code: str):
    assert found("unfinished_code", ASKED, f"a: {code}") == []


def test_code_between_comments_is_a_body():
    between = "a: ```js\nfunction f() {\n  /* a */\n  g();\n  /* b */\n}\n```"
    brace = "a: ```js\nfunction f() {\n  // of {a}\n  g();\n}\n```"
    assert found("unfinished_code", ASKED, between) == found("unfinished_code", ASKED, brace) == []
    assert found("unfinished_code", ASKED, "a: ```js\nfunction f() {\n  /* a */\n  // b\n}\n```") == [1]


def test_a_skeleton_that_was_asked_for_is_whole():
    code = "a: ```python\ndef load(path):\n    pass\n```"
    assert found("unfinished_code", "u: Give me a skeleton of the module.", code) == []


def test_code_cut_off_by_the_length_limit_is_unfinished():
    transcript = conversation(ASKED, "A: Solution: ```python\nimport pandas")
    assert detect(transcript, ["unfinished_code"]) == []
    cut = Message(1, "assistant", "Python Programmer", transcript.messages[1].content, finish="length")
    transcript.messages[1] = cut
    assert [f.index for f in detect(transcript, ["unfinished_code"])] == [1]


FOREIGN = {
    "Spanish": "La función abre el archivo y lee todas las filas. Después devuelve una tabla con los precios de cada día.",
    "French": "La fonction ouvre le fichier et lit toutes les lignes. Ensuite elle renvoie une table avec les prix de chaque jour.",
    "German": "Die Funktion öffnet die Datei und liest alle Zeilen. Danach gibt sie eine Tabelle mit den Preisen zurück.",
    "Italian": "La funzione apre il file e legge tutte le righe. Poi restituisce una tabella con i prezzi di ogni giorno.",
    "Portuguese": "A função abre o arquivo e lê todas as linhas. Depois ela devolve uma tabela com os preços de cada dia.",
    "Dutch": "De functie opent het bestand en leest alle regels. Daarna geeft ze een tabel met de prijzen van elke dag terug.",
    "Chinese": "这个函数打开文件并读取所有的行，然后返回一个包含每天价格的表。",
    "Japanese": "この関数はファイルを開いて、すべての行を読みます。",
    "Korean": "이 함수는 파일을 열고 모든 행을 읽습니다.",
    "Russian": "Функция открывает файл и читает все строки.",
    "Arabic": "تفتح الدالة الملف وتقرأ كل الصفوف ثم تعيد جدولا.",
    "Hindi": "यह फ़ंक्शन फ़ाइल खोलता है और सभी पंक्तियाँ पढ़ता है।",
}


@pytest.mark.parametrize("language", FOREIGN)
def test_another_language_is_drift_unless_it_was_asked_for(language: str):
    reply = f"a: {FOREIGN[language]}"
    (finding,) = detect(conversation(ASKED, reply), ["language_drift"])
    assert finding.index == 1
    assert language in finding.reason
    assert found("language_drift", f"{ASKED[:-1]} and explain it in {language}.", reply) == []
    assert found("language_drift", ASKED, reply, task=f"Teach {language} to traders") == []
    assert found("language_drift", reply.replace("a:", "U:"), reply, task=FOREIGN[language]) == []


@pytest.mark.parametrize("language", FOREIGN)
@pytest.mark.parametrize(
    ("task", "asked"), [("Bake bread", "u: Describe the oven."), ("Sing", "u: Name a song, please.")]
)
def test_a_short_task_does_not_hide_drift(task: str, asked: str, language: str):
    assert found("language_drift", asked, f"a: {FOREIGN[language]}", task=task) == [1]


def test_code_quotations_and_gibberish_are_no_drift():
    for reply in (
        'It says "la función abre el archivo y lee todas las filas de la tabla" on the first line of the file.',
        "```python\n# la función abre el archivo y lee todas las filas\nload('archivo')\n```",
        "Soli nuum trut dona stre mari dieu mili et sona or dalt ine diau mieb rale.",
        "Merci beaucoup!",
        "x = 3, y = 4, z = 5, a = b + c * d",
    ):
        assert found("language_drift", ASKED, f"a: {reply}") == []


def test_the_format_is_required_only_of_speakers_that_were_given_it():
    assert found("format_violation", "U: Load the prices.", "A: Done.", ASKED, "A: Solution: Done.") == [
        0,
        1,
        3,
    ]
    assert found("format_violation", "U: <CAMEL_TASK_DONE>", "A: Goodbye!") == []
    question = conversation("U: What is 6 times 7?", "A: 42.")
    question.speakers = [Speaker("user", "User"), Speaker("assistant", "Mathematician")]
    assert detect(question, ["format_violation"]) == []
    question.speakers = [Speaker("user", "User", "Ask."), Speaker("assistant", "Mathematician", "Answer.")]
    assert detect(question, ["format_violation"]) == []


def test_findings_come_in_the_order_of_the_messages_with_evidence_from_them():
    transcript = conversation(
        ASKED, "A: Sure, I’ll send you the code tomorrow.", ASKED, "A: I’m sorry, I can’t help with that."
    )
    findings = detect(transcript)
    assert [f.index for f in findings] == sorted(f.index for f in findings)
    for finding in findings:
        assert finding.evidence
        assert finding.evidence in transcript.messages[finding.index].content
        assert finding.version == DETECTORS[finding.detector].version
    assert "I’ll send you the code tomorrow" in {f.evidence for f in findings}


def test_an_unknown_detector_is_refused_in_one_line():
    with pytest.raises(InputError, match="role_flipping"):
        detect(conversation(ASKED), ["role_fliping"])


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [(replies._REFUSES, replies._IN_REFUSALS), (repeating._CHEER, repeating._IN_CHEERS)],
    ids=["refusal", "praise"],
)
@given(data=st.data())
def test_plain_search_lets_every_match_of_a_slow_pattern_pass(pattern, pieces, data):
    text = data.draw(st.from_regex(pattern, alphabet=st.characters(codec="ascii")))
    assert has_any(text, pieces)


@given(st.text(st.sampled_from("ab'Z9_ .-’\n\x1cé\u212a"), max_size=20))
def test_words_are_those_of_the_pattern(text):
    assert words(text) == tuple(_WORD.findall(text.lower().replace("’", "'")))
