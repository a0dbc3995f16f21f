"""All codes of reasons by area, and those of a run that `seatrial explain` has a next step for."""

from collections.abc import Mapping

from seatrial import builders, checks, history, localize, model, platforms, remote, runs
from seatrial.checks import collectives, connectivity, devices, training
from seatrial.model.reason import Explanation, code_of
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.nccl import causes
from seatrial.platforms import baremetal, docker, kubernetes, local, runai, slurm

MAX_CODES = 5
AREAS: Mapping[str, Mapping[str, Explanation]] = {
    "The run": runs.REASONS,
    "Image": builders.REASONS,
    "Kubernetes": kubernetes.REASONS,
    "Slurm": slurm.REASONS,
    "Docker": docker.REASONS,
    "RunAI": runai.REASONS,
    "Bare metal": {**platforms.REASONS, **baremetal.REASONS},
    "Local nodes": local.REASONS,
    "Nodes": remote.REASONS,
    "Checks": checks.REASONS,
    "Connectivity": connectivity.REASONS,
    "Collectives": collectives.REASONS,
    "Logs": causes.REASONS,
    "Training": training.REASONS,
    "Devices": devices.REASONS,
    "Localisation": localize.REASONS,
    "Numbers": model.REASONS,
    "History": history.REASONS,
}
CATALOG: Mapping[str, Explanation] = {code: entry for area in AREAS.values() for code, entry in area.items()}
_CURRENT = {former: code for code, entry in CATALOG.items() for former in entry.formerly}


def current(code: str) -> str:
    """The code that stands for `code` today, which an earlier version may have written."""
    return _CURRENT.get(code, code)


def codes_to_explain(result: RunResult) -> tuple[str, ...]:
    """The codes of the checks that are no pass, then of the suspects; each once, at most `MAX_CODES`.

    A code that the catalog lacks is left out: a result may have been written by another version.
    """
    reasons = [check.reason for check in result.checks if check.verdict is not Verdict.PASS]
    evidence = [suspect.evidence for suspect in result.suspects]
    codes = (current(code) for code in map(code_of, (*reasons, *evidence)) if code)
    return tuple(dict.fromkeys(code for code in codes if code in CATALOG))[:MAX_CODES]
