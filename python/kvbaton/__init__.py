"""kvbaton for Python: KV cache from prefill engines (P) to decode engines (D).

A ``Node`` is one rank of one engine. P *holds* finished requests, D *loads* them, events
say when blocks are the engine's again::

    with kvbaton.BootstrapServer() as bootstrap:
        p = kvbaton.Node("prefill-1", "prefill", bootstrap=bootstrap.url)
        p.register([kvbaton.Tensor("layers.0", p_kv)])
        p.hold("p-1", "transfer-1", [[3, 4]])

        d = kvbaton.Node("decode-1", "decode")
        d.register([kvbaton.Tensor("layers.0", d_kv)])
        d.load(kvbaton.Load("d-1", "transfer-1", "prefill-1", bootstrap.url, [[7, 8]]))
        print(d.wait(10))

``node.aio`` has the same calls for asyncio; ``kvbaton.vllm`` is the connector that vLLM
loads; ``python -m kvbaton doctor`` says what works on this machine.
"""

from kvbaton._kvbaton import (
    AsyncNode,
    BootstrapServer,
    ConfigError,
    Group,
    HoldRefused,
    KvBatonError,
    LayoutError,
    Load,
    LoadEnded,
    LoadRefused,
    MemoryInUse,
    Node,
    RegistrationFailed,
    SendEnded,
    Stopped,
    Tensor,
    TransportError,
    __version__,
    log_to_stderr,
)

__all__ = [
    "AsyncNode",
    "BootstrapServer",
    "ConfigError",
    "Group",
    "HoldRefused",
    "KvBatonError",
    "LayoutError",
    "Load",
    "LoadEnded",
    "LoadRefused",
    "MemoryInUse",
    "Node",
    "RegistrationFailed",
    "SendEnded",
    "Stopped",
    "Tensor",
    "TransportError",
    "__version__",
    "log_to_stderr",
]
