"""An object store that fails: what is made once is made once, errors are typed and tell nothing that is secret."""

from __future__ import annotations

import asyncio
import hashlib
import json
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import CamelError, InputError
from camel.doctor import CheckResult, examine_machine
from camel.engine.halt import Halt
from camel.engine.stage import Steps, Workload, Written
from camel.engine.supervisor import StepPass, run_here
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from camel.storage.store import BucketStore, StoreFailed, ahead, is_remote, open_store
from tests.support.s3_faults import Faults, Server

Bucket = Callable[[str], str]
ROOT = Path(__file__).parent.parent.parent

COUNT = 20
ALL = Faults(errors=0.06, slow_down=0.06, resets=0.06, lost=0.06, lost_500=0.06, truncated=0.03)


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("kind", ["errors", "slow_down", "resets", "lost", "lost_500", "truncated"])
def test_what_was_ours_is_ours_whatever_the_answer_was(s3: Server, bucket: Bucket, kind: str):
    place = BucketStore(bucket("x"))
    s3.set(Faults(**{kind: 0.3}))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: place.create(f"m/{n}", b"of %d" % n), range(COUNT)))
        assert all(made)
        found = list(pool.map(lambda n: place.get(f"m/{n}"), range(COUNT)))
    assert found == [b"of %d" % n for n in range(COUNT)]
    assert sorted(place.names("m")) == sorted(map(str, range(COUNT)))
    s3.set(Faults())
    created = s3.ledger()["created"]
    assert [created[bucket(f"x/m/{n}").removeprefix("s3://camel/")] for n in range(COUNT)] == [1] * COUNT
    assert s3.ledger()["faults"][kind] > 0


@pytest.mark.usefixtures("quick_retries")
def test_of_two_that_race_under_faults_one_wins(s3: Server, bucket: Bucket):
    mine, theirs = BucketStore(bucket("x")), BucketStore(bucket("x"))
    s3.set(ALL)
    with ThreadPoolExecutor(8) as pool:
        for n in range(6):
            won = list(
                pool.map(lambda who, n=n: (mine, theirs)[who].create(f"m/{n}", b"attempt %d" % who), range(2))
            )
            assert sum(won) == 1
            assert mine.get(f"m/{n}") == b"attempt %d" % won.index(True)


