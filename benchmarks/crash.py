"""What a run loses when its process is killed or its disk is full, by the account of the endpoint.

    python -m benchmarks.crash                              # 2,000 conversations, 200 kills, 20 times a full disk
    python -m benchmarks.crash --conversations 60 --kills 8 --full 4
    python -m benchmarks.crash --simulate 10000             # the same on a simulated machine; --seed N replays one

A run of the paper's AI Society goes undisturbed first. Then the same run is made by a process that is killed with
SIGKILL at random moments (one in ten from within a commit, between two of its system calls) or finds its disk full,
and is started again by the same command until it is complete. The endpoint's ledger knows each call by its body, so
that after every death each call is known to be durable (it is in a journal, or its shard has a marker) or in flight.

The run fails unless: every conversation is there exactly once; no durable call was sent again; calls sent again are at
most those in flight at a death; and the SHA-256 of the chat export is that of the undisturbed run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks import recorded
from camel.models.simulator import LogNormal, SimulatorSettings, spawn
from tests.support.crashes import Crashes, Export, Witness, config_of, exported

LATENCY = LogNormal(median=0.01, p99=0.05)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--full", type=int, default=20, help="times the disk is full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulate", type=int, default=0, metavar="SEEDS")
    recorded.option(parser)
    args = parser.parse_args()
    if args.simulate:
        return simulate(args.simulate, args.seed)
    with tempfile.TemporaryDirectory() as root:
        return crash(Path(root), args.conversations, args.kills, args.full, args.seed, record=args.record)


# --- the simulated machine ---------------------------------------------------------------------------------------


def simulate(count: int, first: int) -> int:
    """Run seeds of the simulation that the tests run."""
    from tests.support.simulation import simulate as simulate_one

    started = time.perf_counter()
    ends: Counter[str] = Counter()
    steps = repeats = allowed = 0
    for seed in range(first, first + count):
        try:
            outcome = simulate_one(seed)
        except BaseException:
            print(f"seed {seed} failed; replay it: python -m benchmarks.crash --simulate 1 --seed {seed}")
            raise
        ends += outcome.ends
        steps, repeats, allowed = (
            steps + outcome.steps,
            repeats + outcome.repeats,
            allowed + outcome.allowed,
        )
    print(f"{count:,} seeds from {first} in {time.perf_counter() - started:.0f} s: no violation")
    print(f"{steps:,} steps; {repeats:,} repeated, {allowed:,} were in flight at an end")
    print("starts ended: " + ", ".join(f"{kind} {times:,}" for kind, times in ends.most_common()))
    return 0


# --- undisturbed, then disturbed ----


def crash(root: Path, conversations: int, kills: int, full: int, seed: int, *, record: bool = False) -> int:
    """Run undisturbed, then disturbed, and compare."""
    started = time.perf_counter()
    chance = random.Random(seed)
    ledger = root / "ledger.jsonl"
    settings = SimulatorSettings(words=60, latency=LATENCY, ledger_path=str(ledger))
    with spawn(settings) as endpoint:
        witness = Witness(ledger, endpoint)
        calm = Crashes(config_of(root / "calm", endpoint.base_url, conversations), witness, chance)
        calm.run_undisturbed()
        witness.learn()
        undisturbed = time.perf_counter() - started
        witness.forget()
        run = Crashes(config_of(root / "run", endpoint.base_url, conversations), witness, chance)
        # `random.sample` keeps them in no order, so that every kind meets every part of the run.
        in_commit = -(-kills // 10)
        kinds = ["kill"] * (kills - in_commit) + ["commit"] * in_commit + ["full"] * full
        run.suffer(chance.sample(kinds, len(kinds)))
        if not run.deaths or run.deaths[-1].kind != "complete":
            run.finish()
    return _report(
        run,
        exported(root / "calm"),
        exported(root / "run"),
        undisturbed,
        time.perf_counter() - started,
        len(kinds),
        record,
    )


def _report(
    run: Crashes,
    calm: Export,
    export: Export,
    undisturbed: float,
    seconds: float,
    wanted: int,
    record: bool,
) -> int:
    deaths = [death for death in run.deaths if death.kind != "complete"]
    print(f"{run.scenario.count:,} conversations, {sum(run.witness.lengths.values()):,} calls, ", end="")
    print(f"{run.config.run.concurrency} in flight, shards of {run.config.shard_size}\n")
    print(
        "| starts ended by | times | calls sent | in flight at the end, sum | most |\n|---|---|---|---|---|"
    )
    labels = {
        "kill": "SIGKILL",
        "commit": "SIGKILL in a commit",
        "full": "disk full",
        "complete": "completion",
    }
    for kind, label in labels.items():
        of_kind = [death for death in run.deaths if death.kind == kind]
        flights = [death.in_flight for death in of_kind]
        sent = sum(death.sent for death in of_kind)
        print(f"| {label} | {len(of_kind)} | {sent:,} | {sum(flights):,} | {max(flights, default=0)} |")
    repeats = sum(times - 1 for times in run.sent.values())
    allowed = sum(death.in_flight for death in deaths)
    resent = sum(death.resent_durable for death in run.deaths)
    limit = run.config.run.concurrency
    missing = len(run.witness.calls) - len(run.sent)
    garbage = [
        path
        for part in ("journal", "data")
        for path in (Path(run.config.out) / part).rglob("*")
        if path.is_file()
    ]
    shards = sum(-(-count // size) for _, count, size in run.stages())
    checks = {
        f"{len(deaths)} of {wanted} deaths met": len(deaths) == wanted,
        f"every conversation exactly once ({len(export.ids):,} ids)": export.ids == calm.ids
        and set(export.ids.values()) == {1},
        f"every call was sent ({missing} were not)": missing == 0,
        f"durable calls sent again: {resent}": resent == 0,
        f"calls sent again: {repeats}, in flight at the deaths: {allowed}": repeats <= allowed,
        f"in flight at one death at most the window of {limit}": all(d.in_flight <= limit for d in deaths),
        f"chat export {export.sha256[:16]}… equals the undisturbed run's": export.sha256 == calm.sha256,
        "nothing is left but a file for each shard": len(garbage) == shards,
    }
    print()
    for check, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'}  {check}")
    print(f"\nundisturbed {undisturbed:.1f} s; everything {seconds:.0f} s")
    if record:
        kinds = Counter(death.kind for death in deaths)
        counts = {"kills": kinds["kill"] + kinds["commit"], "full_disks": kinds["full"]}
        recorded.record(
            "crash", {**counts, "sent_again": repeats, "in_flight": allowed, "durable_again": resent}
        )
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
