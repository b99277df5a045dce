"""Batch APIs: many requests in one submission, answered within a day at a discount.

Supports two APIs: OpenAI's files and batches, which others copy, and Anthropic's message batches. The one decision to
know: this module retries nothing and stores nothing. The caller (`camel.jobs.batched`) keeps track of submissions and
decides what to do about a lost answer.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncGenerator, Collection, Mapping
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from camel.core.errors import MalformedReply, ModelError, ReplyTooLarge, ServerFailed
from camel.core.model import Reply
from camel.models.chat import ChatModel
from camel.models.protocol import check_nested
from camel.models.wire import cleaned, excerpt, failure, field_of, load_loosely, one_line, status_in

CLOCKS = 3600.0
"""Maximum difference in seconds between a provider's clock and ours."""
_MOST_LINE = 16 * 2**20
_Id = Annotated[str, msgspec.Meta(pattern=r"^[\w.:-]{1,200}$")]  # used in a URL path
_encode = msgspec.json.Encoder().encode


class ProviderBatch(msgspec.Struct):
    """A batch, or a file, as either API describes it.

    The fields after `errors` are derived: how many requests have ended, whether all have, the paths of their results, and
    why the provider rejected the whole batch (which costs nothing).
    """

    id: _Id
    status: str = ""
    processing_status: str = ""
    created_at: int | datetime = 0
    request_counts: dict[str, int] | None = None
    metadata: dict[str, str] | None = None
    output_file_id: _Id | None = None
    error_file_id: _Id | None = None
    errors: Any = None
    done: int = 0
    ended: bool = False
    results: tuple[str, ...] = ()
    refused: str = ""


class _Page(msgspec.Struct):
    data: list[ProviderBatch] = []
    has_more: bool = False


class BatchApi:
    """OpenAI's API: a file of requests, a batch of it, files of results."""

    path, cursor = "/batches", "after"
    """The path of batches, and the query parameter that requests further pages of their list."""

    def __init__(self, chat: ChatModel) -> None:
        self._chat, self._wire = chat, chat.wire

    async def upload(self, lines: Mapping[str, bytes]) -> str:
        """Upload the requests and return an id for `create`. Nothing is paid yet, so most failures cost nothing."""
        import aiohttp

        line = b'{"custom_id":"%s","method":"POST","url":"/v1' + self._wire.path.encode() + b'","body":%s}\n'
        data = io.BytesIO(b"".join(line % (id.encode(), body) for id, body in lines.items()))
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", data, filename="batch.jsonl", content_type="application/jsonl")
        return (await self._ask(ProviderBatch, "POST", "/files", form)).id

    async def create(self, lines: Mapping[str, bytes], uploaded: str, key: str) -> str:
        """Submit a batch and return its id. After any error except a clear rejection, the batch may exist nevertheless."""
        asked = {"input_file_id": uploaded, "endpoint": f"/v1{self._wire.path}", "completion_window": "24h"}
        body = _encode({**asked, "metadata": {"camel": key}})
        return (await self._ask(ProviderBatch, "POST", self.path, body)).id

    async def look(self, id: str) -> ProviderBatch:
        """Return the state of a batch."""
        return self._read(await self._ask(ProviderBatch, "GET", f"{self.path}/{quote(id, safe='')}"))

    async def find(self, key: str, made: float, ids: Collection[str]) -> str | None:
        """Return the id of a batch that was submitted earlier. Returns an empty string if there is none, and None if the
        provider does not show it yet."""
        missing, page, after = "", _Page(has_more=True), ""
        while page.has_more:
            page = await self._ask(_Page, "GET", f"{self.path}?limit=100{after}")
            for batch in page.data:  # newest first
                when = batch.created_at
                if (when if isinstance(when, int) else when.timestamp()) < made - CLOCKS:
                    return missing
                if found := await self._is(self._read(batch), key, ids):
                    return batch.id
                missing, after = None if found is None else missing, f"&{self.cursor}={batch.id}"
            page.has_more = page.has_more and bool(page.data)
        return missing

    async def results(self, batch: ProviderBatch) -> AsyncGenerator[tuple[str, Reply | ModelError]]:
        """Yield the id and the outcome of each request in a finished batch."""
        for path in batch.results:
            async for line in self._lines(path):
                found = load_loosely(line)
                if not isinstance(id := field_of(found, "custom_id"), str):
                    continue
                try:
                    outcome = self._outcome(found)
                    yield id, self._chat.redacted(outcome) if isinstance(outcome, Reply) else outcome
                except ModelError as error:
                    yield id, error

    async def _is(self, batch: ProviderBatch, key: str, ids: Collection[str]) -> bool | None:
        return (batch.metadata or {}).get("camel") == key

    def _read(self, batch: ProviderBatch) -> ProviderBatch:
        counts, files = batch.request_counts or {}, (batch.output_file_id, batch.error_file_id)
        batch.done = counts.get("completed", 0) + counts.get("failed", 0)
        batch.ended = batch.status in ("completed", "failed", "expired", "cancelled")
        batch.results = tuple(f"/files/{name}/content" for name in files if name)
        why = one_line(str(field_of(batch.errors, "data") or "no reason given"))
        batch.refused = why if batch.status == "failed" else ""
        return batch

    def _outcome(self, line: Any) -> Reply | ModelError:
        response = field_of(line, "response")
        body, status = _encode(cleaned(field_of(response, "body"))), field_of(response, "status_code")
        if not isinstance(status, int):
            return _failure(field_of(line, "error"))
        return self._wire.read(body) if 200 <= status < 300 else failure(status, body, {})

    async def _ask(self, kind: type[Any], method: str, path: str, data: Any = None) -> Any:
        body = b"".join([part async for part in self._chat.exchange(method, path, data)])
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise MalformedReply(f"unexpected reply from {path.partition('?')[0]}: {excerpt(body)}") from None

    async def _lines(self, path: str) -> AsyncGenerator[bytes]:
        rest = b""
        async for part in self._chat.exchange("GET", path):
            *whole, rest = (rest + part).split(b"\n")
            if len(rest) > _MOST_LINE:
                raise ReplyTooLarge(f"a line of '{path}' exceeds {_MOST_LINE:,} bytes")
            for line in whole:
                check_nested(line.count(b"{") + line.count(b"["))
                yield line
        yield rest


