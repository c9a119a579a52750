"""The connector that vLLM loads::

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "KvBatonConnector",
        "kv_connector_module_path": "kvbaton.vllm", "kv_role": "kv_producer"}'

Works with vLLM 0.32 and 0.33. Request parameters and bootstrap server are those of the
Mooncake connector, which may be the peer on either side. What it decides is decided in
Rust (``SchedulerSide``, ``WorkerSide``); this package translates the engine's hooks.
"""

from kvbaton.vllm._connector import KvBatonConnector

__all__ = ["KvBatonConnector"]
