"""Mooncake's transfer engine through the cases of bench_cases.

usage: bench_mooncake.py [--quick]

Prints one JSON object: {"engine", "version", "verified", "cases": [...]}. MC_* environment
variables reach the engine.
"""

import argparse
import importlib.metadata
import multiprocessing

import bench_cases
from peer_lines import leave, say
from peer_memory import Memory

PACKAGE = "mooncake-transfer-engine-non-cuda"


def engine():
    from mooncake.engine import TransferEngine

    made = TransferEngine()
    if made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        raise SystemExit("the transfer engine did not start")
    return made


def target(pipe):
    """The process that is written into: answers questions about its memory and CPU time."""
    memory, made = Memory(bench_cases.MEMORY), engine()
    memory.fill(0, memory.size, 7)
    made.register_memory(memory.address, memory.size)
    pipe.send((f"127.0.0.1:{made.get_rpc_port()}", memory.address))
    while (question := pipe.recv()) is not None:
        pipe.send(bench_cases.cpu_seconds() if question == "cpu" else memory.get(*question))
    leave()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    quick = parser.parse_args().quick
    context = multiprocessing.get_context("spawn")
    pipe, far_end = context.Pipe()
    process = context.Process(target=target, args=(far_end,), daemon=True)
    process.start()
    session, destination = pipe.recv()
    memory, made = Memory(bench_cases.MEMORY), engine()
    memory.fill(0, memory.size, 3)
    made.register_memory(memory.address, memory.size)

    def prepare(copies):
        return [list(column) for column in zip(*copies)]

    def write(batch):
        sources, targets, lengths = batch
        if len(sources) == 1:
            code = made.transfer_sync_write(session, sources[0], targets[0], lengths[0])
        else:
            code = made.batch_transfer_sync_write(session, sources, targets, lengths)
        if code != 0:
            raise RuntimeError(f"a write of {len(sources)} blocks returned {code}")

    def ask(question):
        pipe.send(question)
        return pipe.recv()

    memory.put(4096, bytes(range(256)) * 16)
    write(prepare([(memory.address + 4096, destination + 777, 4096)]))
    verified = ask((777, 4096)) == bytes(range(256)) * 16
    few = {"repetitions": 3, "latency_writes": 200} if quick else {}
    cases = bench_cases.run(
        prepare, write, memory.address, destination, lambda: ask("cpu"), **few)
    pipe.send(None)
    process.join(10)
    say({"engine": "mooncake tcp", "version": importlib.metadata.version(PACKAGE),
         "verified": verified, "cases": cases})
    leave()


if __name__ == "__main__":
    main()
