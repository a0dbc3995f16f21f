"""How often the judge is wrong on the first nights, what it would find, and how right its confidence is.

    python benchmarks/judge_first_nights.py [--scale 1] [--tables FIRST FIRST_NOISES DETECTABLE CONFIDENCE] [--write]

As benchmarks/judge_error_rates.py, whose fleets have a history. --scale 1 takes ten minutes.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import pairwise

import numpy as np

from benchmarks.error_tables import Count, markdown, percent, write
from seatrial.judge.fleet.detectable import detectable
from seatrial.judge.fleet.night import Night
from seatrial.judge.fleet.odds import PRIOR, Floats, posterior
from seatrial.simulate.nights import Memory, one_night
from seatrial.simulate.noise import Draws, Noise

METRICS = 4  # per node; a fault lowers one of them
LATEST = 7  # earlier nights of fleets that count as new
USUAL = Noise()
NOISES = {
    "as above": USUAL,
    "t with 3 degrees of freedom": Noise(freedom=3.0),
    "a quarter of the variance is the night's": Noise(shared=0.25),
    "twice the noise, 6 %": Noise(sd=0.06),
    "twice the spread, 2 %": Noise(spread=0.02),
    "10 % of the variance lasts for nights": Noise(slow=0.1),
    "2 % of the series are three times as noisy": Noise(loud=0.02),
    "half of the variance is one-sided": Noise(skew=0.5),
    "readings rounded to 5 %": Noise(tick=0.05),
}
LOSSES = (0.2, 0.1)
FAULTS_MADE = 4 * PRIOR  # more than the prior says, so that there are enough; they count a quarter
BINS = (0.0, 0.001, 0.1, 0.5, 0.9, 1.01)


def a_fleet(nodes: int, nights: int, noise: Noise, seed: list[int]) -> tuple[Draws, Memory]:
    """A fleet with so many nights behind it, measured as a run measures them."""
    group = np.repeat(np.arange(METRICS), nodes)
    draws, memory = Draws(group.size, noise, np.random.default_rng(seed), group), Memory(group)
    for _ in range(nights):
        one_night(memory, draws)
    return draws, memory


def tonight(fleet: tuple[Draws, Memory], seed: list[int], loss: Floats | float = 0.0) -> Night:
    """One of the nights that may follow; the fleet stays as it was."""
    draws, memory = deepcopy(fleet)
    draws.rng = np.random.default_rng(seed)
    return one_night(memory, draws, loss)[0].each


def alarms(nodes: int, noise: Noise, fleets: int) -> Count:
    """Healthy nights with an alarm, of nodes or of the fleet, from the first to the last that is early."""
    count = Count()
    for seed in range(fleets):
        draws, memory = a_fleet(nodes, 0, noise, [1, nodes, seed])
        for _ in range(LATEST + 1):
            count.add(one_night(memory, draws)[0].alarm)
    return count


def detected(nodes: int, nights: int, noise: Noise, loss: float, fleets: int) -> Count:
    """Nodes that are slower by `loss` tonight, one at a time: are they named?"""
    count = Count()
    for seed in range(fleets):
        fleet = a_fleet(nodes, nights, noise, [2, nodes, nights, seed])
        for slow in fleet[0].rng.choice(nodes * METRICS, 4, replace=False):
            losses = np.where(np.arange(nodes * METRICS) == slow, -np.log(1 - loss), 0.0)
            count.add(bool(tonight(fleet, [3, seed, int(slow)], losses).guilty[slow]))
    return count


def first(scale: float) -> str:
    rows = [
        (
            str(nodes),
            str(nights),
            str(alarms(nodes, USUAL, int(250 * scale))) if not nights else "",
            *(str(detected(nodes, nights, USUAL, loss, int(40 * scale))) for loss in LOSSES),
        )
        for nodes in (8, 16, 64, 256)
        for nights in (0, 1, 3, LATEST)
    ]
    return markdown(("nodes", "earlier nights", f"first {LATEST + 1} nights: alarms", *_slow()), rows)


def _slow() -> tuple[str, ...]:
    return tuple(f"{loss:.0%} slow".replace("%", " %") for loss in LOSSES)


def first_noises(scale: float) -> str:
    rows = [
        (
            name,
            str(alarms(64, noise, int(125 * scale))),
            *(str(detected(64, 0, noise, loss, int(25 * scale))) for loss in LOSSES),
        )
        for name, noise in NOISES.items()
    ]
    return markdown(("noise, 64 nodes, first night", f"first {LATEST + 1} nights: alarms", *_slow()), rows)


def what_would_be_found(scale: float) -> str:
    rows = []
    for nodes in (8, 16, 64, 256):
        for nights in (0, 3, 8, 30):
            sizes, count = [], Count()
            for seed in range(int(20 * scale)):
                fleet = a_fleet(nodes, nights, USUAL, [4, nodes, nights, seed])
                size = detectable(tonight(fleet, [5, seed]), fleet[1].group)
                sizes.append(1 - float(np.exp(-np.median(size))))
                for slow in fleet[0].rng.choice(size.size, 4, replace=False):
                    losses = np.where(np.arange(size.size) == slow, size, 0.0)
                    count.add(bool(tonight(fleet, [6, seed, int(slow)], losses).guilty[slow]))
            rows.append((str(nodes), str(nights), percent(round(float(np.median(sizes)), 3)), str(count)))
    return markdown(("nodes", "earlier nights", "the run says it finds", "of those found"), rows)


def confidence(scale: float) -> str:
    """Among series of which the judge says so much, how many have a fault, where PRIOR of all have."""
    rows = []
    for name in ("as above", "t with 3 degrees of freedom", "a quarter of the variance is the night's"):
        confidence, at_fault, weight = (
            np.concatenate(part) for part in zip(*_judged(NOISES[name], scale), strict=True)
        )
        for low, high in pairwise(BINS):
            inside = (confidence >= low) & (confidence < high)
            if not inside.any():
                continue
            share = weight[inside & at_fault].sum() / weight[inside].sum()
            mean = np.average(confidence[inside], weights=weight[inside])
            text = f"{percent(low)} to {percent(min(high, 1))}"
            rows.append((name, text, str(inside.sum()), percent(float(mean)), percent(float(share))))
    return markdown(("noise, 64 nodes", "confidence", "series", "mean confidence", "have a fault"), rows)


def _judged(noise: Noise, scale: float) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Of nights in which few nodes have faults of 3 to 50 %: confidence, whether there is a fault, weight."""
    for seed in range(int(60 * scale)):
        fleet = a_fleet(64, (0, 30)[seed % 2], noise, [7, seed])
        rng = np.random.default_rng([8, seed])
        for _ in range(8):
            is_faulty = rng.random(64 * METRICS) < FAULTS_MADE
            losses = -np.log(1 - np.exp(rng.uniform(np.log(0.03), np.log(0.5), is_faulty.size)))
            night = tonight(fleet, [9, seed, int(rng.integers(2**31))], np.where(is_faulty, losses, 0.0))
            confidence = np.array([posterior(float(odds)) for odds in night.evidence])
            yield confidence, is_faulty, np.where(is_faulty, PRIOR / FAULTS_MADE, 1.0)


TABLES: dict[str, Callable[[float], str]] = {
    "FIRST": first,
    "FIRST_NOISES": first_noises,
    "DETECTABLE": what_would_be_found,
    "CONFIDENCE": confidence,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--write", action="store_true", help="Put the tables into docs/error-rates.md.")
    options = parser.parse_args()
    parts = {}
    for name in options.tables:
        started = time.monotonic()
        parts[name] = TABLES[name](options.scale)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print("\n\n".join(parts.values()))
    if options.write:
        write(parts, options.scale)


if __name__ == "__main__":
    main()
