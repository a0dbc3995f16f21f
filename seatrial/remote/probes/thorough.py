"""What takes longer than the quick measurements of the probe `devices`: memory, links, number formats, stress.

`devices` are of processors.NumpyProcessors and torch_device.TorchDevice, `options` those of devices.py. Processors have
a memory test only; the rest is for GPUs.
"""

import re

import gpu_compute
import gpu_links
import memory_test

MAX_TEXT = 200
CUDA_ADVICE = re.compile(r"Search for `cuda|CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE")
MOST_PEER_S = 0.1  # for a pair of GPUs: eight have 56


def measure(devices, options):
    """For each device {"rates": [...], "wrong": text, "error": text}. What breaks does not stop the rest."""
    outcomes = [{"rates": [], "wrong": "", "error": ""} for _ in devices]
    each = list(zip(devices, outcomes))
    gpus = [(device, outcome) for device, outcome in each if device.gpu]
    for device, outcome in gpus:
        for dtype in options.dtypes:
            if gpu_compute.supported(device, dtype):
                guarded([outcome], lambda: [(gpu_compute.best(device, dtype, options.seconds), "")])  # noqa: B023
    if gpus:
        measure_together([device for device, _ in gpus], [outcome for _, outcome in gpus], options)
    for device, outcome in each if options.memory_share else ():
        guarded([outcome], lambda: [tested(device, options.memory_share)])  # noqa: B023
    return outcomes


def measure_together(devices, outcomes, options):
    """What all GPUs of a node do at once, or with each other."""
    if options.host_link:
        guarded(outcomes, lambda: [(rates, "") for rates in gpu_links.host_link(devices, options.seconds)])
    if options.peers:
        guarded(outcomes, lambda: list(zip(*gpu_links.peers(devices, min(options.seconds, MOST_PEER_S)))))
    if options.stress_s:
        guarded(outcomes, lambda: gpu_compute.stress(devices, options.stress_s))


def tested(device, share):
    result = memory_test.test(device, share)
    samples = [result["tested_gb"]] if result["tested_gb"] else []
    return [{"metric": "memory_tested", "conditions": {}, "samples": samples}], result["wrong"]


def guarded(outcomes, work):
    """Put what the work returns, (rates, problem) for each, into the outcomes; or the error that it raised."""
    try:
        for outcome, (rates, problem) in zip(outcomes, work()):
            outcome["rates"] += [rate for rate in rates if rate["samples"]]
            outcome["wrong"] = outcome["wrong"] or problem
    except Exception as error:  # a broken GPU may raise anything
        for outcome in outcomes:
            outcome["error"] = outcome["error"] or problem_of(error)


def problem_of(error):
    """What it says, in one line, without the advice to programmers that ends an error of CUDA's."""
    return " ".join(CUDA_ADVICE.split(str(error), 1)[0].split())[:MAX_TEXT] or type(error).__name__
