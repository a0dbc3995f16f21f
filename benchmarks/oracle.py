"""Upper bound of power: the share of losses found by a test that knows the noise and the night of
the change.

Likelihood ratio of a loss against none (Neyman and Pearson, 1933). Known are the distribution of
readings, how far healthy nodes differ, and the night of the change; unknown are the level of the
series, what lasts of its noise, and the size of the loss, which are summed over a lattice. A drift
that all nodes share counts as known. Recorded readings have no density, so those of a GPU and of
local nodes are smoothed by 0.2 %. Rounding is left out: the oracle reads more than there is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.fleet_rows import ROWS, NoiseRow
from seatrial.simulate.rows import LOUDNESS, PERSISTENCE, Floats, Noise

STEP = 0.0025  # of the lattice of levels, on logs
FINE = 0.0005  # of the table of a density
LOWEST, HIGHEST = -3.5, 2.0  # logs that the table of a density covers
SMOOTHING = 0.002
EARLIER = 8  # healthy nights
ALARMS = 0.005  # of healthy nights of a fleet
# Losses that the test reckons with, each as likely
SIZES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3)
GOALS = ((0.1, 1), (0.05, 3), (0.03, 10))  # a loss, and the nights within which it is to be found
_FAR = 4  # standard deviations that a lattice covers


@dataclass(frozen=True, slots=True)
class Kind:
    """Series of one kind: the log density of readings around their level, and how to draw them."""

    share: float
    table: Floats  # log density at LOWEST, LOWEST + FINE, ...
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    lasting: float  # standard deviation of what lasts, on logs
    spread: float = 0.01

    def log_density(self, logs: Floats) -> Floats:
        places = np.rint((logs - LOWEST) / FINE).astype(np.int64)
        return np.asarray(self.table[np.clip(places, 0, len(self.table) - 1)])


def kinds_of(row: NoiseRow) -> list[Kind]:
    if row.noise is None:
        return _recorded(row)
    noise = row.noise
    kinds = [_simulated(noise, noise.sd, 1 - noise.loud)]
    return [*kinds, _simulated(noise, LOUDNESS * noise.sd, noise.loud)] if noise.loud else kinds


def _simulated(noise: Noise, sd: float, share: float) -> Kind:
    own, shift = sd * np.sqrt(1 - noise.lasting), np.log1p(-noise.stray_loss)

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        is_t4 = noise.shape == "t4"
        logs = own * (
            rng.standard_t(4, shape) / np.sqrt(2) if is_t4 else rng.standard_normal(shape)
        )
        if noise.shape == "normal":
            logs = np.log(np.maximum(1 + logs, 0.05))
        return np.asarray(logs + shift * (rng.random(shape) < noise.stray))

    grid = _grid()
    relative = np.exp(grid) - 1 if noise.shape == "normal" else grid
    scaled = relative / own
    density = (1 + scaled**2 / 2) ** -2.5 if noise.shape == "t4" else np.exp(-(scaled**2) / 2)
    if noise.shape == "normal":
        density = density * np.exp(grid)
    if noise.stray:
        moved = np.interp(grid - shift, grid, density)
        density = (1 - noise.stray) * density + noise.stray * moved
    return Kind(share, _normalized(density), draw, sd * np.sqrt(noise.lasting))


def _recorded(row: NoiseRow) -> list[Kind]:
    """One kind for each metric, all readings of which are drawn from those that were recorded."""
    nodes = row.only_nodes or 8
    rng = np.random.default_rng(1)
    nights = np.concatenate([row.fleet(nodes, rng)(24) for _ in range(60)], axis=1)
    kinds = []
    for of_metric in np.split(np.log(nights), len(row.metrics)):
        logs = of_metric - np.nanmedian(of_metric, axis=1, keepdims=True)
        pool = logs[np.isfinite(logs)]
        counts = np.histogram(pool, len(_grid()), (LOWEST - FINE / 2, HIGHEST + FINE / 2))[
            0
        ].astype(np.float64)
        reach = np.arange(-10, 11) * FINE / SMOOTHING
        density = np.convolve(counts, np.exp(-(reach**2) / 2), "same")
        kinds.append(Kind(1 / len(row.metrics), _normalized(density), _drawer(pool), 0.0))
    return kinds


def _drawer(pool: Floats) -> Callable[[np.random.Generator, tuple[int, ...]], Floats]:
    return lambda rng, shape: np.asarray(
        rng.choice(pool, shape) + SMOOTHING * rng.standard_normal(shape)
    )


def _grid() -> Floats:
    return np.asarray(np.arange(round((HIGHEST - LOWEST) / FINE) + 1) * FINE + LOWEST)


def _normalized(density: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(density / (density.sum() * FINE), 1e-9)))


@dataclass(frozen=True, slots=True)
class Lattice:
    """Levels (S) with their chances, and the states (A) of what lasts with theirs and those of the
    next night.
    """

    levels: Floats
    chances: Floats
    states: Floats
    first: Floats
    moves: Floats

    @classmethod
    def of(cls, kind: Kind) -> "Lattice":
        levels = _points(kind.spread)
        chances = _normal(levels / kind.spread)
        if not kind.lasting:
            return cls(levels, chances, np.zeros(1), np.ones(1), np.ones((1, 1)))
        states = _points(kind.lasting)
        steps = (states[None] - PERSISTENCE * states[:, None]) / (
            kind.lasting * np.sqrt(1 - PERSISTENCE**2)
        )
        return cls(levels, chances, states, _normal(states / kind.lasting), _normal(steps))

    def draw(self, rng: np.random.Generator, series: int, nights: int) -> Floats:
        """The level of each series on each night (N, T)."""
        level = rng.choice(self.levels, series, p=self.chances)
        state = rng.choice(self.states.size, series, p=self.first)
        cumulated, drawn = np.cumsum(self.moves, axis=1), []
        for _ in range(nights):
            state = np.minimum(
                (cumulated[state] < rng.random((series, 1))).sum(axis=1), self.states.size - 1
            )
            drawn.append(level + self.states[state])
        return np.stack(drawn, axis=1)


def _points(sd: float) -> Floats:
    most = int(np.ceil(_FAR * sd / STEP))
    return STEP * np.arange(-most, most + 1, dtype=np.float64)


def _normal(scaled: Floats) -> Floats:
    chances = np.exp(-(scaled**2) / 2)
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


class Oracle:
    """The log likelihood ratios of series of one noise, after each of the nights that follow the
    change.
    """

    def __init__(self, kinds: Sequence[Kind], which: int) -> None:
        """`which` kind is drawn; which it is the test does not know, unless metrics tell."""
        self._drawn, self._reckoned = kinds[which], kinds

    def ratios(
        self, rng: np.random.Generator, losses: Floats, nights: int, readings: int
    ) -> Floats:
        """(N, nights) for N series that lose `losses`."""
        levels = Lattice.of(self._drawn).draw(rng, losses.size, EARLIER + nights)
        logs = levels[..., None] + self._drawn.draw(rng, (*levels.shape, readings))
        logs[:, EARLIER:] += np.log1p(-losses)[:, None, None]
        hypotheses = [0.0, *np.log1p(-np.array(SIZES))]
        likelihoods = np.full((len(hypotheses), losses.size, nights), -np.inf)
        for kind in self._reckoned:
            with np.errstate(divide="ignore"):
                likelihoods = np.logaddexp(
                    likelihoods, np.log(kind.share) + _likelihoods(kind, logs, hypotheses)
                )
        return np.asarray(
            np.logaddexp.reduce(likelihoods[1:], axis=0) - np.log(len(SIZES)) - likelihoods[0]
        )


def _likelihoods(kind: Kind, logs: Floats, hypotheses: Sequence[float]) -> Floats:
    """(H, N, nights): the log likelihood of all readings until each night, by hypothesis of the
    size of a loss.
    """
    lattice = Lattice.of(kind)
    at = lattice.levels[:, None] + lattice.states  # (S, A)
    state = np.broadcast_to(lattice.chances[:, None] * lattice.first, (len(logs), *at.shape))
    total = np.zeros(len(logs))
    for night in range(EARLIER):
        state, total = _after(kind, logs[:, night], at, lattice, state, total)
    by_hypothesis = []
    for shift in hypotheses:
        now, sums, course = state, total, []
        for night in range(EARLIER, logs.shape[1]):
            now, sums = _after(kind, logs[:, night] - shift, at, lattice, now, sums)
            course.append(sums)
        by_hypothesis.append(np.stack(course, axis=1))
    return np.stack(by_hypothesis)


def _after(
    kind: Kind, readings: Floats, at: Floats, lattice: Lattice, state: Floats, total: Floats
) -> tuple[Floats, Floats]:
    """The states' chances after one more night (N, S, A), and the log likelihood (N): the forward
    algorithm.
    """
    points, inverse = np.unique(np.rint(at / STEP), return_inverse=True)
    logs = sum(
        kind.log_density(readings[:, nth, None] - points * STEP) for nth in range(readings.shape[1])
    )
    likely = np.asarray(logs)[:, inverse.reshape(at.shape)]
    best = likely.max(axis=(1, 2))
    moved = state @ lattice.moves if lattice.states.size > 1 else state
    weighted = moved * np.exp(likely - best[:, None, None])
    sums = weighted.sum(axis=(1, 2))
    return weighted / sums[:, None, None], total + best + np.log(sums)


@cache
def oracle(name: str, series: int, readings: int = 6, trials: int = 2000) -> tuple[float, ...]:
    """The share found of each of GOALS in a fleet of so many series, with ALARMS on its healthy
    nights.
    """
    row, rng = ROWS[name], np.random.default_rng([*name.encode()])
    kinds = kinds_of(row)
    nights = max(nights for _, nights in GOALS)
    count = max(trials // len(kinds), 500)
    apart = row.noise is None  # each metric is a kind of its own, and known
    oracles = [
        Oracle([kind] if apart else kinds, 0 if apart else i) for i, kind in enumerate(kinds)
    ]
    shares = np.repeat([kind.share for kind in kinds], count) / count
    drawn = [one.ratios(rng, rng.choice(SIZES, count), nights, readings) for one in oracles]
    limits = [
        _limit(np.concatenate([d[:, night] for d in drawn]), shares, ALARMS / series)
        for night in range(nights)
    ]
    detected = []
    for loss, within in GOALS:
        ratios = np.concatenate(
            [one.ratios(rng, np.full(count, loss), within, readings) for one in oracles]
        )
        detected.append(float(shares @ (ratios > limits[:within]).any(axis=1)))
    return tuple(detected)


def _limit(ratios: Floats, shares: Floats, chance: float) -> float:
    """The log ratio that healthy series exceed with that chance, from series that lost something:
    the chance of a healthy one is theirs over the ratio.
    """
    order = np.argsort(-ratios)
    tail = np.cumsum(shares[order] * np.exp(-np.maximum(ratios[order], -50)))
    beyond = int(np.searchsorted(tail, chance))
    return float(ratios[order[min(beyond, len(order) - 1)]])
