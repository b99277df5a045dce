"""A budget is used to the end and not exceeded, however many workers die, by a ledger of the calls that were sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from camel.core.message import Usage
from camel.engine.site import ModelReport, WorkerReport
from camel.jobs.account import ACCOUNTS, Account, read_account
from camel.jobs.budget import Budget
from camel.jobs.shares import Shares
from camel.models.prices import ModelPrice
from tests.support.mortal_workers import Death, Ledger, MortalCluster
from tests.support.sharing import divide

KINDS: tuple[Death, ...] = ("killed", "silent", "frozen")
WINDOW, MOST_TOKENS = 60, 150
PER_MILLION = 4.0
"""Dollars for a million tokens."""


def run(
    seed: int,
    root: Path,
    budget: Budget,
    *kinds: Death,
    workers: int = 20,
    deaths: int = 300,
    idle: float = 0.0,
) -> Ledger:
    cluster = MortalCluster(
        seed,
        root,
        budget,
        workers=workers,
        window=WINDOW,
        ceiling=WINDOW * 2 // 3,
        deaths=deaths,
        kinds=kinds or KINDS,
        idle=idle,
        price=ModelPrice(input=PER_MILLION, output=0.0),
    )
    return cluster.run()


@pytest.fixture(autouse=True)
def _accounts_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers that died here are still in this process."""
    made: list[Account] = []
    begin = Account.__init__

    def noted(account: Account, root: Path, worker: str) -> None:
        begin(account, root, worker)
        made.append(account)

    monkeypatch.setattr(Account, "__init__", noted)
    yield
    for account in made:
        account.close()


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.thorough), pytest.param(2, marks=pytest.mark.thorough)]
)
def test_300_deaths_leave_at_most_one_percent_unused(tmp_path: Path, seed: int):
    ledger = run(seed, tmp_path, Budget(calls=10_000))
    assert ledger.deaths == 300
    assert 9_900 <= ledger.calls <= 10_000


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_a_small_budget_is_used_to_its_last_call(tmp_path: Path, workers: int, seed: int):
    ledger = run(seed, tmp_path, Budget(calls=10), "killed", workers=workers, deaths=1)
    assert ledger.calls == 10


def test_workers_that_have_nothing_to_do_keep_nothing(tmp_path: Path):
    ledger = run(0, tmp_path, Budget(calls=10_000), idle=0.5)
    assert 9_900 <= ledger.calls <= 10_000


def test_a_budget_of_tokens_is_exceeded_by_what_is_in_flight_at_most(tmp_path: Path):
    ledger = run(0, tmp_path, Budget(tokens=1_000_000))
    assert 990_000 <= ledger.tokens <= 1_000_000 + WINDOW * MOST_TOKENS


def test_a_budget_of_dollars_is_exceeded_by_what_is_in_flight_at_most(tmp_path: Path):
    ledger = run(0, tmp_path, Budget(usd=4.0))
    assert 0.99 * 4.0 <= ledger.tokens * PER_MILLION / 1e6 <= 4.0 + WINDOW * MOST_TOKENS * PER_MILLION / 1e6


def test_accounts_that_a_power_cut_made_older_are_not_believed(tmp_path: Path):
    ledger = run(0, tmp_path, Budget(calls=10_000), "power cut", "killed")
    assert ledger.calls <= 10_000


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.slow if seed < 4 else pytest.mark.thorough) for seed in range(20)],
)
def test_more_seeds_and_workers(tmp_path: Path, seed: int):
    ledger = run(seed, tmp_path, Budget(calls=10_000), workers=60 if seed % 2 else 6, idle=seed % 3 / 4)
    assert 9_900 <= ledger.calls <= 10_000


def reported(account: Account, calls: int = 0, in_flight: int = 0) -> WorkerReport:
    models = {"simulated": ModelReport(Usage(calls=calls))}
    return WorkerReport(models, in_flight=in_flight, account=account.number)


