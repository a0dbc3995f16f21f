"""A file of several parts: what is healthy hides nothing that stands before it or after it."""

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, LogsJudgement, judge_logs
from seatrial.model.verdict import Verdict
from seatrial.readers.parts import read_text
from seatrial.readers.table import READERS
from tests.unit.nccl.test_foreign_lines import TABLE
from tests.unit.readers.healthy import BURN, DIAG_4, HEALTH, IBSTAT, NVLINK_STATUS, OUTPUTS, SMI

SWEEP = "\n".join(TABLE) + "\n"
FROM_KERNEL = {  # each the last word of a node's hardware
    "log-xid-79": "[   42.0] NVRM: Xid (PCI:0000:1b:00): 79, pid=7, GPU has fallen off the bus.",
    "log-sxid": (
        "[ 1012.2] nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 44 LTSSM Fault Up"
    ),
    "log-gsp": "[ 3947.5] NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out",
    "log-host-memory": (
        "[Mon Oct  3 13:52:42 2022] EDAC MC0: 1 UE memory read error on "
        "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"
    ),
    "log-amdgpu-ras": (
        "[  918.6] amdgpu 0000:15:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT)"
    ),
    "log-pcie-slot": "Jun  3 10:00:00 node-0 kernel: pcieport 0000:72:00.0: pciehp: Slot(15): Link Down",
    "log-hca-health": "[ 99.1] mlx5_core 0000:b1:00.0: print_health_info:423:(pid 0): Health issue observed, firmware "
    "internal error, severity(3) ERROR:",
}
ELSEWHERE = {
    "log-ib-timeout": "node-a:77:91 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
    "10.0.0.7<4242> with status=12 opcode=0 len=0 vendor err 129 (Send)",
    "log-name-unresolved": "ssh: Could not resolve hostname node-b: Name or service not known",
}


def judged(text: str) -> LogsJudgement:
    return judge_logs([Log("log", tuple(read_text(text, "log", "log")))], LogsConfig())


@pytest.mark.parametrize("tool", OUTPUTS)
def test_healthy_output_of_each_tool_passes(tool: str) -> None:
    judgement = judged(OUTPUTS[tool])
    assert judgement.verdict is Verdict.PASS, judgement.reason
    assert len(judgement.checks) == 1


@pytest.mark.parametrize("label", ["3: ", "[1,3]<stdout>:"])
@pytest.mark.parametrize("tool", OUTPUTS)
def test_output_with_the_label_of_a_rank_is_read_as_without(tool: str, label: str) -> None:
    labelled = "".join(f"{label}{line}\n" for line in OUTPUTS[tool].splitlines())
    sentence = judged(labelled).reason.sentence.replace(" on rank 3", "")
    assert sentence == judged(OUTPUTS[tool]).reason.sentence


@pytest.mark.parametrize("tool", OUTPUTS)
@pytest.mark.parametrize("code", [*FROM_KERNEL, *ELSEWHERE])
def test_error_event_before_or_after_a_healthy_report_fails(tool: str, code: str) -> None:
    line = (FROM_KERNEL | ELSEWHERE)[code]
    for text in (
        f"{line}\n{OUTPUTS[tool]}",
        f"{OUTPUTS[tool]}{line}\n",
        f"{OUTPUTS[tool]}{line}\n{OUTPUTS[tool]}",
    ):
        judgement = judged(text)
        assert (judgement.verdict, judgement.reason.code) == (Verdict.FAIL, code), judgement.reason


@pytest.mark.parametrize("code", [*FROM_KERNEL, "log-ib-timeout"])
def test_an_event_counts_before_and_after_a_healthy_sweep(code: str) -> None:
    line = (FROM_KERNEL | ELSEWHERE)[code]
    for text in (f"{line}\n{SWEEP}", f"{SWEEP}{line}\n"):
        judgement = judged(text)
        assert judgement.verdict is Verdict.FAIL and code in {
            check.reason.code for check in judgement.checks
        }, judgement.reason


@pytest.mark.parametrize("tool", OUTPUTS)
def test_a_sweep_is_read_beside_each_report(tool: str) -> None:
    for text in (SWEEP + OUTPUTS[tool], OUTPUTS[tool] + SWEEP):
        judgement = judged(text)
        assert (
            judgement.verdict is Verdict.PASS and "every result right" in judgement.reason.sentence
        ), judgement.reason
        assert len(judgement.checks) == 2


BAD = {
    "dcgmi diag": DIAG_4.replace(
        "| memory                    | Pass", "| memory                    | Fail"
    ),
    "dcgmi health": HEALTH.replace("Healthy", "Failure"),
    "nvidia-smi": SMI.replace("                   0 |", "                ERR! |"),
    "nvlink": NVLINK_STATUS.replace("Link 1: 26.562 GB/s", "Link 1: <inactive>", 1),
    "gpu_burn": BURN.replace("GPU 0: OK", "GPU 0: FAULTY"),
    "ibstat": IBSTAT.replace("Active", "Down").replace("LinkUp", "Polling"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("tool", OUTPUTS)
def test_a_bad_report_counts_beside_each_healthy_one(tool: str, bad: str) -> None:
    alone = judged(BAD[bad])
    assert alone.verdict.is_fault, alone.reason
    for text in (BAD[bad] + OUTPUTS[tool], OUTPUTS[tool] + BAD[bad]):
        judgement = judged(text)
        assert (judgement.verdict, judgement.reason.code) == (alone.verdict, alone.reason.code), (
            judgement.reason
        )


def test_lines_labelled_with_a_host_are_judged_per_host() -> None:
    """As pdsh prints them, in any order."""
    bad = BAD["ibstat"].splitlines()
    mixed = [f"{host}: {line}" for good, ill in zip(IBSTAT.splitlines(), bad, strict=True) for host, line in
             (("node-a", good), ("node-b", ill))]  # fmt: skip
    judgement = judged("\n".join(mixed))
    assert (
        judgement.verdict is Verdict.FAIL
        and "on node-b: mlx5_0:1 has no link" in judgement.reason.sentence
    )
    assert len(judgement.checks) == 2


def test_cause_that_comes_first_in_the_log_is_the_reason() -> None:
    xid, bad = FROM_KERNEL["log-xid-79"], BAD["dcgmi diag"]
    assert judged(f"{xid}\n{bad}").reason.code == "log-xid-79"
    assert judged(f"{bad}{xid}\n").reason.code == "tool-gpu-memory"


def test_a_generic_line_never_hides_a_specific_one() -> None:
    generic = "srun: error: node-a: task 3: Exited with exit code 1\n"
    assert judged(generic + BAD["dcgmi diag"]).reason.code == "tool-gpu-memory"


@pytest.mark.parametrize(
    "way", ["P2P/CUMEM/read", "P2P/IPC", "SHM/direct/direct", "NET/IB/0/GDRDMA"]
)
def test_channels_of_nccl_are_not_searched_for_the_beginning_of_a_report(way: str) -> None:
    """A log with NCCL_DEBUG=INFO has hundreds of them for each rank."""
    line = f"gpu-001:4000:5000 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {way}"
    assert not any(needle in line for reader in READERS for needle in reader.needles)
