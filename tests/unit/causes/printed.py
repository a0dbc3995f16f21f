"""Lines that programs and their versions print, each with its cause."""

LINES = r"""
ssh | ssh connection refused | node-3
ssh: connect to host node-3 port 222: Connection refused
ssh | ssh connection timed out | node-3
ssh: connect to host node-3 port 222: Connection timed out
ssh | no route to the host | node-3
ssh: connect to host node-3 port 22: No route to host
ssh | host name cannot be resolved | node-3
ssh: Could not resolve hostname node-3: Name or service not known
ssh | ssh host key verification failed | -
Host key verification failed.
ssh | ssh permission denied | node-3
root@node-3: Permission denied (publickey).
ssh | ssh connection broken at key exchange | -
kex_exchange_identification: read: Connection reset by peer
shell | orted not found | -
bash: line 1: orted: command not found
shell | orted not found | -
bash: prted: command not found
slurm | a task exited with an error | node-3
srun: error: node-3: task 5: Exited with exit code 3
slurm | srun could not start the job | -
srun: error: Unable to allocate resources: Invalid account
loader | shared library | -
./all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open
shell | executable missing | -
bash: ./build/all_reduce_perf: No such file or directory
shell | binary of another architecture | -
exec /usr/bin/all_reduce_perf: exec format error
cuda | GPU out of memory | node-3
node-3: Test CUDA failure common.cu:1 'out of memory'
nccl-tests | unhandled CUDA error | node-3
node-3: Test NCCL failure common.cu:1 'unhandled cuda error / '
nccl-tests | invalid usage | node-3
node-3: Test NCCL failure common.cu:1 'invalid usage'
nccl-tests | NCCL internal | node-3
node-3: Test NCCL failure common.cu:1 'internal error - please report this issue'
nccl-tests | test timed out | node-3
node-3: Test timeout (600s) common.cu:523
nccl-tests | fewer GPUs than asked for (8 requested | -
Invalid number of GPUs: 8 requested but only 7 were found.
nccl | no acknowledgement from the peer | 10.0.0.2
gpu-3:4242:4250 [5] NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> status=IBV_WC_RETRY_EXC_ERR(12) vendor_err=1
nccl | no ackn | gpu-3
gpu-3:4242:4250 [5] NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129
nccl | InfiniBand completion error (4) | gpu-3
gpu-3:4242:4250 [5] NCCL WARN NET/IB : Got completion with error 4, opcode 1
nccl | peer not reach | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Call to ibv_modify_qp failed with error Connection timed out
nccl | peer not reach | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out
nccl | memory cannot be | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory
nccl | the HCA had a catastrophic error | gpu-3
gpu-3:4242:4250 [5] NCCL WARN NET/IB : mlx5_2:1 async fatal event on QP: local catastrophic error
nccl | link flapped | gpu-3
gpu-3:4242:4250 [5] NCCL WARN NET/IB : mlx5_2:1 Got non-fatal async event: port error(10)
nccl | no network interface found | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Bootstrap : no socket interface found
nccl | bootstrap | gpu-3
gpu-3:4242:4250 [5] NCCL WARN socketStartConnect: Connect to 10.0.0.2<4321> failed : Connection refused
nccl | bootstrap could not connect (10.0.0.2<4321>) | gpu-3
gpu-3:4242:4250 [5] NCCL WARN connect to 10.0.0.2<4321> returned Connection refused, exceeded error retry count (35)
nccl | /dev/shm | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)
nccl | network plugin missing (gIB) | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Error: network gIB not found.
nccl | network plugin missing | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Failed to initialize any NET plugin
nccl | two ranks | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000
nccl | NCCL versions differ | gpu-3
gpu-3:4242:4250 [5] NCCL WARN NCCL version mismatch with remote peer
cuda | GPU out of memory | gpu-3
gpu-3:4242:4250 [5] NCCL WARN Cuda failure 'out of memory'
mpirun | MPI ended the program for an error | gpu-a
[gpu-a:01234] *** An error occurred in MPI_Init
torch | the rendezvous endpoint | -
RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error
torch | torchrun: a worker was killed | -
[2025-05-02 11:22:33,223] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = -9
torch | no space left | -
OSError: [Errno 28] No space left on device: '/checkpoints/step_100/__3_0.distcp'
kernel | storage does not answer | -
[123456.789] LustreError: 11-0: scratch-OST0012: operation ost_write to node 10.9.0.12@o2ib failed: rc = -107
kernel | a disk of the node has errors | -
[ 7743.3] nvme nvme3: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10
torch | torch watchdog | -
[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=6) ran
slurm | cancelled | node-3
slurmstepd: error: *** STEP 12.0 ON node-3 CANCELLED AT 2025-01-02T03:04:05 ***
"""

