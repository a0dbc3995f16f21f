"""What GPUs have beside the quick measurements, tried with torch's processors in their place."""

import argparse
import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.probes.conftest import Load

MIB = 1 << 20


@pytest.fixture
def torch_cpu(load: Load, one_thread: None) -> Any:
    torch = importlib.import_module("torch")
    return load("torch_device").TorchDevice(torch, torch.device("cpu"))


def test_the_memory_of_processors_is_tested(load: Load, device: Any) -> None:
    thorough = load("thorough")
    assert thorough.memory_test(device, 0.9) == (64 * MIB / 1e9, "")


@pytest.mark.parametrize("bit", [0, 31, 63])
def test_a_stuck_bit_is_named_by_its_address(
    load: Load, device: Any, bit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    thorough = load("thorough")
    monkeypatch.setattr(thorough, "PROCESSORS_WORDS", 1 << 12)
    chunks: list[Any] = []
    empty_words, indices = device.empty_words, device.indices

    def remembered(count: int) -> Any:
        chunks.append(empty_words(count))
        return chunks[-1]

    def stuck(count: int) -> Any:
        """Called once all was written: the bit of word 77 is not what it was."""
        if chunks[0][77]:
            chunks[0][77] ^= -(1 << 63) if bit == 63 else 1 << bit
        return indices(count)

    device.empty_words, device.indices = remembered, stuck
    _, wrong = thorough.memory_test(device, 0.9)
    assert wrong == (
        f"memory at {device.address(chunks[0]) + 8 * 77:#x} differs from what was written in 1 of "
        "64 bits;"
        " 1 words nearby differ"
    )


def test_only_free_memory_of_a_gpu_is_tested(load: Load, torch_cpu: Any) -> None:
    """And something is spared for the comparison."""
    thorough, words = load("thorough"), 8
    torch_cpu.gpu = True
    for free, expected in ((80 << 30, int((80 << 30) * 0.9)), (4 << 30, 3 << 30), (1 << 29, 0)):
        torch_cpu.free_bytes = lambda free=free: free
        assert thorough.words_to_test(torch_cpu, 0.9) == expected // words


def test_memory_is_allocated_in_chunks_until_allocation_fails(load: Load, torch_cpu: Any) -> None:
    thorough = load("thorough")
    sizes = iter([1000, 500])
    torch_cpu.empty_words = lambda count: (n := next(sizes, None)) and torch_cpu.indices(n)
    assert [len(chunk) for chunk in thorough.allocated(torch_cpu, 1 << 40)] == [1000, 500]


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "bf16", "fp8"])
def test_the_fastest_shape_is_measured(
    load: Load, torch_cpu: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    thorough, shapes = load("thorough"), ((16, 16, 16), (32, 16, 48), (16, 16, 32))
    assert min(thorough.quick_tflops(torch_cpu, dtype, shape) for shape in shapes) > 0
    # On a busy machine any may win
    monkeypatch.setattr(thorough, "quick_tflops", lambda device, dtype, shape: shape[0])
    monkeypatch.setattr(thorough, "SHAPES", shapes)
    rate, *sensors = thorough.best(torch_cpu, dtype, 0.01)
    assert (rate["metric"], rate["conditions"], sensors) == ("matmul_best", {"dtype": dtype}, [])
    assert rate["shape"] == "32x16x48"
    assert min(rate["samples"]) > 0


def test_shape_that_does_not_fit_in_memory_is_skipped(
    load: Load, torch_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = torch_cpu.torch
    random = torch_cpu.random

    def limited(shape: tuple[int, int], dtype: str) -> Any:
        if max(shape) > 64:
            raise torch.cuda.OutOfMemoryError
        return random(shape, dtype)

    torch_cpu.random = limited
    thorough = load("thorough")
    monkeypatch.setattr(thorough, "SHAPES", ((128, 128, 128), (32, 32, 32)))
    rate, *_ = thorough.best(torch_cpu, "fp32", 0.01)
    assert rate["shape"] == "32x32x32"


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((7, 0), ["fp32", "fp16"]),
        ((8, 0), ["fp32", "tf32", "bf16", "fp16"]),
        ((8, 9), None),
        ((9, 0), None),
    ],
)
def test_a_gpu_is_asked_for_the_formats_that_it_has(
    load: Load, torch_cpu: Any, capability: tuple[int, int], expected: list[str] | None
) -> None:
    torch_cpu.capability = lambda: capability
    every = ["fp32", "tf32", "bf16", "fp16", "fp8"]
    assert [dtype for dtype in every if load("thorough").supported(torch_cpu, dtype)] == (
        expected or every
    )


