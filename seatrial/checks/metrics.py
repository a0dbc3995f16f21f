"""The metrics that checks measure: units, meanings, and how much healthy values vary.

The figures are explained in docs/decisions/0002-judging-with-few-samples.md. The judge reads this
table without the checks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.model.baseline import SINGLE_SIZE, STEADY, Tolerance
from seatrial.model.measurement import Measurement

# Half a second of TCP on a busy machine gets what its processors leave; a link that is throttled or
# fell back to a lower speed loses a factor of ten and more.
TCP = Tolerance(sigma=0.5, cap=8.0, coarse=True)
# Processors that other programs use as well lose half of their speed and more. A GPU is one
# program's alone: healthy ones of a model differ by a few percent.
_SHARED = Tolerance(sigma=0.5, cap=8.0, coarse=True)
_GPU = Tolerance(sigma=0.05, cap=1.5)
_LINK = Tolerance(sigma=0.1, cap=2.0)
_DISK = Tolerance(sigma=0.5, cap=8.0, coarse=True)
REPEATED_WHOLE = frozenset({"training"})  # checks whose repeat takes as long as the check


@dataclass(frozen=True, slots=True)
class Doubt:
    """A measurement to repeat: it was taken `taken` times so far, and is taken at most `most`
    times.
    """

    measurement: Measurement
    taken: int
    most: int


Doubts = Mapping[str, Sequence[Doubt]]  # doubts by check name


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a check measures: its unit and meaning, and how much a healthy value varies.

    Without a `tolerance`, `tolerance_of` assumes one; `of_gpu` is the tolerance for a single GPU.
    """

    unit: str
    meaning: str
    tolerance: Tolerance | None = None
    of_gpu: Tolerance | None = None


CONNECTIVITY_METRICS = {
    "tcp_egress": Metric(
        "MB/s", "the best TCP stream from the node to another one (1e6 bytes)", TCP
    ),
    "tcp_ingress": Metric(
        "MB/s", "the best TCP stream to the node from another one (1e6 bytes)", TCP
    ),
    "tcp_stream": Metric("MB/s", "one TCP stream over a link; recorded, not judged"),
    "ssh_connect": Metric("ms", "the time until an SSH connection is up; recorded, not judged"),
    "clock_skew": Metric("s", "the node's clock minus the median node's; recorded, not judged"),
}

DEVICE_METRICS = {
    "matmul": Metric(
        "TFLOP/s", "matrix multiplication, bfloat16 on a GPU, float32 on processors", _SHARED, _GPU
    ),
    "memory_copy": Metric("GB/s", "memory copy (1e9 bytes, read and written)", _SHARED, _GPU),
    "matmul_best": Metric(
        "TFLOP/s", "the fastest matrix multiplication of a GPU that was found, by dtype", _GPU
    ),
    "matmul_stress": Metric(
        "TFLOP/s", "multiplication while all GPUs of the node work, when they are warm", _GPU
    ),
    "host_to_device": Metric(
        "GB/s", "copy from pinned memory to a GPU, by how many GPUs copy at once", _LINK
    ),
    "device_to_host": Metric("GB/s", "copy from a GPU to pinned memory", _LINK),
    "peer_copy": Metric("GB/s", "copy from one GPU of a node to another one", _LINK),
    "memory_tested": Metric("GB", "memory that held every pattern; recorded, not judged"),
    "gpu_clock": Metric("MHz", "SM clock during the work; recorded, not judged"),
    "gpu_power": Metric("W", "power during the work; recorded, not judged"),
    "gpu_temperature": Metric("C", "temperature during the work; recorded, not judged"),
    "disk_write": Metric(
        "MB/s", "a file written in sequence (1e6 bytes), by tool and file system", _DISK
    ),
    "disk_read": Metric("MB/s", "a file read in sequence", _DISK),
}

RDMA_METRICS = {
    "rdma_bandwidth": Metric(
        "GB/s", "perftest over a rail between two nodes, by how many rails at once", _GPU
    ),
    "rdma_latency": Metric(
        "us", "the typical time of a small message over a rail, half of a round trip", _LINK
    ),
}

STORAGE_METRICS = {
    "storage_write": Metric(
        "GB/s", "streams to a shared file system (1e9 bytes), of each node and of 1 to all", _DISK
    ),
    "storage_read": Metric(
        "GB/s", "streams from a shared file system, of each node and of 1 to all", _DISK
    ),
    "storage_files": Metric(
        "files/s", "small files written, listed, read and removed, of each node", _DISK
    ),
    "storage_save": Metric(
        "GB/s", "a checkpoint of all nodes, a file for each rank, until it is on disk", _DISK
    ),
    "storage_load": Metric("GB/s", "a checkpoint of all nodes, read by the next node", _DISK),
    "storage_visible": Metric(
        "s", "the time until a node reads what another one wrote; recorded, not judged"
    ),
}

