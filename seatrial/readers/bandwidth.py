"""Read tests of GPUs: nvbandwidth (text and JSON), p2pBandwidthLatencyTest, gpu-burn. Pure."""

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from statistics import median
from typing import Any

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Explanation
from seatrial.model.verdict import Verdict
from seatrial.readers.documents import items
from seatrial.readers.nvidia_smi import LOST, MEMORY, NVLINK, SLOWED
from seatrial.readers.report import SAYS_BAD, WRONG_DATA, Report, Result

_NO_PEER = "tool-gpu-no-peer"
_SUM = re.compile(r"SUM (\w{1,80}) (\d{1,9}(?:\.\d{1,6})?)\s*$")
_WRONG_DATA = re.compile(r"Invalid value when checking the pattern|ASSERT in expression h_errorFlag")
_NV_ERROR = re.compile(r"\[?(?:CUDA_ERROR_\w{1,60}|NVML_ERROR_\w{1,60})\]?.{0,160}")
NVBANDWIDTH_LINE = re.compile(
    r"\A(?:Running \w|SUM \w|Waived|memcpy |\s*+\d++(?:\s++(?:\d++\.\d++|N/A))++\s*+\Z|\s++\d++(?:\s++\d++)*+\s*+\Z"
    r"|Built from|CUDA (?:Runtime|Driver) Version|Driver Version|MPI version|NOTE: |Process \d|Device \d|Number of"
    rf"|.{{0,200}}?(?:{_WRONG_DATA.pattern}|CUDA_ERROR_|NVML_ERROR_))"
)


def read_nvbandwidth(lines: Sequence[str]) -> Report:
    """Read sums in GB/s, wrong data and errors, each with its test."""
    test = ""
    results: list[Result] = []
    measurements: list[Measurement] = []
    for line in lines:
        if line.startswith("Running "):
            test = line.removeprefix("Running ").strip(" .")[:80]
        elif _WRONG_DATA.search(line):
            results.append(Result(Verdict.CORRUPT, WRONG_DATA, f"{test}: data was wrong after a copy"))
        elif match := _NV_ERROR.search(line):
            results.append(Result(Verdict.FAIL, SAYS_BAD, f"{test}: {match[0]}"))
        elif match := _SUM.match(line):
            measurements.append(_bandwidth(match[1], float(match[2])))
    return Report("nvbandwidth", tuple(results), tuple(measurements))


def _bandwidth(test: str, gb_s: float) -> Measurement:
    return Measurement("copy_bandwidth_sum", gb_s, "GB/s", Subject("node", "node"), {"test": test}, (gb_s,))


def read_document(document: dict[str, Any]) -> Report | None:
    """The report of `nvbandwidth --json`; None for another document."""
    found = document.get("nvbandwidth")
    if not isinstance(found, dict):
        return None
    results: list[Result] = []
    measurements: list[Measurement] = []
    for test in items(found, "testcases"):
        status, total = str(test.get("status", "")), test.get("sum")
        if status.lower() in ("error", "failed"):
            is_wrong = _WRONG_DATA.search(str(test))
            verdict, code = (Verdict.CORRUPT, WRONG_DATA) if is_wrong else (Verdict.FAIL, SAYS_BAD)
            results.append(Result(verdict, code, f"{test.get('name')}: {test.get('error') or status}"))
        elif isinstance(total, int | float) and not isinstance(total, bool):
            measurements.append(_bandwidth(str(test.get("name"))[:80], float(total)))
    return Report("nvbandwidth", tuple(results), tuple(measurements))


Matrix = list[list[float]]
P2P_BEGINS = re.compile(
    r"\s{0,40}\[?(?:\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]|P2P Connectivity Matrix"
    r"|(?:Uni|Bi)directional P2P=(?:Dis|En)abled Bandwidth)"
)
P2P_LINE = re.compile(
    r"\A\s*+(?:\[P2P |P2P (?:Connectivity|=)|P2P=|(?:Uni|Bi)directional P2P=|D\\D |GPU  |CPU  |\*\*\*NOTE: In case"
    r"|So you can see lesser|NOTE: The CUDA Samples|Device[:=] ?\d|\d{1,3}+(?:\s++\d{1,6}+(?:\.\d{1,3}+)?)++\s*+\Z)"
)
_TITLE = re.compile(
    r"\s{0,40}((?:Uni|Bi)directional P2P=(?:Dis|En)abled Bandwidth|P2P Connectivity|P2P=\w{7,8} Latency)"
)
_NUMBERS = re.compile(r"\A\s*+(\d{1,3}+)((?:\s++\d{1,6}+(?:\.\d{1,3}+)?)++)\s*+\Z")
_PEER = re.compile(r"\s{0,40}Device=(\d{1,3}) CANNOT Access Peer Device=(\d{1,3})")
_MAX_GPUS = 64
_ALIKE, _SLOW = 0.8, 0.7  # of the median: how near most pairs are in a uniform topology, and a slow one
_UNIFORM = 0.75  # part of the pairs that is alike


