"""Read p2pBandwidthLatencyTest: matrices of GPUs, with and without peer access. Pure."""

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import TypeVar

from seatrial.model.measurement import Measurement, Subject
from seatrial.readers.nvidia_smi import MEMORY, NVLINK
from seatrial.readers.report import Lines, Report, Results, degraded, passed
from seatrial.text.lazy_pattern import lazy
from seatrial.text.words import quantity

_NO_PEER = "tool-gpu-no-peer"
_PEER_SLOW = "tool-gpu-peer-slow"
Place = TypeVar("Place")  # a GPU, or a pair of them
Matrix = list[list[float]]
Matrices = dict[str, Matrix]  # by title
Pairs = dict[tuple[int, int], float]  # GB/s from one GPU to another
# `[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]`
P2P_BEGINS = lazy(
    r"\s{0,40}\[?(?:\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]|P2P Connectivity Matrix"
    r"|(?:Uni|Bi)directional P2P=(?:Dis|En)abled Bandwidth)"
)
P2P_LINE = lazy(
    r"\A\s*+(?:\[P2P |P2P (?:Connectivity|=)|P2P=|(?:Uni|Bi)directional P2P=|D\\D |GPU  |CPU  "
    r"|\*\*\*NOTE: In case"
    "|So you can see lesser|NOTE: The CUDA Samples|Device[:=] "
    r"?\d|\d{1,3}+(?:\s++\d{1,6}+(?:\.\d{1,3}+)?)++\s*+\Z)"
)
# `Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)`
_TITLE = lazy(
    r"\s{0,40}((?:Uni|Bi)directional P2P=(?:Dis|En)abled Bandwidth(?: \(P2P "
    r"(?:Writes|Reads)\))?|P2P Connectivity"
    r"|P2P=\w{7,8} Latency)"
)
# `0 2504.83 388.11`
_NUMBERS = lazy(r"\A\s*+(\d{1,3}+)((?:\s++\d{1,6}+(?:\.\d{1,3}+)?)++)\s*+\Z")
# `Device=0 CANNOT Access Peer Device=1`
_PEER = lazy(r"\s{0,40}Device=(\d{1,3}) CANNOT Access Peer Device=(\d{1,3})")
_MAX_GPUS = 64
_ALIKE = 0.8  # of the median: how near most pairs are in a uniform topology
_SLOW = 0.7  # of the median
_UNIFORM = 0.75  # part of the pairs that is alike
_SLOWER = 0.8  # of the rate through the host


def read_p2p(lines: Lines) -> Report:
    """Read the matrices with peer access: a pair or a GPU that is slower than most others."""
    matrices: Matrices = {}
    refused = []
    title = ""
    for line in lines:
        if match := _TITLE.match(line):
            title = match[1]
        elif match := _PEER.match(line):
            refused.append((match[1], match[2]))
        elif match := _NUMBERS.match(line):
            matrix = matrices.setdefault(title, [])
            if len(matrix) < _MAX_GPUS:
                values = match[2].split()[:_MAX_GPUS]
                matrix.append(list(map(float, values)))
    return _report(matrices, refused)


def _report(matrices: Matrices, refused: Sequence[tuple[str, str]]) -> Report:
    """Return what the matrices show, and pairs that were `refused` peer access."""
    enabled = _first(matrices, "Unidirectional P2P=Enabled")
    disabled = _first(matrices, "Unidirectional P2P=Disabled")
    connected = matrices.get("P2P Connectivity", [])
    direct = _between(enabled, connected)
    through_host = _between(disabled, connected)
    results = [
        *_without_peer(connected, refused),
        *_slow_with_access(matrices, connected),
        *slow_gpus(MEMORY, "memory", _own(enabled)),
        *_slower_than_without(direct, through_host),
    ]
    if matrices and not results:
        results.append(passed("P2P"))
    measured = []
    if direct:
        usual = median(direct.values())
        measured.append(bandwidth("p2p median", usual))
    return Report("p2pBandwidthLatencyTest", results, measured)


def _slow_with_access(matrices: Matrices, connected: Matrix) -> Results:
    """Yield what is slow in any matrix with peer access."""
    for name, matrix in matrices.items():
        if "P2P=Enabled Bandwidth" not in name:
            continue
        words = name.lower().replace(" p2p=enabled bandwidth", "")
        which = words.replace("p2p ", "")
        pairs = _between(matrix, connected)
        yield from slow_pairs(which, pairs)


def _first(matrices: Matrices, title: str) -> Matrix:
    """Return the first matrix whose title begins with `title`; an empty matrix without one."""
    for name, matrix in matrices.items():
        if name.startswith(title):
            return matrix
    return []


def _between(matrix: Matrix, connected: Matrix) -> Pairs:
    """Return the values of pairs of different GPUs that have access to each other."""
    pairs = {}
    for row, values in enumerate(matrix):
        for column, value in enumerate(values):
            has_access = not connected or _at(connected, row, column) > 0
            if row != column and has_access:
                pairs[row, column] = value
    return pairs


