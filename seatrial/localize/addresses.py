"""Group GPU addresses by the tests they took part in, and by CPU socket. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from seatrial.localize.group_tests import GroupTest, Names

_SECOND_SOCKET = 0x80  # PCI bus numbers from here on belong to the second CPU socket
Place = TypeVar("Place", int, tuple[str, int])  # index of a test, or (node, index of a test)


def together(where: Mapping[str, Sequence[Place]]) -> dict[Names, list[Place]]:
    """Group the addresses that took part in exactly the same tests, with the tests of each
    group.
    """
    alike: dict[tuple[Place, ...], list[str]] = defaultdict(list)
    for address in sorted(where):
        tests = tuple(where[address])
        alike[tests].append(address)
    return {tuple(addresses): list(tests) for tests, addresses in alike.items()}


def socket_halves(addresses: Iterable[str]) -> list[Names]:
    """Return the addresses on each CPU socket, where a socket has more than one but not all of
    them.
    """
    seen = frozenset(addresses)
    second = {address for address in seen if _is_on_second_socket(address)}
    halves = []
    for half in (seen - second, second):
        if 1 < len(half) < len(seen):
            halves.append(tuple(sorted(half)))
    return halves


def across_sockets(test: GroupTest) -> bool:
    """Return whether the nodes of the test used GPUs on different CPU sockets."""
    sockets = set(map(_sockets, test.gpus))
    return len(sockets) > 1


@lru_cache(1024)
def _sockets(addresses: Names) -> frozenset[bool]:
    """Return the sockets of the addresses, True for the second socket."""
    return frozenset(map(_is_on_second_socket, addresses))


def _is_on_second_socket(address: str) -> bool:
    return _bus(address) >= _SECOND_SOCKET


def _bus(address: str) -> int:
    """Return the bus number of `0000:9d:00` or `9d:00.0`; 0 if the address has none."""
    parts = address.split(":")
    if len(parts) < 2:
        return 0
    try:
        return int(parts[-2], 16)
    except ValueError:
        return 0