class MessageBatches(BatchApi):
    """Anthropic's message batches, which have no files and no metadata."""

    path, cursor = "/messages/batches", "after_id"

    async def upload(self, lines: Mapping[str, bytes]) -> str:
        """Check that the endpoint answers and accepts the key. Nothing is uploaded."""
        await self._ask(_Page, "GET", f"{self.path}?limit=1")
        return ""

    async def create(self, lines: Mapping[str, bytes], uploaded: str, key: str) -> str:
        """Submit the requests."""
        each = (b'{"custom_id":"%s","params":%s}' % (id.encode(), body) for id, body in lines.items())
        data = io.BytesIO(b'{"requests":[' + b",".join(each) + b"]}")
        return (await self._ask(ProviderBatch, "POST", self.path, data)).id

    async def _is(self, batch: ProviderBatch, key: str, ids: Collection[str]) -> bool | None:
        if sum((batch.request_counts or {}).values()) != len(ids):
            return False
        if not batch.ended:
            return None
        async with contextlib.aclosing(self.results(batch)) as results:
            return (await anext(results, ("", None)))[0] in ids

    def _read(self, batch: ProviderBatch) -> ProviderBatch:
        counts = batch.request_counts or {}
        batch.done = sum(counts.values()) - counts.get("processing", 0)
        batch.ended = batch.processing_status == "ended"
        # Do not use the URL in the answer: it could send the key elsewhere.
        batch.results = (f"{self.path}/{batch.id}/results",)
        return batch

    def _outcome(self, line: Any) -> Reply | ModelError:
        result = field_of(line, "result")
        kind = field_of(result, "type")
        if kind == "succeeded":
            return self._wire.read(_encode(cleaned(field_of(result, "message"))))
        if kind == "errored":
            return _failure(field_of(result, "error"))
        return ServerFailed(f"the request was not answered: {one_line(str(kind))}")


def _failure(error: Any) -> ModelError:
    """Return the error for a line of the results that has no HTTP status."""
    return failure(status_in(field_of(error, "error") or error), _encode(cleaned(error)), {})


def batch_api(chat: ChatModel) -> BatchApi:
    """Return the batch API for a client's protocol."""
    return (MessageBatches if chat.wire.path.endswith("/messages") else BatchApi)(chat)
