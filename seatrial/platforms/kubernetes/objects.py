"""Everything a run submits, in the order it is submitted. Pure: the keys come from outside."""

import base64

from seatrial.platforms.kubernetes.launchers import Kind, Launcher, launcher_for, launchers
from seatrial.platforms.kubernetes.machines import machine
from seatrial.platforms.kubernetes.plan import RUN_ID, TENDED_BY, KubernetesPlan, Object
from seatrial.platforms.kubernetes.pod import CHANNEL, NODE, RDMA, ROLE


def objects(plan: KubernetesPlan, keys: dict[str, str]) -> list[Object]:
    """Secret, Service, claims and what the launcher submits; the last one owns the others. `keys` by file name."""
    launcher = launcher_for(plan.settings.launcher)
    services = [service(plan)] if launcher.service else []
    return [secret(plan, keys), *services, *claims(plan), *launcher.objects(plan)]


def claims(plan: KubernetesPlan) -> list[Object]:
    """What the machine family's pods claim of the nodes: a domain of NVLinks between them, their RDMA interfaces."""
    profile = machine(plan.settings.machine)
    made: list[Object] = []
    if profile.compute_domain:
        channel = {"resourceClaimTemplate": {"name": f"{plan.name}-{CHANNEL}"}}
        made.append(
            {
                "apiVersion": "resource.nvidia.com/v1beta1",
                "kind": "ComputeDomain",
                "metadata": plan.metadata(),
                "spec": {"numNodes": plan.nodes, "channel": channel},
            }
        )
    if profile.rdma_claims:
        exactly = {
            "deviceClassName": "mrdma.google.com",
            "allocationMode": "ExactCount",
            "count": profile.rdma_claims,
        }
        made.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": plan.metadata(name=f"{plan.name}-{RDMA}"),
                "spec": {"spec": {"devices": {"requests": [{"name": RDMA, "exactly": exactly}]}}},
            }
        )
    return made


EXTRAS = (  # what some runs make besides Secret, Service and the launcher's object
    Kind("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", needs="Kubeflow Trainer"),
    Kind("resource.nvidia.com/v1beta1", "ComputeDomain", needs="NVIDIA's DRA driver (k8s-dra-driver-gpu)"),
    Kind("resource.k8s.io/v1", "ResourceClaimTemplate", needs="a Kubernetes with dynamic resource allocation"),
)
_ALWAYS = (Kind("v1", "Pod"), Kind("v1", "Service"), Kind("v1", "Secret"))


def kinds() -> tuple[Kind, ...]:
    """All that a run may have made, whatever the cluster file says today; what makes others first."""
    return (*(launcher.kind for launcher in launchers()), *EXTRAS, *_ALWAYS)


def needs(launcher: Launcher, kind: Kind) -> bool:
    """Whether every run with this launcher makes such objects; the others may be unknown, or forbidden."""
    return kind in (launcher.kind, *_ALWAYS)


def kind_of(manifest: Object) -> Kind:
    """The kind of an object, with what to install where the cluster does not know it."""
    object_kind = Kind(manifest["apiVersion"], manifest["kind"])
    known = (*EXTRAS, *(launcher.kind for launcher in launchers()))
    return next(
        (kind for kind in known if (kind.api_version, kind.kind) == (object_kind.api_version, object_kind.kind)),
        object_kind,
    )


def secret(plan: KubernetesPlan, keys: dict[str, str]) -> Object:
    """The run's own keys."""
    data = {name: base64.b64encode(text.encode()).decode() for name, text in keys.items()}
    metadata = plan.metadata()
    if plan.pod:
        metadata["annotations"][TENDED_BY] = plan.pod
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


def service(plan: KubernetesPlan) -> Object:
    """Headless: it gives every pod a name, also before it is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": plan.metadata(),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN_ID: plan.run.run_id, ROLE: NODE},
            "ports": [{"name": "ssh", "port": plan.run.cluster.ssh_port}],
        },
    }
