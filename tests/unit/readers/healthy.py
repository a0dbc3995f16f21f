"""Output of each tool on a healthy machine, in the layouts that its versions print."""

from pathlib import Path

H100 = (Path(__file__).parents[2] / "golden" / "nvidia-smi" / "h100-q.txt").read_text()
DIAG_3 = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.3.1                                          |
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| Persistence Mode          | Pass                                           |
| Page Retirement/Row Remap | Pass                                           |
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Pass - All                                     |
| Info                      | GPU 0 GPU to Host bandwidth:  14.26 GB/s, GPU  |
|                           | 0 Host to GPU bandwidth:  8.66 GB/s            |
+-----  Stress  ------------+------------------------------------------------+
| Targeted Stress           | Skip - All                                     |
+---------------------------+------------------------------------------------+
"""
DIAG_4 = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Pass                                           |
|                           | GPU0: Pass                                     |
+---------------------------+------------------------------------------------+
"""
DIAG_JSON = """\
{
    "DCGM Diagnostic" : {
        "test_categories" : [
            {"category" : "Hardware", "tests" : [
                {"name" : "memory", "results" : [{"entity_group" : "GPU", "entity_id" : 0, "status" : "Pass"}]}
            ]}
        ]
    }
}
"""
HEALTH = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Healthy                                                  |
+---------------------------+----------------------------------------------------------+
"""
SMI = """\
Fri Mar 27 20:01:16 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.133.20             Driver Version: 570.133.20     CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |
| N/A   34C    P0             72W /  700W |       1MiB /  81559MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""
XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<attached_gpus>1</attached_gpus>
\t<gpu id="00000000:1B:00.0">
\t\t<remapped_rows>
\t\t\t<remapped_row_pending>No</remapped_row_pending>
\t\t\t<remapped_row_failure>No</remapped_row_failure>
\t\t</remapped_rows>
\t</gpu>
</nvidia_smi_log>
"""
NVLINK_STATUS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000001)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
"""
NVLINK_ERRORS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 0

"""
NVBANDWIDTH = """\
nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12080
CUDA Driver Version: 12080
Driver Version: 570.133.20

Device 0: NVIDIA H100 80GB HBM3 (00000000:1B:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0
 0     55.12

SUM host_to_device_memcpy_ce 55.12
"""
P2P = """\
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, NVIDIA H100 80GB HBM3, pciBusID: 1b, pciDeviceID: 0, pciDomainID:0
Device=0 CAN Access Peer Device=1
Device=1 CAN Access Peer Device=0

***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy procedure.
So you can see lesser Bandwidth (GB/s) and unstable Latency (us) in those cases.

P2P Connectivity Matrix
     D\\D     0     1
     0       1     1
     1       1     1
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 2504.83 388.11
     1 386.90 2512.14
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   2.34   2.56
     1   2.52   2.31
"""
BURN = """\
Using compare file: compare.ptx
Burning for 60 seconds.
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)
Initialized device 0 with 81079 MB of memory (80511 MB available, using 72460 MB of it), using FLOATS
Results are 268435456 bytes each, thus performing 281 iterations
100.0%  proc'd: 8082 (45247 Gflop/s)   errors: 0   temps: 55 C
\tSummary at:   Thu Feb 24 12:20:06 UTC 2026

Killing processes.. Freed memory for dev 0
Uninitted cublas
done

Tested 1 GPUs:
\tGPU 0: OK
"""
PERFTEST = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_3
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 Mtu             : 4096[B]
 Link type       : IB
---------------------------------------------------------------------------------------
 local address: LID 0x1e QPN 0x0127 PSN 0xa1b2c3 RKey 0x1ff0bd VAddr 0x007f3f4e5d6000
 remote address: LID 0x1f QPN 0x0128 PSN 0xd4e5f6 RKey 0x1ff0be VAddr 0x007f3f4e5d6000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8388608    5000             393.20             393.12             0.005858
---------------------------------------------------------------------------------------
"""
IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.41.1000
\tNode GUID: 0x0011223344550000
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 12
\t\tLink layer: InfiniBand
"""
IBSTATUS = """\
Infiniband device 'mlx5_0' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:0011:2233:4455:0000
\tbase lid:\t 0xc
\tsm lid:\t\t 0x1
\tstate:\t\t 4: ACTIVE
\tphys state:\t 5: LinkUp
\trate:\t\t 400 Gb/sec (4X NDR)
\tlink_layer:\t InfiniBand

"""
ERRORS = """\
Errors for "node-a mlx5_0"
   GUID 0x11223344550001 port 1: [PortXmitWait == 4294967295]

## Summary: 16 nodes checked, 1 bad nodes found
##          226 ports checked, 1 ports have errors beyond threshold
"""
MLXLINK = """\
Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-NDR
Width                              : 4x

Troubleshooting Info
--------------------
Status Opcode                      : 0
Group Opcode                       : N/A
Recommendation                     : No issue was observed

Module Info
-----------
Temperature [C]                    : 0 [0..0]
Rx Power Current [dBm]             : 0,0,0,0 [0..0]
Rx LOS [per lane]                  : 0,0,0,0
"""
FABRIC_MANAGER = """\
[Feb 25 2026 13:59:45] [INFO] [tid 1808] Fabric Manager version 570.133.20 is running with the following configuration
[Feb 25 2026 13:59:46] [INFO] [tid 1808] Successfully configured all the available NVSwitches to route NVLink traffic.
"""
IMEX = """\
Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
C - Connected - Ready for operation

5/4/2026 06:08:10.580
Nodes:
Node #0   - 10.0.0.81    - READY                - Version: 570.172
Node #1   - 10.0.0.98    - READY                - Version: 570.172

 Nodes From\\To  0   1
       0        C   C
       1        C   C
Domain State: UP
"""
IMEX_JSON = """\
{"nodes":{"0":{"status":"READY","host":"10.0.0.81","connections":{"0":{"host":"10.0.0.81","status":"CONNECTED"}}}},"status":"UP"}
"""
LINKS = """\
CA: n02 HCA-1:
   0xec0d9a03003d62be   4    1[  ] ==( 4X    25.78125 Gbps Active/  LinkUp)==>    2   17[  ] "MF0;SB7700:MSB7700/U1" ( )
Switch: 0xec0d9a0300fb1d2a MF0;SB7700:MSB7700/U1:
           2    1[  ] ==(                Down/ Polling)==>             [  ] "" ( )
           2   17[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       4    1[  ] "n02 HCA-1" ( )
"""
OUTPUTS = {
    "dcgmi diag of DCGM 3": DIAG_3,
    "dcgmi diag of DCGM 4": DIAG_4,
    "dcgmi diag --json": DIAG_JSON,
    "dcgmi health": HEALTH,
    "nvidia-smi": SMI,
    "nvidia-smi -q": H100,
    "nvidia-smi -x": XML,
    "nvidia-smi nvlink -s": NVLINK_STATUS,
    "nvidia-smi nvlink -e": NVLINK_ERRORS,
    "nvbandwidth": NVBANDWIDTH,
    "p2pBandwidthLatencyTest": P2P,
    "gpu_burn": BURN,
    "ib_write_bw": PERFTEST,
    "ibstat": IBSTAT,
    "ibstatus": IBSTATUS,
    "iblinkinfo": LINKS,
    "ibqueryerrors": ERRORS,
    "mlxlink": MLXLINK,
    "fabric manager": FABRIC_MANAGER,
    "nvidia-imex-ctl": IMEX,
    "nvidia-imex-ctl -j": IMEX_JSON,
}
