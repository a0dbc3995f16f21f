"""A job's time limit against the time that a suite may take."""

import re
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.model.reason import code_of
from seatrial.platforms.slurm import SlurmPlatform, seconds
from seatrial.platforms.slurm.platform import check_time_limit


def warning(suite: str, time_limit: str, **fields: Any) -> str | None:
    settings = SlurmPlatform(kind="slurm", time_limit=time_limit)
    cluster = Cluster.model_validate({"name": "test", "nodes": 2, "platform": settings, **fields})
    return check_time_limit(Run("20260102-0304-abcde", cluster, load_suite(suite), Path("out")), settings)


def test_a_job_that_is_long_enough_is_silent() -> None:
    assert warning("quick", "00:30:00") is None


def test_both_numbers_are_in_the_warning() -> None:
    words = warning("nightly", "00:45:00") or ""
    assert "suite nightly" in words
    assert "time_limit is 0:45:00" in words
    assert "keep_s" not in words
    (enough,) = re.findall(r"add up to (1:\d\d:\d\d),", words)  # five sweeps, the training and more
    assert warning("nightly", enough) is None


def test_nodes_that_are_kept_need_their_time_too() -> None:
    assert warning("quick", "00:30:00", keep="on_failure", keep_s=600) is None
    assert "keep_s (2:00:00)" in (warning("quick", "00:30:00", keep="on_failure") or "")


@pytest.mark.parametrize(("suite", "limit"), [("acceptance", "00:59:00"), ("nightly", "00:09:00")])
def test_a_step_that_may_outlive_the_job_is_refused(suite: str, limit: str) -> None:
    with pytest.raises(MissingError) as error:
        warning(suite, limit)
    assert code_of(error.value.reason) == "slurm-time-limit-short"
    assert f"time_limit is 0:{limit[3:]}" in error.value.reason


def test_what_a_single_gpu_does_without_needs_no_time() -> None:
    gpus = {"hardware": "H100-SXM", "nodes": 1}
    assert warning("nightly", "00:45:00", gpus_per_node=1, **gpus) is None
    assert warning("nightly", "00:45:00", gpus_per_node=2, **gpus)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1", 60),
        ("90:30", 90 * 60 + 30),
        ("2:03:04", 2 * 3600 + 3 * 60 + 4),
        ("1-6", 30 * 3600),
        ("1-6:30", 30 * 3600 + 1800),
        ("1-06:00:01", 30 * 3600 + 1),
        ("30-0", 30 * 86400),
    ],
)
def test_a_time_limit_as_sbatch_reads_it(written: str, meant: int) -> None:
    assert seconds(written) == meant


@pytest.mark.parametrize("written", ["0:59", "30-0:00:01", "-1", "1:2:3:4", "1h"])
def test_a_time_limit_that_sbatch_or_a_run_cannot_use(written: str) -> None:
    with pytest.raises(ValueError, match="must be "):
        seconds(written)
