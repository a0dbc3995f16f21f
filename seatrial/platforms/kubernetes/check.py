"""Whether the parts of a cluster file fit together on Kubernetes; what each alone may say is in `config`. Pure."""

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seatrial.builders import platforms_of
from seatrial.catalog import known_hardware
from seatrial.config.architecture import node_architecture, wrong_architecture
from seatrial.config.image import Recipe
from seatrial.model.errors import InputError
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.machines import machine
from seatrial.text.secret_values import looks_secret

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_OURS = ("SEATRIAL_", "PET_", "JOB_COMPLETION_INDEX")


def check(cluster: "Cluster", settings: KubernetesPlatform) -> None:
    """Raises InputError where the cluster file asks for what such a machine is not, or for what cannot work."""
    for where, problem in _problems(cluster, settings):
        raise InputError(f"{where}: {problem}")


def _problems(cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[tuple[str, str]]:
    profile, name = machine(settings.machine), settings.machine
    if cluster.image is None:
        yield "image", "is required on Kubernetes; the nodes run its sshd, Open MPI and torch"
    if isinstance(cluster.image, Recipe) and (foreign := _foreign(cluster.image, cluster)):
        yield "image", foreign
    if profile.gpus and cluster.gpus > profile.gpus:
        yield "gpus_per_node", f"machine {name} has {profile.gpus}, is {cluster.gpus}"
    if profile.gpus and cluster.nodes > 1 and cluster.gpus != profile.gpus:
        yield "gpus_per_node", f"machine {name} has {profile.gpus}, all used where nodes are several, is {cluster.gpus}"
    if profile.hardware and cluster.hardware.name in known_hardware() and cluster.hardware.name != profile.hardware:
        yield "hardware", f"machine {name} is {profile.hardware}, is {cluster.hardware.name}"
    if settings.host_network and cluster.ssh_port == 22:
        yield "ssh_port", "is taken by the host's own sshd with platform.host_network; choose another"
    if settings.host_network and profile.networks:
        yield (
            "platform.host_network",
            f"must be false on machine {name}, whose fabric comes by networks of the pod's own",
        )
    for variable in cluster.env:
        if looks_secret(variable):
            yield "env", f"{variable} looks like a secret and would stand in the manifest; use platform.secret_env"
    for variable in (*cluster.env, *(each.name for each in settings.secret_env)):
        if variable.startswith(_OURS):
            yield "env", f"{variable} is set by seatrial or by the launcher; leave it out"
    for variable in (each.name for each in settings.secret_env if each.name in cluster.env):
        yield "platform.secret_env", f"{variable} is in env as well"


def _foreign(recipe: Recipe, cluster: "Cluster") -> str | None:
    """Why what would be built cannot run on the nodes. An image that exists is looked at by the step `image`."""
    here = platform.machine()
    built_for = [name.split("/")[1] for name in platforms_of(recipe, node_architecture(cluster, here))]
    return wrong_architecture(recipe.name, built_for, cluster, here)
