"""Measure matrix multiplication and memory copy on every GPU of this node, or on its processors without GPUs.

    devices.py [--seconds S] [--timeout-s T] [--gpus N]     start it by hand or over SSH

Needs torch for GPUs, and numpy or torch for processors. Processors are measured with numpy where it is installed: torch
takes seconds of processor time to import.

Prints one JSON line: {"devices": [{"device": "cuda:0" or "cpu", "model", "library": "numpy" or "torch", "dtype",
"size", "matmul_tflops": [...], "copy_gb_s": [...], "wrong": text, "error": text}, ...]}, or {"error": text}. The lists
are the samples. `size` is n of the (n, n) matrices; TFLOP/s count 2 n^3 operations, GB/s (1e9 bytes) what is read and
what is written. `wrong` is empty unless repeats of the same work differ, `error` unless the device could not be
measured. No devices: others had the machine for all of the time.

Nodes that share a machine and a folder (containers, network namespaces) measure one after another: each imports its
library under a shared lock and measures under an exclusive one. The lock's name has the machine's boot id, so that
nodes with a common network home do not wait for each other.
"""

import argparse
import fcntl
import glob
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as nvidia-smi counts them

GPU_SIZE, CPU_SIZE = 8192, 1024  # n of the matrices
GPU_BYTES, CPU_BYTES = 1 << 30, 1 << 26  # of the copied buffer: more than the caches hold
LEAST_SAMPLES = 5
WARMUP = 3  # repeats that are not timed: kernels are chosen, clocks rise, pages are touched
MAX_TEXT = 200
GPU_FILES = ("/dev/nvidia[0-9]*", "/dev/nvhost-gpu", "/dev/dxg", "/dev/kfd")  # NVIDIA: server, Jetson, WSL; AMD


def main():
    print(json.dumps(answer(arguments())), flush=True)
    os._exit(0)  # torch takes most of a second to end, for which the next node would wait


def answer(options):
    lock = os.open(lock_file(), os.O_RDWR | os.O_CREAT, 0o600)  # until the process ends
    ends = time.monotonic() + options.timeout_s / 2
    if not acquired(lock, fcntl.LOCK_SH, ends):
        return {"devices": []}
    try:
        measured_devices = devices(options.gpus)
    except ImportError as error:
        return {"error": short(f"torch cannot be imported: {error}")}
    fcntl.flock(lock, fcntl.LOCK_UN)
    if not acquired(lock, fcntl.LOCK_EX, ends):
        return {"devices": []}
    return {"devices": [measured(device, options.seconds) for device in measured_devices]}


def arguments():
    parser = argparse.ArgumentParser(description="Measure matrix multiplication and memory copy on every device.")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each measurement of each device")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="half of it is the longest wait for other nodes")
    parser.add_argument("--gpus", type=int, default=0, help="how many GPUs the node should have; they need torch")
    return parser.parse_args()


def short(text):
    return " ".join(str(text).split())[:MAX_TEXT]


def lock_file():
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip()
    folder = os.path.dirname(os.path.abspath(__file__))
    if not os.path.isdir(folder):  # an archive, `seatrial probe`: beside it
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK):  # of an image, for a user who is not root
        folder = tempfile.gettempdir()
    return os.path.join(folder, f"devices-{machine}.lock")


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


def devices(gpus):
    """The GPUs that torch sees, or else the processors. Raises ImportError without a library that can measure them."""
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
        return [TorchDevice(torch, torch.device("cuda", index)) for index in range(torch.cuda.device_count())]
    torch.set_num_threads(processors())
    return [TorchDevice(torch, torch.device("cpu"))]


def processors():
    return len(os.sched_getaffinity(0))


