"""Tools with an effect on another process, for runs that are killed."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request

from camel import tool


@tool
def act(id: str) -> str:
    """Do something that must be done once."""
    return _send(id)


@tool(name="act", idempotent=True)
def act_again(id: str) -> str:
    """Do something that may be done twice."""
    return _send(id)


def _send(id: str) -> str:
    body, kind = json.dumps({"id": id}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["CAMEL_TEST_COUNTER"], body, kind)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return str(reply.read().decode())
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.05)  # the server is not there, so nothing was done
