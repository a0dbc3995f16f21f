"""The most that a GPU multiplies, by number format: shapes are searched briefly, then the best one is measured.

Random data: a GPU needs more power, and clocks lower, than with zeros. TFLOP/s count 2 m n k operations.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from gpu_sensors import Watch
from sampling import sampled, timed

# (m, n, k): squares, and long ones that published searches found to be fastest on one GPU or another.
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
STORED = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
LEAST_CAPABILITY = {"fp32": (0, 0), "fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}  # of NVIDIA's


def supported(device, dtype):
    """Whether the device has units for that format."""
    capability = device.capability()
    return capability is None or capability >= LEAST_CAPABILITY[dtype]


def best(device, dtype, seconds, shapes=SHAPES):
    """The samples of the fastest shape, and the sensors meanwhile, as rates of the answer."""
    fastest = max(shapes, key=lambda shape: tried(device, dtype, shape))
    work = multiplication(device, dtype, fastest)
    with Watch(device.sensors()) as watch:
        samples = [tflops(fastest, duration) for duration in sampled(work, seconds, MOST_SAMPLES)]
    conditions = {"dtype": dtype}
    shape = "x".join(map(str, fastest))
    return [
        {"metric": "matmul_best", "conditions": conditions, "samples": samples, "shape": shape},
        *watch.rates(dtype),
    ]


def tried(device, dtype, shape):
    """TFLOP/s of a short try; 0 for a shape that memory does not hold."""
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
    m, n, k = shape
    return 2 * m * n * k / seconds / 1e12


def multiplication(device, dtype, shape):
    """A function that multiplies so many times and waits for the end."""
    m, n, k = shape
    torch = device.torch
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    left, right = (device.random(size, "bfloat16" if dtype == "fp8" else STORED[dtype]) for size in ((m, k), (n, k)))
    if dtype == "fp8":
        return device.repeat(scaled(torch, device, left, right))
    product, right = torch.empty(m, n, dtype=left.dtype, device=device.device), right.t()
    return device.repeat(lambda: torch.matmul(left, right, out=product))


def scaled(torch, device, left, right):
    """One multiplication in fp8. The scales are 1: what is random around 0 fits."""
    stored = torch.float8_e4m3fnuz if device.older_fp8() else torch.float8_e4m3fn
    one = torch.ones((), dtype=torch.float32, device=device.device)
    first, second = left.to(stored), right.to(stored).t()
    return lambda: torch._scaled_mm(
        first, second, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def stress(devices, seconds):
    """All devices multiply at once for so long: for each its rates, and what it got wrong: [(rates, problem)].

    A node at full power is hotter than one GPU of it. The samples are of the second half, when it is warm.
    """
    barrier = threading.Barrier(len(devices), timeout=120)
    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(lambda device: stressed(device, seconds, barrier.wait), devices))


def stressed(device, seconds, ready):
    multiply, same = device.product()
    ready()
    with Watch(device.sensors()) as watch:
        samples = sampled(multiply, seconds, 2 * MOST_SAMPLES)
    late = [2 * device.size**3 / duration / 1e12 for duration in samples[len(samples) // 2 :]]
    problem = "" if same() else "the same product differs when it is repeated under load"
    return [{"metric": "matmul_stress", "conditions": {}, "samples": late}, *watch.rates("stress")], problem
