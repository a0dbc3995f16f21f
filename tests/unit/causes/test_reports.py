"""Lines of public reports: the kernel's, those of Slurm's tools, of device plugins, of older NCCL and of launchers."""

import pytest

from seatrial.causes import classify

LOST = "[NV_ERR_GPU_IS_LOST] (0x0000000F) returned from rmStatus @ kernel_ce_gv100.c:106"
FOUND = [
    (
        f"Feb 17 08:00:34 dgx-a kernel: NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus {LOST}",
        ("log-gpu-off-bus", "GPU fell off the bus", "dgx-a", None),
    ),
    (
        f"[   35.564060] NVRM: nvCheckOkFailedNoLog: Check failed: GPU lost from the bus {LOST}",
        ("log-gpu-off-bus", "GPU fell off the bus", None, None),
    ),
    (
        "Aug 10 22:40:59 node-b kernel: NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for"
        " fn 10 sequence 790!",
        ("log-gpu-off-bus", "(GPU0)", "node-b", None),
    ),
    (
        "I1025 02:19:08.1       1 health.go:186] XidCriticalError: Xid=94 on Device=GPU-e152b1ac-2b24-1ee3; marking"
        " device as unhealthy.",
        ("log-xid-94", "on GPU e152b1ac-2b24-1ee3", None, None),
    ),
    (
        "2020/08/10 19:09:42 XidCriticalError: Xid=69 on Device=GPU-7540a9b3, the device will go unhealthy.",
        ("log-xid", "Xid 69", None, None),
    ),
    (
        "[  950.818166] amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE",
        ("log-amdgpu-hang", "(0000:c5:00.0)", None, None),
    ),
    (
        "May 26 18:09:55 node-c kernel: [drm:mes_v11_0_submit_pkt_and_poll_completion.constprop.0 [amdgpu]] *ERROR* MES"
        " failed to response msg=3",
        ("log-amdgpu-hang", "AMD GPU: it hangs", "node-c", None),
    ),
    (  # dmesg -H
        "[May19 19:57] CMCI storm detected: switching to poll mode\n"
        "[  +0.000006] EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0)",
        ("log-host-memory", "(CPU_SrcID#1_MC#1_Chan#2_DIMM#0)", None, None),
    ),
    (
        "gpu-9:285594:285607 [0] include/socket.h:361 NCCL WARN Call to connect failed : Connection timed out",
        ("log-bootstrap", "bootstrap could not connect", "gpu-9", None),
    ),
    (  # NCCL until 2.2
        "gpu-15:2123:2230 [3] include/socket.h:194 WARN Call to recv failed : Connection reset by peer\n"
        "gpu-15:2123:2230 [3] INFO transport/net_ib.cu:555 -> 2",
        ("log-peer-closed", "a peer closed the connection", "gpu-15", None),
    ),
    (
        "dgx-4:460770:460842 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is"
        " unreachable",
        ("log-roce-unreachable", "peer not reachable over RoCE", "dgx-4", None),
    ),
    (
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:957, invalid usage, NCCL"
        " version 2.21.5",
        ("log-nccl-usage", "invalid usage", None, None),
    ),
    (
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: Failed, NCCL error ../ncclCommunicator.cpp:90 'invalid"
        " usage (run with NCCL_DEBUG=WARN for details)'",
        ("log-nccl-usage", "invalid usage", None, None),
    ),
    (
        "Kill task failed     root      2024-01-25T15:12:23 ip-10-0-1-23",
        ("log-slurm-drained", "Slurm drains the node", "ip-10-0-1-23", None),
    ),
    (
        "gres/gpu count reported lower than configured (7 < 8) slurm 2024-01-25T15:12:23 node-[3-4]",
        ("log-slurm-node-short", "(7 < 8)", "node-[3-4]", None),
    ),
    (
        "   Reason=gres/gpu count reported lower than configured (0 < 1) [slurm@2024-12-19T11:03:34]",
        ("log-slurm-node-short", "(0 < 1)", None, None),
    ),
    (
        "[2020-12-14T09:44:56.002] [63532.0] error: *** STEP 63532.0 STEPD TERMINATED ON cn106 AT 2020-12-14T09:44:56"
        " DUE TO JOB NOT ENDING WITH SIGNALS ***",
        ("log-slurm-drained", "cannot be killed", "cn106", None),
    ),
    (
        "RuntimeError: Using hostfile at /job/hostfile but host=192.168.3.100 was not reachable via ssh.",
        ("log-launch-failed", "launch failed", "192.168.3.100", None),
    ),
    (
        "  Warning  UnexpectedAdmissionError  10s  kubelet  Allocate failed due to rpc error: code = Unavailable desc ="
        " error reading from server: EOF, which is unexpected",
        ("log-device-unhealthy", "no healthy device", None, None),
    ),
    (
        "[1650000000.112] [node-d:1234:0]  ib_md.c:325  UCX  ERROR ibv_reg_mr(address=0x7f2c0e000000, length=1048576,"
        " access=0xf) failed: Bad address",
        ("log-rdma-memory", "the NIC cannot take the memory", "node-d", None),
    ),
    (
        "terminate called after throwing an instance of 'mscclpp::IbError'\n"
        "  what():  ibv_reg_mr failed (errno 14) (Ib failure: Bad address)",
        ("log-rdma-memory", "(errno 14)", None, None),
    ),
    ("Couldn't register MR", ("log-rdma-memory", "the NIC cannot take the memory", None, None)),
    (  # a process number of few digits, and a warning of the cleanup after the error
        "[1745499308.854013] [9fd0c21b0f7c:760  :0]  ib_device.c:1332 UCX  ERROR   ibv_create_ah(dlid=49152"
        " dgid=fe80::5aa2 sgid_index=0) for UD mlx5 connect on mlx5_0 failed: No such device\n"
        "[1745499308.859784] [9fd0c21b0f7c:760  :0]  ib_mlx5.h:965  UCX  WARN  mlx5dv_devx_obj_destroy(SRQ) failed:"
        " Invalid argument",
        ("log-ucx-verbs", "(ibv_create_ah)", "9fd0c21b0f7c", None),
    ),
    (
        "[1730117228.178968] [node-e:3000 :0]  tl_cuda_cache.c:231  UCC  ERROR ipc-cache: failed to open the handle.",
        ("log-ucx", "UCC reports an error", "node-e", None),
    ),
    (
        "Accelerator Fatal Error: call to cuCtxCreate returned error 214\n"
        "  (CUDA_ERROR_ECC_UNCORRECTABLE): uncorrectable ECC error encountered",
        ("log-gpu-ecc", "GPU memory error (ECC)", None, None),
    ),
    (
        "Abort(205072015) on node 16 (rank 16 in comm 0): Fatal error in PMPI_Alltoall: Other MPI error, error stack:",
        ("log-mpi-fatal", "MPI ended the program (PMPI_Alltoall)", None, 16),
    ),
    (
        "Abort(940719887) on node 3 (rank 3 in comm 0): Fatal error in internal_Init: Other MPI error, error stack:",
        ("log-mpi-init", "MPI could not start", None, 3),
    ),
]


