"""What measures devices, on this machine's processors."""

import importlib
from typing import Any

import pytest

from tests.integration.probes.launched import PROBE_FOLDER


@pytest.fixture(params=["numpy", "torch"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The processors, as the probe `devices` measures them with each library."""
    monkeypatch.syspath_prepend(PROBE_FOLDER)
    library = importlib.import_module(request.param)
    if request.param == "numpy":
        return importlib.import_module("processors").NumpyProcessors(library)
    return importlib.import_module("torch_device").TorchDevice(library, library.device("cpu"))
