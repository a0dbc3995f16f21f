"""A campaign on a real Slurm whose job ends twice."""

import json
from typing import Any

import yaml

from tests.e2e.conftest import Console, until
from tests.site import PATIENCE_S
from tests.slurm.cluster import SlurmCluster

PHASE = {"name": "brief", "connectivity": {"timeout_s": 60}, "devices": {"seconds": 2.0}}


def test_a_campaign_whose_job_ends_twice_goes_on(
    slurm: SlurmCluster, slurm_console: Console, settings: dict[str, Any]
) -> None:
    cluster, soak = slurm_console.cluster(2, platform=settings), slurm_console.folder / "soak.yaml"
    soak.write_text(
        yaml.safe_dump({"name": "soak", "campaign": {"minutes": 1.5, "phases": [{"suite": PHASE}]}})
    )
    process = slurm_console.start(
        "run", cluster, "--suite", soak, "--out", slurm_console.folder / "runs" / "soak"
    )
    ended = set[str]()
    for _ in range(2):

        def running() -> str:
            listed = slurm.command(
                "squeue", "--noheader", "--states=RUNNING", "--format=%i"
            ).split()
            logs = slurm_console.folder.glob("runs/2*/logs/run.log")
            at_work = sum("2 of 2 nodes answer" in log.read_text() for log in logs)
            return listed[0] if listed and listed[0] not in ended and at_work > len(ended) else ""

        until(lambda: bool(running()) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        job = running()
        ended.add(job)
        slurm.command("scancel", job)
    out, err = process.communicate(timeout=2 * PATIENCE_S)
    status = slurm_console.run("status", cluster, "--json")
    campaign = json.loads(status.out)["campaign"]
    assert campaign["ended"], f"{out}\n{err}"
    assert campaign["left_out"] == []
    codes = [phase["code"] for phase in campaign["phases"] if not phase["seconds"]]
    assert codes == ["slurm-job-cancelled"] * 2, campaign["phases"]
    assert {phase["verdict"] for phase in campaign["phases"] if phase["seconds"]} <= {
        "pass",
        "degraded",
    }
