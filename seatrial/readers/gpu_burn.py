"""Read gpu_burn: errors, and the rates of GPUs of one model beside each other. Pure."""

from dataclasses import dataclass, field
from statistics import median

from seatrial.readers.nvidia_smi import LOST, SLOWED
from seatrial.readers.report import (
    WRONG_DATA,
    Lines,
    Report,
    Result,
    corrupt,
    degraded,
    failed,
    passed,
)
from seatrial.text.lazy_pattern import lazy

TextByGpu = dict[int, str]
BEGINS = lazy(
    r"(?:Using compare file: |Burning for \d|Initialized device \d{1,3} with \d|Couldn't init a "
    "GPU test"
    r"|\s{0,40}\d{1,3}\.\d%\s{1,4}proc'd: )"
)
LINE = lazy(
    r"\A(?:\s*\d{1,3}\.\d%\s+proc'd: |\s+Summary at: |Killing processes|Freed memory for "
    r"dev|Uninitted cublas|done\s*\Z"
    r"|Tested \d+ GPUs:|\s+GPU \d{1,3}: (?:OK|FAULTY)|Results are \d|Initialized device|Using "
    "compare file|Burning for"
    r"|GPU \d{1,3}: .{1,80}\(UUID: |Couldn't init a GPU test|No clients are alive|Failure during "
    "compute)"
)
_STATE = lazy(r"\s{0,40}GPU (\d{1,3}): (OK|FAULTY)")
# Models differ in their memory
_MODEL = lazy(r"Initialized device (\d{1,3}) with (\d{1,7}) MB of memory")
_ERRORS = lazy(r"(-?\d{1,12})\s{0,4}(\(DIED!\))?")
_RATE = lazy(r"\((\d{1,9}) Gflop/s\)")
_LOST = lazy(
    r"Couldn't init a GPU test.{0,160}|No clients are alive.{0,40}|Failure during compute.{0,160}"
)
_SLOW = 0.85  # of the median of the GPUs of that model


@dataclass(slots=True)
class _Burn:
    """What the lines say of each GPU.

    `rates`, in Gflop/s, are those of the last line that has any.
    """

    models: TextByGpu = field(default_factory=dict)
    states: TextByGpu = field(default_factory=dict)
    errors: TextByGpu = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        """Take one line."""
        if state := _STATE.match(line):
            self.states[int(state[1])] = state[2]
        elif model := _MODEL.match(line):
            self.models[int(model[1])] = model[2]
        elif lost := _LOST.search(line):
            self.lost.append(lost[0])
        elif "proc'd" in line:  # the progress of all GPUs
            counts = line.partition("errors:")[2].partition("temps:")[0]
            for gpu, (count, died) in enumerate(_ERRORS.findall(counts)):
                if count != "0":
                    self.errors[gpu] = "DIED" if died else count
            rates = _RATE.findall(line)
            if rates:
                self.rates = dict(enumerate(map(float, rates)))

    def faulty(self) -> list[int]:
        """Return the GPUs with errors, and those that the end of the test calls faulty."""
        return sorted(
            {*self.errors, *(gpu for gpu, state in self.states.items() if state == "FAULTY")}
        )


def read_gpu_burn(lines: Lines) -> Report:
    """Name GPUs with wrong results, those whose process died, and slow ones.

    A GPU passes only if it computed.
    """
    burn = _Burn()
    for line in lines:
        burn.take(line)
    faulty = burn.faulty()
    computed = [gpu for gpu in burn.states if burn.rates.get(gpu, 0.0) > 0]
    results = [
        *(failed(LOST, words) for words in burn.lost),
        *(_of_faulty(gpu, burn.errors.get(gpu, "some")) for gpu in faulty),
        *_slow(burn),
        *(passed(f"GPU {gpu}") for gpu in computed if gpu not in faulty),
    ]
    return Report("gpu-burn", results)


def _of_faulty(gpu: int, errors: str) -> Result:
    """Return the result of a GPU that computed wrongly, or whose process died."""
    if errors == "DIED":
        return failed(LOST, f"GPU {gpu}: its process died")
    count = errors.lstrip("-")  # the counter of 32 bits overflows
    return corrupt(WRONG_DATA, f"GPU {gpu}: {count} wrong results")


def _slow(burn: _Burn) -> list[Result]:
    """Return GPUs that compute less than most of the same model."""
    by_model: dict[str, dict[int, float]] = {}
    for gpu, rate in burn.rates.items():
        if gpu not in burn.errors:
            model = burn.models.get(gpu, "")
            by_model.setdefault(model, {})[gpu] = rate
    results = []
    for rates in by_model.values():
        if len(rates) < 3:
            continue
        usual = median(rates.values())
        results += [
            degraded(SLOWED, f"GPU {gpu}: {rate:g} Gflop/s, others {usual:g}")
            for gpu, rate in rates.items()
            if rate < _SLOW * usual
        ]
    return results
