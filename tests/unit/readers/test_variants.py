"""Layouts of tools as their versions print them: what each finds, of which part, and the next step
that it leads to.
"""

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, judge_logs
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.readers.parts import read_text
from seatrial.readers.ports import against_port
from seatrial.report.judged import to_dict
from seatrial.runs.explanations import CATALOG
from tests.unit.readers.healthy import (
    BURN,
    IBSTAT,
    LINKS,
    MLXLINK,
    NVLINK_STATUS,
    P2P,
    PERFTEST,
    SMI,
    XML,
)

SETTING = """\
| Diagnostic                | Result                                         |
+===========================+================================================+
| Persistence Mode          | Fail                                           |
| Warning                   | Persistence mode for GPU 0 is disabled. Enabl  |
|                           | e persistence mode by running "nvidia-smi -i   |
|                           | <gpuId> -pm 1 " as root.                       |
| PCIe                      | Skip - All                                     |
"""
BROKE_OFF = """\
| Diagnostic                | Result                                         |
| pcie                      | Fail                                           |
| Warning                   | There was an internal error during the test:   |
|                           | 'A child process (152) exited with non-zero s  |
|                           | tatus 1' Check DCGM and system logs            |
"""
HEALTH_2 = """\
Health Monitor Report
+------------------+---------------------------------------------------------+
| Group 1          | Overall Health: Warning                                 |
+==================+=========================================================+
| GPU ID: 0        | Warning                                                 |
|                  | PCIe system: Warning - Detected more than 8 PCIe        |
|                  | replays per minute for GPU 0: 13                        |
+------------------+---------------------------------------------------------+
"""
NO_LINK_UP = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
HEALTH_4 = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 3                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> NVLink system    | Failure                                                  |
|                           | Detected 12 NVLink errors on link 4 for GPU 3            |
+---------------------------+----------------------------------------------------------+
"""
P2P_4 = """\
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2      3
     0 2500.83  388.11  388.2 120.3
     1 386.90 2512.14 387.1 121.0
     2 386.90 385.14 2512 122.0
     3 121.90 120.14 122.1 2513.0
"""
FABRIC = """\
GPU 00000000:19:00.0
    Fabric
        State                                          : Completed
        Status                                         : Success
        Health
            Summary                                    : Unhealthy
            Route Unhealthy                            : True
"""
IMEX_LOG = (
    "[Dec 30 2025 00:11:40] [ERROR] [tid 39985] Failed to connect to node 3 at "
    "10.0.0.98:50000: refused\n"
)
NON_FATAL = (
    "[Jul 09 2024 18:14:07] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028 on fid 0 "
    "on NVSwitch pci bus id"
    " 00000000:86:00.0 physical id 3 port 61\n"
)
DEVINFO = """\
hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_INIT (2)
\t\t\tlink_layer:\t\tInfiniBand
"""
PERFQUERY = """\
# Port counters: Lid 3 port 1 (CapMask: 0x5A00)
PortSelect:......................1
SymbolErrorCounter:..............41200
LinkDownedCounter:...............19
PortXmitWait:....................0
"""
DCGM_LINKS = """\
+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        U U U U U U U U U U U U
    gpuId 1:
        U U D U U U U U U D U U
    gpuId 2:
        D D D D D D D D D D D D
NvSwitches:
    No NvSwitches found.
"""
PORT_INFO = """\
# Port info: Lid 38 port 1
LinkState:.......................Active
PhysLinkState:...................LinkUp
LinkWidthSupported:..............1X or 4X
LinkWidthActive:.................1X
"""
P2P_SLOW = """\
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2
     0 911.08  20.10  22.16
     1  20.39 920.20  22.26
     2  22.18  22.37 920.74
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2
     0 912.68   9.90   9.90
     1   9.90 922.37   9.90
     2  10.01  10.01 922.24
