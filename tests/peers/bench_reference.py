"""The reference's control plane: one steady pull at P, 146 regions in 4 groups, 32 blocks each.

usage: VLLM_SRC=FOLDER bench_reference.py WIRE_VECTORS.json [--quick]

Prints one JSON object: {"engine", "layout_every_pull": STEPS, "layout_less": STEPS}, where
STEPS holds {"p50_us", "p99_us"} for decode, lookup, validate, plan and whole, and the number
of descriptors planned.
"""

import argparse
import asyncio
import json
import logging
import statistics
import time

import msgspec

import vllm_reference
from peer_lines import say

FULL, SHORT = "146 regions with layout", "146 regions layout-less"
GROUPS, BLOCKS = 4, 32


def percentiles(seconds):
    ordered = sorted(seconds)
    return {
        "p50_us": round(statistics.median(ordered) * 1e6, 3),
        "p99_us": round(ordered[len(ordered) * 99 // 100] * 1e6, 3),
    }


class Producer:
    """The reference's P, with one D's layout remembered."""

    def __init__(self, vectors):
        self.module = vllm_reference.load()
        pulls = {pull["name"]: pull for pull in vectors["pulls"]}
        self.full = bytes.fromhex(pulls[FULL]["hex"])
        self.short = bytes.fromhex(pulls[SHORT]["hex"])
        self.worker = vllm_reference.worker(
            self.module, pulls[FULL]["fields"], GROUPS, tp_rank=1, tp_size=4, heads=1, latent=True)
        self.decoder = msgspec.msgpack.Decoder(self.module.MooncakeXferMetadata)
        self.held = self.module.SendBlockMeta(
            p_req_id="p", transfer_id="x", ready=None,
            local_block_ids=[list(range(100, 100 + BLOCKS))] * GROUPS)
        self.loop = asyncio.new_event_loop()
        self.worker._prepare_transfer_regions(self.decoder.decode(self.full))

    def pull(self, payload):
        """Handles one pull; returns the clock after each step, and the descriptors."""
        clock = [time.perf_counter()]
        meta = self.decoder.decode(payload)
        clock.append(time.perf_counter())
        if payload is self.short:
            local, remote = self.worker._lookup_peer_layout(meta)
        else:
            local, remote, _ = self.worker._prepare_transfer_regions(meta)
        clock.append(time.perf_counter())
        self.module._validate_asymmetric_region_lengths(local, remote, 4, 4, True, None)
        clock.append(time.perf_counter())
        ready = [(next(iter(meta.req_blocks)), self.held)]
        planned = self.loop.run_until_complete(
            self.worker._build_transfer_params(ready, meta, local, remote))
        clock.append(time.perf_counter())
        return clock, len(planned[0])

    def measure(self, payload, pulls):
        runs = [self.pull(payload) for _ in range(pulls)]
        names = ["decode", "lookup", "validate", "plan"]
        steps = {
            name: percentiles([clock[i + 1] - clock[i] for clock, _ in runs])
            for i, name in enumerate(names)
        }
        steps["whole"] = percentiles([clock[-1] - clock[0] for clock, _ in runs])
        return {**steps, "descriptors": runs[0][1], "payload_bytes": len(payload)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vectors", help="wire.json of core/tests/vectors")
    parser.add_argument("--quick", action="store_true", help="fewer pulls")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with open(options.vectors, encoding="utf-8") as file:
        producer = Producer(json.load(file))
    pulls = 100 if options.quick else 500
    say({
        "engine": "vLLM 0.33.0 Mooncake connector",
        "layout_every_pull": producer.measure(producer.full, pulls),
        "layout_less": producer.measure(producer.short, pulls),
    })


main()
