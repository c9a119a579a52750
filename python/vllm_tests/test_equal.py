"""Greedy output over a prefill and a decode equals a plain server's, for every pairing."""

import pytest
from engines import together

SIDES = [("ours", "v33"), ("ours", "v32"), ("stock", "v32"), ("stock", "v33")]
PAIRINGS = [
    (p, d)
    for p in SIDES
    for d in SIDES
    # Stock with stock is not ours to test.
    if "ours" in (p[0], d[0])
]
LENGTHS = [9, 100, 300, 1000, 4000]


def name(side) -> str:
    return "-".join(side)


@pytest.fixture(params=PAIRINGS, ids=lambda it: f"{name(it[0])}_to_{name(it[1])}", scope="module")
def pair(request, starter):
    return starter(*request.param)


def test_output_is_equal_and_all_of_it_came_from_the_prefill(pair, fresh, expected):
    before = pair.decode.metrics()
    tokens = 0
    for length in LENGTHS:
        for concurrent in (False, True):
            prompt = fresh(length)
            answer = pair.split(prompt, 16, concurrent)
            assert not answer.errors, answer.errors
            assert answer.tokens[0] == expected(prompt, 16), (length, concurrent)
            tokens += length
    hits = "vllm:external_prefix_cache_hits_total"
    assert pair.decode.metrics()[hits] - before.get(hits, 0) == tokens


def test_eight_at_once_are_equal(pair, fresh, expected):
    prompts = [fresh(length) for length in (9, 50, 100, 150, 200, 300, 500, 1000)]
    answers = together([lambda it=it: pair.split(it, 12) for it in prompts])
    for prompt, answer in zip(prompts, answers, strict=True):
        assert not answer.errors, answer.errors
        assert answer.tokens[0] == expected(prompt, 12), len(prompt)
