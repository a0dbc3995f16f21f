"""Ports of nodes: taken, or not to be had by the job's user; the ranks meet all the same."""

import shlex
import sys
from pathlib import Path
from typing import Any

from seatrial.remote.mpi import mpirun
from seatrial.remote.node_setup import set_up_node
from seatrial.remote.ssh import on_each
from tests.quick_run import launched, quick_run
from tests.site import PATIENCE_S
from tests.slurm.cluster import SlurmCluster

HOLD = (
    "import socket; s = socket.create_server(('0.0.0.0', 222)); print('up', flush=True); "
    "import time; time.sleep(600)"
)


def test_a_node_whose_port_is_taken_uses_another_one(
    slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    with slurm.started_in("n1", sys.executable, "-c", HOLD) as holder:
        assert holder.stdout and holder.stdout.readline() == b"up\n"
        with launched(
            quick_run(tmp_path, nodes=3, platform={**settings, "nodelist": "n[0-2]"})
        ) as testbed:
            assert [node.name for node in testbed.nodes] == ["n0", "n1", "n2"]
            first, taken, last = (node.port for node in testbed.nodes)
            assert (first, last) == (222, 222)
            assert taken > 1024
            for contact in on_each(
                testbed.nodes, lambda node: set_up_node(testbed, node, 60)
            ).values():
                assert not isinstance(contact, Exception), contact
                contact.transport.close()
            result = mpirun(testbed, ["hostname"], timeout_s=PATIENCE_S)
            assert result.ok, result.lines
            assert {"n0", "n1", "n2"} <= set(result.lines)
            # Without its port, as MPI's tree may
            command = shlex.join(["ssh", testbed.nodes[1].address, "hostname"])
            result = mpirun(testbed, ["sh", "-c", command], timeout_s=PATIENCE_S)
            assert [line for line in result.lines if line == "n1"] == ["n1"] * 3
