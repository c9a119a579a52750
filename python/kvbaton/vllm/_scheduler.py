"""The scheduler's side: the engine's objects in, plain values to Rust."""

import itertools
import sys
import weakref
from typing import Any

from vllm.logger import init_logger
from vllm.v1.kv_cache_interface import SlidingWindowSpec
from vllm.v1.request import RequestStatus

from kvbaton._kvbaton import ConnectorSettings, SchedulerSide
from kvbaton.vllm._metadata import KvBatonMetadata

logger = init_logger("vllm.kvbaton.scheduler")

# A request that ended so has all of its prompt computed; a stop token may be its only one.
COMPLETE = {RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED}


class Scheduler:
    """Hooks of the scheduler's process. None of them waits."""

    def __init__(self, vllm_config, kv_cache_config, settings: ConnectorSettings) -> None:
        role = vllm_config.kv_transfer_config
        groups = [_group(group.kv_cache_spec) for group in kv_cache_config.transfer_groups]
        replayed = any(
            getattr(group.kv_cache_spec, "prefix_replay_tokens", 0) > 0
            for group in kv_cache_config.kv_cache_groups
        )
        self.side = SchedulerSide(
            groups,
            recompute_last=kv_cache_config.has_mamba_layers or replayed,
            workers=vllm_config.parallel_config.world_size,
            sends=role.is_kv_producer,
            loads=role.is_kv_consumer,
            pause_drain=settings.pause_drain,
        )
        self.block_pool: Any = None
        self._kv_cache_config = kv_cache_config
        self._settings = settings
        self._manager: Any = None
        self._engine: Any = None
        # Hold → the engine's blocks that are kept for it, or the request that it waits for.
        self._kept: dict[int, list[Any]] = {}
        self._waited_for: dict[int, str] = {}

    def bind(self, kv_cache_manager) -> None:
        """Called from the engine's scheduler, once it has its blocks."""
        self._manager = kv_cache_manager
        engine = _calling_scheduler()
        if engine is None:
            logger.warning(
                "The engine's scheduler was not found: held requests keep the engine awake"
            )
            return
        self._engine = weakref.ref(engine)

    def added(self, request) -> None:
        params = request.kv_transfer_params
        if not params:
            return
        shorten, problem = self.side.added(
            request.request_id, params, request.num_prompt_tokens
        )
        if problem is not None:
            logger.warning("Request %s is computed here alone: %s", request.request_id, problem)
        if shorten and not request.get_skip_reading_prefix_cache():
            _leave_last_token(request)

    def matched(self, request, computed: int) -> tuple[int | None, bool]:
        tokens = self.side.matched(request.request_id, request.num_prompt_tokens, computed)
        return tokens, bool(tokens)

    def allocated(self, request, blocks, external: int) -> None:
        if not self.side.knows(request.request_id):
            return
        ids = blocks.get_unhashed_block_ids_all_groups() if external > 0 else ()
        self.side.allocated(request.request_id, external, self._transferred(ids))

    def finished(self, request, block_ids) -> tuple[bool, dict[str, Any] | None]:
        if not self.side.knows(request.request_id):
            return False, None
        hold = self.side.finished(
            request.request_id,
            request.status in COMPLETE,
            request.num_computed_tokens,
            self._transferred(block_ids),
        )
        if hold is None:
            return False, None
        if not self._may_idle():
            self._waited_for[hold] = request.request_id
            return True, None
        # The blocks get one more owner. The engine forgets the request and may sleep.
        groups = self._manager.get_blocks(request.request_id).blocks
        kept = list(itertools.chain.from_iterable(groups))
        self.block_pool.touch(kept)
        self._kept[hold] = kept
        return False, None

    def _may_idle(self) -> bool:
        """Whether blocks can be kept without keeping the engine awake: a pause must still
        be able to wait for them."""
        engine = self._engine() if self._engine is not None else None
        idle = engine is not None and self.block_pool is not None
        return idle and self._settings.idle_while_holding

    def must_step(self) -> bool:
        engine = self._engine() if self._engine is not None else None
        if engine is None:
            return self.side.must_step(False)
        return self.side.must_step(engine.pause_state.name != "UNPAUSED")

    def orders(self) -> KvBatonMetadata:
        waited_for, self._waited_for = self._waited_for, {}
        return KvBatonMetadata(self.side.orders(), waited_for)

    def hear(self, output) -> None:
        if output.finished_recving:
            self.side.loads_ended(list(output.finished_recving))
        told = output.kv_connector_worker_meta
        if told is None:
            return
        for hold in self.side.given_back(list(told.given_back.items())):
            kept = self._kept.pop(hold, None)
            if kept is not None:
                # What comes last in the request is reused first.
                self.block_pool.free_blocks(reversed(kept))

    def _transferred(self, ids) -> list[list[int]]:
        groups = self._kv_cache_config.transfer_group_ids
        if len(ids) in (0, len(groups)):
            return list(ids)
        return list(self._kv_cache_config.select_transfer_block_ids(ids))


def _group(spec) -> tuple[int, int]:
    """Tokens per block, and the sliding window if there is one."""
    window = spec.sliding_window if isinstance(spec, SlidingWindowSpec) else 0
    return spec.block_size, window


def _leave_last_token(request) -> None:
    """D computes the last prompt token, from the state before it."""
    if request.prompt_token_ids is not None:
        request.prompt_token_ids.pop()
    elif request.prompt_embeds is not None:
        request.prompt_embeds = request.prompt_embeds[:-1]
    else:
        return
    request._all_token_ids.pop()
    request.num_prompt_tokens -= 1
    request.max_tokens = 1


def _calling_scheduler() -> Any:
    """The engine's scheduler, which calls this from its constructor. The engine gives
    connectors no other way to know whether it is paused."""
    frame = sys._getframe(1)
    for _ in range(8):
        if frame is None:
            return None
        caller = frame.f_locals.get("self")
        # Of the class: the object is not complete yet.
        if hasattr(type(caller), "pause_state"):
            return caller
        frame = frame.f_back
    return None
