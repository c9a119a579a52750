"""The module: transfers, events, errors."""

import gc
import threading
import weakref

import numpy
import pytest

import kvbaton
from conftest import PATIENCE, SHAPE, random_kv, register


def ended(node: kvbaton.Node):
    (event,) = node.wait(PATIENCE)
    return event


def test_kv_arrives_and_both_sides_are_told_once(pair):
    pair.prefill.prefill_started("p-1", "t-1")
    pair.prefill.hold("p-1", "t-1", [[3, 4, 5]], 48)
    pair.decode.load(pair.load("d-1", "t-1", [9, 10, 11], 48))
    loaded, sent = ended(pair.decode), ended(pair.prefill)
    assert (loaded.request, loaded.transfer, loaded.outcome) == ("d-1", "t-1", "loaded")
    assert (sent.request, sent.transfer, sent.sent, sent.reason) == ("p-1", "t-1", True, None)
    assert (pair.target[:, 9:12] == pair.source[:, 3:6]).all()
    assert not pair.target[:, :9].any() and not pair.target[:, 12:].any()
    assert pair.decode.poll() == [] and pair.prefill.poll() == []


def test_a06_a_prefix_hit_takes_the_tail(pair):
    pair.prefill.hold("p-1", "t-1", [[3, 4, 5]], 48)
    pair.decode.load(pair.load("d-1", "t-1", [9], 48))
    assert ended(pair.decode).outcome == "loaded"
    assert (pair.target[:, 9] == pair.source[:, 5]).all()


def test_p10_a_request_that_is_never_loaded_releases_its_prefill(pair):
    pair.prefill.hold("p-1", "t-1", [[3]])
    pair.decode.release_remote(pair.load("d-1", "t-1", []))
    assert ended(pair.prefill).reason == "Released"
    assert pair.decode.poll() == []


def test_a_dropped_load_gives_its_blocks_back_without_p(pair):
    pair.decode.load(pair.load("d-1", "never-held", [9]))
    pair.decode.drop(["d-1", "unknown"])
    assert ended(pair.decode).outcome == "dropped"


def test_a_failed_load_says_why_to_machines_and_people(pair):
    pair.prefill.abort("t-1")
    pair.decode.load(pair.load("d-1", "t-1", [9]))
    event = ended(pair.decode)
    assert event.outcome == "failed"
    assert "Aborted" in event.reason and event.message


def test_p11_a_transfer_id_in_use_is_refused(pair):
    pair.prefill.hold("p-1", "t-1", [[3]])
    with pytest.raises(kvbaton.HoldRefused, match="t-1"):
        pair.prefill.hold("p-2", "t-1", [[4]])
    with pytest.raises(kvbaton.LoadRefused, match="d-1"):
        pair.decode.load(pair.load("d-1", "a", [9]))
        pair.decode.load(pair.load("d-1", "b", [10]))


def test_loads_together_are_answered_one_by_one(pair):
    first, again = pair.load("d-1", "t-1", [9]), pair.load("d-1", "t-2", [10])
    taken, refused = pair.decode.load_all([first, again])
    assert taken is None and isinstance(refused, kvbaton.LoadRefused)


def test_s01_memory_in_use_stays_registered(pair):
    pair.prefill.hold("p-1", "t-1", [[3]])
    with pytest.raises(kvbaton.MemoryInUse, match="t-1|held"):
        pair.prefill.unregister(0.01)
    assert pair.prefill.status()["registration"] == "registered"
    pair.prefill.release("t-1")
    pair.prefill.unregister(PATIENCE)
    pair.prefill.unregister()  # [S02]
    assert pair.prefill.status()["registration"] == "unregistered"


def test_s02_restored_memory_moves_again(pair):
    for node in (pair.prefill, pair.decode):
        node.unregister(PATIENCE)
        node.restore()
        node.restore()
    pair.prefill.hold("p-1", "t-1", [[3]])
    pair.decode.load(pair.load("d-1", "t-1", [9]))
    assert ended(pair.decode).outcome == "loaded"
    assert (pair.target[:, 9] == pair.source[:, 3]).all()


def test_another_dtype_is_refused_with_both_values(pair):
    with kvbaton.Node("decode-2", "decode") as other:
        register(other, numpy.zeros(SHAPE, "float32"), dtype="bfloat16")
        pair.prefill.hold("p-1", "t-1", [[3]])
        other.load(pair.load("d-1", "t-1", [9]))
        message = ended(other).message
    assert "float32" in message and "bfloat16" in message


def test_waiting_releases_the_gil(pair):
    # The waiting thread sits in the node; with the GIL held this thread could not go on.
    results = []
    waiting = threading.Thread(target=lambda: results.extend(pair.decode.wait(PATIENCE)))
    waiting.start()
    pair.prefill.hold("p-1", "t-1", [[3]])
    pair.decode.load(pair.load("d-1", "t-1", [9]))
    waiting.join()
    assert results[0].outcome == "loaded"


def test_memory_is_kept_while_the_node_may_touch_it():
    kv = random_kv(2)
    alive = weakref.ref(kv)
    node = kvbaton.Node("n", "decode")
    register(node, kv)
    del kv
    gc.collect()
    assert alive() is not None
    node.close()
    gc.collect()
    assert alive() is None


def test_read_only_memory_is_for_prefills_only():
    frozen = bytes(64 * 16)
    view = memoryview(frozen).cast("B", (16, 64))
    with kvbaton.Node("d", "decode") as node, pytest.raises(kvbaton.LayoutError, match="read-only"):
        node.register([kvbaton.Tensor("layers.0", view)])
    with kvbaton.Node("p", "prefill") as node:
        node.register([kvbaton.Tensor("layers.0", view)])


def test_plain_addresses_are_memory_too(pair):
    kv = numpy.zeros(SHAPE, "float32")
    row, layer = kv[0, 0].nbytes, kv[0].nbytes
    with kvbaton.Node("decode-2", "decode") as node:
        tensors = [
            kvbaton.Tensor.at(
                f"model.layers.{n}.attn",
                kv.ctypes.data + n * layer,
                SHAPE[1:],
                element_size=4,
                storage=(kv.ctypes.data, kv.nbytes),
                page_size=row,
            )
            for n in range(len(kv))
        ]
        register(node, tensors)
        pair.prefill.hold("p-1", "t-1", [[3]])
        node.load(pair.load("d-1", "t-1", [9]))
        assert ended(node).outcome == "loaded"
    assert (kv[:, 9] == pair.source[:, 3]).all()


def test_a_closed_node_says_so():
    node = kvbaton.Node("n")
    node.close()
    node.close()
    with pytest.raises(kvbaton.Stopped):
        node.poll()


def test_metrics_are_prometheus_text(pair):
    pair.prefill.hold("p-1", "t-1", [[3]])
    pair.decode.load(pair.load("d-1", "t-1", [9]))
    assert ended(pair.decode).outcome == "loaded"
    assert 'kvbaton_loads_total{outcome="loaded"} 1' in pair.decode.metrics()
