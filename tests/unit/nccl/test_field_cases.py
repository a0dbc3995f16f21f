"""Errors as people met and reported them: cause, host or GPU, and exit status of `seatrial judge`.

`tests/golden/field-cases/` has what each of them posted; each is named by a number and what it is
about.
"""

import importlib
import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seatrial.causes import cause_in
from seatrial.causes.table import REASONS as OF_LOGS
from seatrial.cli.logs import judge
from seatrial.platforms.kubernetes.kueue import waits_for
from seatrial.platforms.kubernetes.waiting import SeenObjects, describe_progress, problem
from seatrial.platforms.slurm.bringup import read_nodes_log
from seatrial.remote import probes
from seatrial.remote.probes import facts
from seatrial.runs.explanations import CATALOG

CASES = Path(__file__).parents[2] / "golden" / "field-cases"
EIGHT, TWO, FOUR = (
    "--nodes 1 --gpus-per-node 8",
    "--nodes 2 --gpus-per-node 8",
    "--nodes 4 --gpus-per-node 8",
)
# case, what `seatrial judge` is asked, exit status, code, what the last line names, and what it
# must not
JUDGED = [
    (
        "01-xid-fallen-off-bus-without-xid",
        f"B200-SXM {EIGHT}",
        1,
        "log-gpu-off-bus",
        "0000:b3:00",
        "",
    ),
    (
        "02-xid-145-nonfatal",
        f"B200-SXM {EIGHT}",
        3,
        "log-xid-nvlink5",
        "inconclusive: Xid 145",
        "fail",
    ),
    (
        "04-xid-45-caused-by-149",
        f"B200-SXM {EIGHT}",
        1,
        "log-xid-nvlink5",
        "Xid 149 (NVLink 5 error",
        "",
    ),
    ("06-xid-171-94-63-154", f"A100-SXM {EIGHT}", 1, "log-xid-171", "0000:9c:00 on node", ""),
    (
        "07-sxid-fatal-alone",
        f"H100-SXM {EIGHT}",
        1,
        "log-sxid",
        "SXid 20034 (NVSwitch error) at 0000:06:00.0",
        "",
    ),
    (
        "09-pcie-aer-uncorrected",
        f"H100-SXM {EIGHT}",
        1,
        "log-pcie-fatal",
        "0000:00:03.0",
        "/dev/shm",
    ),
    (
        "11-torch-host-not-found",
        f"H100-SXM {TWO}",
        1,
        "log-master-unresolved",
        "name of the master",
        " on found",
    ),
    (
        "13-fabric-manager-802-nccl-tests",
        f"H100-SXM {EIGHT}",
        1,
        "log-fabric-manager",
        " on node-a",
        "",
    ),
    ("15-nvls-multicast-bind-failed", f"H100-SXM {EIGHT}", 1, "log-nvls", " on node-a", ""),
    ("17-nvls-cuda-1-after-fm-restart", f"H100-SXM {EIGHT}", 1, "log-nvls", " on node23", ""),
    (
        "18-nccl-ranks-of-different-builds",
        "H100-SXM --nodes 2 --gpus-per-node 1",
        1,
        "log-nccl-builds",
        " on node-b",
        "",
    ),
    ("19-efa-no-provider", f"H100-SXM {TWO}", 1, "log-ofi-no-provider", " on node-a", ""),
    (
        "20-efa-endpoint-failed",
        f"H100-SXM {TWO}",
        1,
        "log-efa-device",
        "no EFA device in the container",
        "",
    ),
    (
        "23-efa-cannot-open-av",
        f"A100-SXM {FOUR}",
        1,
        "log-ofi-resources",
        "(AV) on node-b (rank 23)",
        "",
    ),
    (
        "25-nccl-mixed-hca-counts",
        f"H100-SXM {TWO}",
        1,
        "log-hca-open",
        "(erdma_1) on node-b",
        "two ranks",
    ),
    (
        "26-ib-local-catastrophic-error",
        f"A100-SXM {FOUR}",
        1,
        "log-hca-catastrophic",
        " on node-c",
        "",
    ),
    ("27-nccl-libcuda-missing-on-one-node", f"A100-SXM {TWO}", 1, "log-libcuda", " on node-b", ""),
    (
        "29-port-error-on-48-reported-by-51",
        f"H100-SXM {FOUR}",
        1,
        "log-port-error",
        " on node-48",
        "node-51",
    ),
    (
        "30-watchdog-missing-rank",
        f"H100-SXM {EIGHT}",
        1,
        "log-watchdog",
        "ranks 0, 1 waited for",
        "(rank 1)",
    ),
    (
        "31-pcie-and-driver-mismatch-docker",
        f"H100-SXM {EIGHT}",
        1,
        "log-driver-mismatch",
        "versions differ",
        "",
    ),
    (
        "32-nvidia-smi-library-mismatch",
        f"H100-SXM {EIGHT}",
        1,
        "log-driver-mismatch",
        "versions differ",
        "",
    ),
    ("33-nvidia-smi-unknown-handle", f"H100-SXM {EIGHT}", 1, "log-gpu-lost", "0000:A1:00.0", ""),
    (
        "35-mpi-tcp-connect-failed",
        "other --nodes 2 --gpus-per-node 1",
        1,
        "log-mpi-connect",
        "172.17.0.1",
        "",
    ),
    (
        "36-mpi-firewall",
        "other --nodes 2 --gpus-per-node 1",
        1,
        "log-mpi-firewall",
        "(node-b) on node-a",
        "ssh",
    ),
    (
        "37-mpi-route-unknown",
        "other --nodes 88 --gpus-per-node 1",
        1,
        "log-mpi-route",
        "(n13) on n14",
        "",
    ),
    ("39-pmix-psec-munge", f"H100-SXM {TWO}", 1, "log-pmix-munge", "munge on gpu1", ""),
    (
        "40-kubexec-kubectl-not-found",
        "H100-SXM --nodes 64 --gpus-per-node 8",
        3,
        "log-command-missing",
        "kubectl",
        "",
    ),
    (
        "41-pyxis-401-wrong-registry",
        f"H100-SXM {TWO}",
        1,
        "log-image-unauthorized",
        "registry-1.docker.io",
        "",
    ),
    (
        "43-enroot-run-permission",
        f"H100-SXM {EIGHT}",
        1,
        "log-enroot-directory",
        "(/run/enroot)",
        "",
    ),
    (
        "44-slurm-launch-timed-out",
        "H100-SXM --nodes 3 --gpus-per-node 8",
        1,
        "log-slurmd-silent",
        " on n1.site",
        "",
    ),
    (
        "46-ompi-unexpected-identifier",
        f"H100-SXM {TWO}",
        1,
        "log-mpi-wrong-peer",
        " on node-a",
        "time limit",
    ),
    (
        "48-c10d-timeout",
        "H100-SXM --nodes 3 --gpus-per-node 4",
        1,
        "log-rendezvous",
        "(192.0.2.1:1234)",
        "",
    ),
    (
        "50-o-all-one-op-wrong",
        "H100-SXM --nodes 1 --gpus-per-node 2",
        1,
        "wrong-elements",
        "input sum: all_reduce",
        "max",
    ),
    ("51-json-wrapped-log", f"H100-SXM {EIGHT}", 0, None, "plateau 469 GB/s", ""),
    (
        "53-dcgm-diag-fail",
        f"H100-SXM {EIGHT}",
        1,
        "tool-gpu-memory",
        "GPU Memory fail on GPU: 0",
        "",
    ),
    (
        "54-nvbandwidth-pattern-mismatch",
        f"A100-SXM {EIGHT}",
        1,
        "tool-wrong-data",
        "device_to_device",
        "",
    ),
    (
        "80-hip-invalid-device-in-container",
        "",
        1,
        "log-hip-device",
        "hipErrorInvalidDevice) on node-1",
        "CUDA",
    ),
    (
        "81-rccl-ipc-handle-failed",
        "",
        1,
        "log-peer-memory",
        "(hipIpcGetMemHandle) on node-3",
        "internal error",
    ),
    (
        "82-hip-no-kernel-for-this-gfx",
        "",
        1,
        "log-gpu-kernels",
        "architecture on node-7",
        "CUDA failure",
    ),
    (
        "84-watchdog-rank-behind",
        "",
        1,
        "log-watchdog",
        "rank 3 is behind: its last work is 807",
        "ranks 0, 1, 2",
    ),
    ("85-cumem-import-fails", "", 1, "log-memory-import", "(cuMem)", "fewer GPUs"),
    (
        "86-megatron-nan",
        "",
        1,
        "training-log-not-finite",
        "step 121 on, first on rank 37 (node-4, GPU 5)",
        "",
    ),
    (
        "107-ib-and-roce-mixed",
        f"H100-SXM {TWO}",
        1,
        "log-nic-types",
        "mlx5_2:1/RoCE",
        "internal error",
    ),
    (
        "108-nccl-version-mismatch-own-text",
        f"H100-SXM {TWO}",
        1,
        "log-nccl-builds",
        "rank 8 version 22809",
        "usage",
    ),
    (
        "109-nvml-gpu-lost-in-nccl",
        f"H100-SXM {EIGHT}",
        1,
        "log-gpu-lost",
        "HandleByIndex(3)) on node-a",
        "system error",
    ),
    (
        "112-port-flap-error-then-active",
        f"H200-SXM {TWO}",
        1,
        "log-port-error",
        "(mlx5_32:1) on prefill-2",
        "",
    ),
    (
        "121-milabench-prefix-watchdog",
        "A100-SXM --nodes 2 --gpus-per-node 4",
        1,
        "log-watchdog",
        "rank 3 waited",
        "",
    ),
    (
        "122-nccl-ras-incomplete",
        f"H100-SXM {TWO}",
        1,
        "ras-rank-missing",
        "GPU 0, node 10.0.0.13",
        "",
    ),
    (
        "123-nccl-ras-mismatch",
        f"H100-SXM {FOUR}",
        3,
        "ras-out-of-step",
        "30 ranks at 640 are behind 2 at 641",
        "fail",
    ),
    (
        "124-torch-ecc-rank-1",
        "H100-SXM --nodes 1 --gpus-per-node 2",
        1,
        "log-gpu-ecc",
        "(rank 1)",
        "timed out",
    ),
    (
        "125-watchdog-stuck-heartbeat",
        f"H100-SXM {EIGHT}",
        1,
        "log-watchdog-stuck",
        "(rank 6)",
        "waited",
    ),
    (
        "146-megatron-grad-norm-nan",
        f"A100-SXM {EIGHT}",
        1,
        "training-log-not-finite",
        "4,237 ms, 78.4 TFLOP/s",
        "",
    ),
    (
        "147-nvrx-straggler-warning",
        "H100-SXM --nodes 64 --gpus-per-node 8",
        1,
        "training-straggler",
        "rank 76 on node-012 computes at 61 % of the others",
        "rank 13",
    ),
    (
        "149-training-nan-then-watchdog",
        "A100-SXM --nodes 8 --gpus-per-node 8",
        1,
        "training-log-not-finite",
        "not finite from step 161544 on; also input#2",
        "",
    ),
    (
        "151-slurmctld-gres-lower",
        f"H100-SXM {EIGHT}",
        1,
        "log-slurm-node-short",
        "(7 < 8)) on node-31",
        "",
    ),
    (
        "155-mpich-ofi-ptlte-not-found",
        "other --nodes 8 --gpus-per-node 4",
        1,
        "log-cxi-peer",
        "node-a (rank 519)",
        "",
    ),
    (
        "158-gb200-old-nccl-corrupted-chunks",
        "GB200-NVL72 --nodes 10 --gpus-per-node 4",
        1,
        "log-heap",
        "corrupted unsorted chunks) on node-07",
        "",
    ),
    (
        "162-slingshot-hang-rings-no-trees",
        "other --nodes 2 --gpus-per-node 4",
        3,
        "log-nccl-connects",
        "all 8 ranks connected their rings, and none connected their trees",
        "fail",
    ),
    (
        "83-dcgm4-table-names-the-gpu",
        "",
        1,
        "tool-gpu-memory",
        "memory fail on GPU 1: Detected a volatile DBE",
        "GPU 0",
    ),
    (
        "87-perftest-half-of-the-link",
        "H100-SXM --fabric IB-8x400G",
        1,
        "port-below-rate",
        "mlx5_4 reaches 196 of 400",
        "",
    ),
    (
        "101-dcgm-ok-then-ssh-unresolved",
        f"H100-SXM {TWO}",
        1,
        "log-name-unresolved",
        "on node-b",
        "",
    ),
    (
        "113-amdgpu-athub-after-healthy-sweep",
        f"MI300X {EIGHT}",
        1,
        "log-amdgpu-ras",
        "(0000:1c:00.0)",
        "",
    ),
    (
        "115-edac-corrected-after-healthy-sweep",
        f"H100-SXM {EIGHT}",
        0,
        None,
        "noted: corrected errors of a host DIMM",
        "",
    ),
    (
        "127-dcgm4-text-warning",
        "",
        1,
        "tool-gpu-pcie",
        "pcie fail on GPU 2: Detected 12 PCIe replays",
        "GPU 0",
    ),
    (
        "133-fabric-manager-log",
        f"H100-SXM {EIGHT}",
        1,
        "tool-nvswitch",
        "NVSwitch at 00000000:06:00.0 port 44",
        "",
    ),
    (
        "135-ibqueryerrors-port",
        f"H100-SXM {EIGHT}",
        1,
        "tool-port-errors",
        "node-a mlx5_0: LinkDownedCounter 25",
        "",
    ),
    (
        "136-ibstat-port-polling",
        f"H100-SXM {EIGHT}",
        1,
        "tool-port-down",
        "mlx5_3:1 has no link (down, polling)",
        "mlx5_4",
    ),
    (
        "137-imex-ctl-degraded",
        "GB200-NVL72 --nodes 3 --gpus-per-node 4",
        1,
        "tool-imex",
        "IMEX on 10.0.0.98",
        "10.0.0.81",
    ),
    (
        "139-mlxlink-rx-los",
        f"H100-SXM {EIGHT}",
        1,
        "tool-port-module",
        "lane 3 receives no light",
        "",
    ),
    (
        "140-mscclpp-test-in-place-first",
        f"A100-SXM {EIGHT}",
        3,
        "log-mscclpp",
        "one kernel of MSCCL++",
        "",
    ),
    (
        "141-nvidia-smi-xml-row-failure",
        f"H100-SXM {EIGHT}",
        1,
        "tool-gpu-memory",
        "GPU 00000000:1B:00.0: rows could",
        "",
    ),
    (
        "143-smi-nvlink-errors",
        "",
        1,
        "tool-gpu-nvlink",
        "GPU 0 link 7: 184467 Replay, 12 Recovery, 9021 CRC",
        "link 0",
    ),
    ("144-smi-nvlink-inactive", "", 1, "tool-gpu-nvlink", "GPU 3: links 3, 5 inactive", ""),
    (
        "161-rccl-hang-after-header",
        "",
        3,
        "log-hung-at-first-size",
        "it hung at the first size",
        "",
    ),
    (
        "164-xid-145-fatal-whole-fabric",
        f"B300 {EIGHT}",
        1,
        "log-xid-nvlink5",
        "0000:66:00, also on 0000:76:00",
        "",
    ),
]
STEPS = {  # what a night engineer is told to do, by case
    "01": "power-cycle", "06": "drain the node and reset", "07": "reset", "13": "fabricmanager", "15": "fabric manager",
    "18": "same image", "20": "EFA devices", "25": "/dev/infiniband", "29": "cable", "31": "reboot", "32": "reboot",
    "33": "reseat", "35": "btl_tcp_if_include", "36": "firewall", "37": "routed", "39": "PMIX_MCA_psec",
    "40": "install", "41": "REGISTRY#IMAGE", "43": "ENROOT_RUNTIME_PATH", "44": "slurmd", "46": "btl_tcp_if_include",
    "48": "MASTER_ADDR", "80": "/dev/kfd", "81": "iommu=pt", "82": "HSA_OVERRIDE_GFX_VERSION", "84": "py-spy",
    "85": "NCCL_CUMEM_ENABLE=0", "107": "NCCL_IB_HCA", "108": "same image", "109": "Xid 79", "112": "cable",
    "124": "drain the node", "125": "py-spy", "151": "nvidia-smi -L",
    "155": "first rank that died", "158": "2.25.1", "162": "NCCL_ALGO=Ring",
}  # fmt: skip


