"""What schedulers answer: commands of Slurm and runai, and objects of Kubernetes, whose texts
people write.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from seatrial.platforms.kubernetes.api import POD, Api
from seatrial.platforms.runai.platform import ending, read_workload
from seatrial.platforms.service import node_service
from seatrial.platforms.slurm.bringup import read_nodes_log
from seatrial.platforms.slurm.jobs import never_starts, parse_jobs, waits_for
from seatrial.platforms.slurm.login import Login
from tests.fuzz.mutations import HOSTILE
from tests.fuzz.target import Target, line_of, text_of
from tests.unit.test_node_services import SINFO, cluster, kube_node, pod

JOBS = b"""\
41|RUNNING|n[0-3]|
42|PENDING||(Resources)
43|PENDING||(QOSMaxGRESPerJob)
44|REQUEUE_HOLD||(launch failed)
"""
NODES_LOG = b"""\
0: seatrial-node: ready 40022
1: seatrial-node: failed: no sshd
srun: error: n1: task 1: Exited with exit code 1
"""
CONDITION = {"message": "0/4 nodes are available", "reason": "Unschedulable"}
WORKLOAD = {"name": "seatrial-r1", "status": {"phase": "Running", "conditions": [CONDITION]}}
TEXTS = [word for word in HOSTILE if isinstance(word, str)]


def _read_jobs(path: Path) -> None:
    for job in parse_jobs(path.read_text(errors="replace")):
        reason = never_starts(job) or waits_for(job.pending)
        assert len(str(reason)) < 1 << 21


def _read_nodes_log(path: Path) -> None:
    log = read_nodes_log(path.read_text(errors="replace"))
    assert all(text.isprintable() for text in (*log.last_lines.values(), *log.problems.values()))


def _read_workload(path: Path) -> None:
    described = read_workload(path.read_text(errors="replace"))
    assert all(message.isprintable() for message in described.messages)
    ending("r1", described)


def _read_sinfo(path: Path) -> None:
    """The nodes as `sinfo` prints them, and the jobs on them as `squeue` does."""
    text = path.read_text(errors="replace")

    def run(self: Login, argv: Sequence[str], **_: object) -> str:
        return text

    with patch.object(Login, "run", run):
        for node in node_service(cluster("slurm", {"qos": "low"})).nodes():
            assert node.why.isprintable()


def _kube(dice: random.Random) -> bytes:
    """Nodes and pods in which a few texts are hostile: the server has checked their types."""
    objects = [
        kube_node("n0"),
        kube_node("n1", "seatrial/gate", failed=True),
        pod("p", "n0"),
        pod("q", "n1", "Job"),
    ]
    for _ in range(dice.randint(1, 6)):
        _spoil(dice.choice(objects), dice)
    return json.dumps(objects).encode(errors="surrogatepass")


def _spoil(value: Any, dice: random.Random) -> None:
    """Put a hostile text in place of one, if the way down to it ends at one."""
    while value:
        key = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if isinstance(value[key], str):
            value[key] = dice.choice(TEXTS)
            return
        value = value[key] if isinstance(value[key], dict | list) else None


def _read_kube(path: Path) -> None:
    objects = json.loads(path.read_text(errors="surrogatepass"))
    nodes, pods = objects[:2], objects[2:]
    with (
        patch.object(Api, "list", lambda self, kind, *_, **__: nodes),
        patch.object(
            Api, "list_everywhere", lambda self, kind, *_, **__: pods if kind == POD else []
        ),
    ):
        for node in node_service(cluster("kubernetes", {})).nodes():
            assert len(node.why) < 1 << 21


SCHEDULERS = (
    Target("jobs of Slurm", text_of(JOBS), _read_jobs),
    Target("log of Slurm's nodes", text_of(NODES_LOG), _read_nodes_log),
    Target("nodes of Slurm", text_of(SINFO.encode()), _read_sinfo),
    Target("nodes of Kubernetes", _kube, _read_kube),
    Target("workload of RunAI", line_of(WORKLOAD), _read_workload),
)
