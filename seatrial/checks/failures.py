"""Why an mpirun of a probe or of nccl-tests failed. Pure."""

import re
from collections.abc import Sequence
from dataclasses import replace

from seatrial.causes import Finding
from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import rank_of, says_own_end
from seatrial.text.hostlist import host_list
from seatrial.text.lazy_pattern import lazy
from seatrial.text.redact import Secrets
from seatrial.text.words import some_of

# Last messages of a probe's ranks, with the groups `host`, `rank` and `cause`
Complaints = Sequence[re.Match[str]]
Failure = tuple[Verdict, Reason]
# The last message of a rank (seatrial/remote/probes/rendezvous.py).
_COMPLAINT = lazy(r"probe: (?P<host>\S+) rank (?P<rank>\d+): (?P<cause>.+)")
LOST_A_PEER = lazy(r"connection (?:was )?(?:closed|reset)|broken pipe|socket closed", re.IGNORECASE)
# Followed by "rank R on HOST", which is stopped or hangs while the others wait
NO_WORD = "no word from "
# Codes of the log classifier
KILLED = "log-rank-killed"
_CRASHED = "log-crashed"
_WAITED_IN_VAIN = lazy(r"timed out|did not meet", re.IGNORECASE)
CANNOT_START = lazy(
    r"(?<![\w.-])(?P<host>[\w.-]{1,253}+)(?: rank (?P<rank>\d{1,7}|\?))?: cannot start: "
    "(?P<cause>.+)"
)
OUT_OF_MEMORY = lazy(
    (
        r"out of memory|can(?:'|no)t allocate memory|\bMemoryError\b|failed to map "
        "segment(?!.*not permitted)"
    ),
    re.IGNORECASE,
)
# An error, since GPUs are only requested on nodes that have them
_GPU_GONE = lazy(r"torch \S+ sees \d+ GPUs?")
# Causes in the set-up: something is missing, or was called in a wrong way
_MISSING = (
    "log-executable-missing",
    "log-command-missing",
    "log-library-missing",
    "log-orted-missing",
    "log-srun-mpi",
)
_MISUSED = (
    "log-mpi-slots",
    "log-mpi-root",
    "log-mpi-binding",
    "log-mpi-hostfile",
    "log-srun-refused",
    "log-nccl-connects",
)
_NOT_FOUND = 127  # exit status of a shell or the dynamic linker; a rank may exit with it too
_DAEMONS_FAILED = 255  # mpirun's exit status when it cannot start itself on a node
_FIRST_TO_LEAVE = lazy(
    r"Process name: {1,4}\[[^\n]{1,200}?,(?P<rank>\d{1,7})\]\s{1,8}Exit code: "
    r"{1,8}(?P<status>\d{1,3})"
)


def classify_failure(result: MpiResult, *, began: bool, messages: Sequence[Reason] = ()) -> Failure:
    """Return the verdict and the reason of a run without a usable result.

    `began`: the ranks reported that they had met. Verdicts: not_run if a program is missing;
    inconclusive if it could not be started as requested, or stopped without a message; fail if the
    cluster broke it: a rank died, a GPU is gone, a connection was lost, it did not end in time.
    `messages` are causes found while reading the output, in case the kept lines name none.
    """
    if result.not_started is not None:
        return Verdict.NOT_RUN, Reason.of("mpi-program-missing", not_started=result.not_started)
    if result.flooded:
        return Verdict.FAIL, Reason.of("ranks-output-flood", seconds=f"{result.seconds:.0f} s")
    unable = own_lines(CANNOT_START, result)
    if unable:
        gone = [
            match
            for match in unable
            if _GPU_GONE.search(match["cause"]) or OUT_OF_MEMORY.search(match["cause"])
        ]
        first, *others = gone or unable  # a lost GPU or memory before a missing program
        hosts = sorted({match["host"] for match in others} - {first["host"]})
        also = (
            f" (likewise {', '.join(hosts[:8])}{' and more' if len(hosts) > 8 else ''})"
            if hosts
            else ""
        )
        return Verdict.FAIL if gone else Verdict.NOT_RUN, Reason.of(
            "rank-cannot-start", host=first["host"], cause=first["cause"], others=also
        )
    findings = _without_teardown(result)
    setup = next((each for each in findings if each.code in (*_MISSING, *_MISUSED)), None)
    if setup and not began and (setup.fatal or result.exit_status == _NOT_FOUND):
        verdict = Verdict.NOT_RUN if setup.code in _MISSING else Verdict.INCONCLUSIVE
        return verdict, log_reason(setup)
    if not began and (not_started := _not_started(result)):
        return not_started
    return _fault(result, findings, next(iter(messages), None), began=began)


