"""The processors of a node as one device, measured with numpy's BLAS, and their identity."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

CPU_SIZE = 1024  # n of the matrices
CPU_BYTES = 1 << 26  # of the copied buffer: more than the caches hold
MAX_TEXT = 200


class NumpyProcessors:
    """All processors that this process may use: numpy's BLAS multiplies on all, a thread per processor copies."""

    library, name, dtype, size, copied_bytes = "numpy", "cpu", "float32", CPU_SIZE, CPU_BYTES
    gpu, digest_dtypes, digest_size = False, ("float32",), 512

    def __init__(self, numpy):
        self.numpy = numpy
        self.threads = ThreadPoolExecutor(processors())

    def model(self):
        return processor()

    def software(self):
        """What results depend on beside the model: devices with the same text compute bit for bit alike."""
        return f"numpy {self.numpy.__version__}, {instruction_set()}, {processors()} threads"

    def product(self):
        """A function that multiplies so many times, and one that compares the product with the first one."""
        generator, shape = self.numpy.random.default_rng(0), (self.size, self.size)
        left, right = (generator.standard_normal(shape, dtype=self.dtype) for _ in range(2))
        product = self.numpy.matmul(left, right)
        first = product.copy()

        def multiply(times):
            for _ in range(times):
                self.numpy.matmul(left, right, out=product)

        return multiply, lambda: self.numpy.array_equal(first, product)

    def copy(self):
        """A function that copies so many times, and one that compares the copy with its source."""
        source = self.numpy.arange(self.copied_bytes // 4, dtype="int32")
        target = self.numpy.empty_like(source)
        parts = [self.numpy.array_split(array, processors()) for array in (target, source)]

        def copy_part(target_part, source_part, times):
            for _ in range(times):
                self.numpy.copyto(target_part, source_part)  # without the interpreter's lock

        def copy(times):
            list(self.threads.map(copy_part, *parts, [times] * processors()))

        return copy, lambda: self.numpy.array_equal(source, target)

    def indices(self, count):
        """0 to `count` - 1 as 64 bit integers."""
        return self.numpy.arange(count, dtype="int64")

    def cast(self, array, dtype):
        return array.astype(dtype)

    def words(self, array):
        """The bits of every element, as 64 bit integers."""
        return array.reshape(-1).view(f"int{8 * array.itemsize}").astype("int64")

    def same(self, one, other):
        return self.numpy.array_equal(one, other)

    def empty_words(self, count):
        """64 bit integers of any value."""
        return self.numpy.empty(count, dtype="int64")

    def address(self, array):
        return array.ctypes.data


def processors():
    return len(os.sched_getaffinity(0))


def processor():
    """The processors' name, or their architecture where the kernel gives none."""
    return described().get("model name", "")[:MAX_TEXT] or os.uname().machine


def instruction_set():
    """A digest of what a library chooses its kernels by: hypervisors give unlike processors the same name."""
    known = described()
    fields = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU implementer", "CPU part", "Features")
    chosen = [known.get(field, "") for field in fields] + [os.environ.get("OPENBLAS_CORETYPE", "")]
    return "processor " + hashlib.sha256("|".join(chosen).encode()).hexdigest()[:8]


def described():
    """What /proc/cpuinfo says of the first processor."""
    values: "dict[str, str]" = {}
    with open("/proc/cpuinfo", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            values.setdefault(name.strip(), value.strip())
    return values
