"""Causes of failure in logs."""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.causes import classify
from seatrial.causes.table import CAUSES, Cause
from tests.unit.causes.printed import LINES, OTHER_VERSIONS

LOGS = Path(__file__).parents[2] / "golden" / "nccl-logs"
RULE = "-" * 74
NCCL = "gpu-3:4242:4250 [5] "

# program | start of the cause | host, and below it the line of the log.


def _cases() -> list[tuple[str, str, str, str | None]]:
    lines = LINES.strip().split("\n")
    heads = [[part.strip() for part in head.split("|")] for head in lines[::2]]
    return [
        (line, head[0], head[1], None if head[2] == "-" else head[2])
        for head, line in zip(heads, lines[1::2], strict=True)
    ]


def _boxes() -> dict[str, str]:
    """The text of each box by its cause; the second of a cause is told by a number."""
    paragraphs = re.findall(r"^(\S.*)\n((?:    .*\n)+)", BOXES, re.MULTILINE)
    return {cause: " ".join(text.split()) for cause, text in paragraphs}


@pytest.mark.parametrize(
    ("line", "program", "cause", "host"), _cases(), ids=[case[0][:60] for case in _cases()]
)
def test_one_line_names_its_cause(line: str, program: str, cause: str, host: str | None) -> None:
    (finding,) = classify(["some line before", line, "some line after"])
    assert (finding.program, finding.host, finding.evidence) == (program, host, line)
    assert finding.cause.startswith(cause)
    assert finding.next_step


# The start of the cause, and below it the text of the box.
BOXES = """
not enough slots
    There are not enough slots available in the system to satisfy the 16 slots that were requested by the
    application: ./all_reduce_perf Either request fewer procs for your application, or make more slots available for
    use. A "slot" is the Open MPI term for an allocatable unit
not enough slots 2
    There are not enough slots available in the system to satisfy the 16 slots: a "slot" is the PRRTE term
mpirun refuses to run as root
    mpirun has detected an attempt to run as root. Running as root is *strongly* discouraged as any mistake (e.g.,
    in defining TMPDIR) or bug can result in catastrophic damage
executable missing
    mpirun was unable to launch the specified application as it could not access or execute an executable:
    Executable: /opt/all_reduce_perf Node: node-0 while attempting to start process rank 0.
daemon failed after launch
    An ORTE daemon has unexpectedly failed after launch and before communicating back to mpirun. This could be
    caused by a number of factors
daemons did not start
    ORTE was unable to reliably start one or more daemons. This usually is caused by: * not finding the required
    libraries and/or binaries on one or more nodes.
daemon did not report back
    A daemon failed to report back after being spawned. Daemon exit status: 255
lost communication with a daemon
    ORTE has lost communication with a remote daemon. HNP daemon : [[1,0],0] on node a Remote daemon: [[1,0],2] on
    node node-3 This is usually due to either a failure of the TCP network
process killed by a signal
    mpirun noticed that process rank 3 with PID 0 on node node-3 exited on signal 9 (Killed).
time limit reached
    The user-provided time limit for job execution has been reached: Timeout: 5 seconds The job will now be aborted.
more processes than cpus
    A request was made to bind to that would result in binding more processes than cpus on a resource: Bind to: CORE
a process exited with an error
    Primary job terminated normally, but 1 process returned a non-zero exit code. Per user-direction, the job has
    been aborted.
a process exited with an error 2
    prterun detected that one or more processes exited with non-zero status, thus causing the job to be terminated.
    The first process to do so was: Process name: [prterun-a-1@1,10] Exit code: 3
"""


@pytest.mark.parametrize(
    ("width", "dashes"), [(40, True), (74, True), (76, True), (74, False), (76, False)]
)
@pytest.mark.parametrize("cause", _boxes())
def test_messages_of_open_mpi_are_recognised_at_any_line_width(
    cause: str, dashes: bool, width: int
) -> None:
    lines = textwrap.wrap(_boxes()[cause], width)
    findings = classify([RULE, *lines, RULE] if dashes else lines)
    assert any(finding.cause.startswith(cause.rstrip("2 ")) for finding in findings)


