"""The simulated endpoint for programs and notebooks: answers for any model name, without a key."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.toml import plain_message
from camel.models.simulator import SimulatorProcess, SimulatorSettings, spawn

_DISTRIBUTIONS = ("length", "latency")


@contextmanager
def simulated_endpoint(**settings: Any) -> Generator[SimulatorProcess]:
    """Run a simulated endpoint for the duration of the block. Models without a `base_url` send their calls there.

        with camel.simulated_endpoint(length=5, seed=6) as endpoint:
            RolePlaying("A menu", assistant="Chef", user="Beekeeper", model="gpt-4.1-mini").run()
            print(endpoint.ledger().billed)

    It needs no key and costs nothing. docs/simulator.md lists the settings; a plain number for `length` or `latency`
    applies to every conversation or call.
    """
    given = {
        name: {"kind": "constant", "value": value}
        if name in _DISTRIBUTIONS and isinstance(value, int | float)
        else value
        for name, value in settings.items()
    }
    try:
        checked = msgspec.convert(given, SimulatorSettings)
    except msgspec.ValidationError as error:
        raise InputError(f"invalid setting of the simulated endpoint: {plain_message(error)}") from None
    with spawn(checked) as endpoint:
        # Replace the key, too: a real key must not be sent there.
        ours = {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "none"}
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield endpoint
        finally:
            for name, value in before.items():
                if os.environ.get(name) != ours[name]:
                    continue  # the program has set it meanwhile
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