def missing_reports(result: MpiResult) -> Failure | None:
    """Return the verdict and the reason if a rank did not report; None if all ranks took part."""
    if not result.ok or not result.unreported:
        return None
    return Verdict.INCONCLUSIVE, Reason.of(
        "ranks-unreported",
        ranks=some_of(map(str, result.unreported)),
        nodes=host_list(result.silent_nodes),
    )


def _not_started(result: MpiResult) -> Failure | None:
    """Return the verdict and the reason if mpirun's daemon failed on a node, or a program does not
    know an option.

    mpirun's messages about other daemons are then a consequence.
    """
    failed = next((session for session in result.sessions if session.failed), None)
    if failed:
        last_line = f": {failed.lines[-1]}" if failed.lines else ""
        return Verdict.FAIL, Reason.of(
            "mpi-daemon-failed", node=failed.node, status=failed.exit_status, said=last_line
        )
    if any(line.lstrip().startswith(("USAGE:", "usage:")) for line in result.lines):
        return Verdict.INCONCLUSIVE, Reason.of("option-unknown")
    return None


def own_lines(pattern: re.Pattern[str], result: MpiResult) -> list[re.Match[str]]:
    """Return the matches in lines that ranks printed about themselves, with the node of the line's
    tag as `host`.
    """
    matches = []
    for line in result.lines:
        match = pattern.search(line)
        if match and says_own_end(match):
            node = result.node_of(line)
            start, end = match.span("host")
            matches.append((node and pattern.search(f"{line[:start]}{node}{line[end:]}")) or match)
    return matches


def gave_up(line: str) -> bool:
    """Return whether a rank of a probe reports in `line` that it gives up, so that no result
    follows.
    """
    return bool(_COMPLAINT.search(line) or CANNOT_START.search(line))


def fabric_gone(result: MpiResult, *, began: bool) -> bool:
    """Return whether nothing more can be measured: the run did not end in time, or nodes could not
    be reached.
    """
    complaints = complaints_of(result)
    waited = any(
        _WAITED_IN_VAIN.search(complaint["cause"]) for complaint in complaints
    ) and not unanswered(complaints)
    return result.timed_out or waited or (result.exit_status == _DAEMONS_FAILED and not began)


def _fault(
    result: MpiResult, findings: Sequence[Finding], message: Reason | None, *, began: bool
) -> Failure:
    """Return the verdict and the reason of ranks that failed."""
    complaints = complaints_of(result)
    if result.timed_out:  # ranks lose their peers because mpirun was ended
        complaints = [
            complaint for complaint in complaints if not LOST_A_PEER.search(complaint["cause"])
        ]
    left_first = None if message else _left_first(result, findings, complaints)
    cause = left_first or _cause(findings, complaints) or message
    if cause and complaints:
        return Verdict.FAIL, cause
    if result.lost:  # its end is unknown; the next step asks whether the head still answers
        why = f"; before that: {cause}" if cause else ""
        return Verdict.INCONCLUSIVE, Reason.of(
            "head-connection-lost", seconds=f"{result.seconds:.0f}", cause=why
        )
    if result.starved and not cause:
        return Verdict.INCONCLUSIVE, starved_reason(result)
    if result.timed_out:
        has_output = bool(began or cause)
        why = f"; {cause}" if cause else "" if began else "; the ranks never met"
        return Verdict.FAIL if has_output else Verdict.INCONCLUSIVE, Reason.of(
            "mpi-timeout", seconds=f"{result.seconds:.0f}", cause=why
        )
    if result.ok:
        return Verdict.INCONCLUSIVE, cause or Reason.of(
            "mpirun-failed", problem="the output ends early, without a cause"
        )
    return Verdict.FAIL, cause or Reason.of(
        "mpirun-failed",
        problem=f"mpirun's exit status is {result.exit_status}, and the output names no cause",
    )


