"""Reasons of inventories: the state of GPUs, ports and limits that nodes report."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "gpu-rows-failed": Explanation(
        "rows of its memory could not be remapped: it must be replaced",
        "The GPU has run out of spare rows for defective memory (`remapped_rows.failure`).",
        "Take the GPU out of use and have it replaced.",
    ),
    "gpu-rows-pending": Explanation(
        "rows of its memory wait to be remapped at the next reset",
        "The GPU found defective memory and replaces it when it is reset (a note, no verdict).",
        "Drain the node and reset the GPU.",
    ),
    "gpu-ecc-uncorrected": Explanation(
        "{count} uncorrectable ECC errors since the driver was loaded",
        "Memory of the GPU lost data that ECC could not restore.",
        "Drain the node and reset the GPU. If errors come back, have it replaced.",
    ),
    "gpu-slowed-down": Explanation(
        "is slowed down: {causes}",
        "The GPU lowers its clock by itself: it is hot, or power is short (clock event reasons, throttle violations).",
        "Check cooling and power supplies of the node, then `nvidia-smi -q -d PERFORMANCE`, for AMD"
        " `amd-smi metric --throttle`.",
    ),
    "gpu-in-use": Explanation(
        "{processes} processes use it already",
        "Something else runs on the GPU, so measurements share it (a note, no verdict).",
        "End it, or run again when the GPU is free: `nvidia-smi --query-compute-apps=pid,name --format=csv`, or"
        " `amd-smi process`.",
    ),
    "gpu-pcie-narrow": Explanation(
        "its PCIe link has {width} of {widest} lanes",
        "The link trained with fewer lanes than GPU and slot have (a note, no verdict).",
        "Reseat the GPU or its riser. Some servers wire fewer lanes; then all nodes show it.",
    ),
    "gpu-nvlinks-down": Explanation(
        "{down} of {links} links to other GPUs are down",
        "NVLinks or XGMI links of the GPU are down (a note, no verdict). Some boards do not wire all; then all nodes"
        " show it.",
        "Run `nvidia-smi nvlink --status` and `nvidia-smi topo -m`, and check fabric manager; for AMD `amd-smi xgmi`.",
    ),
    "gpu-xid": Explanation(
        "{kind} {number} ({meaning}) {count} times on {nodes}, last {age} ago: {step}",
        "The driver reported the error since the machine started (a note, no verdict). `dmesg` names the GPU.",
        "Do what the line says.",
    ),
    "driver-too-old": Explanation(
        "driver {driver} on {nodes} is older than CUDA {cuda} needs ({least} or later), without a cuda-compat package",
        "The software of the nodes was built for a newer driver (a note, no verdict).",
        "Update the driver, use an image with an older CUDA, or install the cuda-compat package in the image.",
    ),
    "nodes-unequal": Explanation(
        "{attribute} of {nodes} is {other}, {common} on {count} of {all} nodes",
        "Nodes of the same model are set up or equipped differently (a note, no verdict).",
        "Make them alike; a difference can explain a slow node.",
    ),
    "disk-nearly-full": Explanation(
        "less than {least_gb} GB are free in /tmp of {nodes}",
        "Programs may fail to write their temporary files (a note, no verdict).",
        "Remove old files on these nodes.",
    ),
    "shm-small": Explanation(
        "/dev/shm of {nodes} is smaller than {least_gb} GB",
        "NCCL and data loaders need shared memory (a note, no verdict).",
        "Give the pod or container more: a memory volume at `/dev/shm`, or `--shm-size`.",
    ),
    "inventory-unknown": Explanation(
        "{nodes} gave no inventory",
        "The nodes could not tell the state of their hardware in time (a note, no verdict).",
        "Run `python3 inventory.py` by hand on the node.",
    ),
}