def _slower_than_without(direct: Pairs, through_host: Pairs) -> Results:
    """Yield peer access that is slower than copies through the memory of the host."""
    if not direct or not through_host:
        return
    usual = median(direct.values())
    without = median(through_host.values())
    if usual < _SLOWER * without:
        yield degraded(
            _PEER_SLOW,
            f"GPU to GPU {quantity(usual, 'GB/s')} with peer access, "
            f"{quantity(without, 'GB/s')} without",
        )


def _without_peer(connected: Matrix, refused: Sequence[tuple[str, str]]) -> Results:
    """Yield GPUs that lack access to all others, while others have it."""
    alone = []
    if len(connected) > 2:
        for gpu, row in enumerate(connected):
            if sum(row) <= 1:
                alone.append(str(gpu))
    if alone and len(alone) < len(connected):
        gpus = ", ".join(alone)
        yield degraded(_NO_PEER, f"GPU {gpus} has no peer access to the others")
    elif refused and not connected:
        first, second = refused[0]
        yield degraded(_NO_PEER, f"GPU {first} has no peer access to GPU {second}")


def slow_pairs(which: str, pairs: Pairs) -> Results:
    """Yield the slower direction of two GPUs; of more GPUs, the slow ones, or else the slow
    pairs.
    """
    if len(pairs) == 2:
        yield from _slower_way(which, pairs)
    if len(pairs) < 6:
        return
    best_of = _best_of_gpus(pairs)
    usual = median(best_of.values())
    slow = _slow(best_of, usual)
    for gpu, best in sorted(slow.items()):
        words = f"{which} GPU {gpu}: {best:g} GB/s at best, where others have {usual:g}"
        yield degraded(NVLINK, words)
    if not slow:
        yield from _slow_links(which, pairs)


def _slow_links(which: str, pairs: Pairs) -> Results:
    """Yield slow pairs of GPUs that are not slow themselves, where most pairs are alike."""
    usual = median(pairs.values())
    alike = sum(value >= _ALIKE * usual for value in pairs.values())
    if alike < _UNIFORM * len(pairs):
        return
    slow = _slow(pairs, usual)
    if not slow:
        return
    place = _place_of(slow)
    least = min(slow.values())
    yield degraded(NVLINK, f"{which} {place}: {least:g} GB/s, where others have {usual:g}")


def _slower_way(which: str, pairs: Pairs) -> Results:
    """Yield one direction between two GPUs if it is half as fast as the other."""
    (source, target), slow = min(pairs.items(), key=itemgetter(1))
    fast = max(pairs.values())
    if slow < fast / 2:
        yield degraded(NVLINK, f"{which} GPU {source} to {target}: {slow:g} GB/s, back {fast:g}")


def _place_of(pairs: Collection[tuple[int, int]]) -> str:
    """Name the one GPU that all pairs have in common, else the first pairs."""
    common = set.intersection(*map(set, pairs))
    if len(common) == 1:
        return f"GPU {common.pop()}"
    shown = list(pairs)[:4]
    return ", ".join(f"{source} to {target}" for source, target in shown)


def _best_of_gpus(pairs: Pairs) -> dict[int, float]:
    """Return the value of the fastest pair of each GPU."""
    best: dict[int, float] = {}
    for pair, value in pairs.items():
        for gpu in pair:
            best[gpu] = max(value, best.get(gpu, 0.0))
    return best


def _slow(values: Mapping[Place, float], usual: float) -> dict[Place, float]:
    """Return the values that are much below the usual one."""
    slow = {}
    for place, value in values.items():
        if value < _SLOW * usual:
            slow[place] = value
    return slow


def _at(matrix: Matrix, row: int, column: int) -> float:
    """Return a value; 0 outside of the matrix, whose rows may be cut short."""
    if row < len(matrix) and column < len(matrix[row]):
        return matrix[row][column]
    return 0.0


def _own(matrix: Matrix) -> dict[int, float]:
    """Return the rate of each GPU's own memory, the diagonal."""
    own = {}
    for gpu, values in enumerate(matrix):
        if gpu < len(values):
            own[gpu] = values[gpu]
    return own


def slow_gpus(code: str, what: str, rates: Mapping[int, float]) -> Results:
    """Yield GPUs whose rates in GB/s are lower than those of at least two others."""
    if len(rates) < 3:
        return
    usual = median(rates.values())
    slow = _slow(rates, usual)
    for gpu, value in slow.items():
        yield degraded(code, f"GPU {gpu}: {what} at {value:g} GB/s, others at {usual:g}")


def bandwidth(test: str, value: float) -> Measurement:
    """Return the measurement of a test: the sum of its copies in GB/s, or of its latencies in
    ns.
    """
    metric, unit = "copy_bandwidth_sum", "GB/s"
    if "latency" in test:
        metric, unit = "copy_latency_sum", "ns"
    return Measurement(
        metric=metric,
        value=value,
        unit=unit,
        subject=Subject("node", "node"),
        conditions={"test": test},
        samples=(value,),
    )
