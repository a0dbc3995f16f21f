"""Measure matrix multiplication and memory copy on every GPU of this node, or on its processors
without GPUs.

    devices.py [--seconds S] [--help]     start it by hand or over SSH

Needs torch for GPUs, and numpy or torch for processors. Processors are measured with numpy where it
is installed: torch takes seconds of processor time to import.

Prints one JSON line: {"devices": [{"device": "cuda:0" or "cpu", "model", "library": "numpy" or
"torch", "software", "dtype", "size", "matmul_tflops": [...], "copy_gb_s": [...], "digests": {dtype:
text}, "rates": [{"metric", "conditions", "samples"}, ...], "wrong": text, "error": text}, ...]}, or
{"error": text}. The lists are the samples. `size` is n of the (n, n) matrices; TFLOP/s count 2 n^3
operations, GB/s (1e9 bytes) what is read and what is written. `digests` are of results that all
devices of one `model`, `library` and `software` share. `rates` are what options ask for
(thorough.py). `wrong` is empty unless results are wrong, `error` unless the device could not be
measured. No devices: others had the machine for all of the time.

Nodes that share a machine and a folder measure one after another: each imports its library under a
shared lock and measures under an exclusive one.
"""

import fcntl
import glob
import json
import os
import time

import thorough
from command_line import parser_of
from machine_lock import MachineLock
from thorough import MULTIPLIER, sampled
from torch_device import NumpyProcessors, TorchDevice, processors

os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # number GPUs as nvidia-smi does

# Device files of NVIDIA (server, Jetson, WSL) and AMD
GPU_FILES = ("/dev/nvidia[0-9]*", "/dev/nvhost-gpu", "/dev/dxg", "/dev/kfd")
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8")
# Fault of a cluster file, for tests: "wrong:cuda:1"; "unstable:" for every device
FAULT = "SEATRIAL_COMPUTE_FAULT"
PURPOSE = "Measure matrix multiplication and memory copy on every device."
OPTIONS = (
    ("--seconds", float, 0.3, "for each measurement of each device"),
    ("--timeout-s", float, 120.0, "half of it is the longest wait for other nodes"),
    ("--gpus", int, 0, "how many GPUs the node should have; they need torch"),
    ("--rounds", int, 1, "of the search for silent corruption"),
    ("--dtypes", {"nargs": "*", "choices": DTYPES}, (), "find the fastest product of each"),
    ("--memory-share", float, 0.0, "of free GPU memory that is tested, as 0.9"),
    ("--host-link", bool, False, "copy between the host and every GPU"),
    ("--peers", bool, False, "copy from each GPU to every other one"),
    ("--shared-processors", bool, False, "leave out the time that others have the processors"),
    ("--stress-s", float, 0.0, "seconds that all GPUs multiply at once"),
)

# Odd constant of splitmix64, as a signed 64 bit integer
OFFSET = -4658895280553007687
WORD = 1 << 64


def main():
    """Print the answer."""
    print(
        json.dumps(answer(parser_of(None, PURPOSE, OPTIONS).parse_args())) + "\n",
        end="",
        flush=True,
    )  # in one write
    os._exit(0)  # skips the exit of torch, which takes most of a second while the next node waits


def answer(options):
    """Return the answer for the options."""
    lock = MachineLock()  # until the process ends
    ends = time.monotonic() + options.timeout_s / 2
    if not lock.acquire(fcntl.LOCK_SH, ends):
        return {"devices": []}
    try:
        measured_devices = devices(options.gpus)
    except ImportError as error:
        return {"error": f"torch cannot be imported: {thorough.problem_of(error)}"}
    lock.release()
    if not lock.acquire(fcntl.LOCK_EX, ends):
        return {"devices": []}
    results = [measured(device, options) for device in measured_devices]
    for result, more in zip(results, thorough.measure(measured_devices, options)):
        result |= {key: result.get(key) or value for key, value in more.items()}
    return {"devices": results}


def devices(gpus):
    """Return the GPUs that torch sees, or the processors if there are none.

    Raises ImportError without a library that can measure them.
    """
    if not gpus and not any(glob.glob(pattern) for pattern in GPU_FILES):
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(processors())
        try:
            import numpy
        except ImportError:
            pass  # torch measures processors too
        else:
            return [NumpyProcessors(numpy)]
    import torch

    if torch.cuda.is_available():
        return [
            TorchDevice(torch, torch.device("cuda", index))
            for index in range(torch.cuda.device_count())
        ]
    torch.set_num_threads(processors())
    return [TorchDevice(torch, torch.device("cpu"))]


