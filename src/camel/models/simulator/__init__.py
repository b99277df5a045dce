"""A simulated OpenAI-compatible endpoint on loopback: the witness for tests, benchmarks and fault drills.

The one decision to know: it imports nothing from the rest of CAMEL, so that no mistake of the client can hide
in code the two share. Replies depend on what was asked and never on when; its ledger counts what was paid.

    async with Simulator(SimulatorSettings(seed=7)) as sim:     # in this event loop
        ... sim.base_url, sim.ledger.counters

    with spawn(SimulatorSettings(faults={"500": 0.02})) as sim:  # in a process of its own
        ... sim.base_url, sim.ledger()
"""

from camel.models.simulator.authors import AUTHORS, Author, Facts
from camel.models.simulator.ledger import Counters, Ledger, LedgerRow, read_rows
from camel.models.simulator.process import SimulatorProcess, spawn
from camel.models.simulator.server import Simulator
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
