"""`seatrial doctor`: requirements that this machine lacks, each with the next step."""

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from seatrial.alerts.settings import HOW_TO, AlertSettings
from seatrial.cli.options import print_json
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.upload import missing_package
from seatrial.model.errors import InputError, SeatrialError
from seatrial.model.explanations import next_step_of
from seatrial.platforms import platform_for
from seatrial.platforms.local import LocalPlatform
from seatrial.report.metrics import target_of_environment
from seatrial.system.process import open_files_problem
from seatrial.text.docs import with_addresses

_LOCAL = Cluster(name="local", nodes=2, platform=LocalPlatform(kind="local"))

# What was looked at, and what is wrong with it: a Reason or a text, None if nothing
Finding = tuple[str, object]


def diagnosed(cluster_file: Path | None) -> list[Finding]:
    """Look at everything that a run needs.

    Raises InputError when the cluster file is not what it should be.
    """
    cluster = load_cluster(cluster_file) if cluster_file else _LOCAL
    kind = f"platform {cluster.platform.kind}"
    findings: list[Finding] = [
        (kind, problem) for problem in platform_for(cluster, cluster_file).missing()
    ]
    findings = findings or [(kind, None)]
    findings += [(f"uses {part}", None) for part in cluster.platform.moving_parts()]
    if cluster.platform.uses_host_software:  # elsewhere the nodes' image has them
        mpi = "install Open MPI (openmpi-bin), or set mpi.mpirun in the cluster file"
        findings.append(("mpirun", None if shutil.which(cluster.mpi.mpirun) else mpi))
        extra = "install seatrial with its extra `local`: uv tool install 'seatrial[local] @ WHEEL'"
        findings.append(("torch", None if find_spec("torch") else extra))
    findings.append(("open files", open_files_problem(len(cluster.node_names()))))
    if cluster.upload:
        findings.append((f"upload {cluster.upload}", missing_package(cluster.upload)))
    findings += [_history(), _alerts(cluster)]
    try:
        if target_of_environment():
            findings.append(("metrics", None))
    except InputError as error:
        findings.append(("metrics", error.reason))
    return findings


def show(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print one line per finding; return 0 when all is there, 1 when something is missing."""
    status = int(any(problem is not None for _, problem in findings))
    if as_json:
        print_json(
            [
                {"what": f[0], "missing": f[1] and str(f[1]), "next_step": _next_step(f)}
                for f in findings
            ]
        )
        return status
    for next_step, group in groupby(findings, _next_step):
        for subject, problem in group:
            print(
                f"{'ok     ' if problem is None else 'missing'} "
                f"{subject}{f': {problem}' if problem else ''}"
            )
        if next_step:
            print(f"        next step: {with_addresses(next_step)}")
    return status


def _next_step(finding: Finding) -> str | None:
    """Return the next step of the catalog; other problems hold their own."""
    return next_step_of(getattr(finding[1], "code", None))


def _history() -> Finding:
    from seatrial.history import open_store

    try:
        open_store().close()
    except SeatrialError as error:
        return "history", error.reason
    return "history", None


def _alerts(cluster: Cluster) -> Finding:
    settings = AlertSettings.from_env(cluster.notify)
    if not settings.anybody:
        return f"alerts (not configured, none is sent: {HOW_TO})", None
    return "alerts", (settings.slack.problem() if settings.slack else None) or settings.legal()[1]
