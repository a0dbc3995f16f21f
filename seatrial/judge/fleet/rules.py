"""The figures the judgement rests on. What each costs and buys: docs/decisions/0007, docs/error-rates.md."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """`false_alarms`: healthy runs in which anything at all is blamed, as a share.

    `sizes` are the slowdowns looked for, on natural logs; noise above 2 % stretches them. A measurement is repeated,
    `most_repeats` times at most, until its odds are enough to blame; or until the size at `tonight`, which must not be
    missed the same night, has odds below `sure_healthy`, and no size has log odds above `doubtful`, or `doubtful_alone`
    where it has no peers.
    A further repeat that is worth less than `least_worth` independent measurements costs real nodes more than it tells.
    `shared_at_first` is the part of the variance that repeats in one night are taken to share until history tells, by
    `pairs_to_learn` pairs for a group of its own. `nights_to_learn` passing nights, or `peers_to_learn` peers, must be
    known before noise is learned at all; of fewer than `least_peers` nobody can tell who is odd. Fewer than
    `nights_to_tell` nights do not tell what a node of many should read: its peers do. `least_scale` is the least noise
    assumed, and of what lasts for nights `least_wander`, or `wander` of the scale where that is more; it may be larger
    than it looks by `sure_wander` standard errors, or by `sure_wander_of_fleets` where peers are judged as one. On the
    first nights peers are taken to differ by `least_unlike` of the noise's scale at least.
    """

    false_alarms: float = 0.0003
    sizes: tuple[float, ...] = (0.035, 0.06, 0.105, 0.2, 0.35, 0.65, 1.2)
    tonight: int = 2
    sure_healthy: float = 0.002
    doubtful: float = -2.0
    doubtful_alone: float = -0.3
    most_repeats: int = 24
    least_worth: float = 0.05
    shared_at_first: float = 0.25
    pairs_to_learn: int = 1000
    nights_to_tell: int = 3
    nights_to_learn: int = 8
    peers_to_learn: int = 8
    least_peers: int = 4
    least_scale: float = 0.003
    wander: float = 0.05
    least_wander: float = 0.002
    sure_wander: float = 0.5
    sure_wander_of_fleets: float = 1.0
    least_unlike: float = 0.33


RULES = Rules()
REFERENCE_NIGHTS = 20
RECENT_NIGHTS = 10
