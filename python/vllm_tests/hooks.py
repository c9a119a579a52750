"""What tests call inside of vLLM's workers (`--worker-extension-cls hooks.Hooks`), through
its /collective_rpc: the connector's sleep hooks, which the CPU platform never calls itself."""


class Hooks:
    """Becomes a base of the worker's class."""

    def kv_sleep(self) -> str:
        """What the worker does before its KV memory is unmapped."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        try:
            get_kv_transfer_group().unregister_kv_caches()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "asleep"

    def kv_wake(self) -> str:
        """What it does once that memory is mapped again."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        get_kv_transfer_group().restore_kv_caches()
        return "awake"
