"""A short conversation with everything that formats write, and a release that may write it."""

from __future__ import annotations

from typing import Any

from camel.core.message import Deliberation, Message, Proposal, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.record.release import Release

GUID = "26b5c67b-86e6-4c63-9a38-1f2b4d0c7f11"
RELEASE = Release(acknowledge=True, canary=GUID)


CHOSEN = Deliberation("m-1", (Proposal("Solution: No."), Proposal("Solution: Done.")), 1, "it is done")


def talk(id: str = "001_002_003", said: list[str] | None = None, **changes: Any) -> Transcript:
    if said is None:
        said = [
            "Instruction: Set up the project.\nInput: None",
            "Solution: Done, with poetry.\n\nNext request.",
            "Well done!\n\nInstruction: Fetch prices.\nInput: AAPL, MSFT",
            'Solution: I call `fetch("AAPL")`.\n\nNext request.',
            "<CAMEL_TASK_DONE>",
        ]
    seats = {"user": "Stock Trader", "assistant": "Python Programmer"}
    spoken = [("assistant" if index % 2 else "user", content) for index, content in enumerate(said)]
    fields: dict[str, Any] = {
        "id": id,
        "task": Task("Trade.", "Trade well, in Python."),
        "speakers": [
            Speaker("user", seats["user"], "You are the user.", "Begin."),
            Speaker("assistant", seats["assistant"], "You are the assistant."),
        ],
        "messages": [
            Message(
                index,
                name,
                seats[name],
                content,
                "m-1",
                usage=Usage(10, 5, 2, 1),
                deliberation=CHOSEN if name == "assistant" else None,
            )
            for index, (name, content) in enumerate(spoken)
        ],
        "stop": Stop("done", "the user said so", "user"),
        "scenario": "ai_society",
        "fingerprint": "abc",
    }
    return Transcript(**{**fields, **changes})
