"""A real Mooncake transfer engine whose memory others write into: a stock D's data plane.

usage: mooncake_target.py BYTES

First line: {"session": "host:port", "address": ..., "len": ...}. Then answers commands (see
peer_lines): get, sha256, count, put, fill {offset, len, ...}; unregister {}; register {len}
registers the first `len` bytes at the same address again. Both answer {"rc": ...}.
"""

import sys

from peer_lines import say, serve
from peer_memory import Memory
from mooncake.engine import TransferEngine


def main():
    memory = Memory(int(sys.argv[1]))
    engine = TransferEngine()
    started = engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    if started != 0:
        raise SystemExit(f"the transfer engine did not start: {started}")
    registered = engine.register_memory(memory.address, memory.size)
    if registered != 0:
        raise SystemExit(f"the transfer engine did not register memory: {registered}")
    session = f"127.0.0.1:{engine.get_rpc_port()}"
    say({"session": session, "address": memory.address, "len": memory.size})
    serve({
        **memory.operations(),
        "unregister": lambda _: {"rc": engine.unregister_memory(memory.address)},
        "register": lambda c: {"rc": engine.register_memory(memory.address, c["len"])},
    })


main()
