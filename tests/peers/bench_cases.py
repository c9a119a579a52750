"""The data-plane cases that every engine runs, and how they are measured.

Two processes, loopback, main memory; the initiator writes into the target. An engine adapter
gives `write(copies)`, which returns once every byte of [(source, destination, length)] is
acknowledged and raises otherwise. GB are 10^9 bytes. A throughput case reports the median of
its repetitions, after one that is not counted; CPU is user plus system time, all threads. A case
that an engine does not get through has {"name", "error"}: Mooncake refuses the 20,000 blocks.
"""

import random
import resource
import statistics
import time

KIB, MIB = 1 << 10, 1 << 20
MEMORY = 512 * MIB
# (name, number of blocks, bytes of each); scattered blocks lie at random on both sides.
THROUGHPUT = [
    ("contiguous_512MiB", 1, 512 * MIB),
    ("scattered_1000x256KiB", 1000, 256 * KIB),
    ("scattered_1000x64KiB", 1000, 64 * KIB),
    ("scattered_1000x16KiB", 1000, 16 * KIB),
]
# Last, because an engine may be unusable after it.
MANY = ("scattered_20000x4KiB", 20_000, 4 * KIB)
LATENCY_BYTES = 4 * KIB


def cpu_seconds():
    """CPU time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def copies(count, size, source, destination, seed=1):
    """`count` blocks of `size` bytes, each once, in an order of their own on either side."""
    slots = MEMORY // size
    pick = random.Random(seed)
    sources, targets = pick.sample(range(slots), count), pick.sample(range(slots), count)
    return [(source + s * size, destination + t * size, size) for s, t in zip(sources, targets)]


def throughput(batch, write, size, target_cpu, repetitions):
    """Figures of one batch of `size` bytes in all."""
    write(batch)
    cpu, far_cpu, times = cpu_seconds(), target_cpu(), []
    for _ in range(repetitions):
        begin = time.perf_counter()
        write(batch)
        times.append(time.perf_counter() - begin)
    gigabytes = size / 1e9
    moved = gigabytes * repetitions
    return {
        "bytes": size,
        "gbps_median": round(gigabytes / statistics.median(times), 3),
        "gbps_best": round(gigabytes / min(times), 3),
        "cpu_s_per_gb_initiator": round((cpu_seconds() - cpu) / moved, 3),
        "cpu_s_per_gb_target": round((target_cpu() - far_cpu) / moved, 3),
        "repetitions": repetitions,
    }


def latency(batch, write, writes):
    """Figures of small writes, one after the other."""
    times = []
    for turn in range(writes + 50):
        begin = time.perf_counter()
        write(batch)
        if turn >= 50:
            times.append(time.perf_counter() - begin)
    return {
        "name": "latency_4KiB",
        "bytes": LATENCY_BYTES,
        "p50_us": round(statistics.median(times) * 1e6, 2),
        "p99_us": round(sorted(times)[len(times) * 99 // 100] * 1e6, 2),
        "repetitions": writes,
    }


def run(prepare, write, source, destination, target_cpu, repetitions=7, latency_writes=500):
    """Runs every case. `prepare(copies)` makes what `write` takes, outside the clock."""
    def case(name, count, size):
        batch = prepare(copies(count, size, source, destination))
        return {"name": name, **throughput(batch, write, count * size, target_cpu, repetitions)}

    cases = [case(*block) for block in THROUGHPUT]
    cases.append(latency(prepare([(source, destination, LATENCY_BYTES)]), write, latency_writes))
    try:
        cases.append(case(*MANY))
    except RuntimeError as error:
        cases.append({"name": MANY[0], "error": str(error)})
    return cases
