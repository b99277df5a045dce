"""A simulated OpenAI-compatible endpoint on loopback, for tests, benchmarks and fault injection.

The one decision to know: it imports nothing from the rest of CAMEL, so that client and simulator cannot share a bug.
Replies depend only on the requests, never on time; its ledger counts what was paid.

    async with Simulator(SimulatorSettings(seed=7)) as sim:     # in this event loop
        ... sim.base_url, sim.ledger.counters

    with spawn(SimulatorSettings(faults={"500": 0.02})) as sim:  # in its own process
        ... sim.base_url, sim.ledger()
"""

from camel.models.simulator.authors import AUTHORS, Author, Facts
from camel.models.simulator.ledger import Counters, Ledger, LedgerRow, read_rows
from camel.models.simulator.server import Simulator, SimulatorProcess, spawn
from camel.models.simulator.settings import (
    Burst,
    CapacityChange,
    Constant,
    FaultKind,
    LogNormal,
    SimulatorSettings,
)

__all__ = [
    "AUTHORS",
    "Author",
    "Burst",
    "CapacityChange",
    "Constant",
    "Counters",
    "Facts",
    "FaultKind",
    "Ledger",
    "LedgerRow",
    "LogNormal",
    "Simulator",
    "SimulatorProcess",
    "SimulatorSettings",
    "read_rows",
    "spawn",
]
