"""A detector: a pure function of a transcript that gives hits, with a name, a version and a question for a judge."""

from collections.abc import Iterator

from camel import Transcript
from camel.detectors import Detector, Hit

LEAST = 12
"""Letters from which on a message can shout; shorter ones are acronyms."""


def shouting(transcript: Transcript) -> Iterator[Hit]:
    """Messages in which most letters are capitals."""
    for index, message in enumerate(transcript.messages):
        letters = [letter for letter in message.content if letter.isalpha()]
        loud = sum(letter.isupper() for letter in letters)
        if len(letters) >= LEAST and loud > len(letters) / 2:
            yield Hit(index, f"{loud} of {len(letters)} letters are capitals")


SHOUTING = Detector("shouting", 1, "Shouting", "Is most of that message in capital letters?", shouting)
