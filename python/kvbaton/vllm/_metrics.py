"""The node's counters under the engine's own /metrics, and in its log line."""

import re
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass
class KvBatonStats(KVConnectorStats):
    """Growth of each counter since the last step, by its name and labels."""

    def reset(self) -> None:
        self.data = {}

    def is_empty(self) -> bool:
        return not self.data

    def aggregate(self, other: KVConnectorStats) -> "KvBatonStats":
        for series, value in other.data.items():
            self.data[series] = self.data.get(series, 0.0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        total = self._total
        loads, held = total("kvbaton_loads_total"), total("kvbaton_sends_total")
        seconds, count = total("kvbaton_load_seconds_sum"), total("kvbaton_load_seconds_count")
        return {
            "Loads": int(loads),
            "Failed loads": int(loads - total('kvbaton_loads_total{outcome="loaded"}')),
            "Avg load time (ms)": round(seconds / count * 1e3, 3) if count else 0,
            "Held requests given back": int(held),
            "Not sent": int(held - total('kvbaton_sends_total{outcome="sent"}')),
            "MB sent": round(total("kvbaton_bytes_written_total") / 2**20, 3),
        }

    def _total(self, prefix: str) -> float:
        return sum(value for series, value in self.data.items() if series.startswith(prefix))


class KvBatonPromMetrics(KVConnectorPromMetrics):
    """One counter per series, made when it first grows."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: dict[str, Any] = {}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        values = self.per_engine_labelvalues[engine_idx]
        for series, growth in transfer_stats_data.items():
            name, _, rest = series.partition("{")
            labels = _LABEL.findall(rest)
            counter = self._counters.get(name)
            if counter is None:
                counter = self._counter_cls(
                    name=f"vllm:{name}",
                    documentation=f"kvbaton's {name}; see its documentation.",
                    labelnames=[*self._labelnames, *(label for label, _ in labels)],
                )
                self._counters[name] = counter
            counter.labels(*values, *(value for _, value in labels)).inc(growth)
