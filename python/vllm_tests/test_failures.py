"""Engines that die, differ, or are set up wrongly."""

import signal
import threading
import time

import pytest
from conftest import OURS, Starter
from engines import Engine, Pair, connector

# A dead peer is found out within this many seconds.
SOON = 5


@pytest.fixture
def own(logs):
    """A pair that the test may destroy."""
    starter = Starter(logs / "own")
    (logs / "own").mkdir(exist_ok=True)
    yield starter
    starter.stop()


def test_a_dead_prefill_ends_the_decodes_requests_soon(own, fresh, expected, logs):
    pair = own(OURS, OURS)
    prompt = fresh(300)
    assert pair.split(prompt, 8).tokens[0] == expected(prompt, 8)
    _, d = pair.params()
    _, later = pair.params()
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(pair.decode.complete(fresh(300), 8, d))
    )
    waiting.start()
    time.sleep(1)
    start = time.monotonic()
    pair.prefill.stop(signal.SIGKILL)
    waiting.join()
    assert answers[0].errors and time.monotonic() - start < SOON
    start = time.monotonic()
    answer = pair.decode.complete(fresh(300), 8, later)
    assert answer.errors and time.monotonic() - start < SOON, answer
    # What needs no prefill goes on.
    assert pair.decode.complete(prompt, 8).tokens[0] == expected(prompt, 8)
    # A restarted one is found.
    prefill = Engine("v33", connector("ours", "p"), bootstrap=pair.prefill.bootstrap,
                     log=logs / "restarted.log")  # fmt: skip
    try:
        again = Pair(prefill.ready(), pair.decode)
        prompt = fresh(300)
        assert again.split(prompt, 8).tokens[0] == expected(prompt, 8)
    finally:
        prefill.stop()


def test_a_dead_decode_costs_the_prefill_nothing(own, fresh, expected, logs):
    pair = own(OURS, OURS)
    pair.split(fresh(300), 4)
    pair.decode.stop(signal.SIGKILL)
    prompt = fresh(300)
    assert pair.prefill.complete(prompt, 8).tokens[0] == expected(prompt, 8)
    decode = Engine("v33", connector("ours", "d"), log=logs / "decode-restarted.log")
    try:
        again = Pair(pair.prefill, decode.ready())
        prompt = fresh(300)
        assert again.split(prompt, 8).tokens[0] == expected(prompt, 8)
    finally:
        decode.stop()


def test_a_failed_load_is_recomputed_where_the_policy_says_so(starter, fresh, expected):
    pair = starter(OURS, OURS, d_more={"kv_load_failure_policy": "recompute"})
    prompt = fresh(300)
    _, d = pair.params()
    d["remote_engine_id"] = "an engine that is gone"
    answer = pair.decode.complete(prompt, 8, d)
    assert not answer.errors and answer.tokens[0] == expected(prompt, 8)


def test_another_dtype_is_refused_with_both_names(starter, fresh):
    pair = starter(OURS, OURS, d_dtype="bfloat16")
    answer = pair.split(fresh(300), 8)
    assert answer.errors
    log = pair.decode.log()
    assert "float32" in log and "bfloat16" in log and "differ" in log


@pytest.mark.parametrize(
    ("p_flags", "d_flags"),
    [
        (("--tensor-parallel-size", "2"), ()),
        ((), ("--tensor-parallel-size", "2")),
        (("--block-size", "32"), ("--block-size", "32")),
    ],
    ids=["tp2-to-tp1", "tp1-to-tp2", "blocks-of-32"],
)
def test_shapes(starter, fresh, expected, p_flags, d_flags):
    pair = starter(OURS, OURS, p_flags=p_flags, d_flags=d_flags)
    for length in (100, 300, 1000):
        prompt = fresh(length)
        answer = pair.split(prompt, 12)
        assert not answer.errors, answer.errors
        assert answer.tokens[0] == expected(prompt, 12), length


def test_a_wrong_setting_stops_the_engine_and_is_named(logs):
    config = connector("ours", "d", {"load_timeoutt": 5})
    engine = Engine("v33", config, log=logs / "wrong-setting.log")
    log = engine.fails_to_start()
    assert "kv_connector_extra_config: setting `load_timeoutt` is not known" in log
