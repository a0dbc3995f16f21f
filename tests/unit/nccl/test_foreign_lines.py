"""Lines of other programs before and after a healthy sweep: which of them change its verdict."""

from collections.abc import Sequence

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, LogsJudgement, judge_logs
from seatrial.model.verdict import Verdict
from seatrial.nccl import parse_lines
from seatrial.nccl.events import _glued_digits
from seatrial.nccl.header import Bounds, _plain_mark

_SIDE = "time   algbw   busbw  #wrong"
SIZES = [1 << power for power in range(27, 33)]


def _row(size: int) -> str:
    time_us = size / 268.6e3  # 268.6 GB/s algbw, 470 GB/s busbw of eight ranks
    side = f"{time_us:10.1f} {size / time_us / 1e3:7.2f} {size / time_us / 1e3 * 1.75:7.2f}      0"
    return f"{size:12d} {size // 4:13d}     float     sum      -1 {side} {side}"


TABLE = [
    "# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902",
    "# Collective test starting: all_reduce_perf",
    (
        "# nThread 1 nGpus 8 minBytes 134217728 maxBytes 4294967296 step: 2(factor) warmup "
        "iters: 5 iters: 20"
    ),
    "# Using devices",
    *(
        (
            f"#  Rank {r:2} Group  0 Pid 42 on node-3 device {r:2} [0000:{r:02}:00] NVIDIA "
            "H100 80GB HBM3"
        )
        for r in range(8)
    ),
    f"#       size         count      type   redop    root     {_SIDE}     {_SIDE}",
    *map(_row, SIZES),
    "# Out of bounds values : 0 OK",
    "# Avg bus bandwidth    : 470.0",
]
HARMLESS = r"""
pcieport 0000:64:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
[ 4321.123456] pcieport 0000:64:01.0: AER: Corrected error received: 0000:65:00.0
[ 4321.223456] pcieport 0000:64:01.0: AER: Multiple Corrected error received: 0000:64:01.0
[ 4321.323456] pcieport 0000:64:01.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer
[  812.101010] NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)
[  812.101011] NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)
[ 1012.2] nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 19084, Non-fatal, Link 44 AN1 Heartbeat Timeout Error
Jun 12 04:00:00 node-3 kernel: NVRM: Xid (PCI:0000:9c:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row
Jun 12 04:00:00 node-3 kernel: NVRM: Xid (PCI:0000:9c:00): 92, pid='<unknown>', name=<unknown>, High single-bit rate
[   12.345678] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Apr 13 04:50:56 UTC 2025
srun: error: Setting TMPDIR to /tmp
srun: error: ioctl(TIOCGWINSZ): Inappropriate ioctl for device
srun: Job 4711 step creation still disabled, retrying (Requested nodes are busy)
slurmstepd: error: Unable to get current working directory: No such file or directory
slurmstepd: error: *** STEP 4711.0 ON node-3 CANCELLED AT 2026-06-12T04:10:11 ***
slurmstepd: info: oom_kill events: 0
oom_kill events: 0
oom 0
oom_kill 0
rm: cannot remove '/scratch/old': No space left on device
cp: error writing '/scratch/x': No space left on device
tee: results.txt: No space left on device
Connection closed by 10.0.0.7 port 222
Connection closed by remote host.
Warning: Permanently added '[node-3]:222' (ED25519) to the list of known hosts.
mpirun: Forwarding signal 18 to job
[node-3:00042] 7 more processes have sent help message help-mpi-btl-openib.txt / ib port not selected
[node-3:00042] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168
WARNING: Open MPI accepts the deprecated MCA parameter plm_rsh_agent
bc: command not found
/opt/run.sh: line 12: module: command not found
+ echo 'bash: all_reduce_perf: command not found'
+ grep -c 'Test NCCL failure' out.log
grep: Out of memory: 0 matches, GPU fallen off the bus: 0 matches
mkdir: cannot create directory '/results': File exists
kubectl: Error from server (NotFound): pods "old-run" not found
node-3:4242:4250 [5] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.
node-3:4242:4250 [5] NCCL INFO comm 0x55d0 rank 5 nranks 8 cudaDev 5 busId 9c000 - Destroy COMPLETE
node-3:4242:4250 [5] NCCL WARN NET/IB : mlx5_2:1 Got non-fatal async event: GID table change(18)
W0612 04:10:11.000000 139871 torch/distributed/run.py:766] Setting OMP_NUM_THREADS environment variable for each process
/usr/lib/python3/dist-packages/x.py:3: UserWarning: Failed to initialize NumPy: CUDA error handling is not tested
node-3:4242:4250 [5] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]
slurmd: error: Node configuration differs from hardware: Procs=2:4(hw) Boards=1:1(hw)
{359}[Hardware Error]: event severity: corrected
Error: no such option: --colour
DeprecationWarning: the imp module is deprecated; see "Name or service not known" in the FAQ
""".strip().splitlines()
FATAL = r"""
[ 5012.101010] NVRM: Xid (PCI:0000:9c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 5012.1] nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 44 LTSSM Fault Up
[ 5012.101010] NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Fatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)
Jun 12 04:00:00 node-3 kernel: NVRM: Xid (PCI:0000:9c:00): 95, pid=42, name=x, Uncontained
[ 5013.2] nvidia 0000:9c:00.0: AER: can't recover (no error_detected callback)
NVRM: GPU 0000:9c:00.0: GPU has fallen off the bus.
mpirun noticed that process rank 3 with PID 4245 on node node-3 exited on signal 11 (Segmentation fault).
srun: error: node-3: task 5: Exited with exit code 3
srun: error: Node failure on node-3
slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.
node-3: Test CUDA failure common.cu:1304 'uncorrectable ECC error encountered'
node-3: Test NCCL failure common.cu:401 'unhandled system error / '
node-3:4242:4250 [5] NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0
""".strip().splitlines()


