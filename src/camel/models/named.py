"""A model under another name, with its own price and version."""

from __future__ import annotations

from camel.core.model import Model, Price, Reply, Request, WrappedModel


class NamedModel(WrappedModel):
    """A model as reports show it: with a name, a price and a version that its endpoint need not know."""

    def __init__(self, model: Model, name: str, price: Price | None = None, version: str = "") -> None:
        """`version` distinguishes models of one name, such as weights that were trained again."""
        super().__init__(model)
        self.name, self.price, self.version = name, price, version

    async def reply(self, request: Request) -> Reply:
        """Ask it."""
        return await self.inner.reply(request)
