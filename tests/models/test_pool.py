"""The pool: who goes where, who moves when, and who waits for whom. Faults are witnessed by the endpoints' own ledgers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import socket
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import ChatModel, InputError, Request, Usage
from camel.core.errors import (
    DeadlineExceeded,
    ModelError,
    RateLimited,
    RequestRejected,
    ServerFailed,
    Unreachable,
)
from camel.core.history import History
from camel.models import placement
from camel.models.discovery import DnsName, Given, Listed, find_replicas
from camel.models.governor import Rates, Share
from camel.models.placement import IDLE
from camel.models.pool import Pool
from camel.models.replica import FAILURES, LONGEST_PAUSE, PAUSE, PoolSettings, Slot, Waiter
from camel.models.sharing import PoolShare
from camel.models.simulator import Constant, LedgerRow, Simulator, SimulatorSettings, read_rows
from tests.support.failing import NO_MODEL
from tests.support.moody import moody_here
from tests.support.virtual_time import virtual_time

URLS = [f"http://replica-{number}:8000/v1" for number in range(4)]
HISTORY = History("S")
USAGE = Usage(10, 5, 0, 1)


def _request(session: str = "", speaker: str = "user") -> Request:
    return Request(HISTORY, session=session, speaker=speaker)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def _pool(urls: list[str] = URLS, clock: Clock | None = None, **options: Any) -> Pool:
    return Pool(Given(urls), PoolSettings(**options), clock=clock or Clock())


def _call(pool: Pool, session: str, usage: Usage = USAGE, speaker: str = "user") -> str:
    """One call that is served; says where."""
    slot = pool.take(_request(session), b"")
    assert slot is not None
    pool.served(slot, usage, speaker)
    return slot.replica.url


def _fail(pool: Pool, session: str, error: ModelError | None = None, **how: Any) -> str:
    slot = pool.take(_request(session), b"")
    assert slot is not None
    pool.failed(slot, error or Unreachable("connection refused"), **how)
    return slot.replica.url


# --- choice ----------------------------------------------------------------------------------------------------------


@given(
    sessions=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=200, unique=True),
    replicas=st.integers(1, 9),
    load=st.sampled_from([1.0, 1.25, 2.0]),
)
def test_load_is_bounded(sessions: list[str], replicas: int, load: float):
    urls = [f"http://r{number}/v1" for number in range(replicas)]
    its = _pool(urls, load=load)
    for count, session in enumerate(sessions, 1):
        _call(its, session)
        assert max(state.open for state in its.states()) <= math.ceil(load * count / replicas)
    assert sum(state.open for state in its.states()) == len(sessions)


def test_another_process_chooses_the_same_and_order_of_urls_does_not_matter():
    names = [f"conversation-{number}" for number in range(400)]
    one, other = _pool(), _pool(URLS[::-1])
    chosen = {}
    for name in names:
        chosen[name] = _call(one, name)
        one.release(name)
        assert _call(other, name) == chosen[name]
        other.release(name)
    assert min(Counter(chosen.values()).values()) > 60
    # Of rendezvous hashing: without a replica, only its own conversations are elsewhere.
    fewer = _pool(URLS[1:])
    for name in names:
        moved = _call(fewer, name) != chosen[name]
        assert moved == (chosen[name] == URLS[0])
        fewer.release(name)


def test_a_conversation_stays_while_load_moves():
    its = _pool()
    homes = {f"c{number}": _call(its, f"c{number}") for number in range(40)}
    for number in range(40, 100):
        _call(its, f"c{number}")
    for number in range(30):
        if number % 3:
            its.release(f"c{number}")
            homes.pop(f"c{number}")
    assert {name: _call(its, name) for name in homes} == homes


def test_calls_without_a_session_go_to_the_least_busy_replica():
    its = _pool(URLS[:2])
    slots = [its.take(_request(), b"") for _ in range(10)]
    assert Counter(slot.replica.url for slot in slots if slot) == {URLS[0]: 5, URLS[1]: 5}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(placement, "REMEMBERED", 100)
    clock = Clock()
    its = _pool(clock=clock)
    for number in range(1_000):
        clock.now += 1
        _call(its, f"c{number}")
    assert len(its._sessions.open) + len(its._sessions.ended) <= 200
    assert sum(state.open for state in its.states()) <= IDLE + 1
    its.release("c999")
    its.release("never heard of")


def test_a_silent_conversation_gives_up_its_place_but_not_its_replica():
    clock = Clock()
    its = _pool(clock=clock)
    home = _call(its, "c")
    clock.now += IDLE + 1
    _call(its, "another")
    assert sum(state.open for state in its.states()) == 1
    assert _call(its, "c") == home


# --- health ----------------------------------------------------------------------------------------------------------


def test_one_failure_moves_nobody_and_two_in_a_row_move_the_conversation_for_good():
    its = _pool()
    home = _fail(its, "c")
    assert _call(its, "c") == home
    assert _fail(its, "c") == home
    assert _fail(its, "c") == home
    new = _call(its, "c")
    assert new != home
    for _ in range(20):
        _call(its, "c")
    assert _call(its, "c") == new
    assert _fail(its, "c") == new
    assert _fail(its, "c") == new
    assert _call(its, "c") != new


def test_a_hang_is_enough():
    its = _pool()
    home = _fail(its, "c", Unreachable("no complete reply within 300 s"), hung=True)
    assert _call(its, "c") != home


@pytest.mark.parametrize("error", [RateLimited("slow down"), RequestRejected("no such field")])
def test_an_answer_is_no_failure(error: ModelError):
    its = _pool()
    home = _call(its, "c")
    for _ in range(3 * FAILURES):
        slot = its.take(_request("c"), b"")
        assert slot is not None
        its.failed(slot, error)
    assert {state.state for state in its.states()} == {"closed"}
    assert _call(its, "c") == home


def test_breaker(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(random, "uniform", lambda low, high: 1.0)
    clock = Clock()
    its = _pool(URLS[:2], clock)
    names = [f"c{number}" for number in range(100)]
    homes = {name: _call(its, name) for name in names}
    sick = [name for name in names if homes[name] == URLS[0]]
    for name in sick[:FAILURES]:
        _fail(its, name)
    assert its.states()[0].state == "open"
    # Its conversations are elsewhere, and stay there; the others never moved.
    assert {_call(its, name) for name in names} == {URLS[1]}
    pause = PAUSE
    for _ in range(6):
        clock.now += pause - 0.01
        assert its.states()[0].state == "open"
        clock.now += 0.02
        assert its.states()[0].state == "half-open"
        slots = _all_from(its, URLS[0])
        assert len(slots) == 1  # one probe at a time
        its.failed(slots[0], ServerFailed("still loading", status=503))
        pause = min(LONGEST_PAUSE, 2 * pause)
    clock.now += pause
    its.served(_all_from(its, URLS[0])[0], Usage(1, 1, 0, 1))
    assert its.states()[0].state == "closed"
    assert {_call(its, name) for name in names} == {URLS[1]}


def test_a_probe_that_says_nothing_of_health_is_followed_by_another():
    clock = Clock()
    its = _pool(URLS[:2], clock)
    sick = [name for name in map("c{}".format, range(100)) if _call(its, name) == URLS[0]]
    for name in sick[:FAILURES]:
        _fail(its, name)
    clock.now += 2 * LONGEST_PAUSE
    (probe,) = _all_from(its, URLS[0])
    its.failed(probe, DeadlineExceeded("too late"))
    (probe,) = _all_from(its, URLS[0])
    its.served(probe, USAGE)
    assert its.states()[0].state == "closed"


def test_a_probe_given_to_an_event_loop_that_has_ended_is_given_to_the_next():
    clock = Clock()
    its = _pool(URLS[:2], clock)
    for url in URLS[:2]:
        sick = [name for name in map("c{}".format, range(200)) if _call(its, name) == url][:FAILURES]
        for name in sick:
            _fail(its, name)

    async def leave() -> None:
        """Wait for a place, and end without taking it."""
        its._enqueue(Waiter("gone", 0.0, asyncio.get_running_loop().create_future()), clock.now)

    asyncio.run(leave())
    clock.now += 2 * LONGEST_PAUSE
    with its._lock:
        its._pump(its._placement.replicas)
    assert len(_all_from(its, URLS[0])) == len(_all_from(its, URLS[1])) == 1


_numbers = itertools.count()


def _all_from(its: Pool, url: str) -> list[Slot]:
    """Begin many conversations; gives back those that began at `url` and leaves the others."""
    found: list[Slot] = []
    for _ in range(40):
        slot = its.take(_request(f"new-{next(_numbers)}"), b"")
        if slot and slot.replica.url == url:
            found.append(slot)
        elif slot:
            its.left(slot)
    return found


def test_the_pause_has_jitter():
    pauses: set[float] = set()
    for _ in range(20):
        clock = Clock()
        its = _pool(URLS[:2], clock)
        for _ in range(FAILURES):
            slot = its._admit(its._placement.replicas[0], "", None, clock.now, 0)
            its.failed(slot, Unreachable("gone"))
        pauses.add(its._placement.replicas[0].until - clock.now)
    assert len(pauses) == 20
    assert all(PAUSE / 2 <= pause <= PAUSE * 1.5 for pause in pauses)


def test_a_single_endpoint_is_never_left_alone():
    its = _pool(URLS[:1])
    for _ in range(50):
        assert _fail(its, "c") == URLS[0]


@virtual_time
async def test_when_all_are_gone_a_call_waits_for_the_first_probe_and_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("camel.models.replica.PAUSE", 0.1)
    its = Pool(Given(URLS[:2]))
    for number in range(40):
        if slot := its.take(_request(f"c{number}"), b""):
            its.failed(slot, Unreachable(f"{slot.replica.url}: refused"))
    assert {state.state for state in its.states()} == {"open"}
    loop = asyncio.get_running_loop()
    slots = await asyncio.gather(*(its.wait(_request(name), b"", loop.time() + 5) for name in ("a", "b")))
    assert {slot.replica.url for slot in slots} == set(URLS[:2])
    with pytest.raises(DeadlineExceeded) as raised:
        await its.wait(_request("c"), b"", loop.time() + 0.1)
    assert all(f"{url}: refused" in str(raised.value) for url in URLS[:2])


# --- queues ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_started_conversations_come_first():
    its = Pool(Given(URLS[:1]), PoolSettings(rates=Rates(ceiling=2)))
    _call(its, "old")
    busy = [its.take(_request(name), b"") for name in ("x", "y")]
    order: list[str] = []

    async def call(name: str) -> None:
        slot = await its.wait(_request(name), b"", asyncio.get_running_loop().time() + 5)
        order.append(name)
        its.served(slot, Usage(1, 1, 0, 1))

    async with asyncio.TaskGroup() as group:
        for name in ("new1", "new2", "old", "new3"):
            group.create_task(call(name))
            await asyncio.sleep(0)
        assert its.take(_request("late"), b"") is None
        await asyncio.sleep(1)
        assert order == []
        for slot in busy:
            assert slot is not None
            its.left(slot)
    assert order == ["old", "new1", "new2", "new3"]
    assert its.states()[0].in_flight == 0


@virtual_time
async def test_a_call_that_gets_no_slot_in_time_fails_with_the_reason():
    its = Pool(Given(URLS[:1]), PoolSettings(rates=Rates(ceiling=1)))
    _fail(its, "a", RateLimited("HTTP 429: free-models-per-day"))
    busy = its.take(_request("a"), b"")
    with pytest.raises(DeadlineExceeded, match="per-day"):
        await its.wait(_request("b"), b"", asyncio.get_running_loop().time() + 5)
    if busy is not None:
        its.left(busy)


@virtual_time
async def test_a_caller_who_gives_up_leaves_nothing_behind():
    its = Pool(Given(URLS[:1]), PoolSettings(rates=Rates(ceiling=1)))
    first = its.take(_request("a"), b"")
    assert first is not None
    tasks = [
        asyncio.create_task(its.wait(_request(f"b{number}"), b"", asyncio.get_running_loop().time() + 9))
        for number in range(20)
    ]
    await asyncio.sleep(1)
    for task in tasks[:10]:
        task.cancel()
    its.left(first)  # the slot is handed over in the same round in which its taker is cancelled
    for task in tasks[10:15]:
        task.cancel()
    for task in tasks[15:]:
        its.left(await task)
    assert its.states()[0].in_flight == 0
    assert its.take(_request("c"), b"") is not None
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual_time
async def test_open_conversations_are_capped_and_one_that_ends_makes_room():
    its = Pool(Given(URLS[:2]), PoolSettings(open_per_replica=3))
    for number in range(6):
        _call(its, f"c{number}")
    assert its.take(_request("seventh"), b"") is None
    waiting = asyncio.create_task(its.wait(_request("seventh"), b"", asyncio.get_running_loop().time() + 5))
    await asyncio.sleep(1)
    assert not waiting.done()
    for number in range(6):
        _call(its, f"c{number}")  # open conversations continue
    its.release("c4")
    slot = await waiting
    assert max(state.open for state in its.states()) == 3
    its.left(slot)


def test_the_cap_is_learnt_from_what_is_cached():
    """A replica whose cache holds 10 conversations, whichever were used last, and 40 that send calls."""
    its, cache, most = _pool(URLS[:1]), dict[str, int](), 10
    lengths: Counter[str] = Counter()
    talking: list[str] = []
    born = 0
    warm = total = 0
    for step in range(40_000):
        while len(talking) < 40 and len(talking) < its._placement.replicas[0].room.most:
            talking.append(f"c{born}")
            born += 1
        name = talking.pop(0)
        slot = its.take(_request(name), b"")
        if slot is None:  # a new one that has to wait
            assert not lengths[name]
            talking.append(name)
            continue
        prompt = 200 + 100 * lengths[name]
        cached = cache.pop(name, 0)
        cache[name] = prompt
        while len(cache) > most:
            cache.pop(next(iter(cache)))
        its.served(slot, Usage(prompt, 50, max(cached, 20), 1), "user")
        lengths[name] += 1
        if step > 20_000 and lengths[name] > 1:
            warm += cached
            total += prompt - 100
        if lengths[name] == 20:
            its.release(name)
        else:
            talking.append(name)
    assert 5 <= its.states()[0].most_open <= 12
    assert warm / total > 0.7


def test_a_cache_that_nothing_helps_is_left_as_it_was():
    its = _pool(URLS[:1])
    names = [f"c{number}" for number in range(32)]
    for _ in range(400):
        for name in names[: int(min(32, its._placement.replicas[0].room.most))]:
            _call(its, name, Usage(1_000, 50, 100, 1))
        if its._placement.replicas[0].room.most < 32:
            for name in names[int(its._placement.replicas[0].room.most) :]:
                its.release(name)
    assert its._placement.replicas[0].room._rest > 0
    assert its.states()[0].most_open is None


def test_endpoints_that_say_nothing_of_their_cache_are_not_capped():
    its = _pool(URLS[:1])
    for _ in range(100):
        for number in range(32):
            _call(its, f"c{number}", Usage(1_000, 50, 0, 1))
    assert its.states()[0].most_open is None


@virtual_time
async def test_rates_hold_calls_back_and_time_lets_them_go():
    its = Pool(Given(URLS[:1]), PoolSettings(rates=Rates(rpm=600)))  # ten a second, 100 at once
    loop = asyncio.get_running_loop()
    for number in range(100):
        _call(its, f"c{number}")
    assert its.take(_request("c0"), b"") is None
    started = loop.time()
    for _ in range(5):
        its.served(await its.wait(_request("c0"), b"", loop.time() + 5), Usage(1, 1, 0, 1))
    assert 0.4 <= loop.time() - started <= 0.6


@virtual_time
async def test_a_worker_of_a_cluster_has_nothing_until_it_is_given_a_share():
    its = Pool(Given(URLS[:2]))
    its.join()
    assert its.take(_request("a"), b"") is None
    waiting = asyncio.create_task(its.wait(_request("a"), b"", asyncio.get_running_loop().time() + 5))
    await asyncio.sleep(0)
    assert sum(report.waiting for report in its.report().values()) >= 1
    its.allow(PoolShare(shares={url: Share(ceiling=1) for url in URLS}))
    slot = await waiting
    assert its.report()[slot.replica.url].in_flight == 1
    its.left(slot)


async def test_event_loops_in_several_threads_share_a_pool():
    its = Pool(Given(URLS[:2]), PoolSettings(rates=Rates(ceiling=2)))
    done: list[str] = []

    async def call(name: str) -> None:
        for _ in range(20):
            slot = its.take(_request(name), b"")
            slot = slot or await its.wait(_request(name), b"", asyncio.get_running_loop().time() + 120)
            await asyncio.sleep(0.001)
            its.served(slot, Usage(1, 1, 0, 1))
        done.append(name)

    async def many(prefix: str) -> None:
        await asyncio.gather(*(call(f"{prefix}{number}") for number in range(8)))

    threads = [threading.Thread(target=asyncio.run, args=(many(f"t{number}-"),)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 120)
    assert len(done) == 24
    assert [state.in_flight for state in its.states()] == [0, 0]


# --- discovery -------------------------------------------------------------------------------------------------------


def test_several_urls_are_one_model():
    model = ChatModel("m", base_url=[*URLS[:2], URLS[0] + "/"], api_key="")
    assert [state.url for state in model.pool.states()] == URLS[:2]
    for wrong in ([], ["ftp://x"], [URLS[0], "http://u:secret@h/v1"], [7], [URLS[0], None]):
        with pytest.raises(InputError) as raised:
            ChatModel("m", base_url=wrong, api_key="")  # type: ignore[arg-type]
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_a_file_lists_replicas(tmp_path: Path, scheme: str):
    path = tmp_path / "replicas with space.txt"
    path.write_text(f"# two\n{URLS[0]}\n\n  {URLS[1]}/ \n{URLS[0]}\n")
    source = find_replicas(f"{scheme}{str(path).replace(' ', '%20') if scheme else path}")
    assert isinstance(source, Listed)
    assert source.first == (URLS[0], URLS[1])
    path.write_text(f"{URLS[2]}\n{URLS[3]}\n{URLS[1]}\n")
    assert source.look() == (URLS[2], URLS[3], URLS[1])
    for broken in (
        "",
        "http://u:hunter2@host/v1\n",
        f"{URLS[0]}\nnonsense\n",
        "\0\0",
        "http://h/v1\n" * 90_000,
    ):
        path.write_text(broken)
        assert source.look() == (URLS[2], URLS[3], URLS[1])
    path.unlink()
    assert source.look() == (URLS[2], URLS[3], URLS[1])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"# nobody\n",
        b"http://user:hunter2@host/v1",
        b"http://host/v1?key=hunter2",
        b"http://host/v1\nhunter2 is my password\n",
        b"root:hunter2:0:0::/root:/bin/sh\n",
        b"\xff\xfe\x00hunter2",
        b"file:///etc/hunter2",
        b"http://h/v1\n" * 100_000,
        b"".join(b"http://h%d/v1\n" % number for number in range(5_000)),
    ],
)
def test_hostile_lists_are_refused_without_being_quoted(tmp_path: Path, content: bytes):
    path = tmp_path / "list"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        ChatModel("m", base_url=f"file://{path}", api_key="")
    assert "hunter2" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    "url",
    ["file://elsewhere/list", "file:///no/such/file", "file:///", "dns+https://host/v1", "dns+ftp://host"],
)
def test_what_cannot_be_looked_up_is_refused(url: str):
    with pytest.raises(InputError):
        find_replicas(url)


def _resolver(monkeypatch: pytest.MonkeyPatch, answers: list[list[str] | None]) -> None:
    told = iter(answers)

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        addresses = next(told)
        if addresses is None:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(0, 0, 0, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_a_name_is_all_its_addresses(monkeypatch: pytest.MonkeyPatch):
    _resolver(monkeypatch, [["10.0.0.2", "10.0.0.1", "10.0.0.1"], None, ["fd00::1", "fe80::1%eth0"]])
    source = find_replicas("dns+http://llm.default.svc:8000/v1")
    assert isinstance(source, DnsName)
    assert source.first == ()
    assert source.look() == ("http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1")
    assert source.look() == ("http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1")
    assert source.look() == ("http://[fd00::1]:8000/v1",)


@virtual_time
async def test_replicas_come_and_go_by_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(DnsName, "every", 1.0)
    async with Simulator() as sim:
        port = sim.url.rpartition(":")[2]
        answers: list[list[str] | None] = [None, None, ["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]]
        _resolver(monkeypatch, answers + [["127.0.0.1"]] * 1_000)
        async with ChatModel("m", base_url=f"dns+http://llm:{port}/v1", api_key="", deadline=10) as model:
            for _ in range(5):
                assert (await model.reply(_request("c"))).attempts == 1
                await asyncio.sleep(1.5)
        assert sim.ledger.counters.served == 5


# --- faults, by the ledgers ------------------------------------------------------------------------------------------


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _talk(model: ChatModel, names: list[str], calls: int) -> None:
    async def one(name: str) -> None:
        history = History("S")
        for number in range(calls):
            history.add("user", f"{name} {number}")
            await model.reply(Request(history, session=name, speaker="user"))

    await asyncio.gather(*(one(name) for name in names))


def _homes(paths: list[Path]) -> dict[str, list[int]]:
    """The replicas that served a session, in order of time, without repeats."""
    rows: list[tuple[LedgerRow, int]] = []
    for number, path in enumerate(paths):
        rows += [(row, number) for row in read_rows(path) if row.outcome == "served"]
    homes: dict[str, list[int]] = defaultdict(list)
    for row, number in sorted(rows, key=lambda pair: pair[0].time):
        if homes[row.session][-1:] != [number]:
            homes[row.session].append(number)
    return homes


@virtual_time
async def test_a_replica_killed_and_restarted(tmp_path: Path):
    """Its conversations move and stay where they went; the others never move."""
    ports = [_port() for _ in range(3)]
    paths = [tmp_path / f"ledger-{number}" for number in range(3)]
    wanted = [
        SimulatorSettings(length=None, words=3, latency=Constant(0.01), ledger_path=str(path))
        for path in paths
    ]
    names = [f"c{number}" for number in range(30)]
    async with contextlib.AsyncExitStack() as stack:
        for number in (1, 2):
            await stack.enter_async_context(Simulator(wanted[number], port=ports[number]))
        urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
        async with ChatModel("m", base_url=urls, api_key="", deadline=300) as model:
            async with Simulator(wanted[0], port=ports[0]) as victim:
                await _talk(model, names, 3)
                served = victim.ledger.counters.served
            await _talk(model, names, 3)
            assert model.pool.states()[0].state != "closed"
            assert urls[0] in model.pool.states()[0].said
            async with Simulator(wanted[0], port=ports[0]) as victim:
                await asyncio.sleep(2 * LONGEST_PAUSE)
                await _talk(model, names, 3)
                late = [f"late{number}" for number in range(30)]
                await _talk(model, late, 2)
                assert model.pool.states()[0].state == "closed"
                assert victim.ledger.counters.served > 0  # it is used again, by new conversations
    homes = _homes(paths)
    assert served > 0
    moved = [name for name in names if len(homes[name]) > 1]
    assert moved
    assert all(homes[name][0] == 0 and 0 not in homes[name][1:] for name in moved)
    assert all(len(homes[name]) == 2 for name in moved)
    assert all(len(homes[name]) == 1 for name in names if homes[name][0] != 0)
    assert {homes[name][0] for name in names} == {0, 1, 2}
    assert sum(row.outcome == "served" for path in paths for row in read_rows(path)) == 9 * 30 + 2 * 30


@virtual_time
async def test_flaky_replicas_move_few_and_lose_nothing(tmp_path: Path):
    paths = [tmp_path / f"ledger-{number}" for number in range(3)]
    faults = [{}, {"500": 0.1, "reset": 0.02}, {"503": 0.05, "truncate": 0.02}]
    async with contextlib.AsyncExitStack() as stack:
        urls = [
            (
                await stack.enter_async_context(
                    Simulator(SimulatorSettings(length=None, words=3, faults=fault, ledger_path=str(path)))  # type: ignore[arg-type]
                )
            ).base_url
            for fault, path in zip(faults, paths, strict=True)
        ]
        async with ChatModel("m", base_url=urls, api_key="", deadline=300) as model:
            await _talk(model, [f"c{number}" for number in range(40)], 8)
    homes = _homes(paths)
    assert len(homes) == 40
    assert sum(len(path) > 1 for path in homes.values()) <= 14


@virtual_time
async def test_all_429s_are_counted():
    settings = SimulatorSettings(length=None, words=3, faults={"429": 0.3}, retry_after=0.01)
    async with (
        Simulator(settings) as sim,
        ChatModel("m", base_url=sim.base_url, api_key="", max_attempts=50) as model,
    ):
        replies = []
        for number in range(40):
            history = History("S")
            history.add("user", f"{number}")
            replies.append(await model.reply(Request(history, session="c")))
        assert sum(reply.limited for reply in replies) == sim.ledger.counters.outcomes["429"] > 0
        assert model.pool.states()[0].refused == sim.ledger.counters.outcomes["429"]


@virtual_time
async def test_an_error_names_the_replicas_and_what_they_said():
    urls = [f"http://127.0.0.1:{_port()}/v1" for _ in range(2)]
    async with ChatModel("m", base_url=urls, api_key="sk-secret-123", deadline=300, max_attempts=4) as model:
        with pytest.raises(Unreachable) as raised:
            await model.reply(_request("c"))
    assert all(url in str(raised.value) for url in urls)
    assert "secret" not in str(raised.value)
    assert raised.value.attempts == 4


@virtual_time
async def test_a_rejection_says_nothing_while_the_other_replica_is_out():
    """One replica has no such model. It must not decide for the other, which is out for a while."""
    async with moody_here() as good, moody_here() as bad:
        bad.mood = lambda body, count: NO_MODEL
        urls = [good.base_url, bad.base_url]
        async with ChatModel("m", base_url=urls, api_key="k", deadline=600, max_attempts=4) as model:
            await model.reply(_request("a"))
            good.mood = lambda body, count: "hang up"
            for number in range(8):
                with pytest.raises(Unreachable):
                    await model.reply(_request(f"out-{number}"))
            assert len(bad.requests) >= 8
            good.mood = lambda body, count: NO_MODEL
            with pytest.raises(RequestRejected):
                await model.reply(_request("nobody has it"))
