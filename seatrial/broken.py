"""Why an mpirun of a probe or of nccl-tests did not give its result, and whose fault that is. Pure."""

import re
from collections.abc import Sequence

from seatrial.mpi import MpiResult
from seatrial.nccl import Finding, classify
from seatrial.verdict import Verdict

# What a probe says of itself (seatrial/probes/rendezvous.py).
_COMPLAINT = re.compile(r"probe: (?P<host>\S+) rank (?P<rank>\S+): (?P<cause>.+)")
_CANNOT_START = re.compile(r"cannot start: (.+)")
_SETUP = {  # causes that lie with the set-up, by the classifier's names, and what they leave the check as
    "executable missing": Verdict.NOT_RUN,
    "orted not found": Verdict.NOT_RUN,
    "not enough slots": Verdict.INCONCLUSIVE,
    "mpirun refuses to run as root": Verdict.INCONCLUSIVE,
    "more processes than cpus to bind to": Verdict.INCONCLUSIVE,
    "hostfile missing or unreadable": Verdict.INCONCLUSIVE,
}
_DAEMONS_FAILED = 255  # mpirun's exit status when it cannot start itself on a node


def broken(result: MpiResult, *, began: bool) -> tuple[Verdict, str]:
    """The verdict and the reason of a run without a usable result; `began`: the ranks had met and said so.

    not_run: a program is missing. inconclusive: it could not be started as asked, or it stopped without a word. fail:
    the cluster broke it: a rank died, a connection was lost, it did not end in time.
    """
    if result.missing:
        return Verdict.NOT_RUN, "mpirun is missing on the head node"
    if missing := _first(_CANNOT_START, result.lines):
        return Verdict.NOT_RUN, missing[1]
    findings = classify(result.lines)
    setup = next((finding for finding in findings if finding.cause in _SETUP), None)
    if setup and not began:
        return _SETUP[setup.cause], f"{setup.cause}: {setup.next_step}"
    if not began and any(line.lstrip().startswith(("USAGE:", "usage:")) for line in result.lines):
        return Verdict.INCONCLUSIVE, "the program does not know one of its options and printed its usage"
    return _fault(result, findings, began=began)


def fabric_gone(result: MpiResult, *, began: bool) -> bool:
    """Whether nothing that follows can be measured: nothing ends in time, or the nodes are not reached at all."""
    return result.timed_out or (result.exit_status == _DAEMONS_FAILED and not began)


def _fault(result: MpiResult, findings: Sequence[Finding], *, began: bool) -> tuple[Verdict, str]:
    cause = _cause(result, findings)
    if result.timed_out:
        said = bool(began or cause)
        why = f"; {cause}" if cause else "" if began else "; the ranks never met"
        return Verdict.FAIL if said else Verdict.INCONCLUSIVE, f"no end within {result.seconds:.0f} s{why}"
    if result.ok:
        return Verdict.INCONCLUSIVE, cause or "the output ends early, without a cause"
    return Verdict.FAIL, cause or f"mpirun's exit status is {result.exit_status}, and the output names no cause"


def _cause(result: MpiResult, findings: Sequence[Finding]) -> str | None:
    """The earliest primary cause; else what the first rank to give up said; else whatever followed from that."""
    primary = next((finding for finding in findings if not finding.secondary and finding.kind != "unknown"), None)
    if primary:
        return _named(primary)
    if complaint := _first(_COMPLAINT, result.lines):
        return f"rank {complaint['rank']} on {complaint['host']}: {complaint['cause']}"
    return _named(findings[0]) if findings else None


def _named(finding: Finding) -> str:
    where = f" on {finding.host}" if finding.host and finding.host not in finding.cause else ""
    rank = f" (rank {finding.rank})" if finding.rank is not None else ""
    return f"{finding.cause}{where}{rank}"


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> re.Match[str] | None:
    return next((match for line in lines if (match := pattern.search(line))), None)
