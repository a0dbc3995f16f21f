"""How long the training of a suite takes: steps and batches from the suite, assumed rates. Pure."""

from seatrial.checks.planned import START_S, PlannedNodes, PlannedPart
from seatrial.checks.training.section import Training, Workload

_FLOPS = {"tiny": 2e7, "resnet18": 1.1e10, "resnet50": 2.5e10}  # of one sample, as flops(); images of 224 pixels
_USUAL_PIXELS = 224
_GPU_FLOPS_S = {"fp32": 3e13, "bf16": 6e13, "fp16": 6e13}
_CPU_FLOPS_S = 2e10
_STEP_S = {True: 5e-3, False: 0.05}  # what a step takes beside, by GPUs
_COMPILING_S = 60.0
_FORWARD = 1 / 3  # of the work of a step
_SUM_S = {True: 2e-3, False: 0.2}  # of 2,000,000 elements, made and checked


def plan_training(section: Training, nodes: PlannedNodes) -> list[PlannedPart]:
    """The sums, if the suite has them, and the training."""
    workload, rounds = section.workload(gpus=nodes.gpus), section.all_reduce_rounds
    sums = f"{rounds} sums of 2,000,000 elements by torch, each element checked"
    parts = [PlannedPart(sums, START_S[nodes.gpus] + rounds * _SUM_S[nodes.gpus], section.timeout_s)] if rounds else []
    return [*parts, PlannedPart(_words(workload), _seconds(workload, gpus=nodes.gpus), section.timeout_s)]


def _words(workload: Workload) -> str:
    batch = f"batch {workload.batch_per_rank} for each rank"
    inference = f", then {workload.inference_steps} of inference" if workload.inference_steps else ""
    return f"{workload.name} in {workload.precision}, {batch}, {workload.steps} steps{inference}"


def _seconds(workload: Workload, *, gpus: bool) -> float:
    rate = _GPU_FLOPS_S[workload.precision] if gpus else _CPU_FLOPS_S
    step = workload.batch_per_rank * _flops(workload) / rate + _STEP_S[gpus]
    steps = workload.steps + _FORWARD * workload.inference_steps
    return START_S[gpus] + steps * step + (_COMPILING_S if workload.compile else 0.0)


def _flops(workload: Workload) -> float:
    """Of one sample, forward and backward."""
    if workload.model == "transformer":
        return workload.transformer.flops()
    pixels = workload.image_size or _USUAL_PIXELS
    return _FLOPS[workload.model] * ((pixels / _USUAL_PIXELS) ** 2 if workload.model.startswith("resnet") else 1.0)
