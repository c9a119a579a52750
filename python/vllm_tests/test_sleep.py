"""Sleep, wake and pause, through the connector's hooks and the engine's API."""

import time

import pytest
from conftest import OURS

HOOKED = ("--worker-extension-cls", "hooks.Hooks")


@pytest.fixture
def hooked(starter):
    return starter(OURS, OURS, *HOOKED)


@pytest.fixture
def with_stock_decode(starter):
    return starter(OURS, ("stock", "v33"), p_flags=HOOKED)


def rpc(engine, method: str) -> str:
    (answer,) = engine.ask("/collective_rpc", {"method": method})["results"]
    return answer


def test_s02_both_sides_wake_and_go_on(hooked, fresh, expected):
    for engine in (hooked.prefill, hooked.decode):
        assert rpc(engine, "kv_sleep") == "asleep"
        assert rpc(engine, "kv_sleep") == "asleep"
        assert rpc(engine, "kv_wake") == "awake"
        assert rpc(engine, "kv_wake") == "awake"
        prompt = fresh(300)
        answer = hooked.split(prompt, 8)
        assert not answer.errors, answer.errors
        assert answer.tokens[0] == expected(prompt, 8)


def test_l05_a_stock_decode_sends_its_layout_again(with_stock_decode, fresh, expected):
    pair = with_stock_decode
    assert pair.split(fresh(200), 4).tokens
    # Registering again forgets what peers sent [L09].
    rpc(pair.prefill, "kv_sleep")
    rpc(pair.prefill, "kv_wake")
    prompt = fresh(300)
    assert pair.split(prompt, 8).tokens[0] == expected(prompt, 8)
    assert "lost the KV layout" in pair.decode.log()


def test_s01_a_held_request_keeps_its_memory(hooked, fresh, expected):
    prompt = fresh(300)
    p, d = hooked.params()
    hooked.prefill.complete(prompt, 1, p)
    time.sleep(1)
    assert rpc(hooked.prefill, "kv_sleep").startswith("MemoryInUse")
    # The node is as it was.
    assert hooked.decode.complete(prompt, 8, d).tokens[0] == expected(prompt, 8)
    assert rpc(hooked.prefill, "kv_sleep") == "asleep"
    assert rpc(hooked.prefill, "kv_wake") == "awake"


def test_r03_a_pause_wants_held_blocks_back_after_their_budget(hooked, fresh, expected):
    p, d = hooked.params()
    prompt = fresh(300)
    hooked.prefill.complete(prompt, 1, p)
    start = time.monotonic()
    assert hooked.prefill.post("/pause?mode=wait&clear_cache=true") == 200
    took = time.monotonic() - start
    assert took < 30, "far below the time for which a request is held"
    assert hooked.prefill.post("/resume") == 200
    answer = hooked.decode.complete(prompt, 8, d)
    assert answer.errors, "the decode is told that the prefill gave it up"
    prompt = fresh(300)
    assert hooked.split(prompt, 8).tokens[0] == expected(prompt, 8)