def read_p2p(lines: Sequence[str]) -> Report:
    """Read the matrices with peer access: a pair or a GPU that is slower than most others."""
    matrices: dict[str, Matrix] = {}
    refused: list[tuple[str, str]] = []
    title = ""
    for line in lines:
        if match := _TITLE.match(line):
            title = match[1]
        elif match := _PEER.match(line):
            refused.append((match[1], match[2]))
        elif (match := _NUMBERS.match(line)) and len(matrices.get(title, ())) < _MAX_GPUS:
            matrices.setdefault(title, []).append([float(value) for value in match[2].split()[:_MAX_GPUS]])
    enabled = matrices.get("Unidirectional P2P=Enabled Bandwidth", [])
    connected = matrices.get("P2P Connectivity", [])
    results = [*_without_peer(connected, refused)]
    for name, matrix in matrices.items():
        if name.endswith("Enabled Bandwidth"):
            results += _slow_pairs(name.split()[0].lower(), matrix, connected)
    results += _slow_memory(enabled)
    if matrices and not results:
        results.append(Result(Verdict.PASS, SAYS_BAD, "P2P"))
    pairs = [value for row, values in enumerate(enabled) for column, value in enumerate(values) if row != column]
    measured = [_bandwidth("p2p median", median(pairs))] if pairs else []
    return Report("p2pBandwidthLatencyTest", tuple(results), tuple(measured))


def _without_peer(connected: Matrix, refused: Sequence[tuple[str, str]]) -> Iterator[Result]:
    """GPUs that lack access to all others, while others have it."""
    count = len(connected)
    alone = [gpu for gpu, row in enumerate(connected) if count > 2 and sum(row) <= 1]
    if alone and len(alone) < count:
        named = ", ".join(map(str, alone))
        yield Result(Verdict.DEGRADED, _NO_PEER, f"GPU {named} has no peer access to the others")
    elif refused and not connected:
        first, second = refused[0]
        yield Result(Verdict.DEGRADED, _NO_PEER, f"GPU {first} has no peer access to GPU {second}")


def _slow_pairs(which: str, matrix: Matrix, connected: Matrix) -> Iterator[Result]:
    pairs = {
        (row, column): value
        for row, values in enumerate(matrix)
        for column, value in enumerate(values)
        if row != column and (not connected or _at(connected, row, column) > 0)
    }
    if len(pairs) == 2:
        (source, target), slow = min(pairs.items(), key=itemgetter(1))
        fast = max(pairs.values())
        if slow < fast / 2:
            yield Result(Verdict.DEGRADED, NVLINK, f"{which} GPU {source} to {target}: {slow:g} GB/s, back {fast:g}")
        return
    if len(pairs) < 6:
        return
    if slow_gpus := _slow_gpus(pairs):
        for gpu, best, usual in slow_gpus:
            words = f"{which} GPU {gpu}: {best:g} GB/s at best, where others have {usual:g}"
            yield Result(Verdict.DEGRADED, NVLINK, words)
        return
    usual = median(pairs.values())
    alike = sum(value >= _ALIKE * usual for value in pairs.values())
    slow_pairs = [pair for pair, value in pairs.items() if value < _SLOW * usual]
    if not slow_pairs or alike < _UNIFORM * len(pairs):
        return
    common = set.intersection(*(set(pair) for pair in slow_pairs))
    least = min(pairs[pair] for pair in slow_pairs)
    where = f"GPU {common.pop()}" if len(common) == 1 else ", ".join(f"{a} to {b}" for a, b in slow_pairs[:4])
    yield Result(Verdict.DEGRADED, NVLINK, f"{which} {where}: {least:g} GB/s, where others have {usual:g}")


