"""Moves the KV of one request from a prefill process to a decode process, with NumPy.

    python examples/two_processes.py

The prefill lives in a child process; both compare every byte in the end.
"""

import multiprocessing
from multiprocessing.connection import Connection

import numpy

import kvbaton

LAYERS, BLOCKS, HEADS, TOKENS, DIM = 2, 64, 2, 16, 64


def tensors(kv: numpy.ndarray) -> list[kvbaton.Tensor]:
    """One tensor per layer; rows are blocks."""
    return [kvbaton.Tensor(f"model.layers.{n}.attn", kv[n]) for n in range(LAYERS)]


def groups() -> list[kvbaton.Group]:
    return [kvbaton.Group(kv_heads=HEADS, block_tokens=TOKENS)]


def filled() -> numpy.ndarray:
    """KV as this example's model computes it."""
    return numpy.random.default_rng(1).random((LAYERS, BLOCKS, HEADS, TOKENS, DIM), "float32")


def prefill(bootstrap: str, pipe: Connection) -> None:
    kv = filled()
    with kvbaton.Node("prefill-1", "prefill", bootstrap=bootstrap) as node:
        node.register(tensors(kv), groups=groups(), model="example", dtype="float32")
        # Blocks 3 to 10 hold the 128 tokens of a finished request.
        node.hold("p-1", "transfer-1", [list(range(3, 11))], end_token=128)
        pipe.send("held")
        print("prefill:", node.wait(30))


def main() -> None:
    with kvbaton.BootstrapServer() as bootstrap:
        ours, theirs = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        child = spawn.Process(target=prefill, args=(bootstrap.url, theirs))
        child.start()
        assert ours.recv() == "held"

        kv = numpy.zeros((LAYERS, BLOCKS, HEADS, TOKENS, DIM), "float32")
        with kvbaton.Node("decode-1", "decode") as node:
            node.register(tensors(kv), groups=groups(), model="example", dtype="float32")
            load = kvbaton.Load(
                "d-1", "transfer-1", "prefill-1", bootstrap.url, [list(range(40, 48))], 128
            )
            node.load(load)
            print("decode: ", node.wait(30))
        child.join()
        assert (kv[:, 40:48] == filled()[:, 3:11]).all()
        print("every byte is equal")


if __name__ == "__main__":
    main()
