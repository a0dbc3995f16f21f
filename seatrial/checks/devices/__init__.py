"""The check `devices`: every GPU, or the processors of nodes without GPUs, measured and searched for wrong results."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "probe-busy": Explanation(
        "{nodes} not measured: other nodes of the same machine were measured for all of the time",
        "Nodes that share a machine are measured one after another, and there were too many of them.",
        "Raise `timeout_s` of that check in the suite file, or use fewer nodes for each machine.",
    ),
    "wrong-result": Explanation(
        "computes wrongly: {problem}",
        "The same work gave different results, which is silent data corruption.",
        "Take the device out of use, and have its memory and its ECC counters checked.",
    ),
    "disk-wrong": Explanation(
        "its disk returns other data: {problem}",
        "What was written to a file and read back at once is not the same.",
        "Take the node out of use, and check its disk, controller and memory.",
    ),
    "digest-differs": Explanation(
        "computes wrongly: its {dtypes} results of fixed data differ from those of {count} like devices, which agree",
        "Devices of one model with the same software give the same result bit for bit; this one gives another.",
        "Take the device out of use, and have its memory and its ECC counters checked. If it computes well, look for a"
        " setting of its own: `NVIDIA_TF32_OVERRIDE`, `CUBLAS_WORKSPACE_CONFIG`, `OPENBLAS_CORETYPE`.",
    ),
    "digests-divided": Explanation(
        "{dtype} results of fixed data differ between like devices ({names}), and no majority agrees",
        "Devices of one model with the same software give the same result bit for bit. These do not.",
        "Run `python3 devices.py` on each, and compare the digests with those of a device that is known to be good.",
    ),
}

register(REASONS)
