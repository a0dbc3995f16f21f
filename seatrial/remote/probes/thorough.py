"""The longer measurements of the probe `devices`: memory, links, number formats, stress.

`devices` are NumpyProcessors or TorchDevice of torch_device.py, `options` those of devices.py.
Processors have a memory test only; the rest is for GPUs.
"""

import glob
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

from processor_wait import own_seconds
from torch_device import Watch

LEAST_SAMPLES = 5
# Repeats that are not timed, during which kernels are chosen, clocks rise and pages are touched
WARMUP = 3
BATCH_S = 0.02
MAX_TEXT = 200
CUDA_ADVICE = re.compile(
    r"Search for `cuda|CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE"
)
MOST_PEER_S = 0.1  # for an ordered pair of GPUs, of which eight GPUs have 56
# (m, n, k): squares, and oblong shapes that were fastest on some GPU in published searches.
SHAPES = (
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 16384, 16384),
    (16384, 8192, 1280),
    (8192, 16384, 4096),
    (6144, 17920, 2816),
    (10240, 8192, 8192),
    (8192, 28672, 4096),
)
TRIAL_S = 0.05
MOST_SAMPLES = 20
STORED = {
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
}
# Least compute capability of NVIDIA's GPUs for each format
LEAST_CAPABILITY = {"fp32": (0, 0), "fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
BYTES = 1 << 28
# Odd constant of splitmix64: gives each word a different value, which reveals mixed-up address
# lines
MULTIPLIER = -7046029254386353131
# No bits, all bits, every other bit, and the remaining ones
CONSTANTS = (0, -1, 0x5555555555555555, 0x2AAAAAAAAAAAAAAA - (1 << 63))
CHUNK_WORDS = 1 << 27  # 1 GiB
SLICE_WORDS = 1 << 24  # words compared at once, as the comparison needs memory too
PROCESSORS_WORDS = 1 << 23  # 64 MiB
SPARED_BYTES = 1 << 30  # memory of a GPU that is left for the comparison and the library


def sampled(work, seconds, most=100, is_shared=False):
    """Return seconds per call of `work`, one sample per batch, measured for about `seconds`.

    `work(times)` repeats the work. There are LEAST_SAMPLES to about `most` samples. `is_shared`:
    others may use the processors too, so waiting for one is subtracted.
    """
    work(WARMUP)
    once = timed(work, 1)
    batch = max(1, int(BATCH_S / once))
    samples: "list[float]" = []
    ends = time.monotonic() + seconds
    while len(samples) < LEAST_SAMPLES or time.monotonic() < ends:
        took = own_seconds(lambda: work(batch)) if is_shared else timed(work, batch)
        samples.append(took / batch)
    return samples[:: max(1, len(samples) // most)]


def timed(work, times):
    """Return seconds that `work(times)` takes."""
    began = time.perf_counter()
    work(times)
    return time.perf_counter() - began


def measure(devices, options):
    """Measure each device: {"rates": [...], "wrong": text, "error": text}.

    A failure does not stop the rest.
    """
    outcomes = [{"rates": [], "wrong": "", "error": ""} for _ in devices]
    each = list(zip(devices, outcomes))
    gpus = [(device, outcome) for device, outcome in each if device.gpu]
    for device, outcome in gpus:
        for dtype in options.dtypes:
            if not supported(device, dtype):
                continue
            guarded(
                [outcome],
                lambda device=device, dtype=dtype: [(best(device, dtype, options.seconds), "")],
            )
    if gpus:  # measurements of all GPUs at once, or between GPUs
        on = [device for device, _ in gpus]
        theirs = [outcome for _, outcome in gpus]
        if options.host_link:
            guarded(theirs, lambda: [(rates, "") for rates in host_link(on, options.seconds)])
        if options.peers:
            guarded(theirs, lambda: list(zip(*peers(on, min(options.seconds, MOST_PEER_S)))))
        if options.stress_s:
            guarded(theirs, lambda: stress(on, options.stress_s))
    for device, outcome in each if options.memory_share else ():
        guarded([outcome], lambda device=device: [tested(device, options.memory_share)])
    return outcomes


def tested(device, share):
    """Return the rates and the problem of a memory test; without samples if no memory was free."""
    tested_gb, problem = memory_test(device, share)
    samples = [tested_gb] if tested_gb else []
    return [{"metric": "memory_tested", "conditions": {}, "samples": samples}], problem


def guarded(outcomes, work):
    """Add the results of the work, (rates, problem) for each device, to the outcomes, or the error
    that it raised.
    """
    try:
        for outcome, (rates, problem) in zip(outcomes, work()):
            outcome["rates"] += [rate for rate in rates if rate["samples"]]
            outcome["wrong"] = outcome["wrong"] or problem
    except Exception as error:  # a broken GPU may raise anything
        for outcome in outcomes:
            outcome["error"] = outcome["error"] or problem_of(error)


def problem_of(error):
    """Return the error message as one line, without CUDA's advice for developers; the type if there
    is no message.
    """
    return " ".join(CUDA_ADVICE.split(str(error), 1)[0].split())[:MAX_TEXT] or type(error).__name__


def supported(device, dtype):
    """Return whether the device supports the format; true for devices that are not NVIDIA's."""
    capability = device.capability()
    return capability is None or capability >= LEAST_CAPABILITY[dtype]


def best(device, dtype, seconds):
    """Return the rates of the fastest shape, with sensor readings during the measurement."""
    fastest = max(SHAPES, key=lambda shape: quick_tflops(device, dtype, shape))
    work = multiplication(device, dtype, fastest)
    with Watch(device.sensors()) as watch:
        samples = [tflops(fastest, duration) for duration in sampled(work, seconds, MOST_SAMPLES)]
    shape = "x".join(map(str, fastest))
    rate = {
        "metric": "matmul_best",
        "conditions": {"dtype": dtype},
        "samples": samples,
        "shape": shape,
    }
    return [rate, *watch.rates(dtype)]


def quick_tflops(device, dtype, shape):
    """Return the TFLOP/s of a short test; 0 if the shape is too large for the memory."""
    try:
        work = multiplication(device, dtype, shape)
        work(1)
        times = max(1, int(TRIAL_S / timed(work, 1)))
        return tflops(shape, timed(work, times) / times)
    except device.torch.cuda.OutOfMemoryError:
        return 0.0
    finally:
        device.free()


def tflops(shape, seconds):
    """Return TFLOP/s of a product that took so many seconds."""
    m, n, k = shape
    return 2 * m * n * k / seconds / 1e12


def multiplication(device, dtype, shape):
    """Return a function that multiplies `times` times and waits for the end.

    The matrices are random, since a GPU needs less power and is faster with zeros.
    """
    m, n, k = shape
    torch = device.torch
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    left, right = (
        device.random(size, "bfloat16" if dtype == "fp8" else STORED[dtype])
        for size in ((m, k), (n, k))
    )
    if dtype == "fp8":
        stored = torch.float8_e4m3fnuz if device.older_fp8() else torch.float8_e4m3fn
        first = left.to(stored)
        second = right.to(stored).t()
        # Scale 1 for both, as random numbers around 0 are in range
        one = torch.ones((), dtype=torch.float32, device=device.device)

        def multiply():
            torch._scaled_mm(
                first,
                second,
                scale_a=one,
                scale_b=one,
                out_dtype=torch.bfloat16,
                use_fast_accum=True,
            )

        return device.repeat(multiply)
    product = torch.empty(m, n, dtype=left.dtype, device=device.device)
    right = right.t()
    return device.repeat(lambda: torch.matmul(left, right, out=product))


def stress(devices, seconds):
    """Multiply on all devices at once for `seconds`; return (rates, problem) of each.

    A node at full load is hotter than one GPU alone. The samples are from the second half, when
    devices are warm.
    """
    return at_once(devices, lambda device, ready: stressed(device, seconds, ready))


def at_once(devices, work):
    """Call `work(device, ready)` for all devices, each in a thread; return the results. `ready`
    waits for the others.
    """
    barrier = threading.Barrier(len(devices), timeout=120)
    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(lambda device: work(device, barrier.wait), devices))


def stressed(device, seconds, ready):
    """Multiply on one device once all are ready; return its rates and its problem.

    The samples are of the second half.
    """
    multiply, same = device.product()
    ready()
    with Watch(device.sensors()) as watch:
        samples = sampled(multiply, seconds, 2 * MOST_SAMPLES)
    late = [2 * device.size**3 / duration / 1e12 for duration in samples[len(samples) // 2 :]]
    problem = ""
    if not same():
        problem = "the same product differs when it is repeated under load"
    return [
        {"metric": "matmul_stress", "conditions": {}, "samples": late},
        *watch.rates("stress"),
    ], problem


def host_link(devices, seconds):
    """Measure host_to_device and device_to_host with pinned memory, by the number of GPUs that copy
    at once.
    """

    def rates_of(those):
        return at_once(those, lambda device, ready: host_copies(device, seconds, len(those), ready))

    alone = [rates for device in devices for rates in rates_of([device])]
    if len(devices) < 2:
        return alone
    return [one + all_ for one, all_ in zip(alone, rates_of(devices))]


def host_copies(device, seconds, count, ready):
    """Copy in both directions of one GPU, from the nearest processors; return both rates.

    `ready` waits until all `count` GPUs are ready to copy. The thread may be moved to other
    processors.
    """
    move_near(device)
    on_host = device.host_buffer(BYTES)
    on_device = device.buffer(BYTES)
    rates = []
    for metric, target, source in (
        ("host_to_device", on_device, on_host),
        ("device_to_host", on_host, on_device),
    ):
        work = device.repeat(
            lambda target=target, source=source: target.copy_(source, non_blocking=True)
        )
        ready()
        samples = gb_s(work, seconds)
        rates.append({"metric": metric, "conditions": {"at_once": count}, "samples": samples})
    return rates


def gb_s(work, seconds):
    """Return GB/s samples of work that copies BYTES."""
    return [BYTES / duration / 1e9 for duration in sampled(work, seconds, MOST_SAMPLES)]


def move_near(device):
    """Move this thread, and so its memory, near the GPU; do nothing if its NUMA node is unknown."""
    for path in glob.glob(f"/sys/bus/pci/devices/{device.pci_address()}/local_cpulist"):
        with open(path) as file:
            near = cpus_of(file.read()) & os.sched_getaffinity(0)
        if near:
            os.sched_setaffinity(0, near)


def cpus_of(text):
    """Parse the kernel's list of processors, such as `0-3,8`, into a set."""
    ends = [part.partition("-") for part in text.strip().split(",") if part]
    return {
        number for first, _, last in ends for number in range(int(first), int(last or first) + 1)
    }


def peers(devices, seconds):
    """Measure peer_copy between all pairs of GPUs, one at a time; return (rates, problems)."""
    rates: "list[list[dict[str, object]]]" = [[] for _ in devices]
    problems = ["" for _ in devices]
    for (place, source), (_, target) in permutations(enumerate(devices), 2):
        samples, arrived = pair(source, target, seconds)
        name = f"gpu-{target.name.partition(':')[2]}"
        rates[place].append(
            {"metric": "peer_copy", "conditions": {"peer": name}, "samples": samples}
        )
        if not (arrived or problems[place]):
            problems[place] = f"a copy to {name} differs from its source"
    return rates, problems


def pair(source, target, seconds):
    """Return GB/s from one GPU to another, and whether the data arrived unchanged."""
    sent = source.indices(BYTES // 8)
    received = target.buffer(BYTES).view(source.torch.int64)
    repeated = source.repeat(lambda: received.copy_(sent, non_blocking=True))

    def work(times):
        repeated(times)
        target.wait()

    return gb_s(work, seconds), target.same(received, target.indices(BYTES // 8))


def memory_test(device, share):
    """Test `share` of the free memory; return the GB tested, and what is wrong.

    Every pattern is written to all of it and then read; the first difference ends the test.
    """
    chunks = allocated(device, words_to_test(device, share))
    tested_gb = sum(map(len, chunks)) * 8 / 1e9
    for pattern in (*CONSTANTS, None):
        for first, part in slices(chunks):
            part[:] = expected(device, pattern, first, len(part))
        # Read only after writing everything, as a write may have changed another word.
        for first, part in slices(chunks):
            problem = difference(device, part, expected(device, pattern, first, len(part)))
            if problem:
                return tested_gb, problem
    return tested_gb, ""


def words_to_test(device, share):
    """Return the number of 64 bit words to test; always PROCESSORS_WORDS for processors."""
    if not device.gpu:
        return PROCESSORS_WORDS
    free = device.free_bytes()
    return max(min(int(free * share), free - SPARED_BYTES), 0) // 8


def allocated(device, words):
    """Allocate chunks of `words` 64 bit integers; fewer if memory is fragmented.

    Each but the last has CHUNK_WORDS.
    """
    chunks = []
    left = words
    while left > 0:
        chunk = device.empty_words(min(left, CHUNK_WORDS))
        if chunk is None:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return chunks


def slices(chunks):
    """Yield the slices that are compared at once, each with the number of its first word."""
    for number, chunk in enumerate(chunks):
        for start in range(0, len(chunk), SLICE_WORDS):
            yield number * CHUNK_WORDS + start, chunk[start : start + SLICE_WORDS]


def expected(device, pattern, first, count):
    """Return the `count` expected integers from word `first` on; a different one for each word if
    pattern is None.
    """
    if pattern is not None:
        return pattern
    return (device.indices(count) + first) * MULTIPLIER


def difference(device, part, values):
    """Describe where and in how many bits memory differs from the values; "" if it does not."""
    bits = part ^ values
    wrong = device.cast(bits != 0, "int8")
    count = int(device.cast(wrong, "int64").sum())
    if not count:
        return ""
    first = int(wrong.argmax())
    flipped = bin(int(bits[first]) % (1 << 64)).count("1")
    address = device.address(part) + 8 * first
    return (
        f"memory at {address:#x} differs from what was written in {flipped} of 64 bits; "
        f"{count} words nearby differ"
    )
