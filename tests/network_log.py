"""What NCCL's own log says of the network."""

from collections.abc import Iterable

from seatrial.nccl import Transport, TransportReader


def transport(lines: Iterable[str]) -> Transport | None:
    """Which networks NCCL used; None where the log does not say."""
    reader = TransportReader()
    for line in lines:
        reader.feed(line)
    return reader.transport()