class NumpyProcessors:
    """All processors that this process may use: numpy's BLAS multiplies on all, a thread per processor copies."""

    library, name, dtype, size, copied_bytes = "numpy", "cpu", "float32", CPU_SIZE, CPU_BYTES

    def __init__(self, numpy):
        self.numpy = numpy
        self.threads = ThreadPoolExecutor(processors())

    def model(self):
        return processor()

    def product(self):
        """A function that multiplies so many times, and one that tells whether the product is still the first one."""
        generator, shape = self.numpy.random.default_rng(0), (self.size, self.size)
        left, right = (generator.standard_normal(shape, dtype=self.dtype) for _ in range(2))
        product = self.numpy.matmul(left, right)
        first = product.copy()

        def multiply(times):
            for _ in range(times):
                self.numpy.matmul(left, right, out=product)

        return multiply, lambda: self.numpy.array_equal(first, product)

    def copy(self):
        """A function that copies so many times, and one that tells whether the copy equals its source."""
        source = self.numpy.arange(self.copied_bytes // 4, dtype="int32")
        target = self.numpy.empty_like(source)
        parts = [self.numpy.array_split(array, processors()) for array in (target, source)]

        def copy_part(target_part, source_part, times):
            for _ in range(times):
                self.numpy.copyto(target_part, source_part)  # without the interpreter's lock

        def copy(times):
            list(self.threads.map(copy_part, *parts, [times] * processors()))

        return copy, lambda: self.numpy.array_equal(source, target)


class TorchDevice:
    """A GPU, or the processors where numpy is missing or the node has GPUs."""

    library = "torch"

    def __init__(self, torch, device):
        self.torch, self.device, self.name = torch, device, str(device)
        self.gpu = device.type == "cuda"
        self.dtype, self.size = ("bfloat16", GPU_SIZE) if self.gpu else ("float32", CPU_SIZE)
        self.copied_bytes = GPU_BYTES if self.gpu else CPU_BYTES

    def model(self):
        return self.torch.cuda.get_device_name(self.device) if self.gpu else processor()

    def product(self):
        """As NumpyProcessors.product."""
        torch, dtype = self.torch, getattr(self.torch, self.dtype)
        left, right, product = (torch.empty(self.size, self.size, dtype=dtype, device=self.device) for _ in range(3))
        generator = torch.Generator(device=self.device).manual_seed(0)
        for matrix in (left, right):
            matrix.normal_(generator=generator)
        torch.matmul(left, right, out=product)
        first = product.clone()
        return self.repeat(lambda: torch.matmul(left, right, out=product)), lambda: torch.equal(first, product)

    def copy(self):
        """As NumpyProcessors.copy."""
        source = self.torch.arange(self.copied_bytes // 4, dtype=self.torch.int32, device=self.device)
        target = self.torch.empty_like(source)
        return self.repeat(lambda: target.copy_(source)), lambda: self.torch.equal(source, target)

    def repeat(self, work):
        """A function that does the work so many times and waits for its end."""

        def repeated(times):
            for _ in range(times):
                work()
            if self.gpu:
                self.torch.cuda.synchronize(self.device)

        return repeated


def measured(device, seconds):
    result = {"device": device.name, "model": "", "library": device.library, "dtype": device.dtype, "size": device.size}
    result |= {"matmul_tflops": [], "copy_gb_s": [], "wrong": "", "error": ""}
    try:
        result["model"] = device.model()
        multiply, same = device.product()
        durations = sampled(multiply, seconds)
        result["matmul_tflops"] = [2 * device.size**3 / duration / 1e12 for duration in durations]
        if not same():
            result["wrong"] = "the same product differs when it is repeated"
        copy, equal = device.copy()
        result["copy_gb_s"] = [2 * device.copied_bytes / duration / 1e9 for duration in sampled(copy, seconds)]
        if not equal():
            result["wrong"] = result["wrong"] or "a copy differs from its source"
    except Exception as error:  # a broken GPU may raise anything; the others are measured all the same
        result["error"] = short(error) or type(error).__name__
    return result


def sampled(work, seconds):
    """Seconds per call of `work`, one sample per batch, for about `seconds` and at least LEAST_SAMPLES batches."""
    work(WARMUP)
    once = timed(work, 1)
    batch = max(1, int(0.02 / once))  # 20 ms: what a clock and a launch take is nothing beside it
    samples: list[float] = []
    ends = time.monotonic() + seconds
    while len(samples) < LEAST_SAMPLES or time.monotonic() < ends:
        samples.append(timed(work, batch) / batch)
    return samples[:: max(1, len(samples) // 100)]


def timed(work, times):
    began = time.perf_counter()
    work(times)
    return time.perf_counter() - began


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