def measured(device, options):
    """Return the measurement of one device."""
    result = {
        "device": device.name,
        "model": "",
        "library": device.library,
        "software": "",
        "dtype": device.dtype,
        "size": device.size,
        "matmul_tflops": [],
        "copy_gb_s": [],
        "digests": {},
        "wrong": "",
        "error": "",
    }
    try:
        result |= {"model": device.model(), "software": device.software()}
        is_shared = options.shared_processors and not device.gpu
        multiply, same = device.product()
        products = sampled(multiply, options.seconds, is_shared=is_shared)
        result["matmul_tflops"] = [2 * device.size**3 / duration / 1e12 for duration in products]
        if not same():
            result["wrong"] = "the same product differs when it is repeated"
        copy, equal = device.copy()
        copies = sampled(copy, options.seconds, is_shared=is_shared)
        result["copy_gb_s"] = [2 * device.copied_bytes / duration / 1e9 for duration in copies]
        if not equal():
            result["wrong"] = result["wrong"] or "a copy differs from its source"
        fault, _, where = os.environ.get(FAULT, "").partition(":")
        corruption = search(device, options.rounds, fault if where in ("", device.name) else "")
        result |= {key: value for key, value in corruption.items() if value}
    except Exception as error:
        # A broken GPU may raise anything; the other devices are still measured
        result["error"] = thorough.problem_of(error)
    return result


def search(device, rounds, fault=""):
    """Search for silent corruption: {"digests": {dtype: 16 hexadecimal digits}, "wrong": text}.

    Each round has other data, the same on every device. `fault` is for tests: "wrong" changes a
    result the same way each time, "unstable" changes a repeat.
    """
    digests = dict.fromkeys(device.digest_dtypes, 0)
    wrong = ""
    for seed in range(rounds):
        wrong = wrong or exact_sums(device, seed) or exact_product(device, seed)
        for dtype in device.digest_dtypes:
            product, problem = repeated_product(device, dtype, seed, fault)
            wrong = wrong or (problem and f"{dtype}: {problem}")
            digests[dtype] = (
                digests[dtype] * (MULTIPLIER % WORD) + digest_of(device, product)
            ) % WORD
    return {
        "digests": {dtype: f"{digest:016x}" for dtype, digest in digests.items()},
        "wrong": wrong,
    }


def repeated_product(device, dtype, seed, fault):
    """Return the product of two random matrices, its row sums, and what differs when both are
    computed again.
    """
    n = device.digest_size
    left, right = (
        device.cast(fractions(device, n * n, seed * 2 + side), dtype).reshape(n, n)
        for side in range(2)
    )
    first = left @ right
    second = left @ right
    if fault == "wrong":
        first[n // 2, n // 2] = second[n // 2, n // 2] = 0
    elif fault == "unstable":
        second[n // 2, n // 2] = 0
    if not device.same(first, second):
        return first, "the same product differs when it is repeated"
    if not device.same(first.sum(1), first.sum(1)):
        return first, "the same sum differs when it is repeated"
    return first, ""


def exact_product(device, seed):
    """Check a product of small integers, which float32 represents exactly in any order of addition.

    It is verified without a second product: C x = A (B x) for integers x, in 64 bit floating point.
    """
    n = device.digest_size
    left, right = (
        small_integers(device, n * n, seed * 2 + side).reshape(n, n) for side in range(2)
    )
    product = device.cast(left, "float32") @ device.cast(right, "float32")
    weights = device.cast(1 + (device.indices(n) & 7), "float64")
    expected = device.cast(left, "float64") @ (device.cast(right, "float64") @ weights)
    equal = device.same(device.cast(product, "float64") @ weights, expected)
    return "" if equal else "a product of integers is not what it must be"


def exact_sums(device, seed):
    """Check sums of small integers."""
    n = device.digest_size
    numbers = small_integers(device, n * n, seed).reshape(n, n)
    sums = device.cast(device.cast(numbers, "float32").sum(1), "int64")
    return "" if device.same(sums, numbers.sum(1)) else "a sum of integers is not what it must be"


def mixed(device, count, seed):
    """Return `count` pseudo-random 64 bit integers, the same on every device and with every
    library.
    """
    bits = (device.indices(count) + seed * count) * MULTIPLIER
    bits = bits ^ ((bits >> 32) & 0xFFFFFFFF)
    bits = bits * OFFSET
    return bits ^ ((bits >> 29) & 0x7FFFFFFFF)


def fractions(device, count, seed):
    """Return numbers from -0.5 to 0.5 in steps of 2^-24, which float32 holds exactly."""
    return device.cast((mixed(device, count, seed) >> 20) & 0xFFFFFF, "float32") / (1 << 24) - 0.5


def small_integers(device, count, seed):
    """Return integers from -8 to 7: sums of 4096 products of two stay below 2^24."""
    return ((mixed(device, count, seed) >> 20) & 15) - 8


def digest_of(device, array):
    """Return a weighted sum of the elements' bits modulo 2^64.

    Weights are odd, so that any single wrong element changes it.
    """
    words = device.words(array)
    return int((words * (mixed(device, len(words), 1) | 1)).sum()) % WORD


if __name__ == "__main__":
    main()
