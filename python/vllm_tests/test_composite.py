"""Our connector as a child of the engine's MultiConnector."""

import pytest
from engines import Engine, Pair, connector


@pytest.fixture(scope="module")
def composite(logs):
    def multi(role: str) -> dict:
        children = [connector("ours", role)]
        whole = connector("ours", role)
        return {
            "kv_connector": "MultiConnector",
            "kv_role": whole["kv_role"],
            "kv_connector_extra_config": {"connectors": children},
        }

    prefill = Engine("v33", multi("p"), log=logs / "multi-p.log")
    decode = Engine("v33", multi("d"), log=logs / "multi-d.log")
    try:
        yield Pair(prefill.ready(), decode.ready())
    finally:
        prefill.stop()
        decode.stop()


def test_a_child_of_the_engines_composite(composite, fresh, expected):
    for length in (100, 1000):
        prompt = fresh(length)
        answer = composite.split(prompt, 8)
        assert not answer.errors, answer.errors
        assert answer.tokens[0] == expected(prompt, 8)
    loaded = 'vllm:kvbaton_loads_total{outcome="loaded"}'
    assert composite.decode.metrics()[loaded] == 2
