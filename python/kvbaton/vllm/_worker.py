"""A worker's side: tensors to the node, orders to Rust, results to the engine."""

from typing import Any

from vllm import envs
from vllm.distributed.kv_transfer.kv_connector.utils import (
    get_current_attn_backends,
    get_current_attn_backends_and_specs,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.distributed.parallel_state import get_pp_group, get_tp_group
from vllm.logger import init_logger
from vllm.utils.network_utils import get_ip
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    CircularBufferSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
)
from vllm.v1.worker.utils import select_common_block_size

from kvbaton import BootstrapServer, Group, Tensor, log_to_stderr
from kvbaton._kvbaton import ConnectorSettings, WorkerSide
from kvbaton.vllm._bootstrap import address, is_ours, rank
from kvbaton.vllm._metadata import KvBatonMetadata, KvBatonWorkerMetadata
from kvbaton.vllm._metrics import KvBatonStats

logger = init_logger("vllm.kvbaton.worker")


class Worker:
    """Hooks of one worker's process. Only registering and unregistering wait."""

    def __init__(self, vllm_config, kv_cache_config, settings: ConnectorSettings) -> None:
        log_to_stderr()
        transfer, parallel = vllm_config.kv_transfer_config, vllm_config.parallel_config
        tp, pp = get_tp_group(), get_pp_group()
        host = settings.host or get_ip()
        sends = transfer.is_kv_producer
        self._server: BootstrapServer | None = None
        given: dict[str, Any] = {
            "host": host,
            "tp_rank": tp.rank_in_group,
            "tp_size": tp.world_size,
            "pp_rank": pp.rank_in_group,
            "pp_size": pp.world_size,
            "dp_rank": rank(parallel),
            "hold_timeout": envs.VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT,
            "load_timeout": envs.VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT + 60,
            # A prefill's bootstrap server dies with it; its requests shall end soon.
            "query_within": 3,
        }
        if sends:
            where, port = address(parallel, settings.bootstrap_server_address)
            first = tp.rank_in_group == 0 and pp.rank_in_group == 0
            if first and is_ours(parallel, settings.bootstrap_server_address):
                everywhere = "127.0.0.1" if host.startswith("127.") else "0.0.0.0"
                self._server = BootstrapServer(everywhere, port)
            given["bootstrap"] = f"http://{where}:{port}"
        role = {"kv_producer": "prefill", "kv_consumer": "decode"}.get(transfer.kv_role, "both")
        self._node = settings.start_node(transfer.engine_id, role, given)
        self._side = WorkerSide(self._node, len(kv_cache_config.transfer_groups))
        self._settings = settings
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._waited_for: dict[int, str] = {}
        self._bad_blocks: set[int] = set()
        self._given_back: list[int] = []
        logger.info(
            "kvbaton %s: engine %s, data plane %s", role, transfer.engine_id, self._node.session
        )

    def register(self, kv_caches) -> None:
        config = self._kv_cache_config
        specs = {
            name: getattr(group.kv_cache_spec, "kv_cache_specs", {}).get(name, group.kv_cache_spec)
            for group in config.transfer_groups
            for name in group.layer_names
        }
        group_of = config.transfer_group_index_by_layer
        tensors = [
            Tensor(
                name,
                cache,
                group=group_of[name],
                kind=_kind(specs[name]),
                page_size=specs[name].page_size_bytes,
            )
            for name, cache in kv_caches.items()
            if name in specs
        ]
        model, cache = self._vllm_config.model_config, self._vllm_config.cache_config
        kv_heads = 0 if model.use_mla else model.get_total_num_kv_heads()
        dtype = str(model.dtype) if cache.cache_dtype == "auto" else cache.cache_dtype
        self._node.register(
            tensors,
            groups=[_group(group, kv_heads) for group in config.transfer_groups],
            blocks=config.num_blocks,
            kernel_blocks_per_block=self._kernel_blocks_per_block(),
            padded_pages=any(map(_is_padded, specs.values())),
            model=self._settings.model_name or _model_name(model),
            dtype=dtype.removeprefix("torch."),
            kv_heads=kv_heads,
        )

    def unregister(self) -> None:
        self._node.unregister(self._settings.sleep_drain)

    def restore(self) -> None:
        self._node.restore()

    def follow(self, metadata: KvBatonMetadata) -> None:
        self._waited_for.update(metadata.waited_for)
        self._side.follow(metadata.orders)

    def results(self) -> KVConnectorTransferResults:
        received, failed, bad_blocks, given_back = self._side.report()
        self._bad_blocks.update(bad_blocks)
        self._given_back += given_back
        sent = {self._waited_for.pop(hold) for hold in given_back if hold in self._waited_for}
        return KVConnectorTransferResults(sent, set(received), set(failed))

    def take_bad_blocks(self) -> set[int]:
        taken, self._bad_blocks = self._bad_blocks, set()
        return taken

    def take_metadata(self) -> KvBatonWorkerMetadata | None:
        if not self._given_back:
            return None
        taken, self._given_back = self._given_back, []
        return KvBatonWorkerMetadata(dict.fromkeys(taken, 1))

    def stats(self) -> KvBatonStats | None:
        grown = self._side.stats()
        return None if grown is None else KvBatonStats(data=grown)

    def close(self) -> None:
        self._node.close()
        if self._server is not None:
            self._server.close()

    def _kernel_blocks_per_block(self) -> int:
        """Blocks of the memory per block of the scheduler."""
        size = self._vllm_config.cache_config.block_size
        backends = get_current_attn_backends(self._vllm_config)
        backends, specs = get_current_attn_backends_and_specs(
            self._vllm_config, self._kv_cache_config, backends
        )
        return size // select_common_block_size(size, backends, specs)


def _kind(spec) -> str:
    if isinstance(spec, (MLAAttentionSpec, SlidingWindowMLASpec)):
        return "latent"
    if isinstance(spec, MambaSpec):
        return "state"
    return "circular" if isinstance(spec, CircularBufferSpec) else "attention"


def _group(group, kv_heads: int) -> Group:
    spec = group.kv_cache_spec
    any_layer = next(iter(getattr(spec, "kv_cache_specs", {}).values()), spec)
    kind = _kind(any_layer)
    return Group(
        "state" if kind == "state" else "attention",
        kv_heads=kv_heads,
        replicated=kind == "latent",
        block_tokens=spec.block_size,
    )


def _is_padded(spec) -> bool:
    """Whether a page's heads cannot be told apart."""
    if not isinstance(spec, AttentionSpec):
        return False
    padded = spec.page_size_bytes > getattr(spec, "unpadded_page_size_bytes", spec.page_size_bytes)
    return padded or getattr(spec.kv_quant_mode, "is_nvfp4", False)


def _model_name(model) -> str:
    """What makes KV of two engines comparable, wherever their weights lie."""
    text = model.hf_text_config
    sizes = f"{text.num_hidden_layers} layers of {model.get_hidden_size()}"
    return f"{'+'.join(model.architectures)}, {sizes}, heads of {model.get_head_size()}"
