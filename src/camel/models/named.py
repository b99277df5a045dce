"""A model under another name, with its own price and version."""

from __future__ import annotations

from camel.core.model import Model, Price, Reply, Request, WrappedModel


class NamedModel(WrappedModel):
    """A model with its own name, price and version for reports, independent of its endpoint."""

    def __init__(self, model: Model, name: str, price: Price | None = None, version: str = "") -> None:
        """`version` distinguishes models of the same name, such as retrained weights."""
        super().__init__(model)
        self.name, self.price, self.version = name, price, version

    async def reply(self, request: Request) -> Reply:
        """Call the model."""
        return await self.inner.reply(request)
