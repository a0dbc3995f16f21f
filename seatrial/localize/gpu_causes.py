"""GPUs as causes of slow tests: of one node, of a socket, and of a rail. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import log

import numpy as np

from seatrial.localize.addresses import socket_halves, together
from seatrial.localize.cause import EXPECTED, Cause, CauseKind, Column
from seatrial.localize.group_tests import Ends, GroupTest, Names, TestsByName
from seatrial.localize.observations import Observed


def of_gpus(observed: Observed) -> list[Column]:
    """Return a column for the GPUs of each node with slow tests; GPUs always tested together share
    one.

    Also one for each socket. GPUs that took part in every test of the node cannot be told from it,
    so they get none.
    """
    bad = observed.nodes_of(np.flatnonzero(observed.bad))
    ends = observed.tests.ends
    total = sum(map(len, ends.values()))
    found = list[Column]()
    for node, tests in ends.items():
        if node not in bad:
            continue
        alike = together(tests)
        if len(alike) < 2:
            continue
        for addresses, where in alike.items():
            prior = EXPECTED["gpu"] * len(addresses) / total
            cause = _on_node(node, addresses, prior)
            found.append(Column.of(cause, where))
        # A node has two sockets
        prior = EXPECTED["socket"] / 2 / len(ends)
        for socket, where in _sockets(tests):
            if socket not in alike:
                cause = _on_node(node, socket, prior)
                found.append(Column.of(cause, where))
    return found


def _sockets(tests: TestsByName) -> Iterator[tuple[Names, list[int]]]:
    """Yield the GPUs of each socket of a node with their tests, except a socket used in
    every test.
    """
    every = _tests_of(tests, tests)
    for socket in socket_halves(tests):
        where = _tests_of(tests, socket)
        if len(where) < len(every):
            yield socket, where


def _on_node(node: str, addresses: Names, prior: float) -> Cause:
    """Return the cause of GPUs of one node."""
    kind: CauseKind = "gpu"
    if len(addresses) > 1:
        kind = "socket"
    return Cause(
        kind=kind,
        name=f"{node}/{' '.join(addresses)}",
        nodes=(node,),
        gpus=addresses,
        log_prior=log(prior),
    )


def _tests_of(tests: TestsByName, addresses: Iterable[str]) -> list[int]:
    """Return the indices of the tests with any of the addresses."""
    return sorted({i for address in addresses for i in tests[address]})


def of_rails(observed: Observed) -> list[Column]:
    """Return a column for each GPU address, on all nodes, that some but not all tests use.

    Addresses that always take part together share one.
    """
    everywhere = _tests_by_address(observed.tests.ends)
    alike = together(everywhere)
    some = [gpus for gpus, where in alike.items() if len(where) < len(observed.tests)]
    number = max(1, len(some))
    log_prior = log(EXPECTED["rail"] / number)
    rails = list[Column]()
    for gpus in some:
        cause = Cause("rail", " ".join(gpus), gpus=gpus, log_prior=log_prior)
        rail = Column.of(cause, alike[gpus])
        rails.append(rail)
        rails += at_one_end(rail, observed.tests)
    return rails


def _tests_by_address(ends: Ends) -> TestsByName:
    """Return the indices of the tests with each address, if more than one node has the address."""
    nodes = Counter[str]()
    places: dict[str, set[int]] = defaultdict(set)
    for tests in ends.values():
        nodes.update(tests.keys())
        for address, where in tests.items():
            places[address].update(where)
    by_address: TestsByName = {}
    for address, some in places.items():
        if nodes[address] > 1:
            by_address[address] = sorted(some)
    return by_address


def at_one_end(part: Column, tests: Sequence[GroupTest]) -> list[Column]:
    """Return the column with only the tests that leave its nodes or rail, if it has others too.

    It blames the uplinks alone. For a rail, only tests with one GPU per node count, since a hash
    may choose the path of others.
    """
    inside = set(part.cause.nodes)
    outside = []
    for i in part.tests.tolist():
        test = tests[i]
        is_within = not inside or inside.issuperset(test.nodes)
        if is_within and not test.crossed:
            continue
        if part.cause.kind != "rail" or all(len(gpus) == 1 for gpus in test.gpus):
            outside.append(i)
    if not 0 < len(outside) < len(part.tests):
        return []
    cause = replace(part.cause, at_one_end=True)
    return [Column.of(cause, outside)]