"""
DETECTOR = (
    "0: INFO:megatron.core.utils:[2026-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: "
    "3468.20ms/0"
    " | MnClk/Rnk: 1950.00MHz/28 | MxClk/Rnk: 1980.00MHz/0 | MnEtpt/Rnk: 296.02TF/5 | MxEtpt/Rnk: "
    "297.32TF/8\n"
)
RANK_TIMES = "times across ranks (ms):\n  forward-compute:\n" + "".join(
    f"     rank {rank:2d}: {1500 + rank:.2f}\n" for rank in range(8)
)
TWO_MODELS = """\
Initialized device 0 with 11441 MB of memory (11330 MB available, using 10197 MB of it), using DOUBLES
Initialized device 1 with 8126 MB of memory (8016 MB available, using 7214 MB of it), using DOUBLES
Initialized device 2 with 8126 MB of memory (8016 MB available, using 7214 MB of it), using DOUBLES
100.0%  proc'd: 446 (74 Gflop/s) - 6636 (423 Gflop/s) - 6636 (423 Gflop/s)   errors: 0 - 0 - 0   temps: 93 C - 57 C
Tested 3 GPUs:
\tGPU 0: OK
\tGPU 1: OK
\tGPU 2: OK
"""
SMI_PART = """\
+-------------------------------+----------------------+----------------------+
|   1  Tesla V100-PCIE...  On   | 00008ED0:00:00.0 Off |                    0 |
| N/A   29C    P0   ERR! / 250W |    593MiB / 16160MiB |      0%      Default |
"""  # likewise (azhpc-diagnostics #77)
DIAG_PART = """\
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Fail - All                                     |
| Warning                   | GPU 0's NvLink link 0 is currently down        |
|                           | Run a field diagnostic on the GPU.             |
"""  # the head of the table is cut off (DCGM #49)
REPORTS = [
    (DCGM_LINKS, "fail", "tool-gpu-nvlink", "GPU 1: links 2, 9 are down; GPU 2: all 12 links are down"),
    (PORT_INFO, "degraded", "tool-port-slow", "lid 38 port 1 runs with 1X of 4X lanes"),
    (PORT_INFO.replace("Active\n", "Down\n", 1).replace("LinkUp", "Polling"), "fail", "tool-port-down", "polling"),
    ("mlx5_0   port  1  ==>  ib0  (Down)\nmlx5_1   port  1  ==>  eth1  (Up)\nmlx5_2   port  1  ==>  ib1  (Down)\n",
     "pass", None, "IP over InfiniBand is down on mlx5_0:1, mlx5_2:1"),
    (P2P_SLOW, "degraded", "tool-gpu-peer-slow", "GPU to GPU 9.90 GB/s with peer access, 22.2 GB/s without"),
    (" Unable to read to socket/rdma_cm\n Failed to exchange data between server and clients\n",
     "fail", "tool-rdma-failed", "Failed to exchange data"),
    ("Couldn't connect to 10.0.0.2:18515\n", "fail", "tool-rdma-failed", "10.0.0.2:18515"),
    (DETECTOR, "pass", None, "without a fault"),
    (DETECTOR.replace("1950.00MHz/28", "1050.00MHz/5"), "degraded", "training-straggler",
     "rank 5 runs at 1050 of 1980 MHz"),
    (DETECTOR.replace("296.02TF", "196.02TF"), "degraded", "training-straggler", "rank 5 computes 196.02 of 297.32"),
    (RANK_TIMES, "pass", None, "without a fault"),
    (RANK_TIMES.replace("1505.00", "2410.83"), "degraded", "training-straggler",
     "rank 5 takes 2,411 ms for forward-compute, others 1,504 ms"),
    ("(min, max) time across ranks (ms):\n    forward-compute ................................: (1502.11, 2410.83)\n",
     "pass", None, "forward-compute takes 1,502 to 2,411 ms, by rank"),
    (TWO_MODELS, "pass", None, "3 of 3 without a fault"),
    (TWO_MODELS.replace("100.0%  proc'd", "said"), "inconclusive", "tool-unfinished", "no result"),
    (SETTING, "degraded", "tool-dcgm-setting", "a setting, no broken GPU"),
    (BROKE_OFF, "fail", "tool-dcgm-broke-off", "exited with non-zero status 1"),
    (HEALTH_2, "degraded", "tool-gpu-pcie", "GPU 0: PCIe system: Detected more than 8 PCIe replays per minute"),
    (HEALTH_4, "fail", "tool-gpu-nvlink", "GPU 3: NVLink system: Detected 12 NVLink errors"),
    (SMI.replace("         0 |", "         3 |"), "degraded", "tool-gpu-memory", "GPU 0 (00000000:1B:00.0): 3"),
    (XML.replace("pending>No", "pending>Yes"), "degraded", "tool-gpu-reset", "a remapped row waits"),
    (FABRIC, "degraded", "tool-gpu-fabric", "fabric health: unhealthy"),
    (NVLINK_STATUS.replace("26.562", "13.281", 1), "degraded", "tool-gpu-nvlink", "GPU 0: link 0 at 13.281 of 26.562"),
    (NVLINK_STATUS.rpartition("\t")[0], "fail", "tool-gpu-nvlink", "GPU 1: 1 links, where others have 2"),
    (NVLINK_STATUS.replace("\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n", NO_LINK_UP, 1), "fail",
     "tool-gpu-nvlink", "GPU 0: 0 links, where others have 2"),
    (NVLINK_STATUS.replace("\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n", NO_LINK_UP), "pass", None,
     "nvidia-smi nvlink: 1 of 1 without a fault"),
    (P2P_4, "degraded", "tool-gpu-nvlink", "GPU 3: 122.1 GB/s at best"),
    (P2P_4.replace(" 2512.14 387.1 121.0", "").replace("2513.0", "1013.0"), "degraded", None,
     "GPU 3: memory at 1013 GB/s"),
    (P2P.replace("386.90", " 86.90"), "degraded", "tool-gpu-nvlink", "GPU 1 to 0: 86.9 GB/s, back 388.11"),
    (BURN.replace("errors: 0 ", "errors: 24433  (WARNING!)"), "corrupt", "tool-wrong-data", "GPU 0: 24433"),
    (BURN.replace("errors: 0 ", "errors: -1  (DIED!)"), "fail", "tool-gpu-unreadable", "GPU 0: its process died"),
    (DEVINFO, "fail", "tool-port-no-subnet", "mlx5_0:1 is init"),
    ("mlx5_1 port 1 ==> ibp2s0 (Down)\n", "fail", "tool-port-down", "mlx5_1:1"),
    ("link mlx5_1/1 state DOWN physical_state DISABLED netdev ib0\n", "degraded", "tool-port-down", "down, disabled"),
    (IBSTAT + IBSTAT.replace("mlx5_0", "mlx5_1").replace("400", "200"), "degraded", "tool-port-slow", "mlx5_1:1 runs"),
    (LINKS, "pass", None, "links: 1 of 1 without a fault; InfiniBand links notes: 1 port without a link"),
    (LINKS.replace("25.78125", "10.0").replace("( )", "( Could be 25.78125 Gbps)"), "degraded", "tool-port-slow",
     "n02 HCA-1 port 1 to MF0;SB7700:MSB7700/U1 port 17 runs at 4X 10.0 Gbps and could be 25.78125 Gbps"),
    (LINKS.replace("Active", "Initialize"), "fail", "tool-port-no-subnet", "n02 HCA-1 port 1 to"),
    (LINKS.replace("Active/  LinkUp", "Down/ Disabled"), "fail", "tool-port-down", "has no link (Down, Disabled)"),
    ("\n".join(LINKS.splitlines()[2:4]), "inconclusive", "tool-unfinished", "InfiniBand links"),
    ('0xf4521403 "              t-7 mlx4_0"  37  1[  ] ==( 1X 10.0 Gbps (FDR10) Active/ LinkUp)==> 0xf4521404 5 16[  ]'
     ' "MF0;switch:SX6036/U1" ( Could be 4X )\n', "degraded", "tool-port-slow",
     "t-7 mlx4_0 port 1 to MF0;switch:SX6036/U1 port 16 runs at 1X 10.0 Gbps (FDR10) and could be 4X"),
    (PERFQUERY, "degraded", "tool-port-errors", "Lid 3 port 1: SymbolErrorCounter 41200, LinkDownedCounter 19"),
    (MLXLINK.replace("State                              : Active", "State                              : Polling"),
     "fail", "tool-port-down", "state Polling"),
    (MLXLINK + "Effective Physical BER             : 4E-9\n", "degraded", "tool-port-errors", "4E-9"),
    (MLXLINK + "Link Down Counter                  : 12\n", "degraded", "tool-port-errors", "went down 12 times"),
    (MLXLINK + "Link Down Counter                  : 1\n", "pass", None, "without a fault"),
    ("Jan 05 14:44:41 tray-7 nvidia-imex[1049]: Failed to bind to port 50000\n", "fail", "tool-imex", "Failed to"),
    ("Jan 05 14:45:26 node-1 nv-fabricmanager[1120]: Connected to 1 node.\n", "pass", None, "fabric manager: 1 of 1"),
    ("[Mar 21 2025 20:45:38] [ERROR] [tid 39] No matching network interface found for any IP addresses in the node"
     " configuration file\n", "fail", "tool-imex", "No matching network interface"),
    (IMEX_LOG, "fail", "tool-imex", "node 3 at 10.0.0.98"),
    (NON_FATAL, "pass", None, "non-fatal error 12028"),
    ("Jan 05 14:45:26 node-1 nv-fabricmanager[1120]: request to query NVSwitch device information from NVSwitch driver"
     " failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n", "fail", "tool-no-nvswitch", "Nothing to do"),
    (SMI_PART, "fail", "tool-gpu-unreadable", "GPU 1 (00008ED0:00:00.0): 1 fields cannot be read (ERR!)"),
    (SMI_PART.replace("ERR!", "29W"), "pass", None, "nvidia-smi: 1 of 1 without a fault"),
    ("Couldn't init a GPU test: Error: CUDA_ERROR_UNKNOWN\n100.0%  proc'd: 0 (0 Gflop/s)   errors: 0   temps: 41 C\n"
     "Tested 1 GPUs:\n        GPU 0: OK\n", "fail", "tool-gpu-unreadable", "Couldn't init a GPU test"),
    (DIAG_PART, "fail", "tool-gpu-nvlink", "PCIe fail on All: GPU 0's NvLink link 0 is currently down Run a field"),
    ("Running multinode_device_to_device_memcpy_read_ce.\n[CUDA_ERROR_NOT_PERMITTED] operation not permitted"
     " in expression cuMemCreate(&handle, size, &prop, 0 ) on worker-0, rank = 0\n",
     "fail", "tool-imex", "cuMemCreate(&handle"),
    ("Running host_to_device_memcpy_sm.\nmemcpy SM CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n"
     " 0     35.19\n\nSUM host_to_device_memcpy_sm 35.19\n", "pass", None, "nvbandwidth: 1 measurements"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "code", "words"), REPORTS)
def test_each_tool_output_variant_names_the_faulty_part_and_a_next_step(
    text: str, verdict: str, code: str | None, words: str
) -> None:
    (check,) = read_text(text, "tool", "tool")
    assert isinstance(check, Check)
    assert (check.verdict.value, words in check.reason.sentence) == (verdict, True), check.reason
    if code:
        assert check.reason.code == code and CATALOG[code].next_step


@pytest.mark.parametrize(
    ("gbit_s", "fabric", "verdict"),
    [
        (393.1, "IB-8x400G", Verdict.PASS),
        (300.0, "IB-8x400G", Verdict.DEGRADED),
        (196.0, "IB-8x400G", Verdict.FAIL),
        (393.1, "IB-8x200G", Verdict.INCONCLUSIVE),
        (393.1, None, Verdict.PASS),
    ],
)
def test_rdma_bandwidth_is_held_against_a_port(
    gbit_s: float, fabric: str | None, verdict: Verdict
) -> None:
    (check,) = read_text(PERFTEST.replace("393.12", str(gbit_s)), "tool", "tool")
    assert isinstance(check, Check)
    judged = against_port(check, fabric)
    assert judged.verdict is verdict and bool(judged.judgements) == bool(fabric)


def test_rdma_bandwidth_that_falls_while_a_test_runs_on_is_no_pass() -> None:
    row = " 8388608    5000             393.20             393.12             0.005858\n"
    assert row in PERFTEST
    fallen = PERFTEST + row + row.replace("393", "113") * 2
    (check,) = read_text(fallen, "tool", "tool")
    assert isinstance(check, Check)
    assert "mlx5_3 reaches 113 of 400 Gb/s" in against_port(check, "IB-8x400G").reason.sentence


def test_what_tools_find_is_listed_with_the_causes_of_logs() -> None:
    parts = read_text(
        HEALTH_4 + "ssh: Could not resolve hostname node-b: Name or service not known\n",
        "log",
        "log",
    )
    log = Log("log", tuple(parts))
    findings = to_dict(judge_logs([log], LogsConfig()), [log])["findings"]
    assert {each["code"] for each in findings} == {"tool-gpu-nvlink", "log-name-unresolved"}
    assert all(each["next_step"] for each in findings)


def test_a_secret_in_a_tools_words_is_not_shown() -> None:
    (check,) = read_text(IMEX_LOG.replace("refused", "password=hunter2secret"), "tool", "tool")
    assert isinstance(check, Check) and "hunter2secret" not in check.reason.sentence
