"""What a run on a Ray cluster loses when parts of it die, stand still or lie, by the account of the endpoint.

    python -m benchmarks.chaos                       # 10,000 conversations a phase, 5 seeds: hours
    python -m benchmarks.chaos --seeds 1 --seed 3    # one seed
    python -m benchmarks.chaos --short               # 500 conversations, fewer disturbances: for CI

A real cluster on this machine: a head and three nodes with a raylet each, token authentication, and a simulated endpoint
outside of it. A run goes undisturbed first; its chat export and its rate are what the others are held against. Then the
same conversations are made again, each time in a new folder, while

- `workers`: a worker process is killed with SIGKILL every 5 s, or more often if the run is over too soon for 60;
- `cluster`: drivers, raylets, heads and coordinators are killed and workers are stopped for 30 s, spread over the run's
  length. After a driver's, a coordinator's or a head's death the same command is given again;
- `endpoint`: the endpoint answers one request in six with a fault, and with 429 for 5 s of every 30;
- `replica`: there are two endpoints, and first one, then the other is gone for 10 s;
- `store`: the run is in an object store that fails one request in eight, and workers are killed as well;

and each phase fails unless: every conversation is there exactly once; no call that was in a journal was sent again; each
other repeat follows a fault of the endpoint or was in flight in a process that was struck; what was woken up sends
nothing; the SHA-256 of the chat export is the undisturbed run's. Under worker kills the rate is at least half of the
undisturbed one, under faults a call takes at most 1.25 attempts on average.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel.generation.config import GenerateConfig, RunSection
from camel.models.simulator import Burst, LogNormal, SimulatorSettings, spawn
from camel.models.spec import ModelSpec
from camel.runs.run import JOURNALS, open_folder
from tests.support import cluster, s3_faults
from tests.support.accounts import Account, Strike, Tail, account, is_alive, ports_of
from tests.support.crashes import ROOT, Call, Witness, as_toml, config_of, exported, session_of

NODES = 3
LATENCY = LogNormal(median=0.1, p99=1.0)
MEAN_LATENCY = 0.163
KILL_EVERY = 5.0
LEAST_RATE, MOST_ATTEMPTS = 0.5, 1.25
FAULTS = {"500": 0.05, "503": 0.05, "hang": 0.02, "truncate": 0.02, "drip": 0.01, "lost": 0.01}
BURST = Burst(period=30, length=5)
STORE_FAULTS = s3_faults.Faults(
    errors=0.05, slow_down=0.03, resets=0.01, lost=0.01, lost_500=0.01, truncated=0.01, hangs=0.002
)
TRY = 4.0
"""Seconds for one try of a call under faults, so that hangs do not dominate."""
LOOK_EVERY = 0.5
PATIENCE = 60.0
"""Seconds until a process that must end has ended."""


class Scale(NamedTuple):
    """How large everything is."""

    conversations: int
    messages: int
    seconds: float
    """What an undisturbed phase should take, which says how many conversations are open at once."""
    least_kills: int
    strikes: dict[str, int]
    """Of the phase `cluster`."""
    stopped: float
    """Seconds for which a worker stands still; longer than its lease."""
    gone: float
    """Seconds for which an endpoint is away."""

    @property
    def window(self) -> int:
        return max(NODES, round(self.conversations * self.messages * MEAN_LATENCY / self.seconds))


FULL = Scale(
    10_000, 12, 180.0, 60, {"driver": 20, "raylet": 10, "head": 5, "stop": 10, "coordinator": 2}, 30.0, 10.0
)
SHORT = Scale(500, 12, 12.0, 3, {"driver": 1, "raylet": 1, "head": 1, "stop": 1}, 12.0, 5.0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int)
    parser.add_argument("--messages", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="how many, from --seed on; 5, or 1 with --short")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--phases", help="which of them, with commas; all, or cluster,store with --short")
    args = parser.parse_args()
    scale = SHORT if args.short else FULL
    if args.conversations:
        share = args.conversations / scale.conversations
        scale = scale._replace(
            conversations=args.conversations,
            least_kills=min(scale.least_kills, max(1, int(scale.least_kills * share))),
        )
    if args.messages:
        scale = scale._replace(messages=args.messages)
    seeds = range(args.seed, args.seed + (args.seeds or (1 if args.short else 5)))
    phases = args.phases or ("cluster,store" if args.short else "workers,cluster,endpoint,replica,store")
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    failed = Chaos(root, scale).go(seeds, phases.split(","))
    if failed:
        print(f"\nFAILED; everything is kept in {root}:")
        print("\n".join(f"- {what}" for what in failed))
        return 1
    shutil.rmtree(root, ignore_errors=True)
    return 0


@dataclass
class Phase:
    """One run from its first start to its completion."""

    name: str
    seed: int
    config: GenerateConfig
    out: Path
    """Its folder, or where that would be if the run were not in a store."""
    journals: Path
    address: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    """What its drivers have beyond the cluster's."""
    strikes: list[Strike] = field(default_factory=list)
    starts: int = 0
    unasked: list[str] = field(default_factory=list)
    """How drivers ended that nobody had struck."""
    seconds: float = 0.0
    """From the first request to the last."""
    account: Account = field(default_factory=Account)
    twice: int = 0
    checks: dict[str, bool] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.config.loaded_scenario().count / max(self.seconds, 1e-9)


