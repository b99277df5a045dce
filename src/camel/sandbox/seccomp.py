"""The system calls that a sandboxed interpreter may make, as a seccomp filter.

The one decision to know: other calls fail with "operation not permitted", and the program continues. There is no fork, no
thread, no socket, no signal to others, nothing that creates, renames or removes a file, and none of the calls that are often
used in attacks on kernels (io_uring, bpf, user namespaces, keys, ptrace, perf, userfaultfd …). `execve` is allowed, because
it starts the interpreter itself; whatever it starts has the same filter, and there is nothing else to start.
"""

from __future__ import annotations

import platform
import struct
from functools import cache
from pathlib import Path

from camel.core.errors import InputError
from camel.core.toml import read_table

_MACHINES = read_table(Path(__file__).with_name("seccomp.toml"))
"""The number of the architecture and the allowed calls, by machine."""
_CLONE3 = 435
_X32 = 0x40000000
"""First system call number of another convention (x32) on x86_64. Such calls would bypass the list."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NOT_PERMITTED, _NO_SUCH_CALL = 1, 38


@cache
def filter_program(machine: str = "") -> bytes:
    """Return the seccomp filter, as bubblewrap passes it to the kernel. `machine` defaults to the type of this machine."""
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        known = " and ".join(_MACHINES)
        raise InputError(f"the sandbox supports {known}, not {machine}: use such a machine")
    allowed: list[int] = _MACHINES[machine]["calls"]
    lines: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),  # the convention of the call
        (_EQUAL, 1, 0, _MACHINES[machine]["architecture"]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # its number
        (_AT_LEAST, len(allowed) + 3, 0, _X32),
        # The C library tries this call first, and the forbidden ones below only if it does not exist.
        (_EQUAL, len(allowed) + 3, 0, _CLONE3),
    ]
    lines += [(_EQUAL, len(allowed) - place, 0, number) for place, number in enumerate(allowed)]
    lines += [
        (_RETURN, 0, 0, _ERROR | _NOT_PERMITTED),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _KILL),
        (_RETURN, 0, 0, _ERROR | _NO_SUCH_CALL),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
