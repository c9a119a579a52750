"""vLLM's own Mooncake connector, without vLLM: the parts that decode, look up and plan.

The connector's file is parsed, and only the classes, functions and methods named below are
compiled, with small stand-ins for what they import. So what is measured is the reference's
own code. VLLM_SRC names the folder into which the wheel was unpacked
(`cargo xtask setup --bench-peers` makes it).
"""

import ast
import asyncio
import collections
import dataclasses
import enum
import itertools
import logging
import os
import sys
import types
import typing

import msgspec
import numpy

PATH = "vllm/distributed/kv_transfer/kv_connector/v1/mooncake/mooncake_connector.py"
FUNCTIONS = {
    "_block_ids_for_region", "_get_tp_ratio", "_expand_transfer_regions",
    "_compute_sender_transfer_plan", "_can_coalesce_block_transfers",
    "_validate_asymmetric_region_lengths", "_align_transfer_regions",
    "_coalesce_contiguous_transfer_regions", "_has_opaque_packed_row",
    "_pp_mismatch_hides_packed_layers", "group_concurrent_contiguous",
}
CLASSES = {
    "TransferRegion", "MooncakeXferMetadata", "MooncakeXferResponseStatus",
    "MooncakeXferResponse", "SendBlockMeta",
}
WORKER = "MooncakeConnectorWorker"
METHODS = {
    "_prepare_transfer_regions", "_peer_layout_key", "_remember_peer_layout",
    "_lookup_peer_layout", "_get_transfer_regions", "_get_sender_transfer_plan",
    "_validate_head_resharding_layout", "_build_transfer_params",
    "_logical_to_kernel_block_ids", "_producer_cache_is_replicated", "_build_pull_metadata",
}
CONSTANTS = {"_SHARED_REGION_GROUP_ID", "_MAX_PEER_LAYOUTS"}


class MambaSpec:
    """Stands for the spec of a state group."""


class AttentionSpec:
    """Stands for the spec of an attention group without padding or quantization."""

    page_size_bytes = 1
    unpadded_page_size_bytes = 1
    kv_quant_mode = types.SimpleNamespace(is_nvfp4=False)


def wanted(node):
    """The part of a top-level statement that is compiled, or None."""
    if isinstance(node, ast.FunctionDef):
        return node if node.name in FUNCTIONS else None
    if isinstance(node, ast.ClassDef) and node.name == WORKER:
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        node.body = [m for m in node.body if isinstance(m, functions) and m.name in METHODS]
        node.bases = []
        return node
    if isinstance(node, ast.ClassDef):
        return node if node.name in CLASSES else None
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        name = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return node if isinstance(name, ast.Name) and name.id in CONSTANTS else None
    return None


def load():
    """The connector's module, with what is named above."""
    source = os.path.join(os.environ["VLLM_SRC"], PATH)
    with open(source, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    future = ast.parse("from __future__ import annotations").body
    parts = [part for part in map(wanted, tree.body) if part is not None]
    module = types.ModuleType("vllm_reference_connector")
    sys.modules[module.__name__] = module
    vars(module).update(
        asyncio=asyncio, itertools=itertools, msgspec=msgspec, np=numpy,
        OrderedDict=collections.OrderedDict, defaultdict=collections.defaultdict,
        dataclass=dataclasses.dataclass, IntEnum=enum.IntEnum, Any=typing.Any,
        Final=typing.Final, logger=logging.getLogger("reference"), NULL_BLOCK_ID=0,
        MambaSpec=MambaSpec, AttentionSpec=AttentionSpec, ReqId=str, TransferId=str,
        EngineId=str,
    )
    code = ast.Module(body=future + parts, type_ignores=[])
    exec(compile(code, source, "exec"), vars(module))
    return module


def worker(module, fields, groups, tp_rank, tp_size, heads, latent):
    """A P worker whose registered layout is the one in a pull's `fields`."""
    made = object.__new__(getattr(module, WORKER))
    made.tp_rank, made.tp_size, made.pp_size = tp_rank, tp_size, 1
    made.kv_caches_base_addr = fields["kv_caches_base_addr"]
    made.block_len_per_layer = fields["block_lens"]
    made.kv_block_len_per_layer = fields["kv_block_lens"]
    made.registered_layer_names = fields["registered_layer_names"]
    made.registered_layer_indices = fields["registered_layer_indices"]
    made.registered_group_indices = fields["registered_group_indices"]
    made.region_shared_groups = [tuple(ids) for ids in fields["registered_shared_group_ids"]]
    made.region_row_offsets = fields["registered_row_offsets"]
    made._prepared_transfer_regions = {}
    made._layout_by_peer = collections.OrderedDict()
    made.use_mla = latent
    made._physical_blocks_per_logical_kv_block = 1
    made.opaque_packed_storages = set()
    made._layer_specs = collections.defaultdict(AttentionSpec)
    made.kv_cache_config = types.SimpleNamespace(
        transfer_groups=[types.SimpleNamespace(kv_cache_spec=AttentionSpec())] * groups,
        has_mamba_layers=False,
        transfer_group_index_by_layer=dict(
            zip(made.registered_layer_names, made.registered_group_indices)),
    )
    made.transfer_topo = types.SimpleNamespace(
        total_num_kv_heads=heads, local_replicates_kv_cache=latent or tp_size > heads)
    return made
