"""Types that annotations may name."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from kvbaton._kvbaton import LoadEnded, SendEnded

Role = Literal["prefill", "decode", "both"]
Kind = Literal["attention", "latent", "state", "circular"]
Blocks = Sequence[Sequence[int]]
Event = SendEnded | LoadEnded


class Settings(TypedDict, total=False):
    """Keywords of ``Node``; durations are in seconds. None counts as absent."""

    tp_rank: int | None
    tp_size: int | None
    pp_rank: int | None
    pp_size: int | None
    dp_rank: int | None
    bootstrap: str | None
    senders: int | None
    senders_per_peer: int | None
    hold_timeout: float | None
    pull_timeout: float | None
    answer_margin: float | None
    write_timeout: float | None
    max_transfers: int | None
    load_timeout: float | None
    max_loads: int | None
    stock_quarantine: float | None
    peer_layouts: int | None
    announce_every: float | None
    drain_on_stop: float | None
    host: str | None
    advertise_host: str | None
    control_port: int | None
    data_port: int | None
    connections_per_peer: int | None
    allow_stock_peers: bool | None
    query_within: float | None
    cluster_key: str | None
    cluster_key_file: str | None
    allowed_networks: Sequence[str] | str | None


class Status(TypedDict):
    registration: Literal[
        "new", "registered", "draining", "releasing", "unregistered", "restoring"
    ]
    held: int
    transfers: int
    writes: int
    open_pulls: int
    loads: int
    peer_layouts: int
    bytes_sent: int
    bytes_received: int
    refused_grant: int
    refused_generation: int
    refused_range: int
    refused_connections: int
