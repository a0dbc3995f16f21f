"""One GPU, or the processors where numpy is missing or the node should have GPUs, measured with torch."""

import os

from gpu_sensors import reader
from processors import CPU_BYTES, CPU_SIZE, instruction_set, processor, processors

GPU_SIZE = 8192  # n of the matrices
GPU_BYTES = 1 << 30  # of the copied buffer: more than the caches hold


class TorchDevice:
    """A device of torch's. `torch` is the module, `device` a torch.device."""

    library = "torch"

    def __init__(self, torch, device):
        self.torch, self.device, self.name = torch, device, str(device)
        self.gpu = device.type == "cuda"
        self.dtype = "bfloat16" if self.gpu else "float32"
        self.size: int = GPU_SIZE if self.gpu else CPU_SIZE
        self.copied_bytes: int = GPU_BYTES if self.gpu else CPU_BYTES
        self.digest_dtypes = ("float32", "bfloat16", "float16") if self.gpu else ("float32",)
        self.digest_size = 4096 if self.gpu else 512

    def model(self):
        return self.torch.cuda.get_device_name(self.device) if self.gpu else processor()

    def software(self):
        """As NumpyProcessors.software."""
        version = f"torch {self.torch.__version__}"
        if not self.gpu:
            return f"{version}, {instruction_set()}, {processors()} threads"
        units = self.torch.cuda.get_device_properties(self.device).multi_processor_count
        override = os.environ.get("NVIDIA_TF32_OVERRIDE", "")
        tf32 = f"tf32 {self.torch.backends.cuda.matmul.allow_tf32}{override and f', override {override}'}"
        return f"{version}, {self.torch.version.cuda or self.torch.version.hip}, {units} multiprocessors, {tf32}"

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
            self.wait()

        return repeated

    def wait(self):
        """Until the GPU has done all that it was told to do."""
        if self.gpu:
            self.torch.cuda.synchronize(self.device)

    def indices(self, count):
        """As NumpyProcessors.indices."""
        return self.torch.arange(count, dtype=self.torch.int64, device=self.device)

    def cast(self, array, dtype):
        return array.to(getattr(self.torch, dtype))

    def words(self, array):
        """As NumpyProcessors.words."""
        width = {1: self.torch.int8, 2: self.torch.int16, 4: self.torch.int32, 8: self.torch.int64}
        return array.reshape(-1).view(width[array.element_size()]).to(self.torch.int64)

    def same(self, one, other):
        return self.torch.equal(one, other)

    def empty_words(self, count):
        """As NumpyProcessors.empty_words; None where the memory for them is not free."""
        try:
            return self.torch.empty(count, dtype=self.torch.int64, device=self.device)
        except self.torch.cuda.OutOfMemoryError:
            return None

    def address(self, array):
        return array.data_ptr()

    def random(self, shape, dtype):
        """Normally distributed numbers."""
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.device).normal_()

    def buffer(self, size):
        """So many bytes on the device."""
        return self.torch.empty(size, dtype=self.torch.uint8, device=self.device)

    def host_buffer(self, size):
        """So many bytes on the host, pinned where there is a GPU, each page touched."""
        return self.torch.empty(size, dtype=self.torch.uint8, pin_memory=self.gpu).fill_(1)

    def free(self):
        """Give back what the library keeps for later."""
        if self.gpu:
            self.torch.cuda.empty_cache()

    def free_bytes(self):
        """Of a GPU's memory, what nobody uses."""
        self.free()
        return self.torch.cuda.mem_get_info(self.device)[0]

    def capability(self):
        """The compute capability of NVIDIA's GPUs, (9, 0); None of other devices."""
        if not self.gpu or self.torch.version.hip:
            return None
        return self.torch.cuda.get_device_capability(self.device)

    def older_fp8(self):
        """Whether fp8 has AMD's format before MI350."""
        known = self.torch.cuda.get_device_properties(self.device) if self.gpu else None
        return "gfx94" in getattr(known, "gcnArchName", "")

    def pci_address(self):
        """0000:1b:00.0; "" where torch does not tell (before 2.9)."""
        if not self.gpu:
            return ""
        known = self.torch.cuda.get_device_properties(self.device)
        if not hasattr(known, "pci_bus_id"):
            return ""
        return f"{known.pci_domain_id:04x}:{known.pci_bus_id:02x}:{known.pci_device_id:02x}.0"

    def sensors(self):
        """A function that reads clock, power and temperature, None where nobody can tell (gpu_sensors.reader)."""
        known = self.torch.cuda.get_device_properties(self.device) if self.gpu else None
        uuid = str(getattr(known, "uuid", ""))
        return reader(uuid if uuid.startswith("GPU-") or not uuid else f"GPU-{uuid}")
