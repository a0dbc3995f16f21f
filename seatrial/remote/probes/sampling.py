"""How long work takes: samples of batches that are long beside what a clock and a launch take."""

import time

LEAST_SAMPLES = 5
WARMUP = 3  # repeats that are not timed: kernels are chosen, clocks rise, pages are touched
BATCH_S = 0.02


def sampled(work, seconds, most=100):
    """Seconds per call of `work`, one sample per batch, for about `seconds`: LEAST_SAMPLES to about `most` of them."""
    work(WARMUP)
    once = timed(work, 1)
    batch = max(1, int(BATCH_S / once))
    samples: "list[float]" = []
    ends = time.monotonic() + seconds
    while len(samples) < LEAST_SAMPLES or time.monotonic() < ends:
        samples.append(timed(work, batch) / batch)
    return samples[:: max(1, len(samples) // most)]


def timed(work, times):
    """Seconds that `work(times)` takes."""
    began = time.perf_counter()
    work(times)
    return time.perf_counter() - began
