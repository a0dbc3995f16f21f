"""Jobs that slurmctld has forgotten: slurmdbd with MariaDB still knows how they ended, and without
it nobody does.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.model.reason import Reason
from seatrial.platforms.slurm.jobs import Job, ending, job_of, jobs_of, submit
from seatrial.platforms.slurm.login import Login
from seatrial.platforms.slurm.script import job_name
from tests.conftest import RUN_PREFIX
from tests.e2e.conftest import until
from tests.quick_run import launched, quick_run
from tests.slurm import accounting
from tests.slurm.cluster import SlurmCluster, lacking
from tests.slurm.settings import settings_of


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """One of this module's own, with accounting; slurmctld forgets a job two seconds after its
    end.
    """
    if os.geteuid():
        pytest.skip("only root can start slurmd")
    if packages := f"{lacking()} {accounting.lacking()}".strip():
        pytest.skip(f"missing: scripts/slurm-packages installs {packages}")
    cluster = SlurmCluster(2, accounting=True)
    cluster.start()
    yield cluster
    cluster.stop()
    assert cluster.leftovers() == set()


def submitted(slurm: SlurmCluster, run_id: str, command: str, *options: str) -> str:
    """The id of a job of that run."""
    script = slurm.shared / f"{run_id}.sbatch"
    lines = [
        f"#SBATCH {option}"
        for option in (f"--job-name={job_name(run_id)}", "--output=/dev/null", *options)
    ]
    script.write_text("\n".join(["#!/bin/sh", *lines, command, ""]))
    return submit(Login(), str(script))


def state(run_id: str, job_id: str) -> str:
    job = job_of(Login(), run_id, job_id)
    return job.state if job else "unknown"


def test_accounting_says_how_a_job_forgotten_by_slurmctld_ended(slurm: SlurmCluster) -> None:
    run_id = f"{RUN_PREFIX}{secrets.token_hex(4)}"
    ended, failed = submitted(slurm, run_id, "exit 0"), submitted(slurm, run_id, "exit 3")
    cancelled, late = (submitted(slurm, run_id, "exec sleep 600") for _ in range(2))
    until(lambda: state(run_id, cancelled) == "RUNNING")
    slurm.command("scancel", cancelled)
    until(lambda: state(run_id, late) == "RUNNING")
    slurm.command("scontrol", "update", f"jobid={late}", "timelimit=0")
    until(lambda: not jobs_of(Login(), run_id))  # slurmctld forgets once a minute
    codes = {ended: "failed", failed: "failed", cancelled: "cancelled", late: "timed-out"}
    for job_id, code in codes.items():
        job = job_of(Login(), run_id, job_id)
        assert isinstance(job, Job)
        assert job.is_over
        assert ending(job).code == f"slurm-job-{code}"
    assert job_of(Login(), run_id, "999999") is None


def test_a_run_whose_job_was_cancelled_and_forgotten_blames_no_node(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    run = quick_run(tmp_path, nodes=2, platform=settings_of(slurm))
    with launched(run) as testbed:
        slurm.command("scancel", f"--name={job_name(run.run_id)}")
        until(lambda: not jobs_of(Login(), run.run_id))
        assert (testbed.blameless_reason(testbed.head) or Reason()).code == "slurm-job-cancelled"
        slurm.kill("slurmdbd")  # sacct hangs or fails from now on
        assert (testbed.blameless_reason(testbed.head) or Reason()).code == "slurm-job-gone"
