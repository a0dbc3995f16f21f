"""How often the judge is wrong: write docs/error-rates.csv and the table of docs/error-rates.md.

    python benchmarks/judge_error_rates.py [--rows t4 normal ...] [--cases] [--nodes 8 64 232]
        [--nights 8 30] [--readings 24] [--scale 1] [--seed S] [--processes N] [--no-oracle]
        [--write]

Rows of simulated and of recorded fleets and of faults (benchmarks/fleet_rows.py) go through
`seatrial.runs.replay.replay`, as `seatrial replay` takes them from a file. --scale multiplies the
number of trials.
"""

import argparse
import csv
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.fleet_rows import CASES, ROWS, Case, NoiseRow, case_rows
from benchmarks.oracle import GOALS, oracle
from seatrial.model.verdict import Verdict
from seatrial.runs.replay import ReplayedRun, replay
from seatrial.simulate.rows import Floats, Ints, all_rows, fleet_series, night_rows, node_name

TARGET = Path(__file__).parents[1] / "docs" / "error-rates.md"
MARK = "<!-- RATES -->\n"  # before and after the table


@dataclass(slots=True)
class Count:
    """Hits among trials."""

    hits: int = 0
    of: int = 0

    def add(self, hits: int, of: int) -> None:
        self.hits += hits
        self.of += of

    @property
    def share(self) -> str:
        return percent(self.hits / self.of) if self.of else "–"

    def __str__(self) -> str:
        """The share and its 95 % interval (Wilson)."""
        if not self.of:
            return "–"
        p, n, z = self.hits / self.of, self.of, 1.96
        middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
        return f"{percent(p)} ({percent(max(low, 0))}–{percent(min(high, 1))})"


def percent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + " %"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table(lines: Sequence[Sequence[str]]) -> str:
    """The page's table: a row for each noise, the shares of all sizes of fleets in each cell,
    without intervals.
    """
    chosen = (
        "first 8 nights wrong",
        "later nights wrong",
        "others blamed",
        "10 % same night",
        "5 % in 3 nights",
        "3 % in 10 nights",
    )
    rows = []
    for name, of_noise in groupby(lines, itemgetter(0)):
        columns = dict(zip(HEADINGS, zip(*of_noise, strict=True), strict=True))
        shares = (
            "/".join(cell.partition(" ")[0] for cell in columns[heading]) for heading in chosen
        )
        rows.append((f"`{name}`", *shares))
    return markdown(("noise", *chosen), rows)


def bounds(cells: Sequence[tuple[str, int]]) -> str:
    """What the oracle finds with six readings a night in each row that has them, and in each size
    of fleet.
    """
    rows = []
    several = (cell for cell in cells if not ROWS[cell[0]].one_reading)
    for name, sizes in groupby(several, itemgetter(0)):
        shares_by_size = [oracle(name, len(ROWS[name].metrics) * nodes) for _, nodes in sizes]
        columns = zip(*shares_by_size, strict=True)
        rows.append(
            (
                f"`{name}`",
                *("/".join(f"{100 * share:.0f}" for share in column) for column in columns),
            )
        )
    headings = [
        f"{100 * loss:.0f} % in {nights} night{'s'[: nights > 1]}" for loss, nights in GOALS
    ]
    return markdown(("noise", *headings), rows)


def write(lines: Sequence[Sequence[str]]) -> None:
    """Write all rates with their intervals, and the page's table between its markers."""
    with TARGET.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows((HEADINGS, *lines))
    head, _, rest = TARGET.read_text().partition(MARK)
    TARGET.write_text(f"{head}{MARK}{table(lines)}\n{MARK}{rest.partition(MARK)[2]}")
    print(f"{TARGET} written", file=sys.stderr)


Rule = Callable[[Floats, Floats, Ints], NDArray[np.bool_]]

# The documentation's example: (value - baseline) / baseline below it is defective
SUPERBENCH_VARIANCE = -0.05
REFRAME_BAND = -0.10  # the tutorial's band: the reference value -10 %


