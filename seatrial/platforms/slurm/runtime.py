"""The container that a step of a job runs in: options of srun, and what stands before the command. Pure."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.config.cluster import Cluster
from seatrial.platforms.container import apptainer_exec, apptainer_image, bind
from seatrial.platforms.slurm.config import SlurmPlatform

_REFERENCE = re.compile(
    r"(?:(?P<registry>[^/]*[.:][^/]*|localhost)/)?(?P<path>[^:@]+)(?P<tag>:[^@]+)?(?:@(?P<digest>.+))?"
)
_EXPORTED = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}


@dataclass(frozen=True, slots=True)
class Container:
    """Words for a shell, quoted where they must be: `options` of srun, and `command` before the program."""

    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def container_of(cluster: Cluster, image: str, names: Iterable[str] = (), mounts: Sequence[str] = ()) -> Container:
    """The container that the cluster file names; no words where nodes run their own software.

    `names` are variables that win over those of the image; `mounts` further binds, as a shell's words.
    """
    settings = cluster.platform
    assert isinstance(settings, SlurmPlatform)
    binds = [*(shlex.quote(bind(mount)) for mount in settings.mounts), *mounts]
    if settings.runtime == "none":
        return Container()
    if settings.runtime == "pyxis":
        return Container(options=tuple(_pyxis(image, binds, sorted(names))))
    return Container(command=(*apptainer_exec(cluster, settings.runtime, binds), shlex.quote(apptainer_image(image))))


def container_env(settings: SlurmPlatform, env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a step, so that they win over those of the image too."""
    prefix = _EXPORTED.get(settings.runtime)
    return {**env, **({f"{prefix}{name}": value for name, value in env.items()} if prefix else {})}


def _pyxis(image: str, binds: list[str], names: list[str]) -> list[str]:
    """The user stays who they are, so that sshd lets them in; an image of ours would start another sshd by itself."""
    mounts = [f"--container-mounts={','.join(binds)}"] if binds else []
    env = [f"--container-env={','.join(names)}"] if names else []
    own = ["--no-container-entrypoint", "--no-container-remap-root"]
    return [f"--container-image={shlex.quote(pyxis_image(image))}", *mounts, *env, *own]


def pyxis_image(image: str) -> str:
    """A reference as Pyxis reads it, `[REGISTRY#]IMAGE[:TAG]`; a path stays as it is.

    A digest takes the tag's place: Enroot asks the registry for either, and its older releases know no `@`.
    """
    match = _REFERENCE.fullmatch(image)
    if image.startswith("/") or not match:
        return image
    registry = f"{match['registry']}#" if match["registry"] else ""
    tag = f":{match['digest']}" if match["digest"] else match["tag"] or ""
    return f"{registry}{match['path']}{tag}"
