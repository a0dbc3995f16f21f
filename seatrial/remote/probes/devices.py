"""Measure matrix multiplication and memory copy on every GPU of this node, or on its processors without GPUs.

    devices.py [--seconds S] [--timeout-s T]        needs torch, and nothing else; start it by hand or over SSH

Prints one JSON line: {"devices": [{"device": "cuda:0" or "cpu", "model", "dtype", "size", "matmul_tflops": [...],
"copy_gb_s": [...], "wrong": text, "error": text}, ...]}, or {"error": text}. The lists are the samples. `size` is n of
the (n, n) matrices; TFLOP/s count 2 n^3 operations, GB/s (1e9 bytes) what is read and what is written. `wrong` is empty
unless repeats of the same work differ, `error` unless the device could not be measured. No devices: others had the
machine for all of the time.

Nodes that share a machine and a folder (containers, network namespaces) measure one after another: each imports torch
under a shared lock and measures under an exclusive one. The lock's name has the machine's boot id, so that nodes with
a common network home do not wait for each other.
"""

import argparse
import fcntl
import json
import os
import time

os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as nvidia-smi counts them

GPU_SIZE, CPU_SIZE = 8192, 1024  # n of the matrices
GPU_BYTES, CPU_BYTES = 1 << 30, 1 << 26  # of the copied buffer: more than the caches hold
LEAST_SAMPLES = 5
WARMUP = 3  # repeats that are not timed: kernels are chosen, clocks rise, pages are touched
MAX_TEXT = 200


def main():
    print(json.dumps(answer(arguments())), flush=True)
    os._exit(0)  # torch takes most of a second to end, for which the next node would wait


def answer(options):
    lock = os.open(lock_file(), os.O_RDWR | os.O_CREAT, 0o600)  # until the process ends
    ends = time.monotonic() + options.timeout_s / 2
    if not acquired(lock, fcntl.LOCK_SH, ends):
        return {"devices": []}
    try:
        import torch
    except ImportError as error:
        return {"error": short(f"torch cannot be imported: {error}")}
    fcntl.flock(lock, fcntl.LOCK_UN)
    if not acquired(lock, fcntl.LOCK_EX, ends):
        return {"devices": []}
    return {"devices": [measured(torch, device, options.seconds) for device in devices(torch)]}


def arguments():
    parser = argparse.ArgumentParser(description="Measure matrix multiplication and memory copy on every device.")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each measurement of each device")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="half of it is the longest wait for other nodes")
    return parser.parse_args()


def short(text):
    return " ".join(str(text).split())[:MAX_TEXT]


def lock_file():
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip()
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), f"devices-{machine}.lock")


def acquired(lock, mode, ends):
    """Take the lock in that mode; False when others hold it until `ends` (of time.monotonic)."""
    while True:
        try:
            fcntl.flock(lock, mode | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= ends:
                return False
            time.sleep(0.02)
        except OSError:  # a file system without locks: its nodes are machines of their own
            return True


def devices(torch):
    if not torch.cuda.is_available():
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return [torch.device("cpu")]
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def measured(torch, device, seconds):
    gpu = device.type == "cuda"
    size, dtype = (GPU_SIZE, torch.bfloat16) if gpu else (CPU_SIZE, torch.float32)
    result = {"device": str(device), "model": "", "dtype": str(dtype).removeprefix("torch."), "size": size}
    result |= {"matmul_tflops": [], "copy_gb_s": [], "wrong": "", "error": ""}
    try:
        result["model"] = torch.cuda.get_device_name(device) if gpu else processor()
        product_differs, durations = multiplied(torch, device, seconds, size, dtype)
        result["matmul_tflops"] = [2 * size**3 / duration / 1e12 for duration in durations]
        copy_differs, durations, moved = copied(torch, device, seconds, GPU_BYTES if gpu else CPU_BYTES)
        result["copy_gb_s"] = [moved / duration / 1e9 for duration in durations]
        result["wrong"] = product_differs or copy_differs
    except Exception as error:  # a broken GPU may raise anything; the others are measured all the same
        result["error"] = short(error) or type(error).__name__
    return result


def multiplied(torch, device, seconds, size, dtype):
    left, right, product = (torch.empty(size, size, dtype=dtype, device=device) for _ in range(3))
    generator = torch.Generator(device=device).manual_seed(0)
    for matrix in (left, right):
        matrix.normal_(generator=generator)
    torch.matmul(left, right, out=product)
    first = product.clone()
    durations = sampled(torch, device, seconds, lambda: torch.matmul(left, right, out=product))
    return "" if torch.equal(first, product) else "the same product differs when it is repeated", durations


def copied(torch, device, seconds, size):
    source = torch.arange(size // 4, dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    durations = sampled(torch, device, seconds, lambda: target.copy_(source))
    return "" if torch.equal(source, target) else "a copy differs from its source", durations, 2 * size


def sampled(torch, device, seconds, work):
    """Seconds per call of `work`, one sample per batch, for about `seconds` and at least LEAST_SAMPLES batches."""
    for _ in range(WARMUP):
        work()
    once = timed(torch, device, work, 1)
    batch = max(1, int(0.02 / once))  # 20 ms: what a clock and a launch take is nothing beside it
    samples: list[float] = []
    ends = time.monotonic() + seconds
    while len(samples) < LEAST_SAMPLES or time.monotonic() < ends:
        samples.append(timed(torch, device, work, batch) / batch)
    return samples[:: max(1, len(samples) // 100)]


def timed(torch, device, work, times):
    synchronize(torch, device)
    began = time.perf_counter()
    for _ in range(times):
        work()
    synchronize(torch, device)
    return time.perf_counter() - began


def synchronize(torch, device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def processor():
    """The processor's name, or its architecture where the kernel gives none."""
    with open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()[:MAX_TEXT]
    return os.uname().machine


if __name__ == "__main__":
    main()