def _slow_gpus(pairs: dict[tuple[int, int], float]) -> list[tuple[int, float, float]]:
    """The GPUs whose fastest pair is slower than that of most others, with it and the usual one."""
    best: dict[int, float] = {}
    for pair, value in pairs.items():
        for gpu in pair:
            best[gpu] = max(value, best.get(gpu, 0.0))
    usual = median(best.values())
    return [(gpu, value, usual) for gpu, value in sorted(best.items()) if value < _SLOW * usual]


def _at(matrix: Matrix, row: int, column: int) -> float:
    return matrix[row][column] if row < len(matrix) and column < len(matrix[row]) else 0.0


def _slow_memory(matrix: Matrix) -> Iterator[Result]:
    """GPUs whose own memory, the diagonal, is slower than that of the others."""
    own = [values[row] for row, values in enumerate(matrix) if row < len(values)]
    if len(own) < 3:
        return
    usual = median(own)
    for gpu, value in enumerate(own):
        if value < _SLOW * usual:
            yield Result(Verdict.DEGRADED, MEMORY, f"GPU {gpu}: memory at {value:g} GB/s, others at {usual:g}")


BURN_BEGINS = re.compile(
    r"(?:Using compare file: |Burning for \d|Initialized device \d{1,3} with \d|\s{0,40}\d{1,3}\.\d%\s{1,4}proc'd: )"
)
BURN_LINE = re.compile(
    r"\A(?:\s*\d{1,3}\.\d%\s+proc'd: |\s+Summary at: |Killing processes|Freed memory for dev|Uninitted cublas|done\s*\Z"
    r"|Tested \d+ GPUs:|\s+GPU \d{1,3}: (?:OK|FAULTY)|Results are \d|Initialized device|Using compare file|Burning for"
    r"|GPU \d{1,3}: .{1,80}\(UUID: |Couldn't init a GPU test|No clients are alive|Failure during compute)"
)
_BURN_STATE = re.compile(r"\s{0,40}GPU (\d{1,3}): (OK|FAULTY)")
_BURN_ERRORS = re.compile(r"(-?\d{1,12})\s{0,4}(\(DIED!\))?")
_BURN_FLOPS = re.compile(r"\((\d{1,9}) Gflop/s\)")
_BURN_LOST = re.compile(r"Couldn't init a GPU test.{0,160}|No clients are alive.{0,40}|Failure during compute.{0,160}")


def read_gpu_burn(lines: Sequence[str]) -> Report:
    """Read the last line of each GPU, the errors on the way, and the rates of the GPUs beside each other."""
    results: list[Result] = []
    errors: dict[int, str] = {}
    rates: list[float] = []
    states: dict[int, str] = {}
    for line in lines:
        if match := _BURN_STATE.match(line):
            states[int(match[1])] = match[2]
        elif match := _BURN_LOST.search(line):
            results.append(Result(Verdict.FAIL, LOST, match[0]))
        elif "proc'd" in line:
            counts = _BURN_ERRORS.findall(line.partition("errors:")[2].partition("temps:")[0])
            errors |= {gpu: "DIED" if died else count for gpu, (count, died) in enumerate(counts) if count != "0"}
            rates = [float(rate) for rate in _BURN_FLOPS.findall(line)] or rates
    for gpu in sorted({*errors, *(gpu for gpu, state in states.items() if state == "FAULTY")}):
        died = errors.get(gpu) == "DIED"
        words = f"GPU {gpu}: " + ("its process died" if died else f"{errors.get(gpu, 'some')} wrong results")
        results.append(Result(Verdict.FAIL if died else Verdict.CORRUPT, LOST if died else WRONG_DATA, words))
    if len(rates) > 2:
        usual = median(rates)
        slow = [(gpu, rate) for gpu, rate in enumerate(rates) if rate < 0.85 * usual]
        results += [
            Result(Verdict.DEGRADED, SLOWED, f"GPU {gpu}: {rate:g} Gflop/s, others {usual:g}") for gpu, rate in slow
        ]
    results += [Result(Verdict.PASS, SAYS_BAD, f"GPU {gpu}") for gpu in states if gpu not in errors]
    return Report("gpu-burn", tuple(results))


REASONS = {
    _NO_PEER: Explanation(
        "{tool}: {what}",
        "A GPU cannot reach the memory of the others, which can reach each other.",
        "`nvidia-smi topo -p2p r` on that node; check NVLink (`nvidia-smi nvlink -s`), ACS and the IOMMU.",
    ),
}
