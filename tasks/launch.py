"""Steps `launch`, `collect` and `teardown`: bring the nodes up, fetch their logs, and take them
down.

What mpirun prints is in `logs/` already, NCCL's words too. They are elsewhere only where the
environment sets NCCL_DEBUG_FILE: in files on the nodes, whose ends are fetched. Collecting never
changes a verdict.
"""

import logging
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.config.cluster import Cluster
from seatrial.config.run import Run, secrets_of
from seatrial.model.errors import InputError, MissingError, SeatrialError, described
from seatrial.model.reason import Reason
from seatrial.model.result import Check, merge_suspects
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.platforms import Leftover, Platform, isolator_for, platform_for
from seatrial.platforms import state as states
from seatrial.platforms.service import node_service
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected, on_each
from seatrial.runs.login import folder_of
from seatrial.system.process import open_files_problem
from seatrial.system.rawlog import write_log
from seatrial.text.redact import Secrets
from seatrial.text.words import count

log = logging.getLogger("seatrial.launch")
# Codes of nodes that the scheduler took, or perhaps a person: a pod that is gone does not say who
# deleted it.
_EXCUSES = frozenset({"gave-way", "pod-preempted", "slurm-job-cancelled", "pod-deleted"})
COLLECT_S = 60.0
CUT_COLLECT_S = 10.0  # for a run that was cut off: somebody waits for its end
_NODE_S = 15.0
_FILE_BYTES = 256 * 1024
_NODE_BYTES = 4 * 1024**2  # of all files on a node


def launch(run: Run) -> Testbed:
    """Return the run's testbed, once its nodes answer.

    Raises LaunchError or MissingError naming the cause.
    """
    if lacking := open_files_problem(len(run.cluster.node_names())):
        raise MissingError.of("open-files", problem=lacking)
    testbed = platform_for(run.cluster).launch(run)
    nodes = count(len(testbed.nodes), "node")
    head = testbed.head
    log.info("run %s: %s, head %s (%s)", run.run_id, nodes, head.name, head.address)
    return testbed


def teardown(cluster: Cluster, run_id: str) -> None:
    """Remove everything of that run; safe to call again, and for a run that never came up."""
    platform_for(cluster).teardown(run_id)


def keep(run: Run, verdict: Verdict) -> str | None:
    """Leave the nodes up if the cluster file says so; return how to use and to end them, or None to
    take them down.
    """
    keep_s = run.cluster.keep
    if keep_s == "never" or (keep_s == "on_failure" and verdict is Verdict.PASS):
        return None
    try:
        if not platform_for(run.cluster).keep(run.run_id, run.cluster.keep_s):
            return None
    except SeatrialError as error:
        log.warning("the nodes cannot be kept: %s", error)
        return None
    until = f"{datetime.now(UTC) + timedelta(seconds=run.cluster.keep_s):%Y-%m-%d %H:%M} UTC"
    log.info("not taken down: kept until %s", until)
    log_in = f"seatrial ssh {run.run_id} head"
    over = f"seatrial reap --run {run.run_id}"
    return f"nodes are kept until {until}\n  to log in:     {log_in}\n  to end it now: {over}"


def isolate(run: Run, checks: Sequence[Check], nodes: int) -> list[str]:
    """Take nodes that are surely at fault out of service if the cluster file says so; return a line
    for each.

    At most a third of the `nodes`: more probably share one fault.
    """
    settings = run.cluster.isolate
    if settings is None:
        return []
    suspects = merge_suspects(check for check in checks if check.verdict.is_fault)
    sure = [
        s for s in suspects if s.kind in ("node", "gpu") and s.confidence >= settings.confidence
    ]
    why = {s.name.partition("/")[0]: s.evidence.code or s.kind for s in reversed(sure)}
    if len(why) * 3 > nodes:
        return [f"no node is isolated: {len(why)} of {nodes} are suspects, more than a third"]
    isolator = isolator_for(run.cluster)
    lines = []
    for node, code in sorted(why.items()):
        command = isolator.command(node, run.run_id, code)
        if settings.dry_run:
            lines.append(f"isolate {node} by `{command}`")
        elif isolator.isolate(node, run.run_id, code):
            lines.append(
                f"{node} was isolated by `{command}`; `seatrial release CLUSTER {node}` undoes it"
            )
        else:
            lines.append(f"{node} is out of service already")
    return lines


def gave_way(run: Run, testbed: Testbed | None, checks: Sequence[Check]) -> Reason | None:
    """Return why a run that has not passed lost the nodes it had taken: another job, by its name,
    or a person.

    None if it still has them.
    """
    bad = [check for check in checks if not check.passed]
    if run.taken is None or not bad:
        return None
    reasons = [check.reason for check in bad]
    if testbed is not None:
        blameless = (testbed.blameless_reason(node) for node in testbed.nodes)
        reasons = [*filter(None, blameless), *reasons]
    excuse = next((reason for reason in reasons if reason.code in _EXCUSES), None)
    if excuse is None or excuse.code == "gave-way":
        return excuse
    job = _who_has(run)
    if job is None and excuse.code == "pod-deleted":
        return excuse
    return Reason.of("gave-way", job=job or "another job")