def _left_first(
    result: MpiResult, findings: Sequence[Finding], complaints: Complaints
) -> Reason | None:
    """Return the reason of the rank that ended first with an error; None if there is a better
    cause.
    """
    first = first_to_leave(result)
    if not first or complaints:
        return None
    if any(not finding.secondary for finding in findings):
        return None
    rank, status = first
    node = result.rank_nodes[rank] if rank < len(result.rank_nodes) else "an unknown node"
    return Reason.of("rank-left", rank=rank, node=node, status=status)


def starved_reason(result: MpiResult) -> Reason:
    """Return the reason for an mpirun on a machine that is too busy to play all nodes; no node is
    to blame.
    """
    return Reason.of(
        "machine-too-busy", seconds=f"{result.seconds:.0f}", waited=f"{result.waited_s:.0f}"
    )


def _without_teardown(result: MpiResult) -> Sequence[Finding]:
    """Return the findings without a crash of mpirun itself, which Open MPI 4.1 may have when it
    ends ranks.

    Such a crash names no rank and follows after ranks gave up; a crash before that may be the
    cause.
    """
    findings = result.findings
    if not any(finding.code == _CRASHED and finding.rank is None for finding in findings):
        return findings
    gave_up_at = next(
        (at for at, line in enumerate(result.lines) if _COMPLAINT.search(line)), len(result.lines)
    )
    before = {
        (finding.cause, finding.host)
        for finding in replace(result, lines=result.lines[:gave_up_at]).findings
    }
    return [
        f
        for f in findings
        if f.code != _CRASHED or f.rank is not None or (f.cause, f.host) in before
    ]


def _cause(findings: Sequence[Finding], complaints: Complaints) -> Reason | None:
    """Return the first message of a rank that did more than lose a peer, else the earliest cause,
    else a consequence.

    Silent ranks take precedence over messages of ranks that waited for them.
    """
    silent = unanswered(complaints)
    if silent:
        killed = next((finding for finding in findings if finding.code == KILLED), None)
        return log_reason(killed) if killed else _rank_gave_up(silent[:1])
    own = [complaint for complaint in complaints if not LOST_A_PEER.search(complaint["cause"])]
    if own:
        return _rank_gave_up(own)
    primary = next(
        (finding for finding in findings if not finding.secondary and not finding.unknown), None
    )
    if primary:
        return log_reason(primary)
    if complaints:
        return _rank_gave_up(complaints)
    if findings:
        return log_reason(findings[0])
    return None


def _rank_gave_up(complaints: Complaints) -> Reason:
    """Return the reason of the first rank that gave up, with the numbers of the others."""
    first = complaints[0]
    others = sorted({int(c["rank"]) for c in complaints[1:]} - {int(first["rank"])})
    also = f" (so did rank {', '.join(map(str, others[:8]))})" if others else ""
    return Reason.of(
        "rank-gave-up", rank=first["rank"], host=first["host"], cause=first["cause"], others=also
    )


def unanswered(complaints: Complaints) -> list[re.Match[str]]:
    """Return the complaints that name ranks which never answered the others."""
    return [complaint for complaint in complaints if complaint["cause"].startswith(NO_WORD)]


def complaints_of(result: MpiResult) -> Complaints:
    """Return the last messages of the ranks of a probe."""
    return own_lines(_COMPLAINT, result)


def log_reason(finding: Finding) -> Reason:
    """Return the reason of a cause with the line that shows it, without secrets."""
    return Reason.of(
        finding.code, cause=finding.place, evidence=Secrets().out_of_line(finding.evidence)
    )


def first_to_leave(result: MpiResult) -> tuple[int, int] | None:
    """Return (rank, exit status) of the rank that ended first with an error, as mpirun reports it;
    else None.
    """
    if result.timed_out:
        return None
    of_mpirun = "\n".join(line for line in result.lines if rank_of(line) is None)
    named = _FIRST_TO_LEAVE.search(of_mpirun)
    if named:
        return int(named["rank"]), int(named["status"])
    return None
