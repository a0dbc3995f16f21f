"""What can be added to a cluster, built with the versions that Kubernetes is: what they share is
compiled once.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.kubernetes.build import (
    CACHE,
    HERE,
    TOOLS,
    Unavailable,
    digest,
    exclusive,
    go_build,
    require_go,
)
from tests.e2e.kubernetes.machine import Machine


@dataclass(frozen=True, slots=True)
class Addon:
    """A program, and files that its module has beside the source.

    Its versions are in tools/go.mod, unless it has a folder in addons/ with a go.mod of its own.
    """

    name: str
    package: str
    module: str = ""
    files: tuple[str, ...] = ()

    @property
    def source(self) -> Path:
        own = HERE / "addons" / self.name
        return own if own.is_dir() else TOOLS


KWOK = Addon(
    "kwok",
    "sigs.k8s.io/kwok/cmd/kwok",
    "sigs.k8s.io/kwok",
    (
        "kustomize/stage/node/fast/node-initialize.yaml",
        "kustomize/stage/pod/fast/pod-ready.yaml",
        "kustomize/stage/pod/fast/pod-delete.yaml",
    ),
)
COREDNS = Addon("coredns", "./coredns")
TRAINING_OPERATOR = Addon(
    "training-operator",
    "github.com/kubeflow/training-operator/cmd/training-operator.v1",
    "github.com/kubeflow/training-operator",
    # Its MPIJob is another than that of the MPI operator
    ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",),
)
HELM = Addon("helm", "helm.sh/helm/v4/cmd/helm")
KUBE_PROXY = Addon("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy")
ALL = (COREDNS, KWOK, TRAINING_OPERATOR, HELM, KUBE_PROXY)


def folder(addon: Addon) -> Path:
    """Where the program and its files lie, built when the cache has none of this go.mod.

    Raises:
        Unavailable: it cannot be built here.
    """
    target = CACHE / "addons" / f"{addon.name}-{digest(repr(addon), addon.source)}"
    with exclusive(CACHE / f"addon-{addon.name}.lock"):
        if not target.exists():
            require_go()
            partial = target.with_suffix(".partial")
            go_build(addon.source, addon.package, partial / addon.name)
            _take_files(addon, partial)
            partial.rename(target)
    return target


def files(addon: Addon) -> Path:
    """Where the files of its module lie, fetched when the cache has none of this go.mod; the
    program is not built.

    Raises:
        Unavailable: its module cannot be had.
    """
    target = CACHE / "addons" / f"{addon.name}-files-{digest(repr(addon), addon.source)}"
    with exclusive(CACHE / f"addon-{addon.name}-files.lock"):
        if not target.exists():
            require_go()
            partial = target.with_suffix(".partial")
            partial.mkdir(parents=True, exist_ok=True)
            _take_files(addon, partial)
            partial.rename(target)
    return target


def _take_files(addon: Addon, target: Path) -> None:
    if addon.files:
        fetch = ["go", "mod", "download", addon.module]
        done = subprocess.run(
            fetch, cwd=addon.source, capture_output=True, text=True, check=False, timeout=600
        )
        if done.returncode:
            raise Unavailable(f"{addon.module}: {done.stderr.strip()[-500:]}")
        where = ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", addon.module]
        done = subprocess.run(where, cwd=addon.source, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"{addon.module}: {done.stderr.strip()[-500:]}")
        for file in addon.files:
            (target / Path(file).name).write_bytes(Path(done.stdout.strip(), file).read_bytes())


def bring_in(machine: Machine, addon: Addon) -> str:
    """Put the folder where the machine sees it; its path inside."""
    source, target = folder(addon), machine.state / addon.name
    if not target.exists():
        shutil.copytree(source, target, copy_function=os.link)
    return f"/run/cluster/{addon.name}"