def _who_has(run: Run) -> str | None:
    """Return the job that has one of the nodes that the run took, if any is known to."""
    assert run.taken is not None
    try:
        nodes = node_service(run.cluster).nodes()
    except SeatrialError as error:
        log.warning("who took the nodes is not known: %s", error)
        return None
    jobs = [
        node.why
        for node in nodes
        if node.name in run.taken.nodes and node.state == "busy" and node.why
    ]
    return jobs[0] if jobs else None


def end(run: str, cluster: Cluster | None = None) -> str:
    """Take down one run that is kept or abandoned, by its id or folder; with a `cluster`, also from
    another machine.

    Returns its id. Raises InputError where it is not known, or where its process is still at work.
    """
    try:
        run_id, folder = folder_of(run)
    except InputError:
        if cluster is None:
            raise
        run_id = run
    else:
        if states.is_at_work(folder):
            raise InputError(f"run {run_id}: is at work; interrupt it, and it takes its nodes down")
        cluster = cluster or states.recall(folder)
    teardown(cluster, run_id)
    return run_id


def reap(platform: Platform) -> list[Leftover]:
    """Tear down what runs whose process is gone have left on `platform`; return the leftovers.

    Raises SeatrialError after all were tried, if some could not be removed.
    """
    left = platform.leftovers()
    problems = []
    for leftover in left:
        try:
            platform.teardown(leftover.run_id)
        except Exception as error:  # the other runs' nodes must not stay up because of it
            problems.append(f"run {leftover.run_id}: {error}")
        else:
            log.warning("removed what run %s had left: %s", leftover.run_id, leftover.what)
    if problems:
        raise SeatrialError.of(
            "leftovers-remain",
            count=len(problems),
            left=len(left),
            problems="; ".join(problems),
        )
    return left


launch_task = task(name="launch", cache_policy=NO_CACHE)(launch)


def collect(run: Run, testbed: Testbed | None, timeout_s: float = COLLECT_S) -> None:
    """Fetch the platform's logs of the run, and NCCL's from the nodes, into `run.logs`; failures
    are warnings.

    `testbed` is None if none came up; the platform's logs say why.
    """
    deadline = time.monotonic() + timeout_s
    secrets = secrets_of(run.cluster)
    with _as_far_as_possible():
        platform_for(run.cluster).collect(run.run_id, run.logs, timeout_s, secrets)
    if testbed and (pattern := dict(testbed.env).get("NCCL_DEBUG_FILE")):
        with _as_far_as_possible():
            fetch_nccl_logs(testbed, pattern, run.logs / "nccl-debug", deadline, secrets)


@contextmanager
def _as_far_as_possible() -> Iterator[None]:
    """Log any error and go on: whatever goes wrong, the nodes must still be taken down."""
    try:
        yield
    except Exception as error:
        log.warning("not all logs could be collected: %s", described(error))


def fetch_nccl_logs(
    testbed: Testbed, pattern: str, folder: Path, deadline: float, secrets: Secrets
) -> None:
    """Fetch the end of every file that NCCL wrote, one file per node.

    `pattern` is NCCL_DEBUG_FILE.
    """
    # No links: another user could point one at a file that only the run's user may read.
    show = (
        f'[ -f "$file" ] && [ ! -L "$file" ] && {{ echo "# $file"; tail -c {_FILE_BYTES} '
        f'"$file"; }}'
    )
    command = f"for file in {as_glob(pattern)}; do {show}; done | head -c {_NODE_BYTES}"

    def fetch(node: Node) -> None:
        left_s = min(_NODE_S, deadline - time.monotonic())
        if left_s <= 0:
            return
        with connected(testbed, node, left_s) as transport:
            result = run_command(transport, command, timeout_s=left_s, max_bytes=2 * _NODE_BYTES)
        if result.output:
            write_log(folder / f"{node.name}.log", result.output + "\n", secrets)
        if result.timed_out:
            log.warning(
                "%s: its NCCL logs did not come within %.0f s; what came is kept", node.name, left_s
            )

    for name, answer in on_each(testbed.nodes, fetch).items():
        if isinstance(answer, SeatrialError):
            log.warning("%s: its NCCL logs cannot be fetched: %s", name, answer)


def as_glob(pattern: str) -> str:
    """Return a glob for the files of one node: NCCL puts the host's name for %h and the process's
    id for %p.
    """
    parts = {"%h": '"$(uname -n | cut -d. -f1)"', "%p": "*", "%%": "%"}
    return "".join(
        parts.get(part, shlex.quote(part)) for part in re.split(r"(%[hp%])", pattern) if part
    )
