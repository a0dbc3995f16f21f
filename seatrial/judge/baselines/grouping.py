"""Which measurements of a run are peers: by what is measured, by the facts of the nodes, and by their numbers. Pure.

The rules: docs/decisions/0015.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from seatrial.judge.tolerance import tolerance_of
from seatrial.judge.fleet.grouped import Ints
from seatrial.judge.fleet.modes import LEAST_NODES, Modes, find_modes, stays
from seatrial.judge.fleet.odds import Floats
from seatrial.judge.fleet.rules import RULES
from seatrial.judge.node_groups import NodeGroups, shown_name
from seatrial.model.measurement import Measurement

PEERS = ("node", "gpu", "link")
_DIVISIBLE = ("node", "gpu")
_LEAST_NIGHTS = 3
# On natural logs. Nobody else uses a GPU of ours; processors and networks are often shared, as their tolerances say.
_GPU_DISTANCE = 0.1


@dataclass(frozen=True, slots=True)
class Split:
    """Like nodes that their numbers divide, by name; the medians are in the unit of `example`, one of their numbers.

    `series` are those of the slow nodes. `known`: earlier runs show the same two groups.
    """

    example: Measurement
    series: frozenset[str]
    slow: tuple[str, ...]
    fast: tuple[str, ...]
    slow_median: float
    fast_median: float
    known: bool


@dataclass(slots=True)
class PeerGroups:
    """`number` (M) numbers the groups from 0; `names` says of each which nodes it has, "" where that is all of them."""

    number: Ints
    names: list[str]
    splits: list[Split] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SeriesOfRun:
    """M series: a measurement of each, the median of tonight's (M), and every earlier night (T, M).

    Values are natural logs with more = better (`signs` is -1 where less is), NaN where there is none. The first
    `references` nights are those that teach what is healthy.
    """

    names: Sequence[str]
    first: Sequence[Measurement]
    signs: Floats
    tonight: Floats
    past: Floats
    references: int


def peer_key(m: Measurement, groups: NodeGroups) -> tuple[object, ...]:
    """What peers have in common."""
    return m.metric, m.unit, m.better, m.subject.kind, frozenset(m.conditions.items()), groups.of(m.subject)


def group_peers(run: SeriesOfRun, groups: NodeGroups) -> PeerGroups:
    """Nodes, GPUs and links of like nodes that measure the same are peers; anything else is alone."""
    numbers: dict[object, int] = {}
    names: list[str] = []
    number = np.empty(len(run.names), dtype=np.int64)
    for i, m in enumerate(run.first):
        key = peer_key(m, groups) if m.subject.kind in PEERS else run.names[i]
        number[i] = numbers.setdefault(key, len(numbers))
        if number[i] == len(names):
            names.append(" and ".join(map(shown_name, groups.of(m.subject))))
    peers = PeerGroups(number, names)
    for members in np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1]):
        if len(members) >= 2 * LEAST_NODES and run.first[members[0]].subject.kind in _DIVISIBLE:
            _divide(peers, members, run)
    return peers


def _divide(peers: PeerGroups, members: Ints, run: SeriesOfRun) -> None:
    """Give the slow nodes among the `members` a group of their own, if their numbers form one."""
    by_node: dict[str, list[int]] = {}
    for i in members.tolist():
        by_node.setdefault(run.first[i].subject.nodes[0], []).append(i)
    example, nodes = run.first[members[0]], list(by_node)
    columns = _columns(list(by_node.values()))
    tonight, past = _of_nodes(run.tonight[None, :], columns)[0], _of_nodes(run.past, columns)
    modes, known = _modes(example, tonight, past, run.references)
    if modes is None:
        return
    slow = [i for node, is_slow in zip(nodes, modes.slow.tolist(), strict=True) if is_slow for i in by_node[node]]
    number = int(peers.number[members[0]])
    peers.number[slow] = len(peers.names)
    peers.names.append(_joined(peers.names[number], "slower group"))
    peers.names[number] = _joined(peers.names[number], "faster group")
    sign = float(run.signs[members[0]])
    slow_median, fast_median = (float(np.exp(sign * np.nanmedian(tonight[side]))) for side in (modes.slow, ~modes.slow))
    slow_nodes, fast_nodes = (tuple(np.array(nodes)[side].tolist()) for side in (modes.slow, ~modes.slow))
    series = frozenset(run.names[i] for i in slow)
    peers.splits.append(Split(example, series, slow_nodes, fast_nodes, slow_median, fast_median, known))


def _modes(example: Measurement, tonight: Floats, past: Floats, references: int) -> tuple[Modes | None, bool]:
    """The two groups, and whether the past shows them. Where the past has taught what is healthy and shows none, there
    are none: nodes that became slow are at fault."""
    levels = np.where(np.isfinite(past).sum(axis=0) >= _LEAST_NIGHTS, medians(past.T), np.nan)
    if 2 * np.isfinite(levels).sum() >= np.isfinite(tonight).sum():
        modes = find_modes(levels)
        if modes and stays(modes, past):
            return modes, True
    if np.isfinite(past[:references]).sum(axis=0).max(initial=0) >= RULES.nights_to_learn:
        return None, False
    distance = _GPU_DISTANCE if example.subject.kind == "gpu" else tolerance_of(example).sigma
    return find_modes(tonight, distance), False


def _columns(members: list[list[int]]) -> Ints:
    """(N, most) the places of each node's series, -1 where it has fewer."""
    columns = np.full((len(members), max(map(len, members))), -1, dtype=np.int64)
    for row, places in zip(columns, members, strict=True):
        row[: len(places)] = places
    return columns


def _of_nodes(rows: Floats, columns: Ints) -> Floats:
    """(T, N) from (T, M): the median of each node's series."""
    return medians(np.where(columns >= 0, rows[:, columns], np.nan))


def medians(values: Floats) -> Floats:
    """Along the last axis, without NaN; NaN where there is nothing else."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    ordered, known = np.sort(values, axis=-1), np.isfinite(values)
    if known.all():
        half = values.shape[-1] // 2
        return np.asarray((ordered[..., (values.shape[-1] - 1) // 2] + ordered[..., half]) / 2, dtype=np.float64)
    count = known.sum(axis=-1)
    middle = [np.maximum(count - 1, 0) // 2, np.minimum(count // 2, values.shape[-1] - 1)]
    low, high = (np.take_along_axis(ordered, at[..., None], axis=-1)[..., 0] for at in middle)
    return np.asarray((low + high) / 2, dtype=np.float64)


def _joined(name: str, part: str) -> str:
    return f"{name}, {part}" if name else part