OTHER_VERSIONS = r"""
log-disk-errors | -
[ 7743.3] EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm sh: reading directory lblock 0
log-disk-errors | -
[ 7743.3] nvme nvme0: I/O tag 123 (307b) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0) size:4096
log-disk-errors | -
[ 7743.3] nvme nvme1: Disabling device after reset failure: -19
log-disk-errors | -
[ 7743.3] nvme0n1: I/O Cmd(0x2) @ LBA 3907028992, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE DNR
log-disk-errors | -
[ 7743.3] critical medium error, dev nvme0n1, sector 123456 op 0x0:(READ) flags 0x80700 phys_seg 4
log-disk-errors | -
[ 7743.3] Buffer I/O error on dev nvme0n1p1, logical block 1234, lost async page write
log-disk-errors | -
[ 7743.3] XFS (md0): log I/O error -5
log-disk-errors | -
[ 7743.3] md/raid1:md0: Disk failure on nvme1n1, disabling device.
log-hot | -
[ 7743.3] thermal thermal_zone0: critical temperature reached (105 C), shutting down
log-hung-task | -
[ 7743.3] rcu: INFO: rcu_sched self-detected stall on CPU
log-efa-unreachable | i-0ce6d
libfabric:4:8::efa:cq:x():7<warn> message: Invalid address My EFA addr: a Peer EFA addr: b Peer host id: i-0ce6d (7)
log-nccl-proxy | -
***:4242:4250 [5] proxy.cc:1119 NCCL WARN [Proxy Service 1] Failed to execute operation Connect from rank 1, retcode 6
log-gpu-off-bus | -
NVRM: GPU at PCI:0000:1b:00: GPU-1b2c has fallen off the bus.
log-gpu-off-bus | -
[  100.1] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
log-xid-119 | -
[  1.0] NVRM: Xid (0000:3b:00): 119, pid=1, Timeout waiting for RPC from GSP!
log-xid-45 | -
[  1.0] NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 00000001
log-nvml | -
Failed to initialize NVML: Unknown Error
log-driver-missing | -
Failed to initialize NVML: Driver Not Loaded
log-gpu-lost | -
Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU
log-no-gpu | -
No devices were found
log-no-runtime | -
docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].
log-container-hook | -
nvidia-container-cli: device error: GPU-abc: unknown device: unknown
log-fabric-manager | -
RuntimeError: CUDA error: system not yet initialized
log-fabric-manager | -
ERROR 08-12 10:11:20 [multiproc_executor.py:559] RuntimeError: CUDA error: system not yet initialized
log-gpu-ecc | -
torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered
log-no-gpu | -
RuntimeError: CUDA error: no CUDA-capable device is detected
log-fabric-manager | n1
n1:10:20 [3] NCCL WARN Cuda failure 802 'system not yet initialized'
log-no-p2p | n1
n1:10:20 [3] init.cc:1 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'
log-xml-nodes | n1
n1:10:20 [0] graph/xml.cc:64 NCCL WARN Error : too many XML nodes (max 256)
log-efa-unreachable | n1
n1:10:20 [0] NCCL WARN NET/OFI Request 0x7f completed with error. RC: 113. Error: (113) No route to host
log-ofi-no-provider | n1
n1:10:20 [0] NCCL WARN NET/OFI Couldn't find any EFA device
log-ofi-no-provider | n1
n1:10:20 [0] nccl_net_ofi_create_plugin:204 NCCL WARN NET/OFI Failed to initialize rdma protocol
log-ofi-no-provider | n1
n1:10:20 [0] NCCL WARN NET/OFI aws-ofi-nccl initialization failed
log-ofi-resources | n1
n1:10:20 [0] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open CQ. RC: -12, ERROR: Cannot allocate memory
log-ofi-resources | n1
n1:10:20 [0] NCCL WARN NET/OFI Unable to register memory (type = 2) for device 3. RC: -22, Error: Invalid argument
log-libcuda | n1
n1:10:20 [0] misc/cudawrap.cc:1 NCCL WARN Failed to open libcuda.so
log-hca-catastrophic | n1
n1:10:20 [0] transport/net_ib.cc:1 NCCL WARN NET/IB : mlx5_3:1 Got async fatal event: local catastrophic error
log-port-error | n1
n1:10:20 [0] NCCL WARN NET/IB : Got async event : port error
log-nccl-builds | n1
n1:10:20 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 1024 bytes instead of 256
log-orted-missing | -
/usr/bin/bash: line 1: orted: command not found
log-command-missing | -
/tmp/kubexec.sh: line 5: /opt/kube/kubectl: No such file or directory
log-orted-missing | -
sh: 1: /opt/openmpi/bin/orted: not found
log-orted-missing | -
bash: line 1: /usr/local/bin/prted: No such file or directory
log-image-pull | -
slurmstepd: error: pyxis:     [ERROR] Could not process JSON input
log-image-unauthorized | -
slurmstepd: error: pyxis:     [ERROR] URL https://auth.docker.io/token returned error code: 403 Forbidden
log-enroot-directory | -
slurmstepd: error: pyxis:     enroot-mkdir: failed to create directory: /run/enroot/user-1000: Permission denied
log-slurmd-silent | 10.0.0.3
srun: error: slurm_receive_msg [10.0.0.3:6818]: Zero Bytes were transmitted or received
log-slurmd-silent | n4
srun: error: Task launch for StepId=5.0 failed on node n4: Communication connection failure
log-srun-refused | -
srun: error: Unable to create step for job 12: Job/step already completing or completed
log-bus-error | n3
srun: error: n3: task 12: Bus error
log-slurm-task | n3
srun: error: n3: tasks 8-15: Killed
log-orte-error | n2
[n2:00123] [[1,0],1] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file util/show_help.c at line 501
log-rendezvous | -
[W socket.cpp:697] [c10d] The client socket has failed to connect to [n1.svc]:29500 (errno: 111 - Connection refused).
log-port-in-use | -
[W1234 socket.cpp:460] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).
log-rendezvous-short | -
torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined.
log-master-unresolved | -
socket.gaierror: [Errno -2] Name or service not known
log-name-unresolved | worker-1.svc
ssh: Could not resolve hostname worker-1.svc: Temporary failure in name resolution
log-pcie-fatal | -
pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
log-link-down | -
mlx5_core 0000:9a:00.0 ib7: Link down
log-oom | -
Memory cgroup out of memory: Killed process 4242 (all_reduce_perf) total-vm:1kB
"""
