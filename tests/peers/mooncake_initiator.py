"""A real Mooncake transfer engine that writes into others' memory: a stock P's data plane.

usage: mooncake_initiator.py BYTES

First line: {"session": "host:port", "address": ..., "len": ...} of its own memory. Then answers
commands (see peer_lines): those of its memory, and
  write {session, offset, address, len}         one write from `offset` to the peer's `address`
  batch {session, copies: [[offset, address, len], ...]}   one batch
which answer {"rc": 0 or an error, "seconds": ...}. MC_TRANSFER_TIMEOUT (seconds) bounds a write.
"""

import sys
import time

from peer_lines import say, serve
from peer_memory import Memory
from mooncake.engine import TransferEngine


def timed(action):
    """The action's return code, and how long it took."""
    begin = time.monotonic()
    code = action()
    return {"rc": code, "seconds": time.monotonic() - begin}


def main():
    memory = Memory(int(sys.argv[1]))
    engine = TransferEngine()
    started = engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    if started != 0:
        raise SystemExit(f"the transfer engine did not start: {started}")
    registered = engine.register_memory(memory.address, memory.size)
    if registered != 0:
        raise SystemExit(f"the transfer engine did not register memory: {registered}")

    def write(command):
        source = memory.address + command["offset"]
        return timed(lambda: engine.transfer_sync_write(
            command["session"], source, command["address"], command["len"]))

    def batch(command):
        sources = [memory.address + offset for offset, _, _ in command["copies"]]
        targets = [address for _, address, _ in command["copies"]]
        lengths = [length for _, _, length in command["copies"]]
        return timed(lambda: engine.batch_transfer_sync_write(
            command["session"], sources, targets, lengths))

    session = f"127.0.0.1:{engine.get_rpc_port()}"
    say({"session": session, "address": memory.address, "len": memory.size})
    serve({**memory.operations(), "write": write, "batch": batch})


main()
