"""The catalog of reasons: every code with its sentence, its meaning and the next step. One module per area."""

from collections.abc import Mapping

from seatrial.model.reasons import (
    baremetal,
    collectives,
    connectivity,
    docker,
    image,
    inventory,
    kubernetes,
    kueue,
    launch,
    logs,
    machine,
    nodes,
    numbers,
    pods,
    probes,
    run,
    runai,
    slurm,
    training,
)
from seatrial.model.reasons.explanation import Explanation

AREAS: Mapping[str, Mapping[str, Explanation]] = {
    "This machine": machine.REASONS,
    "Image": image.REASONS,
    "Kubernetes": kubernetes.REASONS,
    "Queue": kueue.REASONS,
    "Slurm": slurm.REASONS,
    "Docker": docker.REASONS,
    "RunAI": runai.REASONS,
    "Bare metal": baremetal.REASONS,
    "Launch": {**launch.REASONS, **pods.REASONS},
    "Connectivity": {**connectivity.REASONS, **nodes.REASONS, **inventory.REASONS},
    "Collectives": collectives.REASONS,
    "Training": training.REASONS,
    "Probes": probes.REASONS,
    "Numbers": numbers.REASONS,
    "Logs": logs.REASONS,
    "The run": run.REASONS,
}
CATALOG: Mapping[str, Explanation] = {code: known for area in AREAS.values() for code, known in area.items()}