def test_workers_that_die_before_their_first_call_cost_nothing(tmp_path: Path):
    shares = Shares(Budget(calls=1_000), {}, accounts=tmp_path)
    reports: dict[str, WorkerReport] = {}
    for death in range(300):
        live = [f"w{number}" for number in range(death, death + 100)]
        for worker in live:
            if worker not in reports:
                reports[worker] = reported(Account(tmp_path, worker))
        divide(shares, reports, live)
    _, halt = divide(shares, reports, [])
    assert not halt
    given, _ = divide(shares, {"last": WorkerReport()}, ["last"])
    grant = given["last"].grant
    assert grant is not None
    assert grant.calls == 500, "half of what is left, which is all of it"


@pytest.mark.parametrize(
    ("account", "free"),
    [("as written", 93), ("older", 50), ("missing", 50), ("damaged", 50), ("a link", 50)],
)
def test_an_account_counts_only_if_it_is_whole_and_new(tmp_path: Path, account: str, free: int):
    shares = Shares(Budget(calls=100), {}, accounts=tmp_path)
    path, own = tmp_path / ACCOUNTS / "dies", Account(tmp_path, "dies")
    divide(shares, {"dies": WorkerReport()}, ["dies"])  # which grants it 50
    own.write(Usage(calls=3), 1)
    older = path.read_bytes()
    report = reported(own, calls=3, in_flight=2)
    own.write(Usage(calls=5), 2)
    if account == "older":
        report = reported(own, calls=5)
        path.write_bytes(older)
    elif account == "missing":
        path.unlink()
    elif account == "damaged":
        path.write_bytes(older[:-1])
    elif account == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    given, _ = divide(shares, {"dies": report, "other": WorkerReport()}, ["other"])
    grant = given["other"].grant
    assert grant is not None
    assert grant.calls == -(-free // 2)


def test_an_account_with_a_changed_byte_is_not_read(tmp_path: Path):
    account = Account(tmp_path, "w")
    account.write(Usage(calls=3), 1)
    path = tmp_path / ".accounts" / "w"
    written = path.read_bytes()
    spent = read_account(tmp_path, "w")
    assert spent is not None
    assert spent.usage.calls == 4
    for place in range(len(written)):
        path.write_bytes(written[:place] + bytes([written[place] ^ 1]) + written[place + 1 :])
        assert read_account(tmp_path, "w") is None
    path.write_bytes(written + b"\0")
    assert read_account(tmp_path, "w") is None


def test_a_closed_account_keeps_no_file_open(tmp_path: Path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    account = Account(tmp_path, "w")
    account.close()
    account.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_calls_in_flight_are_taken_for_as_large_as_the_others(tmp_path: Path):
    account = Account(tmp_path, "w")
    account.write(Usage(prompt=1_000, completion=200, calls=10, usd=0.25), 5)
    account.close()
    spent = read_account(tmp_path, "w")
    assert spent is not None
    assert spent.usage.calls == 15
    assert spent.usage.filled().total == 1_800
    assert spent.usage.usd == 0.25, "of those that were answered"


def test_calls_in_flight_of_a_dead_worker_are_taken_for_as_expensive_as_the_others(tmp_path: Path):
    shares = Shares(Budget(usd=10.0), {}, accounts=tmp_path)
    own = Account(tmp_path, "dies")
    divide(shares, {"dies": WorkerReport()}, ["dies"])
    own.write(Usage(prompt=1_000, calls=10, usd=2.0), 5)
    spent = ModelReport(Usage(prompt=1_000, calls=10, usd=2.0))
    given, _ = divide(shares, {"dies": WorkerReport({"simulated": spent}, account=own.number)}, ["other"])
    grant = given["other"].grant
    assert grant is not None
    assert grant.usd == pytest.approx(3.5, abs=0.01), "half of what is left of 10 after 15 calls for 3"