COLLECTIVE_METRICS = {
    "busbw": Metric(
        "GB/s", "bus bandwidth (1e9 bytes) by operation, arm, message size and placement"
    ),
    "busbw_plateau": Metric(
        "GB/s",
        (
            "the median of busbw over the three largest sizes, by operation and arm; in "
            "`intra` of each node"
        ),
    ),
    "busbw_share": Metric(
        "", "the plateau as a fraction of what the links allow; recorded, not judged"
    ),
    "latency": Metric(
        "us",
        "the time of the smallest message, by operation; in `latency` of every size",
        SINGLE_SIZE,
    ),
}

TRAINING_METRICS = {
    "loss": Metric("nats", "the last loss, smoothed; recorded, not judged"),
    "loss_drop": Metric("", "the fraction of the first loss that training took off"),
    "throughput": Metric("samples/s", "samples trained, over all ranks"),
    "step_time": Metric("ms", "one step, of the cluster and of each node"),
    "step_time_p99": Metric(
        "ms", "the step that 99 of 100 are no slower than; recorded, not judged"
    ),
    "model_flops": Metric("TFLOP/s", "counted operations of each rank; recorded, not judged"),
    "mfu": Metric("", "model_flops as a fraction of the GPU's data sheet; recorded, not judged"),
    "communication_share": Metric(
        "",
        (
            "the fraction of a forward and backward pass that is gone without communication; "
            "recorded, not judged"
        ),
    ),
    "inference": Metric("samples/s", "samples inferred, where the suite has inference_steps"),
    "tokens_per_gpu": Metric("tokens/s", "tokens trained, of each GPU, of model: llama"),
    "data_time": Metric(
        "ms", "one step's wait for data, of each node's slowest rank; recorded, not judged"
    ),
    "forward_time": Metric("ms", "one step's forward pass; recorded, not judged"),
    "backward_time": Metric("ms", "one step's backward pass; recorded, not judged"),
    "optimizer_time": Metric("ms", "one step's optimizer; recorded, not judged"),
    "waiting_time": Metric(
        "ms", "the part of a step in which a rank waits for others; recorded, not judged"
    ),
    "alone_time": Metric("ms", "one step of a small decoder that each rank trains alone"),
    "memory_peak": Metric(
        "GB", "the most of a GPU's memory that the training takes; recorded, not judged"
    ),
    "checkpoint_write": Metric(
        "GB/s", "a checkpoint written by all ranks (1e9 bytes); recorded, not judged"
    ),
    "checkpoint_read": Metric(
        "GB/s", "a checkpoint read past the page cache; recorded, not judged"
    ),
    "checkpoint_blocked": Metric(
        "s", "how long a checkpoint holds the training up; recorded, not judged"
    ),
    "goodput": Metric(
        "", "productive time over the time that an interrupted training has its ranks"
    ),
    "compute_time": Metric(
        "ms", "one step of a node before it waits for others; judged on GPUs alone"
    ),
}

CAMPAIGN_METRICS = {
    "campaign_hours": Metric("h", "how long the nodes were up in the phases of a campaign"),
    "drift": Metric("%", "what a number gained from the first to the last hour of a campaign"),
    "rise": Metric(
        "", "how much a counter of a device rose in a campaign, or how many minutes a slowdown held"
    ),
    "uncompared_phases": Metric(
        "", "phases of a campaign that passed with numbers that no baseline exists for"
    ),
}

_ALL = (
    CONNECTIVITY_METRICS
    | DEVICE_METRICS
    | RDMA_METRICS
    | STORAGE_METRICS
    | COLLECTIVE_METRICS
    | TRAINING_METRICS
    | CAMPAIGN_METRICS
)


def add_metrics(metrics: Mapping[str, Metric]) -> None:
    """Add the metrics of another package's check; known metrics are not changed."""
    _ALL.update({**metrics, **_ALL})


def unit_of(metric: str) -> str | None:
    """Return the unit that a metric is measured in; None for an unknown one."""
    known = _ALL.get(metric)
    return known.unit if known else None


def tolerance_of(measurement: Measurement) -> Tolerance:
    """Return the tolerance of the metric for the kind of its subject.

    By default it is wider for a single message size, which is a few timed iterations, than for
    other metrics, which average many.
    """
    usual = SINGLE_SIZE if "message_bytes" in measurement.conditions else STEADY
    metric = _ALL.get(measurement.metric)
    if metric and metric.of_gpu and measurement.subject.kind == "gpu":
        return metric.of_gpu
    return (metric and metric.tolerance) or usual


def is_repeated_only_low(measurement: Measurement, check: str) -> bool:
    """Return whether only bad-looking readings are repeated, even if few runs are known."""
    return check in REPEATED_WHOLE or tolerance_of(measurement).coarse