def test_boxed_messages_of_open_mpi_name_host_and_rank() -> None:
    (lost,) = classify(
        [RULE, *textwrap.wrap(_boxes()["lost communication with a daemon"], 74), RULE]
    )
    assert lost.host == "node-3"
    (killed,) = classify([_boxes()["process killed by a signal"]])
    assert (killed.host, killed.rank, killed.cause) == (
        "node-3",
        3,
        "process killed by a signal (9 (Killed))",
    )
    (ended,) = classify(
        [RULE, *textwrap.wrap(_boxes()["a process exited with an error 2"], 74), RULE]
    )
    assert (ended.rank, ended.secondary) == (10, True)


def test_causes_come_before_consequences_and_the_earliest_first() -> None:
    findings = classify(
        [
            (
                "a: Test NCCL failure common.cu:1 'remote process exited or there was a "
                "network error / '"
            ),
            NCCL + "NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0",
            "b: Test NCCL failure common.cu:1 'unhandled system error / '",
            _boxes()["a process exited with an error"],
        ]
    )
    assert [f.program for f in findings] == ["nccl", "nccl-tests", "nccl-tests", "mpirun"]
    assert [f.secondary for f in findings] == [False, False, True, True]


def test_the_label_of_a_launcher_names_the_rank() -> None:
    (finding,) = classify(
        ["[1,13]<stderr>:node-3: Test CUDA failure common.cu:1 'initialization error'"]
    )
    assert (finding.rank, finding.host) == (13, "node-3")


def test_the_same_cause_of_many_ranks_is_listed_once_per_host() -> None:
    line = "node-{}: Test CUDA failure common.cu:1 'initialization error'"
    assert len(classify(line.format(i % 3) for i in range(5000))) == 3
    assert len(classify(line.format(i) for i in range(5000))) == 64, "findings are bounded"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("srun: error: Timed out waiting for job step to complete", "log-slurm-step-timeout"),
        ("srun: error: node-3: task 5: Exited with exit code 3", "log-slurm-task"),
        (
            (
                "gpu-3:4242:4250 [5] net_ib.cc:1 (wrap) NCCL WARN NET/IB : Got completion "
                "with error 11, opcode 1"
            ),
            "log-ib-completion",
        ),
        (
            (
                "[2025-01-02 03:04:05] gpu-3:4242:4250 [5] socket.cc:9 NCCL WARN Bootstrap : "
                "no socket interface found"
            ),
            "log-interface-missing",
        ),
    ],
)
def test_the_cause_is_found_behind_any_prefix(line: str, code: str) -> None:
    (finding,) = classify([line])
    assert finding.code == code


@pytest.mark.parametrize(
    ("line", "cause", "fatal"),
    [
        (
            "[12.3] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.",
            "Xid 79 (GPU fell off",
            True,
        ),
        (
            "node-3 kernel: NVRM: Xid (PCI:0000:3b:00.0): 63, Row Remapper: new row",
            "Xid 63 (row remapping recorded)",
            False,
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 145, NVLink error", "Xid 145 (NVLink 5 error)", True),
        ("NVRM: Xid (PCI:0000:3b:00): 999, what", "Xid 999 (see NVIDIA's catalog)", True),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "SXid 20034 (NVSwitch",
            True,
        ),
    ],
)
def test_xids_are_classified_with_meaning_and_severity(line: str, cause: str, fatal: bool) -> None:
    (finding,) = classify([line])
    assert finding.cause.startswith(cause)
    assert (finding.program, finding.fatal) == ("driver", fatal)


@pytest.mark.parametrize(
    "name",
    [
        "r6kd_cx8_rtx_16ranks_mca_warnings_new",
        "awsdoeks_t4_efa_tagged_nccl_info",
        "rccl_mi300x_16ranks",
    ],
)
def test_warnings_of_healthy_runs_are_no_causes(name: str) -> None:
    assert [f for f in classify((LOGS / f"{name}.log").read_text().splitlines()) if f.fatal] == []


