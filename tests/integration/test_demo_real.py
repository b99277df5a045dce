"""`camel demo` with the real model, up to a page of the explorer; a shorter one than a user's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pytest

from camel.generation.init import write_demo


@pytest.mark.real_model
def test_the_demo_ends_in_the_explorer(tmp_path: Path):
    scenario = write_demo(tmp_path / "demo").parent / "scenario/scenario.toml"
    text = scenario.read_text()
    for long, short in (('"Lighthouse Keeper", "Baker"', ""), ("max_messages = 4", "max_messages = 2")):
        assert long in text
        text = text.replace(long, short)
    scenario.write_text(text)
    command = [sys.executable, "-m", "camel", "demo", "demo", "--live", "--no-open"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        try:
            for line in process.stdout:
                said += line
                if found := re.search(r"(http://127\.0\.0\.1:\d+/)\S*", line):
                    break
            else:
                pytest.fail(said)
            browser = build_opener(ProxyHandler({}), HTTPCookieProcessor())
            browser.open(found[0], timeout=60).close()  # stores the token
            with browser.open(found[1], timeout=60) as page:
                shown = page.read().decode()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
    assert "complete: 1 conversation " in said
    assert "demonstration" in shown
