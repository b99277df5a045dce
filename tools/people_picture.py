#!/usr/bin/env python3
"""Take the picture of docs/people.md: `python tools/people_picture.py | tools/picture "camel play --human user --human critic" > docs/images/people.svg`.

A real `camel play` on a pseudo-terminal, against the simulated endpoint with an author that says something to the point.
"""

import os
import sys
import tempfile
from itertools import groupby
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

ANSWERS = (
    "Solution: Basil, chives and cherry tomatoes: all three thrive in pots, and six hours of sun are enough.\nNext request.",
    "Solution: Strawberries in the railing boxes, mint in a pot of its own, since it crowds out its neighbors, "
    "and nasturtiums, which feed the bees.\nNext request.",
    "Solution: Any plants you like.\nNext request.",
)
COLORS = {"cyan": 36, "green": 32, "brown": 33, "magenta": 35, "brightblack": 90}


def speak(facts):
    """An author: one of the answers, another for each proposal."""
    return ANSWERS[facts.draw % len(ANSWERS)]


def ansi(row, columns):
    """A row of the emulator's screen with its colors."""
    line = ""
    for style, chars in groupby((row[at] for at in range(columns)), lambda char: (char.fg, char.bold)):
        codes = [*([str(COLORS[style[0]])] if style[0] in COLORS else []), *(["1"] if style[1] else [])]
        text = "".join(char.data for char in chars)
        line += f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes else text
    return line.rstrip()


def main():
    """Play, and print what the terminal shows."""
    from camel.models.simulator import SimulatorSettings, spawn
    from tests.support.terminal import ENTER, Terminal

    with (
        tempfile.TemporaryDirectory() as folder,
        spawn(
            SimulatorSettings(author="people_picture:speak", seed=int(os.environ.get("SEED", "5")))
        ) as endpoint,
    ):
        command = ["play", "--base-url", endpoint.base_url, "--no-specify"]
        command += ["--assistant", "Gardener", "--user", "Beekeeper", "--task", "Plan a balcony garden"]
        command += ["--human", "user", "--human", "critic"]
        with Terminal(command, Path(folder), {**os.environ, "XDG_STATE_HOME": folder}, 100, 60) as terminal:
            terminal.prompt()
            terminal.type("Name three plants for a balcony that faces south." + ENTER)
            terminal.prompt("› 1–3")
            terminal.type("2 say how much water each needs")
            terminal.prompt("› 2 say")
            screen = terminal._screen
            rows = [ansi(screen.buffer[y], screen.columns) for y in range(screen.lines)]
    while not rows[-1]:
        rows.pop()
    sys.stdout.write("\n".join(rows) + "█\n")


if __name__ == "__main__":
    main()
