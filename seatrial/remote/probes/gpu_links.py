"""Copies between the host and its GPUs, each alone and all at once, and between the GPUs of a node.

`devices` are torch_device.TorchDevice. Every function returns, for each of them, a list of {"metric", "conditions",
"samples"} in GB/s (1e9 bytes).
"""

import glob
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from sampling import sampled

BYTES = 1 << 28
MOST_SAMPLES = 20


def host_link(devices, seconds, buffer_bytes=BYTES):
    """host_to_device and device_to_host from pinned memory, by how many GPUs copy `at_once`."""
    alone = [in_thread(lambda device=device: host_copies(device, seconds, 1, buffer_bytes)) for device in devices]
    if len(devices) < 2:
        return alone
    barrier = threading.Barrier(len(devices), timeout=120)
    with ThreadPoolExecutor(len(devices)) as pool:
        together = list(
            pool.map(lambda device: host_copies(device, seconds, len(devices), buffer_bytes, barrier.wait), devices)
        )
    return [one + all_ for one, all_ in zip(alone, together)]


def in_thread(work):
    """What the work returns, done in a thread of its own, which may move to other processors."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def host_copies(device, seconds, at_once, buffer_bytes, ready=lambda: None):
    """Both directions of one GPU, from the processors that are nearest to it."""
    move_near(device)
    on_host, on_device = device.host_buffer(buffer_bytes), device.buffer(buffer_bytes)
    rates = []
    for metric, target, source in (("host_to_device", on_device, on_host), ("device_to_host", on_host, on_device)):
        work = device.repeat(lambda target=target, source=source: target.copy_(source, non_blocking=True))
        ready()
        samples = [buffer_bytes / duration / 1e9 for duration in sampled(work, seconds, MOST_SAMPLES)]
        rates.append({"metric": metric, "conditions": {"at_once": at_once}, "samples": samples})
    return rates


def move_near(device):
    """Run this thread, and so put its memory, where the GPU is attached; anywhere if nobody tells where that is."""
    for path in glob.glob(f"/sys/bus/pci/devices/{device.pci_address()}/local_cpulist"):
        with open(path) as file:
            near = cpus_of(file.read()) & os.sched_getaffinity(0)
        if near:
            os.sched_setaffinity(0, near)


def cpus_of(text):
    """`0-3,8` as a set."""
    ends = [part.partition("-") for part in text.strip().split(",") if part]
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


def peers(devices, seconds, buffer_bytes=BYTES):
    """peer_copy from each GPU to every other one, one pair at a time, and what arrived wrong: (rates, problems)."""
    rates: "list[list[dict[str, object]]]" = [[] for _ in devices]
    problems = ["" for _ in devices]
    for place, source in enumerate(devices):
        for other, target in enumerate(devices):
            if place == other:
                continue
            samples, arrived = pair(source, target, seconds, buffer_bytes)
            name = f"gpu-{target.name.partition(':')[2]}"
            rates[place].append({"metric": "peer_copy", "conditions": {"peer": name}, "samples": samples})
            problems[place] = problems[place] or ("" if arrived else f"a copy to {name} differs from its source")
    return rates, problems


def pair(source, target, seconds, buffer_bytes):
    """GB/s from one GPU to another, and whether what arrived is what was sent."""
    sent, received = source.indices(buffer_bytes // 8), target.buffer(buffer_bytes).view(source.torch.int64)
    repeated = source.repeat(lambda: received.copy_(sent, non_blocking=True))

    def work(times):
        repeated(times)
        target.wait()

    samples = [buffer_bytes / duration / 1e9 for duration in sampled(work, seconds, MOST_SAMPLES)]
    return samples, target.same(received, target.indices(buffer_bytes // 8))