def test_a_generic_error_line_is_reported_without_a_better_cause() -> None:
    (finding,) = classify(["everything is fine", "enroot: error: something nobody has seen"])
    assert (finding.unknown, finding.fatal) == (True, False)


# code | host, and below it the line, as other versions and programs print it
_OTHERS = OTHER_VERSIONS.strip().split("\n")


@pytest.mark.parametrize(
    ("head", "line"), list(zip(_OTHERS[::2], _OTHERS[1::2], strict=True)), ids=_OTHERS[::2]
)
def test_messages_of_other_versions_and_programs_are_classified(head: str, line: str) -> None:
    (finding,) = classify([line])
    assert f"{finding.code} | {finding.host or '-'}" == head


LAST_ERROR = """\
[rank3]: Traceback (most recent call last):
[rank3]:     dist.all_reduce(t)
[rank3]: torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:3690, unhandled cuda error
[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.
[rank3]: Last error:
[rank3]: Cuda failure 802 'system not yet initialized'
"""
ROOT_CAUSE = """\
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2023-05-24_08:57:43
  host      : node-3
  rank      : 11 (local_rank: 3)
  exitcode  : -9 (pid: 12345)
============================================================
"""
WATCHDOG = (
    "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, "
    "OpType=ALLREDUCE, Timeout(ms)=6) ran"
)


def test_nccls_last_error_is_the_cause_of_torchs_status() -> None:
    first = classify(LAST_ERROR.splitlines())[0]
    assert (first.code, first.rank) == ("log-fabric-manager", 3)


def test_torchruns_root_cause_names_host_and_rank() -> None:
    first = classify(ROOT_CAUSE.splitlines())[0]
    assert (first.code, first.host, first.rank) == ("log-torch-root-cause", "node-3", 11)


def test_evidence_of_an_nccl_status_is_the_nearest_warning_of_its_host() -> None:
    warning = "NCCL WARN something that no table has"
    lines = [
        NCCL + warning,
        "other:1:2 [0] NCCL WARN another",
        "gpu-3: Test NCCL failure common.cu:1 'unhandled system error",
    ]
    first = classify(lines)[0]
    assert (first.code, first.host, first.evidence) == ("log-nccl-system-error", "gpu-3", warning)


def test_a_traceback_ends_with_its_cause() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "x.py", line 3, in <module>',
        "ValueError: odd 17",
    ]
    (finding,) = classify(lines)
    assert (finding.code, finding.evidence) == ("log-traceback", "ValueError: odd 17")


