"""A run on Slurm from submission to teardown, by what Slurm's programs print."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError
from seatrial.platforms import state as states
from seatrial.platforms.commands import Finished
from seatrial.platforms.slurm import platform as slurm
from seatrial.platforms.slurm.platform import SrunLauncher
from seatrial.text.redact import Secrets
from tests.unit.slurm.test_bringup import UP, Answers

RUN_ID = "20260102-0304-abcde"
NODES_LOG = (
    "0: seatrial-node: ready 222\n1: seatrial-node: ready 223\nsrun: error: a step\n9: of no task\n"
)
GONE = {"squeue": "", "sacct": ""}


class Site(Answers):
    """A Slurm of two nodes, n2 before n1; one of them has another address."""

    def __init__(self, **answers: str | Sequence[str]) -> None:
        hosts = {"scontrol": "n2\nn1\n", "sinfo": "n1|10.0.0.1\nn2|\n"}
        super().__init__(
            **{"squeue": UP, "sbatch": "7\n", "restarts": "2", "scancel": "", **hosts, **answers}
        )
        self.written: dict[str, str] = {}

    def _finished(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Finished:
        if argv[0] != "sh":
            return super()._finished(argv, stdin, timeout_s)
        self.calls.append(argv[-1])
        if stdin:
            self.written[argv[-1].rpartition("/")[-1]] = stdin.decode()
        logs = {"nodes.log": NODES_LOG, "job.log": "of the job\n", "pwd": "/home/u\n"}
        return Finished(0, next((text for name, text in logs.items() if name in argv[-1]), ""), "")


def platform_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Site, **settings: Any
) -> tuple[slurm.Slurm, Run]:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    monkeypatch.setattr(slurm, "login_of", lambda _: site)
    monkeypatch.setattr(slurm, "write_ports", lambda *_: None)
    cluster = Cluster.model_validate(
        {"name": "test", "nodes": 2, "platform": {"kind": "slurm", **settings}}
    )
    run = Run(RUN_ID, cluster, load_suite("quick"), tmp_path / "out")
    return slurm.platform(cluster), run


def test_a_run_that_is_up_is_attached_kept_and_its_logs_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    testbed = platform.launch(run)
    assert [(node.name, node.address, node.port) for node in testbed.nodes] == [
        ("n2", "n2", 222),
        ("n1", "10.0.0.1", 223),
    ]
    assert testbed.workdir == f"/tmp/seatrial-{RUN_ID}/work"
    assert not isinstance(testbed.launcher, SrunLauncher)
    assert {"node.sh", "job.sbatch"} == set(site.written)
    assert "PRIVATE KEY" in site.written["node.sh"]
    assert site.calls[0] == f"umask 077 && mkdir -p .seatrial && mkdir .seatrial/{RUN_ID}"
    assert "sbatch --parsable .seatrial/20260102-0304-abcde/job.sbatch" in site.calls

    again = platform.attach(RUN_ID)
    assert (again.nodes, again.user, again.workdir) == (
        testbed.nodes,
        testbed.user,
        testbed.workdir,
    )
    assert again.key_file.read_text().startswith("-----BEGIN")
    assert platform.leftovers() == []
    assert platform.keep(RUN_ID, 600)
    platform.collect(RUN_ID, tmp_path / "logs", 30, Secrets(()))
    logs = {
        str(file.relative_to(tmp_path / "logs")): file.read_text()
        for file in (tmp_path / "logs").rglob("*.log")
    }
    assert logs == {
        "job.log": "of the job\n",
        "nodes/n2.log": "seatrial-node: ready 222\n",
        "nodes/n1.log": "seatrial-node: ready 223\n",
        "nodes/srun.log": "srun: error: a step\n9: of no task\n",
    }


def test_a_job_that_is_gone_is_neither_kept_nor_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    platform.launch(run)
    for name, text in GONE.items():
        site._answers[name] = [text]
    assert not platform.keep(RUN_ID, 600)
    with pytest.raises(InputError, match="is over"):
        platform.attach(RUN_ID)
    platform.teardown(RUN_ID)
    assert site.calls[-1] == f"rm -rf -- .seatrial/{RUN_ID}"
    assert not states.run_folder(RUN_ID, "slurm").exists()
    platform.collect(RUN_ID, tmp_path / "none", 30, Secrets(()))
    assert not (tmp_path / "none").exists()
    site._answers["squeue"] = [UP]  # a job of the run without its keys
    with pytest.raises(InputError, match="is over"):
        platform.attach(RUN_ID)


@pytest.mark.parametrize(
    ("folder", "there"), [(".seatrial", "/home/u/.seatrial"), ("/shared/runs", "/shared/runs")]
)
def test_ranks_of_srun_work_on_the_shared_file_system(
    folder: str, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, run = platform_and_run(tmp_path, monkeypatch, Site(), launch="srun", folder=folder)
    testbed = platform.launch(run)
    assert testbed.workdir == f"{there}/{RUN_ID}"
    assert isinstance(testbed.launcher, SrunLauncher)
    assert testbed.launcher.job_id == "7"
    assert testbed.launcher.node_folder == f"/tmp/seatrial-{RUN_ID}"


def test_node_of_a_job_restarted_after_the_launch_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    testbed = platform.launch(run)
    assert testbed.blameless_reason(testbed.head) is None
    site._answers["restarts"] = ["3"]
    assert testbed.blameless_reason(testbed.head)
    assert f"--nodes={testbed.head.name}" in site.calls[-1]


def test_steps_of_a_measurement_are_killed_until_they_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slurm, "_PAUSE_S", 0.001)
    ours, others = " 7.3|seatrial-ranks\n7.4|seatrial-ranks \n", "7.0|job\n7.1|seatrial-ranks2\n"
    site = Site(squeue=[ours + others, "7.4|seatrial-ranks\n", others])
    cluster = Cluster.model_validate(
        {"name": "test", "nodes": 2, "platform": {"kind": "slurm", "launch": "srun"}}
    )
    SrunLauncher(site, cluster, cluster.platform, "7", "", "/w", "/n")._end_steps()  # type: ignore[arg-type]
    assert [call for call in site.calls if call.startswith("scancel")] == [
        "scancel --signal=KILL 7.3 7.4",
        "scancel --signal=KILL 7.4",
    ]
    monkeypatch.setattr(slurm, "_GONE_S", -1.0)
    site._answers["squeue"] = [ours]
    SrunLauncher(site, cluster, cluster.platform, "7", "", "/w", "/n")._end_steps()  # type: ignore[arg-type]
    assert sum(call.startswith("scancel") for call in site.calls) == 2
