"""Services with an address of their own: kube-proxy on every node, and the API server behind
`kubernetes.default`.

Without it pods reach each other by their own addresses and headless Services alone, which is all
that nodes need.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.kubernetes import addons, control
from tests.e2e.kubernetes.cluster import Cluster

# What it would set in the kernel is left as it is. Masqueraded, since pods of one node would answer
# past it.
FLAGS = (
    "--proxy-mode=iptables",
    "--masquerade-all",
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
    "--nodeport-addresses=127.0.0.0/8",
)


@contextmanager
def services(cluster: Cluster) -> Iterator[None]:
    """Pods reach every Service by its name or address, the API server's too.

    Raises:
        Unavailable: kube-proxy cannot be built here.
    """
    machine = cluster.own
    program = f"{addons.bring_in(machine, addons.KUBE_PROXY)}/{addons.KUBE_PROXY.name}"
    config = f"--kubeconfig={control.inside(control.kubeconfig(machine, 'admin'))}"
    cluster.apply(_api_server(machine.address(1)))
    started: list[str] = []
    try:
        for node in cluster.nodes:
            started.append(f"kube-proxy-{node}")
            machine.spawn(
                started[-1], program, config, f"--hostname-override={node}", *FLAGS, node=node
            )
        yield
    finally:
        for name in started:
            machine.kill(name)
        for node in cluster.nodes:
            machine.run(program, "--cleanup", node=node)
        cluster.kubectl("delete", "endpointslice", "kubernetes", "--ignore-not-found")


def _api_server(address: str) -> dict[str, object]:
    """Where it is; the API server itself would say so on a control plane that has a node."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": control.PORT, "protocol": "TCP"}],
    }
