"""Checks before a run on bare metal, each with the next step."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.baremetal.bringup import Container, container_of, image_missing, run_folder
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import Answer, Hosts, ssh_config
from seatrial.text.printable import printable
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_TIMEOUT_S = 30.0
_FREE_BYTES = 100 * 1024**2


def problems(cluster: "Cluster", settings: BaremetalPlatform, hosts_type: type[Hosts] = Hosts) -> list[str]:
    """Everything that would keep a run from starting, on every host. Changes nothing on them."""
    with tempfile.TemporaryDirectory(prefix="seatrial-doctor-") as folder:
        config = Path(folder) / "ssh_config"
        config.write_text(ssh_config(settings))
        hosts = hosts_type(settings, config)

        container = _container(cluster, settings)
        request = {
            "verb": "check",
            "mpirun": cluster.mpi.mpirun,
            "container": container.request() if container else None,
        }
        answers = hosts.ask_each(request, _TIMEOUT_S, settings.hosts)
    absent = next((answer for answer in answers.values() if isinstance(answer, MissingError)), None)
    if absent:
        return [absent.reason]
    return [problem for host, answer in answers.items() for problem in _of_host(host, answer, settings, container)]


def _container(cluster: "Cluster", settings: BaremetalPlatform) -> Container | None:
    run = Run("doctor", cluster, load_suite("quick"), Path("doctor"))
    return container_of(run, settings, run_folder(settings, run.run_id))


def _of_host(
    host: str, answer: Answer | SeatrialError, settings: BaremetalPlatform, container: Container | None
) -> Iterator[str]:
    if isinstance(answer, SeatrialError):
        yield answer.reason
        return
    if answer.missing:
        programs = printable(some_of(answer.missing))[:500]
        yield Reason.of("baremetal-host-lacks", host=host, programs=programs)
    if answer.image_missing and container:
        advice = (
            f"a run pulls it, or `{container.program} pull` does now" if container.name else "there is no such file"
        )
        yield image_missing(container, host, advice)
    if problem := _of_folder(answer):
        yield Reason.of("baremetal-folder-unusable", host=host, folder=settings.folder, problem=problem)
    if answer.held is not None:
        yield Reason.of("baremetal-host-busy", host=host, holder=answer.held)


def _of_folder(answer: Answer) -> str | None:
    if not answer.writable:
        return "is not writable for the user who logs in"
    if not answer.executable:
        return "does not let programs run (it is mounted noexec)"
    if answer.free_bytes < _FREE_BYTES:
        return f"has {answer.free_bytes // 1024**2} MiB free"
    return None
