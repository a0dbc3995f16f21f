"""The training probe on a real GPU; skipped where there is none. Needs neither Prefect nor MPI."""

import json
import os
import subprocess
import sys

import pytest

from seatrial.remote.probes import probe

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def test_a_training_on_one_gpu_passes() -> None:
    """One rank over nccl: it learns, its numbers are finite, and the time of a step is a GPU's."""
    one_rank = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    meeting = ["--master-addr", "127.0.0.1", "--master-port", "28731", "--network", "127.0.0.0/8"]
    done = subprocess.run(
        [sys.executable, str(probe("training")), "--device", "cuda", "--steps", "40", *meeting],
        env=one_rank,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["event"], summary["backend"], summary["steps"]) == ("summary", "nccl", 40)
    assert summary["last_loss"] < 0.7 * summary["first_loss"]
    assert [rank["finite"] for rank in summary["ranks"]] == [True]
    assert summary["ranks"][0]["step_time_ms_median"] < 1000


def test_training_refuses_to_start_a_rank_without_its_own_gpu() -> None:
    beyond = str(torch.cuda.device_count())
    launched = {
        "RANK": beyond,
        "LOCAL_RANK": beyond,
        "WORLD_SIZE": str(torch.cuda.device_count() + 1),
    }
    meeting = ["--master-addr", "127.0.0.1", "--master-port", "1"]
    done = subprocess.run(
        [sys.executable, str(probe("training")), "--device", "cuda", *meeting],
        env={**os.environ, **launched},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "cannot start" in done.stderr
