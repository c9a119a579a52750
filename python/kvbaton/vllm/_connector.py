"""The class that vLLM makes, once in its scheduler's process and once in each worker's."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvbaton._kvbaton import ConnectorSettings
from kvbaton.vllm._metadata import KvBatonMetadata, KvBatonWorkerMetadata
from kvbaton.vllm._metrics import KvBatonPromMetrics, KvBatonStats
from kvbaton.vllm._scheduler import Scheduler
from kvbaton.vllm._worker import Worker


class KvBatonConnector(KVConnectorBase_V1, SupportsHMA):
    """KV over kvbaton: a decode pulls, a prefill pushes.

    ``kv_role`` says which sides an engine plays; ``kv_connector_extra_config`` takes the
    settings that the README lists.
    """

    _cache_hit_source = CacheHitSource.P2P

    def __init__(self, vllm_config, role: KVConnectorRole, kv_cache_config) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        settings = ConnectorSettings(self._kv_transfer_config.kv_connector_extra_config)
        self._scheduler: Scheduler | None = None
        self._worker: Worker | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = Scheduler(vllm_config, kv_cache_config, settings)
        else:
            self._worker = Worker(vllm_config, kv_cache_config, settings)

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config) -> str | None:
        """Heads outermost in each block, so that they can be split between ranks."""
        model = vllm_config.model_config
        return None if model is None or model.use_mla else "LBHNC"

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config) -> bool:
        """Memory can be registered again at any time [S03]."""
        return True

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()

    # The scheduler's hooks.

    def bind_gpu_block_pool(self, gpu_block_pool) -> None:
        if self._scheduler is not None:
            self._scheduler.block_pool = gpu_block_pool

    def bind_kv_cache_manager(self, kv_cache_manager) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        if self._scheduler is not None:
            self._scheduler.bind(kv_cache_manager)

    def get_loaded_kv_cache_group_ids(self, request) -> tuple[int, ...]:
        return self._kv_cache_config.transfer_group_ids

    def on_new_request(self, request) -> None:
        self._scheduler.added(request)

    def get_num_new_matched_tokens(self, request, num_computed_tokens) -> tuple[int | None, bool]:
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request, blocks, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output) -> KvBatonMetadata:
        return self._scheduler.orders()

    def update_connector_output(self, connector_output) -> None:
        self._scheduler.hear(connector_output)

    def request_finished(self, request, block_ids) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler.finished(request, (block_ids,))

    def request_finished_all_groups(self, request, block_ids) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler.finished(request, block_ids)

    def has_pending_push_work(self) -> bool:
        return self._scheduler is not None and self._scheduler.must_step()

    def abort_transfers(self) -> None:
        """Wants the blocks of held requests back, for engines that ask for it."""
        self._scheduler.side.release_all()

    # The workers' hooks.

    def register_kv_caches(self, kv_caches) -> None:
        self._worker.register(kv_caches)

    def unregister_kv_caches(self) -> None:
        self._worker.unregister()

    def restore_kv_caches(self) -> None:
        self._worker.restore()

    def start_load_kv(self, forward_context, **kwargs: Any) -> None:
        self._worker.follow(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads end between steps; there is nothing to wait for."""

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs: Any) -> None:
        """KV is read where it lies."""

    def wait_for_save(self) -> None:
        """KV is read where it lies."""

    def get_finished(self, finished_req_ids) -> tuple[set[str] | None, set[str] | None]:
        results = self.get_transfer_results(finished_req_ids)
        return results.finished_sending or None, results.finished_recving or None

    def get_transfer_results(self, finished_req_ids) -> KVConnectorTransferResults:
        return self._worker.results()

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.take_bad_blocks()

    def build_connector_worker_meta(self) -> KvBatonWorkerMetadata | None:
        return self._worker.take_metadata()

    # Statistics.

    def get_kv_connector_stats(self) -> KvBatonStats | None:
        return self._worker.stats() if self._worker is not None else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KvBatonStats:
        return KvBatonStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return KvBatonPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


# The engine's composite looks its children up by name when it adds up their statistics.
if KvBatonConnector.__name__ not in KVConnectorFactory._registry:
    KVConnectorFactory.register_connector(
        KvBatonConnector.__name__, "kvbaton.vllm", KvBatonConnector.__name__
    )
