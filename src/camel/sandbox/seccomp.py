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

from camel.core.errors import InputError

_X86_64 = (
    # The most frequent calls come first, because the filter checks in order.
    *(0, 1, 9, 11, 12, 202, 228, 262, 257, 3, 5, 8, 217),
    # mprotect, rt_sigaction, rt_sigprocmask, rt_sigreturn, pread64, readv, writev, access, faccessat, faccessat2
    *(10, 13, 14, 15, 17, 19, 20, 21, 269, 439),
    # execve, exit, exit_group, arch_prctl, getcwd, readlink, readlinkat, sysinfo
    *(59, 60, 231, 158, 79, 89, 267, 99),
    # identity: get(e)uid, get(e)gid, get(p)pid, gettid
    *(102, 107, 104, 108, 39, 110, 186),
    # set_tid_address, set_robust_list, rseq, prlimit64, getrlimit, setrlimit, getrandom
    *(218, 273, 334, 302, 97, 160, 318),
    # open, stat, lstat, statx, fcntl, dup, dup2, dup3
    *(2, 4, 6, 332, 72, 32, 33, 292),
    # clock_getres, gettimeofday, time, nanosleep, clock_nanosleep, sched_yield, sigaltstack, mremap, madvise
    *(229, 96, 201, 35, 230, 24, 131, 25, 28),
    # poll, ppoll, select, pselect6, uname, times, getrusage, sched_getaffinity, restart_syscall
    *(7, 271, 23, 270, 63, 100, 98, 204, 219),
)
_AARCH64 = (
    *(63, 64, 222, 215, 214, 98, 113, 79, 56, 57, 80, 62, 61),
    *(226, 134, 135, 139, 67, 65, 66, 48, 439),
    *(221, 93, 94, 17, 78, 179),
    *(174, 175, 176, 177, 172, 173, 178),
    *(96, 99, 293, 261, 163, 164, 278),
    *(291, 25, 23, 24),
    *(114, 169, 101, 115, 124, 132, 216, 233),
    *(73, 72, 160, 153, 165, 123, 128),
)
_MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
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
    architecture, allowed = _MACHINES[machine]
    lines: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),  # the convention of the call
        (_EQUAL, 1, 0, architecture),
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
