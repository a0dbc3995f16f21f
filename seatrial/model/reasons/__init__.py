"""The catalog of reasons: every code with its sentence, its meaning and the next step. One module per area."""

from collections.abc import Mapping

from seatrial.model.reasons import connectivity, image, launch, numbers, probes, run
from seatrial.model.reasons.explanation import Explanation

AREAS: Mapping[str, Mapping[str, Explanation]] = {
    "Launch": launch.REASONS,
    "Image": image.REASONS,
    "Connectivity": connectivity.REASONS,
    "Probes": probes.REASONS,
    "Numbers": numbers.REASONS,
    "The run": run.REASONS,
}
CATALOG: Mapping[str, Explanation] = {code: known for area in AREAS.values() for code, known in area.items()}
