"""What the check `devices` measures."""

from seatrial.checks.contract import Metric
from seatrial.model.baseline import Tolerance

# Processors that other programs use as well lose half of their speed and more. A GPU is one program's alone: healthy
# ones of a model differ by a few percent.
_SHARED = Tolerance(sigma=0.5, cap=8.0)
_GPU = Tolerance(sigma=0.05, cap=1.5)
_LINK = Tolerance(sigma=0.1, cap=2.0)
_DISK = Tolerance(sigma=0.5, cap=8.0, coarse=True)

METRICS = {
    "matmul": Metric("TFLOP/s", "matrix multiplication, bfloat16 on a GPU, float32 on processors", _SHARED, _GPU),
    "memory_copy": Metric("GB/s", "memory copy (1e9 bytes, read and written)", _SHARED, _GPU),
    "matmul_best": Metric("TFLOP/s", "the fastest matrix multiplication of a GPU that was found, by dtype", _GPU),
    "matmul_stress": Metric("TFLOP/s", "multiplication while all GPUs of the node work, when they are warm", _GPU),
    "host_to_device": Metric("GB/s", "copy from pinned memory to a GPU, by how many GPUs copy at once", _LINK),
    "device_to_host": Metric("GB/s", "copy from a GPU to pinned memory, likewise", _LINK),
    "peer_copy": Metric("GB/s", "copy from one GPU of a node to another one", _LINK),
    "memory_tested": Metric("GB", "memory that held every pattern; recorded, not judged"),
    "gpu_clock": Metric("MHz", "SM clock during the work; recorded, not judged"),
    "gpu_power": Metric("W", "power during the work; recorded, not judged"),
    "gpu_temperature": Metric("C", "temperature during the work; recorded, not judged"),
    "disk_write": Metric("MB/s", "a file written in sequence (1e6 bytes), by tool and file system", _DISK),
    "disk_read": Metric("MB/s", "the same file read", _DISK),
}
