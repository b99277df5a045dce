"""Forms, as browsers send them: small, or not read at all."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

MAX_FORM = 10_000
"""Bytes of a form that is read, unless more is expected."""
_MOST_FIELDS = 20


async def read_form(request: Request, most: int = MAX_FORM) -> dict[str, str]:
    """The fields of a form; none where it is larger than expected."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            return {}
    if data.count(b"&") >= _MOST_FIELDS:
        return {}
    return dict(parse_qsl(data.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS))
