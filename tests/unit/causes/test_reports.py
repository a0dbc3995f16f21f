"""Lines of public reports: the kernel's, those of Slurm's tools, of device plugins, of older NCCL
and of launchers.
"""

import pytest

from seatrial.causes import classify

LOST = "[NV_ERR_GPU_IS_LOST] (0x0000000F) returned from rmStatus @ kernel_ce_gv100.c:106"
REPORTS = [
    (
        (
            "Feb 17 08:00:34 dgx-a kernel: NVRM: nvAssertOkFailedNoLog: Assertion failed: "
            f"GPU lost from the bus {LOST}"
        ),
        ("log-gpu-off-bus", "GPU fell off the bus", "dgx-a", None),
    ),
    (
        f"[   35.564060] NVRM: nvCheckOkFailedNoLog: Check failed: GPU lost from the bus {LOST}",
        ("log-gpu-off-bus", "GPU fell off the bus", None, None),
    ),
    (
        "[Mon Jan  1 12:00:01 2026] NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required"
        " [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2874",
        ("log-gpu-reset", "a GPU requires a reset", None, None),
    ),
    (
        "Aug 10 22:40:59 node-b kernel: NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with "
        "status 0x0000000f for"
        " fn 10 sequence 790!",
        ("log-gpu-off-bus", "(GPU0)", "node-b", None),
    ),
    (
        "I1025 02:19:08.1       1 health.go:186] XidCriticalError: Xid=94 on "
        "Device=GPU-e152b1ac-2b24-1ee3; marking"
        " device as unhealthy.",
        ("log-xid-94", "on GPU e152b1ac-2b24-1ee3", None, None),
    ),
    (
        (
            "2020/08/10 19:09:42 XidCriticalError: Xid=69 on Device=GPU-7540a9b3, the device "
            "will go unhealthy."
        ),
        ("log-xid", "Xid 69", None, None),
    ),
    (
        "[  950.818166] amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE",
        ("log-amdgpu-hang", "(0000:c5:00.0)", None, None),
    ),
    (
        "May 26 18:09:55 node-c kernel: [drm:mes_v11_0_submit_pkt_and_poll_completion.constprop.0 "
        "[amdgpu]] *ERROR* MES"
        " failed to response msg=3",
        ("log-amdgpu-hang", "AMD GPU: it hangs", "node-c", None),
    ),
    (  # dmesg -H
        "[May19 19:57] CMCI storm detected: switching to poll mode\n"
        "[  +0.000006] EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 "
        "(channel:2 slot:0)",
        ("log-host-memory", "(CPU_SrcID#1_MC#1_Chan#2_DIMM#0)", None, None),
    ),
    (
        (
            "gpu-9:285594:285607 [0] include/socket.h:361 NCCL WARN Call to connect failed : "
            "Connection timed out"
        ),
        ("log-bootstrap", "bootstrap could not connect", "gpu-9", None),
    ),
    (  # NCCL until 2.2
        "gpu-15:2123:2230 [3] include/socket.h:194 WARN Call to recv failed : Connection reset by "
        "peer\n"
        "gpu-15:2123:2230 [3] INFO transport/net_ib.cu:555 -> 2",
        ("log-peer-closed", "a peer closed the connection", "gpu-15", None),
    ),
    (
        "dgx-4:460770:460842 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with "
        "error Network is"
        " unreachable",
        ("log-roce-unreachable", "peer not reachable over RoCE", "dgx-4", None),
    ),
    (
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:957, "
        "invalid usage, NCCL"
        " version 2.21.5",
        ("log-nccl-usage", "invalid usage", None, None),
    ),
    (
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: Failed, NCCL error "
        "../ncclCommunicator.cpp:90 'invalid"
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
        (
            "   Reason=gres/gpu count reported lower than configured (0 < 1) "
            "[slurm@2024-12-19T11:03:34]"
        ),
        ("log-slurm-node-short", "(0 < 1)", None, None),
    ),
    (
        "[2020-12-14T09:44:56.002] [63532.0] error: *** STEP 63532.0 STEPD TERMINATED ON cn106 AT "
        "2020-12-14T09:44:56"
        " DUE TO JOB NOT ENDING WITH SIGNALS ***",
        ("log-slurm-drained", "cannot be killed", "cn106", None),
    ),
    (
        (
            "RuntimeError: Using hostfile at /job/hostfile but host=192.168.3.100 was not "
            "reachable via ssh."
        ),
        ("log-launch-failed", "launch failed", "192.168.3.100", None),
    ),
    (
        "  Warning  UnexpectedAdmissionError  10s  kubelet  Allocate failed due to rpc error: "
        "code = Unavailable desc ="
        " error reading from server: EOF, which is unexpected",
        ("log-device-unhealthy", "no healthy device", None, None),
    ),
    (
        "[1650000000.112] [node-d:1234:0]  ib_md.c:325  UCX  ERROR "
        "ibv_reg_mr(address=0x7f2c0e000000, length=1048576,"
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
        "[1745499308.854013] [9fd0c21b0f7c:760  :0]  ib_device.c:1332 UCX  ERROR   "
        "ibv_create_ah(dlid=49152"
        " dgid=fe80::5aa2 sgid_index=0) for UD mlx5 connect on mlx5_0 failed: No such device\n"
        "[1745499308.859784] [9fd0c21b0f7c:760  :0]  ib_mlx5.h:965  UCX  WARN  "
        "mlx5dv_devx_obj_destroy(SRQ) failed:"
        " Invalid argument",
        ("log-ucx-verbs", "(ibv_create_ah)", "9fd0c21b0f7c", None),
    ),
    (
        (
            "[1730117228.178968] [node-e:3000 :0]  tl_cuda_cache.c:231  UCC  ERROR ipc-cache: "
            "failed to open the handle."
        ),
        ("log-ucx", "UCC reports an error", "node-e", None),
    ),
    (
        "Accelerator Fatal Error: call to cuCtxCreate returned error 214\n"
        "  (CUDA_ERROR_ECC_UNCORRECTABLE): uncorrectable ECC error encountered",
        ("log-gpu-ecc", "GPU memory error (ECC)", None, None),
    ),
    (
        (
            "Abort(205072015) on node 16 (rank 16 in comm 0): Fatal error in PMPI_Alltoall: "
            "Other MPI error, error stack:"
        ),
        ("log-mpi-fatal", "MPI ended the program (PMPI_Alltoall)", None, 16),
    ),
    (
        (
            "Abort(940719887) on node 3 (rank 3 in comm 0): Fatal error in internal_Init: "
            "Other MPI error, error stack:"
        ),
        ("log-mpi-init", "MPI could not start", None, 3),
    ),
    (
        "n-0:139577:139678 [0] transport/net_ib.cc:154 NCCL WARN NET/IB : mlx5_1:1 async fatal "
        "event on QP"
        " (0x7309dc3bb338): invalid request local work queue error",
        ("log-qp-access", "(invalid request)", "n-0", None),
    ),
    (
        "n-1:94639:94647 [0] transport/net_ib.cc:100 NCCL WARN NET/IB : mlx5_0:1 Got async event "
        ": local access"
        " violation work queue error",
        ("log-qp-access", "(local access violation)", "n-1", None),
    ),
    (
        (
            "slurmstepd-n-2: error: Step 1141810.0 exceeded memory limit (52917772 > "
            "20971520), being killed"
        ),
        ("log-oom", "out of memory", "n-2", None),
    ),
    (
        "slurmstepd: error: Job 42664148 exceeded memory limit (10889240 > 4194304), being killed",
        ("log-oom", "out of memory", None, None),
    ),
    (
        "XGBoostError: [01:44:51] /w/updater_gpu_hist.cu:980: Exception in gpu_hist: NCCL failure "
        ":unhandled system"
        " error /w/device_helpers.cuh(952)",
        ("log-nccl-system-error", "system error", None, None),
    ),
    (
        (
            "- [nccl_stub.cc:49|21:50:37]: NCCL failure: unhandled cuda error (run with "
            "NCCL_DEBUG=INFO for details)."
        ),
        ("log-nccl-cuda-error", "CUDA error", None, None),
    ),
    (
        (
            "device_helpers.cuh:135: NCCL failure :remote process exited or there was a "
            "network error /c.cuh(54)"
        ),
        ("log-nccl-remote", "remote process exited", None, None),
    ),
    (
        (
            "ExternalError:  Nccl error, unhandled cuda error  at "
            "(/paddle/paddle/fluid/platform/nccl_context.cc:60)"
        ),
        ("log-nccl-cuda-error", "CUDA error", None, None),
    ),
    (
        "The actor is dead because its node has died. Node Id: 677df2a9020c5db45e755b0078c469e2ce51",
        ("log-ray-worker", "(its node has died)", None, None),
    ),
    (
        "ERROR 2021-07-21 18:25:47,709 launch_utils.py:584] ABORT!!! Out of all 4 trainers, the "
        "trainer process with"
        " rank=[3] was aborted. Please check its log.",
        ("log-paddle-trainer", "Paddle: trainers were aborted", None, 3),
    ),
    (
        (
            "Container rank 2 status failed cmd ['/opt/bin/python', '-u', 'train.py'] code 1 "
            "log log/workerlog.2 "
        ),
        ("log-paddle-trainer", "Paddle", None, 2),
    ),
    (
        "[1,0]<stderr>:[2019-04-13 13:55:31.858119: W horovod/common/operations.cc:588] "
        "HorovodBroadcast_dense_0"
        " [missing ranks: 1]",
        ("log-rank-behind", "did not come", None, 1),
    ),
    (
        (
            "[rank6]:[E624 04:14:29.2 ProcessGroupNCCL.cpp:684] [Rank 6] Some NCCL operations "
            "have failed or timed out."
        ),
        ("log-torch-group", "process group failed", None, 6),
    ),
    (
        (
            "ERROR: Unexpected bus error encountered in worker. This might be caused by "
            "insufficient shared memory (shm)."
        ),
        ("log-bus-error", "/dev/shm too small", None, None),
    ),
    (
        "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error.",
        ("log-bus-error", "/dev/shm too small", None, None),
    ),
    (
        "RuntimeError: DataLoader worker (pid 1817) is killed by signal: Killed. ",
        ("log-dataloader", "(Killed)", None, None),
    ),
    (
        (
            "SystemError: (Fatal) DataLoader process (pid 10222) exited is killed by signal: "
            "Aborted. (at a.cc:1)"
        ),
        ("log-dataloader", "(Aborted)", None, None),
    ),
    (
        "[rank3]: RuntimeError: DataLoader worker (pid(s) 25, 26) exited unexpectedly",
        ("log-dataloader", "(exited unexpectedly)", None, 3),
    ),
    (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: "
        "PjRT_Client_Connect."
        " Timed out task names:",
        ("log-rank-behind", "(PjRT_Client_Connect)", None, None),
    ),
    (
        "2024-10-09 15:47:38.568412: E external/xla/coordination_service.cc:1170] "
        "/job:jax_worker/replica:0/task:37 has"
        " been set to ERROR in coordination service: UNAVAILABLE: Task "
        "/job:jax_worker/replica:0/task:37 heartbeat"
        " timeout. This indicates that the remote task has failed, got preempted, or crashed "
        "unexpectedly.",
        ("log-nvrx-heartbeat", "sends no heartbeat", None, 37),
    ),
    (
        "OSError: [Errno 116] Stale file handle: '/home/a/.cache/datasets'",
        ("log-stale-handle", "('/home/a/.cache/datasets')", None, None),
    ),
    (
        "RuntimeError: read(): fd 33 failed with Stale file handle",
        ("log-stale-handle", "no longer knows", None, None),
    ),
    (
        (
            "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at "
            "/pytorch/aten/a.cpp:265"
        ),
        ("log-gpu-ecc", "ECC", None, None),
    ),
    (
        (
            "THCudaCheck FAIL file=/tmp/aten/LeakyReLU.cu line=56 error=39 : uncorrectable "
            "ECC error encountered"
        ),
        ("log-gpu-ecc", "ECC", None, None),
    ),
]


