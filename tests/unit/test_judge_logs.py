"""`seatrial judge` on logs as people published them: the verdict that an expert gives, and why."""

from pathlib import Path

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, judge_logs
from seatrial.nccl import parse_file

LOGS = Path(__file__).parents[1] / "golden" / "nccl-logs"
H100, H200, A100 = "H100-SXM", "H200-SXM", "A100-SXM"
TCPXO, IB, EFA, SLINGSHOT = "GPUDirect-TCPXO", "IB-8x200G", "EFA-3200G", "Slingshot-4x200G"

# log, what it is said to be of, verdict, a text of the reason, and what an expert sees in it
Case = tuple[str, LogsConfig, str, str, str]
CASES: list[Case] = [
    # As it should be
    ("awsome_p5_awsbatch_tagged", LogsConfig(H100, 1), "pass", "107 % of the 450 GB/s of GPU links",
     "483 GB/s is NVLS on one H100 node; the printed average of 157 is that of small messages and says nothing"),
    ("xxrjun_h100_n1g8_five_collectives", LogsConfig(H100, 1), "pass", "all_gather",
     "five collectives of one healthy node, each held against its own reference"),
    ("awsdoeks_p5_single_row_elided", LogsConfig(H100, 1), "pass", "one size, 2G", "468.6 GB/s at 2G, one row left"),
    ("rccl_mi300x_8ranks", LogsConfig("MI300X", 1), "pass", "as expected by catalog",
     "315 GB/s is a healthy MI300X node"),
    ("a3mega_h100_16ranks_hashes_partly_lost", LogsConfig(H100, 2, 8, TCPXO), "pass", "as expected by catalog",
     "339 GB/s is what two A3 Mega nodes reach; the average of 71 would fail any flat floor"),
    ("gke_a3mega_allgather_indented_zero_rows", LogsConfig(H100, 2, 8, TCPXO), "pass", "94 % of the 200 GB/s",
     "188.7 GB/s of all_gather; rows of size 0 are no sizes, and the average of 53.9 is no fabric's number"),
    ("dstack_gcp_a4_hashes_lost", LogsConfig("B200-SXM", 2, 8, "RoCE-8x400G"), "pass", "as expected by catalog",
     "684 GB/s on two nodes is a tree, above what rings get through the NICs"),
    ("gke_dws_allgather_indented_header_twice", LogsConfig(H200, 2, 8, "RoCE-8x400G"), "pass", "as expected by catalog",
     "329 of 400 GB/s of all_gather"),
    ("deepops_a100_network_operator_old", LogsConfig(A100, 2, 8, IB), "pass", "93 % of the 200 GB/s",
     "188.5 GB/s; the old error column checks results as well"),
    ("coreweave_gb200_nvl72_72ranks", LogsConfig("GB200-NVL72", 18, 4, "MNNVL"), "pass", "as expected by catalog",
     "835 GB/s is what one NVL72 rack reaches"),
    ("coreweave_gb200_1440ranks", LogsConfig("GB200-NVL72", 360, 4, "MNNVL+IB"), "pass", "as expected by catalog",
     "406 GB/s over twenty racks: not to be held against the 835 of one"),
    ("coreweave_h100_64sharp_kubectl", LogsConfig(H100, 12, 8, "IB-8x400G"), "pass", "96 % of the 400 GB/s",
     "386 GB/s; busbw/algbw says 96 ranks, whatever the page calls it"),
    # As it should be as far as anybody knows
    ("awsome_p5en_topology_elided", LogsConfig(H200, 16, 8, EFA), "pass", "as expected by model",
     "370 GB/s over 16 nodes is well; nobody has published 16, and the one large size is held against the model"),
    ("deepops_slurm_perf_old", LogsConfig(A100, 4, 8, IB), "pass", "as expected by model", "191 of 200 GB/s of links"),
    ("xxrjun_h100_n10g8_80ranks_five_collectives", LogsConfig(H100, 10, 8, "IB-8x400G"), "degraded",
     "sendrecv busbw_plateau 15.2 GB/s",
     "345 GB/s over ten nodes are most of what the NICs carry; but neighbours get 15.2 of a NIC's 50 GB/s at any size"),
    ("rccl_mi300x_16ranks", LogsConfig("MI300X", 2, 8, "RoCE-8x400G"), "pass", "89 % of the 400 GB/s",
     "357 of 400 GB/s"),
    ("cscs_gh200_srun_indented", LogsConfig("GH200", 2, 4, SLINGSHOT), "pass", "108 % of the 100 GB/s of node links",
     "123 GB/s is what the right plugin gives"),
    ("awsdoeks_t4_efa_tagged_nccl_info", LogsConfig("T4", 2, 1, "EFA"), "pass",
     "over AWS Libfabric without GPUDirect RDMA",
     "no reference for a T4, and NCCL says that it took EFA"),
    ("wh8_h100_g2_nvls_nccl_info", LogsConfig(H100, 1, 2), "pass", "by NVLS/Simple",
     "Socket is named, and carries nothing on one node; two of eight GPUs have no reference"),
    # Misconfigured, or fallen back to sockets
    ("aks_b_allreduce_elided_head_socket", LogsConfig(A100, 2, 8, IB), "fail", "98 % below the 187 GB/s",
     "3 GB/s where the same cluster reaches 187 over InfiniBand: TCP"),
    ("aks_b_allreduce_elided_head_socket", LogsConfig(A100, 2, 8), "inconclusive",
     "what TCP sockets reach: say --fabric",
     "the same, and nobody said that there is a fabric: not a pass all the same"),
    ("cscs_gh200_srun_indented_slow", LogsConfig("GH200", 2, 4, SLINGSHOT), "fail",
     "95 % below the 100 GB/s of node links",
     "6 GB/s where the right plugin gives 123: sockets, and no reference is needed to see it"),
    ("awsdoeks_karpenter_socket_tagged", LogsConfig("T4", 2, 1, "EFA"), "fail", "went over sockets, not over EFA",
     "NCCL says Socket, so EFA was not used, however right the results"),
    ("awsdoeks_karpenter_socket_tagged", LogsConfig("T4", 2, 1, "Ethernet"), "pass", "over Socket",
     "the same log where sockets are all there is"),
    # Not what was asked about
    ("cscs_gh200_sarus_new", LogsConfig("GH200", 2, 4, SLINGSHOT), "fail", "2 of 8 ranks took part",
     "one GPU per node was used of four"),
    ("abci_a100_intranode4_allreduce_old", LogsConfig(A100, 3, 4), "fail", "4 of 12 ranks took part",
     "twelve GPUs asked for, and one pod of four ran"),
    ("wh8_h100_g4_allgather_new", LogsConfig(H100, 1, 8), "fail", "4 of 8 ranks took part",
     "half of the node is missing"),
    ("wh8_h100_g4_allgather_new", LogsConfig(H100, 1), "inconclusive", "say --gpus-per-node",
     "four GPUs where such nodes have eight: a fault, or another kind of node"),
    ("coreweave_h100_64sharp_kubectl", LogsConfig(H100, 8, 8, "IB-8x400G"), "fail", "96 of 64 ranks took part",
     "more than asked: numbers of another cluster"),
    ("xxrjun_h100_n1g8_five_collectives", LogsConfig(H200, 1), "inconclusive", "H100 80GB HBM3, not of H200-SXM",
     "a log of other GPUs"),
    # Wrong results
    ("nccltests369_gh200_oob_failed", LogsConfig("GH200", 2, 1, "Slingshot-1x200G"), "corrupt",
     "wrong elements: 96 at 1M",
     "128 wrong elements, however fast"),
    # Nothing, or not enough, was measured
    ("aks_a_allreduce_elided_head_ib", LogsConfig(A100, 2, 8, IB), "inconclusive", "#wrong is N/A everywhere",
     "fast enough, and nobody checked a result: it proves half of what a pass says"),
    ("superbench_a100_allgather_old_novalidation", LogsConfig(A100, 1), "inconclusive", "no result was checked",
     "the same"),
    ("awsome_p5_srun_label_no_footer", LogsConfig(H100, 2, 8, EFA), "inconclusive", "ends early, without a cause",
     "487 GB/s, but the log is cut before its footer: the rest may be missing too"),
    ("gke_a3mega_slurm_template_xxx_tabs", LogsConfig(H100, 2, 8, TCPXO), "inconclusive", "6 rows hold no numbers",
     "a form with XXX.XX in it and '0 OK' below"),
    ("dgxspark103_gb10_v2200_cut", LogsConfig("GB10", 2, 1), "inconclusive", "ends early",
     "cut in the middle of a row"),
    ("xxrjun_h100_n2g4_alltoall_stops_after_devices", LogsConfig(H100, 2, 4), "inconclusive", "ends early",
     "it stops after the header and does not say why"),
    ("xxrjun_h100_n2g1_alltoall_ok_sendrecv_cut", LogsConfig(H100, 2, 1), "inconclusive",
     "sendrecv: the output ends early",
     "the first sweep is well, the second never came"),
    # The cluster broke it
    ("xxrjun_h100_n2g4_failure_then_sendrecv_ok", LogsConfig(H100, 2, 4), "fail", "a remote process exited",
     "one of two sweeps died; that the other is well does not help"),
    ("nccltests369_gh200_device_busy", LogsConfig("GH200", 2, 4, SLINGSHOT), "fail", "busy or unavailable) on gpu-1-1",
     "GPUs held by something else"),
    ("sophia_a100_16ranks_many_failures", LogsConfig(A100, 2, 8, IB), "fail", "unhandled system error", "init failed"),
    ("rccltests50_mi210_internal_error", LogsConfig("MI210", 1, 4), "fail", "NCCL internal error", "RCCL gave up"),
    ("nccltests299_prte_ssh_refused", LogsConfig(H100, 2, 8, "IB-8x400G"), "fail", "ssh connection refused",
     "no sshd on that port"),
    ("awsome868_mpijob_resolve_hostname_orte", LogsConfig(H100, 4, 8, EFA), "fail", "host name cannot be resolved",
     "the headless service was not ready"),
    ("deepops1179_srun_pmix_collective_timeout", LogsConfig(H100, 2, 1), "fail", "PMIx collective timed out",
     "the nodes' daemons do not reach each other"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "asked", "verdict", "reason", "why"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES]
)
def test_verdict_on_each_golden_log_matches_the_expert_table(
    name: str, asked: LogsConfig, verdict: str, reason: str, why: str
) -> None:
    judgement = judge_logs([Log(name, tuple(parse_file(LOGS / f"{name}.log")))], asked)
    assert (judgement.verdict.value, reason in judgement.reason.sentence) == (verdict, True), (
        f"{why}; said: {judgement.reason}"
    )
    beyond = [
        j.reason
        for check in judgement.checks
        for j in check.judgements
        if "not measured over" in j.reason.sentence
    ]
    assert beyond == [], (
        "what people measured is not impossible; a loose bound that is too tight would show here"
    )