def judged(case: str, asked: str, *options: str) -> Any:
    log = str(CASES / case / "input.log")
    words = ["--hardware", *shlex.split(asked)] if asked else []
    return CliRunner().invoke(judge, [log, *words, *options])


def documents(case: str) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in (CASES / case).glob("*.json")}


@pytest.mark.parametrize(
    ("case", "asked", "status", "code", "named", "unnamed"), JUDGED, ids=[c[0] for c in JUDGED]
)
def test_a_log_is_judged_by_its_cause(
    case: str, asked: str, status: int, code: str | None, named: str, unnamed: str
) -> None:
    done = judged(case, asked)
    last = done.output.strip().splitlines()[-1]
    assert (done.exit_code, named in last) == (status, True), last
    assert not unnamed or unnamed not in last
    if code:
        document = json.loads(judged(case, asked, "--json").output)
        assert document["code"] == code
        step = document["next_step"].rstrip(".")
        assert step and f"next: {step}; seatrial explain {code}\n" in done.output
        assert STEPS.get(case.partition("-")[0], "") in document["next_step"]


def test_a_log_of_causes_prints_the_line_that_shows_the_first() -> None:
    for case, asked, _, code, *_ in JUDGED:
        if code in OF_LOGS:
            findings = json.loads(judged(case, asked, "--json").output)["findings"]
            assert findings[0]["evidence"] and all(entry["next_step"] for entry in findings)
            assert findings[0]["evidence"][:100] in judged(case, asked).output.replace("\n", " ")