def judged(before: Sequence[str] = (), after: Sequence[str] = ()) -> LogsJudgement:
    log = Log("log", tuple(parse_lines([*before, *TABLE, *after])))
    return judge_logs([log], LogsConfig("H100-SXM", 1, 8))


def test_table_without_foreign_lines_passes() -> None:
    assert judged().verdict is Verdict.PASS and len(HARMLESS) >= 40


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_line_before_or_after_the_table_passes(line: str) -> None:
    assert (judged(before=[line]).verdict, judged(after=[line]).verdict) == (
        Verdict.PASS,
        Verdict.PASS,
    )


@pytest.mark.parametrize("line", FATAL)
def test_fatal_line_of_a_rank_launcher_or_driver_fails(line: str) -> None:
    judgement = judged(after=[line])
    assert judgement.verdict is Verdict.FAIL
    assert line.split(": ", 1)[-1][:30] in judgement.reason.sentence, "the line is its evidence"


def test_harmless_events_are_listed_as_notes() -> None:
    noted = judged(after=[HARMLESS[4], HARMLESS[0]])
    assert (
        "noted: Xid 145 (NVLink 5 error: RLW_RXPIPE, Link 13) on GPU 0018:01:00, PCIe "
        "errors that were corrected"
    ) in noted.reason.sentence
    (sweep,) = parse_lines([*TABLE, HARMLESS[4], HARMLESS[0]])
    assert [finding.code for finding in sweep.notes] == ["log-xid-nvlink5", "log-pcie-corrected"]


@pytest.mark.parametrize(
    ("head", "host", "known", "digits"),
    [
        ("0.01 -", "1node-1", {"node-1"}, 1),
        ("0.01 -", "1node-1", {"1node-1"}, 0),
        ("", "1node-1", {"node-1"}, 1),
        ("", "1node-1", set(), 0),
        ("0.01 -", "1node-1", set(), 1),
        ("0.01 N/", "Anode-1", set(), 1),
        ("0.01 ", "1node-1", set(), None),
        ("0.01 ", "node-1", set(), 0),
    ],
)
def test_digits_of_a_row_glued_to_a_host_name_are_counted(
    head: str, host: str, known: set[str], digits: int | None
) -> None:
    assert _glued_digits(head, host, known) == digits


@pytest.mark.parametrize(
    ("footer", "failed"),
    [("0 OK", False), ("3 OK", False), ("3 FAILED", True), ("3", True), ("0", False)],
)
def test_footer_without_ok_or_failed_is_read_by_its_number(footer: str, failed: bool) -> None:
    assert _plain_mark(f"# Out of bounds values : {footer}") == Bounds(int(footer[0]), failed)
