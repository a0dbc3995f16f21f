"""The probe `devices` on a real GPU; skipped where there is none. Needs torch alone."""

import json
import subprocess
import sys
from statistics import median

import pytest

from seatrial.remote.probes import probe

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def test_every_gpu_is_measured_and_computes_alike_each_time() -> None:
    argv = [sys.executable, str(probe("devices")), "--seconds", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    devices = json.loads(done.stdout)["devices"]
    assert [device["device"] for device in devices] == [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    for device in devices:
        assert (device["wrong"], device["error"]) == ("", "")
        assert median(device["matmul_tflops"]) > 1
        assert median(device["copy_gb_s"]) > 10
