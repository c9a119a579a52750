"""Where prefill ranks announce themselves: as the Mooncake connector does, so that
routers need no change."""

from vllm import envs


def rank(parallel) -> int:
    """Data-parallel rank under which an engine is listed."""
    local = parallel.data_parallel_rank_local
    return local if parallel.local_engines_only else parallel.data_parallel_index


def is_ours(parallel, configured: str | None) -> bool:
    """Whether this engine runs the server: one for all engines behind one balancer, one
    for each where every instance is balanced by itself."""
    return configured is None and rank(parallel) == 0


def address(parallel, configured: str | None) -> tuple[str, int]:
    """Host and port of the server."""
    if configured is not None:
        host, _, port = configured.rpartition(":")
        return host, int(port)
    if parallel.local_engines_only:
        host = "127.0.0.1"
    elif parallel.nnodes_within_dp > 1:
        host = parallel.master_addr
    else:
        host = parallel.data_parallel_master_ip
    return host, envs.VLLM_MOONCAKE_BOOTSTRAP_PORT
