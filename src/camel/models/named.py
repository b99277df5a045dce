"""A model under a name and at a price of somebody's own."""

from __future__ import annotations

from camel.core.model import Model, Price, Reply, Request, WrappedModel


class NamedModel(WrappedModel):
    """A model as it is reported: by a name, a price and a version that its endpoint need not know."""

    def __init__(self, model: Model, name: str, price: Price | None = None, version: str = "") -> None:
        """`version` tells it from another of the same name: weights that were trained here may be trained again."""
        super().__init__(model)
        self.name, self.price, self.version = name, price, version

    async def reply(self, request: Request) -> Reply:
        """Ask it."""
        return await self.inner.reply(request)