def test_rank_that_completed_all_enqueued_work_entered_no_other_collective() -> None:
    line = (
        "[rank4]:[E703 19:54:01.0 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank "
        "4] Received a dump"
        " signal due to a collective timeout from  rank 7 and we will try our best to dump the "
        "debug info. Last"
        " enqueued NCCL work: 56116, last completed NCCL work: 56116."
    )
    (finding,) = classify([line])
    assert finding.code == "log-watchdog"
    assert "rank 4 completed work 56116 and entered no other collective" in finding.cause


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (
            "slurmd: error: Munge decode failed: Invalid credential",
            "log-munge",
            "Invalid credential",
        ),
        (
            "[2026-08-03T10:00:00.123] error: Nodes node-3 not responding, setting DOWN",
            "log-slurm-node-down",
            "node-3",
        ),
        (
            (
                "[a:1:0:1] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/IB "
                "(synd 0x15 vend 0x81)"
            ),
            "log-ucx-timeout",
            "mlx5_0:1/IB) on a",
        ),
        (
            (
                "[1659.1] [a:1:0]  ucp_context.c:1480 UCX  WARN  network device 'mlx5_9:1' is "
                "not available, please use"
            ),
            "log-ucx-device",
            "mlx5_9:1",
        ),
        (
            "2025:08:14-14:34:47:(19) |CCL_ERROR| global.cpp:150 getenv_local_coord: failed",
            "log-oneccl",
            "global.cpp",
        ),
        (
            (
                "libfabric:1:2:cxi:core:cxip_ux_onload_cb():2444<warn> Flow control triggered "
                "due to failure to append LE"
            ),
            "log-cxi-queue",
            "queue of the Slingshot NIC",
        ),
        (
            (
                "Warning  FailedJobs  jobset failed due to one or more job failures (first "
                "failed job: train-workers-0)"
            ),
            "log-jobset-failed",
            "train-workers-0",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a "
            "total capacity of"
            " 79.10 GiB of which 1.21 GiB is free. Process 12345 has 60.00 GiB memory in use.",
            "log-gpu-memory",
            "Process 12345 has 60.00 GiB",
        ),
        (
            "Memory access fault by GPU node-4 (Agent handle: 0x55d) on address 0x7f. Reason: X",
            "log-gpu-access",
            "0x7f",
        ),
        ("Unable to open /dev/kfd read-write: Permission denied", "log-hip-device", "/dev/kfd"),
        ("missing ranks: {1, 5}", "log-rank-behind", "(1, 5) (rank 1)"),
        (
            "error msg: Culprit rank 3; Error type: COLLECTIVE_TYPE_MISMATCH",
            "log-collective-mismatch",
            "(rank 3)",
        ),
    ],
)
def test_messages_of_programs_other_than_nccl_are_classified(
    line: str, code: str, words: str
) -> None:
    (finding,) = classify([line])
    assert (finding.code, words in finding.place) == (code, True), finding.place


def test_ranks_that_are_behind_are_named_and_not_those_that_wait() -> None:
    (behind,) = classify([WATCHDOG.format(2, 800), WATCHDOG.format(1, 808)])
    (unheard,) = classify([WATCHDOG.format(2, 808), WATCHDOG.format(1, 808)])
    assert (behind.rank, unheard.rank) == (None, None)
    assert (
        "rank 2 is behind: its last work is 800" in behind.cause
        and "ranks 1, 2 waited for ranks that do not report" in unheard.cause
    )


def test_a_log_in_json_is_unwrapped() -> None:
    lines = [
        '{"level": "error", "msg": "ssh: connect to host node-3 port 222: Connection refused"}',
        '  "output": "a\\nUSAGE: x_perf",',
    ]
    assert [finding.code for finding in classify(lines)] == ["log-ssh-refused", "log-usage"]


def test_ranks_whose_line_names_no_group_are_among_those_that_wait() -> None:
    """After LlamaFactory #7396: torch 2.4 names the group in some lines only."""
    lines = [
        "[rank4]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught collective "
        "operation timeout:"
        " WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600067 milliseconds "
        "before timing out.",
        "[rank3]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 3] Exception (either an "
        "error or timeout)"
        " detected by watchdog at work: 1580, last enqueued NCCL work: 1582, last completed NCCL "
        "work: 1579.",
    ]
    assert "ranks 3, 4 waited for ranks that do not report" in classify(lines)[0].cause


def test_informations_of_nccl_are_compared_with_the_few_causes_that_they_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Logs of NCCL_DEBUG=INFO have hundreds of thousands of such lines, most with some needle."""
    walks = []

    class Counted(tuple[Cause, ...]):
        def __iter__(self) -> Iterator[Cause]:
            walks.append(1)
            return super().__iter__()

    module = sys.modules[classify.__module__]
    monkeypatch.setattr(module, "_LINES", Counted(cause for cause in CAUSES if cause.needle))
    lines = [f"{NCCL}NCCL INFO Channel {n}/0 : 3[3] -> 1[3] via NET/IB/{n}" for n in range(99)]
    assert not classify([*lines, f"{NCCL}NCCL INFO NCCL_IB_HCA set by environment to mlx5_0"])
    assert not walks
    assert classify([f"{NCCL}NCCL WARN Cuda failure 'out of memory'"]) and walks
