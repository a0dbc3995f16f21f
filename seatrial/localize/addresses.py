"""Addresses of GPUs: those that took part together, and on which socket they are. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from seatrial.localize.group_tests import GroupTest, Names

_SECOND_SOCKET = 0x80  # PCI buses from here on hang on the second processor
Place = TypeVar("Place", int, tuple[str, int])  # of a test, or of one beside a node


def together(where: Mapping[str, Sequence[Place]]) -> dict[Names, list[Place]]:
    """Return the tests of each group of addresses that took part in the same ones."""
    alike: dict[tuple[Place, ...], list[str]] = defaultdict(list)
    for address in sorted(where):
        tests = tuple(where[address])
        alike[tests].append(address)
    return {tuple(addresses): list(tests) for tests, addresses in alike.items()}


def socket_halves(addresses: Iterable[str]) -> list[Names]:
    """Return the addresses on each of two sockets; none where all are on one."""
    seen = frozenset(addresses)
    second = {address for address in seen if _is_on_second_socket(address)}
    halves = []
    for half in (seen - second, second):
        if 1 < len(half) < len(seen):
            halves.append(tuple(sorted(half)))
    return halves


def across_sockets(test: GroupTest) -> bool:
    """Return whether the nodes took part with GPUs on different sockets."""
    sockets = set(map(_sockets, test.gpus))
    return len(sockets) > 1


@lru_cache(1024)
def _sockets(addresses: Names) -> frozenset[bool]:
    """Return whether any of the addresses is on the second socket, and any is not."""
    return frozenset(map(_is_on_second_socket, addresses))


def _is_on_second_socket(address: str) -> bool:
    return _bus(address) >= _SECOND_SOCKET


def _bus(address: str) -> int:
    """Return the bus of `0000:9d:00` or `9d:00.0`; 0 where an address has none."""
    parts = address.split(":")
    if len(parts) < 2:
        return 0
    try:
        return int(parts[-2], 16)
    except ValueError:
        return 0
