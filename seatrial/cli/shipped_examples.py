"""The examples that ship with seatrial, by name."""

from dataclasses import dataclass
from pathlib import Path

from seatrial.system.shipped import CLUSTERS, REPOSITORY

_FOLDERS = {  # of the repository, by the example's name
    "docs": "docs",
    "grafana": "deployments/grafana",
    "helm": "deployments/helm",
    "images": "images",
    "kubernetes": "deployments/kubernetes",
    "prometheus": "deployments/prometheus",
    "server": "deployments/server",
    "slurm": "deployments/slurm",
}
_PURPOSES = {
    "docs": "The documentation, in Markdown.",
    "grafana": "A dashboard of Grafana.",
    "helm": "A chart: nodes for mpirun, nccl-tests and torchrun by hand.",
    "images": "The images, a folder each, and the files that they share.",
    "kubernetes": "Namespaces and roles for runs on Kubernetes.",
    "prometheus": "Alert rules of Prometheus.",
    "server": "A Prefect server and a worker, by Docker Compose or on Kubernetes.",
    "slurm": "A HealthCheckProgram and prolog of Slurm.",
}


@dataclass(frozen=True, slots=True)
class Example:
    """A file or a folder that ships with seatrial, and its purpose in a sentence."""

    path: Path
    purpose: str


def shipped_examples() -> dict[str, Example]:
    """Return the examples by name: cluster files, suites and requirements first."""
    from seatrial.certificate.requirements import SHIPPED_FOLDER
    from seatrial.checks import suites

    clusters = (REPOSITORY / CLUSTERS).glob("*.yaml")
    shipped_suites = Path(suites.__file__).parent.glob("*.yaml")
    examples = {
        file.stem: Example(file, _first_line(file))
        for file in [
            *sorted(clusters),
            *sorted(shipped_suites),
            *sorted(SHIPPED_FOLDER.glob("*.yaml")),
        ]
    }
    for name, folder in _FOLDERS.items():
        examples[name] = Example(REPOSITORY / folder, _PURPOSES[name])
    return examples


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("#").strip()