def test_the_second_line_of_a_hook_is_the_cause() -> None:
    pod = documents("56-k8s-hook-error-in-second-line")["pod"]
    cause = problem([pod], {"p-0": 0.0}, 1000.0)
    assert (
        cause
        and "pod p-0 on node-a" in cause.reason.sentence
        and "driver/library version mismatch" in cause.reason.sentence
    )
    assert cause.reason.code == "log-driver-mismatch"
    assert "reboot" in (CATALOG["log-driver-mismatch"].next_step or "")


def test_a_sandbox_without_a_runtime_is_told_while_the_run_waits() -> None:
    case = documents("58-k8s-sandbox-has-no-nvidia-runtime")
    seen = SeenObjects()
    seen.take_pods([case["pod"]])
    seen.take_event(case["event"], 0.0)
    assert (
        'no runtime for "nvidia" is configured'
        in describe_progress(seen.pods.values(), 1, None, seen.unmounted).sentence
    )


def test_an_eviction_for_pods_that_were_not_ready_is_told_from_one_for_others() -> None:
    queued = waits_for(documents("59-kueue-evicted-pods-not-ready")["workload"])
    assert queued and queued.reason.code == "evicted-pods-not-ready"
    assert "own pods were not ready" in CATALOG["evicted-pods-not-ready"].meaning


def test_advice_does_not_hide_what_a_registry_answered() -> None:
    log = (CASES / "61-slurm-bringup-advice-hides-401" / "nodes.log").read_text()
    (words,) = read_nodes_log(log).last_lines.values()
    assert "401 Unauthorized" in words and "registry-1.docker.io" in words


def test_what_nvidia_smi_says_when_it_fails_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{CASES / '63-node-nvml-mismatch-advice'}:{os.environ['PATH']}")
    assert facts.gpu_models() is None
    cause = cause_in(facts.gpu_problem())
    assert cause and cause.code == "log-driver-mismatch" and "reboot" in cause.next_step


def test_a_gpu_that_requires_a_reset_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PATH", f"{CASES / '64-inventory-loses-gpu-that-requires-reset'}:{os.environ['PATH']}"
    )
    # They import each other by file name
    monkeypatch.syspath_prepend(str(Path(probes.__file__).parent))
    inventory = importlib.import_module("inventory")
    gpus = inventory.gpu_list(time.monotonic() + 60)
    assert [(gpu["name"], gpu["requires_reset"]) for gpu in gpus] == [
        ("gpu-0", False),
        ("gpu-1", True),
    ]
