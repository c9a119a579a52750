"""NIXL over UCX through the cases of bench_cases.

usage: bench_nixl.py [--tls all|tcp|...] [--quick]

--tls is UCX_TLS: `tcp` for sockets only, `all` lets UCX take what is fastest on one host (CMA).
Prints one JSON object: {"engine", "version", "verified", "cases": [...]}.
"""

import argparse
import importlib.metadata
import multiprocessing
import os

import bench_cases
from peer_lines import leave, say
from peer_memory import Memory

PACKAGE = "nixl-cu12"


def agent(name, same_host):
    """An agent with the UCX backend. UCX's shared memory refuses peer error handling."""
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    made = nixl_agent(name, nixl_agent_config(enable_prog_thread=True, backends=[]))
    made.create_backend("UCX", {"ucx_error_handling_mode": "none" if same_host else "peer"})
    return made


def target(pipe, same_host):
    """The process that is written into: answers questions about its memory and CPU time."""
    memory, made = Memory(bench_cases.MEMORY), agent("target", same_host)
    memory.fill(0, memory.size, 7)
    made.register_memory([(memory.address, memory.size, 0, "")], "DRAM")
    pipe.send((made.get_agent_metadata(), memory.address))
    made.add_remote_agent(pipe.recv())
    while (question := pipe.recv()) is not None:
        pipe.send(bench_cases.cpu_seconds() if question == "cpu" else memory.get(*question))
    leave()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tls", default="tcp", help="UCX_TLS (default: tcp)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    options = parser.parse_args()
    same_host = options.tls != "tcp"
    if options.tls != "all":
        os.environ["UCX_TLS"] = options.tls
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    context = multiprocessing.get_context("spawn")
    pipe, far_end = context.Pipe()
    process = context.Process(target=target, args=(far_end, same_host), daemon=True)
    process.start()
    memory, made = Memory(bench_cases.MEMORY), agent("initiator", same_host)
    memory.fill(0, memory.size, 3)
    made.register_memory([(memory.address, memory.size, 0, "")], "DRAM")
    metadata, destination = pipe.recv()
    pipe.send(made.get_agent_metadata())
    peer = made.add_remote_agent(metadata)
    made.make_connection(peer)

    def prepare(copies):
        near = made.get_xfer_descs([(s, n, 0) for s, _, n in copies], "DRAM")
        far = made.get_xfer_descs([(d, n, 0) for _, d, n in copies], "DRAM")
        return made.initialize_xfer("WRITE", near, far, peer)

    def write(handle):
        state = made.transfer(handle)
        while state == "PROC":
            state = made.check_xfer_state(handle)
        if state != "DONE":
            raise RuntimeError(f"a transfer ended as {state}")

    def ask(question):
        pipe.send(question)
        return pipe.recv()

    memory.put(4096, bytes(range(256)) * 16)
    write(prepare([(memory.address + 4096, destination + 777, 4096)]))
    verified = ask((777, 4096)) == bytes(range(256)) * 16
    few = {"repetitions": 3, "latency_writes": 200} if options.quick else {}
    cases = bench_cases.run(
        prepare, write, memory.address, destination, lambda: ask("cpu"), **few)
    pipe.send(None)
    process.join(10)
    say({"engine": f"nixl ucx ({options.tls})", "version": importlib.metadata.version(PACKAGE),
         "verified": verified, "cases": cases})
    leave()


if __name__ == "__main__":
    main()