@pytest.mark.parametrize(("text", "expected"), REPORTS)
def test_a_report_names_its_cause_host_and_rank(
    text: str, expected: tuple[str, str, str | None, int | None]
) -> None:
    code, words, host, rank = expected
    first = classify(text.splitlines())[0]
    assert (first.code, first.host, first.rank) == (code, host, rank), first
    assert words in first.cause and first.next_step


@pytest.mark.parametrize(
    "line",
    [
        (
            "NVRM: nvAssertFailedNoLog: Assertion failed: (status == NV_OK) || (status == "
            "NV_ERR_GPU_IS_LOST) @ mem.c:84"
        ),
        "NVRM: _issueRpcAndWait: rpcSendMessage failed with status 0x00000056 for fn 76!",
        "the header names [NV_ERR_GPU_IS_LOST] as GPU lost from the bus",
        "return [NV_ERR_RESET_REQUIRED] where the RPC is to be skipped",
        (
            "amdgpu 0000:c5:00.0: amdgpu: the release notes say that MES failed to respond in "
            "older firmware"
        ),
        "people whose Call to connect failed : Connection timed out should open the port",
        "node-3 had Kill task failed yesterday",
        "what happens DUE TO JOB NOT ENDING WITH SIGNALS is in the manual of slurm.conf",
        "a hostfile whose host=node-2 was not reachable via ssh is of no use",
        (
            "[1745499308.8] [a:760  :0]  ib_mlx5.h:965  UCX  WARN  "
            "mlx5dv_devx_obj_destroy(SRQ) failed: Invalid argument"
        ),
        "a:1:2 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use",
        "we call to cuCtxCreate, which returned error 214 once",
        (
            "the kernel log of mlx5_0 says local access violation work queue error after "
            "async fatal event on QP"
        ),
        (
            "a:1:2 [0] NCCL INFO NET/IB : Got async event : local access violation work queue "
            "error is what we looked for"
        ),
        "raise RuntimeError('DataLoader worker (pid(s) {}) exited unexpectedly'.format(pids_str))",
        "a DataLoader worker that is killed by signal: Killed had too little memory",
        "the barrier timed out, and DEADLINE_EXCEEDED was in its log",
        "Task /job:worker/replica:0/task:3 heartbeat timeout is 100 s",
        "a stale file handle is what NFS gives then",
        "the cuda runtime error that we had (39) was an uncorrectable ECC error",
        "a bus error encountered in worker 3 is not what we saw",
        "jobs whose step exceeded memory limit (20 GB), being killed, are listed by sacct",
        "slurmstepd: debug: Step 7.0 exceeded memory limit (52917772 > 20971520), being killed",
        "our fix of the NCCL failure that said unhandled system error",
        "no actor is dead because of that; its node has died before",
        "the message ABORT!!! Out of all trainers is of Paddle's launcher",
        "no container of rank 0 has the status failed cmd",
        "the rank 2 has the missing ranks [1, 2]",
        "a run survives it: HorovodBroadcast_dense_0 [missing ranks: 1]",
        "ProcessGroupGloo: operations that failed or timed out are said by ProcessGroupNCCL",
        (
            "INFO WARN-level messages of include/socket.h:194 WARN Call to recv failed : "
            "Connection reset by peer"
        ),
    ],
)
def test_lines_that_only_mention_an_error_name_no_fatal_cause(line: str) -> None:
    assert all(not finding.fatal or finding.unknown for finding in classify([line])), classify(
        [line]
    )


