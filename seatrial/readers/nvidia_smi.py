"""Read `nvidia-smi -q`. Pure."""

import re
from collections.abc import Iterator, Sequence

from seatrial.model.reason import Explanation
from seatrial.model.verdict import Verdict
from seatrial.readers.report import SAYS_BAD, Report, Result

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{5,8})\s*$")
LINE = re.compile(
    r"\A(?:GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{5,8}\s*\Z|(?:Timestamp|Driver Version|CUDA Version|Attached GPUs) +:"
    r"|(?:    ){1,6}[A-Z][\w /().%,-]{0,60}+(?: : .*)?\Z|\s*+[A-Z][\w /().%,-]{0,60} : )"
)
_YES, _NONE = ("yes", "active"), ("none", "n/a", "[n/a]", "")
_RESET, _MEMORY, _SLOWED, _FABRIC = "gpu-reset-needed", "gpu-memory-faulty", "gpu-slowed-down", "gpu-off-fabric"
_FAULTS = (  # the end of a field's path, the values that are bad (None: a count above 0), and what they mean
    (("remapped rows", "remapping failure occurred"), _YES, Verdict.FAIL, _MEMORY, "rows could not be remapped"),
    (("remapped rows", "pending"), _YES, Verdict.DEGRADED, _RESET, "a remapped row waits for a reset"),
    (("clocks event reasons", "hw slowdown"), _YES, Verdict.DEGRADED, _SLOWED, "slowed down by hardware"),
    (("hw slowdown", "hw thermal slowdown"), _YES, Verdict.DEGRADED, _SLOWED, "slowed down by heat"),
    (("hw slowdown", "hw power brake slowdown"), _YES, Verdict.DEGRADED, _SLOWED, "slowed down by the power brake"),
    (("volatile", "dram uncorrectable"), None, Verdict.DEGRADED, _MEMORY, "uncorrectable memory errors"),
    (("volatile", "sram uncorrectable parity"), None, Verdict.DEGRADED, _MEMORY, "uncorrectable SRAM errors"),
    (("volatile", "sram uncorrectable sec-ded"), None, Verdict.DEGRADED, _MEMORY, "uncorrectable SRAM errors"),
    (
        ("fabric", "state"),
        ("in progress", "not started"),
        Verdict.FAIL,
        _FABRIC,
        "not registered with its fabric",
    ),
)


def read_query(lines: Sequence[str]) -> Report:
    """Read the faults that each GPU reports; `GPU requires reset` and `ERR!` stand in place of values."""
    results: list[Result] = []
    for gpu, fields in _gpus(lines):
        faults = [Result(verdict, code, f"GPU {gpu}: {what}") for verdict, code, what in _faults(fields)]
        results += faults or [Result(Verdict.PASS, SAYS_BAD, gpu)]
    return Report("nvidia-smi", tuple(results))


def _gpus(lines: Sequence[str]) -> Iterator[tuple[str, dict[tuple[str, ...], str]]]:
    """The fields of each GPU by the headings that they stand under, in small letters."""
    gpu, above = "", list[str]()
    fields: dict[tuple[str, ...], str] = {}
    for line in lines:
        if match := _GPU.match(line):
            if gpu:
                yield gpu, fields
            gpu, fields, above = match[1], {}, []
            continue
        label, _, value = line.partition(" : ")
        depth = (len(label) - len(label.lstrip())) // 4
        above = [*above[: max(depth - 1, 0)], label.strip().lower()]
        if gpu and value:
            fields[tuple(above)] = value.strip()
    if gpu:
        yield gpu, fields


def _faults(fields: dict[tuple[str, ...], str]) -> Iterator[tuple[Verdict, str, str]]:
    values = [value.lower() for value in fields.values()]
    if any("requires reset" in value for value in values):
        yield Verdict.FAIL, _RESET, "it requires a reset"
    if (lost := sum("err!" in value or "unknown error" in value for value in values)) > 0:
        yield Verdict.FAIL, "gpu-unreadable", f"{lost} fields cannot be read (ERR!)"
    for path, value in fields.items():
        if path[-1] == "gpu recovery action" and value.lower() not in _NONE:
            yield Verdict.FAIL, _RESET, f"the driver asks for: {value}"
        if path[-2:] == ("fabric", "status") and value.lower() not in ("success", *_NONE):
            yield Verdict.FAIL, _FABRIC, f"fabric status: {value}"
        for end, bad, verdict, code, what in _FAULTS:
            count = int(value) if bad is None and re.fullmatch(r"\d{1,12}", value) else 0
            if path[-2:] == end and (count if bad is None else value.lower() in bad):
                yield verdict, code, f"{what} ({count})" if count else what
    widths = {path[-1]: value for path, value in fields.items() if path[-2:-1] == ("link width",)}
    current, widest = (re.fullmatch(r"(\d{1,3})x", widths.get(key, "")) for key in ("current", "max"))
    if current and widest and int(current[1]) < int(widest[1]):
        yield Verdict.DEGRADED, "gpu-pcie-narrow", f"PCIe x{current[1]} of x{widest[1]}"


REASONS = {
    "gpu-reset-needed": Explanation(
        "{tool}: {what}",
        "The driver asks for a reset of the GPU: a remapped row, or a fault that only a reset clears.",
        "Drain the node, then `nvidia-smi --gpu-reset -i GPU`, or reboot it; `nvidia-smi -q` must be clean after.",
    ),
    "gpu-memory-faulty": Explanation(
        "{tool}: {what}",
        "The GPU counts memory errors that it could not correct, or has no spare rows left.",
        "Drain the node, reset the GPU (`nvidia-smi --gpu-reset -i GPU`), and run `dcgmi diag -r 3`; replace the GPU if"
        " remapping failed or the count grows.",
    ),
    "gpu-slowed-down": Explanation(
        "{tool}: {what}",
        "The hardware keeps the GPU's clocks down: heat, power brake, or a fault of the supply.",
        "`nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER` on that node; check airflow, coolant and power supplies.",
    ),
    "gpu-off-fabric": Explanation(
        "{tool}: {what}",
        "The GPU is not registered with the fabric manager, or its NVLink fabric is not healthy.",
        "`systemctl status nvidia-fabricmanager` and its log on that node; restart it, then reset all GPUs.",
    ),
    "gpu-unreadable": Explanation(
        "{tool}: {what}",
        "The driver cannot read fields of the GPU: it hangs or fell off the bus.",
        "Drain the node, look for Xid 79 in `dmesg`, and reboot it; reseat or replace the GPU if it comes again.",
    ),
    "gpu-pcie-narrow": Explanation(
        "{tool}: {what}",
        "The PCIe link of the GPU has fewer lanes, or a lower speed, than it could have.",
        "`lspci -vv -s BUSID` on that node; reseat the GPU, its riser or its cable.",
    ),
}