def superbench(good: Floats, tonight: Floats, metric: Ints) -> NDArray[np.bool_]:
    """Against the mean over all nodes and reference nights of the metric."""
    return np.less(tonight / _means(good, metric) - 1, SUPERBENCH_VARIANCE)


def reframe(good: Floats, tonight: Floats, metric: Ints) -> NDArray[np.bool_]:
    """Compare with a fixed reference value: the mean of the first night."""
    return np.less(tonight / _means(good[:1], metric) - 1, REFRAME_BAND)


def _means(nights: Floats, metric: Ints) -> Floats:
    totals = np.bincount(metric, nights.mean(axis=0))
    means: Floats = (totals / np.bincount(metric))[metric]
    return means


RULES: Mapping[str, Rule] = {
    "SuperBench (mean - 5 %)": superbench,
    "ReFrame (reference - 10 %)": reframe,
}


HEALTHY_NIGHTS = 10  # after the earlier ones
FAULTY_NIGHTS = 10
FLEETS = 3  # of a trial, healthy ones and ones with losses
SURE = 0.9
NODES_PER_FAULT = 32  # faults of a size at once: one in 128 series
_WATCH = re.compile(r" on (\S{1,80}) looks [^:;]{1,80}: (\d{1,3}) % sure")


@dataclass(slots=True)
class Rates:
    """Of one kind of noise and size: nights, losses and suspects, and the nights and losses of the
    rivals' rules.

    `first` and `later` nights are healthy; `others` are nights of a loss on which a node that lost
    nothing is named.
    """

    first: Count = field(default_factory=Count)
    later: Count = field(default_factory=Count)
    others: Count = field(default_factory=Count)
    ten: Count = field(default_factory=Count)
    five: Count = field(default_factory=Count)
    three: Count = field(default_factory=Count)
    twenty: Count = field(default_factory=Count)
    sure: Count = field(default_factory=Count)
    watches: list[tuple[float, bool]] = field(default_factory=list)  # how sure, and whether right
    readings: list[float] = field(default_factory=list)
    rival_nights: dict[str, Count] = field(
        default_factory=lambda: {name: Count() for name in RULES}
    )
    rival_ten: dict[str, Count] = field(default_factory=lambda: {name: Count() for name in RULES})

    def healthy(self, runs: Sequence[ReplayedRun]) -> None:
        for night, run in enumerate(runs):
            (self.first if night < 8 else self.later).add(
                bool(run.suspects) or run.verdict is not Verdict.PASS, 1
            )
            self.suspects(run, set())

    def suspects(self, run: ReplayedRun, faulty: set[str]) -> None:
        sure = [
            suspect.name.partition("/")[0] for suspect in run.suspects if suspect.confidence >= SURE
        ]
        self.sure.add(sum(name in faulty for name in sure), len(sure))
        self.watches += [
            (int(sure) / 100, part.partition("/")[0] in faulty)
            for part, sure in _WATCH.findall(str(run.reason))
        ]


def judged(row: NoiseRow, nodes: int, nights: Sequence[Floats], rates: Rates) -> list[ReplayedRun]:
    """The runs of these nights; adds to `rates` how many readings the judge took."""
    series = fleet_series(nodes, row.metrics)
    runs = replay(
        all_rows([night_rows(series, relative, night) for night, relative in enumerate(nights)])
    )
    rates.readings += [run.readings / len(series) for run in runs]
    return runs


def healthy(
    row: NoiseRow, nodes: int, earlier: int, readings: int, rng: np.random.Generator, rates: Rates
) -> None:
    night = row.fleet(nodes, rng)
    nights = [night(readings) for _ in range(earlier + HEALTHY_NIGHTS)]
    rates.healthy(judged(row, nodes, nights, rates))
    good, metric = (
        np.array([one[:, 0] for one in nights[:earlier]]),
        np.repeat(np.arange(len(row.metrics)), nodes),
    )
    for one in nights[earlier:]:
        for name, rule in RULES.items():
            rates.rival_nights[name].add(bool(rule(good, one[:, 0], metric).any()), 1)


