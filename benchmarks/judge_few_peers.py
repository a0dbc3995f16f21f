"""How often the judge is wrong where there are no peers, or few: whole fleets, numbers once per run, small clusters.

    python benchmarks/judge_few_peers.py [--scale 1] [--write]

As benchmarks/judge_error_rates.py. --scale 1 takes five minutes.
"""

import argparse

import numpy as np

from benchmarks.error_tables import Count, markdown, write
from benchmarks.simulated_fleets import METRICS, FleetKind, a_fleet
from seatrial.simulate.nights import one_night
from seatrial.simulate.noise import Noise

NIGHTS_PER_FLEET = 5
LOSSES = (0.05, 0.1, 0.2)
ROWS = {
    "64 nodes as one, as above": (64, Noise()),
    "64 nodes as one, drifting together, 1 %": (64, Noise(common=0.01)),
    "64 nodes as one, moving together, 1 %, each night anew": (64, Noise(common=0.01, persistence=0.0)),
    "once per run, as above": (1, Noise()),
    "once per run, 1 % noise": (1, Noise(sd=0.01)),
    "once per run, 10 % of the variance lasts": (1, Noise(slow=0.1)),
}
SMALL = (2, 4, 7)  # nodes
SMALL_NOISES = {
    "as above": Noise(),
    "10 % of the variance lasts": Noise(slow=0.1),
    "all nodes drift together, 1 %": Noise(common=0.01),
}


def alarms(nodes: int, noise: Noise, fleets: int) -> Count:
    """Healthy nights with any alarm."""
    count = Count()
    for number in range(fleets):
        draws, memory = a_fleet(nodes, FleetKind(noise), np.random.default_rng([1, nodes, number]))
        for _ in range(NIGHTS_PER_FLEET):
            count.add(one_night(memory, draws)[0].alarm)
    return count


def detected(nodes: int, noise: Noise, loss: float, fleets: int) -> Count:
    """Fleets in which all that is measured of one metric is slower tonight: is that named the same night?"""
    count = Count()
    for number in range(fleets):
        draws, memory = a_fleet(nodes, FleetKind(noise), np.random.default_rng([2, nodes, number]))
        metric = number % METRICS
        verdicts, _ = one_night(memory, draws, np.where(memory.group == metric, -np.log(1 - loss), 0.0))
        count.add(bool((verdicts.fleet if nodes > 1 else verdicts.each).guilty[metric]))
    return count


def found_on_one(nodes: int, noise: Noise, loss: float, fleets: int) -> Count:
    """Fleets in which one metric of one node is slower tonight: is that named the same night?"""
    count = Count()
    for number in range(fleets):
        draws, memory = a_fleet(nodes, FleetKind(noise), np.random.default_rng([3, nodes, number]))
        verdicts, _ = one_night(memory, draws, np.where(np.arange(draws.series) == 0, -np.log(1 - loss), 0.0))
        count.add(bool(verdicts.each.guilty[0]))
    return count


def small_clusters(scale: float) -> str:
    rows = [
        (
            str(nodes),
            name,
            str(alarms(nodes, noise, int(400 * scale))),
            *(str(found_on_one(nodes, noise, loss, int(100 * scale))) for loss in LOSSES[1:]),
        )
        for nodes in SMALL
        for name, noise in SMALL_NOISES.items()
    ]
    return markdown(("nodes", "noise", "healthy nights with an alarm", "10 % slow", "20 % slow"), rows)


def table(scale: float) -> str:
    rows = [
        (
            name,
            str(alarms(nodes, noise, int(400 * scale))),
            *(str(detected(nodes, noise, loss, int(100 * scale))) for loss in LOSSES),
        )
        for name, (nodes, noise) in ROWS.items()
    ]
    slow = (f"{loss:.0%} slow".replace("%", " %") for loss in LOSSES)
    return markdown(("judged without peers", "healthy nights with an alarm", *slow), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--write", action="store_true", help="Put the tables into docs/error-rates.md.")
    options = parser.parse_args()
    parts = {"ALONE": table(options.scale), "SMALL": small_clusters(options.scale)}
    print("\n".join(parts.values()))
    if options.write:
        write(parts, options.scale)


if __name__ == "__main__":
    main()