@pytest.mark.parametrize(("text", "expected"), FOUND)
def test_a_report_names_its_cause_host_and_rank(text: str, expected: tuple[str, str, str | None, int | None]) -> None:
    code, words, host, rank = expected
    first = classify(text.splitlines())[0]
    assert (first.code, first.host, first.rank) == (code, host, rank), first
    assert words in first.cause and first.next_step


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: nvAssertFailedNoLog: Assertion failed: (status == NV_OK) || (status == NV_ERR_GPU_IS_LOST) @ mem.c:84",
        "NVRM: _issueRpcAndWait: rpcSendMessage failed with status 0x00000056 for fn 76!",
        "the header names [NV_ERR_GPU_IS_LOST] as GPU lost from the bus",
        "amdgpu 0000:c5:00.0: amdgpu: the release notes say that MES failed to respond in older firmware",
        "people whose Call to connect failed : Connection timed out should open the port",
        "node-3 had Kill task failed yesterday",
        "what happens DUE TO JOB NOT ENDING WITH SIGNALS is in the manual of slurm.conf",
        "a hostfile whose host=node-2 was not reachable via ssh is of no use",
        "[1745499308.8] [a:760  :0]  ib_mlx5.h:965  UCX  WARN  mlx5dv_devx_obj_destroy(SRQ) failed: Invalid argument",
        "a:1:2 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use",
        "we call to cuCtxCreate, which returned error 214 once",
        "INFO WARN-level messages of include/socket.h:194 WARN Call to recv failed : Connection reset by peer",
    ],
)
def test_words_out_of_place_name_no_cause(line: str) -> None:
    assert all(not finding.fatal or finding.unknown for finding in classify([line])), classify([line])


XID = "[Wed Jul 31 23:14:18 2024] NVRM: Xid (PCI:0000:00:0{}): {}, pid=1045242, name=python3, Ch 00000008"


@pytest.mark.parametrize(
    ("events", "first"),
    [
        ([(5, 43), (7, 31), (8, 94)], "Xid 94"),  # other GPUs than the broken one: programs that failed by themselves
        ([(5, 43), (5, 94)], "Xid 43"),  # one GPU: the first in time
        ([(8, 79), (5, 31)], "Xid 79"),
        ([(5, 31), (8, 63)], "Xid 31"),  # a run survives a remapped row
    ],
)
def test_a_broken_gpu_comes_before_programs_that_failed_on_others(events: list[tuple[int, int]], first: str) -> None:
    found = classify([XID.format(*event) for event in events])
    assert found[0].cause.startswith(first) and len(found) == len(events)


def test_a_broken_gpu_comes_before_a_time_out_that_follows_a_program_on_another() -> None:
    watchdog = "[E ProcessGroupNCCL.cpp:481] [Rank 65] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"
    found = classify([XID.format(5, 31), watchdog, XID.format(8, 79)])
    assert [finding.code for finding in found] == ["log-xid-79", "log-xid-31", "log-watchdog"]


def test_nccl_goes_on_without_its_port_for_ras() -> None:
    line = "a:1:2 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use"
    (note,) = classify([line])
    assert (note.code, note.severity, note.host) == ("log-nccl-ras", "note", "a")
