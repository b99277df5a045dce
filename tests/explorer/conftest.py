"""The browsers that the tests of pages share: one of each kind per test process."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.browser import ARGUMENTS
from tests.support.browser import chromium as chromium_path


@pytest.hookimpl(tryfirst=True)  # before xdist puts the group into the names
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have all tests with a browser in one process (`--dist loadgroup`), so that browsers and pages are started once."""
    for item in items:
        if "_driver" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))


class Driver(NamedTuple):
    """Playwright, and the event loop that it keeps running in this thread."""

    playwright: Any
    loop: asyncio.AbstractEventLoop
    path: str | None


def activate(loop: asyncio.AbstractEventLoop | None) -> None:
    """Mark a loop as the running one.

    Playwright's synchronous API leaves its loop marked between two calls, and no other loop can run then. Outside the
    tests that use a browser the mark is removed, so that asynchronous tests run in the same process.
    """
    asyncio._set_running_loop(loop)


@pytest.fixture(scope="session")
def _driver() -> Iterator[Driver]:
    path = chromium_path()
    if path is None and not os.environ.get("CI"):
        pytest.skip("needs chromium: apt-get install chromium-headless-shell")
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    loop = asyncio.get_running_loop()
    activate(None)
    yield Driver(playwright, loop, path)
    activate(loop)
    with warnings.catch_warnings():
        # Playwright leaves its loop's transports to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        playwright.stop()
        activate(None)
        gc.collect()


def launch(driver: Driver, arguments: list[str]) -> Iterator[Any]:
    activate(driver.loop)
    browser = driver.playwright.chromium.launch(executable_path=driver.path, args=arguments)
    activate(None)
    yield browser
    activate(driver.loop)
    browser.close()
    activate(None)


@pytest.fixture(scope="session")
def _chromium(_driver: Driver) -> Iterator[Any]:
    yield from launch(_driver, ARGUMENTS)


@pytest.fixture(scope="session")
def _drawing_chromium(_driver: Driver) -> Iterator[Any]:
    arguments = [one for one in ARGUMENTS if one != "--disable-gpu"] + ["--enable-unsafe-swiftshader"]
    yield from launch(_driver, arguments)


@pytest.fixture
def chromium(_driver: Driver, _chromium: Any) -> Iterator[Any]:
    """Debian's chromium."""
    activate(_driver.loop)
    yield _chromium
    activate(None)


@pytest.fixture
def drawing_chromium(_driver: Driver, _drawing_chromium: Any) -> Iterator[Any]:
    """The same with WebGL in software."""
    activate(_driver.loop)
    yield _drawing_chromium
    activate(None)