@pytest.mark.usefixtures("quick_retries")
def test_a_stage_is_committed_exactly_once_under_faults(s3: Server, bucket: Bucket):
    """Two workers of different machines do the same work at once."""
    address = bucket("run")
    open_folder(address).create(Settings("f", {}, "0"))
    taken: Counter[int] = Counter()

    async def work(index: int, steps: Steps) -> Any:
        async def make() -> bytes:
            taken[index] += 1
            await asyncio.sleep(0)
            return b"%d" % index

        return [index, (await steps.once(b"?", make)).decode()]

    def write(path: Path, records: Sequence[Any]) -> Written:
        data = json.dumps(list(records)).encode() * 1_000
        path.write_bytes(data)
        return Written(len(records), hashlib.sha256(data).hexdigest(), {})

    workload = Workload(name="conversations", count=18, work=work, write=write, fingerprint="f", shard_size=3)

    async def both() -> list[bool]:
        async def one(name: str) -> bool:
            folder = open_folder(address, root / name)
            return await run_here(StepPass(workloads=[workload], folder=folder, concurrency=6, halt=Halt()))

        return list(await asyncio.gather(one("a"), one("b")))

    root = open_folder(address).root

    s3.set(ALL)
    assert asyncio.run(both()) == [True, True]
    s3.set(Faults())
    folder = open_folder(address)
    markers = list(folder.markers("conversations", sorted(folder.committed("conversations"))))
    assert [marker.shard for marker in markers] == list(range(6))
    for marker in markers:
        data = folder.read(marker.file)
        assert hashlib.sha256(data).hexdigest() == marker.sha256
        assert [row[0] for row in json.loads(data[: len(data) // 1_000])] == list(
            workload.indices(marker.shard)
        )
    prefix = address.removeprefix("s3://camel/")
    created = {key: times for key, times in s3.ledger()["created"].items() if key.startswith(prefix)}
    assert len(created) == 7
    assert set(created.values()) == {1}
    assert all(1 <= times <= 2 for times in taken.values())
    assert not [path for path in root.rglob("*-*") if path.is_file()]


CANARY = "canary-4f1c"


def test_errors_are_one_line_and_say_nothing_secret(
    s3: Server, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"{CANARY}-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{CANARY}-secret")
    obstore = pytest.importorskip("obstore.store")
    from_url = obstore.from_url
    monkeypatch.setattr(
        obstore,
        "from_url",
        lambda *args, **kwargs: from_url(*args, **kwargs | {"retry_config": {"max_retries": 0}}),
    )
    (tmp_path / "file").write_bytes(b"x")
    place = BucketStore(bucket("x"))
    s3.set(Faults(down=True))
    for ask in (
        lambda: place.get("a"),
        lambda: place.exists("a"),
        lambda: place.create("a", b"x"),
        lambda: place.put("a", b"x"),
        lambda: place.upload(tmp_path / "file", "a"),
        lambda: place.fetch("a", tmp_path / "b"),
        lambda: place.names("a"),
        lambda: place.folders("a"),
        lambda: list(place.entries("a")),
        lambda: place.remove(["a"]),
    ):
        with pytest.raises(StoreFailed, match="503") as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert CANARY not in f"{caught.value!r} {caught.value.__cause__!r}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(BucketStore, "patience", 0.3)
    with pytest.raises(StoreFailed, match=bucket("x")) as caught:
        BucketStore(bucket("x")).create("a", b"x")
    assert caught.value.lost


def test_a_bucket_that_is_not_there_is_said_so(s3: Server):
    place = open_folder("s3://no-such-bucket/run")
    with pytest.raises(CamelError, match="bucket"):
        place.create(Settings("f", {}, "0"))
    with pytest.raises(CamelError, match="bucket"):
        place.settings()
    with pytest.raises(CamelError, match="bucket"):
        place.committed("conversations")


class Found(Exception):
    """Ends a look at the machine once what was looked for is found."""


def disk_of(where: str) -> CheckResult:
    """What the doctor says of a place, without its look at Ray and the sandbox."""

    def tell(finding: CheckResult) -> None:
        if finding.check == "disk":
            raise Found(finding)

    with pytest.raises(Found) as found:
        examine_machine(where, tell=tell)
    return found.value.args[0]


def test_the_doctor_tries_what_a_run_will_ask_of_a_bucket(
    s3: Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CAMEL_JOURNALS", "/somewhere")
    missing = disk_of("s3://no-such-bucket/x")
    assert (missing.state, "bucket" in missing.says) == ("error", True)
    there = disk_of(bucket("doctor"))
    assert there.state == "ok"
    assert not list(BucketStore(bucket("doctor")).entries("")), "it leaves nothing behind"
    monkeypatch.delenv("CAMEL_JOURNALS")
    there = disk_of(bucket("doctor"))
    assert (there.state, "CAMEL_JOURNALS" in there.fix) == ("warning", True)


def test_what_is_missing_is_missing(s3: Server, bucket: Bucket):
    place = BucketStore(bucket("x"))
    assert not place.exists("a")
    with pytest.raises(FileNotFoundError):
        place.get("a")
    place.remove(["a", "b"])
    place.remove([])
    assert place.names("a") == place.folders("a") == list(place.entries("a")) == []


@pytest.mark.parametrize(
    "address",
    [
        "s3://",
        "s3:///x",
        "http://host/x",
        "ftp://x/y",
        "s3://key:secret@bucket/x",
        "s3://b/x?y=z",
        "s3://b/../c",
    ],
)
def test_addresses_that_are_none_are_refused(address: str):
    with pytest.raises(InputError) as caught:
        open_folder(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("where", "remote"),
    [
        *(("s3://b/x", True), (Path("s3://b/x"), True), ("gs://b", True), ("az://c/x", True)),
        *(("runs/x", False), (Path("/runs/x"), False), ("s3", False), ("runs/s3:/x", False)),
    ],
)
def test_addresses_are_distinguished_from_folders(where: str | Path, remote: bool):
    assert is_remote(where) == remote
    assert open_store(where).address == (
        str(where) if not isinstance(where, Path) or not remote else "s3://b/x"
    )


def test_a_store_can_be_sent_to_another_process(s3: Server, bucket: Bucket):
    place = BucketStore(bucket("x"))
    place.put("a", b"x")
    assert pickle.loads(pickle.dumps(place)).get("a") == b"x"


def test_a_large_file_goes_up_in_parts_and_comes_back(s3: Server, bucket: Bucket, tmp_path: Path):
    data = bytes(range(256)) * 4096 * 9  # more than one part
    (tmp_path / "file").write_bytes(data)
    place = BucketStore(bucket("x"))
    place.upload(tmp_path / "file", "a")
    s3.set(Faults(truncated=0.5))
    place.fetch("a", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_ahead_keeps_order_and_bounds():
    begun: list[int] = []
    taken = 0

    def work(n: int) -> int:
        begun.append(n)
        assert len(begun) - taken <= 5
        return n

    for expected, n in enumerate(ahead(work, range(50), 4)):
        assert n == expected
        taken += 1
    with pytest.raises(ZeroDivisionError):
        list(ahead(lambda n: 1 // n, [1, 0, 1], 2))


@pytest.mark.thorough
def test_the_benchmark_of_markers_in_short():
    command = [sys.executable, "-m", "benchmarks.markers", "--markers", "300", "--totals"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" s ") > 8
