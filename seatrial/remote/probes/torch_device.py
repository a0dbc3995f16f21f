"""One GPU, or the processors where numpy is missing or the node should have GPUs, measured with torch."""

import os

from processors import CPU_BYTES, CPU_SIZE, instruction_set, processor, processors  # type: ignore[import-not-found]

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
