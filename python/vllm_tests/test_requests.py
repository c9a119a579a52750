"""What requests can be and what can happen to them, with our connector on both sides."""

import time

import pytest
from engines import PATIENCE, together


def until(holds, what: str) -> None:
    """Waits until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def loads(engine, outcome: str) -> float:
    return engine.metrics().get(f'vllm:kvbaton_loads_total{{outcome="{outcome}"}}', 0)


def test_a_prefix_that_the_decode_has_is_not_loaded_again(ours, fresh, expected):
    shared = fresh(512)
    ours.split(shared, 4)
    longer = shared + fresh(200)
    before = ours.decode.metrics()
    answer = ours.split(longer, 12)
    assert answer.tokens[0] == expected(longer, 12)
    hits = "vllm:external_prefix_cache_hits_total"
    assert ours.decode.metrics()[hits] - before[hits] == 200


def test_a_full_local_hit_loads_nothing_and_p_is_released(ours, fresh, expected):
    # Whole blocks only are hits: the prompt is one block longer than what is cached of it.
    prompt = fresh(256)
    want = expected(prompt, 12)
    assert ours.split(prompt, 12).tokens[0] == want
    assert ours.split(prompt, 12).tokens[0] == want
    until(lambda: held(ours.prefill) == 0, "P gets its blocks back")


def held(engine) -> float:
    """Blocks in use, as a share, once the engine has heard of what was given back."""
    engine.complete([5, 6, 7], 1)
    return engine.metrics()["vllm:kv_cache_usage_perc"]


def test_a_stop_token_as_the_only_one_of_p_is_complete(ours, fresh, expected):
    prompt = fresh(300)
    first = expected(prompt, 1)[0]
    p, d = ours.params()
    before = loads(ours.decode, "loaded")
    answer = ours.prefill.complete(prompt, 1, p, stop_token_ids=[first], ignore_eos=False)
    assert answer.reasons == ["stop"]
    answer = ours.decode.complete(prompt, 8, d)
    assert answer.tokens[0] == expected(prompt, 8)
    until(lambda: loads(ours.decode, "loaded") == before + 1, "the KV was loaded")


def test_samples_of_one_request_share_its_transfer(ours, fresh, expected):
    prompt = fresh(300)
    # The likeliest token only: greedy by another name, as greedy allows one sample only.
    answer = ours.split(prompt, 8, n=3, temperature=1, top_k=1)
    assert not answer.errors, answer.errors
    assert answer.tokens == [expected(prompt, 8)] * 3


@pytest.mark.parametrize("missing", ["transfer_id", "remote_engine_id", "remote_bootstrap_addr"])
def test_parameters_that_cannot_be_followed_are_computed_here(ours, fresh, expected, missing):
    prompt = fresh(100)
    _, d = ours.params()
    del d[missing]
    assert ours.decode.complete(prompt, 8, d).tokens[0] == expected(prompt, 8)
    assert f"`{missing}` is missing" in ours.decode.log()


def test_a_client_that_disconnects_in_mid_load_costs_no_blocks(ours, fresh, expected):
    prompt = fresh(600)
    _, d = ours.params()
    before = loads(ours.decode, "dropped")
    # P never hears of the request, so the load waits.
    with ours.decode.completing(prompt, 8, {**d}, stream=True) as _:
        pass
    until(lambda: loads(ours.decode, "dropped") == before + 1, "the load is dropped")
    until(lambda: held(ours.decode) == 0, "D gets its blocks back")
    assert ours.split(prompt, 8).tokens[0] == expected(prompt, 8)


def test_a_client_that_disconnects_in_mid_prefill_is_told_to_d(ours, fresh):
    prompt = fresh(4000)
    p, d = ours.params()

    def disconnects():
        import http.client
        import json

        connection = http.client.HTTPConnection("127.0.0.1", ours.prefill.port)
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "kv_transfer_params": p}
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        time.sleep(0.5)
        connection.close()

    start = time.monotonic()
    _, answer = together([disconnects, lambda: ours.decode.complete(prompt, 4, d)])
    # The policy is to fail: no answer that is wrong, and long before any timeout. (P may have
    # been faster than the client.)
    assert answer.errors or answer.tokens[0], answer
    assert time.monotonic() - start < 120


def test_p_sleeps_while_a_request_waits_that_nobody_pulls(ours, fresh):
    p, _ = ours.params()
    ours.prefill.complete(fresh(300), 1, p)
    # The engine's own busy loops run for some seconds after the last step.
    time.sleep(8)
    before, start = ours.prefill.cpu_seconds(), time.monotonic()
    time.sleep(20)
    share = (ours.prefill.cpu_seconds() - before) / (time.monotonic() - start)
    assert share < 0.04, f"{share:.1%} of a core for all of P's processes"
