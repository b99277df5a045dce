"""Signals during a conversation are handled between two steps, never in the middle of one."""

from __future__ import annotations

import asyncio
import signal

import pytest

from camel.cli.session import SignalHandler


async def test_a_signal_is_handled_after_what_it_interrupted():
    writing, handled = False, 0

    def intercept() -> bool:
        nonlocal handled
        assert not writing, "the terminal is being written to"
        handled += 1
        return True

    with SignalHandler(intercept) as handler:
        handler.task = asyncio.current_task()
        for count in (1, 2):
            writing = True
            signal.raise_signal(signal.SIGINT)
            writing = False
            await asyncio.sleep(0)
            assert handled == count
        assert handler.received is None


async def test_a_signal_that_is_not_intercepted_cancels():
    async def converse() -> None:
        handler.task = asyncio.current_task()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(3600)

    with SignalHandler(lambda: True) as handler, pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(converse())
    assert (handler.received, handler.exit_status) == (signal.SIGTERM, 128 + signal.SIGTERM)


async def test_a_second_signal_interrupts_a_blocked_loop():
    with SignalHandler(lambda: True) as handler:
        handler.task = asyncio.current_task()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
