"""Lines of programs around NCCL: the cause that each names, its host and its rank; the specific one
first.
"""

import pytest

from seatrial.causes import classify

KINDS = [
    (
        "HW Exception by GPU node-1 (Agent handle: 0x5ab48bb4d2b0) reason :GPU Hang",
        ("log-amdgpu-hang", "AMD GPU: it hangs (node-1)", None, None),
    ),
    (
        "[1737742661.09] [cn0244:260472:0]      ib_mlx5_dv.c:430  UCX  ERROR   "
        "mlx5dv_devx_obj_create(QP) failed on"
        " mlx5_0, syndrome 0x2c4154: Remote I/O error\n"
        "[cn0244:260472] pml_ucx.c:472  Error: Failed to resolve UCX endpoint for rank 19",
        ("log-ucx-verbs", "UCX cannot set up a connection on the NIC (mlx5_0)", "cn0244", None),
    ),
    (
        "[1540086123.48] [orion-7:14692:0]  rc_iface.c:1081 UCX  ERROR error modifying QP to RTR: "
        "Resource temporarily"
        " unavailable",
        ("log-ucx-verbs", "(RTR: Resource temporarily unavailable)", "orion-7", None),
    ),
    (
        "[1540086123.48] [orion-7:14692:0]  ucp_ep.c:10 UCX  ERROR a new error of a new release",
        ("log-ucx", "UCX reports an error", "orion-7", None),
    ),
    (
        "[2026-09-22T14:11:30.278] error: Munge decode failed: Expired credential",
        ("log-munge-clock", "the clocks of two nodes differ", None, None),
    ),
    (
        (
            'Munge encode failed: Unable to access "/var/run/munge/munge.socket.2": No such '
            "file or directory"
        ),
        ("log-munge-down", "munge does not run", None, None),
    ),
    (
        "Aug 02 18:07:59 node-9 slurmd[1591]: slurmd: error: fetch_config: DNS SRV lookup failed\n"
        "Aug 02 18:07:59 node-9 slurmd[1591]: slurmd: error: slurmd initialization failed",
        ("log-slurm-config", "slurmd gets no configuration", "node-9", None),
    ),
    (
        "MPICH ERROR [Rank 3] [job id 12.0] [Tue Feb 14 16:11:55 2026] [nid007564] - "
        "Abort(1616271) (rank 3 in comm 0):"
        " Fatal error in PMPI_Init: Other MPI error, error stack:\n"
        "create_endpoint(1382).......: OFI EP enable failed "
        "(ofi_init.c:1382:create_endpoint:Address already in use)",
        ("log-ofi-endpoint", "(Address already in use)", "nid007564", 3),
    ),
    (
        "Abort(1091215) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, "
        "error stack:\n"
        "MPIDI_OFI_mpi_init_hook(1061): OFI addrinfo() failed "
        "(ofi_init.c:1061:MPIDI_OFI_mpi_init_hook:No data"
        " available)",
        (
            "log-ofi-provider",
            "MPI finds no network provider (libfabric) (No data available)",
            None,
            None,
        ),
    ),
    (
        "node-4:rank7: PSM3 can't open nic unit: 0 (err=23)\n"
        "create_vni_context(982): OFI endpoint open failed "
        "(ofi_init.c:982:create_vni_context:Cannot allocate memory)",
        ("log-psm", "cannot open a NIC (PSM3)", "node-4", 7),
    ),
    (
        "[WARNING] [RankMonitorServer:34] Did not get subsequent heartbeat. Waited 171.92 seconds.",
        ("log-nvrx-heartbeat", "sends no heartbeat (subsequent)", None, 34),
    ),
    (
        "ibpanic: [1323906] main: stat of IB device 'mlx5_8' failed: No such file or directory",
        ("log-ib-device", "(mlx5_8)", None, None),
    ),
    (
        "ibportstate: iberror: failed: smp query portinfo failed",
        ("log-ib-query", "(failed: smp query portinfo failed)", None, None),
    ),
    (
        (
            "ERROR: 15 GPU[3]: power: Data (usually from reading a file) was not of the type "
            "that was expected"
        ),
        ("log-rocm-smi", "rocm-smi cannot read a GPU (GPU[3])", None, None),
    ),
    (
        "node-2 kernel: [ 1.2] {1}[Hardware Error]: event severity: recoverable\n"
        "node-2 kernel: [ 1.2] {1}[Hardware Error]: DIMM location: CPU 1 DIMM 5\n"
        "node-2 kernel: [ 1.2] Memory failure: 0xe16677: already hardware poisoned",
        (
            "log-host-memory",
            "the firmware names a part of the host's memory (CPU 1 DIMM 5)",
            "node-2",
            None,
        ),
    ),
    (
        "[Wed Jun  8 16:34:49 2022] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 "
        "timeout, signaled\n"
        "[Wed Jun  8 16:34:49 2022] amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
        ("log-amdgpu-hang", "AMD GPU: it hangs (0000:03:00.0)", None, None),
    ),
    (
        "node-5 kernel: mce: [Hardware Error]: Machine check events logged\n"
        "node-5 kernel: EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 "
        "(channel:0 slot:0)",
        ("log-host-memory-corrected", "CPU_SrcID#1_Ha#0_Chan#0_DIMM#0", "node-5", None),
    ),
    (
        "libfabric:507357:1741146011::cxi:fabric:cxip_nic_get_rgroup_vni():253<warn> : Failed to "
        "find valid default"
        " rgroup and vni for cxi0",
        ("log-cxi-vni", "(cxi0)", None, None),
    ),
    (
        "Failed to modify QP to RTR: Connection timed out",
        ("log-rdma-connect", "(RTR: Connection timed out)", None, None),
    ),
    (
        "E0213 12:07:20.086 870572 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        "(exitcode: -9)"
        " local_rank: 3 (pid: 876053) of binary: /usr/bin/python3.11",
        ("log-worker-killed", "a worker was killed (SIGKILL) (local_rank: 3)", None, None),
    ),
    (
        "E0213 12:07:20.086 870572 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        "(exitcode: 1)"
        " local_rank: 0 (pid: 876053) of binary: /usr/bin/python3.11",
        ("log-worker-failed", "torchrun: a worker failed", None, None),
    ),
    (
        "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
        ("log-oom", "out of memory", None, None),
    ),
    (
        "  Warning  FailedScheduling  2m  default-scheduler  0/12 nodes are available: 12 "
        "Insufficient nvidia.com/gpu."
        " preemption: 0/12 nodes are available",
        (
            "log-unschedulable",
            "(0/12 nodes are available: 12 Insufficient nvidia.com/gpu)",
            None,
            None,
        ),
    ),
    (
        (
            "ERROR:  nhc:  Health check failed:  check_hw_edac:  ECC errors detected - 31 "
            "corrected memory errors"
        ),
        ("log-nhc", "(check_hw_edac:  ECC errors", None, None),
    ),
    (
        (
            "Jan 05 14:44:41 tray-7 systemd[1]: nvidia-imex.service: Main process exited, "
            "code=exited, status=1/FAILURE"
        ),
        ("log-service", "(nvidia-imex.service)", "tray-7", None),
    ),
    (
        "="
        * 79
        + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 99975 RUNNING AT node5\n"
        "=   EXIT CODE: 9\n" + "=" * 79,
        ("log-rank-killed", "process killed by a signal (9)", "node5", None),
    ),
    (
        (
            "[ 9213.1] EDAC MC0: 1 UE on mc#0csrow#1channel#3 (csrow:1 channel:3 "
            "page:0x3f1c02 offset:0x340 grain:64)"
        ),
        ("log-host-memory", "(mc#0csrow#1channel#3)", None, None),
    ),
    (
        "[ 7012.4] amdgpu 0000:43:00.0: amdgpu: socket: 0, die: 0 2 correctable hardware errors "
        "detected in total in"
        " umc block, no user action is needed.",
        ("log-amdgpu-ras-corrected", "(0000:43:00.0)", None, None),
    ),
    (
        "[   12.4] amdgpu 0000:43:00.0: amdgpu: RAS records:261 exceed threshold:256, GPU will "
        "not be initialized.\n"
        "[   12.5] amdgpu 0000:43:00.0: amdgpu: Fatal error during GPU init",
        ("log-amdgpu-bad-pages", "(0000:43:00.0)", None, None),
    ),
    (
        "[2026-02-01T10:11:12.345] error: prolog failed: rc:256\n"
        "[2026-02-01T10:11:12.400] error: slurmd error running JobId=1234 on node(s)=node-7: "
        "Prolog error",
        ("log-slurm-drained", "Slurm drains the node", "node-7", None),
    ),
    (
        (
            '[proxy:0:1@n1] HYDU_sock_connect (../sock.c:145): unable to connect from "n1" to '
            '"n2" (Connection refused)'
        ),
        ("log-mpi-connect", "(n2)", "n1", None),
    ),
    (
        (
            "[WARNING] [RankMonitorServer:7] Section 'step' has been open for 61.02 seconds. "
            "Timeout is 60.00 seconds."
        ),
        ("log-nvrx-section", "Section 'step' has been open for 61.02 seconds", None, 7),
    ),
    (
        "slurmstepd: error: pyxis: [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return "
        "code 1\n"
        "slurmstepd: error: pyxis: nvidia-container-cli: initialization error: nvml error: driver "
        "not loaded",
        ("log-driver-missing", "the driver does not run", None, None),
    ),
    (
        "[  131.1] mlx5_core 0000:17:00.0: mlx5_function_enable:1152:(pid 812): Firmware over "
        "120000 MS in"
        " pre-initializing state, aborting",
        ("log-hca-health", "(0000:17:00.0)", None, None),
    ),
    (
        "slurm_load_partitions: Unable to contact slurm controller (connect failure)",
        ("log-slurmctld-silent", "slurmctld does not answer (connect failure)", None, None),
    ),
    (
        "Sep 08 19:37:10 cn5 munged[24304]: munged: Error: Keyfile is insecure: "
        '"/etc/munge/munge.key" should be\n'
        "Sep 08 19:37:10 cn5 systemd[1]: munge.service: Control process exited, code=exited, "
        "status=1/FAILURE",
        ("log-munge-down", "munge does not run (Keyfile is insecure", "cn5", None),
    ),
    (
        (
            "[   42.1] amdgpu 0000:43:00.0: amdgpu: XGMI: Set topology failure on device "
            "e35d0a0f, hive 1a2b, ret -22"
        ),
        ("log-xgmi", "(0000:43:00.0)", None, None),
    ),
    (
        (
            "[ 812.1] amdgpu 0000:43:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 "
            "ring:24 vmid:8 pasid:32770)"
        ),
        ("log-gpu-access", "(0000:43:00.0)", None, None),
    ),
    (
        "[ 812.1] pcieport 0000:3a:00.0: AER: Correctable error message received from 0000:3b:00.0",
        ("log-pcie-corrected", "(0000:3a:00.0)", None, None),
    ),
    (
        "terminate called without an active exception",
        ("log-terminated", "the program ended with an exception", None, None),
    ),
    (
        "Couldn't allocate MR with error=93\nFailed to create MR",
        ("log-rdma-memory", "(error=93)", None, None),
    ),
    (
        "Unable to create QP.\n Couldn't create IB resources",
        ("log-rdma-queues", "set up its queues", None, None),
    ),
    (
        "slurmstepd: error: common_file_write_uints: write value '9' to "
        "'/sys/fs/cgroup/cpuset/slurm/cgroup.procs'"
        " failed: No space left on device\n"
        "slurmstepd: error: unable to add pids to '/sys/fs/cgroup/cpuset/slurm/step_batch'",
        ("log-slurm-cgroup", "(/sys/fs/cgroup/cpuset/slurm/step_batch)", None, None),
    ),
    (
        "srun: error: c002: task 0: Killed",
        ("log-slurm-killed", "a task was killed (SIGKILL)", "c002", None),
    ),
    (
        "[ 900.1] mlx5_core 0000:5e:00.0 ens1f0: TX timeout detected\n"
        "[ 906.0] watchdog: BUG: soft lockup - CPU#14 stuck for 26s! [ksoftirqd/14:97]",
        ("log-nic-stuck", "(0000:5e:00.0)", None, None),
    ),
    (
        (
            "Jun 12 04:00:00 node-3 kernel: NETDEV WATCHDOG: ens1f0 (mlx5_core): transmit "
            "queue 3 timed out"
        ),
        ("log-nic-stuck", "(ens1f0 (mlx5_core))", "node-3", None),
    ),
    (
        "[ 5.6] mlx5_core 0000:01:00.0: mlx5_load_one failed with error code -22",
        ("log-hca-health", "(0000:01:00.0)", None, None),
    ),
    (
        "Warning  UnexpectedAdmissionError  12s  kubelet  Allocate failed due to device plugin "
        "GetPreferredAllocation"
        " rpc failed with err: rpc error: code = Unknown desc = error creating nvml.Device 5: "
        "nvml: GPU is lost, which"
        " is unexpected",
        ("log-gpu-lost", "(nvml.Device 5)", None, None),
    ),
    (
        "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
        "unhealthy devices"
        " nvidia.com/gpu, which is unexpected",
        ("log-device-unhealthy", "(nvidia.com/gpu)", None, None),
    ),
    (  # by its class alone it was hidden behind the note before it
        "a:1:2 [0] misc/socket.cc:237 NCCL WARN Net : No interface found in the same subnet as "
        "remote address"
        " 10.1.2.3<9>\n"
        "a:1:2 [0] bootstrap.cc:39 NCCL WARN NET/Socket : No usable listening interface found",
        ("log-interface-missing", "no network interface found (10.1.2.3<9>)", "a", None),
    ),
    (
        "a:1:2 [0] proxy.cc:1190 NCCL WARN Socket recv failed while polling for opId=0x7d\n"
        "a:1:3 [1] p2p.cc:262 NCCL WARN HIP failure: 'invalid device pointer'",
        ("log-hip", "HIP failure (invalid device pointer)", "a", None),
    ),
    (
        "a:1:2 [6] proxy.cc:1097 NCCL WARN [Proxy Service 14] Failed to execute operation Connect "
        "from rank 4,"
        " retcode 2\n"
        "a:1:3 [6] proxy.cc:862 NCCL WARN Proxy Call to rank 14 failed (Connect)",
        ("log-nccl-proxy", "the thread of NCCL that serves connections gave up", "a", None),
    ),
    (
        "[node-6][[11356,1],45][btl_tcp.c:559:mca_btl_tcp_recv_blocking] recv(36) failed: "
        "Connection reset by peer"
        " (104)",
        ("log-mpi-tcp", "(recv(36) failed: Connection reset by peer)", "node-6", None),
    ),
    (
        "(RayWorkerWrapper pid=67451, ip=10.1.0.7) ERROR 06-25 15:28:30 worker_base.py:148] "
        "RuntimeError: NCCL Error 2:"
        " unhandled system error (run with NCCL_DEBUG=INFO for details)",
        ("log-nccl-system-error", "unhandled system error", "10.1.0.7", None),
    ),
    (
        "(VllmWorkerProcess pid=5) ERROR 11-25 08:17:34 x.py:229] RuntimeError: NCCL error: "
        "invalid usage (run with"
        " NCCL_DEBUG=WARN for details)",
        ("log-nccl-usage", "invalid usage", None, None),
    ),
    (
        "[rank3]: torch.distributed.DistBackendError: [3] is setting up NCCL communicator and "
        "retrieving ncclUniqueId"
        " from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket "
        "Timeout",
        ("log-unique-id", "(Socket Timeout)", None, 0),
    ),
    (
        (
            "slurmstepd: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, "
            "see https://github.com/NVIDIA/x"
        ),
        (
            "log-no-runtime",
            "the node has no NVIDIA container runtime (nvidia-container-cli)",
            None,
            None,
        ),
    ),
    (
        (
            "E1228 10:11:12.131415 4242 nvlink_transport.cpp:614] NvlinkTransport: "
            "cuMemCreate failed: 800"
        ),
        ("log-imex", "no IMEX channel", None, None),
    ),
    (
        "node-2 kernel: [ 2484.3] {359}[Hardware Error]: Hardware error from APEI Generic "
        "Hardware Error Source: 512\n"
        "node-2 kernel: [ 2484.3] {359}[Hardware Error]: event severity: corrected",
        ("log-machine-check-corrected", "machine check events were logged", "node-2", None),
    ),
    (
        "[rank7]:[E909 08:45:30.167701534 ProcessGroupNCCL.cpp:2252] [PG ID 2 PG GUID 3 Rank 7]  "
        "failure detected by"
        " watchdog at work sequence id: 40231 PG status: last enqueued work: 40267, last "
        "completed work: 40230",
        (
            "log-watchdog-failed",
            "a collective failed or timed out (work sequence id: 40231)",
            None,
            7,
        ),
    ),
    (
        "(raylet) A worker died or was killed while executing a task by an unexpected system "
        "error. Worker IP address:"
        " 10.0.1.75 Worker port: 10230 Worker PID: 207258",
        ("log-ray-worker", "Ray: a worker died", "10.0.1.75", None),
    ),
    (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        ("log-oom", "out of memory", None, None),
    ),
    (
        "/opt/nvshmem/src/modules/transport/ibgda/ibgda.cpp:1889: NULL value cannot allocate "
        "mlx5dv_devx_uar\n"
        "/opt/nvshmem/src/host/init/init.cu:1047: non-zero status: 7 nvshmem setup connections "
        "failed",
        ("log-nvshmem-transport", "NVSHMEM cannot set up its transport (ibgda)", None, None),
    ),
    (
        (
            "/repo/src/host/transport/transport.cpp:nvshmemi_transport_init:275: init failed "
            "for transport: IBGDA"
        ),
        ("log-nvshmem-transport", "(IBGDA)", None, None),
    ),
    (
        "/opt/nvshmem/src/host/init/init.cu:1047: non-zero status: 7 nvshmem setup heap failed",
        ("log-nvshmem", "(7 nvshmem setup heap failed)", None, None),
    ),
    (
        (
            "compute001      1     main*       down*   12   12:1:1  64267        0      1   "
            "(null) Not responding"
        ),
        ("log-slurm-node-down", "Slurm takes a node as down", "compute001", None),
    ),
    (
        "Not responding       slurm     2024-01-25T15:12:23 node-[4-5]",
        ("log-slurm-node-down", "Slurm takes a node as down", "node-[4-5]", None),
    ),
    (
        "Feb 22 17:46:38 node-8 slurmd[13562]: spank-epilog: error: pyxis: mkdir: cannot create "
        "directory"
        " '/nvme/enroot/data': Permission denied",
        ("log-enroot-directory", "(/nvme/enroot/data)", "node-8", None),
    ),
    (
        "2024:08:21-10:24:26:( 4456) |CCL_ERROR| atl_ofi_helper.cpp:867 atl_ofi_get_prov_list: "
        "fi_getinfo error: ret"
        " -61, providers 0",
        ("log-oneccl-provider", "oneCCL finds no network provider (libfabric) (-61)", None, None),
    ),
    (
        "2024:05:29-19:16:18:(202165) |CCL_ERROR| worker.cpp:338 ccl_worker_func: oneCCL: "
        "EXCEPTION: ze error at"
        " zeCommandQueueExecuteCommandLists, code: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        ("log-gpu-memory", "GPU out of memory (ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", None, None),
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has a "
        "total capacity of 79.10"
        " GiB of which 15.19 MiB is free. Process 16746 has 20.84 GiB memory in use. Process "
        "16747 has 20.33 GiB memory"
        " in use.",
        ("log-gpu-memory", "Process 16747 has 20.33 GiB memory in use.)", None, None),
    ),
    (
        "ai:480850:480850 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
        ("log-no-verbs", "NCCL has no libibverbs, so it uses sockets", "ai", None),
    ),
    (
        (
            "slurmd: error: Node configuration differs from hardware: Procs=2:4(hw) "
            "Boards=1:1(hw) SocketsPerBoard=2:1(hw)"
        ),
        (
            "log-slurm-hardware",
            "(Procs=2:4(hw) Boards=1:1(hw) SocketsPerBoard=2:1(hw))",
            None,
            None,
        ),
    ),
    (  # a paste that lost the hosts
        "transport/nvls.cc:165 NCCL WARN Cuda failure 'invalid argument'",
        ("log-nvls", "NVLink SHARP (NVLS) does not work", None, None),
    ),
    (
        "[2026-08-24 01:02:12] node [0] .../src/transport/p2p.cc:256 NCCL WARN hipIpcGetMemHandle "
        "failed : invalid"
        " argument",
        ("log-peer-memory", "(hipIpcGetMemHandle)", None, None),
    ),
]


@pytest.mark.parametrize(("text", "expected"), KINDS)
def test_the_first_finding_names_cause_host_and_rank(
    text: str, expected: tuple[str, str, str | None, int | None]
) -> None:
    code, words, host, rank = expected
    first = classify(text.splitlines())[0]
    assert (first.code, first.host, first.rank) == (code, host, rank), first
    assert words in first.cause and first.next_step


@pytest.mark.parametrize(
    "line",
    [
        "if you see NCCL WARN Cuda failure 'invalid argument', restart fabric manager",
        "the docs of transport.cc say: NCCL WARN Cuda failure",
        (
            "slurmstepd: error: unable to write 1 bytes to cgroup memory.force_empty: Device "
            "or resource busy"
        ),
        "[ 900.1] mlx5_core 0000:5e:00.0 ens1f0: TX timeout is 15000 ms",
        "kubelet: no healthy devices present in the demo, which is unexpected",
        "Couldn't allocate MRAM for the display",
        "node-3 went down yesterday, and its switch is Not responding",
        "the step /src/host/init returned a non-zero status: 7",
        "bad: line 12 NCCL WARN Cuda failure 'invalid argument' is what you may see",
        '    raise RuntimeError(f"NCCL error: {error_str}")',
        "the docs say that an NCCL error may be an unhandled cuda error",
        "btl_tcp.c is where Open MPI prints Connection reset by peer",
        "node-2 kernel: [ 2484.3] {359}[Hardware Error]: event severity: corrected",
    ],
)
def test_words_out_of_place_name_no_cause(line: str) -> None:
    assert all(not finding.fatal or finding.unknown for finding in classify([line]))


def test_a_fatal_warning_is_not_hidden_by_a_note_of_its_class() -> None:
    of_class = "a:1:2 [0] net_ib.cc:1 NCCL WARN {}"
    lines = map(
        of_class.format,
        ("NET/IB : mlx5_0:1 unknown event type (9)", "NET/Socket : socket progress error"),
    )
    fatal, note = classify(lines)
    assert (fatal.code, fatal.severity, note.code, note.severity) == (
        "log-nccl-link",
        "fatal",
        "log-nccl-link",
        "note",
    )


def test_an_exception_that_ends_a_program_follows_its_cause() -> None:
    lines = [
        "terminate called after throwing an instance of 'c10::Error'",
        "  what():  CUDA error: out of memory",
    ]
    assert [finding.code for finding in classify(lines)] == ["log-gpu-memory", "log-terminated"]


PORT = (
    "[2026-09-17 {time}] node-2:311:405 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_3:1 "
    "Got async error event:"
    " port {state}"
)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([("15:16:23", "error")], "[2026-09-17 15:16:23] node-2"),
        (
            [("15:16:23", "error"), ("15:16:31", "active"), ("15:23:34", "error")],
            "down 15:16:23, up 8 s later, down 15:23:34",
        ),
        ([("15:16:23", "error"), ("17:16:23", "active")], "down 15:16:23, up 17:16:23"),
    ],
)
def test_a_flapping_port_is_listed_with_its_times(
    events: list[tuple[str, str]], words: str
) -> None:
    first = classify([PORT.format(time=time, state=state) for time, state in events])[0]
    assert (first.code, first.host) == ("log-port-error", "node-2")
    assert first.cause.endswith("(mlx5_3:1)") and first.evidence.startswith(words)


def test_versions_of_nccl_are_shown_as_people_write_them() -> None:
    warning = "Mismatched NCCL version detected : rank 0 version 22703 rank 8 version 2708"
    (first, *_) = classify([f"node-a:1:2 [0] init.cc:1 NCCL WARN {warning}"])
    assert "(rank 0: 2.27.3, rank 8: 2.7.8)" in first.cause


def test_a_corrupted_heap_names_the_version_of_nccl() -> None:
    (first, *_) = classify(["NCCL version 2.21.5+cuda12.8", "free(): corrupted unsorted chunks"])
    assert first.evidence == "NCCL 2.21.5; free(): corrupted unsorted chunks"
