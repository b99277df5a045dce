"""What a failed call means: for its item, for the calls of others, and for the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from camel.core.errors import (
    ContentRejected,
    ContextOverflow,
    DeadlineExceeded,
    EmptyReply,
    MalformedReply,
    ModelError,
    NotAuthorized,
    QuotaExhausted,
    RateLimited,
    RequestRejected,
    ServerFailed,
    Unreachable,
)
from camel.core.history import History
from camel.core.message import Sampling
from camel.core.model import Choice, Reply, Request
from camel.engine.halt import Halt, Halted, Unfinished
from camel.engine.site import ModelReport, StageReport, WorkerReport
from camel.jobs.failures import (
    IN_A_ROW,
    NEVER_ANSWERED,
    PLAIN,
    ClusterFailures,
    Failures,
    class_of,
    failure_of,
)
from tests.support.virtual_time import virtual_time

GOOD = Reply((Choice("fine"),))
REJECTED = RequestRejected("HTTP 404: no such model", status=404)


def request(text: str = "hello", n: int = 1) -> Request:
    history = History()
    history.add("user", text)
    return Request(history, Sampling(n=n, temperature=0.2, max_tokens=500))


class Endpoint:
    """Answers as `says` decides, from the text and the time; counts what it was asked."""

    def __init__(self, says: Callable[[str, float], ModelError | None]) -> None:
        self.says, self.asked = says, []
        self.halt = Halt()
        self.told: list[str] = []
        self.failures = Failures(self.halt, tell=lambda event, text, **fields: self.told.append(text))

    async def send(self, request: Request) -> Reply:
        text = request.history.messages[-1]["content"] if hasattr(request.history, "messages") else ""
        text = text or request.history.encoded().decode()
        self.asked.append(text)
        await asyncio.sleep(0.1)
        if error := self.says(text, asyncio.get_running_loop().time()):
            raise error
        return GOOD

    async def ask(self, text: str = "hello", n: int = 1) -> Reply:
        return await self.failures.handled(self.send, request(text, n))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ContextOverflow("", status=400), "item"),
        (ContentRejected("", status=403), "item"),
        (EmptyReply(""), "item"),
        (RequestRejected("", status=400), "unclear"),
        (RequestRejected("", status=422), "unclear"),
        (RequestRejected("", status=404), "rejection"),
        (NotAuthorized("", status=401), "rejection"),
        (QuotaExhausted("", status=402), "rejection"),
        (Unreachable(""), "outage"),
        (ServerFailed("", status=500), "outage"),
        (MalformedReply(""), "outage"),
        (RateLimited(""), "outage"),
        (DeadlineExceeded(""), "outage"),
    ],
)
def test_every_error_has_a_class(error: ModelError, kind: str):
    assert class_of(error) == kind


@virtual_time
async def test_the_failure_of_an_item_concerns_nobody_else():
    endpoint = Endpoint(lambda text, now: ContentRejected("flagged", status=403) if "bad" in text else None)
    for _ in range(4 * IN_A_ROW):
        with pytest.raises(ContentRejected):
            await endpoint.ask("bad")
    assert await endpoint.ask() is GOOD
    assert not endpoint.halt.reason


@virtual_time
async def test_calls_without_a_connection_are_counted_one_after_the_other():
    """Calls that fail together count once, and any answer starts from zero."""
    answers: ModelError | None = Unreachable("refused")
    endpoint = Endpoint(lambda text, now: answers)
    endpoint.failures.shared = True
    calls = [asyncio.ensure_future(endpoint.ask()) for _ in range(8)]
    seen: set[int] = set()
    while len(seen) < 4:
        await asyncio.sleep(0.01)
        seen.add(endpoint.failures.unreached)
    assert seen == {0, 1, 2, 3}
    answers = ServerFailed("busy", status=503)
    while endpoint.failures.unreached:  # noqa: ASYNC110 - a count is not an event
        await asyncio.sleep(0.01)
    answers = None
    await asyncio.gather(*calls)
    assert endpoint.failures.unreached == 0


@virtual_time
async def test_rejections_in_a_row_halt_with_the_words_of_the_endpoint():
    endpoint = Endpoint(lambda text, now: REJECTED)
    for count in range(IN_A_ROW):
        assert not endpoint.halt.reason, count
        with pytest.raises(RequestRejected):
            await endpoint.ask()
    assert "no such model" in endpoint.halt.reason
    with pytest.raises(Halted):
        await endpoint.ask()
    assert len(endpoint.asked) == IN_A_ROW


@virtual_time
async def test_a_success_between_rejections_means_that_the_endpoint_serves():
    endpoint = Endpoint(lambda text, now: REJECTED if "bad" in text else None)
    for _ in range(3):
        for _ in range(IN_A_ROW - 1):
            with pytest.raises(RequestRejected):
                await endpoint.ask("bad")
        await endpoint.ask()
    assert not endpoint.halt.reason


@virtual_time
async def test_fewer_items_than_that_all_rejected():
    endpoint = Endpoint(lambda text, now: REJECTED)
    with pytest.raises(RequestRejected):
        await endpoint.ask()
    assert "no such model" in endpoint.failures.all_rejected()


@virtual_time
async def test_an_unknown_400_is_the_items_if_a_plain_request_is_served():
    endpoint = Endpoint(
        lambda text, now: None if PLAIN in text else RequestRejected("HTTP 400: odd", status=400)
    )
    for _ in range(2 * IN_A_ROW):
        with pytest.raises(ContentRejected, match="odd"):
            await endpoint.ask("strange")
    assert not endpoint.halt.reason
    assert not endpoint.failures.all_rejected()


@virtual_time
async def test_an_unknown_400_for_everything_is_a_rejection():
    endpoint = Endpoint(
        lambda text, now: RequestRejected("HTTP 400: temperature is not supported", status=400)
    )
    outcomes = await asyncio.gather(*(endpoint.ask() for _ in range(IN_A_ROW)), return_exceptions=True)
    assert {type(one) for one in outcomes} == {RequestRejected}
    assert "temperature" in endpoint.halt.reason
    assert sum(PLAIN in text for text in endpoint.asked) == 1, "one question is enough for all who wait"


@virtual_time
async def test_an_endpoint_that_refuses_several_choices_is_no_rejection():
    endpoint = Endpoint(lambda text, now: RequestRejected("HTTP 400: n", status=400))
    for _ in range(IN_A_ROW):
        with pytest.raises(RequestRejected):
            await endpoint.ask(n=3)
    assert not endpoint.halt.reason
    assert not any(PLAIN in text for text in endpoint.asked)


@virtual_time
async def test_calls_wait_for_the_end_of_an_outage_and_are_sent_once_more():
    begin = asyncio.get_running_loop().time()
    endpoint = Endpoint(lambda text, now: ServerFailed("down") if 10 < now - begin < 190 else None)
    await endpoint.ask()
    await asyncio.sleep(10)
    replies = await asyncio.gather(*(endpoint.ask(f"call {number}") for number in range(20)))
    assert replies == [GOOD] * 20
    waited = asyncio.get_running_loop().time() - begin
    assert 190 <= waited < 190 + 35
    real = [text for text in endpoint.asked if PLAIN not in text]
    assert len(real) <= 1 + 2 * 20, "each call failed once and was served once"
    assert sum(PLAIN in text for text in endpoint.asked) < 20
    assert len(endpoint.told) == 2
    assert not endpoint.halt.reason


@virtual_time
async def test_an_outage_that_is_too_long_halts():
    endpoint = Endpoint(lambda text, now: ServerFailed("down"))
    outcomes = await asyncio.gather(*(endpoint.ask() for _ in range(8)), return_exceptions=True)
    assert {type(one) for one in outcomes} == {Halted}
    assert "down" in endpoint.halt.reason


@virtual_time
async def test_an_address_where_nobody_is_halts_within_a_minute():
    begin = asyncio.get_running_loop().time()
    endpoint = Endpoint(lambda text, now: Unreachable("refused"))
    with pytest.raises(Halted):
        await endpoint.ask()
    assert asyncio.get_running_loop().time() - begin < 60
    assert "OPENAI_BASE_URL" in endpoint.halt.reason


@virtual_time
async def test_an_endpoint_that_was_there_is_waited_for():
    begin = asyncio.get_running_loop().time()
    endpoint = Endpoint(lambda text, now: Unreachable("refused") if now - begin > 1 else None)
    await endpoint.ask()
    await asyncio.sleep(1)
    with pytest.raises(Halted):
        await endpoint.ask()
    assert asyncio.get_running_loop().time() - begin > 1800


@virtual_time
async def test_a_request_that_breaks_the_server_is_the_items():
    """Others are served: it is given up for now, and the run continues."""
    endpoint = Endpoint(lambda text, now: ServerFailed("crashed") if "poison" in text else None)
    with pytest.raises(ServerFailed):
        await endpoint.ask("poison")
    assert await endpoint.ask() is GOOD
    assert not endpoint.halt.reason


@virtual_time
async def test_a_stop_ends_the_wait():
    endpoint = Endpoint(lambda text, now: ServerFailed("down"))
    waiting = asyncio.create_task(endpoint.ask())
    await asyncio.sleep(5)
    endpoint.halt.set("stopped by you")
    with pytest.raises(Halted, match="stopped by you"):
        await waiting


@virtual_time
async def test_a_worker_of_a_cluster_halts_nothing_and_waits():
    begin = asyncio.get_running_loop().time()
    endpoint = Endpoint(
        lambda text, now: NotAuthorized("HTTP 401", status=401) if now - begin < 100 else None
    )
    endpoint.failures.shared = True
    rejected = 0
    while True:
        try:
            await endpoint.ask()
            break
        except NotAuthorized:
            rejected += 1
    assert not endpoint.halt.reason
    assert rejected < 30, "it waits between two tries"
    assert endpoint.failures.rejected == rejected


@pytest.mark.parametrize(
    ("error", "last", "kept"),
    [
        (ContextOverflow("long"), False, True),
        (ServerFailed("down"), False, False),
        (ServerFailed("down"), True, True),
        (REJECTED, False, False),
    ],
)
def test_which_failures_become_records(error: ModelError, last: bool, kept: bool):
    if kept:
        assert failure_of(error, Halt(), last=last) == f"{type(error).__name__}: {error}"
    else:
        with pytest.raises(Unfinished):
            failure_of(error, Halt(), last=last)
    halted = Halt()
    halted.set("stopped")
    with pytest.raises(Unfinished):
        failure_of(error, halted, last=last)


def report(
    served: int = 0, rejected: int = 0, down: float = 0, words: str = "", answered: bool = True
) -> WorkerReport:
    told = ModelReport(served=served, rejected=rejected, answered=answered, down=down, words=words)
    return WorkerReport({"simulated": told})


def test_rejections_of_one_worker_do_not_halt_while_others_are_served():
    failures = ClusterFailures()
    for tick in range(100):
        reports = {"a": report(served=tick), "b": report(rejected=2 * tick, words="401")}
        assert failures(reports, ["a", "b"]) == "", tick


def test_rejections_of_all_workers_together_halt():
    failures = ClusterFailures()
    live = ["a", "b", "c"]
    assert failures({name: report(served=10) for name in live}, live) == ""
    assert failures({name: report(10, 1, words="401: revoked") for name in live}, live) == ""
    assert "revoked" in failures({name: report(10, 2, words="401: revoked") for name in live}, live)


def test_an_outage_of_one_worker_is_its_own():
    failures = ClusterFailures(1800)
    down = report(5, down=4000, words="down")
    assert failures({"a": report(5), "b": down}, ["a", "b"]) == ""
    assert "down" in failures({"a": down, "b": down}, ["a", "b"])
    assert failures({"a": report(5, down=1799), "b": down}, ["a", "b"]) == ""


def test_who_has_nothing_to_do_does_not_hide_an_outage():
    down = msgspec.structs.replace(report(5, down=4000, words="down"), stages={"s": StageReport(open=3)})
    idle = msgspec.structs.replace(report(5), stages={"s": StageReport()})
    assert "down" in ClusterFailures(1800)({"a": idle, "b": down}, ["a", "b"])
    assert ClusterFailures(1800)({"a": idle, "b": idle}, ["a", "b"]) == ""


def test_a_cluster_whose_endpoint_was_never_reached_stops_early():
    failures = ClusterFailures(1800)
    silent = report(down=NEVER_ANSWERED, words="refused", answered=False)
    assert "refused" in failures({"a": silent}, ["a"])
    assert failures({}, []) == ""


def test_a_model_that_serves_nobody_halts_the_run_though_another_serves():
    failures, live = ClusterFailures(1800), ["a", "b"]

    def reports(served: int, rejected: int = 0, down: float = 0) -> dict[str, WorkerReport]:
        bad = ModelReport(served=2, rejected=rejected, answered=True, down=down, words="of the bad one")
        models = {"good": ModelReport(served=served, answered=True), "bad": bad}
        return dict.fromkeys(live, WorkerReport(models))

    assert failures(reports(10), live) == ""
    assert failures(reports(20, rejected=2), live) == ""
    assert "of the bad one" in failures(reports(30, rejected=3), live)
    assert "of the bad one" in ClusterFailures(1800)(reports(10, down=2000), live)
