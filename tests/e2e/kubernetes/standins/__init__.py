"""Small stand-ins for controllers that cannot be built here: their CRDs, and what is documented of
what they do.

They are written anew from what is documented of the real ones. What passes here is proven against
the real API server, scheduler and kubelets, and against controllers that do as it is documented;
not against the real controllers.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.kubernetes.build import exclusive
from tests.e2e.kubernetes.cluster import Cluster

HERE = Path(__file__).parent


@contextmanager
def standin(cluster: Cluster, name: str) -> Iterator[None]:
    """The stand-in of that name tends the cluster within the block; after it the cluster knows its
    kinds no more.
    """
    log = cluster.own.state / "logs" / f"standin-{name}.log"
    command = [sys.executable, "-m", f"{__name__}", name, "--kubeconfig", str(cluster.kubeconfig)]
    with definitions(cluster, name), log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=HERE.parents[3],
            start_new_session=True,
        )
        try:
            yield
            assert process.poll() is None, (
                f"the stand-in ended by itself: {cluster.own.log(log.stem)}"
            )
        finally:
            process.kill()
            process.communicate()


@contextmanager
def definitions(cluster: Cluster, name: str) -> Iterator[None]:
    """The CRDs of crds/NAME.yaml, one user at a time; at the end they go, and every object of
    theirs.
    """
    file = HERE / "crds" / f"{name}.yaml"
    with exclusive(cluster.own.state / f"standin-{name}.lock"):
        try:
            cluster.define(file)
            yield
        finally:
            cluster.kubectl("delete", "--ignore-not-found", "--timeout=60s", f"--filename={file}")
