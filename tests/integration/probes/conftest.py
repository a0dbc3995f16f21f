"""What measures devices, on this machine's processors; and what reads data sets."""

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.integration.probes.launched import PROBE_FOLDER


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch's threads wait for each other by spinning, which takes for ever beside other tests."""
    torch = importlib.import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["numpy", "torch"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Any:
    """The processors, as the probe `devices` measures them with each library."""
    monkeypatch.syspath_prepend(PROBE_FOLDER)
    library = importlib.import_module(request.param)
    if request.param == "numpy":
        return importlib.import_module("torch_device").NumpyProcessors(library)
    return importlib.import_module("torch_device").TorchDevice(library, library.device("cpu"))


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PROBE_FOLDER)
    return importlib.import_module("datasets")


@pytest.fixture
def training(datasets: ModuleType) -> ModuleType:
    return importlib.import_module("training")
