"""What the tests share: memory, nodes of both sides."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy
import pytest

import kvbaton

LAYERS, BLOCKS, HEADS, TOKENS, DIM = 2, 32, 2, 16, 8
SHAPE = (LAYERS, BLOCKS, HEADS, TOKENS, DIM)
# Longest wait for anything that must happen, in seconds; a test that waits so long failed.
PATIENCE = 60


def random_kv(seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).random(SHAPE, "float32")


def tensors(kv: numpy.ndarray) -> list[kvbaton.Tensor]:
    return [kvbaton.Tensor(f"model.layers.{n}.attn", kv[n]) for n in range(len(kv))]


def register(node: kvbaton.Node, kv, dtype: str = "float32") -> None:
    """Registers an array of `SHAPE`, or tensors."""
    described = tensors(kv) if isinstance(kv, numpy.ndarray) else kv
    group = kvbaton.Group(kv_heads=HEADS, block_tokens=TOKENS)
    node.register(described, groups=[group], model="test", dtype=dtype, kv_heads=HEADS)


@dataclass
class Pair:
    """A prefill and a decode with memory."""

    prefill: kvbaton.Node
    decode: kvbaton.Node
    source: numpy.ndarray
    target: numpy.ndarray
    bootstrap: str

    def load(self, request: str, transfer: str, blocks: list[int], end: int | None = None):
        return kvbaton.Load(request, transfer, "prefill-1", self.bootstrap, [blocks], end)


@pytest.fixture
def pair() -> Iterator[Pair]:
    source, target = random_kv(1), numpy.zeros(SHAPE, "float32")
    with (
        kvbaton.BootstrapServer() as server,
        kvbaton.Node("prefill-1", "prefill", bootstrap=server.url) as prefill,
        kvbaton.Node("decode-1", "decode", load_timeout=PATIENCE) as decode,
    ):
        register(prefill, source)
        register(decode, target)
        yield Pair(prefill, decode, source, target, server.url)
