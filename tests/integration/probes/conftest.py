"""What measures devices, on this machine's processors; and what reads data sets."""

import importlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis  # noqa: F401  a probe freezes the garbage collector, after which this cannot be imported any more
import pytest

from seatrial.remote.probes import PROBES
from tests.integration.probes.launched import PROBE_FOLDER

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """A probe's module by its name."""
    monkeypatch.syspath_prepend(PROBE_FOLDER)
    return importlib.import_module


@pytest.fixture
def probes(tmp_path: Path) -> Path:
    """A folder of their own, as on a node."""
    folder = tmp_path / "work"
    folder.mkdir()
    for path in PROBES:
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch's threads wait for each other by spinning, which takes for ever beside other tests."""
    torch = importlib.import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["numpy", "torch"])
def device(request: pytest.FixtureRequest, load: Load, one_thread: None) -> Any:
    """The processors, as the probe `devices` measures them with each library."""
    library = importlib.import_module(request.param)
    if request.param == "numpy":
        return load("torch_device").NumpyProcessors(library)
    return load("torch_device").TorchDevice(library, library.device("cpu"))


@pytest.fixture
def datasets(load: Load) -> ModuleType:
    return load("datasets")


@pytest.fixture
def training(load: Load) -> ModuleType:
    return load("training")
