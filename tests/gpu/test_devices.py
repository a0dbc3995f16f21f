"""The probe `devices` on a real GPU; skipped where there is none. Needs torch alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from seatrial.remote.probes import PROBES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def measured(folder: Path, *options: str, **env: str) -> list[dict[str, Any]]:
    """What the probe says of each GPU."""
    for path in PROBES:
        shutil.copy(path, folder)
    argv = [sys.executable, str(folder / "devices.py"), *options]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=500, check=True, env={**os.environ, **env}
    )
    devices: list[dict[str, Any]] = json.loads(done.stdout)["devices"]
    assert [device["device"] for device in devices] == [
        f"cuda:{i}" for i in range(torch.cuda.device_count())
    ]
    return devices


def rates(device: dict[str, Any], metric: str) -> dict[str, float]:
    """The median by what it depends on."""
    return {
        " ".join(map(str, rate["conditions"].values())): median(rate["samples"])
        for rate in device["rates"]
        if rate["metric"] == metric
    }


def test_every_gpu_is_measured_and_repeats_the_same_digests(tmp_path: Path) -> None:
    devices, again = measured(tmp_path, "--seconds", "1"), measured(tmp_path, "--rounds", "1")
    for device, once_more in zip(devices, again, strict=True):
        assert (device["wrong"], device["error"]) == ("", "")
        assert median(device["matmul_tflops"]) > 1
        assert median(device["copy_gb_s"]) > 10
        assert set(device["digests"]) == {"float32", "bfloat16", "float16"}
        assert device["digests"] == once_more["digests"]


def test_gpus_of_a_kind_give_the_same_digest(tmp_path: Path) -> None:
    alike: dict[tuple[str, str], list[dict[str, str]]] = {}
    for device in measured(tmp_path, "--seconds", "0.1", "--rounds", "20"):
        alike.setdefault((device["model"], device["software"]), []).append(device["digests"])
    assert all(digests == group[0] for group in alike.values() for digests in group)


@pytest.mark.parametrize(("fault", "wrong"), [("unstable", True), ("wrong", False)])
def test_a_fault_makes_a_result_wrong_or_changes_its_digest(
    tmp_path: Path, fault: str, wrong: bool
) -> None:
    healthy = measured(tmp_path, "--seconds", "0.1")[0]
    first = measured(tmp_path, "--seconds", "0.1", SEATRIAL_COMPUTE_FAULT=f"{fault}:cuda:0")[0]
    assert bool(first["wrong"]) is wrong
    assert first["digests"] != healthy["digests"] or wrong


def test_nearly_all_memory_is_tested(tmp_path: Path) -> None:
    free = torch.cuda.mem_get_info(0)[0] / 1e9
    device = measured(tmp_path, "--seconds", "0.1", "--memory-share", "0.9")[0]
    assert (device["wrong"], device["error"]) == ("", "")
    assert 0.75 * free < rates(device, "memory_tested")[""] < 0.95 * free


def test_host_links_peers_and_stress_are_measured(tmp_path: Path) -> None:
    device = measured(tmp_path, "--seconds", "0.5", "--host-link", "--peers", "--stress-s", "5")[0]
    assert (device["wrong"], device["error"]) == ("", "")
    assert min(rates(device, "host_to_device").values()) > 1
    assert min(rates(device, "device_to_host").values()) > 1
    assert len(rates(device, "peer_copy")) == torch.cuda.device_count() - 1
    assert rates(device, "matmul_stress")[""] > 1
    assert rates(device, "gpu_temperature")["stress"] > 10


def test_the_fastest_product_of_each_format_is_found(tmp_path: Path) -> None:
    """About as fast as the square of 8192, and faster the fewer bits a number has.

    A GPU at its power limit lowers its clock as it warms up: an H100 gave 6 % less than in its
    first second.
    """
    device = measured(
        tmp_path, "--seconds", "1", "--dtypes", "fp32", "tf32", "bf16", "fp16", "fp8"
    )[0]
    assert (device["wrong"], device["error"]) == ("", "")
    best = rates(device, "matmul_best")
    if torch.cuda.get_device_capability() >= (8, 0):
        assert best["bf16"] >= 0.9 * median(device["matmul_tflops"])
        assert best["fp32"] < best["tf32"] < best["bf16"]
    if torch.cuda.get_device_capability() >= (8, 9):
        assert best["fp8"] > 1.3 * best["bf16"]
