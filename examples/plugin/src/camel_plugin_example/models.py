"""A model: made with what stands behind the colon of its name; answers a request, or raises a `ModelError`."""

from camel import Choice, Reply, Request, Usage
from camel.core.model import Model


class Parrot(Model):
    """Says what it is named after, in the format of whoever's turn it is. Where yours would call an API of its own."""

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
