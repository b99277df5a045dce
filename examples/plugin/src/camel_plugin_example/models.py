"""A model: created with the text after the colon in its name; answers a request, or raises a `ModelError`."""

from camel import Choice, Reply, Request, Usage
from camel.core.model import Model


class Parrot(Model):
    """Repeats its name in the format of the current speaker. Your own model would call its API here."""

    context_tokens = 100_000

    def __init__(self, name: str) -> None:
        self.name = name

    async def reply(self, request: Request) -> Reply:
        """Answer at once."""
        said = {
            "instruction": f"Instruction: Say {self.name} once more.\nInput: None",
            "solution": f"Solution: {self.name}.\nNext request.",
        }.get(request.expects or "", f"1. {self.name}\n2. {self.name} again")
        return Reply(
            (Choice(said),), Usage(calls=1, prompt=request.history.tokens, completion=len(said) // 4)
        )
