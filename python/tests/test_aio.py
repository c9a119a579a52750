"""The asyncio forms."""

import asyncio

import pytest

import kvbaton
from conftest import PATIENCE


def test_a_whole_transfer_without_blocking_the_loop(pair):
    async def transfer():
        prefill, decode = pair.prefill.aio, pair.decode.aio
        waiting = asyncio.ensure_future(decode.events())
        await prefill.hold("p-1", "t-1", [[3]])
        await decode.load(pair.load("d-1", "t-1", [9]))
        (loaded,) = await asyncio.wait_for(waiting, PATIENCE)
        (sent,) = await asyncio.wait_for(prefill.events(), PATIENCE)
        return loaded, sent, await decode.status()

    loaded, sent, status = asyncio.run(transfer())
    assert loaded.outcome == "loaded" and sent.sent
    assert status["loads"] == 0
    assert (pair.target[:, 9] == pair.source[:, 3]).all()


def test_errors_are_raised_where_they_are_awaited(pair):
    async def twice():
        await pair.prefill.aio.hold("p-1", "t-1", [[3]])
        await pair.prefill.aio.hold("p-2", "t-1", [[4]])

    with pytest.raises(kvbaton.HoldRefused):
        asyncio.run(twice())


def test_a_cancelled_call_harms_nobody(pair):
    async def cancelled():
        waiting = asyncio.ensure_future(pair.decode.aio.events())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    # An event that a call took which nobody waits for is lost with that call, so the
    # next one is asked for only now.
    pair.prefill.hold("p-1", "t-1", [[3]])
    pair.prefill.release("t-1")
    assert pair.prefill.wait(PATIENCE)[0].reason == "Released"


def test_memory_sleeps_and_wakes(pair):
    async def cycle():
        await pair.decode.aio.unregister(PATIENCE)
        asleep = (await pair.decode.aio.status())["registration"]
        await pair.decode.aio.restore()
        return asleep, (await pair.decode.aio.status())["registration"]

    assert asyncio.run(cycle()) == ("unregistered", "registered")
