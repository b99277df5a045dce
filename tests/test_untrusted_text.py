"""Whatever a model says is read in time that grows with its length: texts that repeat one thing endlessly, as looping models do."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from camel.core.grammar import parse
from camel.core.judge import read_choice, read_comparison, read_ruling, read_scores
from camel.core.lists import parse_list
from camel.core.message import Message
from camel.core.planner import read_roles
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.detectors import detect
from camel.formats.original import pairs

LONG = 20_000
LIMIT = 2.0
"""Seconds of CPU for a long text; what is quadratic takes more, what is linear a tenth of it."""

UNITS = (
    *(
        " ",
        "\t",
        "\n",
        " \n",
        "a",
        "a ",
        "1",
        "1. ",
        "é",
        "# ",
        "...",
        "*",
        "_",
        "`",
        "```\n",
        "'",
        '"',
        '"""',
        "“",
        "„",
    ),
    *(
        "\\",
        "-",
        "--",
        "|",
        "<",
        "<a ",
        "/*",
        "//",
        "=",
        ":",
        ";",
        ", ",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "()",
        "$",
        "%",
        "&",
    ),
    *(
        "\n- ",
        "\n1. ",
        "a, ",
        "x=1\n",
        "I ",
        "but ",
        "do ",
        "as an AI ",
        "I cannot help ",
        "thank you ",
        "Instruction: ",
        "Solution: ",
    ),
    *(
        "Next request. ",
        "def f(",
        "def f():\n",
        "): {",
        "<CAMEL_TASK_DONE>",
        '{"score": ',
        "Option 1 ",
        "yes ",
        "here: ",
        "I will ",
    ),
)
BEGINNINGS = (
    *("", "a", "#", "(", "[", "{", "<", '"', "1. ", "- ", "|", "$", "**", "„", "Solution: ", "Instruction: "),
    *("```python\n", "```python\n#", "```python\ndef f(a):", "```js\n", "```js\nf() {/*", "```js\n'"),
)

PAIRS = list(itertools.product(BEGINNINGS, UNITS))


def _found(text: str) -> None:
    messages = [
        Message(0, "user", "Trader", "Instruction: Write the function that loads the prices.\nInput: None"),
        Message(1, "assistant", "Programmer", text),
        Message(2, "user", "Trader", text),
        Message(3, "assistant", "Programmer", f"Solution: {text}\nNext request."),
    ]
    transcript = Transcript("t", Task("Develop a trading bot"), messages=messages)
    detect(transcript)
    list(pairs(transcript))


READERS: dict[str, Callable[[str], Any]] = {
    "grammar": parse,
    "lists": parse_list,
    "names": lambda text: parse_list(text, names=True),
    "choices": lambda text: read_choice(text, 3),
    "scores": lambda text: read_scores(text, 3),
    "rulings": lambda text: read_ruling(text, 3),
    "comparisons": read_comparison,
    "roles": read_roles,
    "detectors": _found,
}


@pytest.fixture
def _interrupted() -> Iterator[None]:
    """Patterns look for signals while they search."""

    def stop(number: int, frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    yield
    signal.signal(signal.SIGVTALRM, before)


def took(read: Callable[[str], Any], text: str) -> float:
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * LIMIT)
    try:
        read(text)
    except TimeoutError:
        return 2 * LIMIT
    except Exception:
        pass  # that it is refused is not what is asked here
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.process_time() - begin


def slow_texts(read: Callable[[str], Any], pairs: Sequence[tuple[str, str]], size: int) -> list[str]:
    """What takes too long. A long text is tried only where a short one takes as long as one that is quadratic."""
    suspect, slow = LIMIT * (size / LONG) ** 2, list[str]()
    for beginning, unit in pairs:
        short, long = (f"{beginning}{unit * (length // len(unit))}\0" for length in (size, LONG))
        if took(read, short) <= suspect or took(read, short) <= suspect:
            continue
        if (seconds := took(read, long)) > LIMIT:
            slow.append(f"{seconds:.1f} s for {beginning!r} and {unit!r} repeated")
    return slow


@pytest.mark.usefixtures("_interrupted")
@pytest.mark.parametrize("name", [name for name in READERS if name != "detectors"])
def test_no_text_is_slow_to_read(name: str):
    assert slow_texts(READERS[name], PAIRS, 1_000) == []


@pytest.mark.slow
@pytest.mark.usefixtures("_interrupted")
def test_no_text_is_slow_for_detectors():
    # Of each unit and of each beginning a third.
    assert slow_texts(READERS["detectors"], PAIRS[::3], 2_000) == []


@pytest.mark.thorough
@pytest.mark.usefixtures("_interrupted")
@pytest.mark.parametrize("name", READERS)
def test_no_text_at_all_is_slow_to_read(name: str):
    assert slow_texts(READERS[name], PAIRS, 2_000) == []
