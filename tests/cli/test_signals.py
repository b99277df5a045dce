"""Signals during a conversation: answered between two steps, never in the middle of one."""

from __future__ import annotations

import asyncio
import signal

import pytest

from camel.cli.leaving import Leaving


async def test_a_signal_is_answered_after_what_it_interrupted():
    writing, answered = False, 0

    def spare() -> bool:
        nonlocal answered
        assert not writing, "the terminal is being written to"
        answered += 1
        return True

    with Leaving(spare) as leaving:
        leaving.task = asyncio.current_task()
        for count in (1, 2):
            writing = True
            signal.raise_signal(signal.SIGINT)
            writing = False
            await asyncio.sleep(0)
            assert answered == count
        assert leaving.heard is None


async def test_a_signal_that_is_not_spared_cancels():
    async def converse() -> None:
        leaving.task = asyncio.current_task()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(3600)

    with Leaving(lambda: True) as leaving, pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(converse())
    assert (leaving.heard, leaving.code) == (signal.SIGTERM, 128 + signal.SIGTERM)


async def test_a_second_signal_interrupts_a_loop_that_does_not_turn():
    with Leaving(lambda: True) as leaving:
        leaving.task = asyncio.current_task()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