XID = (
    "[Wed Jul 31 23:14:18 2024] NVRM: Xid (PCI:0000:00:0{}): {}, pid=1045242, name=python3, "
    "Ch 00000008"
)


@pytest.mark.parametrize(
    ("events", "first"),
    [
        # Other GPUs than the broken one: programs that failed by themselves
        ([(5, 43), (7, 31), (8, 94)], "Xid 94"),
        ([(5, 43), (5, 94)], "Xid 43"),  # one GPU: the first in time
        ([(8, 79), (5, 31)], "Xid 79"),
        ([(5, 31), (8, 63)], "Xid 31"),  # a run survives a remapped row
    ],
)
def test_a_broken_gpu_comes_before_programs_that_failed_on_others(
    events: list[tuple[int, int]], first: str
) -> None:
    findings = classify([XID.format(*event) for event in events])
    assert findings[0].cause.startswith(first) and len(findings) == len(events)


def test_a_broken_gpu_comes_before_a_time_out_that_follows_a_program_on_another() -> None:
    watchdog = (
        "[E ProcessGroupNCCL.cpp:481] [Rank 65] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1)"
    )
    findings = classify([XID.format(5, 31), watchdog, XID.format(8, 79)])
    assert [finding.code for finding in findings] == ["log-xid-79", "log-xid-31", "log-watchdog"]


def test_failed_bind_of_the_nccl_ras_port_is_only_a_note() -> None:
    line = (
        "a:1:2 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use"
    )
    (note,) = classify([line])
    assert (note.code, note.severity, note.host) == ("log-nccl-ras", "note", "a")