def losses(
    row: NoiseRow, nodes: int, earlier: int, readings: int, rng: np.random.Generator, rates: Rates
) -> None:
    """One metric of some nodes is 10 % slow, of others 5 % and 3 %, from one night on."""
    night, count = row.fleet(nodes, rng), max(1, nodes // NODES_PER_FAULT)
    nights = [night(readings) for _ in range(earlier + FAULTY_NIGHTS)]
    slow = rng.choice(nodes, 3 * count, replace=False)
    # In metrics of their own, since what more than a third of the nodes lose is blamed on none.
    metric = (rng.integers(len(row.metrics)) + np.arange(3 * count)) % len(row.metrics)
    series = slow + nodes * metric
    for one in nights[earlier:]:
        one[series] *= np.repeat([0.9, 0.95, 0.97], count)[:, None]
        one[:] = row.after_loss(one)
    runs = judged(row, nodes, nights, rates)
    rates.healthy(runs[:earlier])
    named, faulty = [_named(run) for run in runs[earlier:]], [node_name(int(node)) for node in slow]
    rates.ten.add(sum(name in named[0] for name in faulty[:count]), count)
    rates.five.add(
        sum(name in set().union(*named[:3]) for name in faulty[count : 2 * count]), count
    )
    rates.three.add(sum(name in set().union(*named) for name in faulty[2 * count :]), count)
    for run, some in zip(runs[earlier:], named, strict=True):
        rates.suspects(run, set(faulty))
        rates.others.add(bool(some - set(faulty)), 1)
    good, metric = (
        np.array([one[:, 0] for one in nights[:earlier]]),
        np.repeat(np.arange(len(row.metrics)), nodes),
    )
    for name, rule in RULES.items():
        rates.rival_ten[name].add(
            int(rule(good, nights[earlier][:, 0], metric)[series[:count]].sum()), count
        )


def first_night(
    row: NoiseRow, nodes: int, readings: int, rng: np.random.Generator, rates: Rates
) -> None:
    """One metric of one node is 20 % slow on the first night."""
    relative, slow = row.fleet(nodes, rng)(readings), int(rng.integers(nodes))
    relative[slow + nodes * int(rng.integers(len(row.metrics)))] *= 0.8
    run = judged(row, nodes, [relative], rates)[0]
    rates.twenty.add(node_name(slow) in _named(run), 1)
    rates.suspects(run, {node_name(slow)})


def _named(run: ReplayedRun) -> set[str]:
    return {suspect.name.partition("/")[0] for suspect in run.suspects}


def measure(
    name: str, nodes: int, earlier: list[int], readings: int, scale: float, seed: int
) -> Rates:
    rates, started, row = Rates(), time.monotonic(), ROWS[name]
    # Larger fleets have more nodes to try
    for trial in range(max(1, round(50 * scale * (64 / nodes) ** 0.5))):
        rng = np.random.default_rng([seed, nodes, trial, *name.encode()])
        for nights in earlier:
            healthy(row, nodes, nights, readings, rng, rates)
        for _ in range(FLEETS):
            losses(row, nodes, min(earlier), readings, rng, rates)
            first_night(row, nodes, readings, rng, rates)
        # The last, so that all others are drawn as without them
        for nights in (FLEETS - 1) * earlier:
            healthy(row, nodes, nights, readings, rng, rates)
    print(f"{name}, {nodes} nodes: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return rates


@dataclass(slots=True)
class Outcome:
    """Of one case: healthy nights that passed and faulty ones that did not, fleets whose verdict
    stayed the same.
    """

    right: Count = field(default_factory=Count)
    steady: Count = field(default_factory=Count)
    suspects: list[int] = field(default_factory=list)
    guilty: Count = field(default_factory=Count)
    verdicts: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        guilty = f" ({self.guilty.hits} of {self.guilty.of} guilty)" if self.guilty.of else ""
        return (
            f"{' or '.join(sorted(self.verdicts))}, right on {self.right.hits} of {self.right.of} "
            "nights, "
            f"unchanged in {self.steady.hits} of {self.steady.of} fleets, "
            f"{np.mean(self.suspects):.1f} suspects{guilty}"
        )


def measure_case(case: Case, fleets: int, seed: int) -> Outcome:
    outcome, guilty = Outcome(), {node_name(node) for node in case.guilty}
    for fleet in range(fleets):
        runs = replay(case_rows(case, np.random.default_rng([seed, fleet])))[case.healthy_nights :]
        bad = [run.verdict is not Verdict.PASS for run in runs]
        outcome.right.add(sum(one == case.is_fault for one in bad), len(runs))
        outcome.steady.add(len({run.verdict for run in runs}) == 1, 1)
        outcome.verdicts |= {run.verdict.value for run in runs}
        for run in runs:
            nodes = [set(suspect.name.replace("--", "/").split("/")) for suspect in run.suspects]
            outcome.suspects.append(len(nodes))
            outcome.guilty.add(sum(bool(some & guilty) for some in nodes), len(nodes))
    return outcome


def cases(names: Sequence[str], scale: float, seed: int) -> str:
    fleets = max(1, round(20 * scale))
    return "\n".join(f"- {name}: {measure_case(CASES[name], fleets, seed)}" for name in names)


HEADINGS = (
    "noise",
    "nodes",
    "first 8 nights wrong",
    "later nights wrong",
    "others blamed",
    "10 % same night",
    "5 % in 3 nights",
    "3 % in 10 nights",
    "20 % first night",
    "sure suspects right",
    "readings",
    *(f"{name}: nights wrong, 10 % found" for name in RULES),
)


def calibration(watches: Sequence[tuple[float, bool]]) -> str:
    """Of watches that are so sure, how many are right."""
    lines = []
    for low in (0.5, 0.6, 0.7, 0.8, 0.9):
        right = [is_right for sure, is_right in watches if low <= sure < low + 0.1]
        count = Count(sum(right), len(right))
        lines.append((f"{low:.1f} to {low + 0.1:.1f}", str(count.of), str(count)))
    return markdown(("watches that are so sure", "number", "right"), lines)


def line(name: str, nodes: int, r: Rates) -> tuple[str, ...]:
    ours = (r.first, r.later, r.others, r.ten, r.five, r.three, r.twenty, r.sure)
    rivals = (f"{r.rival_nights[name].share}, {r.rival_ten[name].share}" for name in RULES)
    return name, str(nodes), *map(str, ours), f"{np.mean(r.readings):.2f}", *rivals


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 64, 232])
    parser.add_argument(
        "--nights",
        type=int,
        nargs="+",
        default=[8, 30],
        help="Earlier nights; of losses the fewest.",
    )
    parser.add_argument(
        "--readings", type=int, default=24, help="Readings of a series in a night, if asked for."
    )
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=20261205)
    parser.add_argument("--processes", type=int, help="At the same time; of the processors.")
    parser.add_argument("--no-oracle", action="store_true", help="Leave out what an oracle finds.")
    parser.add_argument(
        "--write", action="store_true", help="Put the rates into docs/error-rates.*."
    )
    options = parser.parse_args()
    cells = [
        (name, nodes)
        for name in options.rows
        for nodes in options.nodes
        if ROWS[name].only_nodes in (None, nodes)
    ]
    how = (options.nights, options.readings, options.scale, options.seed)
    with ProcessPoolExecutor(options.processes) as pool:
        measured = [pool.submit(measure, name, nodes, *how) for name, nodes in cells]
        rates = [one.result() for one in measured]
    lines = [line(name, nodes, one) for (name, nodes), one in zip(cells, rates, strict=True)]
    print(
        markdown(HEADINGS, lines),
        "" if options.no_oracle else bounds(cells),
        calibration([watch for one in rates for watch in one.watches]),
        cases(options.cases, options.scale, options.seed),
        sep="\n\n",
    )
    if options.write:
        write(lines)


if __name__ == "__main__":
    main()
