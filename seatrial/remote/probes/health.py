"""A check of this machine's GPUs and fabric within seconds, for schedulers; it uses no network, no
scheduler commands and no load.

    check.pyz --fast slurm|kubernetes [--gpus N] [--ports N]

Prints one line. As Slurm's HealthCheckProgram and prolog it ends with 0, or 1 for a fault; as a
plugin of node-problem-detector with 0, 1 for a fault, or 2 for unknown. An unknown state is no
fault, so that a node is not drained because a tool was slow. Standard library only.
"""

import os
import signal
import sys
import time

import inventory
import ports

DEADLINE_S = 8.0  # for all queries; queries without an answer by then count as unknown
STOPS_S = 9  # the process ends itself after this time, whatever hangs
WIDEST = 250  # most characters of the line
NOTHING = {"", "none", "n/a", "[n/a]", "not supported", "completed", "success"}
# Xids after which NVIDIA asks for a reset, a drain or a repair (docs.nvidia.com/deploy/xid-errors).
FATAL_XIDS = {48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143, 154}
RECENT_S = 3600.0  # older Xids are assumed to be handled


def main(fast, gpus, wanted_ports):
    """Print the line and return the exit status.

    `fast` is the caller, "slurm" or "kubernetes"; `gpus` and `wanted_ports` are the expected
    numbers.
    """
    signal.signal(signal.SIGALRM, lambda *_: _exit_at_deadline(fast))
    signal.alarm(STOPS_S)
    began = time.monotonic()
    deadline = began + DEADLINE_S
    faults, unknown, seen = look(gpus, wanted_ports, deadline)
    signal.alarm(0)
    elapsed_s = time.monotonic() - began
    seen = "%s, %.1f s" % (seen, elapsed_s)
    return report(fast, faults, unknown, seen)


def report(fast, faults, unknown, seen):
    """Print the faults, else the unknown states, else a summary; return the exit status."""
    status = 0
    if faults:
        line = "fault: " + "; ".join(faults)
        status = 1
    elif unknown:
        line = "not known: " + "; ".join(unknown)
        status = _unknown_status(fast)
    else:
        line = "ok: " + seen
    text = "".join(letter for letter in line if letter.isprintable())
    if len(text) > WIDEST:
        text = text[: WIDEST - 3] + "..."
    print("seatrial " + text, flush=True)
    return status


def _unknown_status(fast):
    """Return the exit status for an unknown state; Slurm has no third status, so it is no fault
    there.
    """
    if fast == "kubernetes":
        return 2
    return 0


def _exit_at_deadline(fast):
    """Exit at once, since a health check that hangs would be killed and the node drained."""
    sys.stdout.write("seatrial not known: no answer within %d s\n" % STOPS_S)
    sys.stdout.flush()
    os._exit(_unknown_status(fast))


def look(gpus, wanted_ports, deadline):
    """Return the faults of this machine, unknown states, and a summary.

    The first two are lists of sentences, the last is one sentence. Queries without an answer until
    `deadline` (time.monotonic) are skipped.
    """
    faults = []
    unknown = []
    listed = inventory.gpu_list(deadline)
    on_bus = {each.rpartition(".")[0] for each in inventory.gpu_addresses([])}
    if len(listed) < gpus:
        found = len(listed) or len(on_bus)
        if found < gpus:
            faults.append("%d of %d GPUs" % (found, gpus))
        else:
            unknown.append("neither nvidia-smi nor amd-smi lists a GPU")
    # Where no link is up NVLink is not in use, as between PCIe cards without a bridge
    has_links = any(any(gpu.get("nvlinks") or ()) for gpu in listed)
    for gpu in listed:
        for problem in of_gpu(gpu, has_links):
            faults.append("%s %s" % (gpu["name"], problem))
    addresses = inventory.gpu_addresses(listed)
    if addresses:
        log = inventory.kernel_log(addresses, ports.rdma_addresses())
        if log:
            xids, _ = log
            faults.extend(of_kernel(xids))
    active = [port["port"] for port in ports.infiniband_ports() if port["up"]]
    if len(active) < wanted_ports:
        faults.append("%d of %d ports are active" % (len(active), wanted_ports))
    seen = "%d GPUs without a fault, %d active ports" % (len(listed), len(active))
    return faults, unknown, seen


def of_gpu(gpu, has_links):
    """Yield damage and hardware slowdowns that the GPU itself reports.

    `gpu` is an entry of `inventory.gpu_list`; a missing field is no fault. `has_links`: some GPU
    of the node has a link that is up.
    """
    recovery = str(gpu.get("recovery") or "")
    if gpu.get("requires_reset"):
        yield "requires a reset"
    elif recovery.lower() not in NOTHING:
        yield "asks for recovery: " + recovery[:40]
    if gpu.get("rows_failed"):
        yield "has memory that cannot be repaired"
    if gpu.get("ecc_uncorrected"):
        yield "has %d uncorrectable ECC errors" % gpu["ecc_uncorrected"]
    for name in ("fabric_state", "fabric_status"):
        state = str(gpu.get(name) or "")
        if state.lower() not in NOTHING:
            yield "NVLink fabric: " + state[:40]
    links = gpu.get("nvlinks") or []
    if has_links and 0 in links:
        kind = "NVLinks" if "rows_failed" in gpu else "XGMI links"  # AMD remaps no rows
        yield "has %d of %d %s down" % (links.count(0), len(links), kind)
    slowdowns = gpu.get("slowdown") or []
    causes = [cause for cause in slowdowns if cause.startswith(("hardware", "power"))]
    if causes:
        yield "is slowed down: " + ", ".join(causes)


def of_kernel(xids):
    """Yield the driver's errors of the last hour that call for a repair.

    An error of unknown age counts as new.
    """
    for error in xids:
        kind = error["kind"]
        number = error["number"]
        is_fatal = number in FATAL_XIDS
        if kind == "SXid":
            is_fatal = "Non-fatal" not in error.get("text", "")
        if is_fatal and error.get("age_s", 0.0) <= RECENT_S:
            place = str(error["pci"])[:20]
            yield "%s %d at %s" % (kind, number, place)
