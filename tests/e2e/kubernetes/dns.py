"""CoreDNS for the pods: the names of Services and of the pods behind headless ones.

It knows nothing outside.
"""

from tests.e2e.kubernetes import addons
from tests.e2e.kubernetes.machine import Machine

COREFILE = """\
cluster.local {{
    bind {address}
    errors
    kubernetes cluster.local {{
        kubeconfig /run/cluster/kubeconfig-admin seatrial-{number}
    }}
}}
. {{
    bind {address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def start(machine: Machine) -> None:
    """Start it on the address that the kubelets write into every pod's resolv.conf."""
    folder = addons.bring_in(machine, addons.COREDNS)
    (machine.state / "Corefile").write_text(
        COREFILE.format(address=machine.address(1), number=machine.number)
    )
    machine.spawn("coredns", f"{folder}/coredns", "-conf", "/run/cluster/Corefile")