class Chaos:
    """The cluster, the endpoint, and one phase after the other."""

    def __init__(self, root: Path, scale: Scale) -> None:
        self.root, self.scale = root, scale
        self.started = time.monotonic()
        self.phases: list[Phase] = []
        self.calls: dict[str, Call] = {}
        """What the undisturbed run asked, by the bodies' hashes."""
        self._ledgers = 0
        self._looked = 0.0
        self._seen: dict[int, set[int]] = {}
        """The workers at the last look, and their connections."""

    def go(self, seeds: range, wanted: list[str]) -> list[str]:
        """Run everything; returns what does not hold."""
        scale = self.scale
        print(
            f"{scale.conversations:,} conversations of about {scale.messages} messages, {scale.window} open at once, "
            f"on {NODES} nodes; seeds {seeds.start} to {seeds.stop - 1}\n"
        )
        with cluster.start(nodes=NODES) as self.ray:
            self._say("the cluster is up")
            with self._endpoint(self._settings()) as endpoint:
                calm = self._phase("undisturbed", 0, endpoint)
                self._run(calm, [endpoint], Nothing())
                for seed in seeds:
                    for name, plan in (("workers", Kills), ("cluster", Mixture)):
                        if name in wanted:
                            phase = self._phase(name, seed, endpoint)
                            self._run(phase, [endpoint], plan(self, random.Random(seed)))
            for seed in seeds:
                if "endpoint" in wanted:
                    # The endpoint's own seed decides what it says; the order of the faults, which of them strikes.
                    faults = dict(random.Random(seed).sample(list(FAULTS.items()), len(FAULTS)))
                    settings = msgspec.structs.replace(self._settings(), faults=faults, burst=BURST)
                    with self._endpoint(settings) as endpoint:
                        phase = self._phase("endpoint", seed, endpoint, attempt_timeout=TRY)
                        self._run(phase, [endpoint], Nothing())
                if "replica" in wanted:
                    with self._endpoint(self._settings()) as one, self._endpoint(self._settings()) as other:
                        phase = self._phase("replica", seed, one, other)
                        self._run(phase, [one, other], Gone(self, random.Random(seed)))
                if "store" in wanted:
                    with self._endpoint(self._settings()) as endpoint, s3_faults.spawn(STORE_FAULTS) as store:
                        self._in_store(seed, endpoint, store)
            if any(not holds for phase in self.phases for holds in phase.checks.values()):
                with contextlib.suppress(shutil.Error):  # sockets
                    shutil.copytree(self.ray.session, self.root / "ray", symlinks=True)
        return self._report()

    def _in_store(self, seed: int, endpoint: Endpoint, store: s3_faults.Server) -> None:
        phase = self._phase("store", seed, endpoint)
        phase.environment = {**store.environment, JOURNALS: str(self.root / "journals")}
        phase.address = store.address(f"store-{seed}")
        phase.config = msgspec.structs.replace(phase.config, out=phase.address)
        os.environ.update(phase.environment)  # for the export
        phase.journals = open_folder(phase.address).root / "journal"
        try:
            self._run(
                phase, [endpoint], Kills(self, random.Random(seed)), lambda: store.set(s3_faults.Faults())
            )
        finally:
            for name in phase.environment:
                os.environ.pop(name, None)
        ledger = store.ledger()
        made = Counter(times for key, times in ledger["created"].items() if "committed/" in key)
        phase.checks[f"{made[1]} markers made once, {made.total() - made[1]} more often"] = (
            made.total() == made[1] > 0
        )
        struck = sum(ledger["faults"].values())
        phase.checks[f"{struck:,} faults in {sum(ledger['requests'].values()):,} requests of the store"] = (
            struck > 0
        )
        print(
            "\n".join(
                f"    {'ok  ' if holds else 'FAIL'}  {what}"
                for what, holds in list(phase.checks.items())[-2:]
            )
        )

    # --- one phase ---------------------------------------------------------------------------------------------------

    def _run(
        self,
        phase: Phase,
        endpoints: list[Endpoint],
        plan: Plan,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Go through a phase; `then` comes before the result is read."""
        self.phases.append(phase)
        for endpoint in endpoints:
            endpoint.witness.forget()
        self.ports = [endpoint.port for endpoint in endpoints]
        file = phase.out.with_suffix(".toml")
        file.write_text(as_toml(phase.config))
        scenario = phase.config.loaded_scenario()
        with Tail(phase.journals, partial(session_of, scenario)) as tail:
            self.phase, self.tail, self.endpoints = phase, tail, endpoints
            self.driver, self._seen = Driver(file, self.ray, phase.environment), dict[int, set[int]]()
            phase.starts = 1
            plan.begin()
            while (code := self.driver.process.poll()) != 0 and len(phase.unasked) <= 5:
                if code is None:
                    plan.step()
                    self._look_after()
                    time.sleep(0.02)
                else:
                    phase.unasked.append(self.driver.last())
                    self.start_again()
            plan.end()
            self._reap()
            rows = [row for endpoint in endpoints for row in endpoint.witness.rows()]
            tail.scan()
        rows_end = max((row.time for row in rows), default=0.0)
        if not self.calls:
            first = {row.hash: row for row in sorted(rows, key=lambda row: -row.seq)}
            endpoints[0].witness.learn(list(first.values()))
            self.calls = endpoints[0].witness.calls
        # Who leaves after the last request was not struck: the work is done.
        phase.strikes = [
            strike for strike in phase.strikes if strike.kind != "unasked" or strike.until < rows_end
        ]
        impatient = phase.config.model.attempt_timeout is not None
        phase.account = account(rows, self.calls, tail, phase.strikes, impatient)
        phase.twice = tail.twice.total()
        phase.seconds = rows_end - min((row.time for row in rows), default=0.0)
        phase.out.with_suffix(".strikes.json").write_bytes(
            msgspec.json.encode([strike.told() for strike in phase.strikes])
        )
        then()
        self._check(phase)

    def _look_after(self) -> None:
        """Note workers that end though nobody struck them, as they do on a machine that is too busy for heartbeats."""
        now = time.monotonic()
        if now < self._looked + LOOK_EVERY:
            return
        self._looked = now
        there = {pid: ports_of(pid, self.ports) for pid in self.ray.workers()}
        struck = {pid for strike in self.phase.strikes for pid in strike.victims}
        over = self.calls and len(self.tail.durable) == len(self.calls)
        for pid, ports in self._seen.items():
            if pid in there:
                there[pid] |= ports
            elif pid not in struck and ports and not over:
                until = self.tail.scan()
                self.phase.strikes.append(Strike("unasked", until - LOOK_EVERY, [pid], ports, until))
        self._seen = there

    def start_again(self) -> None:
        """Give the same command again."""
        self.phase.starts += 1
        self.driver = Driver(self.driver.file, self.ray, self.phase.environment)

    # --- what can be done to a run -----------------------------------------------------------------------------------

    def strike(self, kind: str, victims: list[int], blow: Callable[[], None]) -> Strike:
        """Call `blow`, and wait until the processes that it is meant to kill are dead."""
        strike = Strike(kind, time.time(), victims)
        self._note_ports(strike)
        blow()
        deadline = time.monotonic() + PATIENCE
        stopped = {pid for one in self.phase.strikes if one.kind == "stop" for pid in one.victims}
        # Who stands still may stay, but a dead parent can wake it up (POSIX sends SIGCONT to stopped orphans).
        grace = time.monotonic() + 1
        while any(is_alive(pid) for pid in victims if pid not in stopped or time.monotonic() < grace):
            self._note_ports(strike)
            if time.monotonic() > deadline:
                self.phase.checks[f"the victims of {kind} end within {PATIENCE:.0f} s"] = False
                break
            time.sleep(0.02)
        strike.until = self.tail.scan()
        self.phase.strikes.append(strike)
        return strike

    def kill_worker(self, chance: random.Random) -> bool:
        """SIGKILL one worker, if there is one."""
        if not (workers := self.ray.workers()):
            return False
        pid = chance.choice(workers)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # so that it opens no connection between the look and the blow
        self.strike("worker", [pid], lambda: _kill(pid))
        return True

    def stop_worker(self, chance: random.Random) -> Strike | None:
        """SIGSTOP one worker that runs."""
        stopped = {pid for one in self.phase.strikes if one.kind == "stop" for pid in one.victims}
        if not (workers := [pid for pid in self.ray.workers() if pid not in stopped]):
            return None
        pid = chance.choice(workers)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        strike = Strike("stop", time.time(), [pid])
        self._note_ports(strike)
        time.sleep(0.05)  # a write of its journal's thread may be on its way in the kernel
        strike.until = self.tail.scan()
        self.phase.strikes.append(strike)
        return strike

    def kill_driver(self) -> None:
        """SIGKILL the driver; Ray ends its workers; then the same command again."""
        self.strike("driver", self.ray.workers(), self.driver.process.kill)
        self.driver.process.wait()
        self.start_again()

    def kill_coordinator(self) -> None:
        """SIGKILL the coordinator: the driver must end, with its workers; then the same command again."""
        assert self.ray.head is not None
        pids = self.ray.head.named("ray::CoordinatorActor")

        def blow() -> None:
            for pid in pids:
                _kill(pid)

        self.strike("coordinator", [*pids, *self.ray.workers(), self.driver.process.pid], blow)
        self._reap()
        self.start_again()

    def kill_raylet(self, chance: random.Random) -> None:
        """SIGKILL a node's raylet; the node is started again."""
        number = chance.randrange(NODES)
        self.strike("raylet", self.ray.workers(number), lambda: self.ray.kill_raylet(number))
        self.ray.start_node(number)

    def kill_head(self) -> None:
        """Kill the head with all its state; restart the whole cluster; then run the same command again."""
        victims = [*self.ray.workers(), self.driver.process.pid]
        head = self.ray.head
        assert head is not None
        self.strike("head", victims, head.kill)
        self._reap()
        self.ray.restart_head()
        self.start_again()

    def _reap(self) -> None:
        self.driver.process.kill()
        self.driver.process.wait()

    def _note_ports(self, strike: Strike) -> None:
        for pid in strike.victims:
            strike.ports |= ports_of(pid, self.ports)

    # --- what is looked at -------------------------------------------------------------------------------------------

    def _check(self, phase: Phase) -> None:
        own, checks, calm = phase.account, phase.checks, self.phases[0]
        export = exported(phase.out, phase.address)
        if phase is calm:
            self.export = export
        in_flight = sum(len(strike.in_flight) for strike in phase.strikes)
        survives = not phase.unasked
        checks["the driver ends only when it is struck, or complete"] = survives
        checks[f"every conversation exactly once ({len(export.ids):,} ids)"] = (
            len(export.ids) == self.scale.conversations
            and export.ids == self.export.ids
            and set(export.ids.values()) == {1}
        )
        checks[f"chat export {export.sha256[:16]} equals the undisturbed run's"] = (
            export.sha256 == self.export.sha256
        )
        checks["every call was made, and no other"] = own.calls == len(self.calls) and own.unknown == 0
        checks[f"calls in a journal sent again: {own.sent_durable}"] = own.sent_durable == 0
        checks[f"calls lost and sent again: {own.lost}, in flight at the strikes: {in_flight}"] = (
            own.lost <= in_flight
        )
        checks[f"repeats without a reason: {len(own.unexcused)}"] = not own.unexcused
        checks[f"requests of woken processes: {own.by_zombies}"] = own.by_zombies == 0
        window = phase.config.run.concurrency
        most = max((len(strike.in_flight) for strike in phase.strikes), default=0)
        checks[f"in flight at one strike: at most {most} of {window}"] = most <= window
        if phase.name in ("workers", "store"):
            kills = sum(strike.kind == "worker" for strike in phase.strikes)
            ratio = phase.rate / calm.rate
            checks[f"{kills} workers killed"] = kills >= self.scale.least_kills
            checks[f"{ratio:.2f} of the undisturbed rate"] = ratio >= LEAST_RATE
        if phase.name == "endpoint":
            attempts = own.requests / max(1, own.calls)
            checks[f"{attempts:.3f} attempts a call"] = attempts <= MOST_ATTEMPTS
            given_up = _given_up(phase.out.with_suffix(".log"))
            checks[f"answers that came too late: {own.timeouts}, given up by the client: {given_up}"] = (
                own.timeouts <= given_up
            )
        self._say(f"{phase.name}, seed {phase.seed}: {phase.seconds:.0f} s, {phase.rate:.1f} conversations/s")
        for what, holds in checks.items():
            print(f"    {'ok  ' if holds else 'FAIL'}  {what}")
        for one in own.unexcused[:5]:
            print(f"          {one}")
        for one in phase.unasked:
            print(f"          {one}")
        sys.stdout.flush()

    def _report(self) -> list[str]:
        print(
            "\n| phase | seed | strikes | starts | conv/s | of undisturbed | requests | a call | faults | lost and sent "
            "again | in flight at strikes | journaled twice | journaled, sent again |\n" + "|---" * 13 + "|"
        )
        base = self.phases[0].rate
        for phase in self.phases:
            own = phase.account
            kinds = Counter(strike.kind for strike in phase.strikes)
            in_flight = sum(len(strike.in_flight) for strike in phase.strikes)
            print(
                f"| {phase.name} | {phase.seed} | {', '.join(f'{n} {kind}' for kind, n in kinds.items()) or '–'} "
                f"| {phase.starts} | {phase.rate:.1f} | {phase.rate / base:.2f} | {own.requests:,} "
                f"| {own.requests / max(1, own.calls):.3f} | {own.faults.total():,} | {own.lost:,} | {in_flight:,} "
                f"| {phase.twice:,} | {own.sent_durable} |"
            )
        print(f"\neverything {time.monotonic() - self.started:.0f} s")
        return [
            f"{phase.name}, seed {phase.seed}: {what} ({phase.out})"
            for phase in self.phases
            for what, holds in phase.checks.items()
            if not holds
        ]

    def _say(self, what: str) -> None:
        print(f"[{time.monotonic() - self.started:5.0f} s] {what}", flush=True)

    # --- made from the scale -----------------------------------------------------------------------------------------

    def _settings(self) -> SimulatorSettings:
        length = LogNormal(median=self.scale.messages, p99=self.scale.messages * 2)
        return SimulatorSettings(latency=LATENCY, length=length)

    @contextlib.contextmanager
    def _endpoint(self, settings: SimulatorSettings) -> Generator[Endpoint]:
        self._ledgers += 1
        ledger = self.root / f"ledger-{self._ledgers}.jsonl"
        endpoint = Endpoint(msgspec.structs.replace(settings, ledger_path=str(ledger)))
        endpoint.start()
        try:
            yield endpoint
        finally:
            endpoint.stop()

    def _phase(
        self, name: str, seed: int, *endpoints: Endpoint, attempt_timeout: float | None = None
    ) -> Phase:
        out = self.root / f"{name}-{seed}"
        urls = tuple(endpoint.process.base_url for endpoint in endpoints)
        config = msgspec.structs.replace(
            config_of(out, "", self.scale.conversations),
            model=ModelSpec(
                "simulated", base_url=urls if len(urls) > 1 else urls[0], attempt_timeout=attempt_timeout
            ),
            run=RunSection(concurrency=self.scale.window),
        )
        return Phase(name, seed, config, out, out / "journal")


class Endpoint:
    """A simulated endpoint that can go and come back at the same address, with one ledger."""

    def __init__(self, settings: SimulatorSettings) -> None:
        assert settings.ledger_path is not None
        self._settings, self._ledger = settings, Path(settings.ledger_path)
        self._stack = contextlib.ExitStack()
        self.port = 0

    def start(self) -> None:
        self.process = self._stack.enter_context(spawn(self._settings, port=self.port))
        if not self.port:
            self.witness = Witness(self._ledger, self.process)
            self.port = int(self.process.url.rpartition(":")[2])

    def stop(self) -> None:
        self._stack.close()


class Driver:
    """`camel generate --address`, as a person starts it."""

    def __init__(self, file: Path, ray: cluster.RayCluster, environment: dict[str, str]) -> None:
        self.file, self.log = file, file.with_suffix(".log")
        command = [sys.executable, "-m", "camel", "generate", str(file), "--address", ray.address, "--json"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**ray.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def last(self) -> str:
        """How it ended, in its own words."""
        lines = self.log.read_text(errors="replace").splitlines() or [""]
        return f"status {self.process.returncode}: {lines[-1][:500]}"


# --- plans of disturbances -------------------------------------------------------------------------------------------


class Plan:
    """When what is done to a run; `step` is called over and over while it runs."""

    def begin(self) -> None: ...

    def step(self) -> None: ...

    def end(self) -> None: ...


class Nothing(Plan):
    """An undisturbed run."""


class Kills(Plan):
    """A worker dies every few seconds, from the first request on."""

    def __init__(self, chaos: Chaos, chance: random.Random) -> None:
        self._chaos, self._chance = chaos, chance
        # So often that the least number falls even into a run that is as quick as the undisturbed one.
        self._every = min(KILL_EVERY, chaos.phases[0].seconds / (chaos.scale.least_kills + 1))
        self._next = 0.0

    def step(self) -> None:
        now = time.monotonic()
        if not self._chaos.tail.durable:
            self._next = now + self._every * self._chance.random()
        elif now >= self._next and self._chaos.kill_worker(self._chance):
            self._next = max(now, self._next + self._every)


class Mixture(Plan):
    """Everything that can die dies, spread over the length of the run."""

    def __init__(self, chaos: Chaos, chance: random.Random) -> None:
        self._chaos, self._chance = chaos, chance
        kinds = [kind for kind, times in chaos.scale.strikes.items() for _ in range(times)]
        self._left = chance.sample(kinds, len(kinds))
        self._at = 0
        self._sleeping: list[tuple[float, Strike]] = []

    def begin(self) -> None:
        self._plan_next()

    def _plan_next(self) -> None:
        """The next strike comes after a random number of calls, on average as many as leave room for the rest."""
        done, calls = len(self._chaos.tail.durable), len(self._chaos.calls)
        share = 2 * (calls - done) / (len(self._left) + 1)
        # The last ones not so late that the run ends before them.
        self._at = min(done + self._chance.randint(1, max(2, int(share))), int(0.95 * calls))

    def step(self) -> None:
        chaos, chance = self._chaos, self._chance
        self._wake(time.monotonic())
        if not self._left or len(chaos.tail.durable) < self._at:
            return
        match self._left[0]:
            case "driver":
                chaos.kill_driver()
            case "coordinator":
                chaos.kill_coordinator()
            case "raylet":
                chaos.kill_raylet(chance)
            case "head":
                chaos.kill_head()
            case _:
                if (strike := chaos.stop_worker(chance)) is None:
                    return
                self._sleeping.append((time.monotonic() + chaos.scale.stopped, strike))
        self._left.pop(0)
        self._plan_next()

    def _wake(self, now: float) -> None:
        for due, strike in list(self._sleeping):
            [pid] = strike.victims
            if strike.woken == 0.0 and now >= due:
                strike.woken = time.time()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            if strike.woken and not is_alive(pid):
                strike.gone = time.time()
                self._sleeping.remove((due, strike))

    def end(self) -> None:
        """Wake up the processes that still sleep, and wait until they exit."""
        deadline = time.monotonic() + PATIENCE
        while self._sleeping and time.monotonic() < deadline:
            self._wake(time.monotonic() + 3600)
            time.sleep(0.05)
        self._chaos.phase.checks["everybody woken up has left"] = not self._sleeping
        if self._left:
            self._chaos.phase.checks[f"disturbances left over: {', '.join(self._left)}"] = False


class Gone(Plan):
    """One endpoint after the other is gone for a while."""

    def __init__(self, chaos: Chaos, chance: random.Random) -> None:
        self._chaos, self._order = chaos, chance.sample(range(2), 2)
        self._gone: Endpoint | None = None
        self._back = 0.0

    def step(self) -> None:
        chaos = self._chaos
        if self._gone is not None:
            if time.monotonic() >= self._back:
                self._gone.start()
                self._gone = None
        elif self._order and len(chaos.tail.durable) > len(chaos.calls) * (
            0.6 - 0.3 * len(self._order) + 0.3
        ):
            self._gone = chaos.endpoints[self._order.pop()]
            strike = Strike("replica", time.time(), [])
            for pid in chaos.ray.workers():
                strike.ports |= ports_of(pid, [self._gone.port])
            self._gone.stop()
            strike.until = chaos.tail.scan()
            chaos.phase.strikes.append(strike)
            self._back = time.monotonic() + chaos.scale.gone

    def end(self) -> None:
        self._chaos.phase.checks["both endpoints were gone once"] = not self._order
        if self._gone is not None:
            self._gone.start()


def _given_up(log: Path) -> int:
    """Attempts and calls that the workers report to have tried again or given up."""
    total = most = 0
    for line in log.read_bytes().splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            entry: dict[str, Any] = msgspec.json.decode(line)
            if entry.get("event") == "start":
                total, most = total + most, 0
            elif "errors" in entry:
                most = max(most, sum(entry["errors"].values()) + entry.get("retries", 0))
    return total + most


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
