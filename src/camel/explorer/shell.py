"""What the web apps of this folder have in common: templates, style sheet, small forms, links that stay here."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request

from camel.explorer.markup import as_html, as_plain

HERE = Path(__file__).parent
STATIC = HERE / "static"
MAX_FORM = 10_000
"""Bytes of a form that is read."""


def templates(frame: str = "base.html", **values: Any) -> Environment:
    """The pages, which know `values`; `frame` is the page around those that several apps have."""
    pages = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shared: dict[str, Any] = pages.globals  # pyright: ignore[reportAssignmentType] - it names only its own
    shared.update(html=as_html, plain=as_plain, frame=frame, **values)
    return pages


def local(target: str) -> str:
    """A path of our own to go to; the first page where it is anything else."""
    own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if own and len(target) < 4_000 else "/"


async def read_form(request: Request) -> dict[str, str]:
    """A small form, as browsers send it."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_FORM:
            return {}
    return (
        dict(parse_qsl(data.decode("utf-8", "replace"), max_num_fields=20)) if data.count(b"&") < 20 else {}
    )
