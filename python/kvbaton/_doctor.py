"""The checks of ``python -m kvbaton doctor``."""

import importlib.metadata
import importlib.util
import json
import platform
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import kvbaton

# Releases of vLLM that the connector is tested with.
TESTED = ("0.32", "0.33")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    fine: bool
    says: str


def examine(host: str, bootstrap: str | None) -> Iterator[Check]:
    """Runs every check; none raises."""
    python = f"kvbaton {kvbaton.__version__}, Python {platform.python_version()}"
    yield Check("module", True, f"{python} on {sys.platform}")
    yield _guard("transfer", lambda: _transfer(host))
    yield _guard("vllm", _vllm)
    if bootstrap:
        yield _guard("bootstrap", lambda: _bootstrap(bootstrap))


def _guard(name, check) -> Check:
    try:
        return Check(name, True, check())
    except Exception as error:  # whatever it is, the operator wants to read it
        return Check(name, False, f"{type(error).__name__}: {error}")


def _transfer(host: str) -> str:
    """KV between two nodes of this process, compared."""
    blocks, row = 256, 64 << 10
    source = bytearray(bytes(range(251)) * (blocks * row // 251 + 1))[: blocks * row]
    target = bytearray(blocks * row)

    def described(kv: bytearray) -> list[kvbaton.Tensor]:
        return [kvbaton.Tensor("layers.0", memoryview(kv).cast("B", (blocks, row)))]

    with (
        kvbaton.BootstrapServer(host) as server,
        kvbaton.Node("doctor-p", "prefill", host=host, bootstrap=server.url) as prefill,
        kvbaton.Node("doctor-d", "decode", host=host) as decode,
    ):
        prefill.register(described(source))
        decode.register(described(target))
        all_blocks = [list(range(blocks))]
        prefill.hold("p", "t", all_blocks)
        start = time.perf_counter()
        decode.load(kvbaton.Load("d", "t", "doctor-p", server.url, all_blocks))
        ended = decode.wait(30)
        took = time.perf_counter() - start
    if not ended:
        raise RuntimeError("the load did not end within 30 s; is the machine overloaded?")
    if ended[0].outcome != "loaded":
        raise RuntimeError(f"the load ended with {ended[0]!r}")
    if source != target:
        raise RuntimeError("the bytes differ after the transfer; please report this")
    return f"{blocks * row >> 20} MiB over {host} in {took * 1e3:.1f} ms, every byte equal"


def _vllm() -> str:
    """A vLLM that the connector is tested with, if any."""
    if importlib.util.find_spec("vllm") is None:
        return "not installed, so kvbaton.vllm cannot be used here"
    version = importlib.metadata.version("vllm")
    if not version.startswith(TESTED):
        raise RuntimeError(f"vLLM {version} is installed; the connector is tested with {TESTED}")
    return f"vLLM {version}; the connector is kvbaton.vllm.KvBatonConnector"


def _bootstrap(url: str) -> str:
    """Who is registered at a bootstrap server."""
    with urllib.request.urlopen(f"{url.rstrip('/')}/query", timeout=5) as answer:
        engines = json.load(answer)
    if not engines:
        raise RuntimeError(f"{url} answers, but no prefill is registered there")
    ranks = [
        f"{it['engine_id']} ({sum(map(len, it['worker_addr'].values()))} ranks)"
        for it in engines.values()
    ]
    return f"{url} lists {', '.join(ranks)}"
