"""Addresses of servers: whether one can be asked at all, and whether it is this machine. Pure."""

import ipaddress
from urllib.parse import SplitResult, urlsplit


def split(url: str) -> SplitResult | None:
    """Return the parts of a URL that has a host that can be asked for; None for anything else."""
    try:
        parts = urlsplit(url)
        # As clients encode it: no part may be empty, or longer than 63 characters.
        return (
            parts if parts.hostname and parts.hostname.encode("idna") and parts.port != 0 else None
        )
    except ValueError:  # half an IPv6 address, an invalid port, an invalid host
        return None


def is_loopback(host: str) -> bool:
    """Return whether the host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def legal_network(value: str) -> str:
    """Return a network (CIDR) or the name of an interface as it is.

    Raises ValueError for what is neither.
    """
    if "/" in value:
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError as error:
            raise ValueError(
                f"{error}; legal: one network such as 10.0.0.0/16, or an interface such as eth0"
            ) from error
    return value
