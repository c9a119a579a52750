"""The data-plane cases that every engine runs, and how they are measured.

Two processes, loopback, main memory; the initiator writes into the target. An engine adapter
gives `write(copies)`, which returns once every byte of [(source, destination, length)] is
acknowledged and raises otherwise. GB are 10^9 bytes. A throughput case reports the median of
its repetitions, after one that is not counted; CPU is user plus system time, all threads.
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


def run(prepare, write, source, destination, target_cpu, repetitions=7, latency_writes=500):
    """Runs every case. `prepare(copies)` makes what `write` takes, outside the clock."""
    cases = []
    for name, count, size in THROUGHPUT:
        batch = prepare(copies(count, size, source, destination))
        write(batch)
        cpu, far_cpu, times = cpu_seconds(), target_cpu(), []
        for _ in range(repetitions):
            begin = time.perf_counter()
            write(batch)
            times.append(time.perf_counter() - begin)
        moved = count * size * repetitions / 1e9
        cases.append({
            "name": name,
            "bytes": count * size,
            "gbps_median": round(count * size / 1e9 / statistics.median(times), 3),
            "gbps_best": round(count * size / 1e9 / min(times), 3),
            "cpu_s_per_gb_initiator": round((cpu_seconds() - cpu) / moved, 3),
            "cpu_s_per_gb_target": round((target_cpu() - far_cpu) / moved, 3),
            "repetitions": repetitions,
        })
    times = []
    batch = prepare([(source, destination, LATENCY_BYTES)])
    for turn in range(latency_writes + 50):
        begin = time.perf_counter()
        write(batch)
        if turn >= 50:
            times.append(time.perf_counter() - begin)
    cases.append({
        "name": "write_4KiB",
        "bytes": LATENCY_BYTES,
        "p50_us": round(statistics.median(times) * 1e6, 2),
        "p99_us": round(sorted(times)[len(times) * 99 // 100] * 1e6, 2),
        "repetitions": latency_writes,
    })
    return cases
