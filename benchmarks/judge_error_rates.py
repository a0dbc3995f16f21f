"""How often the judge is wrong once it has a history: writes most tables of docs/error-rates.md.

    python benchmarks/judge_error_rates.py [--scale 1] [--nodes 8 64 232 1024] [--tables RATES COSTS NOISES GENERATIONS]
                                           [--write]

Every number comes from `seatrial.judge.fleet`, the code that judges real runs, on simulated fleets with fixed seeds.
--scale multiplies the number of trials; the tables in docs/ are --scale 0.5 and take half an hour.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.error_tables import Count, markdown, write
from benchmarks.rivals import RULES as RIVALS
from benchmarks.simulated_fleets import KINDS, NIGHTS_BEFORE, FleetKind, a_fleet
from seatrial.judge.fleet.grouped import Bools, Ints
from seatrial.judge.fleet.odds import Floats
from seatrial.simulate.nights import Memory, one_night
from seatrial.simulate.noise import Draws, Noise

OURS = "seatrial"
NIGHTS_PER_FLEET = 5
DECAY_PER_NIGHT = 0.01 / 7
TABLES = ("RATES", "COSTS", "NOISES", "GENERATIONS")
NOISES = {
    "as above": Noise(),
    "normal noise": Noise(freedom=1000.0),
    "t with 3 degrees of freedom": Noise(freedom=3.0),
    "0.5 % of measurements 20 % too low": Noise(stray=0.005),
    "a quarter of the variance is the night's": Noise(shared=0.25),
    "a twentieth of the variance is the night's": Noise(shared=0.05),
    "twice the noise, 6 %": Noise(sd=0.06),
    "twice the spread, 2 %": Noise(spread=0.02),
    "2 % of the variance lasts for nights": Noise(slow=0.02),
    "5 % of the variance lasts for nights": Noise(slow=0.05),
    "10 % of the variance lasts for nights": Noise(slow=0.1),
    "25 % of the variance lasts for nights": Noise(slow=0.25),
    "every node drifts by 0.2 % a night, at random": Noise(walk=0.002),
    "all nodes drift together, 1 %, for nights": Noise(common=0.01),
    "all nodes move together, 1 %, each night anew": Noise(common=0.01, persistence=0.0),
    "2 % of the series are three times as noisy": Noise(loud=0.02),
    "half of the variance is one-sided": Noise(skew=0.5),
    "readings rounded to 5 %": Noise(tick=0.05),
    "1 % noise, readings rounded to 5 %": Noise(sd=0.01, spread=0.005, tick=0.05),
}


def _counts() -> dict[str, Count]:
    return {name: Count() for name in (OURS, *RIVALS)}


@dataclass(slots=True)
class Rates:
    """Per rule: alarms on healthy nights; faults found; healthy series blamed beside a fault; repeats per series."""

    alarms: dict[str, Count] = field(default_factory=_counts)
    ten: dict[str, Count] = field(default_factory=_counts)
    five: dict[str, Count] = field(default_factory=_counts)
    decay: dict[str, Count] = field(default_factory=_counts)
    repeats: list[float] = field(default_factory=list)
    loss_when_found: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Judged:
    """One night: which series each rule calls bad, whether the judge blames the fleet, repeats per series."""

    blamed: dict[str, Bools]
    fleet: bool
    repeats: float


def nights(draws: Draws, memory: Memory, losses: Iterator[Floats]) -> Iterator[Judged]:
    for loss in losses:
        good = np.array(memory.first[:NIGHTS_BEFORE])
        verdicts, first = one_night(memory, draws, loss)
        rivals = {name: rule(good, first, memory.group) for name, rule in RIVALS.items()}
        repeats = float(verdicts.each.repeats.mean() - 1)
        yield Judged({OURS: verdicts.each.guilty, **rivals}, bool(verdicts.fleet.guilty.any()), repeats)


def healthy(rates: Rates, nodes: int, kind: FleetKind, rng: np.random.Generator, count: int) -> None:
    for _ in range(count // NIGHTS_PER_FLEET):
        draws, memory = a_fleet(nodes, kind, rng)
        quiet = (np.zeros(draws.series) for _ in range(NIGHTS_PER_FLEET))
        for night in nights(draws, memory, quiet):
            rates.repeats.append(night.repeats)
            for name, bad in night.blamed.items():
                rates.alarms[name].add(bool(bad.any()) or (name == OURS and night.fleet))


def steps(
    rates: dict[str, Count], loss: float, within: int, nodes: int, kind: FleetKind, rng: np.random.Generator, count: int
) -> None:
    """Faulty nodes that are slower by `loss` from one night on, one in a hundred at most: found within some nights?"""
    at_once = max(1, nodes // 100)
    for _ in range(max(1, count // at_once)):
        draws, memory = a_fleet(nodes, kind, rng)
        faulty = rng.choice(draws.series, at_once, replace=False)
        lost = _lost(draws.series, faulty, -np.log(1 - loss))
        caught = {name: np.zeros(at_once, dtype=bool) for name in rates}
        for night in nights(draws, memory, (lost for _ in range(within))):
            for name, bad in night.blamed.items():
                caught[name] |= bad[faulty]
        for name, seen in caught.items():
            rates[name].add(seen)


def decay(rates: Rates, nodes: int, kind: FleetKind, rng: np.random.Generator, count: int) -> None:
    """Nodes that lose 1 % per week: found before they have lost 5 %?"""
    at_once = max(1, nodes // 100)
    for _ in range(max(1, count // at_once)):
        draws, memory = a_fleet(nodes, kind, rng)
        faulty = rng.choice(draws.series, at_once, replace=False)
        caught = {name: np.zeros(at_once, dtype=bool) for name in rates.decay}
        down = [DECAY_PER_NIGHT * night for night in range(1, 35)]
        losses = (_lost(draws.series, faulty, loss) for loss in down)
        for loss, night in zip(down, nights(draws, memory, losses), strict=True):
            new = night.blamed[OURS][faulty] & ~caught[OURS]
            rates.loss_when_found += [loss] * int(new.sum())
            for name, bad in night.blamed.items():
                caught[name] |= bad[faulty]
        for name, seen in caught.items():
            rates.decay[name].add(seen)


def _lost(series: int, faulty: Ints, loss: float) -> Floats:
    losses = np.zeros(series)
    losses[faulty] = loss
    return losses


def measure(nodes: int, kind: FleetKind, scale: float, seed: int) -> Rates:
    """All rates at one size; larger fleets bring more faulty nodes at once, so they need fewer runs."""
    rates, started = Rates(), time.monotonic()
    generators = [np.random.default_rng([seed, nodes, part]) for part in range(4)]
    healthy(rates, nodes, kind, generators[0], int(4000 * scale))
    steps(rates.ten, 0.10, 1, nodes, kind, generators[1], int(600 * scale))
    steps(rates.five, 0.05, 3, nodes, kind, generators[2], int(200 * scale))
    decay(rates, nodes, kind, generators[3], int(40 * scale))
    print(f"{nodes} nodes: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return rates


HEADINGS = (
    "nodes",
    "rule",
    "healthy nights with an alarm",
    "10 % slow, same night",
    "5 % slow, 3 nights",
    "1 %/week before 5 %",
)


def table(by_nodes: dict[int, Rates]) -> str:
    rows = [
        (str(nodes), name, *(str(counts[name]) for counts in (r.alarms, r.ten, r.five, r.decay)))
        for nodes, r in by_nodes.items()
        for name in r.alarms
    ]
    return markdown(HEADINGS, rows)


def costs(by_nodes: dict[int, Rates]) -> str:
    rows = [
        (
            str(n),
            f"{1 + np.mean(r.repeats):.2f}",
            str(r.alarms[OURS].of),
            str(r.ten[OURS].of),
            f"{100 * np.median(r.loss_when_found):.1f} %",
        )
        for n, r in by_nodes.items()
    ]
    return markdown(
        (
            "nodes",
            "measurements per series and night",
            "healthy nights",
            "slow nodes tried",
            "median loss when a decay is found",
        ),
        rows,
    )


def sensitivity(scale: float, seed: int) -> str:
    rows = []
    for name, noise in NOISES.items():
        r = measure(64, FleetKind(noise), scale / 3, seed + 1)
        rows.append((name, *(str(counts[OURS]) for counts in (r.alarms, r.ten, r.five, r.decay))))
    return markdown(("noise, 64 nodes", *HEADINGS[2:]), rows)


def generations(scale: float, seed: int) -> str:
    rows = []
    for name, kind in KINDS.items():
        r = measure(64, kind, scale / 3, seed + 2)
        rows.append((name, *(str(counts[OURS]) for counts in (r.alarms, r.ten, r.five, r.decay))))
    return markdown(("64 nodes", *HEADINGS[2:]), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 64, 232, 1024])
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--write", action="store_true", help="Put the tables into docs/error-rates.md.")
    options = parser.parse_args()
    parts = {}
    if {"RATES", "COSTS"} & set(options.tables):
        by_nodes = {nodes: measure(nodes, FleetKind(), options.scale, options.seed) for nodes in options.nodes}
        parts |= {"RATES": table(by_nodes), "COSTS": costs(by_nodes)}
    if "NOISES" in options.tables:
        parts["NOISES"] = sensitivity(options.scale, options.seed)
    if "GENERATIONS" in options.tables:
        parts["GENERATIONS"] = generations(options.scale, options.seed)
    print("\n\n".join(parts.values()))
    if options.write:
        write(parts, options.scale)


if __name__ == "__main__":
    main()
