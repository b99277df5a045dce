"""What an emergence study at the paper's size costs besides the models: its Table 2 planted, found again, and timed.

    python -m benchmarks.emergence [--latency 0.5]     5 models, 120 questions, 5 comparisons in both orders

CPU seconds and counts do not depend on what else the machine does; seconds by the clock do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
import tomllib


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--latency", type=float, default=0.0)
    options = parser.parse_args()
    from camel.core.toml import convert_table
    from camel.jobs.runner import Runner
    from camel.models.simulator import Constant, SimulatorSettings, spawn
    from camel.reports.html import write_report
    from camel.training.emergence.emergence_config import EmergenceConfig
    from camel.training.emergence.emergence_report import report
    from camel.training.emergence.experiment import Emergence
    from camel.training.emergence.results import PAPER, figures
    from tests.support import emergences

    os.environ["OPENAI_API_KEY"] = "none"
    latency = Constant(options.latency) if options.latency else None
    settings = SimulatorSettings(author="tests.support.emergences:author", latency=latency)
    with tempfile.TemporaryDirectory() as folder, spawn(settings) as endpoint:
        config = convert_table({**tomllib.loads(emergences.config()), "out": folder}, EmergenceConfig)
        began, cpu = time.perf_counter(), time.process_time()
        study = Emergence(config, base_url=endpoint.base_url)
        planned = sum(need.calls for _, need in study.estimate())
        assert asyncio.run(Runner(study, concurrency=16).run()).status == "complete"
        asked = time.perf_counter() - began, time.process_time() - cpu
        calls = endpoint.ledger()
        made, _, _ = figures(study)
        counted = time.process_time() - cpu - asked[1]
        write_report(study.out, report(made), made)
        names = {one.title: one.name for one in made.domains}
        found: dict[tuple[int, int], dict[str, tuple[int, int, int]]] = {}
        for one in made.table:
            counts = one.draws.count, one.before_wins.count, one.after_wins.count
            found.setdefault(one.seen, {})[names[one.domain]] = counts
        print(
            json.dumps(
                {
                    "table equals the planted one": found == PAPER,
                    "calls planned": planned,
                    "calls made": calls.requests,
                    "seconds": round(asked[0], 2),
                    "CPU ms a call": round(1e3 * asked[1] / calls.requests, 2),
                    "CPU s of the figures": round(counted, 2),
                    "CPU s of the report": round(time.process_time() - cpu - asked[1] - counted, 2),
                    "sure cells of the paper's 20": sum(one.sure for one in made.table),
                },
                indent=2,
            )
        )


if __name__ == "__main__":
    main()
