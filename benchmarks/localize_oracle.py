"""How sure an oracle is of the fault of a mixed fleet.

It knows the noise, the healthy speed and how faults and strays are drawn, and that there is one
fault; it does not know which part that is, in which operations it shows, by how much and in what
share of its tests. These are summed over (Neyman and Pearson, 1933). It weighs every node, GPU,
half of a node and link, and what differs from the fault by a node or by its GPUs: more candidates
would make it less sure.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from benchmarks.mixed_fleets import (
    GPUS,
    HALVES,
    MOST_SLOWDOWN,
    STRAY_SPEEDS,
    STRAYS,
    Fault,
    Fleet,
    healthy_speed,
    least_slowdown,
    share_at,
)

SLOWDOWNS = 24  # that are tried
# The share of its tests that a fault slows, and how likely each is
PENETRANCES = ((1.0, 0.75), *((share, 0.05) for share in (0.35, 0.5, 0.65, 0.8, 0.95)))
STRAY_STEPS = 25

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Observed:
    """Of each test of a group (N): its nodes and GPUs, and log ratios to the healthy speed by
    operation (N, O).
    """

    groups: list[tuple[tuple[str, ...], tuple[str, ...]]]
    ratios: Floats

    def slowed_by(self, fault: Fault) -> Floats:
        """Which tests a fault may slow: 1 or 0."""
        return np.array([fault.slows(*group) for group in self.groups], dtype=float)


def share_of_fault(fleet: Fleet) -> float:
    """Return the posterior probability of the fault, with parts that slow the same tests, and those
    that differ from it by a node of several, which may be told as unsure.
    """
    fault = fleet.fault
    if fault.kind == "none":
        return 0.0
    observed = observe(fleet)
    scenarios, log_priors = scenarios_of(fleet, observed.ratios)
    may_differ = fault.kind in ("leaf", "socket", "cut", "groups")
    slowed = observed.slowed_by(fault)
    weights, own = [0.0], []
    for part, log_prior in parts(fleet).items():
        tests = observed.slowed_by(part)
        of_scenario = scenarios @ tests + log_priors
        weight = log_prior + float(np.logaddexp.reduce(of_scenario))
        weights.append(weight)
        is_alike = may_differ and (part.kind, part.gpus) == (fault.kind, fault.gpus)
        if is_alike or np.array_equal(tests, slowed):
            own.append(weight)
    return float(np.exp(np.logaddexp.reduce(own) - np.logaddexp.reduce(weights)))


def observe(fleet: Fleet) -> Observed:
    by_number = defaultdict(list)
    for test in fleet.tests:
        number, _ = test.name.split()
        by_number[number].append(test)
    groups, rows = [], []
    for tests in by_number.values():
        nodes, gpus = tests[0].nodes, tests[0].gpus[0]
        groups.append((nodes, gpus))
        row = []
        for test in tests:
            size, busbw = max(test.busbw_gb_s.items())
            share = share_at(size.bit_length() - 1)
            healthy = share * healthy_speed(fleet.level[test.collective], nodes, gpus)
            row.append(math.log(busbw / healthy))
        rows.append(row)
    return Observed(groups, np.array(rows))


def parts(fleet: Fleet) -> dict[Fault, float]:
    """What the fault may be, with the log of how likely that is beforehand."""
    fault = fleet.fault
    nodes = sorted({node for test in fleet.tests for node in test.nodes})
    count = len(nodes)
    log_priors = {}
    for node in nodes:
        log_priors[Fault("node", (node,))] = -math.log(count)
        for gpu in GPUS:
            log_priors[Fault("gpu", (node,), (gpu,))] = -math.log(8 * count)
        for half in HALVES:
            log_priors[Fault("socket", (node,), half)] = -math.log(4 * count)
    for ends in combinations(nodes, 2):
        log_priors[Fault("link", ends)] = -math.log(math.comb(count, 2))
    for other in neighbours(fault, nodes):
        log_prior = 0.0  # of groups all divisions are as likely
        if not other.groups:
            sets = len(GPUS) if other.kind == "leaf" else len(HALVES)
            log_prior = -math.log(3 * sets * math.comb(count, len(other.nodes)))
        log_priors.setdefault(other, log_prior)
    return log_priors


def neighbours(fault: Fault, nodes: list[str]) -> Iterator[Fault]:
    """Yield the fault, and those that differ from it by a node or by the GPUs."""
    yield fault
    if fault.kind in ("leaf", "socket"):
        members = set(fault.nodes)
        for node in nodes:
            if members != {node}:
                yield replace(fault, nodes=tuple(sorted(members ^ {node})))
        for gpu in GPUS:
            yield Fault("leaf", fault.nodes, (gpu,))
        for half in HALVES:
            yield Fault("socket", fault.nodes, half)
    for i, j in combinations(range(len(fault.groups)), 2):
        for source, target in ((i, j), (j, i)):
            for node in fault.groups[source]:
                groups = list(map(set, fault.groups))
                groups[source].remove(node)
                groups[target].add(node)
                moved = tuple(tuple(sorted(group)) for group in groups if group)
                yield replace(fault, groups=moved)


def scenarios_of(fleet: Fleet, ratios: Floats) -> tuple[Floats, Floats]:
    """Return (S, N) the log likelihood ratio of each test if the fault may slow it, for each
    slowdown, choice of operations and penetrance, and the log of how likely each of these is (S).
    """
    noise = fleet.noise
    operations = ratios.shape[1]
    least = least_slowdown(noise)
    slowdowns = np.linspace(least, MOST_SLOWDOWN, SLOWDOWNS)
    step = slowdowns[1] - slowdowns[0]
    fine = normal(ratios, 0.0, noise)
    unslowed = with_strays(fine.sum(axis=1), strays(ratios, noise))
    tables, log_priors = [], []
    for slowdown in slowdowns:
        mean = math.log(1 - slowdown)
        spread = math.hypot(math.sqrt(2) * noise, step / (1 - slowdown) / 3)
        slow = normal(ratios, mean, spread)
        strayed = strays(ratios - mean, noise)
        for number in range(1, operations + 1):
            for chosen in combinations(range(operations), number):
                is_slowed = np.isin(np.arange(operations), chosen)
                values = np.where(is_slowed, slow, fine).sum(axis=1)
                gain = with_strays(values, strayed) - unslowed
                for penetrance, probability in PENETRANCES:
                    spared = np.log1p(-penetrance) if penetrance < 1 else -np.inf
                    tables.append(np.logaddexp(math.log(penetrance) + gain, spared))
                    cases = SLOWDOWNS * operations * math.comb(operations, number)
                    log_priors.append(math.log(probability / cases))
    return np.array(tables), np.array(log_priors)


def with_strays(usual: Floats, strayed: Floats) -> Floats:
    """Return the log density of a test that strays in all operations, or in none."""
    mixed: Floats = np.logaddexp(math.log(1 - STRAYS) + usual, math.log(STRAYS) + strayed)
    return mixed


def strays(ratios: Floats, noise: float) -> Floats:
    """Return (N) the log density of tests that stray."""
    speeds = np.linspace(*STRAY_SPEEDS, STRAY_STEPS)
    densities = normal(ratios[..., None], np.log(speeds), noise + 0.01)
    mean = np.logaddexp.reduce(densities, axis=-1) - math.log(STRAY_STEPS)
    total: Floats = mean.sum(axis=1)
    return total


def normal(values: Floats, mean: Floats | float, sd: float) -> Floats:
    """Return the log density."""
    distance = (values - mean) / sd
    density: Floats = -0.5 * distance**2 - math.log(sd * math.sqrt(2 * math.pi))
    return density