@pytest.fixture
def of_a_mib(load: Load, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The longer measurements, which copy a MiB."""
    thorough = load("thorough")
    monkeypatch.setattr(thorough, "BYTES", MIB)
    return thorough


def test_links_are_measured_alone_and_all_at_once(of_a_mib: Any, torch_cpu: Any) -> None:
    first, second = of_a_mib.host_link([torch_cpu, torch_cpu], 0.01)
    described = [(rate["metric"], rate["conditions"]["at_once"]) for rate in first]
    both = [(metric, n) for n in (1, 2) for metric in ("host_to_device", "device_to_host")]
    assert described == both == [(rate["metric"], rate["conditions"]["at_once"]) for rate in second]
    (alone,) = of_a_mib.host_link([torch_cpu], 0.01)
    assert [rate["conditions"]["at_once"] for rate in alone] == [1, 1]


def test_every_pair_of_gpus_is_measured(load: Load, of_a_mib: Any, torch_cpu: Any) -> None:
    names = ["cuda:0", "cuda:1", "cuda:2"]
    devices = [load("torch_device").TorchDevice(torch_cpu.torch, torch_cpu.device) for _ in names]
    for device, name in zip(devices, names, strict=True):
        device.name = name
    rates, problems = of_a_mib.peers(devices, 0.01)
    assert problems == ["", "", ""]
    assert [[rate["conditions"]["peer"] for rate in of_one] for of_one in rates] == [
        ["gpu-1", "gpu-2"],
        ["gpu-0", "gpu-2"],
        ["gpu-0", "gpu-1"],
    ]


def test_peer_copy_that_differs_from_its_source_is_a_problem(of_a_mib: Any, torch_cpu: Any) -> None:
    torch_cpu.same = lambda one, other: False
    _, problems = of_a_mib.peers([torch_cpu, torch_cpu], 0.01)
    assert problems[0].endswith("differs from its source")


def test_lists_of_processors_are_read(load: Load) -> None:
    assert load("thorough").cpus_of("0-3,8,12-13\n") == {0, 1, 2, 3, 8, 12, 13}
    assert load("thorough").cpus_of("\n") == set()


def test_stress_runs_on_all_devices_at_once(load: Load, torch_cpu: Any) -> None:
    torch_cpu.size = 128
    outcomes = load("thorough").stress([torch_cpu, torch_cpu], 0.05)
    assert [(rates[0]["metric"], problem) for rates, problem in outcomes] == [
        ("matmul_stress", "")
    ] * 2


def test_sensors_are_read_while_work_goes_on(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_device = load("torch_device")
    monkeypatch.setattr(torch_device, "EVERY_S", 0.001)
    readings = iter([[1000.0, 300.0, 40.0], [1900.0, None, 60.0], [1900.0, 700.0, 64.0]])
    watch = torch_device.Watch(lambda: next(readings, None))
    with watch:
        watch.thread.join(10)
    described = {rate["metric"]: rate["samples"] for rate in watch.rates("bf16")}
    assert described == {"gpu_clock": [1900.0], "gpu_power": [700.0], "gpu_temperature": [62.0]}
    assert watch.rates("bf16")[0]["conditions"] == {"during": "bf16"}


def test_the_properties_of_a_gpu_are_read(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch gives them for an H100; older versions have neither address nor UUID."""
    torch = importlib.import_module("torch")
    known = SimpleNamespace(
        pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0, uuid="1b2c3d4e-0000-0000-0000-000000000001",
        multi_processor_count=132,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: known)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    asked: list[str] = []
    monkeypatch.setattr(load("torch_device"), "reader", asked.append)
    gpu = load("torch_device").TorchDevice(torch, torch.device("cuda", 0))
    assert (gpu.pci_address(), gpu.capability(), gpu.older_fp8()) == ("0000:1b:00.0", (9, 0), False)
    assert "132 multiprocessors, tf32 False" in gpu.software()
    gpu.sensors()
    known.uuid, known.gcnArchName = "GPU-1b2c3d4e", "gfx942:sramecc+:xnack-"
    gpu.sensors()
    assert asked == ["GPU-1b2c3d4e-0000-0000-0000-000000000001", "GPU-1b2c3d4e"]
    assert gpu.older_fp8()
    del known.pci_bus_id, known.uuid
    gpu.sensors()
    assert (gpu.pci_address(), asked[-1]) == ("", "")


def test_sensors_are_read_by_nvml_or_else_by_nvidia_smi(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetPowerUsage=lambda handle: 687_310,
        nvmlDeviceGetTemperature=lambda handle, kind: 64,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert load("torch_device").reader("GPU-1b2c")() == (1980, 687.31, 64)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(load("torch_device"), "smi_line", lambda uuid: "1500, 300.00, 50")
    assert load("torch_device").reader("GPU-1b2c")() == [1500.0, 300.0, 50.0]
    assert load("torch_device").reader("")() is None


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("1980, 687.31, 64\n", [1980.0, 687.31, 64.0]),
        ("1980, [N/A], 64", [1980.0, None, 64.0]),
        ("[Unknown Error], [Not Supported], 64", [None, None, 64.0]),
        ("No devices were found", None),
        ("", None),
    ],
)
def test_what_nvidia_smi_prints_is_read(
    load: Load, line: str, values: list[float | None] | None
) -> None:
    assert load("torch_device").smi_values(line) == values


