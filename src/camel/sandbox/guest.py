"""Runs inside the sandbox: loads a program, calls its function on request, and answers with plain values.

The sources of `values` and this module are sent through the pipe as code, so there is nothing of CAMEL in the sandbox. The
one decision to know: nothing here is trusted after the program is loaded. The program may change this code and write
anything to the pipe; all it can achieve is to answer with other plain values.
"""

# pyright: reportUndefinedVariable=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportMissingParameterType=false, reportUnknownParameterType=false

import io
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from camel.sandbox.values import NotPlain, decode, encode

READY, VALUE, RAISED, FOREIGN = b"+", b"V", b"R", b"X"


class Nowhere(io.TextIOBase):
    """A replacement for a program's standard output that discards everything."""

    def write(self, text: str) -> int:
        """Discard the text and return its length."""
        return len(text)


def main() -> None:
    """Run one program: answer calls to its function until the pipe closes."""
    requests, answers = os.dup(0), os.dup(1)
    for standard in (0, 1, 2):
        os.close(standard)
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(""), Nowhere(), Nowhere()
    sys.__stdin__ = sys.__stdout__ = sys.__stderr__ = None  # pyright: ignore[reportAttributeAccessIssue]

    def read(size: int) -> bytes:
        parts = []
        while size:
            part = os.read(requests, min(size, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def hear() -> bytes:
        return read(int.from_bytes(read(4), "big"))

    def say(kind: bytes, data: bytes = b"") -> None:
        view = memoryview((1 + len(data)).to_bytes(4, "big") + kind + data)
        while view:
            view = view[os.write(answers, view) :]

    def attempt(make) -> bytes | None:
        """Return the result of `make`. If it raises, send the exception to the host and return None."""
        try:
            return make()
        except NotPlain as error:
            say(FOREIGN, str(error).encode("utf-8", "replace")[:200])
        except BaseException as error:
            said = f"{type(error).__name__}: {_text(error)}"
            say(RAISED, said.encode("utf-8", "replace")[:400])
        return None

    source, entry, limits = decode(hear())
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    say(READY)

    module = sys.modules["candidate"] = type(sys)("candidate")
    namespace = module.__dict__

    def load() -> bytes:
        exec(compile(source, "candidate.py", "exec", dont_inherit=True), namespace)  # noqa: S102
        if not callable(namespace.get(entry)):
            raise NameError(f"there is no function {entry}")
        return b""

    if attempt(load) is None:
        os._exit(0)
    say(READY)
    while True:
        asked = decode(hear())
        answer = attempt(lambda asked=asked: encode(namespace[entry](*asked[0], **asked[1])))
        if answer is not None:
            say(VALUE, answer)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return ""


if __name__ == "__main__":
    main()
