"""One device of a node: a GPU by torch, or the processors by numpy's BLAS, by torch where GPUs are
expected.

Clock, power and temperature come from NVML where nvidia-ml-py is installed, else from nvidia-smi.
"""

import hashlib
import os
import re
import statistics
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

CPU_SIZE = 1024  # n of the matrices
CPU_BYTES = 1 << 26  # of the copied buffer: more than the caches hold
MAX_TEXT = 200
GPU_SIZE = 8192  # n of the matrices
GPU_BYTES = 1 << 30  # of the copied buffer: more than the caches hold
EVERY_S = 0.2
SMI_TIMEOUT_S = 10
FIELDS = ("clocks.sm", "power.draw", "temperature.gpu")
METRICS = ("gpu_clock", "gpu_power", "gpu_temperature")  # MHz, W, degrees Celsius


class NumpyProcessors:
    """All processors that this process may use: numpy's BLAS multiplies on all, a thread per
    processor copies.
    """

    library, name, dtype, size, copied_bytes = "numpy", "cpu", "float32", CPU_SIZE, CPU_BYTES
    gpu = False
    digest_dtypes = ("float32",)
    digest_size = 512

    def __init__(self, numpy):
        self.numpy = numpy
        self.threads = ThreadPoolExecutor(processors())

    def model(self):
        """Return the model's name."""
        return processor()

    def software(self):
        """Return a text that identifies the software: devices of a model with the same text compute
        bit for bit alike.
        """
        return f"numpy {self.numpy.__version__}, {instruction_set()}, {processors()} threads"

    def product(self):
        """Return a function that multiplies `times` times, and one that compares the product with
        the first one.
        """
        generator = self.numpy.random.default_rng(0)
        shape = (self.size, self.size)
        left, right = (generator.standard_normal(shape, dtype=self.dtype) for _ in range(2))
        product = self.numpy.matmul(left, right)
        first = product.copy()

        def multiply(times):
            for _ in range(times):
                self.numpy.matmul(left, right, out=product)

        return multiply, lambda: self.numpy.array_equal(first, product)

    def copy(self):
        """Return a function that copies `times` times, and one that compares the copy with its
        source.
        """
        source = self.numpy.arange(self.copied_bytes // 4, dtype="int32")
        target = self.numpy.empty_like(source)
        parts = [self.numpy.array_split(array, processors()) for array in (target, source)]

        def copy_part(target_part, source_part, times):
            for _ in range(times):
                self.numpy.copyto(target_part, source_part)  # releases the interpreter's lock

        def copy(times):
            list(self.threads.map(copy_part, *parts, [times] * processors()))

        return copy, lambda: self.numpy.array_equal(source, target)

    def indices(self, count):
        """Return 0 to `count` - 1 as 64 bit integers."""
        return self.numpy.arange(count, dtype="int64")

    def cast(self, array, dtype):
        """Return the array in another number format."""
        return array.astype(dtype)

    def words(self, array):
        """Return the bits of every element, as 64 bit integers."""
        return array.reshape(-1).view(f"int{8 * array.itemsize}").astype("int64")

    def same(self, one, other):
        """Return whether two arrays are equal."""
        return self.numpy.array_equal(one, other)

    def empty_words(self, count):
        """Return uninitialised 64 bit integers."""
        return self.numpy.empty(count, dtype="int64")

    def address(self, array):
        """Return the array's address in memory."""
        return array.ctypes.data


def processors():
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def processor():
    """Return the processors' name, or their architecture where the kernel gives none."""
    return described().get("model name", "")[:MAX_TEXT] or os.uname().machine


def instruction_set():
    """Return a digest of the processor features by which libraries choose kernels, as hypervisors
    give different processors one name.
    """
    cpuinfo = described()
    fields = (
        "vendor_id",
        "cpu family",
        "model",
        "stepping",
        "flags",
        "CPU implementer",
        "CPU part",
        "Features",
    )
    chosen = [cpuinfo.get(field, "") for field in fields] + [
        os.environ.get("OPENBLAS_CORETYPE", "")
    ]
    return "processor " + hashlib.sha256("|".join(chosen).encode()).hexdigest()[:8]


def described():
    """Return the fields of the first processor in /proc/cpuinfo."""
    values: "dict[str, str]" = {}
    with open("/proc/cpuinfo", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            values.setdefault(name.strip(), value.strip())
    return values


class TorchDevice:
    """A device used through torch. `torch` is the module, `device` a torch.device."""

    library = "torch"

    def __init__(self, torch, device):
        self.torch = torch
        self.device = device
        self.name = str(device)
        self.gpu = device.type == "cuda"
        self.dtype = "bfloat16" if self.gpu else "float32"
        self.size: int = GPU_SIZE if self.gpu else CPU_SIZE
        self.copied_bytes: int = GPU_BYTES if self.gpu else CPU_BYTES
        self.digest_dtypes = ("float32", "bfloat16", "float16") if self.gpu else ("float32",)
        self.digest_size = 4096 if self.gpu else 512

    def model(self):
        """Return the model's name."""
        return self.torch.cuda.get_device_name(self.device) if self.gpu else processor()

    def software(self):
        """Identify the software, as NumpyProcessors.software does."""
        version = f"torch {self.torch.__version__}"
        if not self.gpu:
            return f"{version}, {instruction_set()}, {processors()} threads"
        units = self.properties().multi_processor_count
        override = os.environ.get("NVIDIA_TF32_OVERRIDE", "")
        tf32 = f"tf32 {self.torch.backends.cuda.matmul.allow_tf32}{override and f', override {override}'}"
        return (
            f"{version}, {self.torch.version.cuda or self.torch.version.hip}, {units} "
            f"multiprocessors, {tf32}"
        )

    def product(self):
        """See NumpyProcessors.product."""
        torch = self.torch
        dtype = getattr(self.torch, self.dtype)
        left, right, product = (
            torch.empty(self.size, self.size, dtype=dtype, device=self.device) for _ in range(3)
        )
        generator = torch.Generator(device=self.device).manual_seed(0)
        for matrix in (left, right):
            matrix.normal_(generator=generator)
        torch.matmul(left, right, out=product)
        first = product.clone()
        return self.repeat(lambda: torch.matmul(left, right, out=product)), lambda: torch.equal(
            first, product
        )

    def copy(self):
        """See NumpyProcessors.copy."""
        source = self.torch.arange(
            self.copied_bytes // 4, dtype=self.torch.int32, device=self.device
        )
        target = self.torch.empty_like(source)
        return self.repeat(lambda: target.copy_(source)), lambda: self.torch.equal(source, target)

    def repeat(self, work):
        """Return a function that does the work `times` times and waits for its end."""

        def repeated(times):
            for _ in range(times):
                work()
            self.wait()

        return repeated

    def wait(self):
        """Wait until the GPU has finished its work."""
        if self.gpu:
            self.torch.cuda.synchronize(self.device)

    def indices(self, count):
        """See NumpyProcessors.indices."""
        return self.torch.arange(count, dtype=self.torch.int64, device=self.device)

    def cast(self, array, dtype):
        """See NumpyProcessors.cast."""
        return array.to(getattr(self.torch, dtype))

    def words(self, array):
        """See NumpyProcessors.words."""
        integer = getattr(self.torch, f"int{8 * array.element_size()}")
        return self.cast(array.reshape(-1).view(integer), "int64")

    def same(self, one, other):
        """See NumpyProcessors.same."""
        return self.torch.equal(one, other)

    def empty_words(self, count):
        """See NumpyProcessors.empty_words; None if there is not enough free memory."""
        try:
            return self.torch.empty(count, dtype=self.torch.int64, device=self.device)
        except self.torch.cuda.OutOfMemoryError:
            return None

    def address(self, array):
        """See NumpyProcessors.address."""
        return array.data_ptr()

    def random(self, shape, dtype):
        """Return normally distributed numbers."""
        stored = getattr(self.torch, dtype)
        return self.torch.empty(shape, dtype=stored, device=self.device).normal_()

    def buffer(self, size):
        """Allocate `size` bytes on the device."""
        return self.torch.empty(size, dtype=self.torch.uint8, device=self.device)

    def host_buffer(self, size):
        """Allocate `size` bytes on the host, pinned for a GPU, each page touched."""
        return self.torch.empty(size, dtype=self.torch.uint8, pin_memory=self.gpu).fill_(1)

    def free(self):
        """Release memory that the library caches."""
        if self.gpu:
            self.torch.cuda.empty_cache()

    def free_bytes(self):
        """Return the bytes of a GPU's memory that are free."""
        self.free()
        return self.torch.cuda.mem_get_info(self.device)[0]

    def capability(self):
        """Return the compute capability of NVIDIA's GPUs, such as (9, 0); None for other
        devices.
        """
        if not self.gpu or self.torch.version.hip:
            return None
        return self.torch.cuda.get_device_capability(self.device)

    def properties(self):
        """Return torch's properties of a GPU; None for processors."""
        return self.torch.cuda.get_device_properties(self.device) if self.gpu else None

    def older_fp8(self):
        """Return whether fp8 has the format of AMD's GPUs before MI350."""
        return "gfx94" in getattr(self.properties(), "gcnArchName", "")

    def pci_address(self):
        """Return the PCI address, such as 0000:1b:00.0; "" if torch does not report it (before
        2.9).
        """
        properties = self.properties()
        if not hasattr(properties, "pci_bus_id"):
            return ""
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"

    def sensors(self):
        """Return a function that reads clock, power and temperature; None if there is no way to
        read them (see `reader`).
        """
        uuid = str(getattr(self.properties(), "uuid", ""))
        return reader(uuid if uuid.startswith("GPU-") or not uuid else f"GPU-{uuid}")


class Watch:
    """Reads sensors in the background: `with Watch(read) as watch: ...`, then
    `watch.rates(during)`.

    `read` returns a number for each of METRICS, or None.
    """

    def __init__(self, read):
        self.read = read
        self.readings = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(SMI_TIMEOUT_S + 1)

    def look(self):
        """Read until the end, or until a reading fails."""
        while not self.over.wait(EVERY_S):
            try:
                values = self.read()
            except Exception:
                # The driver lacks a sensor, or the GPU is gone, which the work reports
                return
            if values is None:
                return
            self.readings.append(values)

    def rates(self, during):
        """Return the median of each sensor over the second half of the time, as `rates` of the
        answer.
        """
        late = self.readings[len(self.readings) // 2 :]
        columns = [
            [value for value in column if value is not None and value > 0] for column in zip(*late)
        ]
        return [
            {
                "metric": metric,
                "conditions": {"during": during},
                "samples": [float(statistics.median(column))],
            }
            for metric, column in zip(METRICS, columns)
            if column
        ]


def reader(uuid):
    """Return a function that reads the sensors of the GPU with that UUID; None if neither NVML nor
    nvidia-smi works.
    """
    if not uuid:
        return lambda: None
    try:
        return nvml_reader(uuid)
    except Exception:  # no nvidia-ml-py, no driver, no such GPU
        return lambda: smi_values(smi_line(uuid))


def nvml_reader(uuid):
    """Return a function that reads the sensors by NVML. Raises what NVML raises."""
    import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read():
        clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        power = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000  # NVML reports mW
        return clock, power, pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)

    return read


def smi_line(uuid, fields=FIELDS, timeout_s=SMI_TIMEOUT_S):
    """Return the fields of a GPU as nvidia-smi prints them, "" if it is missing or does
    not answer.
    """
    query = "--query-gpu=" + ",".join(fields)
    command = ["nvidia-smi", f"--id={uuid}", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def smi_values(line):
    """Parse `1980, 687.31, 64` into numbers, with None for `[N/A]`; None if the line has
    no number.
    """
    parts = [part.strip() for part in line.strip().split(",")]
    if len(parts) != len(FIELDS):
        return None
    return [float(part) if re.fullmatch(r"\d{1,6}(\.\d{1,4})?", part) else None for part in parts]
