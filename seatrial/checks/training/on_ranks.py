"""Run a probe of the check `training` on every rank of a testbed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from seatrial.checks.collectives.sweep import naming_flooders, rendezvous_argv
from seatrial.checks.connectivity.stages import roll_call
from seatrial.checks.failures import gave_up
from seatrial.checks.lost_ranks import lost_ranks
from seatrial.config.run import Run, secrets_of
from seatrial.model.errors import RemoteError
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import OnLine, mpirun
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import rank_of

NAME = "training"


def on_ranks(
    run: Run,
    testbed: Testbed,
    timeout_s: float,
    label: str,
    probe: str,
    arguments: Sequence[str],
    *,
    is_done: Callable[[str], bool],
    conclude: Callable[[MpiResult], Check],
    on_line: OnLine = None,
    command: Sequence[str] = (),
) -> Check:
    """Run a probe on every rank; if it fails, name the nodes that no longer answer.

    `is_done` recognizes rank 0's last line of interest, and `conclude` makes the check of the
    result.
    """
    device = "cuda" if testbed.has_gpus else "cpu"
    meeting = rendezvous_argv(run, testbed, label, timeout_s)
    program = (testbed.python, f"{testbed.workdir}/{probe}.py", "--device", device)
    argv = [*program, *arguments, *meeting, *command]
    started = time.monotonic()
    try:
        result = mpirun(
            testbed,
            argv,
            timeout_s=timeout_s,
            on_line=on_line,
            is_done=lambda line: gave_up(line) or (rank_of(line) == 0 and is_done(line)),
            log_file=run.logs / f"{label}.log",
            secrets=secrets_of(run.cluster),
        )
    except RemoteError as error:
        return _with_missing(
            run,
            testbed,
            Check(NAME, Verdict.FAIL, error.reason, time.monotonic() - started),
        )
    check = conclude(result)
    if result.flooded:
        suspects = result.flooders
        return replace(check, reason=naming_flooders(check.reason, suspects), suspects=suspects)
    if check.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        check = _with_missing(run, testbed, check)
    if check.verdict is Verdict.FAIL and not check.suspects:
        check = replace(check, suspects=lost_ranks(result, testbed))
    return check


def _with_missing(run: Run, testbed: Testbed, check: Check) -> Check:
    """Return the check with the verdict and the suspects of a roll call, if nodes are lost."""
    now = roll_call(run, testbed)
    if not now.problems:
        return check
    return replace(
        check,
        verdict=now.verdict,
        reason=now.reason(check.reason),
        suspects=(*check.suspects, *now.suspects),
    )
