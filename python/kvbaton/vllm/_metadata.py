"""What travels between the scheduler's process and the workers', with each step."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)


@dataclass
class KvBatonMetadata(KVConnectorMetadata):
    """Orders, as the Rust side wrote them."""

    orders: bytes = b""
    # Holds that the engine itself waits for, and their requests.
    waited_for: dict[int, str] = field(default_factory=dict)


@dataclass
class KvBatonWorkerMetadata(KVConnectorWorkerMetadata):
    """Holds that workers gave back, and how many workers did."""

    given_back: dict[int, int]

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "KvBatonWorkerMetadata":
        assert isinstance(other, KvBatonWorkerMetadata)
        both = dict(self.given_back)
        for hold, workers in other.given_back.items():
            both[hold] = both.get(hold, 0) + workers
        return KvBatonWorkerMetadata(both)
