"""What importing CAMEL and asking for help cost, and how many packages a core install is.

CPU seconds of a whole process, its interpreter's start included; the least of several.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from benchmarks import recorded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    recorded.option(parser)
    args = parser.parse_args()
    nothing = least("pass", args.rounds)
    imported = least("import camel", args.rounds)
    helped = least(
        "import sys; sys.argv = ['camel', '--help']; from camel.cli import main; main()", args.rounds
    )
    packages = len(core())
    print("| what | figure |\n|---|---|")
    print(f"| an interpreter that does nothing, CPU s | {nothing:.3f} |")
    print(f"| import camel, CPU s | {imported:.3f} |\n| camel --help, CPU s | {helped:.3f} |")
    print(f"| packages in a core install, CAMEL's own included | {packages} |")
    if args.record:
        recorded.record(
            "imports", {"import_cpu_s": imported, "help_cpu_s": helped, "core_packages": packages}
        )
    return 0


def least(code: str, rounds: int) -> float:
    """The least user and system time of so many interpreters that run `code`."""
    found: list[float] = []
    for _ in range(rounds):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, code
        found.append(usage.ru_utime + usage.ru_stime)
    return min(found)


def core() -> set[str]:
    """The distributions that a core install brings."""
    from importlib.metadata import requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: set[str] = set()
    waiting = ["camel-society"]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found.add(name)
        needed = [Requirement(line) for line in requires(name) or []]
        waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


if __name__ == "__main__":
    sys.exit(main())