def test_a_failing_measurement_does_not_stop_the_rest(load: Load, torch_cpu: Any) -> None:
    """A GPU whose links break has an error, and its stress all the same."""
    torch_cpu.gpu, torch_cpu.size = True, 128
    torch_cpu.wait, torch_cpu.pci_address = lambda: None, lambda: ""
    torch_cpu.capability = lambda: (7, 0)
    torch_cpu.sensors = lambda: lambda: None
    settings = {
        "dtypes": ["bf16"],
        "seconds": 0.01,
        "host_link": True,
        "peers": False,
        "stress_s": 0.05,
    }
    options = argparse.Namespace(memory_share=0.0, **settings)

    def no_buffer(size: int) -> None:
        raise RuntimeError(
            "CUDA error: unspecified\nlaunch failure\nCUDA kernel errors might be "
            "asynchronously reported"
        )

    torch_cpu.host_buffer = no_buffer
    (outcome,) = load("thorough").measure([torch_cpu], options)
    assert outcome["error"] == "CUDA error: unspecified launch failure"
    assert [rate["metric"] for rate in outcome["rates"]] == ["matmul_stress"]


def test_cpu_gets_only_the_memory_test(
    load: Load, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load("thorough"), "PROCESSORS_WORDS", 1 << 12)
    options = argparse.Namespace(
        memory_share=0.9, dtypes=["bf16"], seconds=0.01, host_link=True, peers=True, stress_s=9.0
    )
    (outcome,) = load("thorough").measure([device], options)
    assert ([rate["metric"] for rate in outcome["rates"]], outcome["wrong"]) == (
        ["memory_tested"],
        "",
    )
